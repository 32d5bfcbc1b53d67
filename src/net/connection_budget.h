// ConnectionBudget: the connections that a node has with its peers, over all of its I/O loops, and
// which of them goes when there are too many.
//
//   dialed ───────────────────────► in use ◄──Claim── idle
//   accepted ──► unproven ──Prove──►   └─────Rest─────►  │
//                   │ too many unproven: the oldest      │ too many in all: the one idle longest
//                   └──────────────► dropped ◄───────────┘
//
// What has not shown that it knows the secret has a limit of its own, so that strangers take
// nothing from those who have. A dropped connection does not count any more; its loop closes it in
// a turn of its own, and until then there is a socket more than the limits say.
//
// Owned together by the loops of a data plane and by the tickets. Thread rule: every method of the
// budget may be called on any of the loops; a ticket belongs to the loop that it was taken for.
#ifndef PHALANX_NET_CONNECTION_BUDGET_H_
#define PHALANX_NET_CONNECTION_BUDGET_H_

#include <list>
#include <memory>
#include <utility>

#include "src/common/executor.h"
#include "src/common/mutex.h"

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

  // A ticket in use, for a connection that `loop` is about to dial; the connection that has idled
  // longest, on any loop, makes room for it. Invalid when there is no room and nothing idles.
  ConnectionTicket Dial(Executor& loop);
  // An unproven ticket; the oldest of them makes room for it. `drop` is called at most once, as a
  // task of `loop`, while the ticket lives: it closes the connection and destroys the ticket.
  ConnectionTicket Accept(Executor& loop, Task drop);

  // Sockets, those included that are dropped and not closed yet.
  int open() const;

 private:
  friend class ConnectionTicket;

  enum State { kUnproven, kInUse, kIdle, kDropped, kStates };
  struct Entry {
    Executor& loop;
    // Used on the loop only.
    Task drop;
    State state;
  };
  using Entries = std::list<std::shared_ptr<Entry>>;
  using Place = Entries::iterator;

  ConnectionTicket Add(Executor& loop, State state, Task drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Move(Place place, State to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What was dropped, to be passed to Tell; null if there is none.
  std::shared_ptr<Entry> DropOldest(State among) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Called without the lock.
  static void Tell(const std::shared_ptr<Entry>& dropped);

  bool Prove(Place place);
  void Rest(Place place);
  bool Claim(Place place);
  void Remove(Place place);

  const Limits limits_;

  mutable Mutex mu_;
  // By state, in the order in which they came to be in it.
  Entries entries_[kStates] ABSL_GUARDED_BY(mu_);
};

// One connection's place in the budget; given back when it is destroyed.
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

  // The rest REQUIRES: valid.
  //
  // The peer has shown that it knows the secret: in use from now on. False when there is no room,
  // or the ticket was dropped before: the connection is to be closed.
  bool Prove() { return budget_->Prove(place_); }
  // Nobody uses the connection now, so that it may be dropped: `drop` as in Accept.
  void Rest(Task drop);
  // In use again, if it was at rest. False when it was dropped meanwhile: it must not be used.
  bool Claim();

 private:
  friend class ConnectionBudget;

  std::shared_ptr<ConnectionBudget> budget_;
  ConnectionBudget::Place place_;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_CONNECTION_BUDGET_H_
