// The unpacked corpus of a fuzz target, as the rule phalanx_fuzz_test leaves it in a folder: a test
// that depends on //src/net/fuzz:frame_corpus finds it in src/net/fuzz/frame_corpus.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

struct FuzzInput {
  std::string name;  // Of the file.
  std::string bytes;
};

// Returns the inputs in the order of their names, or none if the folder is empty. Throws
// std::filesystem::filesystem_error if the folder does not exist.
std::vector<FuzzInput> ReadFuzzCorpus(const std::filesystem::path& folder);
