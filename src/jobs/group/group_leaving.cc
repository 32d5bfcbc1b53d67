#include "src/jobs/group/group_leaving.h"

#include <algorithm>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::jobs {

void GroupLeaving::Begin(uint64_t last, bool waits, Instant now) {
  leavers_.push_back(now + kLeavePatience);
  if (leavers_.size() > 1 && last <= last_) return;
  // What the nodes have said of this call stays.
  if (last != last_) {
    asked_.clear();
    ended_.clear();
  }
  last_ = last;
  waits_ = waits;
}

size_t GroupLeaving::TakeOver(const GroupList& list, uint64_t ended, uint64_t settled) {
  if (leavers_.empty()) return 0;
  const bool all =
      std::all_of(list.nodes.begin(), list.nodes.end(), [&](const GroupList::Node& node) {
        return list.IndexOf(node.key) == list.self || ended_.contains(node.key);
      });
  const bool awaited = waits_ && list.some_died;
  const bool over = last_ <= settled || (all && last_ <= ended && !awaited) ||
                    DefectActive(Defect::kGroupLeftEarly);
  if (list.self >= 0 && !over) return 0;
  return std::exchange(leavers_, {}).size();
}

size_t GroupLeaving::TakeLate(Instant now) {
  size_t late = 0;
  for (; !leavers_.empty() && leavers_.front() <= now; ++late) leavers_.pop_front();
  return late;
}

std::pair<std::vector<int>, uint64_t> GroupLeaving::TakeQuestions(const GroupList& list) {
  std::vector<int> peers;
  for (int peer = 0; peer < list.shape.nodes() && !leavers_.empty(); ++peer) {
    if (peer == list.self) continue;
    if (asked_.insert(list.nodes[static_cast<size_t>(peer)].key).second) peers.push_back(peer);
  }
  return {peers, last_};
}

void GroupLeaving::Forget(const NodeKey& node) {
  askers_.erase(node);
  if (!DefectActive(Defect::kGroupLeaveNotAskedAgain)) asked_.erase(node);
}

void GroupLeaving::OnEnded(const NodeKey& node, uint64_t number) {
  if (number >= last_) ended_.insert(node);
}

void GroupLeaving::OnAsked(const NodeKey& node, uint64_t number) {
  uint64_t& call = askers_[node];
  call = std::max(call, number);
}

std::vector<std::pair<int, uint64_t>> GroupLeaving::TakeAnswers(const GroupList& list,
                                                                uint64_t ended) {
  std::vector<std::pair<int, uint64_t>> answers;
  for (auto at = askers_.begin(); at != askers_.end();) {
    const auto& [node, call] = *at;
    const int peer = list.IndexOf(node);
    // One that is not in the list any more has left without an answer.
    const bool due = peer < 0 || ended >= call;
    if (due && peer >= 0) answers.emplace_back(peer, call);
    at = due ? askers_.erase(at) : std::next(at);
  }
  return answers;
}

}  // namespace phalanx::jobs
