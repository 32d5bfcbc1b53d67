// The identities of jobs: names, epochs, and the shard to which a job belongs.
// Values and pure functions, any thread.
#ifndef PHALANX_COMMON_IDS_JOB_IDS_H_
#define PHALANX_COMMON_IDS_JOB_IDS_H_

#include <compare>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"

namespace phalanx {

// The limits of a job. Every peer checks them before it allocates memory for a message.
inline constexpr size_t kMaxJobNameBytes = 255;  // of a job, a role and a task each
inline constexpr int kMaxWorld = 1 << 16;
inline constexpr size_t kMaxRolesPerJob = 16;

// Increases with each change of a job's members. Of two epochs of one job the greater is the later
// one, also over restarts of the job's shard.
struct JobEpoch {
  uint64_t incarnation = 0;
  uint64_t counter = 0;

  friend auto operator<=>(const JobEpoch&, const JobEpoch&) = default;
};

// Fails with InvalidArgument if the name is empty, longer than kMaxJobNameBytes, not UTF-8, or has
// control characters. The error names `what`: "job", "role" or "task".
absl::Status CheckJobName(absl::string_view what, absl::string_view name);

// In [0, num_shards). REQUIRES: num_shards >= 1.
int ShardOfJob(absl::string_view job, int num_shards);

// The rank in the name of a task like "worker3" of the role "worker": the decimal number without
// leading zeros behind the role's name; -1 if the task is called otherwise, or the number is not
// below kMaxWorld.
int RankInName(absl::string_view role, absl::string_view task);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_JOB_IDS_H_
