#include "src/ps_lite/settings.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Values = std::map<std::string, std::string>;

Values With(Values values) {
  const Values defaults = {{"DMLC_ROLE", "server"},
                           {"DMLC_NUM_WORKER", "4"},
                           {"DMLC_NUM_SERVER", "2"},
                           {"DMLC_PS_ROOT_URI", "10.0.0.1"},
                           {"DMLC_PS_ROOT_PORT", "8000"}};
  values.insert(defaults.begin(), defaults.end());
  return values;
}

std::string Read(const Values& values, Settings* to) {
  return ReadSettings(
      [&](const char* name) {
        const auto found = values.find(name);
        return found == values.end() ? nullptr : found->second.c_str();
      },
      to);
}

std::string ErrorOf(const Values& values) {
  Settings settings;
  return Read(values, &settings);
}

TEST(Settings, AreThoseOfTheVariables) {
  Settings settings;
  EXPECT_EQ(Read(With({{"DMLC_RANK", "1"}, {"PS_VERBOSE", "2"}}), &settings), "");
  EXPECT_EQ(settings.role, Role::kServer);
  EXPECT_EQ(settings.count(Role::kWorker), 4);
  EXPECT_EQ(settings.count(Role::kServer), 2);
  EXPECT_EQ(settings.count(Role::kScheduler), 1);
  EXPECT_EQ(settings.root_host, "10.0.0.1");
  EXPECT_EQ(settings.root_port, 8000);
  EXPECT_EQ(settings.rank, 1);
  EXPECT_EQ(settings.verbose, 2);
  EXPECT_EQ(settings.timeout_seconds, kDefaultTimeoutSeconds);
  EXPECT_THAT(settings.unused, IsEmpty());
}

TEST(Settings, WithoutAnEffectAreListed) {
  Settings settings;
  EXPECT_EQ(
      Read(With({{"PS_RESEND", "1"}, {"DMLC_INTERFACE", "eth0"}, {"PS_DROP_MSG", ""}}), &settings),
      "");
  EXPECT_THAT(settings.unused, ElementsAre("DMLC_INTERFACE", "PS_RESEND"));
}

TEST(Settings, OfALaunchNeedNoRoot) {
  Values values = With({{"PHALANX_JOB", "a-job"}, {"DMLC_TASK_ID", "1"}});
  Settings settings;
  EXPECT_EQ(Read(values, &settings), "");
  EXPECT_FALSE(settings.launched);
  EXPECT_EQ(settings.keeper(), Peer{});
  values.erase("DMLC_PS_ROOT_URI");
  values.erase("DMLC_PS_ROOT_PORT");
  EXPECT_EQ(Read(values, &settings), "");
  EXPECT_TRUE(settings.launched);
  EXPECT_EQ(settings.job, "a-job");
  EXPECT_EQ(settings.rank, 1);
  EXPECT_EQ(settings.count(Role::kScheduler), 0);
  EXPECT_EQ(settings.keeper(), (Peer{Role::kWorker, 0}));
  values["PHALANX_LIFE"] = "1";
  values["DMLC_ROLE"] = "worker";
  EXPECT_THAT(ErrorOf(values), HasSubstr("PHALANX_LIFE=1: this worker was started again"));
  values["DMLC_ROLE"] = "server";
  EXPECT_FALSE(settings.restarted);
  EXPECT_EQ(Read(values, &settings), "");
  EXPECT_TRUE(settings.restarted);
  values["DMLC_ROLE"] = "scheduler";
  EXPECT_THAT(ErrorOf(values), HasSubstr("DMLC_PS_ROOT_PORT is not set"));
}

TEST(Settings, TablesAreThereUnlessTurnedOff) {
  Settings settings;
  EXPECT_EQ(Read(With({}), &settings), "");
  EXPECT_TRUE(settings.tables);
  EXPECT_EQ(Read(With({{"PHALANX_PS_TABLES", "0"}}), &settings), "");
  EXPECT_FALSE(settings.tables);
  EXPECT_THAT(ErrorOf(With({{"PHALANX_PS_TABLES", "no"}})), HasSubstr("PHALANX_PS_TABLES=no"));
}

// A job that is larger runs without them.
TEST(Settings, TablesAreThereForAsManyProcessesAsTheyCanHave) {
  const auto tables = [](const char* servers, const char* workers) {
    Settings settings;
    EXPECT_EQ(Read(With({{"DMLC_NUM_SERVER", servers}, {"DMLC_NUM_WORKER", workers}}), &settings),
              "");
    return settings.tables;
  };
  EXPECT_TRUE(tables("4096", "1"));
  EXPECT_FALSE(tables("4097", "1"));
  // And a scheduler.
  EXPECT_TRUE(tables("5", "65530"));
  EXPECT_FALSE(tables("5", "65531"));
}

TEST(Settings, ThatAreMissingAreNamed) {
  for (const char* const name : {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER",
                                 "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT"}) {
    Values values = With({});
    values.erase(name);
    EXPECT_THAT(ErrorOf(values), HasSubstr(std::string(name) + " is not set"));
    values[name] = "";
    EXPECT_THAT(ErrorOf(values), HasSubstr(std::string(name) + " is not set"));
  }
}

TEST(Settings, ThatAreWrongAreShown) {
  EXPECT_EQ(ErrorOf(With({{"DMLC_ROLE", "joint"}})),
            "DMLC_ROLE=joint: the value is scheduler, server or worker");
  EXPECT_EQ(ErrorOf(With({{"DMLC_NUM_WORKER", "two"}})),
            "DMLC_NUM_WORKER=two: the value is a number from 1 to 65536");
  EXPECT_EQ(ErrorOf(With({{"DMLC_NUM_WORKER", "0"}})),
            "DMLC_NUM_WORKER=0: the value is a number from 1 to 65536");
  EXPECT_EQ(ErrorOf(With({{"DMLC_NUM_SERVER", "2x"}})),
            "DMLC_NUM_SERVER=2x: the value is a number from 0 to 65536");
  EXPECT_EQ(ErrorOf(With({{"DMLC_PS_ROOT_PORT", "65536"}})),
            "DMLC_PS_ROOT_PORT=65536: the value is a number from 1 to 65535");
  EXPECT_EQ(ErrorOf(With({{"DMLC_RANK", "2"}})),
            "DMLC_RANK=2: the job has 2 processes of role server");
  EXPECT_EQ(ErrorOf(With({{"DMLC_NUM_SERVER", "0"}})),
            "DMLC_ROLE=server, but the job has none: DMLC_NUM_SERVER=0");
}

TEST(Peer, HasTheIdsOfPsLite) {
  EXPECT_EQ(Peer{}.id(), 1);
  EXPECT_EQ((Peer{Role::kServer, 3}).id(), 14);
  EXPECT_EQ((Peer{Role::kWorker, 3}).id(), 15);
  for (const int id : {1, 8, 9, 10, 1001, 131078}) EXPECT_EQ(PeerOf(id).id(), id);
  EXPECT_EQ(TextOf(PeerOf(10)), "server 10 (rank 1)");
}

}  // namespace
}  // namespace phalanx::ps_lite
