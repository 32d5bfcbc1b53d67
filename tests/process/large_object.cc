// One large object: puts it, or gets it whole and in ranges and checks every byte.
//
//   large_object ADDRESS put|check BYTES ID
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/client.h"

namespace {

constexpr uint64_t kStep = uint64_t{64} << 20;
constexpr uint64_t k4GiB = uint64_t{1} << 32;

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Differs between places that are a multiple of 4 GiB apart, so truncated offsets are detected.
char ByteAt(uint64_t offset) {
  return static_cast<char>(offset * 0x9e3779b97f4a7c15u >> 56 ^ offset >> 32);
}

void Put(phalanx::Client& client, const phalanx::ObjectId& id, uint64_t bytes) {
  auto writer = client.Create(id, bytes);
  Require(writer.ok(), writer.status().ToString());
  for (uint64_t begin = 0; begin < bytes; begin += kStep) {
    const uint64_t end = std::min(bytes, begin + kStep);
    for (uint64_t i = begin; i < end; ++i) writer->span()[i] = ByteAt(i);
    const absl::Status published = writer->Publish(end);
    Require(published.ok(), published.ToString());
  }
  const auto sealed = writer->Seal().Wait();
  Require(sealed.ok(), sealed.status().ToString());
}

void CheckRange(phalanx::Client& client, const phalanx::ObjectId& id, uint64_t bytes,
                uint64_t offset, uint64_t length) {
  phalanx::GetOptions options;
  options.offset = offset;
  options.length = length;
  const auto got = client.Get(id, options).Wait();
  const std::string range = std::to_string(length) + " bytes at " + std::to_string(offset);
  Require(got.ok(), range + ": " + got.status().ToString());
  Require(got->object_size() == bytes, range + ": the object has another size");
  Require(got->size() == std::min(length, bytes - offset), range + ": not so many bytes");
  for (uint64_t i = 0; i < got->size(); ++i) {
    Require(got->data()[i] == ByteAt(offset + i), range + ": wrong bytes");
  }
}

void Check(phalanx::Client& client, const phalanx::ObjectId& id, uint64_t bytes) {
  CheckRange(client, id, bytes, 0, UINT64_MAX);
  CheckRange(client, id, bytes, bytes - 1, UINT64_MAX);
  CheckRange(client, id, bytes, bytes, 10);
  for (const uint64_t length : {uint64_t{17}, uint64_t{1} << 20}) {
    CheckRange(client, id, bytes, bytes / 2, length);
    if (bytes > k4GiB + length) CheckRange(client, id, bytes, k4GiB - length / 2, length);
  }
  phalanx::GetOptions beyond;
  beyond.offset = bytes + 1;
  const auto refused = client.Get(id, beyond).Wait();
  Require(absl::IsOutOfRange(refused.status()), "beyond: " + refused.status().ToString());
  std::vector<char> tail(4096);
  phalanx::GetOptions last;
  last.offset = bytes - tail.size();
  const auto copied = client.GetInto(id, absl::MakeSpan(tail), last);
  Require(copied.ok() && *copied == tail.size(), "copied: " + copied.status().ToString());
  for (uint64_t i = 0; i < tail.size(); ++i) {
    Require(tail[i] == ByteAt(last.offset + i), "copied: wrong bytes");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Require(argc == 5, "large_object ADDRESS put|check BYTES ID");
  phalanx::ClientOptions options;
  options.address = argv[1];
  const uint64_t bytes = std::strtoull(argv[3], nullptr, 10);
  const auto id = phalanx::ObjectId::FromHex(argv[4]);
  Require(id.ok(), id.status().ToString());
  const auto client = phalanx::Client::Connect(options);
  Require(client.ok(), client.status().ToString());
  if (argv[2] == std::string("put")) {
    Put(**client, *id, bytes);
  } else {
    Check(**client, *id, bytes);
  }
  return 0;
}
