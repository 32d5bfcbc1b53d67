// Members of jobs.

#include <algorithm>
#include <string>
#include <utility>

#include "phalanx/job.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::Report;

namespace {

static_assert(PHX_ABSENT == static_cast<int>(phalanx::MemberState::kAbsent) &&
              PHX_LIVE == static_cast<int>(phalanx::MemberState::kLive) &&
              PHX_DIED == static_cast<int>(phalanx::MemberState::kDied) &&
              PHX_LEFT == static_cast<int>(phalanx::MemberState::kLeft));
static_assert(sizeof(phx_member_info::task) == phalanx::kMaxJobNameSize + 1);

std::string Text(const char* text) { return text == nullptr ? "" : text; }

// Cuts texts that do not fit; the node sends none.
template <size_t n>
void Copy(const std::string& from, char (&to)[n]) {
  const size_t size = std::min(from.size(), n - 1);
  from.copy(to, size);
  to[size] = 0;
}

}  // namespace

namespace phalanx::c {

int64_t ListMembers(const std::vector<Member>& members, phx_member_info* infos, size_t n) {
  for (size_t i = 0; i < std::min(n, members.size()); ++i) {
    const Member& from = members[i];
    phx_member_info& to = infos[i];
    to.rank = from.rank;
    to.state = static_cast<int>(from.state);
    to.life = from.life;
    to.change = from.change;
    Copy(from.task, to.task);
    Copy(from.host, to.host);
    Copy(from.node, to.node);
  }
  // Also those that did not fit, so that the caller can ask again with more room.
  return static_cast<int64_t>(members.size());
}

}  // namespace phalanx::c

phx_member* phx_join(phx_client* client, const char* job, const char* task,
                     const phx_join_options* options) {
  phalanx::JoinOptions to;
  if (options != nullptr) {
    to.role = Text(options->role);
    to.world = options->world;
    // A negative rank stands for no rank.
    if (options->rank >= 0) to.rank = options->rank;
    to.timeout = DurationOf(options->timeout);
  }
  absl::StatusOr<phalanx::Membership> member =
      client->client->Join(Text(job), Text(task), std::move(to));
  if (Report(member.status()) != 0) return nullptr;
  return new phx_member{*std::move(member)};
}

const char* phx_member_job(const phx_member* member) { return member->member.job().c_str(); }
const char* phx_member_role(const phx_member* member) { return member->member.role().c_str(); }
const char* phx_member_task(const phx_member* member) { return member->member.task().c_str(); }
int phx_member_rank(const phx_member* member) { return member->member.rank(); }
uint64_t phx_member_life(const phx_member* member) { return member->member.life(); }
int phx_member_world(const phx_member* member) { return member->member.world(); }
int phx_member_status(const phx_member* member) { return Report(member->member.status()); }

int64_t phx_member_list(const phx_member* member, const char* role, phx_member_info* infos,
                        size_t n) {
  const std::vector<phalanx::Member> members =
      role == nullptr ? member->member.Members() : member->member.Members(role);
  return phalanx::c::ListMembers(members, infos, n);
}

int phx_member_wait_world(const phx_member* member, int64_t timeout) {
  return Report(member->member.WaitForWorld(DurationOf(timeout)));
}

int phx_member_wait_change(const phx_member* member, uint64_t after, int64_t timeout,
                           uint64_t* change) {
  const absl::StatusOr<uint64_t> last = member->member.WaitForChange(after, DurationOf(timeout));
  if (last.ok()) *change = *last;
  return Report(last.status());
}

phx_call* phx_member_send(phx_member* member, const char* role, int rank, int64_t life,
                          const void* data, size_t size, int64_t timeout) {
  phalanx::SendOptions options;
  options.role = Text(role);
  // A negative life stands for the present one.
  if (life >= 0) options.life = static_cast<uint64_t>(life);
  options.timeout = DurationOf(timeout);
  const absl::string_view bytes(static_cast<const char*>(data), size);
  return Handle(member->member.Send(rank, bytes, std::move(options)));
}

phx_message* phx_member_receive(phx_member* member, int64_t timeout) {
  absl::StatusOr<phalanx::Message> message = member->member.Receive(DurationOf(timeout));
  if (Report(message.status()) != 0) return nullptr;
  return new phx_message{*std::move(message)};
}

const void* phx_message_data(const phx_message* message) { return message->message.bytes.data(); }
size_t phx_message_size(const phx_message* message) { return message->message.bytes.size(); }
const char* phx_message_role(const phx_message* message) { return message->message.role.c_str(); }
int phx_message_rank(const phx_message* message) { return message->message.rank; }
uint64_t phx_message_life(const phx_message* message) { return message->message.life; }
void phx_message_free(phx_message* message) { delete message; }

int phx_member_print(const phx_member* member, const char* text, size_t size) {
  return Report(member->member.Print({text, size}));
}

void phx_member_die(const phx_member* member, const char* death) {
  phalanx::internal::Access::Die(member->member, death);
}

int phx_member_leave(phx_member* member, int failed) {
  return Report(failed != 0 ? member->member.Fail() : member->member.Leave());
}

void phx_member_free(phx_member* member) { delete member; }
