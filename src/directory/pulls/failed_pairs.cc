#include "src/directory/pulls/failed_pairs.h"

#include <algorithm>

#include "src/common/defects.h"

namespace phalanx::directory {
namespace {

constexpr size_t kMaxPairs = 1 << 16;
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr int kMaxDoublings = 16;
// Broken or refused connections in a row that are a cut.
constexpr int kBrokenToBeCut = 2;

}  // namespace

bool FailedPairs::IsBusy(absl::StatusCode code) {
  return code == absl::StatusCode::kNotFound || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kResourceExhausted;
}

bool FailedPairs::IsUnreached(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

void FailedPairs::Remember(const NodeKey& receiver, const NodeKey& sender, absl::StatusCode code,
                           Instant now) {
  const Pair pair{receiver, sender};
  if (failures_.size() >= kMaxPairs && !failures_.contains(pair)) {
    failures_.erase(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
  }
  if (const auto old = failures_.find(pair);
      old != failures_.end() && old->second.forget_at <= now) {
    Forget(receiver, sender);
  }
  Failure& failure = failures_[pair];
  // Pulls that were started together and refused together count as one failure.
  if (failure.count > 0 && IsBusy(code) && now < failure.retry_at) return;
  if (failure.count > 0) by_age_.erase({failure.forget_at, pair});
  const int doublings = std::min(failure.count, kMaxDoublings);
  ++failure.count;
  failure.retry_at = now + std::min(lease_, kFirstPause * (1 << doublings));
  // A sender that was reached, but could not serve, can have the object a moment later (a relay
  // whose memory comes). One that was not reached is likely to fail for the rest of the lease.
  failure.avoid_until = IsBusy(code) ? failure.retry_at : now + lease_;
  failure.forget_at = now + lease_;
  failure.unreached = IsUnreached(code) ? failure.unreached + 1 : 0;
  const bool was_cut = failure.cut;
  failure.cut = code == absl::StatusCode::kDeadlineExceeded || failure.unreached >= kBrokenToBeCut;
  if (failure.cut && !was_cut) new_cuts_.push_back(pair);
  if (DefectActive(Defect::kCutNeverForgotten) && failure.cut) {
    failure.avoid_until = failure.forget_at = Instant::Infinite();
  }
  by_age_.insert({failure.forget_at, pair});
}

void FailedPairs::Forget(const NodeKey& receiver, const NodeKey& sender) {
  const auto found = failures_.find({receiver, sender});
  if (found == failures_.end()) return;
  by_age_.erase({found->second.forget_at, found->first});
  failures_.erase(found);
}

void FailedPairs::Tick(Instant now) {
  while (!by_age_.empty() && by_age_.begin()->first <= now) {
    failures_.erase(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
  }
}

FailedPairs::Avoided FailedPairs::Find(const NodeKey& receiver, const NodeKey& sender,
                                       Instant now) const {
  const auto found = failures_.find({receiver, sender});
  if (found == failures_.end() || found->second.avoid_until <= now) return {};
  return {.avoided = true, .retry_at = found->second.retry_at};
}

int FailedPairs::Failures(const NodeKey& receiver, const NodeKey& sender, Instant now) const {
  const auto found = failures_.find({receiver, sender});
  return found == failures_.end() || found->second.forget_at <= now ? 0 : found->second.count;
}

bool FailedPairs::Cut(const NodeKey& receiver, const NodeKey& sender, Instant now) const {
  // Nearly always.
  if (failures_.empty()) return false;
  const auto found = failures_.find({receiver, sender});
  return found != failures_.end() && found->second.cut && found->second.avoid_until > now;
}

}  // namespace phalanx::directory
