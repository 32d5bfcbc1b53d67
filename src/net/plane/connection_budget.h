// ConnectionBudget: counts the connections of a node with its peers, over all of its I/O loops, and
// selects the connection to close when there are too many.
//
//   dialed ───────────────────────► in use ◄──Claim─── idle
//   accepted ──► unproven ──Prove──►   └────MarkIdle────► │
//                   │ too many unproven: the oldest       │ too many in all: the one idle longest
//                   └───────────────► dropped ◄───────────┘
//
// Unproven connections (the peer has not proved that it knows the secret) have their own limit, so
// that unknown peers cannot exhaust the limit of proven ones. A dropped connection no longer
// counts. Its loop closes it in a later turn; until then the number of sockets can exceed the
// limits.
//
// Shared by the loops of a data plane and by the tickets. Thread rule: any of the loops may call
// any method of the budget; a ticket belongs to the loop for which it was taken.
#ifndef PHALANX_NET_PLANE_CONNECTION_BUDGET_H_
#define PHALANX_NET_PLANE_CONNECTION_BUDGET_H_

#include <list>
#include <memory>
#include <utility>

#include "src/common/threads/mutex.h"
#include "src/common/time/executor.h"

namespace phalanx::net {

class ConnectionTicket;

class ConnectionBudget : public std::enable_shared_from_this<ConnectionBudget> {
 public:
  struct Limits {
    // Dialed (from the first attempt to connect) and proven.
    int connections = 0;
    // Accepted, before their proof.
    int unproven = 0;
  };

  // REQUIRES: owned by a std::shared_ptr; the executors of all tickets outlive it.
  explicit ConnectionBudget(Limits limits) : limits_(limits) {}

  // Returns a ticket in use, for a connection that `loop` is about to dial. If the budget is full,
  // drops the connection that has been idle longest, on any loop. Returns an invalid ticket if the
  // budget is full and no connection is idle.
  ConnectionTicket Dial(Executor& loop);
  // Returns an unproven ticket. If there are too many of them, drops the oldest. `drop` is called
  // at most once, as a task of `loop`, while the ticket exists. `drop` closes the connection and
  // destroys the ticket.
  ConnectionTicket Accept(Executor& loop, Task drop);

  // Returns the number of sockets, including those that are dropped and not closed yet.
  int open() const;

 private:
  friend class ConnectionTicket;

  enum State { kUnproven, kInUse, kIdle, kDropped, kStates };
  struct Entry {
    Executor& loop;
    // Used only on the loop.
    Task drop;
    State state;
  };
  using Entries = std::list<std::shared_ptr<Entry>>;
  using Place = Entries::iterator;

  ConnectionTicket Add(Executor& loop, State state, Task drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Move(Place place, State to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the dropped entry, which the caller passes to PostDrop, or null if there is none.
  std::shared_ptr<Entry> DropOldest(State among) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Called without the lock.
  static void PostDrop(const std::shared_ptr<Entry>& dropped);

  bool Prove(Place place);
  void MarkIdle(Place place);
  bool Claim(Place place);
  void Remove(Place place);

  const Limits limits_;

  mutable Mutex mu_;
  // By state, in the order in which the entries entered the state.
  Entries entries_[kStates] ABSL_GUARDED_BY(mu_);
};

// The place of one connection in the budget. The destructor returns it.
class ConnectionTicket {
 public:
  ConnectionTicket() = default;
  ConnectionTicket(ConnectionTicket&& other) noexcept { *this = std::move(other); }
  ConnectionTicket& operator=(ConnectionTicket&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(place_, other.place_);
    return *this;
  }
  ~ConnectionTicket() {
    if (budget_ != nullptr) budget_->Remove(place_);
  }

  bool valid() const { return budget_ != nullptr; }

  // The following methods REQUIRE: valid().
  //
  // The peer has proved that it knows the secret; the connection is in use from now on. Returns
  // false if the budget is full or the ticket was dropped; the caller then closes the connection.
  bool Prove() { return budget_->Prove(place_); }
  // The connection is idle from now on and can be dropped; `drop` as in Accept.
  void MarkIdle(Task drop);
  // The connection is in use again. Returns false if it was dropped meanwhile; the caller must not
  // use it then.
  bool Claim();

 private:
  friend class ConnectionBudget;

  std::shared_ptr<ConnectionBudget> budget_;
  ConnectionBudget::Place place_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PLANE_CONNECTION_BUDGET_H_
