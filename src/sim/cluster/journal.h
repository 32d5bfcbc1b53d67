// The trace of a simulated world, one line for each event: a hash of all lines (equal for two runs
// of one seed), the last lines for the report of a failure, and the first violation. Testonly; on
// the test's thread.
#ifndef PHALANX_SIM_CLUSTER_JOURNAL_H_
#define PHALANX_SIM_CLUSTER_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::sim {

class Journal {
 public:
  // The number of lines kept for the report of a failure.
  static constexpr size_t kKeptLines = 60;

  // `scheduler` must outlive this. `verbose` prints every line to stderr immediately.
  explicit Journal(const SimScheduler& scheduler, bool verbose = false)
      : scheduler_(scheduler), verbose_(verbose) {}

  template <typename... Args>
  void Note(const Args&... args) {
    Add(absl::StrCat(args...));
  }

  // Records that an invariant does not hold. Only the first violation is kept.
  void Violation(absl::string_view what);
  // Does nothing if `status` is OK.
  void Violation(absl::string_view where, const absl::Status& status);
  // Returns OK, or Internal with the simulated time and the invariant.
  const absl::Status& violation() const { return violation_; }

  uint64_t trace_hash() const { return hash_; }
  // Returns the last lines, oldest first.
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

#endif  // PHALANX_SIM_CLUSTER_JOURNAL_H_
