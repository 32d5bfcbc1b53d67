#include "src/client/spmd/session_core.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/common/defects.h"

namespace phalanx::spmd::internal {
namespace {

// Of a mark.
constexpr uint64_t kNamedBit = uint64_t{1} << 63;
constexpr uint64_t kLocalBit = uint64_t{1} << 62;
constexpr uint64_t kRestoredBit = uint64_t{1} << 61;

}  // namespace

std::string CheckpointName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                           uint64_t version) {
  if (DefectActive(Defect::kSessionRunsShareNames)) run = 0;
  return absl::StrCat(job, "/", role, "/", absl::Hex(run, absl::kZeroPad16), "/", rank, "/",
                      version);
}

uint64_t SessionKeep::mark() const {
  if (boot == 0) return names;
  return version | (names == 0 ? 0 : kNamedBit) | (local ? kLocalBit : 0) |
         (restored ? kRestoredBit : 0);
}

SessionKeep SessionKeep::Of(uint64_t boot, uint64_t released, uint64_t mark) {
  if (boot == 0) return {.names = mark};
  return {.boot = boot,
          .released = released,
          .version = mark & ~(kNamedBit | kLocalBit | kRestoredBit),
          .names = (mark & kNamedBit) / kNamedBit,
          .local = (mark & kLocalBit) != 0,
          .restored = (mark & kRestoredBit) != 0};
}

std::string LocalName(absl::string_view job, absl::string_view role, uint64_t run, int rank,
                      uint64_t version) {
  if (DefectActive(Defect::kSessionLocalOfAnother)) rank = 0;
  return absl::StrCat(CheckpointName(job, role, run, rank, version), "/local");
}

std::string CheckpointMetadata(uint64_t base) { return absl::StrCat("after call ", base); }

absl::StatusOr<uint64_t> BaseOf(absl::string_view metadata) {
  uint64_t base = 0;
  if (absl::ConsumePrefix(&metadata, "after call ") && absl::SimpleAtoi(metadata, &base)) {
    return base;
  }
  return absl::DataLossError("an object that is no checkpoint has its name");
}

bool SessionCore::repeats() const {
  if (DefectActive(Defect::kSessionRepeatsOneLess)) return next_call() < progress_.ended;
  return next_call() <= progress_.ended;
}

SessionKeep SessionCore::keep() const {
  if (!loaded_) return {.names = boot_calls_.mark()};
  const bool early = DefectActive(Defect::kSessionReleasesItsVersion);
  return {.boot = boot_,
          .released = early    ? made_
                      : local_ ? base_before_
                               : base_,
          .version = version_,
          .names = boot_calls_.named() ? uint64_t{1} : uint64_t{0},
          .local = local_,
          .restored = restored_};
}

void SessionCore::OnCallMade() {
  ++under_way_;
  if (loaded_) {
    ++made_;
  } else {
    boot_calls_.OnMade();
  }
}

void SessionCore::OnCallEnded(bool needs_all, uint64_t losses) {
  if (under_way_ == 0) OnCallMade();
  --under_way_;
  if (needs_all) {
    can_be_lazy_ = true;
    past_losses_ = std::max(past_losses_, losses);
  }
  if (DefectActive(Defect::kSessionBroadcastFrees)) needs_all = true;
  if (!needs_all) return;
  uint64_t last = std::exchange(known_, version_);
  if (DefectActive(Defect::kSessionFreesAfterOneCall)) last = version_;
  if (local_ && DefectActive(Defect::kSessionLocalFreedEarly)) {
    return FreeUntil(version_ - (version_ > 0));
  }
  const uint64_t kept = local_ ? 2 : 1;
  if (last > kept) FreeUntil(last - kept);
}

// The first call of the run is made before Load, so a call after Load says boot > 0.
absl::StatusOr<uint64_t> SessionCore::VersionToLoad(bool local) const {
  if (loaded_) return absl::FailedPreconditionError("Load was called before in this life");
  const SessionKeep& said = progress_.keep;
  if (said.boot == 0) return 0;
  if (said.boot != boot_calls_.last()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Load comes after call ", boot_calls_.last(),
                     " of the group, and in the life before after call ", said.boot));
  }
  if (said.local != local) {
    return absl::InvalidArgumentError(absl::StrCat("Load is ", local ? "with" : "without",
                                                   " a local model, and in the life before it was ",
                                                   local ? "without" : "with", " one"));
  }
  if (DefectActive(Defect::kSessionLoadsOlder) && said.version > 1) return said.version - 1;
  return said.version;
}

bool SessionCore::CanLoad(uint64_t version, uint64_t base) const {
  const SessionKeep& said = progress_.keep;
  if (said.local) {
    if (version == said.version) return base >= said.released && base <= progress_.ended;
    return version + 1 == said.version && base == said.released;
  }
  if (version == said.version) return base == said.released;
  if (DefectActive(Defect::kSessionLoadsOlder) && version + 1 == said.version) return true;
  if (version < said.version || version >= said.version + kLoadableVersions) return false;
  if (DefectActive(Defect::kSessionLoadsUnended)) return true;
  return base >= said.released && base <= progress_.ended;
}

uint64_t SessionCore::GlobalOf(uint64_t version) const {
  return DefectActive(Defect::kSessionLocalsMixed) ? progress_.keep.version : version;
}

void SessionCore::OnLoaded(uint64_t version, uint64_t base, bool local) {
  const SessionKeep& said = progress_.keep;
  boot_ = boot_calls_.last();
  made_ = boot_;
  local_ = local;
  restored_ = said.restored;
  if (said.boot > 0) {
    made_ = version == 0 || DefectActive(Defect::kSessionKeepsOldReleased) ? said.released : base;
    version_ = version;
  }
  base_ = made_;
  // A life that begins in the version before the one that it has learned of makes no call in it.
  const bool goes_on = local && said.boot > 0 && version_ == said.version;
  base_before_ = goes_on ? said.released : boot_;
  // The life before may have ended between the call that frees its older checkpoint and the
  // deletion. With local models it may have had some more.
  const uint64_t kept = local ? 4 : 1;
  oldest_ = said.version > kept ? said.version - kept : 1;
  can_be_lazy_ = false;
  loaded_ = true;
}

// A local model of this version has its copies before a call says the version, so no life needs the
// version before.
void SessionCore::OnRestored(uint64_t version, uint64_t boot, bool local) {
  boot_ = boot;
  made_ = boot_calls_.last();
  base_ = base_before_ = made_;
  version_ = version;
  // There are older files.
  oldest_ = version > 1 ? version - 1 : 1;
  local_ = local;
  restored_ = version > 0;
  can_be_lazy_ = false;
  loaded_ = true;
}

absl::Status SessionCore::CheckCheckpoint(bool local) const {
  if (!loaded_) return absl::FailedPreconditionError("Checkpoint comes before Load");
  if (local == local_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the checkpoint is ", local ? "with" : "without",
                                                 " a local model, and Load was ",
                                                 local_ ? "with" : "without", " one"));
}

std::optional<uint64_t> SessionCore::LocalToAwait() const {
  if (!local_ || version_ == 0 || DefectActive(Defect::kSessionLocalNotCopied)) return std::nullopt;
  return version_;
}

void SessionCore::OnCheckpoint(bool lazy) {
  ++version_;
  base_before_ = base_;
  base_ = made_;
  can_be_lazy_ = DefectActive(Defect::kSessionLazyTwice);
  if (!DefectActive(Defect::kSessionLazySavedLate)) unsaved_.reset();
  if (lazy && !unsaved_.has_value()) unsaved_ = version_;
  if (DefectActive(Defect::kSessionLazyDeathForgotten)) past_losses_ = losses_;
  if (DefectActive(Defect::kSessionFreesAtCheckpoint)) FreeUntil(version_ - 1);
}

std::optional<uint64_t> SessionCore::ToSave() const {
  return losses_ > past_losses_ ? unsaved_ : std::nullopt;
}

void SessionCore::FreeUntil(uint64_t version) {
  for (; oldest_ <= version; ++oldest_) freed_.push_back(oldest_);
}

std::vector<uint64_t> SessionCore::TakeRest() {
  FreeUntil(version_);
  return TakeFreed();
}

}  // namespace phalanx::spmd::internal
