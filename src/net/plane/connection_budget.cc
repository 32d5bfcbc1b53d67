#include "src/net/plane/connection_budget.h"

#include <utility>

namespace phalanx::net {

ConnectionTicket ConnectionBudget::Dial(Executor& loop) {
  std::shared_ptr<Entry> dropped;
  ConnectionTicket ticket;
  {
    MutexLock lock(mu_);
    // Only an idle connection makes room: a pull in progress is never closed for another one.
    if (Full()) dropped = DropOldest(kIdle);
    // Still full if no connection is idle; the caller then gets an invalid ticket.
    if (!Full()) ticket = Add(loop, kInUse, nullptr);
  }
  // Without the lock, which so never nests with the lock of an executor.
  PostDrop(dropped);
  return ticket;
}

ConnectionTicket ConnectionBudget::Accept(Executor& loop, Task drop) {
  std::shared_ptr<Entry> dropped;
  ConnectionTicket ticket;
  {
    MutexLock lock(mu_);
    if (entries_[kUnproven].size() >= static_cast<size_t>(limits_.unproven)) {
      dropped = DropOldest(kUnproven);
    }
    ticket = Add(loop, kUnproven, std::move(drop));
  }
  PostDrop(dropped);
  return ticket;
}

int ConnectionBudget::open() const {
  MutexLock lock(mu_);
  size_t sum = 0;
  for (const Entries& entries : entries_) sum += entries.size();
  return static_cast<int>(sum);
}

ConnectionTicket ConnectionBudget::Add(Executor& loop, State state, Task drop) {
  ConnectionTicket ticket;
  Entries& entries = entries_[state];
  ticket.place_ =
      entries.insert(entries.end(), std::make_shared<Entry>(Entry{loop, std::move(drop), state}));
  ticket.budget_ = shared_from_this();
  return ticket;
}

void ConnectionBudget::Move(Place place, State to) {
  Entry& entry = **place;
  Entries& from = entries_[std::exchange(entry.state, to)];
  // Appended, so that each list stays in the order of entry.
  entries_[to].splice(entries_[to].end(), from, place);
}

bool ConnectionBudget::Full() const {
  return entries_[kInUse].size() + entries_[kIdle].size() >=
         static_cast<size_t>(limits_.connections);
}

std::shared_ptr<ConnectionBudget::Entry> ConnectionBudget::DropOldest(State among) {
  if (entries_[among].empty()) return nullptr;
  const Place oldest = entries_[among].begin();
  Move(oldest, kDropped);
  return *oldest;
}

void ConnectionBudget::PostDrop(const std::shared_ptr<Entry>& dropped) {
  if (dropped == nullptr) return;
  // The ticket is destroyed on its loop, together with `drop`. If the entry still exists when this
  // task runs, `drop` may run.
  dropped->loop.Post([weak = std::weak_ptr<Entry>(dropped)] {
    const std::shared_ptr<Entry> entry = weak.lock();
    if (entry == nullptr) return;
    Task drop = std::exchange(entry->drop, nullptr);
    if (drop != nullptr) drop();
  });
}

bool ConnectionBudget::Prove(Place place) {
  std::shared_ptr<Entry> dropped;
  bool proved = false;
  {
    MutexLock lock(mu_);
    // Another loop has dropped the connection meanwhile.
    if ((*place)->state != kUnproven) return false;
    if (Full()) dropped = DropOldest(kIdle);
    proved = !Full();
    if (proved) Move(place, kInUse);
  }
  PostDrop(dropped);
  return proved;
}

void ConnectionBudget::MarkIdle(Place place) {
  MutexLock lock(mu_);
  // A dropped entry stays dropped: its loop is about to close the connection.
  if ((*place)->state != kDropped) Move(place, kIdle);
}

bool ConnectionBudget::Claim(Place place) {
  MutexLock lock(mu_);
  if ((*place)->state == kDropped) return false;
  Move(place, kInUse);
  return true;
}

void ConnectionBudget::Remove(Place place) {
  // A task posted by PostDrop can keep the entry alive for a moment longer.
  (*place)->drop = nullptr;
  // Destroyed after the lock is released.
  Entries removed;
  MutexLock lock(mu_);
  removed.splice(removed.end(), entries_[(*place)->state], place);
}

void ConnectionTicket::MarkIdle(Task drop) {
  (*place_)->drop = std::move(drop);
  budget_->MarkIdle(place_);
}

bool ConnectionTicket::Claim() { return budget_->Claim(place_); }

}  // namespace phalanx::net
