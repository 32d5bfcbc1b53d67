// TimerQueue: the timers of one executor, in order of (when, id).
//
// Behind every Executor: the implementation owns one and asks it what is due. Adding and cancelling
// cost O(log n); cancelled entries are dropped lazily, but there are never more of them than of
// live ones (and a few). Values; one thread at a time.
#ifndef PHALANX_COMMON_TIMER_QUEUE_H_
#define PHALANX_COMMON_TIMER_QUEUE_H_

#include <compare>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/common/executor.h"
#include "src/common/instant.h"

namespace phalanx {

class TimerQueue {
 public:
  TimerId Add(Instant when, Task task);
  // The task of a live timer, for the caller to destroy; an empty one otherwise.
  Task Cancel(TimerId id);

  // When the first live timer is due; Infinite when there is none.
  Instant Next();
  bool empty() const { return tasks_.empty(); }

  // Appends the ids that are due at `now`, in order. They stay live until they are cancelled or
  // taken, so that a timer can still cancel a later one of the same turn.
  void CollectDue(Instant now, std::vector<TimerId>& due);
  // Takes a collected timer's task; an empty one when it was cancelled since.
  Task Take(TimerId id) { return Cancel(id); }

  // Every live task, for the caller to destroy.
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
  // A heap with the least entry in front; entries without a task are cancelled ones.
  std::vector<Entry> heap_;
  absl::flat_hash_map<TimerId, Task> tasks_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_TIMER_QUEUE_H_
