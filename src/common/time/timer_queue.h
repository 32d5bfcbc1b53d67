// TimerQueue: the timers of one executor, in order of (when, id).
//
// Each implementation of Executor owns one and takes the due timers from it. Adding and cancelling
// cost O(log n). Cancelled entries are dropped lazily, but their number never exceeds that of live
// ones by more than a constant. One thread at a time.
#ifndef PHALANX_COMMON_TIME_TIMER_QUEUE_H_
#define PHALANX_COMMON_TIME_TIMER_QUEUE_H_

#include <compare>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/common/time/executor.h"
#include "src/common/time/instant.h"

namespace phalanx {

class TimerQueue {
 public:
  TimerId Add(Instant when, Task task);
  // Cancels a live timer and returns its task for the caller to destroy. Returns an empty task if
  // the timer is not live.
  Task Cancel(TimerId id);

  // Returns the time of the first live timer, or Infinite if there is none.
  Instant Next();
  bool empty() const { return tasks_.empty(); }

  // Appends the ids that are due at `now`, in order. They stay live until they are cancelled or
  // taken, so that a timer can still cancel a later one of the same turn.
  void CollectDue(Instant now, std::vector<TimerId>& due);
  // Takes the task of a collected timer. Returns an empty task if the timer was cancelled since.
  Task Take(TimerId id) { return Cancel(id); }

  // Removes every live task and returns them for the caller to destroy.
  std::vector<Task> Clear();

 private:
  struct Entry {
    Instant when;
    TimerId id;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  bool Live(const Entry& entry) const { return tasks_.contains(entry.id); }
  void PopHeap();
  void Compact();

  TimerId last_id_ = 0;
  // A heap with the least entry in front. An entry without a task is a cancelled one.
  std::vector<Entry> heap_;
  absl::flat_hash_map<TimerId, Task> tasks_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIME_TIMER_QUEUE_H_
