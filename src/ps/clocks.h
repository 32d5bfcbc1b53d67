// Clocks: how many clocks each worker has ended, and the least of them.
//
// Pure. One thread at a time.
#ifndef PHALANX_PS_CLOCKS_H_
#define PHALANX_PS_CLOCKS_H_

#include <cstdint>
#include <vector>

namespace phalanx::ps::internal {

class Clocks {
 public:
  // All workers are counted, at clock 0.
  explicit Clocks(int workers);

  int workers() const { return static_cast<int>(workers_.size()); }
  bool counted(int worker) const { return workers_[worker].counted; }
  // Of a worker that is not counted, its last one.
  uint64_t of(int worker) const { return workers_[worker].clock; }
  // The least clock of those that are counted. When none is counted, the last one. Never falls.
  uint64_t min() const { return min_; }
  // A worker that is counted and has this clock. -1: none is counted.
  int slowest() const;
  // The worker has ended one more clock. Returns true if min() has risen. REQUIRES: it is counted.
  bool Advance(int worker);
  // The worker is not counted any more: min() becomes the least of the others, by any number.
  // Returns true if it has risen.
  bool Remove(int worker);
  // It is counted again, at max(its clock, min()), which this returns. min() can rise only if none
  // was counted before.
  uint64_t Rejoin(int worker);

  // For snapshots.
  struct Worker {
    uint64_t clock = 0;
    bool counted = true;
    friend bool operator==(const Worker&, const Worker&) = default;
  };
  const std::vector<Worker>& Save() const { return workers_; }
  // `min` is needed if none is counted, else it may be 0. REQUIRES: as many workers as there are
  // here, and none that is counted is before `min`.
  void Load(const std::vector<Worker>& saved, uint64_t min);

 private:
  bool Rise();

  std::vector<Worker> workers_;
  uint64_t min_ = 0;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_CLOCKS_H_
