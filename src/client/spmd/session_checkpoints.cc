#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// How long Load waits for a checkpoint that it may read when there are only later ones.
constexpr absl::Duration kLaterPatience = absl::Seconds(10);
// Leave waits so long for the deletion of the rank's checkpoints.
constexpr absl::Duration kDeletePatience = absl::Seconds(10);

// Of the checkpoints of all ranks. The names of a job and a role can be longer than that of a
// scope.
Scope ScopeOf(const Membership& member, uint64_t run, uint64_t version) {
  const std::string of_run = absl::StrCat(member.job(), "/", member.role(), "/", absl::Hex(run));
  return {absl::StrCat(kNameSpace, "/", ObjectId::FromName(kNameSpace, of_run).hex()), version};
}

// All ranks: this one, then those on its node, whose checkpoints need not travel, then the others.
std::vector<int> NearestRanks(const Membership& member, const std::string& node) {
  const int world = member.world();
  const std::vector<Member> members = member.Members();
  std::vector<int> nearest;
  std::vector<int> others;
  for (int i = 0; i < world; ++i) {
    const int rank = (member.rank() + i) % world;
    const auto at = static_cast<size_t>(rank);
    const bool near = i == 0 || (at < members.size() && members[at].node == node);
    (near ? nearest : others).push_back(rank);
  }
  nearest.insert(nearest.end(), others.begin(), others.end());
  return nearest;
}

}  // namespace

ObjectId SessionState::IdOf(const Place& place) const {
  return client_->Id(
      kNameSpace, CheckpointName(member_.job(), member_.role(), run_, place.rank, place.version));
}

GetOptions SessionState::Patiently() const {
  GetOptions options;
  options.timeout = patience_;
  return options;
}

absl::Status SessionState::Put(const ObjectId& id, PutOptions options, uint64_t base,
                               absl::string_view bytes, Buffer& held) {
  options.metadata = CheckpointMetadata(base);
  options.scope = ScopeOf(member_, run_, options.scope.number);
  // Only an earlier life can have put it.
  options.wait_for_adoption = member_.life() > 0;
  const absl::StatusOr<PutResult> put = client_->Put(id, bytes, options).Wait();
  const bool there = put.ok() ? put->already_existed : absl::IsAlreadyExists(put.status());
  if (!there) return put.status();
  PHALANX_ASSIGN_OR_RETURN(held, client_->Get(id, Patiently()).Wait());
  return absl::OkStatus();
}

absl::Status SessionState::Store(uint64_t version, uint64_t base, absl::string_view bytes,
                                 absl::Duration timeout) {
  PutOptions options;
  options.scope.number = version;
  options.timeout = timeout;
  stored_.insert(version);
  return Put(IdOf({member_.rank(), version}), options, base, bytes, held_[version]);
}

std::optional<SessionState::Found> SessionState::Loadable(Buffer bytes, const Place& place) const {
  const absl::StatusOr<uint64_t> base = BaseOf(bytes.metadata());
  if (!base.ok() || !core_->CanLoad(place.version, *base)) return std::nullopt;
  return Found{std::move(bytes), place, *base};
}

std::optional<SessionState::Found> SessionState::FindAmong(const std::vector<Place>& places) {
  std::vector<Future<bool>> there;
  for (const Place& place : places) there.push_back(client_->Contains(IdOf(place), patience_));
  GetOptions options = Patiently();
  options.on_lost = GetOptions::OnLost::kFail;
  for (size_t i = 0; i < places.size(); ++i) {
    const absl::StatusOr<bool> has = there[i].Wait();
    if (!has.ok() || !*has) continue;
    // Its node can end now.
    absl::StatusOr<Buffer> bytes = client_->Get(IdOf(places[i]), options).Wait();
    std::optional<Found> found;
    if (bytes.ok()) found = Loadable(*std::move(bytes), places[i]);
    if (found.has_value()) return found;
  }
  return std::nullopt;
}

// Its own checkpoint, or else the first one of another rank; of this version before those of later
// ones, which ranks have that have passed a lazy one.
absl::StatusOr<SessionState::Found> SessionState::Find(uint64_t version) {
  const Instant deadline = MonotonicNow() + patience_;
  const int world = member_.world();
  const std::vector<int> nearest = NearestRanks(member_, client_->node_name());
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
  if (version == 0) {
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(0, 0, /*local=*/false);
  } else {
    PHALANX_ASSIGN_OR_RETURN(Found found, Find(version));
    PHALANX_RETURN_IF_ERROR(take(found.bytes.view()));
    // What another rank has is deleted when that rank needs it no more.
    if (found.at.rank == member_.rank()) {
      held_[found.at.version] = std::move(found.bytes);
    } else {
      PHALANX_RETURN_IF_ERROR(Store(found.at.version, found.base, found.bytes.view(), patience_));
    }
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(found.at.version, found.base, /*local=*/false);
  }
  seq_ = 0;
  return core_->version();
}

absl::Status SessionState::Checkpoint(absl::string_view bytes) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint(/*local=*/false));
  const uint64_t version = core_->version() + 1;
  if (files_.has_value()) PHALANX_RETURN_IF_ERROR(files_->Write(version, bytes, std::nullopt));
  PHALANX_RETURN_IF_ERROR(Store(version, core_->next_base(), bytes, patience_));
  stats_.checkpoint_bytes += bytes.size();
  Access::DieIfDeclared(member_, DeathPoint::Kind::kCheckpoint);
  core_->OnCheckpoint(/*lazy=*/false);
  lazy_ = {};
  seq_ = 0;
  return absl::OkStatus();
}

bool SessionState::MayBeThere(uint64_t version) const {
  return member_.life() > 0 || stored_.contains(version);
}

void SessionState::Delete(uint64_t version, std::vector<Future<Done>>& deletions) {
  if (!MayBeThere(version)) return;
  deletions.push_back(client_->Delete(IdOf({member_.rank(), version}), kDeletePatience));
  if (core_->local()) deletions.push_back(client_->Delete(LocalIdOf(version), kDeletePatience));
}

// No rank needs what this one needs no more, so one of them frees it for all, with those before it:
// a next life of rank 0 ends the scope again. A scope leaves no tombstones.
void SessionState::Free() {
  const std::vector<uint64_t> freed = core_->TakeFreed();
  for (const uint64_t version : freed) {
    held_.erase(version);
    locals_.held.erase(version);
    if (version == locals_.before) locals_.of_before = {};
    stored_.erase(version);
  }
  if (files_.has_value() && !freed.empty()) files_->RemoveUntil(freed.back());
  if (!freed.empty() && member_.rank() == 0) {
    client_->EndScope(ScopeOf(member_, run_, freed.back()));
  }
}

// A rank that dies in the Barrier has its own checkpoint, unless its node ends as well, and results
// that the nodes still keep for it, so it comes here again. Only after that this rank's checkpoints
// go.
absl::Status SessionState::Leave() {
  Access::DieIfDeclared(member_, DeathPoint::Kind::kLeave);
  PHALANX_RETURN_IF_ERROR(
      Call({kNeedsAll}, nullptr, 0, [](const Group& group) { return group.Barrier(); }));
  PHALANX_RETURN_IF_ERROR(End(member_.Leave()));
  over_ = Explain("Leave", absl::FailedPreconditionError("the rank has left"));
  held_.clear();
  locals_ = {};
  if (files_.has_value()) files_->RemoveUntil(core_->version());
  std::vector<Future<Done>> deletions;
  for (const uint64_t version : core_->TakeRest()) Delete(version, deletions);
  folds_.end.Wait(kDeletePatience).IgnoreError();
  // The objects of a life that has found none of its own are not there.
  for (const Future<Done>& deletion : deletions) deletion.Wait(kDeletePatience).IgnoreError();
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
