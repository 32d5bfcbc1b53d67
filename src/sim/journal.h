// What happened in a simulated world, in one line per event: a hash of all lines (two runs of one
// seed must have the same), the last ones for whoever looks into a failure, and the first
// violation. Testonly; on the test's thread.
#ifndef PHALANX_SIM_JOURNAL_H_
#define PHALANX_SIM_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/sim/sim_executor.h"

namespace phalanx::sim {

class Journal {
 public:
  // Lines kept for a failure's report.
  static constexpr size_t kKeptLines = 60;

  // `scheduler` outlives this. `verbose` prints every line to stderr as it comes.
  explicit Journal(const SimScheduler& scheduler, bool verbose = false)
      : scheduler_(scheduler), verbose_(verbose) {}

  template <typename... Args>
  void Note(const Args&... args) {
    Add(absl::StrCat(args...));
  }

  // An invariant does not hold. The first one counts.
  void Violation(absl::string_view what);
  // Nothing if `status` is OK.
  void Violation(absl::string_view where, const absl::Status& status);
  // Internal with the simulated time and what does not hold.
  const absl::Status& violation() const { return violation_; }

  uint64_t trace_hash() const { return hash_; }
  // The last lines, the oldest first.
  std::string Tail() const;

 private:
  void Add(std::string line);

  const SimScheduler& scheduler_;
  const bool verbose_;
  uint64_t hash_ = 0;
  std::deque<std::string> tail_;
  absl::Status violation_;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_JOURNAL_H_
