#include "src/ps/server/turn_sums.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "src/ps/rows/ring_sums.h"

namespace phalanx::ps::internal {

// Each entry that comes meanwhile asks, too: nothing is looked for then.
bool TurnSums::Await() {
  if (turns_.reduces()) return true;
  if (!HasObjects()) return false;
  Begin(true);
  return true;
}

bool TurnSums::HasObjects() const {
  return !objects_.empty() && absl::c_any_of(turns_.first()->pushes, [this](const Token token) {
    return objects_.Find(token) != nullptr;
  });
}

// In the order of workers and then of their pushes: floating-point sums depend on it.
std::vector<std::string> TurnSums::Handles() const {
  std::vector<std::string> handles;
  for (const Token token : turns_.first()->pushes) {
    const ObjectPushes::One* const push = objects_.Find(token);
    if (push != nullptr) handles.push_back(push->handle);
  }
  return handles;
}

// One that was to begin is overtaken by this one, and was never seen by the owner.
void TurnSums::Begin(bool only) {
  only = only || (reduce_.has_value() && reduce_->only);
  if (only) Void();
  stale_ = false;
  cancelled_ = false;
  const uint64_t attempt = turns_.Begin();
  reduce_ = Reduce{attempt, turns_.first()->clock, Handles(), only};
  base_.clear();
  if (!IsRing(reduce_->handles.size())) return;
  with_rows_.insert(attempt);
  reduce_->base = base_ = versions_.Base();
  reduce_->target = versions_.BeginAhead(attempt);
}

// Pushes with keys come behind the sum of objects, which the rows are none of then.
bool TurnSums::IsRing(size_t objects) const {
  return ring_bytes_ > 0 && IsRingSum(ring_bytes_, objects + 1) &&
         absl::c_none_of(turns_.first()->pushes,
                         [this](const Token token) { return kept_.Has(token); });
}

// Without a ring the object is never there, and readers would ask twice: so they are answered as of
// other turns until one is made again.
void TurnSums::OnRing(uint64_t attempt, bool target) {
  rings_ = target;
  if (target) versions_.AheadMade(attempt);
}

// The slices take longer than a ring: without this its readers would wait for the end of them, and
// ask then.
void TurnSums::OnSlices(uint64_t attempt) {
  if (!has_rows(attempt)) return;
  rings_ = false;
  versions_.EndAhead(attempt);
}

// The reduction waits for its first source, which nothing puts. So another attempt is made at
// Retry, with an object of the same rows.
void TurnSums::OnPublishFailed(absl::string_view handle) {
  if (turns_.reduces() && !base_.empty() && base_ == handle) stale_ = true;
}

// Its sources are held as long as it is under way.
void TurnSums::Void() {
  cancelled_ = cancelled_ || turns_.reduces();
  turns_.Void();
  versions_.EndAhead();
  with_rows_.clear();
  reduce_.reset();
  stale_ = false;
  lost_attempts_ = 0;
}

// The attempt with the other one goes on: if that is not lost, it counts. But a rack of workers
// that come again makes no attempt each.
void TurnSums::OnReplaced(const Position& at) {
  if (!turns_.reduces() || turns_.first()->clock != at.clock) return;
  lost_attempts_ = 0;
  stale_ = turns_.attempts() >= kMostAttempts;
  if (!stale_) Begin(false);
}

void TurnSums::OnChanged(uint64_t clock) {
  if (turns_.reduces() && turns_.first()->clock == clock) Void();
}

// The sum that is under way may have them.
void TurnSums::TakeOut(const std::vector<Token>& pushes) {
  for (const Token token : pushes) {
    const ObjectPushes::One* const push = objects_.Find(token);
    if (push == nullptr) continue;
    OnChanged(push->at.clock);
    objects_.Erase(token);
  }
}

const ObjectPushes::One* TurnSums::PushOf(absl::string_view handle) const {
  const ObjectPushes::One* only = nullptr;
  int pushes = 0;
  for (const Token token : turns_.first()->pushes) {
    const ObjectPushes::One* const push = objects_.Find(token);
    if (push == nullptr) continue;
    if (!handle.empty() && push->handle == handle) return push;
    only = push;
    ++pushes;
  }
  return pushes == 1 ? only : nullptr;
}

std::string TurnSums::NameOf(const ObjectPushes::One* push) const {
  if (push == nullptr) {
    return absl::StrCat("the sum of the pushes of clock ", turns_.first()->clock);
  }
  return absl::StrCat("push ", push->at.push, " of clock ", push->at.clock, " by worker ",
                      push->worker);
}

bool TurnSums::OwnersLive(const ObjectPushes::One* push, const Lives& lives) const {
  if (push != nullptr) return lives(push->worker, push->life);
  return absl::c_all_of(turns_.first()->pushes, [&](const Token token) {
    const ObjectPushes::One* const one = objects_.Find(token);
    return one == nullptr || lives(one->worker, one->life);
  });
}

// What was pushed is of another size or kind than the table, which no attempt changes. And a worker
// that lives has no bytes any more to push again.
absl::Status TurnSums::OnFailed(uint64_t attempt, const absl::Status& why, absl::string_view handle,
                                const Lives& lives) {
  if (!turns_.Takes(attempt)) return absl::OkStatus();
  const ObjectPushes::One* const push = PushOf(handle);
  if (absl::IsInvalidArgument(why)) {
    return absl::InternalError(absl::StrCat(NameOf(push), " cannot be summed: ", why.ToString()));
  }
  versions_.EndAhead(attempt);
  with_rows_.erase(attempt);
  if (attempt != turns_.attempt()) return absl::OkStatus();
  turns_.OnFailed(attempt, why);
  // It can be the rows' object that cannot be had. To publish them again takes a copy of the part,
  // so not if a push is to blame, which can be away for long.
  if (!base_.empty() && push == nullptr) versions_.ReplaceBase();
  const bool lost = absl::IsNotFound(why) || absl::IsDataLoss(why);
  lost_attempts_ = lost && OwnersLive(push, lives) ? lost_attempts_ + 1 : 0;
  if (lost_attempts_ < kLostAttempts) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the object of ", NameOf(push),
                                          " is lost, and is in no rows yet: ", why.message()));
}

// Without those before it if what they sum was replaced.
void TurnSums::Retry() {
  if (!wants_retry()) return;
  const int lost = lost_attempts_;
  Begin(stale_);
  lost_attempts_ = lost;
}

std::string TurnSums::Describe() const {
  if (!turns_.reduces()) return "";
  std::string text = absl::StrCat("  sums ", Handles().size(), " pushes of clock ",
                                  turns_.first()->clock, ", attempt ", turns_.attempt());
  if (!turns_.failed().ok()) {
    absl::StrAppend(&text, ", which has failed: ", turns_.failed().ToString());
  } else if (stale_) {
    absl::StrAppend(&text, ", before some were pushed again");
  } else if (has_rows(turns_.attempt())) {
    absl::StrAppend(&text, versions_.ahead(turns_.attempt())
                               ? ", in a ring of the tasks' nodes"
                               : ", slice by slice, since there is no ring");
  }
  return text + "\n";
}

}  // namespace phalanx::ps::internal
