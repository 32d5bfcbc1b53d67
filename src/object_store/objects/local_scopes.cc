#include "src/object_store/objects/local_scopes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::object_store {

void LocalScopes::End(const Scope& scope, Instant now) {
  Expire(now);
  const auto [at, added] = ended_.try_emplace(scope.name);
  Ending& ending = at->second;
  // A scope that ends again is the youngest, and is kept the longest.
  if (!added) by_age_.erase({ending.at, scope.name});
  ending.number = std::max(ending.number, scope.number);
  ending.at = now;
  by_age_.insert({now, scope.name});
  while (ended_.size() > max_ended_) Forget(by_age_.begin()->second);
}

bool LocalScopes::HasEnded(const Scope& scope, Instant now) const {
  if (scope.empty()) return false;
  const auto at = ended_.find(scope.name);
  // Old records go with the next event, so the store needs no timer for them.
  return at != ended_.end() && scope.number <= at->second.number &&
         now < at->second.at + kEndedScopeAge;
}

std::vector<Scope> LocalScopes::Ended(Instant now) {
  Expire(now);
  std::vector<Scope> scopes;
  for (const auto& [name, ending] : ended_) scopes.push_back({name, ending.number});
  return scopes;
}

void LocalScopes::Expire(Instant now) {
  while (!by_age_.empty() && by_age_.begin()->first + kEndedScopeAge <= now) {
    Forget(by_age_.begin()->second);
  }
}

void LocalScopes::Forget(const std::string& name) {
  // A copy: the set below owns the text.
  const std::string forgotten = name;
  const auto at = ended_.find(forgotten);
  by_age_.erase({at->second.at, forgotten});
  ended_.erase(at);
}

absl::Status LocalScopes::Check(const Scope& scope, Instant now) const {
  const bool ended = HasEnded(scope, now) && !DefectActive(Defect::kLatePutIntoEndedScope);
  if (!ended) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(scope.ToString(), " has ended"));
}

void LocalScopes::Add(const Scope& scope, const ObjectId& id, const Generation& generation) {
  if (scope.empty()) return;
  copies_ += scopes_[scope.name][scope.number].insert({id, generation}).second ? 1 : 0;
}

void LocalScopes::Remove(const Scope& scope, const ObjectId& id, const Generation& generation) {
  if (scope.empty()) return;
  const auto name = scopes_.find(scope.name);
  if (name == scopes_.end()) return;
  const auto number = name->second.find(scope.number);
  if (number == name->second.end() || number->second.erase({id, generation}) == 0) return;
  --copies_;
  if (number->second.empty()) name->second.erase(number);
  if (name->second.empty()) scopes_.erase(name);
}

std::vector<LocalScopes::Entry> LocalScopes::CopiesIn(const Scope& scope) const {
  std::vector<Entry> entries;
  const auto name = scopes_.find(scope.name);
  if (name == scopes_.end()) return entries;
  for (const auto& [number, copies] : name->second) {
    if (number > scope.number) break;
    entries.insert(entries.end(), copies.begin(), copies.end());
  }
  return entries;
}

absl::Status EndedScopeStatus(const ObjectId& id, const Scope& scope) {
  return absl::NotFoundError(
      absl::StrCat("object ", id.hex(), ": ", scope.ToString(), " has ended"));
}

}  // namespace phalanx::object_store
