// One client of a soak run: executes each line of its standard input through the node of this host,
// and prints the time that it took.
//
//   soak_load ADDRESS
//   put OBJECT BYTES    get OBJECT BYTES    rm OBJECT
//
// Prints "put MICROSECONDS" and the like, or exits with 1. The last views are held for a while.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"

namespace {

constexpr size_t kHeld = 8;
constexpr absl::Duration kTimeout = absl::Seconds(60);

void Check(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", std::string(what).c_str(), status.ToString().c_str());
  std::exit(1);
}

char ByteAt(uint64_t object, uint64_t i) {
  return static_cast<char>(object * 31 + i * 7 + i / 251);
}

std::string Content(uint64_t object, uint64_t bytes) {
  std::string content(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i) content[i] = ByteAt(object, i);
  return content;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  phalanx::ClientOptions options;
  options.address = argv[1];
  auto connected = phalanx::Client::Connect(options);
  Check(connected.status(), "connect");
  phalanx::Client& client = **connected;
  std::deque<phalanx::Buffer> held;
  std::string verb;
  uint64_t object = 0;
  while (std::cin >> verb >> object) {
    const phalanx::ObjectId id = client.Id(absl::StrCat("soak/", object));
    uint64_t bytes = 0;
    if (verb != "rm") std::cin >> bytes;
    const std::string expected = Content(object, bytes);
    const auto begun = std::chrono::steady_clock::now();
    if (verb == "put") {
      phalanx::PutOptions put;
      put.wait_for_adoption = true;
      Check(client.Put(id, expected, put).Wait().status(), verb);
    } else if (verb == "get") {
      phalanx::GetOptions get;
      get.timeout = kTimeout;
      auto buffer = client.Get(id, get).Wait();
      Check(buffer.status(), verb);
      held.push_back(*std::move(buffer));
    } else {
      Check(client.Delete(id).Wait().status(), verb);
    }
    const auto took = std::chrono::steady_clock::now() - begun;
    if (verb == "get" && held.back().view() != expected) {
      std::fprintf(stderr, "object %lu has other bytes than were put\n", object);
      return 1;
    }
    if (held.size() > kHeld) held.pop_front();
    std::printf("%s %.0f\n", verb.c_str(), std::chrono::duration<double, std::micro>(took).count());
    std::fflush(stdout);
  }
  return 0;
}
