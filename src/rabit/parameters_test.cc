#include "src/rabit/parameters.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::rabit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

struct Outcome {
  Parameters parameters;
  std::string wrong;
};

Outcome Read(std::vector<const char*> arguments, std::map<std::string, std::string> variables = {},
             bool mock = false) {
  Outcome outcome;
  outcome.wrong = ReadParameters(
      static_cast<int>(arguments.size()), arguments.data(),
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      mock, &outcome.parameters);
  return outcome;
}

TEST(Parameters, AreThoseOfASingleProcessIfNothingIsGiven) {
  const Outcome read = Read({"program", "10000", "name=value", "=", "mock=", nullptr});
  EXPECT_EQ(read.wrong, "");
  EXPECT_FALSE(read.parameters.launched);
  EXPECT_EQ(read.parameters.role, "worker");
  EXPECT_EQ(read.parameters.peer_timeout_ns, 1800 * kSecond);
  EXPECT_THAT(read.parameters.unused, IsEmpty());
}

TEST(Parameters, AreLaunchedByAJob) {
  EXPECT_TRUE(Read({}, {{"PHALANX_JOB", "train"}}).parameters.launched);
  // A launch without a job is none of ours.
  EXPECT_THAT(Read({}, {{"DMLC_TRACKER_URI", "10.0.0.1"}}).wrong, HasSubstr("`phalanx launch`"));
  EXPECT_EQ(Read({}, {{"DMLC_TRACKER_URI", "NULL"}}).wrong, "");
  // One process, although there is a job.
  EXPECT_FALSE(Read({"rabit_tracker_uri=NULL"}, {{"PHALANX_JOB", "train"}}).parameters.launched);
}

TEST(Parameters, OfArgumentsCountBeforeTheEnvironment) {
  const Outcome read =
      Read({"rabit_timeout_sec=7", "rabit_task_id=4", "rabit_world_size=9"},
           {{"rabit_timeout_sec", "8"}, {"rabit_task_id", "5"}, {"rabit_world_size", "6"}});
  EXPECT_EQ(read.parameters.peer_timeout_ns, 7 * kSecond);
  EXPECT_EQ(read.parameters.task, "worker4");
  EXPECT_EQ(read.parameters.world, 9);
}

TEST(Parameters, OfOtherLaunchersCountBehindTheLaunchsOwn) {
  const std::map<std::string, std::string> others = {
      {"DMLC_TASK_ID", "3"}, {"DMLC_NUM_WORKER", "5"}, {"DMLC_NUM_ATTEMPT", "2"}};
  const Outcome alone = Read({}, others);
  EXPECT_EQ(alone.parameters.task, "worker3");
  EXPECT_EQ(alone.parameters.world, 5);
  EXPECT_EQ(alone.parameters.life, 2);
  std::map<std::string, std::string> both = others;
  both.insert({{"PHALANX_JOB", "j"},
               {"PHALANX_TASK", "worker0"},
               {"PHALANX_WORLD", "2"},
               {"PHALANX_LIFE", "1"}});
  const Outcome launched = Read({}, both);
  EXPECT_EQ(launched.parameters.task, "");
  EXPECT_EQ(launched.parameters.world, 0);
  EXPECT_EQ(launched.parameters.life, 1);
  EXPECT_EQ(Read({"rabit_num_trial=3"}, both).parameters.life, 3);
}

TEST(Parameters, NameTasksAndWorlds) {
  EXPECT_EQ(Read({"rabit_task_id=trainer7"}).parameters.task, "trainer7");
  EXPECT_EQ(Read({"rabit_task_id=7"}, {{"PHALANX_ROLE", "trainer"}}).parameters.task, "trainer7");
  EXPECT_EQ(Read({"rabit_task_id=NULL"}).parameters.task, "");
  EXPECT_EQ(Read({"rabit_world_size=-1"}).parameters.world, 0);
  EXPECT_EQ(Read({"DMLC_ROLE=server"}).parameters.role, "server");
}

TEST(Parameters, DoNotContradictTheLaunch) {
  const std::map<std::string, std::string> launch = {{"PHALANX_JOB", "j"}, {"PHALANX_WORLD", "3"}};
  EXPECT_EQ(Read({"rabit_world_size=3"}, launch).wrong, "");
  EXPECT_EQ(Read({"rabit_world_size=4"}, launch).wrong,
            "rabit_world_size=4: the launch has a world of 3");
  // A single process within the launch.
  EXPECT_EQ(Read({"rabit_world_size=1", "rabit_tracker_uri=NULL"}, launch).wrong, "");
}

TEST(Parameters, LimitCopies) {
  const Outcome read = Read({"rabit_global_replica=5", "rabit_local_replica=3"});
  EXPECT_EQ(read.parameters.result_copies, 5);
  EXPECT_EQ(read.parameters.local_copies, 3);
  const Outcome many = Read({"rabit_global_replica=100", "rabit_local_replica=100"});
  EXPECT_EQ(many.parameters.result_copies, 16);
  EXPECT_EQ(many.parameters.local_copies, 15);
}

TEST(Parameters, WaitForEverOnRequest) {
  EXPECT_EQ(Read({"rabit_timeout=false"}).parameters.peer_timeout_ns, -1);
  EXPECT_EQ(Read({"rabit_timeout=0", "rabit_timeout_sec=5"}).parameters.peer_timeout_ns, -1);
  EXPECT_EQ(Read({"rabit_timeout=True", "rabit_timeout_sec=5"}).parameters.peer_timeout_ns,
            5 * kSecond);
}

TEST(Parameters, WithoutAnEffectAreListedOnce) {
  const Outcome read =
      Read({"rabit_reduce_buffer=256MB", "rabit_reduce_ring_mincount=10", "rabit_debug=1",
            "rabit_debug=0", "rabit_of_later=x", "mock=1,2,3,4", "report_stats=1"},
           {{"rabit_tree_reduce_minsize", "1M"}});
  EXPECT_EQ(read.wrong, "");
  EXPECT_THAT(
      read.parameters.unused,
      ElementsAre("rabit_tree_reduce_minsize", "rabit_reduce_buffer", "rabit_reduce_ring_mincount",
                  "rabit_debug", "rabit_of_later", "mock", "report_stats"));
}

TEST(Parameters, OfTheMockLibrary) {
  const Outcome read = Read(
      {"mock=0,0,1,0", "mock=9,1,12,1", "report_stats=1", "force_local=true", "rabit_num_trial=3"},
      {}, true);
  EXPECT_EQ(read.wrong, "");
  EXPECT_THAT(read.parameters.deaths, ElementsAre(MockDeath{0, 0, 1, 0}, MockDeath{9, 1, 12, 1}));
  EXPECT_TRUE(read.parameters.report_stats);
  EXPECT_TRUE(read.parameters.force_local);
  EXPECT_EQ(read.parameters.life, 3);
  EXPECT_THAT(read.parameters.unused, IsEmpty());
}

TEST(Parameters, WithBadValuesAreErrorsThatNameThem) {
  for (const char* const argument : {"rabit_world_size=0",
                                     "rabit_world_size=many",
                                     "rabit_global_replica=0",
                                     "rabit_local_replica=-1",
                                     "rabit_timeout=maybe",
                                     "rabit_timeout_sec=0",
                                     "rabit_timeout_sec=99999999999",
                                     "rabit_bootstrap_cache=2",
                                     "rabit_reduce_buffer=MB",
                                     "rabit_reduce_buffer=1T",
                                     "rabit_reduce_buffer=-1",
                                     "rabit_reduce_ring_mincount=1.5",
                                     "rabit_tracker_port=x",
                                     "rabit_debug=on",
                                     "rabit_num_trial=-1",
                                     "mock=1,2,3",
                                     "mock=1,2,3,4,5",
                                     "mock=1,2,3,x",
                                     "mock=-1,0,0,0",
                                     "force_local=x",
                                     "report_stats=9"}) {
    EXPECT_THAT(Read({argument}, {}, true).wrong, HasSubstr(argument)) << argument;
  }
  EXPECT_THAT(Read({}, {{"rabit_timeout_sec", "soon"}}).wrong,
              HasSubstr("rabit_timeout_sec=soon: the value is a number from 1 on"));
}

}  // namespace
}  // namespace phalanx::rabit
