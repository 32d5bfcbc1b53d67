#include "src/sim/cluster/journal.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace phalanx::sim {

void Journal::Add(std::string line) {
  const double seconds = static_cast<double>(scheduler_.now().nanos()) * 1e-9;
  line = absl::StrFormat("%12.6f  %s", seconds, line);
  hash_ = XXH3_64bits_withSeed(line.data(), line.size(), hash_);
  if (verbose_) std::fprintf(stderr, "%s\n", line.c_str());
  tail_.push_back(std::move(line));
  if (tail_.size() > kKeptLines) tail_.pop_front();
}

void Journal::Violation(absl::string_view what) {
  Note("VIOLATION: ", what);
  const double seconds = static_cast<double>(scheduler_.now().nanos()) * 1e-9;
  violation_.Update(absl::InternalError(absl::StrFormat("at %.6f s: %s", seconds, what)));
}

void Journal::Violation(absl::string_view where, const absl::Status& status) {
  if (!status.ok()) Violation(absl::StrCat(where, ": ", status.ToString()));
}

std::string Journal::Tail() const { return absl::StrJoin(tail_, "\n"); }

}  // namespace phalanx::sim
