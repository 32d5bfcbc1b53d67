#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// What a rank says of its directory instead of a version.
constexpr uint64_t kUnreadable = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kOtherKind = kUnreadable - 1;

}  // namespace

// Of one Load. A life that repeats its calls gets what the others have got, also if its files are
// others now.
class SessionState::Restoring {
 public:
  explicit Restoring(SessionState& state) : state_(state), boot_(state.core_->next_base()) {}
  absl::Status Restore(TakeBoth take, bool local);

 private:
  // The newest version that each rank can read; the same for all. An error is that of all ranks.
  absl::StatusOr<std::vector<uint64_t>> GatherVersions(bool local);
  absl::Status RestoreGlobal(TakeBoth take, const std::vector<uint64_t>& newest);
  absl::Status RestoreLocal(TakeBoth take, const std::vector<uint64_t>& newest);
  absl::Status SendFile(uint64_t version, int root, bool has, std::string& bytes);
  static absl::Status LostFile(uint64_t version);
  // The least rank that lacks something; kNone if none does.
  absl::StatusOr<uint64_t> FirstThatLacks(bool lacks);
  int rank() const { return state_.member_.rank(); }

  static constexpr uint64_t kNone = kMaxJobWorld;

  SessionState& state_;
  const uint64_t boot_;
  std::optional<CheckpointFile> file_;
};

absl::Status SessionState::Restoring::Restore(TakeBoth take, bool local) {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<uint64_t> newest, GatherVersions(local));
  // SessionCore::CanBeginAnew knows that this is the only call then.
  if (*std::max_element(newest.begin(), newest.end()) == 0) {
    Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
    state_.core_->OnRestored(0, boot_, local);
    return absl::OkStatus();
  }
  return local ? RestoreLocal(take, newest) : RestoreGlobal(take, newest);
}

absl::StatusOr<std::vector<uint64_t>> SessionState::Restoring::GatherVersions(bool local) {
  absl::StatusOr<std::optional<CheckpointFile>> file = state_.files_->Newest(local);
  absl::Status own = file.status();
  uint64_t mine = kUnreadable;
  if (file.ok() && file->has_value()) {
    file_ = *std::move(file);
    mine = file_->version;
  } else if (file.ok()) {
    const absl::StatusOr<std::optional<CheckpointFile>> other = state_.files_->Newest(!local);
    own = other.status();
    if (other.ok()) mine = other->has_value() ? kOtherKind : 0;
  }
  std::vector<uint64_t> versions(static_cast<size_t>(state_.member_.world()));
  const uint64_t bytes = versions.size() * sizeof(mine);
  PHALANX_RETURN_IF_ERROR(state_.Call({kNeedsAll}, versions.data(), bytes, [&](const Group& group) {
    return group.AllGather(&mine, sizeof(mine), versions.data(), bytes);
  }));
  for (size_t rank = 0; rank < versions.size(); ++rank) {
    if (versions[rank] < kOtherKind) continue;
    if (static_cast<int>(rank) == this->rank() && !own.ok()) return own;
    if (versions[rank] == kUnreadable) {
      return absl::UnavailableError(
          absl::StrCat("rank ", rank, " cannot read its directory of checkpoints"));
    }
    return absl::InvalidArgumentError(absl::StrCat("Load is ", local ? "with" : "without",
                                                   " a local model, and the files of rank ", rank,
                                                   " are ", local ? "without" : "with", " one"));
  }
  return versions;
}

absl::StatusOr<uint64_t> SessionState::Restoring::FirstThatLacks(bool lacks) {
  uint64_t first = lacks ? static_cast<uint64_t>(rank()) : kNone;
  PHALANX_RETURN_IF_ERROR(
      state_.Call({kNeedsAll}, &first, sizeof(first), [&first](const Group& group) {
        return group.AllReduce(absl::MakeSpan(&first, 1), ReduceOp::kMin);
      }));
  return first;
}

absl::Status SessionState::Restoring::LostFile(uint64_t version) {
  return absl::DataLossError(
      absl::StrCat("the file of version ", version, " was there in the life before"));
}

// `bytes` becomes that of the root, which has them if `has`.
absl::Status SessionState::Restoring::SendFile(uint64_t version, int root, bool has,
                                               std::string& bytes) {
  const auto lacks = [&] { return root == rank() && !has && !state_.core_->repeats(); };
  uint64_t size = bytes.size();
  if (lacks()) return LostFile(version);
  PHALANX_RETURN_IF_ERROR(state_.Call(
      {kNeedsRoot}, &size, sizeof(size),
      [&size, root](const Group& group) { return group.Broadcast(root, &size, sizeof(size)); }));
  PHALANX_RETURN_IF_ERROR(state_.CheckBytes(size));
  bytes.resize(size);
  if (size == 0) return absl::OkStatus();
  if (lacks()) return LostFile(version);
  return state_.Call({kNeedsRoot}, bytes.data(), size, [&bytes, root](const Group& group) {
    return group.Broadcast(root, bytes.data(), bytes.size());
  });
}

absl::Status SessionState::Restoring::RestoreGlobal(TakeBoth take,
                                                    const std::vector<uint64_t>& newest) {
  const auto greatest = std::max_element(newest.begin(), newest.end());
  const uint64_t version = *greatest;
  const auto root = static_cast<int>(greatest - newest.begin());
  const bool has = root == rank() && file_.has_value() && file_->version == version;
  std::string bytes;
  if (has) bytes = std::move(file_->global);
  PHALANX_RETURN_IF_ERROR(SendFile(version, root, has, bytes));
  PHALANX_RETURN_IF_ERROR(take(bytes, ""));
  // On each disk, before older ones are removed.
  PHALANX_RETURN_IF_ERROR(state_.files_->Write(version, bytes, std::nullopt));
  PHALANX_RETURN_IF_ERROR(
      state_.Store(version, state_.core_->next_base(), bytes, state_.patience_));
  Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
  state_.core_->OnRestored(version, boot_, /*local=*/false);
  return absl::OkStatus();
}

// Nothing is removed before all ranks have their file of the version, and no rank writes a newer
// one before all have removed theirs of an earlier run.
absl::Status SessionState::Restoring::RestoreLocal(TakeBoth take,
                                                   const std::vector<uint64_t>& newest) {
  const auto least = std::min_element(newest.begin(), newest.end());
  const uint64_t version = *least;
  if (version == 0) {
    return absl::NotFoundError(absl::StrCat(
        "rank ", least - newest.begin(),
        " has no whole file in its directory of checkpoints, and "
        "others have: bring its files there, or remove those of all ranks, to begin anew"));
  }
  if (!file_.has_value() || file_->version != version) {
    PHALANX_ASSIGN_OR_RETURN(file_, state_.files_->Read(version));
  }
  PHALANX_ASSIGN_OR_RETURN(const uint64_t lacks, FirstThatLacks(!file_.has_value()));
  if (lacks != kNone) {
    return absl::NotFoundError(absl::StrCat("rank ", lacks, " has no whole file of version ",
                                            version, ", the newest that all could have"));
  }
  if (!file_.has_value()) return LostFile(version);
  const absl::Status removed = state_.files_->RemoveAfter(version);
  PHALANX_ASSIGN_OR_RETURN(const uint64_t keeps, FirstThatLacks(!removed.ok()));
  PHALANX_RETURN_IF_ERROR(removed);
  if (keeps != kNone) {
    return absl::UnavailableError(
        absl::StrCat("rank ", keeps, " cannot remove its files of later versions than ", version));
  }
  PHALANX_RETURN_IF_ERROR(take(file_->global, file_->local));
  PHALANX_RETURN_IF_ERROR(
      state_.StoreBoth(version, state_.core_->next_base(), file_->global, file_->local));
  Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
  state_.core_->OnRestored(version, boot_, /*local=*/true);
  // No other version is anywhere if this node ends.
  return state_.AwaitCopies();
}

// An error ends the session, since another Load would have other calls.
absl::StatusOr<uint64_t> SessionState::Restore(TakeBoth take, bool local) {
  PHALANX_RETURN_IF_ERROR(End(Restoring(*this).Restore(take, local)));
  seq_ = 0;
  return core_->version();
}

}  // namespace phalanx::spmd::internal
