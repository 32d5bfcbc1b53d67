// The threads that wait for a connection, and which of them leads (see "Leader and followers" in
// connection.h).
//
//   no leader ──BeginLead──► leading ──Nudge──► leading, nudged
//       ▲                       │                      │
//       └───────EndLead─────────┴──────────────────────┘
//
// A nudge makes nudge_fd() readable, so that a leader that polls it returns at once. EndLead takes
// the nudge back.
//
// Owned by a connection, used under its lock. nudge_fd() is constant, so the leader polls it
// without the lock.
#ifndef PHALANX_CLIENT_CONNECTION_WAIT_QUEUE_H_
#define PHALANX_CLIENT_CONNECTION_WAIT_QUEUE_H_

#include <list>

#include "absl/functional/function_ref.h"
#include "src/common/threads/mutex.h"

namespace phalanx::internal {

struct Waiter {
  // Whether the wait has ended; evaluated under the lock.
  absl::FunctionRef<bool()> done;
  // The thread runs callbacks that are ready.
  bool runs_callbacks = false;
  // For a thread that does not lead.
  CondVar wake;
};

class WaitQueue {
 public:
  WaitQueue();
  ~WaitQueue();
  WaitQueue(const WaitQueue&) = delete;
  WaitQueue& operator=(const WaitQueue&) = delete;

  // -1 if the system refused a descriptor.
  int nudge_fd() const { return nudge_fd_; }

  using Place = std::list<Waiter*>::iterator;
  Place Add(Waiter& waiter) { return waiters_.insert(waiters_.end(), &waiter); }
  void Remove(Place place) { waiters_.erase(place); }

  // Whether a thread leads, with or without the lock.
  bool leading() const { return leading_; }
  // `waiter` is null if the thread does not wait (Poll). REQUIRES: no thread leads.
  void BeginLead(const Waiter* waiter);
  void EndLead();

  // Wakes the leader, if there is one and no nudge is pending.
  void Nudge();
  // Wakes every waiter that is done and, if callbacks are ready, one that runs them.
  void WakeEnded(bool callbacks_ready);
  // If no thread leads, wakes one waiter other than `self`, which leads next.
  void WakeNextLeader(const Waiter* self);

 private:
  const int nudge_fd_;
  std::list<Waiter*> waiters_;
  bool leading_ = false;
  bool nudged_ = false;
  const Waiter* leader_ = nullptr;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_WAIT_QUEUE_H_
