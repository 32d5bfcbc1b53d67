#include "src/object_store/objects/eviction.h"

#include "src/common/check.h"

namespace phalanx::object_store {

bool Eviction::TryNow(uint64_t bytes) {
  // Requests are served in their order: one that fits must not overtake one that waits.
  if (!queue_.empty()) return false;
  return table_.TryReserve(bytes);
}

Eviction::Ticket Eviction::Wait(uint64_t bytes) {
  // Such a request would wait for ever.
  PHALANX_CHECK(bytes <= table_.capacity_bytes(), "a request that can never be served is refused");
  const Ticket ticket = next_ticket_++;
  queue_.emplace(ticket, bytes);
  sizes_.insert(bytes);
  waiting_bytes_ += bytes;
  return ticket;
}

void Eviction::Leave(std::map<Ticket, uint64_t>::iterator it) {
  waiting_bytes_ -= it->second;
  sizes_.erase(sizes_.find(it->second));
  queue_.erase(it);
}

void Eviction::Cancel(Ticket ticket) {
  const auto it = queue_.find(ticket);
  if (it != queue_.end()) Leave(it);
}

Eviction::Decisions Eviction::Decide(Instant now) {
  Decisions decisions;
  if (queue_.empty()) return decisions;
  // Only while a request waits: without one no refused copy is asked for again.
  table_.Reconsider(now - kRefusalHolds);
  for (auto it = queue_.begin(); it != queue_.end();) {
    const uint64_t soon = table_.free_bytes() + table_.evictable_bytes();
    const uint64_t at_most = soon + table_.idle_partial_bytes();
    // Nobody in the queue can be helped: do not walk it.
    if (*sizes_.begin() > at_most) break;
    const auto here = it++;
    if (table_.TryReserve(here->second)) {
      decisions.granted.push_back(here->first);
      Leave(here);
    } else if (here->second <= soon) {
      // Eviction can serve this request, so no later one passes it: the bytes that come are for it.
      AskFor(here->second - table_.free_bytes(), decisions);
      break;
    } else if (here->second <= at_most) {
      GiveUpFor(here->second - soon, decisions);
      break;
    }
  }
  return decisions;
}

void Eviction::AskFor(uint64_t bytes, Decisions& decisions) {
  // What is asked already counts: each turn would otherwise ask for as much again.
  while (table_.asked_bytes() < bytes && table_.asked() < kMaxAsked) {
    Copy* copy = table_.OldestCandidate();
    if (copy == nullptr) return;
    table_.MarkAsked(copy);
    decisions.ask.push_back(copy);
  }
}

void Eviction::GiveUpFor(uint64_t bytes, Decisions& decisions) {
  uint64_t sum = 0;
  for (Copy* copy = table_.OldestIdlePartial(); copy != nullptr && sum < bytes;
       copy = ObjectTable::NextIdlePartial(copy)) {
    sum += copy->counted_bytes();
    decisions.give_up.push_back(copy);
  }
}

void Eviction::Refused(Copy* copy, Instant now) { table_.MarkRefused(copy, now); }

Instant Eviction::NextDeadline() const {
  if (queue_.empty()) return Instant::Infinite();
  return table_.OldestRefusal() + kRefusalHolds;
}

}  // namespace phalanx::object_store
