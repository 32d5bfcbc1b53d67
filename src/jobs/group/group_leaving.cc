#include "src/jobs/group/group_leaving.h"

#include <algorithm>

namespace phalanx::jobs {

bool GroupLeaving::TakeOver(const GroupList& list, uint64_t settled) {
  if (!own_.has_value()) return false;
  const bool all =
      std::all_of(list.nodes.begin(), list.nodes.end(), [&](const GroupList::Node& node) {
        const int index = list.IndexOf(node.key);
        return index == list.self || own_->ended.contains(node.key);
      });
  const bool awaited = own_->waits && list.some_died;
  const bool over = list.self < 0 || own_->last <= settled || (all && !awaited);
  if (over) own_.reset();
  return over;
}

bool GroupLeaving::TakeLate(Instant now) {
  const bool late = own_.has_value() && own_->until <= now;
  if (late) own_.reset();
  return late;
}

std::pair<std::vector<int>, uint64_t> GroupLeaving::TakeQuestions(const GroupList& list) {
  std::vector<int> peers;
  if (!own_.has_value()) return {peers, 0};
  for (int peer = 0; peer < list.shape.nodes(); ++peer) {
    if (peer == list.self) continue;
    if (own_->asked.insert(list.nodes[static_cast<size_t>(peer)].key).second) peers.push_back(peer);
  }
  return {peers, own_->last};
}

void GroupLeaving::Forget(const NodeKey& node) {
  askers_.erase(node);
  if (own_.has_value()) own_->asked.erase(node);
}

void GroupLeaving::OnEnded(const NodeKey& node, uint64_t number) {
  if (own_.has_value() && number >= own_->last) own_->ended.insert(node);
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
