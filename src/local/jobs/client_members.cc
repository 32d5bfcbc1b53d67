#include "src/local/jobs/client_members.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::object_store {

absl::Status ClientMembers::Join(const local::Join& join, Instant deadline) {
  if (by_request_.size() >= kMaxMembersPerClient) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the client has ", by_request_.size(), " members of jobs already"));
  }
  jobs::JoinArguments arguments{std::string(join.job), std::string(join.role),
                                std::string(join.task)};
  // Larger numbers are refused like any other that is out of range.
  arguments.world = static_cast<int>(std::min<uint32_t>(join.world, kMaxWorld + 1));
  if (join.has_rank) arguments.rank = static_cast<int>(std::min<uint32_t>(join.rank, kMaxWorld));
  PHALANX_ASSIGN_OR_RETURN(const jobs::MemberId id,
                           members_.Join(std::move(arguments), deadline, this));
  by_request_[join.request].id = id;
  requests_[id] = join.request;
  return absl::OkStatus();
}

void ClientMembers::Leave(uint64_t request, bool failed) {
  const auto found = by_request_.find(request);
  if (found == by_request_.end()) return;
  const jobs::MemberId id = found->second.id;
  const jobs::LocalMember* member = members_.Find(id);
  if (failed || groups_ == nullptr || member == nullptr) {
    members_.Leave(id, failed ? MemberState::kDied : MemberState::kLeft);
    return Erase(request);
  }
  Erase(request);
  members_.Detach(id);
  groups_->WhenSettled(member->job, member->role, member->rank,
                       [&members = members_, id] { members.Leave(id, MemberState::kLeft); });
}

void ClientMembers::EndAll() {
  while (!by_request_.empty()) Leave(by_request_.begin()->first, /*failed=*/true);
}

void ClientMembers::Erase(uint64_t request) {
  const auto found = by_request_.find(request);
  messages_.End(found->second.id);
  requests_.erase(found->second.id);
  by_request_.erase(found);
}

void ClientMembers::OnJoined(jobs::MemberId id, const absl::StatusOr<jobs::LocalMember>& member) {
  const uint64_t request = requests_.at(id);
  if (!member.ok()) {
    Erase(request);
    send_([request, why = member.status()](LocalOutbox::Batch& batch) {
      batch.Add(local::Failed{request, why.code(), why.message()});
      return true;
    });
    return;
  }
  // The members first: the client knows them when its call ends.
  QueueUpdate(request);
  send_([request, joined = *member](LocalOutbox::Batch& batch) {
    batch.Add(local::Joined{request, static_cast<uint32_t>(joined.rank), joined.life});
    return true;
  });
  // After Joined is queued, so that messages which wait for the member follow it.
  messages_.Begin(request, id);
}

void ClientMembers::OnChanged(jobs::MemberId id) {
  // Before a message of a member that is new to the client.
  QueueUpdate(requests_.at(id));
  messages_.Changed(id);
}

void ClientMembers::OnEnded(jobs::MemberId id, const absl::Status& why) {
  const uint64_t request = requests_.at(id);
  // First, so that no message for the member follows its end.
  Erase(request);
  send_([request, why](LocalOutbox::Batch& batch) {
    batch.Add(local::MemberEnded{request, why.code(), why.message()});
    return true;
  });
}

void ClientMembers::QueueUpdate(uint64_t request) {
  if (std::exchange(by_request_.at(request).queued, true)) return;
  send_([this, request](LocalOutbox::Batch& batch) {
    EncodeUpdate(request, batch);
    return true;
  });
}

void ClientMembers::EncodeUpdate(uint64_t request, LocalOutbox::Batch& batch) {
  const auto found = by_request_.find(request);
  // The member has ended since the update was queued.
  if (found == by_request_.end()) return;
  found->second.queued = false;
  const jobs::MemberTable* table = members_.TableOf(found->second.id);
  if (table == nullptr) return;
  std::vector<const jobs::Member*> changed = table->ChangedAfter(found->second.last_sent);
  found->second.last_sent = table->last_change();
  // A frame has members of one role. Within a role the oldest change stays first.
  std::stable_sort(changed.begin(), changed.end(),
                   [](const auto* a, const auto* b) { return a->role < b->role; });
  for (size_t at = 0; at < changed.size();) {
    const jobs::GroupView& view = *table->view(changed[at]->role);
    local::MemberUpdate update{request, view.role, static_cast<uint32_t>(view.world), view.epoch};
    for (; at < changed.size() && changed[at]->role == view.role &&
           update.members.size() < local::kMaxMembersPerFrame;
         ++at) {
      const jobs::Member& member = *changed[at];
      update.members.push_back({static_cast<uint32_t>(member.rank), member.life, member.state,
                                member.task, member.host, member.node_name});
    }
    update.more = at < changed.size();
    batch.Add(update);
  }
}

}  // namespace phalanx::object_store
