#include "src/directory/scopes/scope_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::directory {

bool ScopeTable::End(const Scope& scope) {
  const auto at = records_.try_emplace(scope.name).first;
  Record& record = at->second;
  const bool news = !record.ended.has_value() || *record.ended < scope.number;
  if (record.ended.has_value()) {
    // The age of the record begins again.
    by_age_.erase({record.ended_at, scope.name});
  } else {
    ++ended_;
  }
  // A smaller number that comes later takes nothing back.
  record.ended = std::max(record.ended.value_or(0), scope.number);
  record.ended_at = context_.now;
  by_age_.insert({context_.now, scope.name});
  const uint64_t last = *record.ended + (DefectActive(Defect::kScopeEndsNextNumber) ? 1 : 0);
  for (const auto& [number, ids] : record.objects) {
    if (number > last) break;
    to_free_.insert(ids.begin(), ids.end());
  }
  while (ended_ > context_.options.max_ended_scopes) Forget(records_.find(by_age_.begin()->second));
  return news;
}

bool ScopeTable::HasEnded(const Scope& scope) const {
  if (scope.empty() || ended_ == 0) return false;
  const auto at = records_.find(scope.name);
  return at != records_.end() && at->second.ended.has_value() && scope.number <= *at->second.ended;
}

void ScopeTable::Forget(Records::iterator at) {
  Record& record = at->second;
  PHALANX_CHECK(record.ended.has_value(), "only an ended scope is forgotten");
  by_age_.erase({record.ended_at, at->first});
  record.ended.reset();
  --ended_;
  if (record.unused()) records_.erase(at);
}

void ScopeTable::Expire() {
  while (!by_age_.empty() &&
         by_age_.begin()->first + context_.options.tombstone_age <= context_.now) {
    Forget(records_.find(by_age_.begin()->second));
  }
}

Instant ScopeTable::NextDeadline() const {
  if (by_age_.empty()) return Instant::Infinite();
  return by_age_.begin()->first + context_.options.tombstone_age;
}

void ScopeTable::Add(const Scope& scope, const ObjectId& id) {
  if (scope.empty()) return;
  objects_ += records_[scope.name].objects[scope.number].insert(id).second ? 1 : 0;
  // A node can register a copy from before the end of the scope.
  if (HasEnded(scope)) to_free_.insert(id);
}

void ScopeTable::Remove(const Scope& scope, const ObjectId& id) {
  if (scope.empty()) return;
  const auto at = records_.find(scope.name);
  if (at == records_.end()) return;
  const auto number = at->second.objects.find(scope.number);
  if (number == at->second.objects.end() || number->second.erase(id) == 0) return;
  --objects_;
  to_free_.erase(id);
  if (number->second.empty()) at->second.objects.erase(number);
  if (at->second.unused()) records_.erase(at);
}

std::vector<ObjectId> ScopeTable::FirstEnded(size_t most) const {
  const auto end = std::next(to_free_.begin(), std::min(most, to_free_.size()));
  return std::vector<ObjectId>(to_free_.begin(), end);
}

// ---- requests

absl::Status ScopeTable::Await(const Scope& scope, const Requester& requester,
                               absl::btree_set<NodeKey> missing) {
  if (requests_ >= context_.options.max_broadcasts) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the shard has ", requests_, " ends of scopes under way already"));
  }
  if (DefectActive(Defect::kScopeAnsweredEarly)) missing.clear();
  const auto at = records_.try_emplace(scope.name).first;
  at->second.waiting.push_back(Waiting{requester, scope.number, std::move(missing)});
  awaited_.insert(scope.name);
  ++requests_;
  // If there is no node to wait for, the answer is due at once.
  AnswerCompleted(at);
  return absl::OkStatus();
}

void ScopeTable::AnswerCompleted(Records::iterator at) {
  Record& record = at->second;
  requests_ -= std::erase_if(record.waiting, [this](const Waiting& waiting) {
    if (!waiting.missing.empty()) return false;
    answers_.push_back(waiting.requester);
    return true;
  });
  if (record.waiting.empty()) awaited_.erase(at->first);
  if (record.unused()) records_.erase(at);
}

void ScopeTable::Confirm(const NodeKey& node, const Scope& scope) {
  const auto at = records_.find(scope.name);
  if (at == records_.end()) return;
  for (Waiting& waiting : at->second.waiting) {
    // A node that has dropped a number has dropped all smaller ones as well.
    if (waiting.number <= scope.number) waiting.missing.erase(node);
  }
  AnswerCompleted(at);
}

void ScopeTable::NodeAdded(const NodeKey& node) {
  for (const std::string& name : awaited_) {
    for (Waiting& waiting : records_.at(name).waiting) {
      if (waiting.missing.contains(kUnregistered)) waiting.missing.insert(node);
    }
  }
}

void ScopeTable::SessionBegins(const NodeKey& node) { EndParts(node, /*down=*/false); }

void ScopeTable::NodeDown(const NodeKey& node) { EndParts(node, /*down=*/true); }

void ScopeTable::EndParts(const NodeKey& node, bool down) {
  // A copy: AnswerCompleted changes the set.
  const absl::btree_set<std::string> names = awaited_;
  for (const std::string& name : names) {
    const auto at = records_.find(name);
    std::vector<Waiting>& waiting = at->second.waiting;
    requests_ -= std::erase_if(
        waiting, [&node](const Waiting& request) { return request.requester.node == node; });
    // A node with a new session still has its copies, so requests go on waiting for it.
    if (down) {
      for (Waiting& request : waiting) request.missing.erase(node);
    }
    AnswerCompleted(at);
  }
}

std::vector<Scope> ScopeTable::AwaitedFrom(const NodeKey& node) const {
  std::vector<Scope> scopes;
  for (const std::string& name : awaited_) {
    // The end of the greatest number covers all smaller ones.
    std::optional<uint64_t> greatest;
    for (const Waiting& waiting : records_.at(name).waiting) {
      if (waiting.missing.contains(node)) greatest = std::max(greatest.value_or(0), waiting.number);
    }
    if (greatest.has_value()) scopes.push_back({name, *greatest});
  }
  return scopes;
}

absl::Status ScopeTable::CheckInvariants() const {
  size_t ended = 0;
  size_t requests = 0;
  size_t objects = 0;
  size_t to_free = 0;
  for (const auto& [name, record] : records_) {
    const auto broken = [&name = name](absl::string_view what) {
      return absl::InternalError(absl::StrCat("scope \"", name, "\": ", what));
    };
    if (record.unused()) return broken("nothing keeps its record");
    if (record.ended.has_value()) ++ended;
    if (record.ended.has_value() && !by_age_.contains({record.ended_at, name})) {
      return broken("its age is forgotten");
    }
    requests += record.waiting.size();
    for (const auto& [number, ids] : record.objects) {
      if (ids.empty()) return broken("a number without objects");
      objects += ids.size();
      for (const ObjectId& id : ids) {
        if (to_free_.contains(id)) ++to_free;
        if (HasEnded({name, number}) && !to_free_.contains(id)) {
          return broken("it has ended, and one of its objects is not freed");
        }
      }
    }
    if (record.waiting.empty() == awaited_.contains(name)) return broken("a request is not listed");
    for (const Waiting& waiting : record.waiting) {
      if (waiting.missing.empty()) return broken("an answer is not given");
    }
  }
  if (ended != ended_ || requests != requests_ || objects != objects_ || by_age_.size() != ended ||
      to_free != to_free_.size()) {
    return absl::InternalError("the scopes are miscounted");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
