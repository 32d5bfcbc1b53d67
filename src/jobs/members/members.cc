#include "src/jobs/members/members.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {

Members::Members(NodeKey self, std::string name, Executor& control,
                 object_store::ShardChannel& channel)
    : self_(self), name_(std::move(name)), control_(control), channel_(channel) {
  channel_.AddRegistrant(this);
  channel_.Handle(v1::ShardMessage::kJob,
                  [this](int, const v1::ShardMessage& message) { OnMessage(message.job()); });
}

Members::~Members() {
  channel_.RemoveRegistrant(this);
  guard_.Close();
  for (const auto& [id, join] : joining_) control_.Cancel(join.timer);
  for (const auto& [name, job] : jobs_) control_.Cancel(job->forget);
}

// ---------------------------------------------------------------------------- clients

absl::StatusOr<MemberId> Members::Join(JoinArguments arguments, Instant deadline,
                                       MemberListener* listener) {
  PHALANX_RETURN_IF_ERROR(CheckJobName("job", arguments.job));
  PHALANX_RETURN_IF_ERROR(CheckJobName("role", arguments.role));
  PHALANX_RETURN_IF_ERROR(CheckJobName("task", arguments.task));
  const std::string whose = absl::StrCat(arguments.task, " of job ", arguments.job, ": ");
  if (arguments.world < 1 || arguments.world > kMaxWorld) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, "a world has 1 to ", kMaxWorld, " tasks, not ", arguments.world));
  }
  if (arguments.rank.has_value() && (*arguments.rank < 0 || *arguments.rank >= arguments.world)) {
    return absl::InvalidArgumentError(
        absl::StrCat(whose, "rank ", *arguments.rank, " is not in a world of ", arguments.world));
  }
  if (live_.size() + joining_.size() >= kMaxMembersPerNode) {
    return absl::ResourceExhaustedError(absl::StrCat(whose, "node ", name_, " already has ",
                                                     live_.size(), " members of jobs and ",
                                                     joining_.size(), " that join"));
  }
  const MemberId id = ++last_id_;
  SendJoin(id, arguments);
  Joining& join = joining_[id];
  join.arguments = std::move(arguments);
  join.listener = listener;
  if (!deadline.infinite()) {
    join.timer = control_.RunAt(deadline, guard_.Wrap([this, id] { OnDeadline(id); }));
  }
  return id;
}

void Members::Detach(MemberId id) {
  const auto found = live_.find(id);
  if (found != live_.end()) found->second.listener = nullptr;
}

void Members::Leave(MemberId id, MemberState how) {
  if (const auto join = joining_.find(id); join != joining_.end()) {
    // The shard can have decided already: the member ends when the reply comes.
    join->second.listener = nullptr;
    control_.Cancel(std::exchange(join->second.timer, 0));
    return;
  }
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const LocalMember member = std::move(found->second.member);
  live_.erase(found);
  // If this message is lost with the session, BeginSession of the next one sends it again.
  SendEnded(member, how);
  KnownJob& job = *jobs_.find(member.job)->second;
  // Kept until the table agrees: BeginSession must not report a member that left as dead.
  if (how == MemberState::kLeft) job.left[{member.role, member.task}] = member.life;
  Remove(job, member);
}

void Members::OnDeadline(MemberId id) {
  Joining& join = joining_.at(id);
  join.timer = 0;
  // The entry stays: the shard's reply can still come, and OnReply then ends that life.
  MemberListener* listener = std::exchange(join.listener, nullptr);
  const JoinArguments& arguments = join.arguments;
  listener->OnJoined(
      id, absl::DeadlineExceededError(absl::StrCat(
              arguments.task, " of job ", arguments.job, ": shard ", ShardOf(arguments.job),
              " of the directory has not answered node ", name_, " in time")));
}

const LocalMember* Members::Find(MemberId id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : &found->second.member;
}

const MemberTable* Members::TableOf(MemberId id) const {
  const LocalMember* member = Find(id);
  return member == nullptr ? nullptr : &jobs_.find(member->job)->second->table;
}

bool Members::IsUsed(const NodeKey& node) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& entry) { return entry.second->table.IsUsed(node); });
}

bool Members::IsDetached(absl::string_view job, const Member& member) const {
  const auto known = jobs_.find(job);
  if (known == jobs_.end() || member.node != self_) return false;
  const auto id = known->second->live.find({member.role, member.task});
  if (id == known->second->live.end()) return false;
  const Live& live = live_.at(id->second);
  return live.member.life == member.life && live.listener == nullptr;
}

const GroupView* Members::ViewOf(absl::string_view job, absl::string_view role) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second->table.view(role);
}

// ---------------------------------------------------------------------------- the shard

int Members::ShardOf(const std::string& job) const {
  return ShardOfJob(job, channel_.num_shards());
}

void Members::SendJoin(MemberId id, const JoinArguments& arguments) {
  v1::NodeMessage message;
  v1::JoinRequest& join = *message.mutable_job()->mutable_join_request();
  join.set_request_id(id);
  join.set_job(arguments.job);
  join.set_role(arguments.role);
  join.set_task(arguments.task);
  join.set_world(static_cast<uint32_t>(arguments.world));
  join.set_has_rank(arguments.rank.has_value());
  join.set_rank(static_cast<uint32_t>(arguments.rank.value_or(0)));
  channel_.SendTo(ShardOf(arguments.job), std::move(message));
}

void Members::SendEnded(const LocalMember& member, MemberState how) {
  channel_.SendTo(ShardOf(member.job), EndedMessage(member, how));
}

v1::NodeMessage Members::EndedMessage(const LocalMember& member, MemberState how) {
  v1::NodeMessage message;
  v1::MemberEnded& ended = *message.mutable_job()->mutable_member_ended();
  ended.set_job(member.job);
  ended.set_role(member.role);
  ended.set_task(member.task);
  ended.set_life(member.life);
  ended.set_left(how == MemberState::kLeft);
  return message;
}

std::vector<v1::NodeMessage> Members::BeginSession(int shard) {
  std::vector<v1::NodeMessage> messages;
  for (const auto& [name, job] : jobs_) {
    if (ShardOf(name) != shard) continue;
    job->table.DropPieces();
    if (DefectActive(Defect::kMemberForgottenAtRestart)) continue;
    for (v1::RegisterJob& piece : job->table.Registration()) {
      *messages.emplace_back().mutable_job()->mutable_register_job() = std::move(piece);
    }
    // Apart from the table: other nodes know the members of its epoch, and not these ends.
    for (const Member* member : job->table.ChangedAfter(0)) {
      if (member->node != self_ || !member->live() || IsLive(*job, *member)) continue;
      const auto end = job->left.find({member->role, member->task});
      // Else its client has died, or it is a join whose reply was lost.
      const bool left = end != job->left.end() && end->second == member->life;
      messages.push_back(EndedMessage({name, member->role, member->task, 0, member->life},
                                      left ? MemberState::kLeft : MemberState::kDied));
    }
  }
  for (auto it = joining_.begin(); it != joining_.end();) {
    const auto& [id, join] = *it;
    if (ShardOf(join.arguments.job) != shard) {
      ++it;
    } else if (join.listener == nullptr) {
      // If the shard has decided on it, the member is not in the registration, and ends by that.
      it = joining_.erase(it);
    } else {
      SendJoin(id, join.arguments);
      ++it;
    }
  }
  return messages;
}

void Members::OnMessage(const v1::ShardJobMessage& message) {
  if (message.has_job_update()) return OnUpdate(message.job_update());
  if (message.has_join_reply()) return OnReply(message.join_reply());
}

void Members::OnUpdate(const v1::JobUpdate& update) {
  if (!CheckJobName("job", update.job()).ok()) return;
  KnownJob& job = JobOf(update.job());
  if (!job.table.Apply(update)) return;
  // The table has these ends now, or a later life of the task.
  std::erase_if(job.left, [&job](const auto& entry) {
    const Member* member = job.table.Find(entry.first.first, entry.first.second);
    return member == nullptr || member->life > entry.second || !member->live();
  });
  // Before ShowViews, so that a group without members here gets no view.
  EndReplaced(job);
  ShowViews(job);
  // A copy: a listener can end a member.
  const std::map<TaskKey, MemberId> live = job.live;
  for (const auto& [task, id] : live) {
    const auto member = live_.find(id);
    if (member == live_.end() || member->second.listener == nullptr) continue;
    member->second.listener->OnChanged(id);
  }
  ForgetLater(job);
}

void Members::EndReplaced(KnownJob& job) {
  const std::map<TaskKey, MemberId> live = job.live;
  for (const auto& [task, id] : live) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    const Member* known = job.table.Find(task.first, task.second);
    const uint64_t life = found->second.member.life;
    if (known != nullptr && known->life == life && known->live()) continue;
    if (DefectActive(Defect::kReplacedLifeContinues)) continue;
    const Live ended = std::move(found->second);
    // Before the listener is called, which can join again.
    live_.erase(found);
    Remove(job, ended.member);
    if (ended.listener == nullptr) continue;
    const std::string whose = absl::StrCat(task.second, " of job ", job.table.job());
    ended.listener->OnEnded(
        id, absl::AbortedError(
                known != nullptr && known->life > life
                    ? absl::StrCat("a newer life of ", whose, " has joined")
                    : absl::StrCat(whose, " was declared dead: node ", name_,
                                   " was out of touch with the directory for too long")));
  }
}

void Members::OnReply(const v1::JoinReply& reply) {
  const auto found = joining_.find(reply.request_id());
  if (found == joining_.end()) return;
  const Joining join = std::move(found->second);
  joining_.erase(found);
  control_.Cancel(join.timer);
  const absl::Status status = object_store::ReplyStatus(reply.code(), reply.message());
  if (!status.ok()) {
    if (join.listener != nullptr) join.listener->OnJoined(reply.request_id(), status);
    return;
  }
  const JoinArguments& arguments = join.arguments;
  const LocalMember member{arguments.job, arguments.role, arguments.task,
                           static_cast<int>(reply.rank()), reply.life()};
  KnownJob& job = JobOf(member.job);
  const TaskKey task(member.role, member.task);
  // The client has given up, but the shard has given a life: this node ends it.
  if (join.listener == nullptr) {
    SendEnded(member, MemberState::kDied);
    return ForgetLater(job);
  }
  job.live[task] = reply.request_id();
  live_[reply.request_id()] = {member, join.listener};
  // The job has a member here again, so it is not forgotten.
  control_.Cancel(std::exchange(job.forget, 0));
  join.listener->OnJoined(reply.request_id(), member);
  // The shard sends the update before the reply. Then the group had no member here, so observers
  // have not seen its view.
  const GroupView* view = job.table.view(member.role);
  if (view == nullptr || !HasMembers(job, member.role)) return;
  for (GroupObserver* observer : observers_) observer->OnView(*view);
}

// ---------------------------------------------------------------------------- the table

Members::KnownJob& Members::JobOf(const std::string& name) {
  std::unique_ptr<KnownJob>& job = jobs_[name];
  if (job == nullptr) job = std::make_unique<KnownJob>(name);
  return *job;
}

bool Members::IsLive(const KnownJob& job, const Member& member) const {
  const auto id = job.live.find({member.role, member.task});
  return id != job.live.end() && live_.at(id->second).member.life == member.life;
}

bool Members::HasMembers(const KnownJob& job, const std::string& role) const {
  const auto first = job.live.lower_bound({role, ""});
  return first != job.live.end() && first->first.first == role;
}

void Members::Remove(KnownJob& job, const LocalMember& member) {
  job.live.erase({member.role, member.task});
  if (!HasMembers(job, member.role)) {
    for (GroupObserver* observer : observers_) observer->OnGroupLeft(member.job, member.role);
  }
  ForgetLater(job);
}

void Members::ForgetLater(KnownJob& job) {
  if (!job.live.empty() || job.forget != 0) return;
  job.forget = control_.RunAt(control_.Now() + kKeepJob,
                              guard_.Wrap([this, name = job.table.job()] { jobs_.erase(name); }));
}

void Members::ShowViews(const KnownJob& job) {
  for (const std::string& role : job.table.roles()) {
    if (!HasMembers(job, role)) continue;
    for (GroupObserver* observer : observers_) observer->OnView(*job.table.view(role));
  }
}

}  // namespace phalanx::jobs
