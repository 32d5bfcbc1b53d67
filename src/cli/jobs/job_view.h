// Jobs and their members as lists and as JSON. Pure; any thread.
#ifndef PHALANX_CLI_JOBS_JOB_VIEW_H_
#define PHALANX_CLI_JOBS_JOB_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// Fields of `jobs --json`: job, epoch (its two numbers), roles (each with name, world, live, died,
// left), nodes (with live members), age_s (since the first join that the shard knows of), ends_in_s
// (null while a member lives, else the time after which the job is forgotten).
nlohmann::json JobAsJson(const v1::JobSummary& job);

// A line for each role of each job, under a heading.
std::string JobsAsTable(const v1::ListJobsResponse& jobs);

// What a server of a parameter server says of its tables; an error if it has not answered.
struct DescribedServer {
  std::string role;
  int rank = 0;
  absl::StatusOr<std::string> text;
};

// The same fields, and `members` in the order of roles and ranks: role, rank, task, life, state,
// node, host, since_s (how long in this state, as far as the shard knows). If there are servers
// also `servers`: role, rank, and text or error.
nlohmann::json JobDescriptionAsJson(const v1::DescribeJobResponse& job,
                                    const std::vector<DescribedServer>& servers = {});
// Behind JobAsText: what each says, behind an empty line.
std::string ServersAsText(const std::vector<DescribedServer>& servers);

// The job, and a line for each rank that a task has had, under a heading; then, for each role, the
// ranks that no task has had.
std::string JobAsText(const v1::DescribeJobResponse& job);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_JOBS_JOB_VIEW_H_
