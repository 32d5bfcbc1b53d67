#include "src/ps/clocks.h"

#include <algorithm>

#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::ps::internal {

Clocks::Clocks(int workers) : workers_(workers) {}

// The first one: an error text names one worker, and any of them holds up the others.
int Clocks::slowest() const {
  for (int worker = 0; worker < workers(); ++worker) {
    if (counted(worker) && of(worker) == min_) return worker;
  }
  return -1;
}

// min() becomes the least of those that are counted.
bool Clocks::Rise() {
  bool any = false;
  uint64_t least = 0;
  for (const Worker& worker : workers_) {
    if (!worker.counted) continue;
    least = any ? std::min(least, worker.clock) : worker.clock;
    any = true;
  }
  if (!any || least <= min_) return false;
  min_ = least;
  return true;
}

// Only the end of the least clock can raise it, and Rise looks at all workers: so most ends cost
// nothing.
bool Clocks::Advance(int worker) {
  PHALANX_CHECK(counted(worker), "a worker that is not counted has no clock to end");
  return ++workers_[worker].clock == min_ + 1 && Rise();
}

// m can rise by any number: it becomes the least clock of those that stay.
bool Clocks::Remove(int worker) {
  workers_[worker].counted = false;
  const uint64_t before = min_;
  const bool risen = Rise();
  if (risen && DefectActive(Defect::kPsMinimumPlusOne)) min_ = before + 1;
  return risen;
}

// Behind min() its pushes would be of clocks that have turned.
uint64_t Clocks::Rejoin(int worker) {
  workers_[worker].counted = true;
  workers_[worker].clock = std::max(workers_[worker].clock, min_);
  Rise();
  return workers_[worker].clock;
}

// With no worker counted m cannot be computed: it is saved beside the clocks.
void Clocks::Load(const std::vector<Worker>& saved, uint64_t min) {
  PHALANX_CHECK(saved.size() == workers_.size(), "the clocks are of as many workers");
  workers_ = saved;
  min_ = min;
  Rise();
}

}  // namespace phalanx::ps::internal
