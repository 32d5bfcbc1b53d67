#include "src/ps/server/turn_queue.h"

#include <utility>

#include "src/common/check.h"

namespace phalanx::ps::internal {

void TurnQueue::Add(SyncCore::Turn turn) {
  PHALANX_CHECK(turns_.empty() || turns_.back().turn.clock < turn.clock, "turns have an order");
  turns_.push_back(Waiting{std::move(turn)});
}

// A worker in its next life can ask for a clock whose turn waits.
void TurnQueue::AddPull(uint64_t clock, Token pull) {
  for (auto at = turns_.rbegin(); at != turns_.rend(); ++at) {
    if (at->turn.clock < clock) {
      at->pulls.push_back(pull);
      return;
    }
  }
  pulls_.push_back(pull);
}

std::optional<TurnQueue::Token> TurnQueue::TakePull() {
  if (pulls_.empty() || holds_) return std::nullopt;
  const Token pull = pulls_.front();
  pulls_.pop_front();
  return pull;
}

SyncCore::Turn TurnQueue::TakeTurn() {
  PHALANX_CHECK(!turns_.empty() && pulls_.empty(), "the next one is a turn");
  Waiting first = std::move(turns_.front());
  turns_.pop_front();
  pulls_ = std::move(first.pulls);
  Void();
  return std::move(first.turn);
}

std::vector<TurnQueue::Token> TurnQueue::pushes() const {
  std::vector<Token> all;
  for (const Waiting& waiting : turns_) {
    all.insert(all.end(), waiting.turn.pushes.begin(), waiting.turn.pushes.end());
  }
  return all;
}

void TurnQueue::Clear() {
  pulls_.clear();
  turns_.clear();
  Void();
}

uint64_t TurnQueue::Begin() {
  PHALANX_CHECK(!turns_.empty(), "there is a turn");
  ++last_attempt_;
  if (valid_from_ == 0) valid_from_ = last_attempt_;
  failed_ = absl::OkStatus();
  return last_attempt_;
}

void TurnQueue::Void() {
  valid_from_ = 0;
  failed_ = absl::OkStatus();
}

void TurnQueue::OnFailed(uint64_t attempt, absl::Status why) {
  if (Takes(attempt) && attempt == last_attempt_) failed_ = std::move(why);
}

}  // namespace phalanx::ps::internal
