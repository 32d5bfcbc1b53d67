#include "src/object_store/objects/object_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::object_store {
namespace {

bool MayBeEvicted(const Copy& copy) {
  return copy.state == CopyState::kComplete && !copy.primary && copy.pins == 0 && !copy.detached;
}

bool IsIdlePartial(const Copy& copy) {
  return copy.state == CopyState::kPulling && copy.pins == 0 && !copy.detached;
}

absl::Status Broken(const Copy& copy, absl::string_view what) {
  return absl::InternalError(absl::StrCat("copy ", copy.generation.ToString(), " of object ",
                                          copy.id.ShortHex(), ": ", what));
}

}  // namespace

ObjectTable::ObjectTable(uint64_t capacity_bytes) : capacity_(capacity_bytes) {}

// Copies can have pins here: a push that has not ended holds the buffer, not the copy.
ObjectTable::~ObjectTable() {
  for (auto& [id, first] : copies_) {
    for (Copy* copy = first; copy != nullptr;) delete std::exchange(copy, copy->next_generation);
  }
  for (Copy* copy = detached_.front(); copy != nullptr;) {
    delete std::exchange(copy, List::Next(copy));
  }
}

bool ObjectTable::TryReserve(uint64_t bytes) {
  if (bytes > free_bytes()) return false;
  // Counted before the pages exist, so that two requests cannot be promised the same bytes.
  used_ += bytes;
  reserved_ += bytes;
  return true;
}

void ObjectTable::Unreserve(uint64_t bytes) {
  PHALANX_CHECK(bytes <= reserved_, "only reserved memory is given back");
  used_ -= bytes;
  reserved_ -= bytes;
}

Copy* ObjectTable::Add(std::unique_ptr<Copy> added) {
  Copy* copy = added.release();
  PHALANX_CHECK(copy->counted_bytes() <= reserved_, "memory is reserved before it exists");
  PHALANX_CHECK(Find(copy->id, copy->generation) == nullptr, "a generation has one copy here");
  // `used_` stays: the copy holds from now on what was reserved for it.
  reserved_ -= copy->counted_bytes();
  Copy*& first = copies_[copy->id];
  copy->next_generation = first;
  first = copy;
  Update(copy);
  return copy;
}

Copy* ObjectTable::First(const ObjectId& id) const {
  const auto it = copies_.find(id);
  return it == copies_.end() ? nullptr : it->second;
}

Copy* ObjectTable::Find(const ObjectId& id, const Generation& generation) const {
  Copy* copy = First(id);
  while (copy != nullptr && copy->generation != generation) copy = copy->next_generation;
  return copy;
}

Copy* ObjectTable::Complete(const ObjectId& id) const {
  Copy* found = nullptr;
  for (Copy* copy = First(id); copy != nullptr; copy = copy->next_generation) {
    if (copy->state != CopyState::kComplete || copy->standing == Standing::kStandby) continue;
    // A pending generation answers Gets until a verdict says otherwise, but an adopted one is the
    // object.
    if (found == nullptr || copy->standing == Standing::kAdopted) found = copy;
  }
  return found;
}

void ObjectTable::MarkComplete(Copy* copy) {
  copy->state = CopyState::kComplete;
  Update(copy);
}

void ObjectTable::MakePrimary(Copy* copy) {
  copy->primary = true;
  Update(copy);
}

void ObjectTable::MakeSecondary(Copy* copy) {
  copy->primary = false;
  Update(copy);
}

void ObjectTable::Pin(Copy* copy) {
  ++copy->pins;
  ++pins_;
  // A pinned copy leaves the lists of what may be evicted.
  Update(copy);
}

bool ObjectTable::Unpin(Copy* copy) {
  PHALANX_CHECK(copy->pins > 0, "a pin is released once");
  --copy->pins;
  --pins_;
  if (copy->detached && copy->pins == 0) {
    End(copy);
    return true;
  }
  Update(copy);
  return false;
}

bool ObjectTable::Detach(Copy* copy) {
  PHALANX_CHECK(!copy->detached, "a copy leaves the table once");
  // Before Unlink: a copy outside the table is not evicted again.
  LeaveEviction(copy);
  Unlink(copy);
  copy->detached = true;
  detached_.PushBack(copy);
  if (copy->pins == 0) {
    End(copy);
    return true;
  }
  Update(copy);
  return false;
}

void ObjectTable::Unlink(Copy* copy) {
  const auto it = copies_.find(copy->id);
  PHALANX_CHECK(it != copies_.end(), "the copy is in the table");
  Copy** link = &it->second;
  // Short: an id nearly always has one generation here.
  while (*link != copy) link = &(*link)->next_generation;
  *link = copy->next_generation;
  copy->next_generation = nullptr;
  if (it->second == nullptr) copies_.erase(it);
}

void ObjectTable::End(Copy* copy) {
  detached_.Remove(copy);
  if (copy->counted_as_pinned) pinned_bytes_ -= copy->counted_bytes();
  const bool kept =
      DefectActive(Defect::kMemoryKeptAfterFailedPull) && copy->state == CopyState::kPulling;
  // Only here, with the last pin: until then a process may look at the bytes.
  if (!kept) used_ -= copy->counted_bytes();
  delete copy;
}

void ObjectTable::Update(Copy* copy, bool oldest) {
  // A primary copy counts as pinned: nothing but a Delete frees it.
  const bool pinned = copy->primary || copy->pins > 0;
  if (pinned != copy->counted_as_pinned) {
    copy->counted_as_pinned = pinned;
    pinned_bytes_ += pinned ? copy->counted_bytes() : -copy->counted_bytes();
  }
  if (copy->eviction == Copy::Eviction::kIdlePartial && !IsIdlePartial(*copy)) LeaveEviction(copy);
  const bool candidate = MayBeEvicted(*copy);
  if (candidate && copy->eviction == Copy::Eviction::kNone) {
    copy->eviction = Copy::Eviction::kCandidate;
    oldest ? lru_.PushFront(copy) : lru_.PushBack(copy);
    candidate_bytes_ += copy->counted_bytes();
  } else if (!candidate && copy->eviction == Copy::Eviction::kCandidate) {
    LeaveEviction(copy);
  } else if (IsIdlePartial(*copy) && copy->eviction == Copy::Eviction::kNone) {
    copy->eviction = Copy::Eviction::kIdlePartial;
    idle_.PushBack(copy);
    idle_bytes_ += copy->counted_bytes();
  }
}

void ObjectTable::LeaveEviction(Copy* copy) {
  // One list at a time: a copy is linked by one hook, whatever its state.
  switch (std::exchange(copy->eviction, Copy::Eviction::kNone)) {
    case Copy::Eviction::kNone:
      break;
    case Copy::Eviction::kCandidate:
      lru_.Remove(copy);
      candidate_bytes_ -= copy->counted_bytes();
      break;
    case Copy::Eviction::kAsked:
      asked_bytes_ -= copy->counted_bytes();
      --asked_;
      break;
    case Copy::Eviction::kRefused:
      refused_.Remove(copy);
      break;
    case Copy::Eviction::kIdlePartial:
      idle_.Remove(copy);
      idle_bytes_ -= copy->counted_bytes();
      break;
  }
}

void ObjectTable::MakeOldest(Copy* copy) {
  if (copy->eviction != Copy::Eviction::kCandidate) return;
  LeaveEviction(copy);
  Update(copy, /*oldest=*/true);
}

void ObjectTable::MarkAsked(Copy* copy) {
  PHALANX_CHECK(copy->eviction == Copy::Eviction::kCandidate, "only a candidate is asked for");
  LeaveEviction(copy);
  copy->eviction = Copy::Eviction::kAsked;
  // Counts as evictable still: the request at the front waits for these bytes.
  asked_bytes_ += copy->counted_bytes();
  ++asked_;
}

void ObjectTable::MarkRefused(Copy* copy, Instant now) {
  PHALANX_CHECK(copy->eviction == Copy::Eviction::kAsked, "only what was asked for is refused");
  LeaveEviction(copy);
  copy->eviction = Copy::Eviction::kRefused;
  copy->refused_at = now;
  // By time of refusal, so that Reconsider stops at the first one that is too young.
  refused_.PushBack(copy);
}

void ObjectTable::Reconsider(Instant until) {
  while (!refused_.empty() && refused_.front()->refused_at <= until) {
    Copy* copy = refused_.front();
    LeaveEviction(copy);
    // As the oldest: the copy was first in the order of eviction when it was refused.
    Update(copy, /*oldest=*/true);
  }
}

Instant ObjectTable::OldestRefusal() const {
  return refused_.empty() ? Instant::Infinite() : refused_.front()->refused_at;
}

std::vector<Copy*> ObjectTable::Sorted() const {
  // The ids beside each other: a table is sorted in a third of the time.
  std::vector<std::pair<ObjectId, Copy*>> firsts(copies_.begin(), copies_.end());
  std::sort(firsts.begin(), firsts.end());
  std::vector<Copy*> sorted;
  sorted.reserve(copies_.size());
  for (const auto& [id, first] : firsts) {
    const auto begin = static_cast<ptrdiff_t>(sorted.size());
    for (Copy* copy = first; copy != nullptr; copy = copy->next_generation) sorted.push_back(copy);
    std::sort(sorted.begin() + begin, sorted.end(),
              [](const Copy* a, const Copy* b) { return a->generation < b->generation; });
  }
  return sorted;
}

absl::Status ObjectTable::CheckInvariants() const {
  uint64_t used = reserved_;
  uint64_t candidates = 0;
  uint64_t asked = 0;
  uint64_t idle = 0;
  uint64_t pinned = 0;
  size_t listed = 0;
  const auto check = [&](const Copy& copy) {
    using E = Copy::Eviction;
    used += copy.counted_bytes();
    if (copy.primary || copy.pins > 0) pinned += copy.counted_bytes();
    if (copy.eviction == E::kCandidate) ++listed, candidates += copy.counted_bytes();
    if (copy.eviction == E::kAsked) asked += copy.counted_bytes();
    if (copy.eviction == E::kIdlePartial) idle += copy.counted_bytes();
    if ((copy.eviction == E::kIdlePartial) != IsIdlePartial(copy)) {
      return Broken(copy, "the list of idle partial copies is wrong");
    }
    if (copy.eviction == E::kCandidate && !MayBeEvicted(copy))
      return Broken(copy, "must not be evicted");
    if (copy.eviction == E::kNone && MayBeEvicted(copy))
      return Broken(copy, "missing from the LRU list");
    if (copy.detached && copy.pins == 0) return Broken(copy, "detached without a pin");
    return absl::OkStatus();
  };
  for (const Copy* copy : Sorted()) {
    if (absl::Status status = check(*copy); !status.ok()) return status;
  }
  for (const Copy* copy = detached_.front(); copy != nullptr; copy = List::Next(copy)) {
    if (absl::Status status = check(*copy); !status.ok()) return status;
  }
  if (used != used_ || used_ > capacity_) {
    return absl::InternalError(absl::StrCat("memory: ", used_, " bytes counted, ", used, " used, ",
                                            "capacity ", capacity_));
  }
  if (candidates != candidate_bytes_ || asked != asked_bytes_ || idle != idle_bytes_ ||
      listed != lru_.size() || pinned != pinned_bytes_) {
    return absl::InternalError("the sums over candidates, asked or pinned copies are wrong");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
