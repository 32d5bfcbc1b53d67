// What the tools show of a shard's jobs. Every answer is bounded and says whether there is more.
// Reads the manager, which outlives it. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_JOBS_JOB_REPORT_H_
#define PHALANX_DIRECTORY_JOBS_JOB_REPORT_H_

#include "absl/status/status.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/time/instant.h"
#include "src/directory/jobs/job_manager.h"

namespace phalanx::directory {

class JobReport {
 public:
  explicit JobReport(const JobManager& jobs) : jobs_(jobs) {}

  void List(const v1::ListJobsRequest& request, Instant now, v1::ListJobsResponse* out) const;
  // NotFound if the shard does not know the job.
  absl::Status Describe(const v1::DescribeJobRequest& request, Instant now,
                        v1::DescribeJobResponse* out) const;

 private:
  const JobManager& jobs_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_JOBS_JOB_REPORT_H_
