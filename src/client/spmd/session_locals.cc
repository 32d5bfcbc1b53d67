#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd::internal {
namespace {

using ::phalanx::internal::Access;
using ::phalanx::internal::DeathPoint;

// How often a life that finds no local model looks again.
constexpr absl::Duration kLookAgain = absl::Milliseconds(200);
// How long it does, if the directory has said that all copies have ended.
constexpr absl::Duration kLostPatience = absl::Seconds(10);

}  // namespace

ObjectId SessionState::LocalIdOf(uint64_t version) const {
  return client_->Id(kNameSpace,
                     LocalName(member_.job(), member_.role(), run_, member_.rank(), version));
}

std::vector<SessionState::Place> SessionState::PlacesOf(uint64_t version) const {
  std::vector<Place> places;
  for (const int rank : NearestRanks()) places.push_back({rank, version});
  return places;
}

std::optional<SessionState::Pair> SessionState::PairOf(uint64_t version, absl::Status& why) {
  GetOptions options = GetOptions{.timeout = patience_};
  options.on_lost = GetOptions::OnLost::kFail;
  const absl::StatusOr<bool> has = client_->Contains(LocalIdOf(version), patience_).Wait();
  why = has.ok() && !*has ? absl::UnavailableError("no node has it") : has.status();
  if (!why.ok()) return std::nullopt;
  absl::StatusOr<Buffer> local = client_->Get(LocalIdOf(version), options).Wait();
  why = local.status();
  if (!local.ok()) return std::nullopt;
  const absl::StatusOr<uint64_t> base = BaseOf(local->metadata());
  why = base.status();
  if (!base.ok() || !core_->CanLoad(version, *base)) return std::nullopt;
  // The first ranks first, so that not all of a large world are asked.
  const std::vector<Place> places = PlacesOf(core_->GlobalOf(version));
  for (size_t begin = 0; begin < places.size(); begin += kAskedRanks) {
    const size_t end = std::min(places.size(), begin + kAskedRanks);
    std::optional<Found> global = FindAmong({places.begin() + static_cast<std::ptrdiff_t>(begin),
                                             places.begin() + static_cast<std::ptrdiff_t>(end)});
    if (global.has_value() && global->base == *base) {
      return Pair{*std::move(global), *std::move(local)};
    }
  }
  why = absl::NotFoundError(
      absl::StrCat("no rank has its global model of version ", core_->GlobalOf(version)));
  return std::nullopt;
}

// The directory may not know yet what is there, or nodes are out of reach.
absl::StatusOr<std::optional<SessionState::Pair>> SessionState::FindPair(uint64_t newest) {
  const Instant began = MonotonicNow();
  absl::Status newest_why, before_why;
  while (true) {
    std::optional<Pair> pair = PairOf(newest, newest_why);
    if (!pair.has_value() && newest == 1 && core_->CanBeginAnew()) return std::nullopt;
    if (!pair.has_value()) pair = PairOf(newest - 1, before_why);
    if (pair.has_value()) return pair;
    PHALANX_RETURN_IF_ERROR(member_.status());
    GetOptions options;
    options.on_lost = GetOptions::OnLost::kFail;
    options.timeout = kLookAgain;
    const absl::Status there = client_->Get(LocalIdOf(newest - 1), options).Wait().status();
    const bool lost = absl::IsDataLoss(there) || absl::IsNotFound(there);
    if (lost) before_why = there;
    if (MonotonicNow() - began > (lost ? std::min(kLostPatience, patience_) : patience_)) break;
    SeeMembers();
    if (lost) member_.WaitForChange(seen_.change, kLookAgain).IgnoreError();
  }
  return absl::NotFoundError(absl::StrCat(
      "rank ", member_.rank(), " has no local model of version ", newest, " (",
      newest_why.message(), ") and none of version ", newest - 1, " (", before_why.message(),
      "), or a global one with it; local models are on ", locals_.copies, " hosts"));
}

// A life that goes on from the newest version has none of the version before on its node, and the
// other ranks' nodes can end.
void SessionState::HoldBefore(uint64_t version) {
  if (version == 0) return;
  std::vector<Place> places = PlacesOf(version);
  if (places.size() > kAskedRanks) places.resize(kAskedRanks);
  std::vector<Future<bool>> there;
  for (const Place& place : places) there.push_back(client_->Contains(IdOf(place), patience_));
  for (size_t i = 0; i < places.size(); ++i) {
    const absl::StatusOr<bool> has = there[i].Wait();
    if (!has.ok() || !*has) continue;
    locals_.before = version;
    locals_.of_before = client_->Get(IdOf(places[i]), GetOptions{.timeout = patience_});
    return;
  }
}

absl::StatusOr<uint64_t> SessionState::LoadBoth(TakeBoth take) {
  PHALANX_RETURN_IF_ERROR(BeginLoad());
  PHALANX_ASSIGN_OR_RETURN(const uint64_t newest, core_->VersionToLoad(/*local=*/true));
  if (files_.has_value() && core_->begins()) return Restore(take, /*local=*/true);
  within_ = false;
  std::optional<Pair> pair;
  if (newest > 0) {
    PHALANX_ASSIGN_OR_RETURN(pair, FindPair(newest));
  }
  if (pair.has_value()) {
    const Place& at = pair->global.at;
    PHALANX_RETURN_IF_ERROR(take(pair->global.bytes.view(), pair->local.view()));
    PHALANX_RETURN_IF_ERROR(
        WriteFile(files_, at.version, pair->global.bytes.view(), pair->local.view()));
    locals_.held[at.version] = std::move(pair->local);
    HoldBefore(at.version - 1);
    if (at.rank == member_.rank()) {
      written_.held[at.version] = pair->global.bytes;
    } else {
      PHALANX_RETURN_IF_ERROR(
          Store(at.version, pair->global.base, pair->global.bytes.view(), patience_));
    }
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(at.version, pair->global.base, /*local=*/true);
  } else {
    Access::DieIfDeclared(member_, DeathPoint::Kind::kLoad);
    core_->OnLoaded(0, 0, /*local=*/true);
  }
  seq_ = 0;
  return core_->version();
}

absl::Status SessionState::AwaitCopies() {
  const std::optional<uint64_t> version = core_->LocalToAwait();
  if (!version.has_value()) return absl::OkStatus();
  const Instant deadline = MonotonicNow() + patience_;
  absl::Status status;
  while (true) {
    const absl::Duration left = deadline - MonotonicNow();
    status = client_->Replicate(LocalIdOf(*version), locals_.copies, left).Wait().status();
    if (status.ok()) return status;
    // The other ranks can still free what they need no more.
    if (!absl::IsResourceExhausted(status) || left <= kLookAgain) break;
    PHALANX_RETURN_IF_ERROR(member_.status());
    SeeMembers();
    member_.WaitForChange(seen_.change, kLookAgain).IgnoreError();
  }
  return absl::Status(status.code(),
                      absl::StrCat("the local model of version ", *version, " is not on ",
                                   locals_.copies, " hosts yet: ", status.message()));
}

absl::Status SessionState::StoreBoth(uint64_t version, uint64_t base, absl::string_view bytes,
                                     absl::string_view local) {
  PutOptions options;
  options.copies = locals_.copies;
  options.scope = ScopeOf(version);
  options.timeout = patience_;
  PHALANX_RETURN_IF_ERROR(Store(version, base, bytes, patience_));
  return Put(LocalIdOf(version), options, base, local, locals_.held[version]);
}

absl::Status SessionState::CheckpointBoth(absl::string_view bytes, absl::string_view local) {
  PHALANX_RETURN_IF_ERROR(core_->CheckCheckpoint(/*local=*/true));
  PHALANX_RETURN_IF_ERROR(AwaitCopies());
  const uint64_t version = core_->version() + 1;
  PHALANX_RETURN_IF_ERROR(WriteFile(files_, version, bytes, local));
  PHALANX_RETURN_IF_ERROR(StoreBoth(version, core_->next_base(), bytes, local));
  stats_.checkpoint_bytes += bytes.size() + local.size();
  Access::DieIfDeclared(member_, DeathPoint::Kind::kCheckpoint);
  core_->OnCheckpoint(/*lazy=*/false);
  seq_ = 0;
  return absl::OkStatus();
}

}  // namespace phalanx::spmd::internal
