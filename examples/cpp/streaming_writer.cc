// A writer that publishes while it writes, and a reader that follows it: published bytes travel to
// other hosts long before the object is complete.
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "phalanx/client.h"

namespace {

constexpr size_t kBytes = 8 << 20;
constexpr size_t kStep = 1 << 20;

// The value of byte i.
char Expected(size_t i) { return static_cast<char>(i / kStep); }

bool Write(phalanx::Client& client, const phalanx::ObjectId& id) {
  auto buffer = client.Create(id, kBytes);
  if (!buffer.ok()) return false;
  for (size_t done = 0; done < kBytes; done += kStep) {
    const auto part = buffer->span().subspan(done, kStep);
    std::fill(part.begin(), part.end(), Expected(done));
    // All bytes up to here are final, so receivers can get them now.
    if (!buffer->Publish(done + kStep).ok()) return false;
  }
  // From now on Get returns it.
  return buffer->Seal().Wait().ok();
}

bool Read(phalanx::Client& client, const phalanx::ObjectId& id) {
  auto stream = client.GetStream(id);
  if (!stream.ok()) return false;
  size_t read = 0;
  bool right = true;
  while (true) {
    const auto next = stream->Next();
    if (absl::IsAborted(next.status())) {
      // The writer was lost half-way and another one took over: the bytes read so far are void.
      read = 0;
      right = true;
      continue;
    }
    if (!next.ok()) return false;
    if (next->empty()) break;  // the end: all bytes read are final
    for (const char byte : *next) right = right && byte == Expected(read++);
  }
  std::printf("read %zu bytes, %s\n", read, right ? "all as written" : "with errors");
  return right && read == kBytes;
}

}  // namespace

int main() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  const phalanx::ObjectId id = phalanx::ObjectId::Random();
  bool read = false;
  // One client serves both threads.
  std::thread reader([&] { read = Read(**client, id); });
  const bool written = Write(**client, id);
  reader.join();
  return written && read ? 0 : 1;
}
