#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "src/client/access.h"
#include "src/client/spmd/disks/disk_runs.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// What is wrong with an offer.
constexpr uint32_t kUnreadable = 1;
constexpr uint32_t kOtherKind = 2;

}  // namespace

// Of one Load; disk_runs.h has the rules. A life that repeats its calls gets what the others have
// got, also if its files are others now.
class SessionState::Restoring {
 public:
  explicit Restoring(SessionState& state) : state_(state), boot_(state.core_->next_base()) {}
  absl::Status Restore(TakeBoth take, bool local);

 private:
  // Of the newest file of a run before this one that each rank can read; the same for all. An error
  // is that of all ranks.
  absl::StatusOr<std::vector<DiskOffer>> Gather(const DiskRun& before, bool local);
  // This rank's, and why there is none. Its file is file_.
  DiskOffer OfferOf(const DiskRun& before, bool local, absl::Status& why);
  // What all take: a file, or nothing.
  absl::StatusOr<DiskChoice> Choose(bool local);
  absl::Status RestoreGlobal(TakeBoth take, const DiskChoice& choice);
  absl::Status RestoreLocal(TakeBoth take, const DiskChoice& choice);
  absl::Status SendFile(const DiskChoice& choice, bool has, std::string& bytes);
  static absl::Status LostFile(uint64_t version);
  bool HasFile(const DiskChoice& choice) const;
  // The least rank that lacks something; kNone if none does.
  absl::StatusOr<uint64_t> FirstThatLacks(bool lacks);
  int rank() const { return state_.member_.rank(); }

  static constexpr uint64_t kNone = kMaxJobWorld;

  SessionState& state_;
  const uint64_t boot_;
  std::optional<CheckpointFile> file_;
  std::vector<DiskRun> marks_;  // that any rank has said that it sees
};

absl::Status SessionState::Restoring::Restore(TakeBoth take, bool local) {
  PHALANX_ASSIGN_OR_RETURN(const DiskChoice choice, Choose(local));
  if (choice.kind == DiskChoice::Kind::kNothing) {
    Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
    state_.core_->OnRestored(0, boot_, local);
    return absl::OkStatus();
  }
  return local ? RestoreLocal(take, choice) : RestoreGlobal(take, choice);
}

absl::StatusOr<DiskChoice> SessionState::Restoring::Choose(bool local) {
  DiskRun before = state_.files_->run();
  std::optional<int> lacks;
  while (true) {
    PHALANX_ASSIGN_OR_RETURN(const std::vector<DiskOffer> offers, Gather(before, local));
    const DiskChoice choice = ChooseFile(offers, local);
    marks_ = MarksOf(offers);
    if (choice.kind == DiskChoice::Kind::kAgain) continue;
    if (choice.kind == DiskChoice::Kind::kOlder) {
      before = choice.run;
      if (!lacks.has_value()) lacks = choice.rank;
      continue;
    }
    const bool nothing = choice.kind == DiskChoice::Kind::kNothing;
    if (choice.kind == DiskChoice::Kind::kTake || (nothing && !lacks.has_value())) {
      state_.files_->RemoveEnded(marks_);
      return choice;
    }
    return absl::NotFoundError(absl::StrCat(
        "rank ", nothing ? *lacks : choice.rank,
        " has no whole file of the newest run in its directory of checkpoints, and others have: "
        "bring its files there, or remove those of all ranks, to begin anew"));
  }
}

DiskOffer SessionState::Restoring::OfferOf(const DiskRun& before, bool local, absl::Status& why) {
  DiskOffer offer;
  offer.error = kUnreadable;
  file_.reset();
  const absl::StatusOr<DiskMarks> marks = state_.files_->Marks();
  why = marks.status();
  if (!marks.ok()) return offer;
  for (const DiskRun& mark : *marks) {
    if (mark.number > 0) marks_.push_back(mark);
  }
  absl::StatusOr<std::optional<CheckpointFile>> file = state_.files_->Newest(local, before, marks_);
  why = file.status();
  if (!file.ok()) return offer;
  offer.error = 0;
  offer.marks = *marks;
  if (file->has_value()) {
    file_ = *std::move(file);
    offer.run = file_->run;
    offer.version = file_->version;
    offer.first = file_->first ? 1 : 0;
    return offer;
  }
  const absl::StatusOr<std::optional<CheckpointFile>> other =
      state_.files_->Newest(!local, before, marks_);
  why = other.status();
  if (!other.ok()) offer.error = kUnreadable;
  if (other.ok() && other->has_value()) offer.error = kOtherKind;
  return offer;
}

absl::StatusOr<std::vector<DiskOffer>> SessionState::Restoring::Gather(const DiskRun& before,
                                                                       bool local) {
  absl::Status own;
  const DiskOffer mine = OfferOf(before, local, own);
  std::vector<DiskOffer> offers(static_cast<size_t>(state_.member_.world()));
  const uint64_t bytes = offers.size() * sizeof(mine);
  PHALANX_RETURN_IF_ERROR(state_.Call({kNeedsAll}, offers.data(), bytes, [&](const Group& group) {
    return group.AllGather(&mine, sizeof(mine), offers.data(), bytes);
  }));
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].error == 0) continue;
    if (static_cast<int>(rank) == this->rank() && !own.ok()) return own;
    if (offers[rank].error == kUnreadable) {
      return absl::UnavailableError(
          absl::StrCat("rank ", rank, " cannot read its directory of checkpoints"));
    }
    return absl::InvalidArgumentError(absl::StrCat("Load is ", local ? "with" : "without",
                                                   " a local model, and the files of rank ", rank,
                                                   " are ", local ? "without" : "with", " one"));
  }
  return offers;
}

bool SessionState::Restoring::HasFile(const DiskChoice& choice) const {
  return file_.has_value() && file_->run == choice.run && file_->version == choice.version;
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
absl::Status SessionState::Restoring::SendFile(const DiskChoice& choice, bool has,
                                               std::string& bytes) {
  const int root = choice.rank;
  const auto lacks = [&] { return root == rank() && !has && !state_.core_->repeats(); };
  uint64_t size = bytes.size();
  if (lacks()) return LostFile(choice.version);
  PHALANX_RETURN_IF_ERROR(state_.Call(
      {kNeedsRoot}, &size, sizeof(size),
      [&size, root](const Group& group) { return group.Broadcast(root, &size, sizeof(size)); }));
  PHALANX_RETURN_IF_ERROR(state_.CheckBytes(size));
  bytes.resize(size);
  if (size == 0) return absl::OkStatus();
  if (lacks()) return LostFile(choice.version);
  return state_.Call({kNeedsRoot}, bytes.data(), size, [&bytes, root](const Group& group) {
    return group.Broadcast(root, bytes.data(), bytes.size());
  });
}

absl::Status SessionState::Restoring::RestoreGlobal(TakeBoth take, const DiskChoice& choice) {
  const uint64_t version = choice.version;
  const bool has = choice.rank == rank() && HasFile(choice);
  std::string bytes;
  if (has) bytes = std::move(file_->global);
  PHALANX_RETURN_IF_ERROR(SendFile(choice, has, bytes));
  PHALANX_RETURN_IF_ERROR(take(bytes, ""));
  // On each disk, before older ones are removed.
  PHALANX_RETURN_IF_ERROR(state_.files_->WriteFirst(version, bytes, std::nullopt));
  PHALANX_RETURN_IF_ERROR(
      state_.Store(version, state_.core_->next_base(), bytes, state_.patience_));
  Access::DieIfDeclared(state_.member_, DeathPoint::Kind::kLoad);
  state_.core_->OnRestored(version, boot_, /*local=*/false);
  return absl::OkStatus();
}

// No rank goes on before all have the first file of this run.
absl::Status SessionState::Restoring::RestoreLocal(TakeBoth take, const DiskChoice& choice) {
  const uint64_t version = choice.version;
  if (!HasFile(choice)) {
    PHALANX_ASSIGN_OR_RETURN(file_, state_.files_->Read(choice.run, version));
  }
  PHALANX_ASSIGN_OR_RETURN(const uint64_t lacks, FirstThatLacks(!file_.has_value()));
  if (lacks != kNone) {
    return absl::NotFoundError(absl::StrCat("rank ", lacks, " has no whole file of version ",
                                            version, ", the newest that all could have"));
  }
  if (!file_.has_value()) return LostFile(version);
  state_.files_->RemovePassedOver(choice.run);
  const absl::Status written = state_.files_->WriteFirst(version, file_->global, file_->local);
  PHALANX_ASSIGN_OR_RETURN(const uint64_t fails, FirstThatLacks(!written.ok()));
  PHALANX_RETURN_IF_ERROR(written);
  if (fails != kNone) {
    return absl::UnavailableError(
        absl::StrCat("rank ", fails, " cannot write its file of version ", version));
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
