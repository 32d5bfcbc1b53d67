#include "src/common/ids/job_ids.h"

#include <gtest/gtest.h>

#include <string>

namespace phalanx {
namespace {

TEST(JobIds, ANameIsUtf8WithoutControlCharactersOfAtMost255Bytes) {
  EXPECT_TRUE(CheckJobName("job", "train/7 caf\xc3\xa9").ok());
  EXPECT_TRUE(CheckJobName("job", std::string(255, 'x')).ok());
  EXPECT_EQ(CheckJobName("task", "").message(), "a task needs a name");
  EXPECT_EQ(CheckJobName("role", std::string(256, 'x')).message(),
            "the name of a role has at most 255 bytes, not 256");
  EXPECT_EQ(CheckJobName("job", "a\nb").message(),
            "the name of the job \"a\\nb\" is not UTF-8 without control characters");
  EXPECT_FALSE(CheckJobName("job", "\xff").ok());
}

TEST(JobIds, TheRankInANameIsTheNumberBehindTheRole) {
  EXPECT_EQ(RankInName("worker", "worker0"), 0);
  EXPECT_EQ(RankInName("worker", "worker12"), 12);
  EXPECT_EQ(RankInName("worker", "worker65535"), 65535);
  for (const char* other : {"worker65536", "worker", "worker01", "worker-1", "worker+1", "worker 1",
                            "ps1", "worker1x", "worker99999999999"}) {
    EXPECT_EQ(RankInName("worker", other), -1) << other;
  }
}

TEST(JobIds, AJobHasOneShardAndJobsSpread) {
  int first = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string job = "job-" + std::to_string(i);
    const int shard = ShardOfJob(job, 4);
    EXPECT_EQ(ShardOfJob(job, 4), shard);
    EXPECT_EQ(ShardOfJob(job, 1), 0);
    if (shard == 0) ++first;
  }
  EXPECT_GT(first, 180);
  EXPECT_LT(first, 320);
}

}  // namespace
}  // namespace phalanx
