#include "src/cli/launch/declared_deaths.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::runtime {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Optional;

// All tasks are here.
DeclaredDeaths Of(const std::vector<std::string>& fail,
                  const std::vector<std::string>& command = {}, int tasks = 10) {
  return DeclaredDeaths::Parse(fail, command, LaunchTasks({{kWorkerRole, tasks, tasks, 0}}))
      .value();
}

// Two servers and three workers, which are here.
LaunchTasks Servers() { return LaunchTasks({{kServerRole, 2, 2, 0}, {kWorkerRole, 3, 3, 0}}); }

TEST(DeclaredDeathsTest, EachLifeHasItsPoint) {
  const DeclaredDeaths deaths = Of({"5@57:entry", "4@load", "5@3:put:100", "5@checkpoint"});
  EXPECT_EQ(deaths.PointOf(5, 0), "57");
  EXPECT_EQ(deaths.PointOf(5, 1), "3:put:100");
  EXPECT_EQ(deaths.PointOf(5, 2), "checkpoint:1");
  EXPECT_EQ(deaths.PointOf(5, 3), "");
  EXPECT_EQ(deaths.PointOf(4, 0), "load");
  EXPECT_EQ(deaths.PointOf(0, 0), "");
  EXPECT_TRUE(deaths.Has(5, 2));
  EXPECT_FALSE(deaths.Has(5, 3));
  EXPECT_FALSE(deaths.Has(0, 0));
}

TEST(DeclaredDeathsTest, ThoseOfOtherLaunchesAreLeftOut) {
  const std::vector<std::string> fail = {"3@1", "6@2", "5@3", "0@4"};
  const std::vector<std::string> command = {"train", "mock=3,0,0,0", "mock=5,1,2,1",
                                            "mock=8,0,0,0"};
  auto deaths = DeclaredDeaths::Parse(fail, command, LaunchTasks({{kWorkerRole, 2, 8, 4}}));
  PHALANX_ASSERT_OK(deaths.status());
  EXPECT_EQ(deaths->PointOf(1, 0), "3");
  EXPECT_TRUE(deaths->Has(1, 1));
  EXPECT_THAT(deaths->TakeUnmade(),
              ElementsAre("declared death 5@3 was not made: worker5 has not had life 0",
                          "declared death mock=5,1,2,1 was not made: worker5 has not had life 1"));
}

TEST(DeclaredDeathsTest, ATaskIsANumberOrAName) {
  const DeclaredDeaths plain = Of({"worker5@57", "5@58"});
  EXPECT_EQ(plain.PointOf(5, 0), "57");
  EXPECT_EQ(plain.PointOf(5, 1), "58");
  // A role can end with a digit.
  auto odd = DeclaredDeaths::Parse({"ps23@1", "3@2"}, {}, LaunchTasks({{"ps2", 4, 4, 0}}));
  PHALANX_ASSERT_OK(odd.status());
  EXPECT_EQ(odd->PointOf(3, 0), "1");
  EXPECT_EQ(odd->PointOf(3, 1), "2");
}

TEST(DeclaredDeathsTest, TasksOfAParameterServerDieAtAClockOfALife) {
  auto deaths = DeclaredDeaths::Parse(
      {"server:1,20,2@snapshot:1000", "server:1,9,0@push", "worker:2,0,1@pull"}, {}, Servers());
  PHALANX_ASSERT_OK(deaths.status());
  EXPECT_EQ(deaths->PointOf(1, 0), "push:9");
  EXPECT_EQ(deaths->PointOf(1, 1), "");
  EXPECT_EQ(deaths->PointOf(1, 2), "snapshot:20:1000");
  EXPECT_EQ(deaths->PointOf(4, 0), "");
  EXPECT_EQ(deaths->PointOf(4, 1), "pull:0");
  deaths->Ended(1, 0, "server1 ended by signal 9", "push:9");
  EXPECT_EQ(deaths->Missed(1, 0), std::nullopt);
  deaths->Ended(4, 1, "worker2 ended by signal 9", "");
  EXPECT_THAT(deaths->Missed(4, 1), Optional(HasSubstr("declared death worker:2,0,1@pull")));
  for (const char* text :
       {"server:1,9@push", "server:1,9,0,0@push", "server:1,9,x@push", "server:1,9,0@pull",
        "server:1,9,0@57", "server:1,9,0@snapshot", "server:1,9,0@push:1", "worker:1,9,0@restore",
        "worker:1,9,0@snapshot:1", "other:1,9,0@push", "server:,9,0@push", "server:1,9,0",
        "server:1,9,99999999999@push"}) {
    EXPECT_THAT(DeclaredDeaths::Parse({text}, {}, Servers()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("RANK,CLOCK,LIFE")))
        << text;
  }
  EXPECT_THAT(DeclaredDeaths::Parse({"server:2,9,0@push"}, {}, Servers()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there is no server2")));
  EXPECT_THAT(DeclaredDeaths::Parse({"server:1,9,0@push", "server:1,8,0@clock"}, {}, Servers()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("life 0 of server1 has")));
}

TEST(DeclaredDeathsTest, ANumberIsAWorkerBesideServers) {
  auto deaths = DeclaredDeaths::Parse({"1@57", "server1@58", "worker1@59", "server1@60", "2@61"},
                                      {"mock=0,1,1,0", "mock=3,1,1,0"}, Servers());
  PHALANX_ASSERT_OK(deaths.status());
  EXPECT_EQ(deaths->PointOf(0, 0), "");
  EXPECT_EQ(deaths->PointOf(1, 0), "58");
  EXPECT_EQ(deaths->PointOf(1, 1), "60");
  EXPECT_FALSE(deaths->Has(0, 0));
  EXPECT_TRUE(deaths->Has(2, 0));  // the words of Rabit are of workers
  EXPECT_EQ(deaths->PointOf(3, 0), "57");
  EXPECT_EQ(deaths->PointOf(3, 1), "59");
  EXPECT_EQ(deaths->PointOf(4, 0), "61");
  deaths->Ended(1, 0, "server1 ended with exit code 0", "");
  EXPECT_THAT(deaths->Missed(1, 0),
              Optional(HasSubstr("declared death server1@58 was not made: server1 ended with")));
  EXPECT_THAT(deaths->TakeUnmade(),
              IsSupersetOf({"declared death server1@60 was not made: server1 has not had life 1",
                            "declared death 2@61 was not made: worker2 has not had life 0",
                            "declared death mock=3,1,1,0 was not made: there is no worker3"}));
  EXPECT_THAT(DeclaredDeaths::Parse({"server2@1"}, {}, Servers()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no server2 in a world of 2: \"server2@1\"")));
  EXPECT_THAT(DeclaredDeaths::Parse({"3@1"}, {}, Servers()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no worker3 in a world of 3")));
}

TEST(DeclaredDeathsTest, WordsOfRabitAreLeftToTasksOfOtherRoles) {
  auto deaths = DeclaredDeaths::Parse({}, {"mock=0,0,0,0"}, LaunchTasks({{"ps", 1, 1, 0}}));
  PHALANX_ASSERT_OK(deaths.status());
  EXPECT_THAT(deaths->TakeUnmade(), IsEmpty());
}

TEST(DeclaredDeathsTest, ALaunchWithoutWorkersReportsNoRankThatIsInNoLaunch) {
  const LaunchTasks servers({{kServerRole, 2, 2, 0}, {kWorkerRole, 0, 3, 0}});
  auto deaths = DeclaredDeaths::Parse({"worker1@5"}, {"mock=7,0,0,0", "mock=0,0,0,0"}, servers);
  PHALANX_ASSERT_OK(deaths.status());
  EXPECT_THAT(deaths->TakeUnmade(), IsEmpty());
}

TEST(DeclaredDeathsTest, AMadeDeathIsNeitherMissedNorLeft) {
  DeclaredDeaths deaths = Of({"3@57:entry", "3@leave"}, {"mock=1,1,1,0", "mock=1,1,1,1"});
  deaths.Ended(3, 0, "worker3 ended by signal 9 (Killed)", "57");
  EXPECT_EQ(deaths.Missed(3, 0), std::nullopt);
  deaths.Ended(1, 0, "worker1 ended by signal 9 (Killed)", "mock=1,1,1,0");
  deaths.Ended(1, 1, "worker1 ended by signal 9 (Killed)", "mock=01,1,1,1");
  deaths.Ended(3, 1, "worker3 ended by signal 9 (Killed)", "leave");
  deaths.Ended(3, 2, "worker3 ended with exit code 0", "");
  EXPECT_EQ(deaths.Missed(3, 1), std::nullopt);
  EXPECT_EQ(deaths.Missed(3, 2), std::nullopt);
  EXPECT_THAT(deaths.TakeUnmade(), IsEmpty());
}

TEST(DeclaredDeathsTest, ALifeThatEndsOtherwiseHasMissedItsDeath) {
  for (const char* mark : {"", "58", "57:put:0", "mock=3,0,0,0", "what"}) {
    DeclaredDeaths deaths = Of({"3@57"});
    deaths.Ended(3, 0, "worker3 ended with exit code 0", mark);
    EXPECT_THAT(
        deaths.Missed(3, 0),
        Optional(HasSubstr("declared death 3@57 was not made: worker3 ended with exit code 0")));
  }
}

TEST(DeclaredDeathsTest, EachUnmadeDeathIsNamedWithItsReason) {
  DeclaredDeaths deaths = Of({"3@57:entry"}, {"mock=0,0,1,0", "mock=0,1,1,0", "mock=4,1,3,0",
                                              "mock=4,1,3,2", "mock=12,0,0,0"});
  deaths.Ended(3, 0, "worker3 ended by signal 9 (Killed)", "57");
  deaths.Ended(0, 0, "worker0 ended by signal 9 (Killed)", "mock=0,0,1,0");
  deaths.Ended(4, 0, "worker4 ended with exit code 0", "");
  EXPECT_THAT(
      deaths.TakeUnmade(),
      ElementsAre(
          "declared death mock=0,1,1,0 was not made: worker0 ended by signal 9 (Killed) "
          "(mock=0,0,1,0) in life 0",
          "declared death mock=4,1,3,0 was not made: worker4 ended with exit code 0 in life 0",
          "declared death mock=4,1,3,2 was not made: worker4 has not had life 2",
          "declared death mock=12,0,0,0 was not made: there is no worker12"));
  EXPECT_THAT(deaths.TakeUnmade(), IsEmpty());
}

TEST(DeclaredDeathsTest, AMarkOfAnotherLifeOrProcessIsNone) {
  EXPECT_EQ(DeathInMark("1 77 57:put:0", 1, 77), "57:put:0");
  EXPECT_EQ(DeathInMark("1 78 57", 1, std::nullopt), "57");
  EXPECT_EQ(DeathInMark("1 77 a word", 1, 77), "a word");
  for (const char* mark : {"", "57", "77 57", "0 77 57", "1 78 57", "1  57", "x 77 57", "1 x 57"}) {
    EXPECT_EQ(DeathInMark(mark, 1, 77), "") << mark;
  }
}

TEST(DeclaredDeathsTest, BytesOfAMarkThatAreNoDeathAreEscaped) {
  DeclaredDeaths deaths = Of({"3@57"});
  deaths.Ended(3, 0, "worker3 ended by signal 9 (Killed)", "\x1b[2J\n57");
  EXPECT_THAT(deaths.Missed(3, 0), Optional(HasSubstr("(Killed) (\\x1b[2J\\n57) in life 0")));
}

TEST(DeclaredDeathsTest, AMockDeathIsNoReasonToStopAtOnce) {
  DeclaredDeaths deaths = Of({}, {"mock=0,0,1,0"});
  deaths.Ended(0, 0, "worker0 ended with exit code 0", "");
  EXPECT_EQ(deaths.PointOf(0, 0), "");
  EXPECT_EQ(deaths.Missed(0, 0), std::nullopt);
}

TEST(DeclaredDeathsTest, WordsOfTheProgramAreLeftToIt) {
  EXPECT_THAT(Of({}, {"mock", "mock=", "mock=1,2,3", "mock=1,2,3,4,5", "mock=a,1,1,0",
                      "mock=-1,1,1,0", "mock=1,1,1,", "--mock=1,1,1,0", "mock=1,1,1,99999999999",
                      "xmock=1,1,1,0", "mock=1, 1,1,0"})
                  .TakeUnmade(),
              IsEmpty());
}

TEST(DeclaredDeathsTest, ADeathThatIsDeclaredTwiceIsOne) {
  EXPECT_EQ(Of({}, {"mock=0,0,1,0", "mock=0,0,01,0"}).TakeUnmade().size(), 1u);
}

TEST(DeclaredDeathsTest, PointsThatATaskDoesNotHaveAreRefused) {
  const LaunchTasks tasks({{kServerRole, 2, 2, 0}, {kWorkerRole, 4, 4, 0}, {kSpareRole, 1, 1, 0}});
  for (const char* text : {"3@snapshot:1:2", "worker1@restore:1", "server1@pull:3",
                           "spare:0,9,0@restore", "spare0@push:9", "spare0@57"}) {
    EXPECT_THAT(DeclaredDeaths::Parse({text}, {}, tasks),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
  for (const char* text : {"server1@snapshot:1:2", "server1@restore:1", "3@pull:3", "3@clock:1"}) {
    EXPECT_THAT(DeclaredDeaths::Parse({text}, {}, tasks), testing::IsOk()) << text;
  }
}

TEST(DeclaredDeathsTest, ADeathWithoutALifeIsThatOfTheFirstOneThatHasNone) {
  const LaunchTasks tasks({{kServerRole, 2, 2, 0}, {kWorkerRole, 4, 4, 0}});
  PHALANX_ASSERT_OK_AND_ASSIGN(
      const DeclaredDeaths deaths,
      DeclaredDeaths::Parse({"server:1,9,1@push", "server1@57", "server1@58"}, {}, tasks));
  EXPECT_EQ(deaths.PointOf(1, 0), "57");
  EXPECT_EQ(deaths.PointOf(1, 1), "push:9");
  EXPECT_EQ(deaths.PointOf(1, 2), "58");
}

TEST(DeclaredDeathsTest, OtherTextsAreRefusedWithTheRightForms) {
  for (const char* text : {"", "3", "3@", "@3", "3@0", "3@-1", "3@1@1", "a@1", "3@1.5", "-1@1",
                           "3@put:1", "server3@57", "worker@57", "worker-3@57", "3@57:put",
                           "3@checkpoint:0", "3@unload", " 3@57"}) {
    EXPECT_THAT(DeclaredDeaths::Parse({text}, {}, LaunchTasks({{kWorkerRole, 4, 4, 0}})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("3@57 or worker3@57"), HasSubstr("CALL:put:BYTES"),
                               HasSubstr("checkpoint:N"))))
        << text;
  }
  EXPECT_THAT(DeclaredDeaths::Parse({"4@load"}, {}, LaunchTasks({{kWorkerRole, 4, 4, 0}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no worker4 in a world of 4")));
}

}  // namespace
}  // namespace phalanx::runtime
