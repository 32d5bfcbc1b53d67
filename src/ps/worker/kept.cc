#include "src/ps/worker/kept.h"

#include <algorithm>
#include <utility>

#include "src/common/check.h"

namespace phalanx::ps::internal {
namespace {

bool IsBefore(const KeptEntries::Kept& kept, const Position& at) { return kept.at < at; }

}  // namespace

// Ends of clocks that follow each other directly become one entry: a worker that pushes to one
// server alone ends thousands of clocks at the others.
void KeptEntries::Add(Kept kept, bool join) {
  PHALANX_CHECK(entries_.empty() || entries_.back().at < kept.at, "entries in their order");
  // A worker that ends many clocks without pushes keeps one entry for all of them.
  if (join && kept.is_clock && !entries_.empty() && entries_.back().is_clock) {
    Kept& last = entries_.back();
    if (last.done && !kept.done) ++undone_;
    if (!last.done && kept.done) --undone_;
    last.call = kept.call;
    last.at = kept.at;
    last.done = kept.done;
    return;
  }
  bytes_ += kept.bytes();
  if (IsFromObject(kept.at)) {
    object_bytes_ += kept.bytes();
  } else if (!kept.object.empty()) {
    object_ = kept.at;
    object_bytes_ = kept.bytes();
  }
  if (!kept.done) ++undone_;
  entries_.push_back(std::move(kept));
}

void KeptEntries::Done(Kept& kept, std::vector<uint64_t>& tickets) {
  if (kept.done) return;
  kept.done = true;
  --undone_;
  if (kept.ticket != 0) tickets.push_back(kept.ticket);
}

bool KeptEntries::IsFromObject(const Position& at) const {
  return object_bytes_ > 0 && at.clock == object_.clock && object_ <= at;
}

void KeptEntries::Freed(Kept& kept) {
  bytes_ -= kept.bytes();
  if (IsFromObject(kept.at)) object_bytes_ -= kept.bytes();
  if (!kept.object.empty()) freed_objects_.push_back(std::move(kept.object));
}

// Returns the tickets that waited for one of them, once for each entry.
std::vector<uint64_t> KeptEntries::MarkDone(const Position& upto) {
  std::vector<uint64_t> tickets;
  for (Kept& kept : entries_) {
    if (upto < kept.at) break;
    Done(kept, tickets);
  }
  return tickets;
}

// The entry may be gone: freed by a snapshot, or dropped when it was refused.
uint64_t KeptEntries::MarkOneDone(const Position& at) {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), at, IsBefore);
  if (found == entries_.end() || found->at != at) return 0;
  std::vector<uint64_t> tickets;
  Done(*found, tickets);
  return tickets.empty() ? 0 : tickets.front();
}

bool KeptEntries::IsDone(const Position& at) const {
  if (at <= freed_) return true;
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), at, IsBefore);
  return found != entries_.end() && found->at == at && found->done;
}

// What is not done is at the end.
Position KeptEntries::Had() const {
  const auto last = std::find_if(entries_.rbegin(), entries_.rend(), [](const Kept& kept) {
    return !kept.is_clock && (kept.done || kept.ticket == 0);
  });
  return last == entries_.rend() ? Position() : last->at;
}

// The call has ended for the program, and what it has pushed must still reach the server.
void KeptEntries::MarkLost(const Position& behind) {
  for (auto kept = entries_.rbegin(); kept != entries_.rend() && behind < kept->at; ++kept) {
    if (!kept->done) continue;
    kept->done = false;
    kept->ticket = 0;
    ++undone_;
  }
}

// What is in a snapshot is done as well, even if the Done was lost.
std::vector<uint64_t> KeptEntries::Free(const Position& upto) {
  std::vector<uint64_t> tickets;
  freed_ = std::max(freed_, upto);
  while (!entries_.empty() && entries_.front().at <= upto) {
    Done(entries_.front(), tickets);
    Freed(entries_.front());
    entries_.pop_front();
  }
  // The first ones of several clocks can be behind `upto`.
  if (!entries_.empty() && entries_.front().is_clock) {
    Kept& clocks = entries_.front();
    clocks.first_clock = std::max(clocks.first_clock, upto.clock);
  }
  return tickets;
}

// The only hole in the order: a refused push is never made.
void KeptEntries::Drop(uint64_t ticket) {
  const auto is_of = [ticket](const Kept& kept) { return !kept.is_clock && kept.ticket == ticket; };
  bool some = false;
  for (Kept& kept : entries_) {
    if (!is_of(kept)) continue;
    some = true;
    if (!kept.done) --undone_;
    Freed(kept);
  }
  if (!some) return;
  std::erase_if(entries_, is_of);
  CountFromObject();
}

// What is behind a dropped object can be behind no other one.
void KeptEntries::CountFromObject() {
  object_bytes_ = 0;
  for (const Kept& kept : entries_) {
    if (IsFromObject(kept.at)) {
      object_bytes_ += kept.bytes();
    } else if (!kept.object.empty()) {
      object_ = kept.at;
      object_bytes_ = kept.bytes();
    }
  }
}

void KeptEntries::Clear() {
  for (Kept& kept : entries_) Freed(kept);
  entries_.clear();
  bytes_ = 0;
  object_bytes_ = 0;
  undone_ = 0;
}

}  // namespace phalanx::ps::internal
