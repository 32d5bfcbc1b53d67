// The messages of nodes about jobs as checked values, and what the shard sends of a member.
//
// Pure functions, any thread. Errors are InvalidArgument and name the field and the fault.
#ifndef PHALANX_DIRECTORY_JOBS_JOB_MESSAGES_H_
#define PHALANX_DIRECTORY_JOBS_JOB_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/v1/jobs.pb.h"
#include "phalanx/v1/types.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/job_ids.h"

namespace phalanx::directory {

// Members in one message: so many with the longest names are a quarter of the largest message.
inline constexpr int kMaxMembersPerMessage = 1024;
// The label of a node that names its host.
inline constexpr char kHostLabel[] = "host";

// Where a member runs.
struct MemberPlace {
  NodeKey node;
  std::string address;
  std::string host;
  std::string node_name;
};

struct JoinSpec {
  uint64_t request_id = 0;
  std::string job;
  std::string role;
  std::string task;
  int world = 0;
  std::optional<int> rank = {};
};

struct RegisteredMember {
  size_t role = 0;  // in RegisteredJob::roles
  int rank = 0;
  std::string task;
  uint64_t life = 0;
  MemberState state = MemberState::kAbsent;
  MemberPlace place;
};

struct RegisteredJob {
  struct Role {
    std::string name;
    int world = 0;
  };
  std::string job;
  JobEpoch epoch;
  std::vector<Role> roles;
  std::vector<RegisteredMember> members;
  bool more = false;
};

struct EndedMember {
  std::string job;
  std::string role;
  std::string task;
  uint64_t life = 0;
  MemberState how = MemberState::kDied;
};

absl::StatusOr<JoinSpec> ParseJoin(const v1::JoinRequest& message);
absl::StatusOr<RegisteredJob> ParseRegisterJob(const v1::RegisterJob& message);
absl::StatusOr<EndedMember> ParseMemberEnded(const v1::MemberEnded& message);

// The host is the node's label, or the host of its address.
MemberPlace PlaceOf(const v1::NodeInfo& node);

v1::JobMember::State ToProto(MemberState state);
// kAbsent for a state that this release does not know.
MemberState FromProto(v1::JobMember::State state);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_JOBS_JOB_MESSAGES_H_
