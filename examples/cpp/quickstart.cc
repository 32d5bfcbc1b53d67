// Puts an object and gets it back.
//
//   quickstart                                               with a private cluster
//   PHALANX_ADDRESS=unix:/run/phalanx/node.sock quickstart   with the node of this host
#include <cstdio>
#include <string>

#include "phalanx/client.h"

int main() {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }

  // Any 20 bytes name an object. Every client that uses the same name gets the same id.
  const phalanx::ObjectId id = (*client)->Id("greeting");

  phalanx::PutOptions options;
  options.metadata = "text/plain";
  const auto put = (*client)->Put(id, "hello, world", options).Wait();
  if (!put.ok()) {
    std::fprintf(stderr, "%s\n", put.status().ToString().c_str());
    return 1;
  }

  const auto got = (*client)->Get(id).Wait();
  if (!got.ok()) {
    std::fprintf(stderr, "%s\n", got.status().ToString().c_str());
    return 1;
  }
  // Shared memory, read-only, no copy. The bytes stay valid for as long as `got` lives.
  std::printf("%s (%s)\n", std::string(got->view()).c_str(), std::string(got->metadata()).c_str());
  return 0;
}
