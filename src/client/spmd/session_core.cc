#include "src/client/spmd/session_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::spmd::internal {

std::string CheckpointName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                           uint64_t version) {
  if (DefectActive(Defect::kSessionRunsShareNames)) run = 0;
  return absl::StrCat(job, "/", role, "/", absl::Hex(run, absl::kZeroPad16), "/", rank, "/",
                      version);
}

bool SessionCore::repeats() const {
  if (DefectActive(Defect::kSessionRepeatsOneLess)) return next_call() < progress_.ended;
  return next_call() <= progress_.ended;
}

SessionKeep SessionCore::keep() const {
  if (!loaded_) return {};
  if (DefectActive(Defect::kSessionReleasesItsVersion)) return {boot_, calls_, version_};
  return {boot_, released_, version_};
}

void SessionCore::OnCallEnded(bool needs_all) {
  ++calls_;
  made_ = std::max(made_, calls_);
  if (DefectActive(Defect::kSessionBroadcastFrees)) needs_all = true;
  if (!needs_all) return;
  if (known_ > 0) FreeUntil(known_ - 1);
  known_ = version_;
}

// The first call of the run is made before Load, so a call after Load says boot > 0.
absl::StatusOr<uint64_t> SessionCore::VersionToLoad() const {
  if (loaded_) return absl::FailedPreconditionError("Load was called before in this life");
  const SessionKeep& said = progress_.keep;
  if (said.boot == 0) return 0;
  if (said.boot != calls_) {
    return absl::InvalidArgumentError(
        absl::StrCat("Load comes after call ", calls_,
                     " of the group, and in the life before after call ", said.boot));
  }
  if (DefectActive(Defect::kSessionLoadsOlder) && said.version > 1) return said.version - 1;
  return said.version;
}

void SessionCore::OnLoaded() {
  boot_ = calls_;
  if (progress_.keep.boot > 0) {
    calls_ = progress_.keep.released;
    version_ = progress_.keep.version;
  }
  made_ = calls_;
  released_ = calls_;
  known_ = version_;
  // The life before may have ended between the call that frees its older checkpoint and the
  // deletion.
  oldest_ = version_ > 1 ? version_ - 1 : 1;
  loaded_ = true;
}

absl::Status SessionCore::CheckCheckpoint() const {
  if (loaded_) return absl::OkStatus();
  return absl::FailedPreconditionError("Checkpoint comes before Load");
}

void SessionCore::OnCheckpoint() {
  ++version_;
  released_ = calls_;
  if (DefectActive(Defect::kSessionFreesAtCheckpoint)) FreeUntil(version_ - 1);
}

void SessionCore::FreeUntil(uint64_t version) {
  for (; oldest_ <= version; ++oldest_) freed_.push_back(oldest_);
}

std::vector<uint64_t> SessionCore::TakeRest() {
  FreeUntil(version_);
  return TakeFreed();
}

}  // namespace phalanx::spmd::internal
