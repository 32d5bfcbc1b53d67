#include "src/ps_lite/keeper/barriers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Peer kRoot{};
constexpr Peer kServer0{Role::kServer, 0};
constexpr Peer kWorker0{Role::kWorker, 0};
constexpr Peer kWorker1{Role::kWorker, 1};
constexpr int kAll = 7, kWorkers = 4;

// "9:1,2", in the order of nodes.
std::vector<std::string> Texts(const std::vector<Release>& releases) {
  std::vector<std::string> texts;
  for (const Release& each : releases) {
    std::string text = std::to_string(each.to.id()) + ":";
    for (const int call : each.calls)
      text += (text.back() == ':' ? "" : ",") + std::to_string(call);
    texts.push_back(text);
  }
  return texts;
}

// A job of one scheduler, server and two workers that have all started.
Barriers Started() {
  Barriers barriers(1, 1, 2);
  std::string wrong;
  for (const Peer peer : {kRoot, kServer0, kWorker0, kWorker1}) barriers.Start(peer, 1, &wrong);
  EXPECT_EQ(wrong, "");
  EXPECT_TRUE(barriers.started());
  return barriers;
}

TEST(Barriers, StartEndsForAllWithTheLast) {
  Barriers barriers(1, 1, 2);
  std::string wrong;
  EXPECT_THAT(barriers.Start(kWorker1, 4, &wrong), IsEmpty());
  EXPECT_THAT(barriers.Start(kRoot, 1, &wrong), IsEmpty());
  EXPECT_EQ(barriers.Missing(), "1 server, 1 worker");
  EXPECT_THAT(barriers.Start(kServer0, 2, &wrong), IsEmpty());
  EXPECT_FALSE(barriers.started());
  EXPECT_THAT(Texts(barriers.Start(kWorker0, 3, &wrong)), ElementsAre("11:4", "1:1", "8:2", "9:3"));
  EXPECT_THAT(barriers.Ranks(Role::kWorker), ElementsAre(0, 1));
  EXPECT_EQ(wrong, "");
  EXPECT_THAT(barriers.Start(kWorker1, 5, &wrong), IsEmpty());
  EXPECT_NE(wrong, "");
}

TEST(Barriers, ACustomerThatStartsCountsAsAWorker) {
  Barriers barriers(1, 0, 2);
  std::string wrong;
  barriers.Start(kRoot, 1, &wrong);
  barriers.Start(kWorker0, 1, &wrong);
  EXPECT_THAT(Texts(barriers.Start(kWorker0, 2, &wrong)), ElementsAre("1:1", "9:1", "9:2"));
  EXPECT_THAT(barriers.Ranks(Role::kWorker), ElementsAre(0));
  // Both are waited for.
  EXPECT_THAT(barriers.Arrive(kRoot, 2, kAll), IsEmpty());
  EXPECT_THAT(barriers.Arrive(kWorker0, 3, kAll), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kWorker0, 4, kAll)), ElementsAre("1:2", "9:3,4"));
}

TEST(Barriers, ABarrierEndsWithItsGroup) {
  Barriers barriers = Started();
  EXPECT_THAT(barriers.Arrive(kWorker1, 2, kWorkers), IsEmpty());
  EXPECT_THAT(barriers.Arrive(kServer0, 2, kAll), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kWorker0, 2, kWorkers)), ElementsAre("9:2", "11:2"));
  // The next one is another one.
  EXPECT_THAT(barriers.Arrive(kWorker0, 3, kWorkers), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kWorker1, 3, kWorkers)), ElementsAre("9:3", "11:3"));
}

TEST(Barriers, ACallThatComesAgainCountsOnce) {
  Barriers barriers = Started();
  EXPECT_THAT(barriers.Arrive(kWorker0, 2, kWorkers), IsEmpty());
  EXPECT_THAT(barriers.Arrive(kWorker0, 2, kWorkers), IsEmpty());
  // A second customer that has not started stands for no other process.
  EXPECT_THAT(barriers.Arrive(kWorker0, 3, kWorkers), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kWorker1, 2, kWorkers)), ElementsAre("9:2,3", "11:2"));
}

TEST(Barriers, WaitsForNoneThatHasLeft) {
  Barriers barriers = Started();
  for (const Peer peer : {kRoot, kServer0, kWorker0})
    EXPECT_THAT(barriers.Arrive(peer, 2, kAll), IsEmpty());
  EXPECT_THAT(Texts(barriers.Leave(kWorker1)), ElementsAre("1:2", "8:2", "9:2"));
  EXPECT_THAT(barriers.Leave(kWorker1), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kWorker0, 3, kWorkers)), ElementsAre("9:3"));
}

// ---- next lives

TEST(Barriers, ANextLifeStartsInPlaceOfTheOneBefore) {
  Barriers barriers(1, 1, 1);
  std::string wrong;
  EXPECT_TRUE(barriers.Hear(kServer0, 4));
  barriers.Start(kServer0, 1, &wrong);
  EXPECT_EQ(barriers.Missing(), "1 scheduler, 1 worker");
  barriers.Die(kServer0, 3);
  EXPECT_EQ(barriers.Missing(), "1 scheduler, 1 worker");
  barriers.Die(kServer0, 4);
  EXPECT_EQ(barriers.Missing(), "1 scheduler, 1 server, 1 worker");
  barriers.Start(kRoot, 1, &wrong);
  barriers.Start(kWorker0, 1, &wrong);
  EXPECT_FALSE(barriers.started());
  // Its message can come before the news of the death.
  EXPECT_TRUE(barriers.Hear(kServer0, 5));
  EXPECT_FALSE(barriers.Hear(kServer0, 4));
  EXPECT_THAT(Texts(barriers.Start(kServer0, 1, &wrong)), ElementsAre("1:1", "9:1", "8:1"));
  // Behind the start of all it starts at once.
  EXPECT_TRUE(barriers.Hear(kServer0, 6));
  const std::vector<Release> released = barriers.Start(kServer0, 2, &wrong);
  EXPECT_THAT(Texts(released), ElementsAre("8:2"));
  EXPECT_EQ(released[0].life, 6u);
  EXPECT_EQ(wrong, "");
  // No other one can.
  barriers.Start(kServer0, 3, &wrong);
  EXPECT_NE(wrong, "");
}

TEST(Barriers, ANextLifeMakesItsBarriersAgain) {
  Barriers barriers = Started();
  std::string wrong;
  const auto all = [&](int call, bool last) {
    for (const Peer peer : {kRoot, kWorker0, kWorker1}) barriers.Arrive(peer, call, kAll, last);
    return Texts(barriers.Arrive(kServer0, call, kAll, last));
  };
  EXPECT_THAT(all(2, false), ElementsAre("1:2", "8:2", "9:2", "11:2"));
  // It dies in the second one, which waits for its next life.
  EXPECT_THAT(barriers.Arrive(kServer0, 3, kAll), IsEmpty());
  barriers.Die(kServer0, 0);
  for (const Peer peer : {kRoot, kWorker0, kWorker1})
    EXPECT_THAT(barriers.Arrive(peer, 3, kAll), IsEmpty());
  EXPECT_TRUE(barriers.Hear(kServer0, 1));
  EXPECT_THAT(Texts(barriers.Start(kServer0, 1, &wrong)), ElementsAre("8:1"));
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 2, kAll)), ElementsAre("8:2"));
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 3, kAll)), ElementsAre("1:3", "8:3", "9:3", "11:3"));
  // In the end's barrier it waits for the others, and after that for none.
  EXPECT_TRUE(barriers.Hear(kServer0, 2));
  barriers.Start(kServer0, 1, &wrong);
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 2, kAll)), ElementsAre("8:2"));
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 3, kAll)), ElementsAre("8:3"));
  EXPECT_THAT(all(4, true), ElementsAre("1:4", "8:4", "9:4", "11:4"));
  EXPECT_TRUE(barriers.Hear(kServer0, 3));
  barriers.Start(kServer0, 1, &wrong);
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 2, kAll, true)), ElementsAre("8:2"));
}

// Which call is which barrier is not known: they are counted.
TEST(Barriers, ANextLifeCannotLeaveOutABarrier) {
  Barriers barriers = Started();
  std::string wrong;
  for (const Peer peer : {kRoot, kServer0, kWorker0, kWorker1}) barriers.Arrive(peer, 2, kAll);
  EXPECT_TRUE(barriers.Hear(kServer0, 1));
  barriers.Start(kServer0, 1, &wrong);
  // What the program means as its second one ends as the first one.
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 2, kAll)), ElementsAre("8:2"));
  for (const Peer peer : {kRoot, kWorker0, kWorker1})
    EXPECT_THAT(barriers.Arrive(peer, 3, kAll), IsEmpty());
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 3, kAll)), ElementsAre("1:3", "8:3", "9:3", "11:3"));
}

TEST(Barriers, ANextLifeMakesTheCallsOfAllItsCustomersAgain) {
  Barriers barriers(0, 2, 1);
  std::string wrong;
  barriers.Start(kServer0, 1, &wrong);
  barriers.Start(kServer0, 2, &wrong);
  barriers.Start(kWorker0, 1, &wrong);
  EXPECT_TRUE(barriers.started());
  barriers.Arrive(kServer0, 3, kAll);
  barriers.Arrive(kServer0, 4, kAll);
  EXPECT_THAT(Texts(barriers.Arrive(kWorker0, 2, kAll)), ElementsAre("8:3,4", "9:2"));
  EXPECT_TRUE(barriers.Hear(kServer0, 1));
  EXPECT_THAT(Texts(barriers.Start(kServer0, 1, &wrong)), ElementsAre("8:1"));
  EXPECT_THAT(Texts(barriers.Start(kServer0, 2, &wrong)), ElementsAre("8:2"));
  EXPECT_EQ(wrong, "");
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 3, kAll)), ElementsAre("8:3"));
  EXPECT_THAT(Texts(barriers.Arrive(kServer0, 4, kAll)), ElementsAre("8:4"));
  EXPECT_THAT(barriers.Arrive(kServer0, 5, kAll), IsEmpty());
  barriers.Arrive(kServer0, 6, kAll);
  EXPECT_THAT(Texts(barriers.Arrive(kWorker0, 3, kAll)), ElementsAre("8:5,6", "9:3"));
}

}  // namespace
}  // namespace phalanx::ps_lite
