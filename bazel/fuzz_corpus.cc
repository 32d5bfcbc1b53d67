#include "bazel/fuzz_corpus.h"

#include <algorithm>
#include <fstream>
#include <iterator>

std::vector<FuzzInput> ReadFuzzCorpus(const std::filesystem::path& folder) {
  std::vector<FuzzInput> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    inputs.push_back({.name = entry.path().filename().string(),
                      .bytes = {std::istreambuf_iterator<char>(stream), {}}});
  }
  // The order of a folder depends on the file system; a replay must not.
  std::sort(inputs.begin(), inputs.end(),
            [](const FuzzInput& a, const FuzzInput& b) { return a.name < b.name; });
  return inputs;
}
