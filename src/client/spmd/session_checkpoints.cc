#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "src/client/access.h"
#include "src/client/spmd/disks/disk_runs.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// How long Load waits for a checkpoint that it may read when there are only later ones.
constexpr absl::Duration kLaterPatience = absl::Seconds(10);
// So many versions whose checkpoints are all lazy, as this rank knows, are freed together.
constexpr uint64_t kFreedTogether = 16;
// Leave waits so long for the deletion of the rank's checkpoints.
constexpr absl::Duration kDeletePatience = absl::Seconds(10);

// A client remembers names, and a session has one or two of them in each version.
void Forget(const Client& client, const std::string& name) {
  Access::ConnectionOf(client)->names().Forget(ObjectId::FromName(kNameSpace, name));
}

}  // namespace

ObjectId SessionState::IdOf(const Place& place) const {
  return client_->Id(
      kNameSpace, CheckpointName(member_.job(), member_.role(), run_, place.rank, place.version));
}

Scope SessionState::ScopeOf(uint64_t version) const {
  const std::string of_run = absl::StrCat(member_.job(), "/", member_.role(), "/", absl::Hex(run_));
  // The names of a job and a role can be longer than that of a scope.
  return {absl::StrCat(kNameSpace, "/", ObjectId::FromName(kNameSpace, of_run).hex()), version};
}

absl::Status SessionState::Put(const ObjectId& id, PutOptions options, uint64_t base,
                               absl::string_view bytes, Buffer& held) {
  options.metadata = CheckpointMetadata(base);
  // Only an earlier life can have put it.
  options.wait_for_adoption = member_.life() > 0;
  const absl::StatusOr<PutResult> put = client_->Put(id, bytes, options).Wait();
  const bool there = put.ok() ? put->already_existed : absl::IsAlreadyExists(put.status());
  if (!there) return put.status();
  PHALANX_ASSIGN_OR_RETURN(held, client_->Get(id, GetOptions{.timeout = patience_}).Wait());
  return absl::OkStatus();
}

absl::Status SessionState::Store(uint64_t version, uint64_t base, absl::string_view bytes,
                                 absl::Duration timeout) {
  PutOptions options;
  options.scope = ScopeOf(version);
  options.timeout = timeout;
  written_.versions.insert(version);
  return Put(IdOf({member_.rank(), version}), options, base, bytes, written_.held[version]);
}

std::optional<SessionState::Found> SessionState::Loadable(Buffer bytes, const Place& place) const {
  const absl::StatusOr<uint64_t> base = BaseOf(bytes.metadata());
  if (!base.ok() || !core_->CanLoad(place.version, *base)) return std::nullopt;
  return Found{std::move(bytes), place, *base};
}

std::optional<SessionState::Found> SessionState::FindAmong(const std::vector<Place>& places) {
  std::vector<Future<bool>> there;
  for (const Place& place : places) there.push_back(client_->Contains(IdOf(place), patience_));
  GetOptions options = GetOptions{.timeout = patience_};
  options.on_lost = GetOptions::OnLost::kFail;
  for (size_t i = 0; i < places.size(); ++i) {
    const absl::StatusOr<bool> has = there[i].Wait();
    if (!has.ok() || !*has) continue;
    // Its node can end now.
    options.scope = ScopeOf(places[i].version);
    absl::StatusOr<Buffer> bytes = client_->Get(IdOf(places[i]), options).Wait();
    std::optional<Found> found;
    if (bytes.ok()) found = Loadable(*std::move(bytes), places[i]);
    if (found.has_value()) return found;
  }
  return std::nullopt;
}

std::vector<int> SessionState::NearestRanks() const {
  const int world = member_.world();
  const std::string node = client_->node_name();
  const std::vector<Member> members = member_.Members();
  std::vector<int> nearest;
  std::vector<int> others;
  for (int i = 0; i < world; ++i) {
    const int rank = (member_.rank() + i) % world;
    const auto at = static_cast<size_t>(rank);
    const bool near = i == 0 || (at < members.size() && members[at].node == node);
    (near ? nearest : others).push_back(rank);
  }
  nearest.insert(nearest.end(), others.begin(), others.end());
  return nearest;
}

// Its own checkpoint, or else the first one of another rank; of this version before those of later
// ones, which ranks have that have passed a lazy one.
absl::StatusOr<SessionState::Found> SessionState::Find(uint64_t version) {
  const Instant deadline = MonotonicNow() + patience_;
  const int world = member_.world();
  const std::vector<int> nearest = NearestRanks();
  std::vector<Place> places;
  std::vector<ObjectId> ids;
  for (int begin = 0, end = 1; begin < world;
       begin = end, end = std::min(world, end + kAskedRanks)) {
    std::vector<Place> asked;
    for (uint64_t later = 0; later < kLoadableVersions; ++later) {
      for (int i = begin; i < end; ++i) {
        asked.push_back({nearest[static_cast<size_t>(i)], version + later});
      }
    }
    std::optional<Found> found = FindAmong(asked);
    if (found.has_value()) return *std::move(found);
    places.insert(places.end(), asked.begin(), asked.end());
  }
  for (const Place& place : places) ids.push_back(IdOf(place));
  // A rank saves its model when it makes a call; or the directory does not know yet what all have
  // written, or their nodes are out of reach.
  bool only_later = false;
  while (true) {
    GetOptions options;
    options.timeout = deadline - MonotonicNow();
    if (only_later) options.timeout = std::min(options.timeout, kLaterPatience);
    absl::StatusOr<std::vector<Client::Arrival>> first = client_->GetFirst(ids, 1, options).Wait();
    if (!first.ok() && only_later) {
      return absl::UnavailableError(
          absl::StrCat("no rank has its checkpoint of version ", version,
                       " any more, and calls before those of later ones have ended since this life "
                       "has joined: the rank's next life can load them"));
    }
    if (!first.ok()) {
      return absl::Status(
          first.status().code(),
          absl::StrCat("no rank has its checkpoint of version ", version,
                       ", or has saved that of a later one: ", first.status().message()));
    }
    const size_t index = first->front().index;
    std::optional<Found> found = Loadable(std::move(first->front().buffer), places[index]);
    if (found.has_value()) return *std::move(found);
    only_later = true;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(index));
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

absl::StatusOr<uint64_t> SessionState::Load(
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  PHALANX_RETURN_IF_ERROR(BeginLoad());
  PHALANX_ASSIGN_OR_RETURN(const uint64_t version, core_->VersionToLoad(/*local=*/false));
  if (files_.has_value() && core_->begins()) {
    return Restore([take](absl::string_view bytes, absl::string_view) { return take(bytes); },
                   /*local=*/false);
  }
  within_ = false;
  if (version == 0) {
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(0, 0, /*local=*/false);
  } else {
    PHALANX_ASSIGN_OR_RETURN(Found found, Find(version));
    PHALANX_RETURN_IF_ERROR(take(found.bytes.view()));
    PHALANX_RETURN_IF_ERROR(WriteFile(files_, found.at.version, found.bytes.view(), std::nullopt));
    // What another rank has is deleted when that rank needs it no more.
    if (found.at.rank == member_.rank()) {
      written_.held[found.at.version] = std::move(found.bytes);
    } else {
      PHALANX_RETURN_IF_ERROR(Store(found.at.version, found.base, found.bytes.view(), patience_));
    }
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(found.at.version, found.base, /*local=*/false);
  }
  seq_ = 0;
  return core_->version();
}

absl::Status SessionState::BeginLoad() {
  if (core_->loaded()) return absl::OkStatus();
  PHALANX_ASSIGN_OR_RETURN(const std::optional<NameRecord> record, core_->boot_calls().BeginLoad());
  if (record.has_value()) PHALANX_RETURN_IF_ERROR(MakeRecord(*record));
  // The calls of Load are parts of it.
  within_ = core_->boot_calls().named();
  return absl::OkStatus();
}

absl::Status SessionState::Checkpoint(absl::string_view bytes) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint(/*local=*/false));
  const uint64_t version = core_->version() + 1;
  PHALANX_RETURN_IF_ERROR(WriteFile(files_, version, bytes, std::nullopt));
  PHALANX_RETURN_IF_ERROR(Store(version, core_->next_base(), bytes, patience_));
  stats_.checkpoint_bytes += bytes.size();
  Access::DieIfDeclared(member_, DeathPoint::Kind::kCheckpoint);
  core_->OnCheckpoint(/*lazy=*/false);
  lazy_ = {};
  seq_ = 0;
  return absl::OkStatus();
}

bool SessionState::MayBeThere(uint64_t version) const {
  return member_.life() > 0 || written_.versions.contains(version);
}

void SessionState::Delete(uint64_t version, std::vector<Future<Done>>& deletions) {
  if (!MayBeThere(version)) return;
  deletions.push_back(client_->Delete(IdOf({member_.rank(), version}), kDeletePatience));
  if (core_->local()) deletions.push_back(client_->Delete(LocalIdOf(version), kDeletePatience));
}

// No rank needs what this one needs no more, so rank 0 frees it for all, with all that was before:
// its next life ends the scope again. A scope leaves no tombstones. One request at a time, since
// each goes to all nodes. While all checkpoints are lazy and no member dies, nothing is there.
void SessionState::Free() {
  const std::vector<uint64_t> freed = core_->TakeFreed();
  if (freed.empty() && freeing_.wanted == freeing_.asked) return;
  bool any = core_->AnyLoss();
  for (const uint64_t version : freed) {
    any |= MayBeThere(version);
    written_.held.erase(version);
    locals_.held.erase(version);
    if (version == locals_.before) locals_.of_before = {};
    written_.versions.erase(version);
    Forget(*client_, CheckpointName(member_.job(), member_.role(), run_, member_.rank(), version));
    Forget(*client_, LocalName(member_.job(), member_.role(), run_, member_.rank(), version));
  }
  if (files_.has_value() && !freed.empty()) files_->RemoveUntil(freed.back());
  // Others can have written theirs also if this rank has not.
  if (!freed.empty() && freed.back() >= freeing_.asked + kFreedTogether) any = true;
  if (member_.rank() != 0) return;
  if (!freed.empty()) freeing_.last = freed.back();
  if (any) freeing_.wanted = freeing_.last;
  if (freeing_.wanted == freeing_.asked || (freeing_.asked > 0 && !freeing_.end.ready())) return;
  freeing_.asked = freeing_.wanted;
  freeing_.end = client_->EndScope(ScopeOf(freeing_.asked), patience_);
}

// A rank that dies in the Barrier has its own checkpoint, unless its node ends as well, and results
// that the nodes still keep for it, so it comes here again. Only after that this rank's checkpoints
// go.
absl::Status SessionState::Leave() {
  Access::DieIfDeclared(member_, DeathPoint::Kind::kLeave);
  PHALANX_RETURN_IF_ERROR(
      Call({kNeedsAll}, nullptr, 0, [](const Group& group) { return group.Barrier(); }));
  const std::vector<Member> members = member_.Members();
  const bool lives = std::any_of(members.begin(), members.end(),
                                 [](const Member& member) { return member.life > 0; });
  PHALANX_RETURN_IF_ERROR(End(member_.Leave()));
  over_ = Explain("Leave", absl::FailedPreconditionError("the rank has left"));
  written_.held.clear();
  locals_ = {};
  if (files_.has_value()) files_->RemoveAll(NeedsMark(lives, core_->restored()));
  std::vector<Future<Done>> ends;
  if (freeing_.last > 0) {
    ends.push_back(client_->EndScope(ScopeOf(freeing_.last), kDeletePatience));
  }
  for (const uint64_t version : core_->TakeRest()) Delete(version, ends);
  ends.push_back(folds_.end);
  // The objects of a life that has found none of its own are not there.
  for (const Future<Done>& end : ends) end.Wait(kDeletePatience).IgnoreError();
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
