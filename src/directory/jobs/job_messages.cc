#include "src/directory/jobs/job_messages.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/directory/core/validate.h"
#include "src/net/stream/address.h"

namespace phalanx::directory {
namespace {

// A later incarnation and a later life must be possible.
constexpr uint64_t kMaxIncarnation = std::numeric_limits<uint64_t>::max() / 2;
constexpr uint64_t kMaxLife = std::numeric_limits<uint64_t>::max() / 2;
// The shard sends these texts to every node of the job.
constexpr size_t kMaxPlaceBytes = 1024;

absl::StatusOr<int> ParseWorld(uint32_t world) {
  if (world < 1 || world > static_cast<uint32_t>(kMaxWorld)) {
    return absl::InvalidArgumentError(absl::StrCat("world: ", world, " is not in 1..", kMaxWorld));
  }
  return static_cast<int>(world);
}

absl::Status CheckNames(const std::string& job, const std::string& role, const std::string& task) {
  PHALANX_RETURN_IF_ERROR(CheckJobName("job", job));
  PHALANX_RETURN_IF_ERROR(CheckJobName("role", role));
  return CheckJobName("task", task);
}

absl::StatusOr<RegisteredMember> ParseMember(const v1::JobMember& message,
                                             const std::vector<RegisteredJob::Role>& roles) {
  RegisteredMember member;
  if (message.role() >= roles.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("members: role ", message.role(), " of ", roles.size()));
  }
  member.role = message.role();
  if (message.rank() >= static_cast<uint32_t>(roles[member.role].world)) {
    return absl::InvalidArgumentError(absl::StrCat("members: rank ", message.rank(),
                                                   " in a world of ", roles[member.role].world));
  }
  member.rank = static_cast<int>(message.rank());
  PHALANX_RETURN_IF_ERROR(CheckJobName("task", message.task()));
  member.task = message.task();
  member.life = message.life();
  if (member.life > kMaxLife) {
    return absl::InvalidArgumentError(absl::StrCat("members: life ", member.life));
  }
  member.state = FromProto(message.state());
  if (member.state == MemberState::kAbsent) {
    return absl::InvalidArgumentError(absl::StrCat("members: state ", message.state()));
  }
  PHALANX_ASSIGN_OR_RETURN(member.place.node, ParseNodeKey(message.node()));
  if (message.address().size() + message.host().size() + message.node_name().size() >
      kMaxPlaceBytes) {
    return absl::InvalidArgumentError("members: the address, host and name of a node are too long");
  }
  member.place.address = message.address();
  member.place.host = message.host();
  member.place.node_name = message.node_name();
  return member;
}

}  // namespace

absl::StatusOr<JoinSpec> ParseJoin(const v1::JoinRequest& message) {
  PHALANX_RETURN_IF_ERROR(CheckNames(message.job(), message.role(), message.task()));
  JoinSpec spec{message.request_id(), message.job(), message.role(), message.task()};
  PHALANX_ASSIGN_OR_RETURN(spec.world, ParseWorld(message.world()));
  if (!message.has_rank()) return spec;
  if (message.rank() >= message.world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: ", message.rank(), " in a world of ", message.world()));
  }
  spec.rank = static_cast<int>(message.rank());
  return spec;
}

absl::StatusOr<RegisteredJob> ParseRegisterJob(const v1::RegisterJob& message) {
  PHALANX_RETURN_IF_ERROR(CheckJobName("job", message.job()));
  RegisteredJob job;
  job.job = message.job();
  job.epoch = {message.epoch().incarnation(), message.epoch().counter()};
  job.more = message.more();
  if (job.epoch.incarnation > kMaxIncarnation) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch: incarnation ", job.epoch.incarnation, " is out of range"));
  }
  if (static_cast<size_t>(message.roles_size()) > kMaxRolesPerJob) {
    return absl::InvalidArgumentError(
        absl::StrCat("roles: ", message.roles_size(), " of at most ", kMaxRolesPerJob));
  }
  if (message.members_size() > kMaxMembersPerMessage) {
    return absl::InvalidArgumentError(
        absl::StrCat("members: ", message.members_size(), " of at most ", kMaxMembersPerMessage));
  }
  for (const v1::JobRole& role : message.roles()) {
    PHALANX_RETURN_IF_ERROR(CheckJobName("role", role.name()));
    PHALANX_ASSIGN_OR_RETURN(const int world, ParseWorld(role.world()));
    job.roles.push_back({role.name(), world});
  }
  for (const v1::JobMember& member : message.members()) {
    PHALANX_ASSIGN_OR_RETURN(RegisteredMember parsed, ParseMember(member, job.roles));
    job.members.push_back(std::move(parsed));
  }
  return job;
}

absl::StatusOr<EndedMember> ParseMemberEnded(const v1::MemberEnded& message) {
  PHALANX_RETURN_IF_ERROR(CheckNames(message.job(), message.role(), message.task()));
  return EndedMember{message.job(), message.role(), message.task(), message.life(),
                     message.left() ? MemberState::kLeft : MemberState::kDied};
}

MemberPlace PlaceOf(const v1::NodeInfo& node) {
  MemberPlace place{directory::FromProto(node.key()), node.address(), "", node.name()};
  const auto label = node.labels().find(kHostLabel);
  if (label != node.labels().end() && !label->second.empty()) {
    place.host = label->second;
  } else if (const auto parsed = net::ParseHostPort(node.address()); parsed.ok()) {
    place.host = parsed->host;
  } else {
    place.host = node.address();
  }
  return place;
}

v1::JobMember::State ToProto(MemberState state) {
  switch (state) {
    case MemberState::kAbsent:
      return v1::JobMember::UNKNOWN;
    case MemberState::kLive:
      return v1::JobMember::LIVE;
    case MemberState::kDied:
      return v1::JobMember::DIED;
    case MemberState::kLeft:
      return v1::JobMember::LEFT;
  }
  return v1::JobMember::UNKNOWN;
}

MemberState FromProto(v1::JobMember::State state) {
  switch (state) {
    case v1::JobMember::LIVE:
      return MemberState::kLive;
    case v1::JobMember::DIED:
      return MemberState::kDied;
    case v1::JobMember::LEFT:
      return MemberState::kLeft;
    default:
      // A state that this version does not know. The callers refuse or ignore it.
      return MemberState::kAbsent;
  }
}

}  // namespace phalanx::directory
