// The inputs of the oracle: worlds drawn from seeds, and inputs of the fuzz corpora.
// Testonly.
#ifndef PHALANX_TESTS_ORACLE_SOURCES_H_
#define PHALANX_TESTS_ORACLE_SOURCES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/oracle/transcript.h"

namespace phalanx::oracle {

struct Source {
  std::string name;
  // Runs the worlds of `cases` numbers from `first` on.
  uint64_t first = 1;
  uint64_t cases = 0;
  // One world. A function of its number alone; any thread.
  std::function<void(uint64_t number, Transcript&)> run;
};

// Of worlds that take long there is one for so many seeds.
inline constexpr uint64_t kSlower = 50;

// The core's worlds of `seeds` seeds from `first` on, fewer of slower worlds, and all inputs of the
// corpora, which have numbers from 0.
// REQUIRES: the working directory is the root of the runfiles, as under `bazel run`.
std::vector<Source> AllSources(uint64_t first, uint64_t seeds);

struct SourceDigest {
  std::string name;
  uint64_t first = 1;
  uint64_t messages = 0;
  // One for each case.
  std::vector<Digest> cases;

  // Of the cases [begin, end).
  Digest Of(size_t begin, size_t end) const;
  Digest Whole() const { return Of(0, cases.size()); }
};

// Runs all cases of a source on so many threads. The result is the same for any number.
SourceDigest RunSource(const Source& source, int threads, Transcript::Options options);

}  // namespace phalanx::oracle

#endif  // PHALANX_TESTS_ORACLE_SOURCES_H_
