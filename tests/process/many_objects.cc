// Puts many objects through the node of this host, or gets all of them and checks every byte, with
// all views held at once. Then prints "held", and releases them when its standard input ends.
//
//   many_objects ADDRESS put|get COUNT BYTES
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"

namespace {

// The number of calls in flight.
constexpr uint64_t kWindow = 1000;

void Check(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", std::string(what).c_str(), status.ToString().c_str());
  std::exit(1);
}

// Word w of object i is i * 2^32 + w. The bytes after the last whole word are zero.
void Fill(uint64_t object, std::string& bytes) {
  for (uint64_t word = 0; word < bytes.size() / sizeof(word); ++word) {
    const uint64_t value = (object << 32) + word;
    std::memcpy(bytes.data() + word * sizeof(value), &value, sizeof(value));
  }
}

phalanx::ObjectId IdOf(phalanx::Client& client, uint64_t object) {
  return client.Id(absl::StrCat("many/", object));
}

void PutAll(phalanx::Client& client, uint64_t count, uint64_t bytes) {
  std::string content(bytes, '\0');
  std::vector<phalanx::Future<phalanx::PutResult>> puts;
  for (uint64_t object = 0; object < count; ++object) {
    Fill(object, content);
    phalanx::PutOptions options;
    options.wait_for_adoption = true;
    puts.push_back(client.Put(IdOf(client, object), content, options));
    if (puts.size() < kWindow && object + 1 < count) continue;
    for (const auto& put : puts) Check(put.Wait().status(), "put");
    puts.clear();
  }
}

std::vector<phalanx::Buffer> GetAll(phalanx::Client& client, uint64_t count, uint64_t bytes) {
  std::string expected(bytes, '\0');
  std::vector<phalanx::Buffer> held;
  while (held.size() < count) {
    std::vector<phalanx::ObjectId> ids;
    for (uint64_t i = held.size(); i < count && ids.size() < kWindow; ++i) {
      ids.push_back(IdOf(client, i));
    }
    phalanx::GetOptions options;
    options.timeout = absl::Seconds(60);
    auto got = client.GetMany(ids, options).Wait();
    Check(got.status(), "get");
    for (phalanx::Buffer& buffer : *got) {
      Fill(held.size(), expected);
      if (buffer.view() != expected) {
        std::fprintf(stderr, "object %zu has other bytes than were put\n", held.size());
        std::exit(1);
      }
      held.push_back(std::move(buffer));
    }
  }
  return held;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "many_objects ADDRESS put|get COUNT BYTES\n");
    return 2;
  }
  phalanx::ClientOptions options;
  options.address = argv[1];
  const uint64_t count = std::strtoull(argv[3], nullptr, 10);
  const uint64_t bytes = std::strtoull(argv[4], nullptr, 10);
  auto client = phalanx::Client::Connect(options);
  Check(client.status(), "connect");
  const absl::string_view verb = argv[2];
  std::vector<phalanx::Buffer> held;
  if (verb == "put") {
    PutAll(**client, count, bytes);
  } else {
    held = GetAll(**client, count, bytes);
  }
  std::puts("held");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
