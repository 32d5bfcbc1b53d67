#include "src/object_store/objects/hold_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx::object_store {
namespace {

// Calls `f` with each id.
template <typename F>
void ForEach(absl::string_view ids, F f) {
  for (; ids.size() >= ObjectId::kSize; ids.remove_prefix(ObjectId::kSize)) {
    f(*ObjectId::FromBinary(ids.substr(0, ObjectId::kSize)));
  }
}

}  // namespace

void HoldTable::Touch(const ObjectId& id, Entry& entry) {
  // An id that is held and released in one turn is one change, or none.
  if (std::exchange(entry.touched, true)) return;
  touched_.push_back(id);
}

void HoldTable::Add(const ObjectId& id) {
  Entry& entry = ids_[id];
  if (++entry.count == 1) Touch(id, entry);
}

void HoldTable::Drop(const ObjectId& id) {
  const auto entry = ids_.find(id);
  PHALANX_CHECK(entry != ids_.end() && entry->second.count > 0, "what is dropped was held");
  // The entry stays until TakeChanges, which must still learn what the shard was sent.
  if (--entry->second.count == 0) Touch(id, entry->second);
}

absl::Status HoldTable::Hold(Client client, Ids ids) {
  auto& held = clients_[client];
  // The cheap test first: ids that the client holds already do not count, but to find them costs.
  if (held.size() + ids.size() > limits_.ids_per_client) {
    absl::flat_hash_set<ObjectId> news;
    for (const ObjectId& id : ids) {
      if (!held.contains(id)) news.insert(id);
    }
    if (held.size() + news.size() > limits_.ids_per_client) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a client holds at most ", limits_.ids_per_client, " objects; it has ",
                       held.size(), " and asks for ", news.size(), " more"));
    }
  }
  for (const ObjectId& id : ids) {
    if (++held[id] == 1) Add(id);
  }
  return absl::OkStatus();
}

void HoldTable::Release(Client client, Ids ids) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (const ObjectId& id : ids) {
    const auto held = found->second.find(id);
    // What the client does not hold, or still holds by another call, stays as it is.
    if (held == found->second.end() || --held->second > 0) continue;
    found->second.erase(held);
    Drop(id);
  }
  if (found->second.empty()) clients_.erase(found);
}

void HoldTable::CloseClient(Client client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  std::vector<ObjectId> held;
  held.reserve(found->second.size());
  for (const auto& [id, times] : found->second) held.push_back(id);
  clients_.erase(found);
  // In the order of ids, so that a simulation replays exactly.
  std::sort(held.begin(), held.end());
  for (const ObjectId& id : held) Drop(id);
}

bool HoldTable::Holds(Client client, const ObjectId& id) const {
  const auto found = clients_.find(client);
  return found != clients_.end() && found->second.contains(id);
}

void HoldTable::Transit(const ObjectId& id, uint64_t number, Instant until) {
  const Deadline deadline{until, next_serial_++};
  // A repeated message must not hold the object twice: only one claim ends it.
  if (!transits_.emplace(std::pair(id, number), deadline).second) return;
  AddPassing(deadline, {id, number});
}

void HoldTable::Linger(const ObjectId& id, Instant until) {
  AddPassing({until, next_serial_++}, {id, std::nullopt});
}

void HoldTable::AddPassing(const Deadline& deadline, Passing passing) {
  Add(passing.id);
  deadlines_.emplace(deadline, passing);
  // Bounded, because a client can send any number of references; the earliest to end goes first.
  if (deadlines_.size() <= limits_.transits) return;
  ++cut_short_;
  EndEarliest();
}

void HoldTable::EndTransit(const ObjectId& id, uint64_t number) {
  const auto found = transits_.find({id, number});
  // A claim that arrives twice, or after the time is up, does no harm.
  if (found == transits_.end()) return;
  deadlines_.erase(found->second);
  transits_.erase(found);
  Drop(id);
}

void HoldTable::EndEarliest() {
  const Passing earliest = deadlines_.begin()->second;
  deadlines_.erase(deadlines_.begin());
  if (earliest.number) transits_.erase({earliest.id, *earliest.number});
  Drop(earliest.id);
}

void HoldTable::Expire(Instant now) {
  while (!deadlines_.empty() && deadlines_.begin()->first.first <= now) {
    // Only references in messages count as unclaimed; lingering ones are meant to expire.
    if (deadlines_.begin()->second.number) ++unclaimed_;
    EndEarliest();
  }
}

Instant HoldTable::NextDeadline() const {
  return deadlines_.empty() ? Instant::Infinite() : deadlines_.begin()->first.first;
}

void HoldTable::AddReferences(absl::string_view ids) {
  ForEach(ids, [this](const ObjectId& id) {
    ++references_;
    Add(id);
  });
}

void HoldTable::DropReferences(absl::string_view ids) {
  ForEach(ids, [this](const ObjectId& id) {
    --references_;
    Drop(id);
  });
}

HoldTable::Changes HoldTable::TakeChanges() {
  Changes changes;
  for (const ObjectId& id : std::exchange(touched_, {})) {
    const auto entry = ids_.find(id);
    // Its shard has got the present state since, in a registration.
    if (entry == ids_.end() || !std::exchange(entry->second.touched, false)) continue;
    const bool held = entry->second.count > 0;
    // The shard is sent the first and the last hold only, not those between.
    if (held != entry->second.reported) (held ? changes.held : changes.unheld).push_back(id);
    entry->second.reported = held;
    if (!held) ids_.erase(entry);
  }
  return changes;
}

std::vector<ObjectId> HoldTable::ResendHeld(const std::function<bool(const ObjectId&)>& chosen) {
  std::vector<ObjectId> held;
  std::vector<ObjectId> gone;
  for (auto& [id, entry] : ids_) {
    if (!chosen(id)) continue;
    entry.reported = entry.count > 0;
    // The registration says it all: the pending change must not be sent after it.
    entry.touched = false;
    (entry.reported ? held : gone).push_back(id);
  }
  for (const ObjectId& id : gone) ids_.erase(id);
  std::sort(held.begin(), held.end());
  return held;
}

absl::Status HoldTable::CheckInvariants() const {
  uint64_t counted = 0;
  for (const auto& [id, entry] : ids_) {
    counted += entry.count;
    if (entry.count == 0 && !entry.touched) {
      return absl::InternalError(
          absl::StrCat("object ", id.ShortHex(), " has no hold but an entry"));
    }
  }
  uint64_t explained = deadlines_.size() + references_;
  for (const auto& [client, held] : clients_) {
    explained += held.size();
    for (const auto& [id, times] : held) {
      if (times == 0 || !ids_.contains(id)) {
        return absl::InternalError(absl::StrCat("object ", id.ShortHex(), ": a hold is lost"));
      }
    }
  }
  if (counted != explained || transits_.size() > deadlines_.size()) {
    return absl::InternalError(absl::StrCat(counted, " holds, ", explained, " holders"));
  }
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
