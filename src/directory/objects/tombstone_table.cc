#include "src/directory/objects/tombstone_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/common/ids/version.h"
#include "src/common/status_macros.h"
#include "src/directory/core/node_table.h"

namespace phalanx::directory {
namespace {

// An id that is put and deleted more often than this within the age of a tombstone forgets its
// oldest generation.
constexpr size_t kMaxTombstoneGenerations = 64;
// Creators of forgotten generations, beyond which the one that was forgotten first is left out.
constexpr size_t kMaxForgotten = 64;
// Confirmations of one node that one tombstone waits for.
constexpr size_t kMaxUnconfirmedOfNode = 64;
// A full tombstone that waits for more confirmations ends the waits for what it forgets.
constexpr size_t kMaxUnconfirmed = 1 << 16;
// When many tombstones expire together, one turn erases this many.
constexpr int kMaxExpiredAtOnce = 4096;

uint32_t BigEndian(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// A node mints the sequences of its generations one after the other. The shard draws those of a
// ring, and reductions have ids of their own.
bool MintedInOrder(const Generation& generation) {
  return generation.sequence >> 63 == 0 && !IsReductionId(generation) && !IsVersion(generation);
}

}  // namespace

// ---- one tombstone

void Tombstone::SetObject(uint64_t object_size_bytes, uint32_t object_slices,
                          const ObjectName& object_name) {
  size_bytes = object_size_bytes;
  slices = object_slices;
  name.reset();
  if (object_name.empty()) return;
  const std::string text = absl::StrCat(object_name.name_space(), absl::string_view("\0", 1),
                                        object_name.name(), absl::string_view("\0", 1));
  name = std::make_unique<char[]>(text.size());
  std::memcpy(name.get(), text.data(), text.size());
}

ObjectName Tombstone::Name() const {
  if (name == nullptr) return ObjectName();
  const absl::string_view name_space = name.get();
  return ObjectName::Of(name_space, name.get() + name_space.size() + 1);
}

// ---- where they are

TombstoneTable::Key TombstoneTable::KeyOf(const ObjectId& id, Place place) {
  const char* bytes = id.binary().data();
  return {BigEndian(bytes), BigEndian(bytes + 4), place};
}

bool TombstoneTable::Less::operator()(const Key& a, const Key& b) const {
  if (a.first != b.first) return a.first < b.first;
  if (a.second != b.second) return a.second < b.second;
  return a.place != b.place && table->At(a.place).id < table->At(b.place).id;
}

bool TombstoneTable::Less::operator()(const Key& a, const ObjectId& b) const {
  const Key key = KeyOf(b, kNowhere);
  if (a.first != key.first) return a.first < key.first;
  if (a.second != key.second) return a.second < key.second;
  return table->At(a.place).id < b;
}

bool TombstoneTable::Less::operator()(const ObjectId& a, const Key& b) const {
  const Key key = KeyOf(a, kNowhere);
  if (key.first != b.first) return key.first < b.first;
  if (key.second != b.second) return key.second < b.second;
  return a < table->At(b.place).id;
}

TombstoneTable::Place TombstoneTable::PlaceOf(const ObjectId& id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? kNowhere : found->place;
}

Tombstone* TombstoneTable::Find(const ObjectId& id) {
  const Place place = PlaceOf(id);
  return place == kNowhere ? nullptr : &At(place);
}

const Tombstone* TombstoneTable::Find(const ObjectId& id) const {
  return const_cast<TombstoneTable*>(this)->Find(id);
}

Tombstone* TombstoneTable::FindRefusing(const ObjectId& id, const Generation& generation) {
  Tombstone* tombstone = Find(id);
  return tombstone != nullptr && Contains(*tombstone, generation) ? tombstone : nullptr;
}

bool TombstoneTable::Refuses(const ObjectId& id, const Generation& generation) const {
  const Tombstone* tombstone = Find(id);
  return tombstone != nullptr && Contains(*tombstone, generation);
}

const Tombstone* TombstoneTable::FindDeleted(const ObjectId& id) const {
  const Tombstone* tombstone = Find(id);
  return tombstone == nullptr || tombstone->revived ? nullptr : tombstone;
}

const Tombstone* TombstoneTable::FindAfter(const ObjectId& id) const {
  const auto next = index_.upper_bound(id);
  return next == index_.end() ? nullptr : &At(next->place);
}

TombstoneTable::Place TombstoneTable::Allocate() {
  if (!free_.empty()) {
    const Place place = free_.back();
    free_.pop_back();
    return place;
  }
  if (used_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<Tombstone[]>(kBlock));
  return used_++;
}

TombstoneTable::Place TombstoneTable::GetOrCreate(const ObjectId& id) {
  const Place known = PlaceOf(id);
  if (known != kNowhere) return known;
  const Place place = Allocate();
  At(place).id = id;
  index_.insert(KeyOf(id, place));
  Link(recent_, place);
  return place;
}

void TombstoneTable::Erase(const ObjectId& erased) {
  // A copy: it can be the tombstone's own.
  const ObjectId id = erased;
  const Place place = PlaceOf(id);
  Tombstone& tombstone = At(place);
  for (const auto& [entry, session] : UnconfirmedOf(tombstone)) Unlist(entry.first, id);
  if (tombstone.watched) confirmed_.push_back(id);
  if (tombstone.detailed) details_.erase(id);
  Unlink(ListOf(tombstone), place);
  index_.erase(index_.find(id));
  tombstone = Tombstone();
  free_.push_back(place);
  if (!index_.empty()) return;
  // The memory of a burst of deletions is returned.
  blocks_.clear();
  free_ = {};
  used_ = 0;
}

// ---- by age

void TombstoneTable::Link(AgeList& list, Place place) {
  Tombstone& tombstone = At(place);
  tombstone.older = list.youngest;
  tombstone.younger = kNowhere;
  (list.youngest == kNowhere ? list.oldest : At(list.youngest).younger) = place;
  list.youngest = place;
}

void TombstoneTable::Unlink(AgeList& list, Place place) {
  const Tombstone& tombstone = At(place);
  (tombstone.older == kNowhere ? list.oldest : At(tombstone.older).younger) = tombstone.younger;
  (tombstone.younger == kNowhere ? list.youngest : At(tombstone.younger).older) = tombstone.older;
}

void TombstoneTable::RestartAge(Place place) {
  Tombstone& tombstone = At(place);
  Unlink(ListOf(tombstone), place);
  tombstone.expired = false;
  // Rounded up, so that none is forgotten too early.
  const absl::Duration since = absl::Ceil(context_.now - context_.start, absl::Seconds(1));
  tombstone.since_s = static_cast<uint32_t>(absl::ToInt64Seconds(since));
  Link(recent_, place);
}

// ---- generations

const TombstoneTable::Details* TombstoneTable::FindDetails(const Tombstone& tombstone) const {
  return tombstone.detailed ? details_.at(tombstone.id).get() : nullptr;
}

TombstoneTable::Details& TombstoneTable::GetDetails(Tombstone& tombstone) {
  std::unique_ptr<Details>& details = details_[tombstone.id];
  if (details == nullptr) details = std::make_unique<Details>();
  tombstone.detailed = true;
  return *details;
}

void TombstoneTable::DropEmptyDetails(Tombstone& tombstone) {
  const Details* details = FindDetails(tombstone);
  if (details == nullptr || !details->empty()) return;
  details_.erase(tombstone.id);
  tombstone.detailed = false;
}

std::vector<Generation> TombstoneTable::Generations(const Tombstone& tombstone) const {
  std::vector<Generation> all = {tombstone.last};
  if (const Details* details = FindDetails(tombstone)) {
    all.insert(all.end(), details->older.begin(), details->older.end());
  }
  return all;
}

const TombstoneTable::Unconfirmed& TombstoneTable::UnconfirmedOf(const Tombstone& tombstone) const {
  static const Unconfirmed& none = *new Unconfirmed;
  const Details* details = FindDetails(tombstone);
  return details == nullptr ? none : details->unconfirmed;
}

bool TombstoneTable::Contains(const Tombstone& tombstone, const Generation& generation) const {
  if (tombstone.last == generation) return true;
  const Details* details = FindDetails(tombstone);
  if (details == nullptr) return false;
  const auto& older = details->older;
  if (std::find(older.begin(), older.end(), generation) != older.end()) return true;
  return MintedInOrder(generation) &&
         std::any_of(details->forgotten.begin(), details->forgotten.end(),
                     [&generation](const Generation& forgotten) {
                       return forgotten.creator == generation.creator &&
                              generation.sequence <= forgotten.sequence;
                     });
}

void TombstoneTable::Forget(const Generation& generation, Details& details, bool older) {
  if (!MintedInOrder(generation)) return;
  auto& forgotten = details.forgotten;
  const auto known = std::find_if(
      forgotten.begin(), forgotten.end(),
      [&generation](const Generation& other) { return other.creator == generation.creator; });
  if (known != forgotten.end()) {
    known->sequence = std::max(known->sequence, generation.sequence);
    return;
  }
  const bool full = forgotten.size() == kMaxForgotten;
  if (older) {
    if (!full) forgotten.insert(forgotten.begin(), generation);
    return;
  }
  if (full) forgotten.erase(forgotten.begin());
  forgotten.push_back(generation);
}

Tombstone& TombstoneTable::Add(const ObjectId& id, const Generation& generation) {
  const Place place = GetOrCreate(id);
  Tombstone& tombstone = At(place);
  // The id is deleted now, whatever was put under it before.
  tombstone.revived = false;
  tombstone.by_ttl = false;
  RestartAge(place);
  const Generation before = std::exchange(tombstone.last, generation);
  if (!before.valid() || before == generation) return tombstone;
  Details& details = GetDetails(tombstone);
  auto& older = details.older;
  older.erase(std::remove(older.begin(), older.end(), generation), older.end());
  // In front, so that beyond the limit the oldest generation goes and not the last Delete.
  older.insert(older.begin(), before);
  if (older.size() < kMaxTombstoneGenerations) return tombstone;
  const Generation oldest = older.back();
  older.pop_back();
  Forget(oldest, details);
  if (details.unconfirmed.size() > kMaxUnconfirmed) ForgetConfirms(oldest, tombstone);
  return tombstone;
}

Tombstone& TombstoneTable::AddOlder(const ObjectId& id, const Generation& generation) {
  const Place place = GetOrCreate(id);
  Tombstone& tombstone = At(place);
  RestartAge(place);
  if (!tombstone.last.valid()) tombstone.last = generation;
  if (Contains(tombstone, generation)) return tombstone;
  Details& details = GetDetails(tombstone);
  // Old generations must not push out the last Delete.
  const bool room = details.older.size() + 1 < kMaxTombstoneGenerations;
  if (room) {
    details.older.push_back(generation);
  } else {
    Forget(generation, details, /*older=*/true);
  }
  DropEmptyDetails(tombstone);
  return tombstone;
}

void TombstoneTable::Revive(const ObjectId& id) {
  if (Tombstone* tombstone = Find(id)) tombstone->revived = true;
}

// ---- confirmations

void TombstoneTable::AwaitConfirm(Tombstone& tombstone, const Generation& generation,
                                  const NodeKey& node, uint64_t session) {
  if (!Contains(tombstone, generation)) return;
  Unconfirmed& unconfirmed = GetDetails(tombstone).unconfirmed;
  if (!unconfirmed.contains({node, generation})) LimitUnconfirmed(node, unconfirmed);
  // By session: only what an earlier session left unconfirmed ends with a registration.
  unconfirmed[{node, generation}] = {session, ++asked_};
  unconfirmed_[node].insert(tombstone.id);
}

void TombstoneTable::LimitUnconfirmed(const NodeKey& node, Unconfirmed& unconfirmed) {
  auto earliest = unconfirmed.lower_bound({node, Generation()});
  size_t count = 0;
  for (auto at = earliest; at != unconfirmed.end() && at->first.first == node; ++at, ++count) {
    if (at->second.number < earliest->second.number) earliest = at;
  }
  if (count >= kMaxUnconfirmedOfNode) unconfirmed.erase(earliest);
}

void TombstoneTable::Confirm(const ObjectId& id, const Generation& generation,
                             const NodeKey& node) {
  Tombstone* tombstone = Find(id);
  if (tombstone == nullptr || !UnconfirmedOf(*tombstone).contains({node, generation})) return;
  GetDetails(*tombstone).unconfirmed.erase({node, generation});
  EndConfirm(node, *tombstone);
}

void TombstoneTable::EndConfirm(const NodeKey& node, Tombstone& tombstone) {
  const Unconfirmed& unconfirmed = UnconfirmedOf(tombstone);
  const auto next = unconfirmed.lower_bound({node, Generation()});
  const bool others = next != unconfirmed.end() && next->first.first == node;
  if (!others) Unlist(node, tombstone.id);
  if (tombstone.watched) confirmed_.push_back(tombstone.id);
  // An expired tombstone exists only to wait for its confirmations.
  if (tombstone.expired && unconfirmed.empty()) return Erase(tombstone.id);
  DropEmptyDetails(tombstone);
}

void TombstoneTable::Unlist(const NodeKey& node, const ObjectId& id) {
  const auto listed = unconfirmed_.find(node);
  if (listed == unconfirmed_.end()) return;
  listed->second.erase(id);
  if (listed->second.empty()) unconfirmed_.erase(listed);
}

void TombstoneTable::ForgetConfirms(const Generation& generation, Tombstone& tombstone) {
  // Nodes first: EndConfirm changes the map that the loop reads.
  std::vector<NodeKey> nodes;
  for (const auto& [entry, session] : UnconfirmedOf(tombstone)) {
    if (entry.second == generation) nodes.push_back(entry.first);
  }
  for (const NodeKey& node : nodes) {
    GetDetails(tombstone).unconfirmed.erase({node, generation});
    EndConfirm(node, tombstone);
  }
}

void TombstoneTable::ForgetConfirms(const NodeKey& node, uint64_t session) {
  const auto listed = unconfirmed_.find(node);
  if (listed == unconfirmed_.end()) return;
  for (const ObjectId& id : Sorted(listed->second)) {
    Tombstone& tombstone = *Find(id);
    Unconfirmed& unconfirmed = GetDetails(tombstone).unconfirmed;
    auto at = unconfirmed.lower_bound({node, Generation()});
    while (at != unconfirmed.end() && at->first.first == node) {
      at = at->second.session < session ? unconfirmed.erase(at) : std::next(at);
    }
    EndConfirm(node, tombstone);
  }
}

// The session registered what its node still has: a copy of the generation was refused again, and
// is awaited under the new session.
void TombstoneTable::SessionRegistered(const NodeKey& node, uint64_t session) {
  ForgetConfirms(node, session);
}

absl::flat_hash_set<ObjectId> TombstoneTable::UnconfirmedBy(const NodeKey& node) const {
  const auto listed = unconfirmed_.find(node);
  return listed == unconfirmed_.end() ? absl::flat_hash_set<ObjectId>() : listed->second;
}

void TombstoneTable::NodeDown(const NodeKey& node) {
  ForgetConfirms(node, std::numeric_limits<uint64_t>::max());
}

// ---- the end

void TombstoneTable::Expire() {
  for (int i = 0; i < kMaxExpiredAtOnce; ++i) {
    if (TooMany() && expired_.oldest != kNowhere) {
      // Older than any recent one.
      Erase(At(expired_.oldest).id);
      continue;
    }
    if (recent_.oldest == kNowhere) return;
    const Place place = recent_.oldest;
    Tombstone& oldest = At(place);
    const bool expired = Since(oldest) + context_.options.tombstone_age <= context_.now;
    if (!TooMany() && !expired) return;
    if (TooMany() || UnconfirmedOf(oldest).empty()) {
      Erase(oldest.id);
      continue;
    }
    // Not erased yet: a node that has not confirmed may return with its copy after any time.
    Unlink(recent_, place);
    oldest.expired = true;
    Link(expired_, place);
  }
}

Instant TombstoneTable::NextDeadline() const {
  // Tombstones that the last turn left over are due now: a deadline in the past would look like a
  // pause of the process.
  if (TooMany()) return context_.now;
  if (recent_.oldest == kNowhere) return Instant::Infinite();
  return std::max(Since(At(recent_.oldest)) + context_.options.tombstone_age, context_.now);
}

absl::Status TombstoneTable::CheckTombstone(const Tombstone& tombstone) const {
  const Details* details = FindDetails(tombstone);
  if ((details == nullptr) == details_.contains(tombstone.id)) {
    return absl::InternalError("a tombstone and its details differ on whether there are any");
  }
  if (details != nullptr && details->empty()) {
    return absl::InternalError("a tombstone has details that say nothing");
  }
  const size_t generations = Generations(tombstone).size();
  if (!tombstone.last.valid() || generations > kMaxTombstoneGenerations) {
    return absl::InternalError("a tombstone has no generation, or too many");
  }
  const Unconfirmed& unconfirmed = UnconfirmedOf(tombstone);
  if (tombstone.expired && unconfirmed.empty()) {
    return absl::InternalError("an expired tombstone waits for no confirmation");
  }
  absl::btree_map<NodeKey, size_t> of_node;
  for (const auto& [entry, session] : unconfirmed) {
    if (++of_node[entry.first] > kMaxUnconfirmedOfNode) {
      return absl::InternalError("a tombstone waits for too many confirmations of a node");
    }
    const auto listed = unconfirmed_.find(entry.first);
    if (listed == unconfirmed_.end() || !listed->second.contains(tombstone.id)) {
      return absl::InternalError("a tombstone waits for a node that is not listed");
    }
  }
  return absl::OkStatus();
}

absl::Status TombstoneTable::CheckAges(const AgeList& list, bool expired, size_t* count) const {
  Place before = kNowhere;
  for (Place place = list.oldest; place != kNowhere; place = At(place).younger) {
    const Tombstone& tombstone = At(place);
    if (tombstone.expired != expired || tombstone.older != before ||
        PlaceOf(tombstone.id) != place) {
      return absl::InternalError("a tombstone is not listed by its age");
    }
    before = place;
    ++*count;
  }
  if (before != list.youngest) return absl::InternalError("the youngest tombstone is not listed");
  return absl::OkStatus();
}

absl::Status TombstoneTable::CheckInvariants() const {
  size_t listed = 0;
  PHALANX_RETURN_IF_ERROR(CheckAges(recent_, false, &listed));
  PHALANX_RETURN_IF_ERROR(CheckAges(expired_, true, &listed));
  if (listed != size() || free_.size() + size() != used_) {
    return absl::InternalError("tombstones by age are miscounted");
  }
  for (const Key& key : index_) PHALANX_RETURN_IF_ERROR(CheckTombstone(At(key.place)));
  return absl::OkStatus();
}

}  // namespace phalanx::directory
