#include "src/directory/jobs/job_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {
namespace {

// About what an update for one node costs the shard, four times: joins of a job take up to a
// quarter of its time.
constexpr absl::Duration kPausePerNode = absl::Microseconds(20);

}  // namespace

// ---------------------------------------------------------------------------- messages

absl::Status JobManager::OnMessage(const Node& node, const v1::NodeJobMessage& message) {
  switch (message.kind_case()) {
    case v1::NodeJobMessage::kJoinRequest:
      return OnJoin(node, message.join_request());
    case v1::NodeJobMessage::kMemberEnded: {
      PHALANX_ASSIGN_OR_RETURN(const EndedMember ended, ParseMemberEnded(message.member_ended()));
      OnEnded(ended);
      return absl::OkStatus();
    }
    case v1::NodeJobMessage::kRegisterJob: {
      PHALANX_ASSIGN_OR_RETURN(const RegisteredJob registered,
                               ParseRegisterJob(message.register_job()));
      OnRegister(node, registered);
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError("a message about jobs of no kind this shard knows");
  }
}

absl::Status JobManager::OnJoin(const Node& node, const v1::JoinRequest& message) {
  PHALANX_ASSIGN_OR_RETURN(JoinSpec spec, ParseJoin(message));
  if (!parts_.gate.learning() || DefectActive(Defect::kLifeReusedAfterRestart)) {
    AnswerJoin(node, spec);
    return absl::OkStatus();
  }
  if (waiting_.size() >= parts_.context.options.max_waiting_joins) {
    v1::JoinReply& reply = *parts_.outbox.Send(node.key).mutable_job()->mutable_join_reply();
    reply.set_request_id(spec.request_id);
    reply.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    reply.set_message(absl::StrCat("job ", spec.job, ": the shard has just started, and ",
                                   waiting_.size(), " joins wait already"));
    return absl::OkStatus();
  }
  // With its session: in a new session the node repeats the join, and this one is void.
  waiting_.push_back({node.key, node.session, std::move(spec)});
  return absl::OkStatus();
}

void JobManager::AnswerJoin(const Node& node, const JoinSpec& spec) {
  Job* job = nullptr;
  const absl::StatusOr<const JobMember*> member = Join(node, spec, job);
  if (member.ok()) {
    job->Mint(parts_.context.random);
    // Before the reply: the joining node then knows the members, its own among them.
    SendNews(*job, node.key, job->watchers().at(node.key));
  }
  v1::JoinReply& reply = *parts_.outbox.Send(node.key).mutable_job()->mutable_join_reply();
  reply.set_request_id(spec.request_id);
  if (!member.ok()) {
    reply.set_code(static_cast<int>(member.status().code()));
    reply.set_message(std::string(member.status().message()));
    return;
  }
  reply.set_rank(static_cast<uint32_t>((*member)->rank));
  reply.set_life((*member)->life);
}

absl::StatusOr<const JobMember*> JobManager::Join(const Node& node, const JoinSpec& spec,
                                                  Job*& job) {
  const bool known = Find(spec.job) != nullptr;
  job = FindOrAdd(spec.job);
  if (job == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("job ", spec.job, ": the shard has ", jobs_.size(), " jobs already"));
  }
  // A task that joins again has its place already.
  if (Room() == 0 && !job->Knows(spec.role, spec.task)) {
    // A refused join leaves no empty job behind.
    if (!known) Remove(*job);
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", spec.job, ": the jobs of the shard have ", members_, " members already"));
  }
  const size_t before = job->members();
  const int live = job->live();
  absl::StatusOr<const JobMember*> member = job->Join(spec, PlaceOf(node.info), parts_.context.now);
  if (!member.ok()) {
    if (!known) Remove(*job);
    return member;
  }
  ++parts_.context.counters.joins;
  jobs_of_[node.key].insert(job->name());
  // A life that was replaced hears of it at once.
  AfterChange(*job, before, /*urgent=*/job->live() == live);
  return member;
}

void JobManager::OnRegister(const Node& node, const RegisteredJob& registered) {
  Job* job = FindOrAdd(registered.job);
  if (job == nullptr) {
    parts_.context.counters.members_refused += registered.members.size();
    return;
  }
  const size_t before = job->members();
  // Nodes that register after the end of learning were out of touch for a lease: their members were
  // reported dead.
  const auto judge = parts_.gate.learning() ? Job::Judge::kWait : Job::Judge::kDead;
  parts_.context.counters.members_refused +=
      job->Merge(registered, node.key, judge, judge, Room(), parts_.context.now);
  // No member found a place, and the job was not known before.
  if (job->members() == 0) return Remove(*job);
  if (!registered.more) job->EndMerge(registered, node.key);
  if (job->watchers().contains(node.key)) jobs_of_[node.key].insert(job->name());
  AfterChange(*job, before, /*urgent=*/false);
}

void JobManager::OnEnded(const EndedMember& ended) {
  Job* job = Find(ended.job);
  if (job == nullptr) return;
  const size_t before = job->members();
  if (!job->End(ended.role, ended.task, ended.life, ended.how, parts_.context.now)) return;
  ++(ended.how == MemberState::kLeft ? parts_.context.counters.members_left
                                     : parts_.context.counters.members_died);
  AfterChange(*job, before, /*urgent=*/true);
}

// ---------------------------------------------------------------------------- nodes

void JobManager::SessionBegins(const NodeKey& node) {
  // It repeats its requests.
  std::erase_if(waiting_, [&node](const WaitingJoin& join) { return join.node == node; });
  const auto found = jobs_of_.find(node);
  if (found == jobs_of_.end()) return;
  for (const std::string& name : found->second) jobs_.at(name)->SessionBegins(node);
}

void JobManager::SessionRegistered(const NodeKey& node) {
  // The node does not have the members that it has not registered in this session.
  EndMembersOf(node, /*only_unconfirmed=*/true);
  const auto found = jobs_of_.find(node);
  if (found == jobs_of_.end()) return;
  for (const std::string& name : found->second) {
    Job& job = *jobs_.at(name);
    Schedule(job, /*urgent=*/false);
    // Before Registered: what the node's members were given up for must not wait for the others.
    const auto watcher = job.watchers().find(node);
    if (parts_.gate.learning() || watcher == job.watchers().end()) continue;
    job.Mint(parts_.context.random);
    SendNews(job, node, watcher->second);
  }
}

void JobManager::NodeDown(const NodeKey& node) {
  // Before Unwatch, because the watcher lists the members of the node.
  EndMembersOf(node, /*only_unconfirmed=*/false);
  std::erase_if(waiting_, [&node](const WaitingJoin& join) { return join.node == node; });
  const auto found = jobs_of_.find(node);
  if (found == jobs_of_.end()) return;
  for (const std::string& name : found->second) jobs_.at(name)->Unwatch(node);
  jobs_of_.erase(found);
}

void JobManager::EndMembersOf(const NodeKey& node, bool only_unconfirmed) {
  const auto found = jobs_of_.find(node);
  if (found == jobs_of_.end()) return;
  for (const std::string& name : found->second) {
    Job& job = *jobs_.at(name);
    const int ended = job.EndAllOf(node, only_unconfirmed, parts_.context.now);
    if (ended == 0) continue;
    parts_.context.counters.members_died += static_cast<uint64_t>(ended);
    AfterChange(job, job.members(), /*urgent=*/true);
  }
}

void JobManager::EndLearning() {
  for (const auto& [name, job] : jobs_) {
    // A copy of the keys: Unwatch changes the map.
    std::vector<NodeKey> watchers;
    for (const auto& [node, watcher] : job->watchers()) watchers.push_back(node);
    for (const NodeKey& key : watchers) {
      const Node* node = parts_.nodes.Find(key);
      // The end of its registration, or its own, decides about its members, also about those that
      // only other nodes have registered.
      if (node != nullptr && node->registering) {
        jobs_of_[key].insert(name);
        continue;
      }
      const int ended = job->EndAllOf(key, /*only_unconfirmed=*/true, parts_.context.now);
      parts_.context.counters.members_died += static_cast<uint64_t>(ended);
      if (node == nullptr) job->Unwatch(key);
    }
    AfterChange(*job, job->members(), /*urgent=*/true);
  }
  std::vector<WaitingJoin> waiting;
  waiting.swap(waiting_);
  for (const WaitingJoin& join : waiting) {
    const Node* node = parts_.nodes.Find(join.node);
    if (node != nullptr && node->session == join.session) AnswerJoin(*node, join.spec);
  }
}

// ---------------------------------------------------------------------------- flushes

void JobManager::AfterChange(Job& job, size_t members, bool urgent) {
  members_ += job.members() - members;
  Schedule(job, urgent);
  const bool ending = job.live() == 0;
  if (ending && job.ends.infinite()) {
    Reschedule(ends_, job, job.ends, parts_.context.now + parts_.context.options.job_grace);
  } else if (!ending) {
    Reschedule(ends_, job, job.ends, Instant::Infinite());
  }
}

void JobManager::Schedule(Job& job, bool urgent) {
  const absl::Duration pause = kPausePerNode * static_cast<int64_t>(job.watchers().size());
  Instant due =
      urgent ? parts_.context.now : std::max(parts_.context.now, job.last_flush() + pause);
  // What nodes register differs only for a moment: one update when all have done so.
  if (!urgent && parts_.gate.learning()) due = Instant::Infinite();
  if (due < job.due) Reschedule(flushes_, job, job.due, due);
}

void JobManager::Reschedule(Queue& queue, Job& job, Instant& when, Instant to) {
  if (!when.infinite()) queue.erase({when, job.name()});
  when = to;
  if (!when.infinite()) queue.insert({when, job.name()});
}

void JobManager::RunPending() {
  while (!flushes_.empty() && flushes_.begin()->first <= parts_.context.now) {
    Flush(*jobs_.at(flushes_.begin()->second));
  }
}

void JobManager::Flush(Job& job) {
  Reschedule(flushes_, job, job.due, Instant::Infinite());
  job.NoteFlush(parts_.context.now);
  job.Mint(parts_.context.random);
  std::vector<NodeKey> gone;
  for (auto& [key, watcher] : job.watchers()) {
    const Node* node = parts_.nodes.Find(key);
    // A node that registers gets them afterwards.
    if (node == nullptr || node->registering) continue;
    SendNews(job, key, watcher);
    if (watcher.live.empty()) gone.push_back(key);
  }
  for (const NodeKey& key : gone) {
    job.Unwatch(key);
    const auto found = jobs_of_.find(key);
    // Other nodes registered members of this one, which itself did not.
    if (found == jobs_of_.end()) continue;
    found->second.erase(job.name());
    if (found->second.empty()) jobs_of_.erase(found);
  }
}

void JobManager::SendNews(Job& job, const NodeKey& node, Job::Watcher& watcher) {
  std::vector<const JobMember*> members;
  if (watcher.whole) {
    for (const auto& [name, role] : job.roles()) {
      for (const auto& [rank, member] : role->by_rank) members.push_back(member);
    }
  } else {
    for (auto it = job.changes().upper_bound(watcher.last_sent); it != job.changes().end(); ++it) {
      members.push_back(it->second);
    }
    if (members.empty()) return;
  }
  const bool whole = std::exchange(watcher.whole, false);
  // If the session ends before the node has the update, SessionBegins makes it `whole` again.
  watcher.last_sent = job.last_change();
  size_t sent = 0;
  do {
    v1::JobUpdate& update = *parts_.outbox.Send(node).mutable_job()->mutable_job_update();
    ++parts_.context.counters.job_updates;
    update.set_job(job.name());
    update.mutable_epoch()->set_incarnation(job.epoch().incarnation);
    update.mutable_epoch()->set_counter(job.epoch().counter);
    update.set_whole(whole && sent == 0);
    absl::btree_map<const JobRole*, uint32_t> positions;
    for (const auto& [name, role] : job.roles()) {
      positions[role.get()] = static_cast<uint32_t>(update.roles_size());
      v1::JobRole* described = update.add_roles();
      described->set_name(name);
      described->set_world(static_cast<uint32_t>(role->world));
    }
    const size_t end = std::min(members.size(), sent + kMaxMembersPerMessage);
    for (; sent < end; ++sent) {
      ToProto(*members[sent], positions.at(members[sent]->role), update.add_members());
    }
    update.set_more(sent < members.size());
  } while (sent < members.size());
}

// ---------------------------------------------------------------------------- the table

size_t JobManager::Room() const {
  const size_t most = parts_.context.options.max_job_members;
  return most - std::min(most, members_);
}

Job* JobManager::Find(absl::string_view name) const {
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second.get();
}

Job* JobManager::FindOrAdd(const std::string& name) {
  Job* job = Find(name);
  if (job != nullptr) return job;
  if (jobs_.size() >= parts_.context.options.max_jobs) return nullptr;
  return (jobs_[name] = std::make_unique<Job>(name, parts_.context.now)).get();
}

void JobManager::Remove(Job& job) {
  Reschedule(flushes_, job, job.due, Instant::Infinite());
  Reschedule(ends_, job, job.ends, Instant::Infinite());
  for (const auto& [node, watcher] : job.watchers()) {
    const auto found = jobs_of_.find(node);
    if (found != jobs_of_.end()) found->second.erase(job.name());
  }
  members_ -= job.members();
  // A copy, because the job owns its name.
  const std::string name = job.name();
  jobs_.erase(name);
}

void JobManager::Tick() {
  while (!ends_.empty() && ends_.begin()->first <= parts_.context.now) {
    Remove(*jobs_.at(ends_.begin()->second));
  }
}

Instant JobManager::NextDeadline() const {
  Instant next = Instant::Infinite();
  if (!flushes_.empty()) next = flushes_.begin()->first;
  if (!ends_.empty()) next = std::min(next, ends_.begin()->first);
  return next;
}

absl::Status JobManager::CheckInvariants() const {
  size_t members = 0;
  for (const auto& [name, job] : jobs_) {
    PHALANX_RETURN_IF_ERROR(job->CheckInvariants());
    members += job->members();
    if ((job->live() == 0) == job->ends.infinite()) {
      return absl::InternalError(absl::StrCat("job ", name, ": its end is not scheduled rightly"));
    }
    if (!parts_.gate.learning() && job->unminted() && job->due.infinite()) {
      return absl::InternalError(absl::StrCat("job ", name, ": its changes are sent to no node"));
    }
  }
  if (members != members_) return absl::InternalError("the members of the jobs are miscounted");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
