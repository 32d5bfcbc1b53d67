#include "src/common/time/timer_queue.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace phalanx {

// Below this size the heap is not compacted: cancelled entries are dropped when they reach the
// front.
constexpr size_t kCompactAbove = 64;

TimerId TimerQueue::Add(Instant when, Task task) {
  const TimerId id = ++last_id_;
  tasks_.emplace(id, std::move(task));
  heap_.push_back({when, id});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  return id;
}

Task TimerQueue::Cancel(TimerId id) {
  const auto it = tasks_.find(id);
  if (it == tasks_.end()) return nullptr;
  // Moved out before the entry is erased: the task's destructor can call this queue again.
  Task task = std::move(it->second);
  tasks_.erase(it);
  // The entry stays in the heap, since finding it there costs O(n). Compact costs O(n), too, but at
  // least n / 2 calls of Cancel precede it.
  if (heap_.size() > kCompactAbove && heap_.size() > 2 * tasks_.size()) Compact();
  return task;
}

Instant TimerQueue::Next() {
  while (!heap_.empty() && !Live(heap_.front())) PopHeap();
  return heap_.empty() ? Instant::Infinite() : heap_.front().when;
}

void TimerQueue::CollectDue(Instant now, std::vector<TimerId>& due) {
  // A timer at Infinite never runs, whatever `now` is.
  while (!heap_.empty() && heap_.front().when <= now && !heap_.front().when.infinite()) {
    if (Live(heap_.front())) due.push_back(heap_.front().id);
    PopHeap();
  }
}

std::vector<Task> TimerQueue::Clear() {
  std::vector<Task> tasks;
  // The caller destroys the tasks after the queue is empty, so that a destructor that adds or
  // cancels a timer finds a consistent queue.
  for (auto& [id, task] : tasks_) tasks.push_back(std::move(task));
  tasks_.clear();
  heap_.clear();
  return tasks;
}

void TimerQueue::PopHeap() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  heap_.pop_back();
}

void TimerQueue::Compact() {
  heap_.erase(std::remove_if(heap_.begin(), heap_.end(),
                             [this](const Entry& entry) { return !Live(entry); }),
              heap_.end());
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace phalanx
