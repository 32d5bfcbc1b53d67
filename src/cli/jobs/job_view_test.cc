#include "src/cli/jobs/job_view.h"

#include <gtest/gtest.h>

namespace phalanx::runtime {
namespace {

v1::DescribeJobResponse Job() {
  v1::DescribeJobResponse job;
  v1::JobSummary* summary = job.mutable_summary();
  summary->set_job("train");
  summary->mutable_epoch()->set_incarnation(0x1f);
  summary->mutable_epoch()->set_counter(7);
  summary->set_nodes(1);
  summary->set_age_ns(65'000'000'000);
  v1::JobSummary::Role* role = summary->add_roles();
  role->set_name("worker");
  role->set_world(4);
  role->set_live(1);
  role->set_died(1);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    v1::DescribeJobResponse::Member* member = job.add_members();
    member->mutable_member()->set_rank(rank);
    member->mutable_member()->set_task(rank == 0 ? "worker0" : "worker1");
    member->mutable_member()->set_life(rank * 2);
    member->mutable_member()->set_state(rank == 0 ? v1::JobMember::LIVE : v1::JobMember::DIED);
    member->mutable_member()->set_node_name("n1");
    member->mutable_member()->set_host("box\x1b");
    member->set_since_ns(1'250'000'000);
  }
  return job;
}

TEST(JobView, AJobIsALineForEachRank) {
  EXPECT_EQ(JobAsText(Job()),
            "job train, epoch 1f.7, 1m5s old\n"
            "ROLE    RANK  TASK     LIFE  STATE  SINCE  NODE  HOST\n"
            "worker     0  worker0     0  live    1.2s  n1    box?\n"
            "worker     1  worker1     2  died    1.2s  n1    box?\n"
            "2 of 4 tasks of role worker have not joined\n");
}

TEST(JobView, APositionOrANumberThatIsOutOfRangeEndsNothing) {
  v1::DescribeJobResponse job = Job();
  job.mutable_members(0)->mutable_member()->set_role(1);
  job.mutable_members(1)->mutable_member()->set_role(0xffffffff);
  job.mutable_summary()->mutable_roles(0)->set_left(0xffffffff);
  EXPECT_EQ(JobAsText(job),
            "job train, epoch 1f.7, 1m5s old\n"
            "ROLE  RANK  TASK     LIFE  STATE  SINCE  NODE  HOST\n"
            "         0  worker0     0  live    1.2s  n1    box?\n"
            "         1  worker1     2  died    1.2s  n1    box?\n");
  EXPECT_EQ(JobDescriptionAsJson(job)["members"][1]["role"], "");
}

TEST(JobView, TheListHasALineForEachRole) {
  v1::ListJobsResponse list;
  *list.add_jobs() = Job().summary();
  list.mutable_jobs(0)->set_ends_in_ns(30'000'000'000);
  EXPECT_EQ(JobsAsTable(list),
            "JOB    ROLE    WORLD  LIVE  DIED  LEFT  NODES   AGE  EPOCH  NOTES\n"
            "train  worker      4     1     1     0      1  1m5s  1f.7   forgotten in 30s\n");
}

TEST(JobView, JsonHasTheSameAndNumbers) {
  const nlohmann::json json = JobDescriptionAsJson(Job());
  EXPECT_EQ(json["job"], "train");
  EXPECT_EQ(json["epoch"], nlohmann::json({31, 7}));
  EXPECT_EQ(json["ends_in_s"], nullptr);
  EXPECT_EQ(json["roles"][0]["died"], 1);
  EXPECT_EQ(json["members"][1]["state"], "died");
  EXPECT_EQ(json["members"][1]["role"], "worker");
  EXPECT_EQ(json["members"][1]["since_s"], 1.25);
}

TEST(JobView, ServersSayWhatTheyDo) {
  const std::vector<DescribedServer> servers = {
      {"server", 0, "server 0 of 2\n  worker 1: clock \x1b[1m3\n"},
      {"server", 1, absl::DeadlineExceededError("it has not answered")}};
  EXPECT_EQ(ServersAsText(servers),
            "\nserver 0 of 2\n  worker 1: clock ?[1m3\n\nserver 1: it has not answered\n");
  EXPECT_EQ(ServersAsText({}), "");
  const nlohmann::json json = JobDescriptionAsJson(v1::DescribeJobResponse(), servers);
  ASSERT_EQ(json["servers"].size(), 2u);
  EXPECT_EQ(json["servers"][0]["rank"], 0);
  EXPECT_EQ(json["servers"][1]["error"], "it has not answered");
  EXPECT_FALSE(JobDescriptionAsJson(v1::DescribeJobResponse()).contains("servers"));
}

}  // namespace
}  // namespace phalanx::runtime
