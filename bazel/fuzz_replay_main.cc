// Feeds every input of the unpacked corpora named on the command line to LLVMFuzzerTestOneInput,
// once and in the order of their names, so that a fuzz target's corpus runs as an ordinary test
// with any compiler. Exits with 1 if there is no input at all: with an empty corpus the test could
// not fail.

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "bazel/fuzz_corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void Replay(const FuzzInput& input) {
  // Printed before the input runs, so that the output of a crash ends with the name of its input.
  std::printf("%s\n", input.name.c_str());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.bytes.data()),
                         input.bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const FuzzInput& input : ReadFuzzCorpus(argv[i])) {
      Replay(input);
      ++inputs;
    }
  }
  std::printf("%zu inputs replayed\n", inputs);
  return inputs == 0 ? 1 : 0;
}
