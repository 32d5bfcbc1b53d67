#include "src/ps/server/kept_pushes.h"

#include <iterator>

namespace phalanx::ps::internal {

void KeptPushes::Add(Token token, One push) {
  Erase(token);
  places_.insert_or_assign({push.worker, push.at}, token);
  pushes_.insert_or_assign(token, std::move(push));
}

const KeptPushes::One* KeptPushes::Find(Token token) const {
  const auto found = pushes_.find(token);
  return found == pushes_.end() ? nullptr : &found->second;
}

std::optional<KeptPushes::Token> KeptPushes::Earlier(int worker, const Position& at,
                                                     uint64_t life) const {
  const auto found = places_.find({worker, at});
  if (found == places_.end() || pushes_.at(found->second).life >= life) return std::nullopt;
  return found->second;
}

std::optional<Position> KeptPushes::Before(int worker, const Position& at) const {
  const auto next = places_.lower_bound({worker, at});
  if (next == places_.begin()) return std::nullopt;
  const auto& [owner, before] = std::prev(next)->first;
  if (owner != worker || before.clock != at.clock) return std::nullopt;
  return before;
}

void KeptPushes::Erase(Token token) {
  const auto found = pushes_.find(token);
  if (found == pushes_.end()) return;
  places_.erase({found->second.worker, found->second.at});
  pushes_.erase(found);
}

void KeptPushes::Clear() {
  pushes_.clear();
  places_.clear();
}

}  // namespace phalanx::ps::internal
