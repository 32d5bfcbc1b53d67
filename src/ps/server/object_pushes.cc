#include "src/ps/server/object_pushes.h"

#include <iterator>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::ps::internal {

void ObjectPushes::Add(Token token, One push) {
  by_worker_[push.worker].at.emplace(push.at, token);
  Count(push, push.life);
  pushes_.emplace(token, std::move(push));
}

void ObjectPushes::Count(One& push, uint64_t life) {
  OfWorker& of = by_worker_[push.worker];
  push.life = life;
  if (life > of.life) {
    of.life = life;
    of.of_life = 0;
  }
  if (life == of.life) ++of.of_life;
}

// The same life sends the same object again, on its next channel.
std::optional<ObjectPushes::Token> ObjectPushes::Replace(int worker, const Position& at,
                                                         uint64_t life, absl::string_view handle) {
  OfWorker& of = by_worker_[worker];
  const auto found = of.at.find(at);
  if (found == of.at.end()) return std::nullopt;
  One& push = pushes_.at(found->second);
  if (push.handle == handle || DefectActive(Defect::kPsHandleNotReplaced)) return std::nullopt;
  if (push.life == of.life) --of.of_life;
  Count(push, life);
  push.handle = std::string(handle);
  return found->second;
}

std::optional<ObjectPushes::Token> ObjectPushes::Earlier(int worker, const Position& at,
                                                         uint64_t life) const {
  const auto found = by_worker_[worker].at.find(at);
  if (found == by_worker_[worker].at.end() || pushes_.at(found->second).life >= life) {
    return std::nullopt;
  }
  return found->second;
}

std::optional<Position> ObjectPushes::Before(int worker, const Position& at) const {
  const auto& of = by_worker_[worker].at;
  const auto next = of.lower_bound(at);
  if (next == of.begin() || std::prev(next)->first.clock != at.clock) return std::nullopt;
  return std::prev(next)->first;
}

const ObjectPushes::One* ObjectPushes::Find(Token token) const {
  const auto found = pushes_.find(token);
  return found == pushes_.end() ? nullptr : &found->second;
}

void ObjectPushes::Erase(Token token) {
  const auto found = pushes_.find(token);
  if (found == pushes_.end()) return;
  OfWorker& of = by_worker_[found->second.worker];
  if (found->second.life == of.life) --of.of_life;
  of.at.erase(found->second.at);
  pushes_.erase(found);
}

void ObjectPushes::Clear() {
  pushes_.clear();
  by_worker_.assign(by_worker_.size(), OfWorker());
}

std::optional<Position> ObjectPushes::SafeOf(int worker) const {
  const auto& of = by_worker_[worker].at;
  if (of.empty()) return std::nullopt;
  return pushes_.at(of.begin()->second).before;
}

uint64_t ObjectPushes::CountFor(int worker, uint64_t life, const Position& at) const {
  const auto& of = by_worker_[worker].at;
  uint64_t count = 0;
  for (auto one = of.lower_bound(Position{.clock = at.clock});
       one != of.end() && one->first.clock == at.clock; ++one) {
    if (one->first >= at || pushes_.at(one->second).life >= life) ++count;
  }
  return count;
}

std::vector<ObjectPushes::Token> ObjectPushes::Of(int worker) const {
  std::vector<Token> tokens;
  for (const auto& [at, token] : by_worker_[worker].at) tokens.push_back(token);
  return tokens;
}

// Asked for with each entry of the worker: mostly there are none.
std::vector<ObjectPushes::Token> ObjectPushes::Older(int worker, uint64_t life,
                                                     const Position& at) const {
  const OfWorker& of = by_worker_[worker];
  std::vector<Token> tokens;
  if (of.life <= life && of.of_life == (of.life == life ? of.at.size() : 0)) return tokens;
  for (const auto& [position, token] : of.at) {
    if (position >= at) break;
    if (pushes_.at(token).life < life) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace phalanx::ps::internal
