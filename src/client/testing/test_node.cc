// A node as a separate process, with the contract of `phalanx up --embedded-fd`: it writes READY to
// the inherited descriptor and ends when it reads end of file there. Testonly.
//
// |  test_node up --embedded-fd=N [--capacity=BYTES]
//
// PHALANX_TEST_NODE=fail: writes ERROR instead; silent: writes nothing.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/local/testing/local_node.h"

namespace {

void Say(int fd, const std::string& line) {
  if (write(fd, line.data(), line.size()) < 0) std::exit(1);
}

void AwaitEndOfFile(int fd) {
  char byte = 0;
  while (read(fd, &byte, 1) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  int fd = -1;
  uint64_t capacity = uint64_t{256} << 20;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--embedded-fd=") && !absl::SimpleAtoi(argument, &fd))
      return 2;
    if (absl::ConsumePrefix(&argument, "--capacity=") && !absl::SimpleAtoi(argument, &capacity)) {
      return 2;
    }
  }
  const char* mode = std::getenv("PHALANX_TEST_NODE");
  if (mode != nullptr && absl::string_view(mode) == "fail") {
    Say(fd, "ERROR there is no room on this machine\n");
    return 1;
  }
  if (mode != nullptr && absl::string_view(mode) == "silent") {
    AwaitEndOfFile(fd);
    return 0;
  }
  phalanx::object_store::testing::LocalNode node(capacity);
  Say(fd, absl::StrCat("READY ", node.address(), "\n"));
  AwaitEndOfFile(fd);
  return 0;
}
