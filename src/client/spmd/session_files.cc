#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// A version and a rank in one number: the greatest version, then the least rank.
constexpr uint64_t kRanks = kMaxJobWorld;
static_assert((kRanks & (kRanks - 1)) == 0);

}  // namespace

class SessionState::Restoring {
 public:
  explicit Restoring(SessionState& state) : state_(state) {}
  absl::Status RestoreGlobal(TakeBoth take);
  absl::Status RestoreLocal(TakeBoth take);

 private:
  absl::Status SendFile(uint64_t version, int root, bool has, std::string& bytes);
  static absl::Status LostFile(uint64_t version);
  absl::Status Agree(uint64_t& number, ReduceOp op);

  SessionState& state_;
};

absl::Status SessionState::Restoring::Agree(uint64_t& number, ReduceOp op) {
  return state_.Call({kNeedsAll}, &number, sizeof(number), [&number, op](const Group& group) {
    return group.AllReduce(absl::MakeSpan(&number, 1), op);
  });
}

// A life that repeats the calls of Load gets what the others have got, also if its files are others
// now.
absl::Status SessionState::Restoring::LostFile(uint64_t version) {
  return absl::DataLossError(
      absl::StrCat("the file of version ", version, " was there in the life before"));
}

// `bytes` becomes that of the root, which has them if `has`.
absl::Status SessionState::Restoring::SendFile(uint64_t version, int root, bool has,
                                               std::string& bytes) {
  const auto lacks = [&] {
    return root == state_.member_.rank() && !has && !state_.core_->repeats();
  };
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

absl::Status SessionState::Restoring::RestoreGlobal(TakeBoth take) {
  const uint64_t boot = state_.core_->next_base();
  const auto rank = static_cast<uint64_t>(state_.member_.rank());
  std::optional<CheckpointFile> file = state_.files_->Newest(/*local=*/false);
  uint64_t newest = file.has_value() ? file->version * kRanks + kRanks - 1 - rank : 0;
  PHALANX_RETURN_IF_ERROR(Agree(newest, ReduceOp::kMax));
  const uint64_t version = newest / kRanks;
  if (version > 0) {
    const int root = static_cast<int>(kRanks - 1 - newest % kRanks);
    const bool has = root == state_.member_.rank() && file.has_value() && file->version == version;
    std::string bytes;
    if (has) bytes = std::move(file->global);
    PHALANX_RETURN_IF_ERROR(SendFile(version, root, has, bytes));
    PHALANX_RETURN_IF_ERROR(take(bytes, ""));
    // On each disk, before older ones are removed.
    PHALANX_RETURN_IF_ERROR(state_.files_->Write(version, bytes, std::nullopt));
    PHALANX_RETURN_IF_ERROR(
        state_.Store(version, state_.core_->next_base(), bytes, state_.patience_));
  }
  Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
  state_.core_->OnRestored(version, boot, /*local=*/false);
  return absl::OkStatus();
}

absl::Status SessionState::Restoring::RestoreLocal(TakeBoth take) {
  const uint64_t boot = state_.core_->next_base();
  std::optional<CheckpointFile> file = state_.files_->Newest(/*local=*/true);
  uint64_t version = file.has_value() ? file->version : 0;
  PHALANX_RETURN_IF_ERROR(Agree(version, ReduceOp::kMin));
  if (version > 0 && file.has_value() && file->version != version) {
    file = state_.files_->Read(version);
  }
  // Before another rank writes one of them in this run.
  state_.files_->RemoveAfter(version);
  if (version == 0) {
    Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
    state_.core_->OnRestored(0, boot, /*local=*/true);
    return absl::OkStatus();
  }
  uint64_t lacks = file.has_value() ? kRanks : static_cast<uint64_t>(state_.member_.rank());
  PHALANX_RETURN_IF_ERROR(Agree(lacks, ReduceOp::kMin));
  if (lacks < kRanks) {
    return absl::NotFoundError(absl::StrCat("rank ", lacks, " has no whole file of version ",
                                            version, ", the newest that all could have"));
  }
  if (!file.has_value()) return LostFile(version);
  PHALANX_RETURN_IF_ERROR(take(file->global, file->local));
  PHALANX_RETURN_IF_ERROR(
      state_.StoreBoth(version, state_.core_->next_base(), file->global, file->local));
  Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
  state_.core_->OnRestored(version, boot, /*local=*/true);
  // No other version is anywhere if this node ends.
  return state_.AwaitCopies();
}

// An error ends the session, since another Load would have other calls.
absl::StatusOr<uint64_t> SessionState::Restore(TakeBoth take, bool local) {
  if (!files_->Newest(local).has_value() && files_->Newest(!local).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Load is ", local ? "with" : "without",
                     " a local model, and the files in the directory of checkpoints are ",
                     local ? "without" : "with", " one"));
  }
  PHALANX_RETURN_IF_ERROR(
      End(local ? Restoring(*this).RestoreLocal(take) : Restoring(*this).RestoreGlobal(take)));
  seq_ = 0;
  return core_->version();
}

}  // namespace phalanx::spmd::internal
