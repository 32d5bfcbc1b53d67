// TurnQueue: the turns of a table with kBsp, and the pulls between them, which wait for the
// reduction of the first turn's objects.
//
//   pulls of clocks <= 3 | turn of clock 3 | pulls of clock 4 | turn of clock 4 | pulls of clock 5
//                           reduced: attempt 1, 2, ...
//
// The sum of objects is made by the store, which takes a while, and can fail: then another attempt
// is made. An attempt whose objects are not those of the turn any more is void.
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_TURN_QUEUE_H_
#define PHALANX_PS_SERVER_TURN_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

class TurnQueue {
 public:
  using Token = SyncCore::Token;

  // The turn of a clock is behind those of all smaller ones.
  void Add(SyncCore::Turn turn);
  // Behind the turns of clocks before this one.
  void AddPull(uint64_t clock, Token pull);
  // Those pulls are forgotten of which this is true.
  template <typename Gone>
  void DropPulls(const Gone& gone) {
    std::erase_if(pulls_, gone);
    for (Waiting& waiting : turns_) std::erase_if(waiting.pulls, gone);
  }
  // A pull before the first turn. Nothing: there is none, or they are held.
  std::optional<Token> TakePull();
  // Pulls are held until Hold(false). REQUIRES: there are no turns.
  void Hold(bool holds) { holds_ = holds; }
  bool holds() const { return holds_; }
  // That can be answered but for Hold.
  size_t held() const { return holds_ ? pulls_.size() : 0; }
  // A pull behind the first turn of which this is true.
  template <typename Wanted>
  std::optional<Token> TakePullBehind(const Wanted& wanted) {
    if (turns_.empty()) return std::nullopt;
    std::deque<Token>& pulls = turns_.front().pulls;
    const auto found = std::find_if(pulls.begin(), pulls.end(), wanted);
    if (found == pulls.end()) return std::nullopt;
    const Token pull = *found;
    pulls.erase(found);
    return pull;
  }
  // The first turn; null: none.
  const SyncCore::Turn* first() const { return turns_.empty() ? nullptr : &turns_.front().turn; }
  // Ends its reduction, too. REQUIRES: there is one.
  SyncCore::Turn TakeTurn();
  // Of all turns that wait.
  std::vector<Token> pushes() const;
  void Clear();

  // ---- the reduction of the first turn
  // Returns the number of a new attempt. Earlier ones may still come.
  uint64_t Begin();
  // Earlier attempts are void, and none is under way.
  void Void();
  // The newest attempt has failed: another one is to be made after a while. Of an earlier attempt:
  // nothing changes.
  void OnFailed(uint64_t attempt, absl::Status why);
  // Its result is that of the first turn.
  bool Takes(uint64_t attempt) const {
    return valid_from_ > 0 && attempt >= valid_from_ && attempt <= last_attempt_;
  }
  // An attempt is under way, or one that has failed waits for the next one.
  bool reduces() const { return valid_from_ > 0; }
  // Why the newest attempt has failed; OK: it is under way.
  const absl::Status& failed() const { return failed_; }
  uint64_t attempt() const { return last_attempt_; }
  // That have begun for the objects of the turn, also such that have failed.
  uint64_t attempts() const { return reduces() ? last_attempt_ - valid_from_ + 1 : 0; }

 private:
  struct Waiting {
    SyncCore::Turn turn;
    std::deque<Token> pulls = {};  // behind it
  };

  std::deque<Token> pulls_;  // before the first turn
  bool holds_ = false;
  std::deque<Waiting> turns_;
  uint64_t last_attempt_ = 0;  // of all turns
  uint64_t valid_from_ = 0;    // of the first turn; 0: there is no attempt
  absl::Status failed_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_TURN_QUEUE_H_
