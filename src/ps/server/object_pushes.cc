#include "src/ps/server/object_pushes.h"

#include <iterator>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::ps::internal {

void ObjectPushes::Add(Token token, One push) {
  by_worker_[push.worker].emplace(push.at, token);
  pushes_.emplace(token, std::move(push));
}

// The same life sends the same object again, on its next channel.
std::optional<ObjectPushes::Token> ObjectPushes::Replace(int worker, const Position& at,
                                                         uint64_t life, absl::string_view handle) {
  const auto found = by_worker_[worker].find(at);
  if (found == by_worker_[worker].end()) return std::nullopt;
  One& push = pushes_.at(found->second);
  if (push.handle == handle || DefectActive(Defect::kPsHandleNotReplaced)) return std::nullopt;
  push.life = life;
  push.handle = std::string(handle);
  return found->second;
}

const ObjectPushes::One* ObjectPushes::Find(Token token) const {
  const auto found = pushes_.find(token);
  return found == pushes_.end() ? nullptr : &found->second;
}

void ObjectPushes::Erase(Token token) {
  const auto found = pushes_.find(token);
  if (found == pushes_.end()) return;
  by_worker_[found->second.worker].erase(found->second.at);
  pushes_.erase(found);
}

void ObjectPushes::Clear() {
  pushes_.clear();
  for (auto& of : by_worker_) of.clear();
}

std::optional<Position> ObjectPushes::SafeOf(int worker) const {
  const auto& of = by_worker_[worker];
  if (of.empty()) return std::nullopt;
  return pushes_.at(of.begin()->second).before;
}

uint64_t ObjectPushes::CountOf(int worker, uint64_t clock) const {
  const auto& of = by_worker_[worker];
  return std::distance(of.lower_bound(Position{.clock = clock}),
                       of.lower_bound(Position{.clock = clock + 1}));
}

std::vector<ObjectPushes::Token> ObjectPushes::Of(int worker) const {
  std::vector<Token> tokens;
  for (const auto& [at, token] : by_worker_[worker]) tokens.push_back(token);
  return tokens;
}

std::vector<ObjectPushes::Token> ObjectPushes::Older(int worker, uint64_t life,
                                                     const Position& at) const {
  std::vector<Token> tokens;
  for (const auto& [position, token] : by_worker_[worker]) {
    if (position >= at) break;
    if (pushes_.at(token).life < life) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace phalanx::ps::internal
