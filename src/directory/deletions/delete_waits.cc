#include "src/directory/deletions/delete_waits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/defects.h"
#include "src/common/ids/random_id.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

// Nodes that one reason names.
constexpr size_t kMaxNamed = 8;
// The shares of a lease after which a requester learns the reason, first and again.
constexpr int kFirstReport = 16;
constexpr int kNextReport = 2;

}  // namespace

void DeleteWaits::Begin(const ObjectId& id, const NodeKey& node, uint64_t request_id) {
  const Requester requester{node, nodes_.Find(node)->session, request_id};
  const auto [at, added] = waits_.try_emplace(id);
  Wait& wait = at->second;
  wait.requesters.push_back(requester);
  if (added) {
    wait.report_at = context_.now + context_.options.lease / kFirstReport;
    SetDue(id, wait, wait.report_at);
  }
  tombstones_.Find(id)->watched = true;
  Examine(id);
}

void DeleteWaits::SetDue(const ObjectId& id, Wait& wait, Instant due) {
  due_.erase({wait.due, id});
  wait.due = due;
  due_.insert({due, id});
}

void DeleteWaits::NodeDown(const Node& node, Instant serves_until) {
  if (serves_until <= context_.now) return;
  Departed& departed = departed_[node.key];
  departed.name = node.info.name();
  departed.serves_until = std::max(departed.serves_until, serves_until);
  const auto add = [&departed](const absl::flat_hash_set<ObjectId>& ids) {
    for (const ObjectId& id : ids) {
      if (!IsRandomId(id)) departed.objects.insert(id);
    }
  };
  add(node.objects);
  add(tombstones_.UnconfirmedBy(node.key));
}

void DeleteWaits::SessionRegistered(const NodeKey& node) {
  const auto found = departed_.find(node);
  if (found == departed_.end()) return;
  const Departed registered = std::move(found->second);
  departed_.erase(found);
  for (auto& [id, wait] : waits_) {
    if (registered.objects.contains(id)) SetDue(id, wait, context_.now);
  }
}

void DeleteWaits::EndLearning() {
  for (auto& [id, wait] : waits_) SetDue(id, wait, context_.now);
}

void DeleteWaits::RunPending() {
  for (const ObjectId& id : tombstones_.TakeConfirmed()) Examine(id);
  while (!due_.empty() && due_.begin()->first <= context_.now) {
    // A copy: Examine moves or erases the entry.
    Examine(ObjectId(due_.begin()->second));
  }
  absl::erase_if(departed_, [this](const auto& departed) {
    return departed.second.serves_until <= context_.now;
  });
}

Instant DeleteWaits::ServedUntil(const ObjectId& id) const {
  Instant until;
  if (IsRandomId(id) || DefectActive(Defect::kLeaseEndNotAwaited)) return until;
  for (const auto& [key, departed] : departed_) {
    if (departed.objects.contains(id)) until = std::max(until, departed.serves_until);
  }
  // A node that has not registered yet can have a lease of an earlier life of the shard. Such a
  // lease ends before the shard has learned.
  return gate_.learning() ? Instant::Infinite() : until;
}

bool DeleteWaits::AwaitsConfirmation(const Tombstone& tombstone, const Requester& requester) const {
  const TombstoneTable::Unconfirmed& unconfirmed = tombstones_.UnconfirmedOf(tombstone);
  return std::any_of(unconfirmed.begin(), unconfirmed.end(), [&requester](const auto& entry) {
    const auto& [holder, asked] = entry;
    return holder.first != requester.node || asked.session != requester.session;
  });
}

void DeleteWaits::Examine(const ObjectId& id) {
  const auto found = waits_.find(id);
  if (found == waits_.end()) return;
  Wait& wait = found->second;
  Tombstone* tombstone = tombstones_.Find(id);
  const Instant served_until = ServedUntil(id);
  const bool served = served_until > context_.now;
  std::erase_if(wait.requesters, [&](const Requester& requester) {
    const Node* node = nodes_.Find(requester.node);
    // A node repeats its requests in a new session.
    if (node == nullptr || node->session != requester.session) return true;
    const bool waits =
        served || (tombstone != nullptr && AwaitsConfirmation(*tombstone, requester));
    if (waits && !DefectActive(Defect::kDeleteAcknowledgedEarly)) return false;
    Reply(id, requester);
    return true;
  });
  if (wait.requesters.empty()) {
    if (tombstone != nullptr) tombstone->watched = false;
    due_.erase({wait.due, id});
    waits_.erase(found);
    return;
  }
  if (context_.now >= wait.report_at) {
    ReportReason(id, wait);
    wait.report_at = context_.now + context_.options.lease / kNextReport;
  }
  SetDue(id, wait, served ? std::min(wait.report_at, served_until) : wait.report_at);
}

void DeleteWaits::Reply(const ObjectId& id, const Requester& requester) {
  v1::DeleteReply& reply = *outbox_.Send(requester.node).mutable_delete_reply();
  reply.set_request_id(requester.request_id);
  const Tombstone* tombstone = tombstones_.Find(id);
  // Erased, if many others were deleted meanwhile.
  if (tombstone == nullptr) return;
  // The generations go to the requester, which registers them at a shard that restarts.
  for (const Generation& generation : tombstones_.Generations(*tombstone)) {
    ToProto(generation, reply.add_generations());
  }
}

void DeleteWaits::ReportReason(const ObjectId& id, const Wait& wait) {
  const std::string reason = WaitsFor(id);
  for (const Requester& requester : wait.requesters) {
    if (nodes_.Find(requester.node) == nullptr) continue;
    v1::DeleteWaiting& waiting = *outbox_.Send(requester.node).mutable_delete_waiting();
    waiting.set_request_id(requester.request_id);
    waiting.set_reason(reason);
  }
}

std::string DeleteWaits::WaitsFor(const ObjectId& id) const {
  if (!waits_.contains(id)) return "";
  std::vector<std::string> reasons;
  if (gate_.learning()) reasons.push_back("the end of the shard's first lease");
  for (const auto& [key, departed] : departed_) {
    if (departed.serves_until <= context_.now || !departed.objects.contains(id)) continue;
    const absl::Duration left =
        absl::Ceil(departed.serves_until - context_.now, absl::Milliseconds(1));
    reasons.push_back(absl::StrCat("the lease of node ", departed.name,
                                   ", which is out of touch, to end in ",
                                   absl::FormatDuration(left)));
  }
  absl::btree_set<std::string> unconfirmed;
  if (Tombstone* tombstone = tombstones_.Find(id)) {
    for (const auto& [holder, session] : tombstones_.UnconfirmedOf(*tombstone)) {
      unconfirmed.insert(nodes_.NameOf(holder.first));
    }
  }
  for (const std::string& name : unconfirmed) {
    reasons.push_back(absl::StrCat("the confirmation of node ", name));
  }
  const size_t more = reasons.size() > kMaxNamed ? reasons.size() - kMaxNamed : 0;
  reasons.resize(reasons.size() - more);
  return absl::StrCat(absl::StrJoin(reasons, ", "),
                      more == 0 ? "" : absl::StrCat(", and ", more, " more"));
}

absl::Status DeleteWaits::CheckInvariants() const {
  if (due_.size() != waits_.size()) return absl::InternalError("waiting Deletes are miscounted");
  for (const auto& [id, wait] : waits_) {
    if (!due_.contains({wait.due, id})) {
      return absl::InternalError("a waiting Delete is never examined");
    }
    if (wait.requesters.empty()) return absl::InternalError("a Delete waits for no requester");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
