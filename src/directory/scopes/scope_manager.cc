#include "src/directory/scopes/scope_manager.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {

absl::Status ScopeManager::OnEndScope(Node& node, const v1::EndScopeRequest& m) {
  PHALANX_ASSIGN_OR_RETURN(const Scope scope, ParseScope(m.scope()));
  // First, so that a Put which arrives from now on is refused.
  parts_.scopes.End(scope);
  // Also a node that registers: a Get there can wait for an object of the scope.
  absl::btree_set<NodeKey> missing;
  for (const auto& [key, other] : parts_.nodes.all()) {
    missing.insert(key);
    parts_.outbox.SendScopeEnded(key, scope);
  }
  // A node that has not registered yet can have copies, too.
  if (parts_.gate.learning()) missing.insert(ScopeTable::kUnregistered);
  // The scope has ended even if this request cannot wait. The client can ask again.
  const absl::Status waits =
      parts_.scopes.Await(scope, {node.key, m.request_id()}, std::move(missing));
  if (waits.ok()) return absl::OkStatus();
  v1::EndScopeReply& reply = *parts_.outbox.Send(node.key).mutable_end_scope_reply();
  reply.set_request_id(m.request_id());
  reply.set_code(static_cast<int>(waits.code()));
  reply.set_message(absl::StrCat(scope.ToString(), ": ", waits.message()));
  return absl::OkStatus();
}

absl::Status ScopeManager::OnConfirm(Node& node, const v1::ScopeConfirm& m) {
  PHALANX_ASSIGN_OR_RETURN(const Scope scope, ParseScope(m.scope()));
  parts_.scopes.Confirm(node.key, scope);
  return absl::OkStatus();
}

absl::Status ScopeManager::OnRegister(const v1::RegisterScope& m) {
  PHALANX_ASSIGN_OR_RETURN(const Scope scope, ParseScope(m.scope()));
  // All nodes register their records, so most of them are known already.
  if (parts_.scopes.HasEnded(scope)) return absl::OkStatus();
  // One that this life of the shard has forgotten does not begin anew: it would go round between
  // the shard and the nodes for ever.
  const CoreContext& context = parts_.context;
  const Instant too_old = context.start + context.options.tombstone_age;
  if (context.options.first_life || context.now >= too_old) return absl::OkStatus();
  // An earlier life of the shard has ended it, and this one learns that now.
  parts_.gate.NoteEarlierLife();
  parts_.scopes.End(scope);
  for (const auto& [key, other] : parts_.nodes.all()) parts_.outbox.SendScopeEnded(key, scope);
  return absl::OkStatus();
}

absl::Status ScopeManager::OnNamed(Node& node, const v1::Scope& named) {
  PHALANX_ASSIGN_OR_RETURN(const Scope scope, ParseScope(named));
  if (parts_.scopes.HasEnded(scope)) Notify(node, scope);
  return absl::OkStatus();
}

bool ScopeManager::Refuses(Node& node, const v1::ObjectInfo& info) {
  const Scope scope = ScopeOf(info);
  if (!parts_.scopes.HasEnded(scope) || DefectActive(Defect::kLatePutIntoEndedScope)) return false;
  Notify(node, scope);
  return true;
}

void ScopeManager::Notify(const Node& node, const Scope& scope) {
  if (node.registering && !notified_[node.key].insert(scope.name).second) return;
  parts_.outbox.SendScopeEnded(node.key, {scope.name, parts_.scopes.LastEnded(scope.name)});
}

void ScopeManager::SessionRegistered(const Node& node) {
  notified_.erase(node.key);
  // The message of the earlier session can be lost, and requests wait for the node's answer.
  for (const Scope& scope : parts_.scopes.AwaitedFrom(node.key)) {
    parts_.outbox.SendScopeEnded(node.key, scope);
  }
}

void ScopeManager::FreeIfEnded(const ObjectId& id) {
  Object* object = parts_.objects.Find(id);
  const bool ended =
      object != nullptr && object->adopted() && parts_.scopes.HasEnded(object->info.scope);
  if (ended) Free(id);
}

void ScopeManager::RunPending() {
  // A scope with many objects takes several turns, and other requests go on between them.
  for (const ObjectId& id : parts_.scopes.FirstEnded(kMaxFreedPerTurn)) {
    Free(id);
  }
  for (const ScopeTable::Requester& requester : parts_.scopes.TakeAnswers()) {
    if (parts_.nodes.Find(requester.node) == nullptr) continue;
    v1::EndScopeReply& reply = *parts_.outbox.Send(requester.node).mutable_end_scope_reply();
    reply.set_request_id(requester.request_id);
  }
}

void ScopeManager::SendRefused(const NodeKey& to, const ObjectId& id, uint64_t want,
                               const absl::Status& why) {
  v1::Gone& gone = *parts_.outbox.Send(to).mutable_gone();
  gone.set_object_id(id.binary().data(), ObjectId::kSize);
  gone.set_kind(v1::Gone::REFUSED);
  gone.set_want(want);
  gone.set_code(static_cast<int>(why.code()));
  gone.set_reason(std::string(why.message()));
  gone.set_expired(true);
}

// As a Delete of the object, but the scope's record refuses what comes late, and the nodes drop
// their copies by the ScopeEnded that they were sent.
void ScopeManager::Free(const ObjectId& id) {
  // First: a running reduction would adopt its result again, and may free the object itself.
  parts_.reductions.CancelDeleted(id);
  Object* const found = parts_.objects.Find(id);
  if (found == nullptr || !found->adopted()) return;
  Object& object = *found;
  const absl::Status why =
      absl::NotFoundError(absl::StrCat(object.info.scope.ToString(), " has ended"));
  ++parts_.context.counters.freed_by_scope;
  parts_.placement_table.End(id, why);
  parts_.reductions.OnResultDeleted(id);
  parts_.losses.Erase(id);
  parts_.objects.standbys().DropEnded(object);
  while (!object.wants.empty()) {
    const auto want = object.wants.begin();
    const NodeKey key = want->first;
    SendRefused(key, id, want->second.number, why);
    parts_.pulls.EndWant(object, key);
    parts_.drains.OnNodeLeft(object, key);
  }
  // A copy of the keys: RemoveCopy changes the map.
  std::vector<NodeKey> holders;
  for (const auto& [key, copy] : object.copies) holders.push_back(key);
  for (const NodeKey& key : holders) {
    parts_.objects.RemoveCopy(object, key);
    parts_.drains.OnNodeLeft(object, key);
  }
  if (object.standbys.empty()) return parts_.objects.ForgetDeleted(object);
  parts_.objects.ForgetGeneration(object);
  parts_.objects.standbys().AdoptSpared(object);
  parts_.objects.Reevaluate(object);
}

}  // namespace phalanx::directory
