#include "phalanx/job.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "src/client/access.h"
#include "src/client/jobs/declared_death.h"
#include "src/client/jobs/member_call.h"
#include "src/client/socket/launch_print.h"
#include "src/client/verb.h"
#include "src/common/ids/job_ids.h"
#include "src/common/status_macros.h"

namespace phalanx {
namespace {

static_assert(kMaxJobWorld == kMaxWorld);
static_assert(kMaxJobNameSize == kMaxJobNameBytes);

// Missing ranks that an error names.
constexpr int kMaxNamedRanks = 8;

// Returns the argument, or else the variable, which `phalanx launch` sets.
std::string Or(std::string given, const char* variable) {
  if (!given.empty()) return given;
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

absl::Status Lacks(absl::string_view what, const char* variable) {
  return absl::InvalidArgumentError(
      absl::StrCat("Join: no ", what, " is given, and ", variable, " is not set"));
}

absl::StatusOr<int> WorldOf(int given) {
  if (given != 0) return given;
  const std::string text = Or("", "PHALANX_WORLD");
  if (text.empty()) return Lacks("world", "PHALANX_WORLD");
  int world = 0;
  if (absl::SimpleAtoi(text, &world) && world > 0) return world;
  return absl::InvalidArgumentError(
      absl::StrCat("Join: PHALANX_WORLD is \"", text, "\", not a number of tasks"));
}

absl::StatusOr<internal::FromLaunch> FromLaunchOf(const std::string& task) {
  internal::FromLaunch launch;
  launch.mark = Or("", "PHALANX_FAIL_MARK");
  launch.life = Or("", "PHALANX_LIFE");
  launch.print = Or("", internal::kPrintVariable);
  const std::string text = Or("", "PHALANX_FAIL");
  if (text.empty() || task != Or("", "PHALANX_TASK")) return launch;
  const std::optional<internal::DeathPoint> death = internal::ParseDeathPoint(text);
  if (!death) {
    return absl::InvalidArgumentError(
        absl::StrCat("Join: PHALANX_FAIL is \"", text, "\", not ", internal::kDeathPointForms));
  }
  launch.death = *death;
  return launch;
}

}  // namespace

// ---------------------------------------------------------------------------- joining

absl::StatusOr<Membership> Client::Join(std::string job, std::string task, JoinOptions options) {
  PHALANX_RETURN_IF_ERROR(connection_->CheckProcess());
  job = Or(std::move(job), "PHALANX_JOB");
  if (job.empty()) return Lacks("job", "PHALANX_JOB");
  task = Or(std::move(task), "PHALANX_TASK");
  if (task.empty()) return Lacks("task", "PHALANX_TASK");
  std::string role = Or(std::move(options.role), "PHALANX_ROLE");
  if (role.empty()) role = "worker";
  PHALANX_ASSIGN_OR_RETURN(options.world, WorldOf(options.world));
  PHALANX_RETURN_IF_ERROR(CheckJobName("job", job));
  PHALANX_RETURN_IF_ERROR(CheckJobName("role", role));
  PHALANX_RETURN_IF_ERROR(CheckJobName("task", task));
  // Negative numbers have no place in the message; the node refuses the other wrong ones.
  if (options.world < 0 || options.rank.value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("Join: ", task, " of job ", job, " with rank ",
                                                   options.rank.value_or(0), " in a world of ",
                                                   options.world));
  }
  PHALANX_ASSIGN_OR_RETURN(internal::FromLaunch launch, FromLaunchOf(task));
  const auto state =
      std::make_shared<internal::MembershipState>(std::make_shared<internal::MemberCall>(
          connection_, std::move(job), std::move(role), std::move(task), std::move(launch)));
  PHALANX_RETURN_IF_ERROR(state->call->Begin(options));
  return Membership(state);
}

const std::string& Membership::job() const { return state_->call->job(); }
const std::string& Membership::role() const { return state_->call->role(); }
const std::string& Membership::task() const { return state_->call->task(); }
int Membership::rank() const { return state_->call->rank(); }
uint64_t Membership::life() const { return state_->call->life(); }
int Membership::world() const { return state_->call->world(); }
absl::Status Membership::status() const { return state_->call->status(); }
std::vector<Member> Membership::Members() const { return Members(role()); }

std::vector<Member> Membership::Members(absl::string_view role) const {
  return state_->call->MembersOf(role);
}

std::vector<std::string> Membership::Hosts() const {
  std::vector<std::string> hosts;
  for (Member& member : Members()) hosts.push_back(std::move(member.host));
  return hosts;
}

absl::Status Membership::WaitForWorld(absl::Duration timeout) const {
  return state_->call->WaitForWorld(timeout);
}

absl::StatusOr<uint64_t> Membership::WaitForChange(uint64_t after, absl::Duration timeout) const {
  return state_->call->WaitForChange(after, timeout);
}

void Membership::OnMember(absl::AnyInvocable<void(const Member&)> callback) const {
  state_->call->SetCallback(std::move(callback));
}

Future<Done> Membership::Send(int rank, absl::string_view bytes, SendOptions options) const {
  return state_->call->SendTo(rank, bytes, std::move(options));
}

absl::StatusOr<Message> Membership::Receive(absl::Duration timeout) const {
  return state_->call->Receive(timeout);
}

absl::Status Membership::Print(absl::string_view text) const { return state_->call->Print(text); }
absl::Status Membership::Leave() const { return state_->call->Leave(/*failed=*/false); }
absl::Status Membership::Fail() const { return state_->call->Leave(/*failed=*/true); }

// ---------------------------------------------------------------------------- the call

namespace internal {

absl::Status MemberCall::Begin(const JoinOptions& options) {
  world_ = options.world;
  request_ = connection().NewRequests(1);
  local::Join join{request_, job_, role_, task_, static_cast<uint32_t>(options.world)};
  join.has_rank = options.rank.has_value();
  join.rank = static_cast<uint32_t>(options.rank.value_or(0));
  join.timeout = options.timeout;
  // The member outlives its Join, so the deadline is not that of the call.
  connection().Start(shared_from_this(), request_, 1, Instant::Infinite(), join);
  const bool ended = connection().WaitInsideCall([this] { return joined_ || !why_.ok(); },
                                                 MonotonicNow() + options.timeout + kDeadlineGrace);
  absl::Status outcome;
  connection().Update([&] { outcome = why_; });
  if (ended) return outcome;
  // The node can still answer the Join. The member ends then.
  Leave(/*failed=*/true).IgnoreError();
  return Explain(absl::StatusCode::kDeadlineExceeded, "the node has not answered in time");
}

void MemberCall::BeginGroupCall() {
  ++group_calls_;
  const DeathPoint& death = launch_.death;
  if (death.kind == DeathPoint::Kind::kCall && death.number == group_calls_) {
    Die(DeathPointText(death));
  }
  ++group_calls_under_way_;
}

std::optional<uint64_t> MemberCall::FatalBytes(uint64_t input) {
  const DeathPoint& death = launch_.death;
  // The whole input is there before.
  if (death.kind != DeathPoint::Kind::kPut || death.bytes >= input) return std::nullopt;
  uint64_t next = 0;
  connection().Update([&] { next = group_calls_ + 1; });
  return next == death.number ? std::optional(death.bytes) : std::nullopt;
}

void MemberCall::DieInCall() {
  // Also what a batch holds back.
  bool given = false;
  connection().WaitInsideCall(
      [&] {
        given = connection().CanSend() && connection().unsent() == 0;
        return given || !connection().CanSend();
      },
      MonotonicNow() + kDeathPatience);
  // Otherwise the death is not the declared one.
  Die(given ? DeathPointText(launch_.death) : std::string());
}

void MemberCall::DieIfDeclared(DeathPoint::Kind point) {
  const uint64_t number = point == DeathPoint::Kind::kCheckpoint ? ++checkpoints_ : 0;
  if (launch_.death.kind == point && launch_.death.number == number) {
    Die(DeathPointText(launch_.death));
  }
}

// SIGKILL, like the kernel's when memory is short: nothing of the program runs any more.
void MemberCall::Die(absl::string_view death) const {
  const int fd = open(launch_.mark.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  // A mark can be that of a later life by now, and this process a child of the task's.
  const std::string mark = absl::StrCat(launch_.life, " ", getpid(), " ", death);
  // Without the mark the launch reports another kill than the declared one.
  if (fd >= 0 && !death.empty()) (void)!write(fd, mark.data(), mark.size());
  raise(SIGKILL);
  std::abort();
}

void Access::Die(const Membership& member, absl::string_view death) {
  StateOf(member)->call->Die(death);
}

const DeathPoint& Access::DeathOf(const Membership& member) {
  return StateOf(member)->call->death();
}

void Access::DieWhenSent(const Membership& member) { StateOf(member)->call->DieInCall(); }

void Access::DieIfDeclared(const Membership& member, DeathPoint::Kind point) {
  StateOf(member)->call->DieIfDeclared(point);
}

MemberCall::Place MemberCall::NodePlace() {
  if (place_.change == last_change_) return place_;
  std::map<absl::string_view, int> nodes;
  place_ = {.change = last_change_};
  const auto role = roles_.find(role_);
  if (role == roles_.end()) return place_;
  for (const Member& member : role->second) {
    if (!member.live()) continue;
    const auto [at, added] = nodes.try_emplace(member.node, static_cast<int>(nodes.size()));
    if (member.rank == rank_) place_.node = at->second;
  }
  place_.nodes = std::max(1, static_cast<int>(nodes.size()));
  return place_;
}

void MemberCall::OnAnswer(uint64_t, const local::Answer& answer) {
  if (const auto* update = std::get_if<local::MemberUpdate>(&answer)) return OnUpdate(*update);
  if (const auto* arrived = std::get_if<local::MessageArrived>(&answer)) return OnMessage(*arrived);
  if (const auto* ended = std::get_if<local::MemberEnded>(&answer)) {
    return End(absl::Status(ended->code, ended->message));
  }
  const auto joined = Expect<local::Joined>(answer);
  if (!joined.ok()) return End(joined.status());
  rank_ = static_cast<int>((*joined)->rank);
  life_ = (*joined)->life;
  joined_ = true;
}

void MemberCall::OnUpdate(const local::MemberUpdate& update) {
  if (update.world > static_cast<uint32_t>(kMaxWorld)) return End(Unexpected());
  std::vector<Member>& members = roles_[std::string(update.role)];
  // Only a job that was forgotten and began anew has another world.
  if (members.size() != update.world) {
    members.assign(update.world, {});
    for (size_t rank = 0; rank < members.size(); ++rank) {
      members[rank].rank = static_cast<int>(rank);
      members[rank].role = std::string(update.role);
    }
  }
  for (const local::MemberUpdate::Member& changed : update.members) {
    if (changed.rank >= update.world) return End(Unexpected());
    Member& member = members[changed.rank];
    member.state = changed.state;
    member.life = changed.life;
    member.task = std::string(changed.task);
    member.host = std::string(changed.host);
    member.node = std::string(changed.node);
    member.change = ++last_change_;
    if (sink_ != nullptr) sink_->OnMember(member);
    if (callback_ == nullptr) continue;
    connection().AddReady([callback = callback_, member] { (*callback)(member); });
  }
}

void MemberCall::End(absl::Status why) {
  // The first reason stays.
  if (!why_.ok()) return;
  why_ = std::move(why);
  if (callback_ != nullptr) connection().Trash(std::exchange(callback_, nullptr));
  if (MemberSink* const sink = std::exchange(sink_, nullptr); sink != nullptr) sink->OnEnd(why_);
  connection().Finish(*this);
}

absl::Status MemberCall::status() {
  const absl::Status process = connection().CheckProcess();
  if (!process.ok()) return process;
  // Takes in what has arrived.
  connection().WaitInsideCall([] { return false; }, MonotonicNow());
  absl::Status status;
  connection().Update([&] { status = why_; });
  return status;
}

std::vector<Member> MemberCall::MembersOf(absl::string_view role) {
  std::vector<Member> members;
  if (connection().forked()) return members;
  connection().WaitInsideCall([] { return false; }, MonotonicNow());
  connection().Update([&] {
    const auto found = roles_.find(role);
    if (found != roles_.end()) members = found->second;
  });
  return members;
}

bool MemberCall::Complete() const {
  const auto found = roles_.find(role_);
  return found != roles_.end() && std::all_of(found->second.begin(), found->second.end(),
                                              [](const Member& member) { return member.live(); });
}

absl::Status MemberCall::Missing() const {
  int missing = 0;
  std::string names;
  for (const Member& member : roles_.at(role_)) {
    if (member.live() || ++missing > kMaxNamedRanks) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ");
    if (member.state == MemberState::kAbsent) {
      absl::StrAppend(&names, "rank ", member.rank, " (has not joined)");
    } else {
      absl::StrAppend(&names, member.task, " (life ", member.life,
                      member.state == MemberState::kDied ? " died)" : " left)");
    }
  }
  if (missing > kMaxNamedRanks) absl::StrAppend(&names, ", ...");
  // Without the time: a caller can wait in slices, as the Python package does.
  return absl::DeadlineExceededError(absl::StrCat("job ", job_, ": ", missing, " of ", world_,
                                                  " tasks of role ", role_,
                                                  " are missing: ", names));
}

absl::Status MemberCall::WaitForWorld(absl::Duration timeout) {
  const absl::Status process = connection().CheckProcess();
  if (!process.ok()) return process;
  const bool ended =
      connection().WaitInsideCall([this] { return !why_.ok() || Complete(); },
                                  MonotonicNow() + std::max(timeout, absl::ZeroDuration()));
  absl::Status status;
  connection().Update([&] { status = !why_.ok() || ended ? why_ : Missing(); });
  return status;
}

absl::StatusOr<uint64_t> MemberCall::WaitForChange(uint64_t after, absl::Duration timeout) {
  PHALANX_RETURN_IF_ERROR(connection().CheckProcess());
  connection().WaitInsideCall([&] { return !why_.ok() || last_change_ > after; },
                              MonotonicNow() + std::max(timeout, absl::ZeroDuration()));
  absl::StatusOr<uint64_t> change =
      absl::DeadlineExceededError(absl::StrCat("job ", job_, ": no member has changed"));
  connection().Update([&] {
    if (last_change_ > after) {
      change = last_change_;
    } else if (!why_.ok()) {
      change = why_;
    }
  });
  return change;
}

void MemberCall::SetCallback(Callback callback) {
  if (connection().forked()) return;
  auto made = callback == nullptr ? nullptr : std::make_shared<Callback>(std::move(callback));
  connection().Update([&] {
    // The earlier callback is now in `made`, and is destroyed after the lock is released.
    if (why_.ok()) callback_.swap(made);
  });
}

Future<Done> MemberCall::SendTo(int rank, absl::string_view bytes, SendOptions options) {
  if (options.role.empty()) options.role = role_;
  absl::Status status = connection().CheckProcess();
  status.Update(CheckJobName("role", options.role));
  if (rank < 0 || bytes.size() > kMaxMessageSize) {
    status.Update(absl::InvalidArgumentError(absl::StrCat("Send: ", bytes.size(), " bytes to rank ",
                                                          rank, "; at most ", kMaxMessageSize,
                                                          " bytes, to a rank of the role")));
  }
  if (!status.ok()) return Refused<Done>(shared_connection(), "Send", ObjectId(), status);
  return StartOne<Done>(std::make_shared<CountCall<Done>>(shared_connection(), "Send", ObjectId()),
                        MonotonicNow() + options.timeout, [&](uint64_t request) {
                          local::SendMessage message;
                          message.request = request;
                          message.member = request_;
                          message.role = options.role;
                          message.rank = static_cast<uint32_t>(rank);
                          message.has_life = options.life.has_value();
                          message.life = options.life.value_or(0);
                          message.timeout = options.timeout;
                          message.bytes = bytes;
                          return message;
                        });
}

void MemberCall::OnMessage(const local::MessageArrived& arrived) {
  if (arrived.rank >= static_cast<uint32_t>(kMaxWorld)) return End(Unexpected());
  inbox_.push_back({{static_cast<int>(arrived.rank), std::string(arrived.role), arrived.life,
                     std::string(arrived.bytes)},
                    arrived.stream});
  if (sink_ != nullptr) ShowToSink();
}

void MemberCall::ShowToSink() {
  while (sink_ != nullptr && !inbox_.empty()) sink_->OnMessage(TakeMessage());
}

void MemberCall::SetSink(MemberSink* sink) {
  if (connection().forked()) return;
  connection().Update([&] {
    sink_ = sink;
    if (sink == nullptr) return;
    for (const auto& [role, members] : roles_) {
      for (const Member& member : members) {
        if (member.change > 0) sink->OnMember(member);
      }
    }
    ShowToSink();
    if (!why_.ok() && std::exchange(sink_, nullptr) != nullptr) sink->OnEnd(why_);
  });
}

absl::StatusOr<Message> MemberCall::Receive(absl::Duration timeout) {
  PHALANX_RETURN_IF_ERROR(connection().CheckProcess());
  const Instant until = MonotonicNow() + std::max(timeout, absl::ZeroDuration());
  absl::StatusOr<Message> message =
      absl::DeadlineExceededError(absl::StrCat("job ", job_, ": no message has arrived"));
  bool in_time = true;
  // Another thread can take the message for which this one has waited.
  while (in_time && absl::IsDeadlineExceeded(message.status())) {
    in_time = connection().WaitInsideCall([&] { return !why_.ok() || !inbox_.empty(); }, until);
    connection().Update([&] {
      // Messages that arrived before the end of the member can still be received.
      if (!inbox_.empty()) {
        message = TakeMessage();
      } else if (!why_.ok()) {
        message = why_;
        in_time = false;
      }
    });
  }
  return message;
}

Message MemberCall::TakeMessage() {
  Arrived arrived = std::move(inbox_.front());
  inbox_.pop_front();
  Message& message = arrived.message;
  Held& held = held_[{message.role, message.rank}];
  // Credit for an earlier life or stream is of no use any more.
  if (held.life != message.life || held.stream != arrived.stream) {
    held = {message.life, arrived.stream, 0};
  }
  held.cost += message.bytes.size() + local::kMessageOverhead;
  // Credit goes back only for messages that the caller takes, so a full inbox holds up its senders.
  if (held.cost >= local::kTakenStep && why_.ok()) {
    connection().Send(local::MessageTaken{request_, message.role,
                                          static_cast<uint32_t>(message.rank), message.life,
                                          arrived.stream, std::exchange(held.cost, 0)});
  }
  return std::move(message);
}

absl::Status MemberCall::Print(absl::string_view text) const {
  const absl::Status process = connection().CheckProcess();
  if (!process.ok() || text.empty()) return process;
  if (launch_.print.empty()) return PrintHere(text);
  return PrintAtLaunch(launch_.print, text, kPrintPatience);
}

absl::Status MemberCall::Leave(bool failed) {
  const absl::Status process = connection().CheckProcess();
  if (!process.ok()) return process;
  absl::Status status;
  connection().Update([&] {
    status = why_;
    if (!why_.ok()) return;
    connection().Send(local::LeaveJob{request_, failed});
    End(absl::FailedPreconditionError(
        absl::StrCat(task_, " of job ", job_, failed ? " has failed" : " has left")));
  });
  return status;
}

}  // namespace internal
}  // namespace phalanx
