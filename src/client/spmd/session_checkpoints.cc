#include <optional>
#include <utility>

#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

// Names of checkpoints are in this namespace.
constexpr char kNameSpace[] = "phalanx.spmd";
// Of how many ranks it is asked at a time whether they have a checkpoint.
constexpr int kAskedRanks = 64;
// Leave waits so long for the deletion of the rank's checkpoints.
constexpr absl::Duration kDeletePatience = absl::Seconds(10);

}  // namespace

ObjectId SessionState::IdOf(int rank, uint64_t version) const {
  return client_->Id(kNameSpace,
                     CheckpointName(member_.job(), member_.role(), run_, rank, version));
}

GetOptions SessionState::Patiently() const {
  GetOptions options;
  options.timeout = patience_;
  return options;
}

absl::Status SessionState::Store(uint64_t version, absl::string_view bytes) {
  const ObjectId id = IdOf(member_.rank(), version);
  PutOptions options;
  options.timeout = patience_;
  // Only an earlier life can have put it.
  options.wait_for_adoption = member_.life() > 0;
  const absl::StatusOr<PutResult> put = client_->Put(id, bytes, options).Wait();
  const bool there = put.ok() ? put->already_existed : absl::IsAlreadyExists(put.status());
  if (!there) return put.status();
  PHALANX_ASSIGN_OR_RETURN(held_[version], client_->Get(id, Patiently()).Wait());
  return absl::OkStatus();
}

std::optional<SessionState::Found> SessionState::FindAmong(const std::vector<int>& ranks,
                                                           uint64_t version) {
  std::vector<Future<bool>> there;
  for (const int rank : ranks) {
    there.push_back(client_->Contains(IdOf(rank, version), patience_));
  }
  GetOptions options = Patiently();
  options.on_lost = GetOptions::OnLost::kFail;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const absl::StatusOr<bool> has = there[i].Wait();
    if (!has.ok() || !*has) continue;
    // Its node can end now.
    absl::StatusOr<Buffer> bytes = client_->Get(IdOf(ranks[i], version), options).Wait();
    if (bytes.ok()) return Found{*std::move(bytes), ranks[i] == member_.rank()};
  }
  return std::nullopt;
}

// Its own checkpoint, or else the first one of another rank.
absl::StatusOr<SessionState::Found> SessionState::Find(uint64_t version) {
  const int world = member_.world();
  std::vector<ObjectId> ids;
  std::vector<int> ranks;
  for (int i = 0; i < world; ++i) {
    const int rank = (member_.rank() + i) % world;
    ids.push_back(IdOf(rank, version));
    ranks.push_back(rank);
    if (i > 0 && i + 1 < world && static_cast<int>(ranks.size()) < kAskedRanks) continue;
    std::optional<Found> found = FindAmong(ranks, version);
    if (found.has_value()) return *std::move(found);
    ranks.clear();
  }
  // All ranks have written it: the directory may not know yet, or their nodes are out of reach.
  absl::StatusOr<std::vector<Client::Arrival>> first =
      client_->GetFirst(ids, 1, Patiently()).Wait();
  if (!first.ok()) {
    return absl::Status(first.status().code(),
                        absl::StrCat("no rank has its checkpoint of version ", version, ": ",
                                     first.status().message()));
  }
  return Found{std::move(first->front().buffer), first->front().index == 0};
}

absl::StatusOr<uint64_t> SessionState::Load(
    absl::FunctionRef<absl::Status(absl::string_view)> take) {
  if (!core_->loaded()) {
    PHALANX_ASSIGN_OR_RETURN(const std::optional<NameRecord> record,
                             core_->boot_calls().BeginLoad());
    if (record.has_value()) PHALANX_RETURN_IF_ERROR(MakeRecord(*record));
  }
  PHALANX_ASSIGN_OR_RETURN(const uint64_t version, core_->VersionToLoad());
  if (version > 0) {
    PHALANX_ASSIGN_OR_RETURN(Found found, Find(version));
    PHALANX_RETURN_IF_ERROR(take(found.bytes.view()));
    // What another rank has is deleted when that rank needs it no more.
    if (found.own) {
      held_[version] = std::move(found.bytes);
    } else {
      PHALANX_RETURN_IF_ERROR(Store(version, found.bytes.view()));
    }
  }
  core_->OnLoaded();
  seq_ = 0;
  return version;
}

absl::Status SessionState::Checkpoint(absl::string_view bytes) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint());
  PHALANX_RETURN_IF_ERROR(Store(core_->version() + 1, bytes));
  stats_.checkpoint_bytes += bytes.size();
  core_->OnCheckpoint();
  seq_ = 0;
  return absl::OkStatus();
}

void SessionState::Free() {
  for (const uint64_t version : core_->TakeFreed()) {
    held_.erase(version);
    // A next life deletes it again.
    client_->Delete(IdOf(member_.rank(), version));
  }
}

// A rank that dies in the Barrier has its own checkpoint, unless its node ends as well, and results
// that the nodes still keep for it, so it comes here again. Only after that this rank's checkpoints
// go.
absl::Status SessionState::Leave() {
  PHALANX_RETURN_IF_ERROR(
      Call({kNeedsAll}, nullptr, 0, [](const Group& group) { return group.Barrier(); }));
  PHALANX_RETURN_IF_ERROR(End(member_.Leave()));
  over_ = Explain("Leave", absl::FailedPreconditionError("the rank has left"));
  held_.clear();
  std::vector<Future<Done>> deletions;
  for (const uint64_t version : core_->TakeRest()) {
    deletions.push_back(client_->Delete(IdOf(member_.rank(), version), kDeletePatience));
  }
  folds_end_.Wait(kDeletePatience).IgnoreError();
  // The objects of a life that has found none of its own are not there.
  for (const Future<Done>& deletion : deletions) deletion.Wait(kDeletePatience).IgnoreError();
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
