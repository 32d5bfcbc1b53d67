#include "src/directory/jobs/job_report.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::directory {
namespace {

constexpr uint32_t kDefaultListed = 1000;
constexpr uint32_t kMaxListed = 10000;

uint64_t NanosBetween(Instant from, Instant to) {
  return static_cast<uint64_t>(std::max<int64_t>(0, to.nanos() - from.nanos()));
}

void Summarize(const Job& job, Instant now, v1::JobSummary* out) {
  out->set_job(job.name());
  out->mutable_epoch()->set_incarnation(job.epoch().incarnation);
  out->mutable_epoch()->set_counter(job.epoch().counter);
  for (const auto& [name, role] : job.roles()) {
    v1::JobSummary::Role* described = out->add_roles();
    described->set_name(name);
    described->set_world(static_cast<uint32_t>(role->world));
    described->set_live(static_cast<uint32_t>(role->live));
    described->set_died(static_cast<uint32_t>(role->died));
    // Every task that has joined is live, has died or has left.
    described->set_left(
        static_cast<uint32_t>(static_cast<int>(role->by_rank.size()) - role->live - role->died));
  }
  for (const auto& [node, watcher] : job.watchers()) {
    if (!watcher.live.empty()) out->set_nodes(out->nodes() + 1);
  }
  out->set_age_ns(NanosBetween(job.since(), now));
  // At least 1: 0 says that the job has live members.
  if (!job.ends.infinite()) {
    out->set_ends_in_ns(std::max<uint64_t>(1, NanosBetween(now, job.ends)));
  }
}

}  // namespace

void JobReport::List(const v1::ListJobsRequest& request, Instant now,
                     v1::ListJobsResponse* out) const {
  const uint32_t limit =
      std::min(request.limit() == 0 ? kDefaultListed : request.limit(), kMaxListed);
  auto it = request.after_job().empty() ? jobs_.jobs().begin()
                                        : jobs_.jobs().upper_bound(request.after_job());
  for (uint32_t listed = 0; it != jobs_.jobs().end() && listed < limit; ++it, ++listed) {
    Summarize(*it->second, now, out->add_jobs());
  }
  out->set_more(it != jobs_.jobs().end());
}

absl::Status JobReport::Describe(const v1::DescribeJobRequest& request, Instant now,
                                 v1::DescribeJobResponse* out) const {
  const auto found = jobs_.jobs().find(request.job());
  if (found == jobs_.jobs().end()) {
    return absl::NotFoundError(absl::StrCat("there is no job called ", request.job()));
  }
  const Job& job = *found->second;
  Summarize(job, now, out->mutable_summary());
  uint32_t left = std::min(request.limit() == 0 ? kMaxListed : request.limit(), kMaxListed);
  uint32_t position = 0;
  for (const auto& [name, role] : job.roles()) {
    const uint32_t described = position++;
    if (request.has_after() && name < request.after_role()) continue;
    // A page goes on behind the role and rank with which the last one ended.
    const bool resumes = request.has_after() && name == request.after_role();
    auto it = resumes ? role->by_rank.upper_bound(static_cast<int>(request.after_rank()))
                      : role->by_rank.begin();
    for (; it != role->by_rank.end(); ++it) {
      if (left-- == 0) {
        out->set_more(true);
        return absl::OkStatus();
      }
      v1::DescribeJobResponse::Member* member = out->add_members();
      ToProto(*it->second, described, member->mutable_member());
      member->set_since_ns(NanosBetween(it->second->since, now));
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
