// Messages between members that die, come again and move, over links that are lost. What arrives at
// a life was sent to it, once and in order; what has left arrives, unless a link or a member was
// lost; every Send ends.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/jobs/messages/testing/message_world.h"

namespace phalanx::jobs {
namespace {

using testing::MessageWorld;

constexpr uint64_t kSeeds = 200;
constexpr int kNodes = 3;
constexpr int kMembers = 5;
constexpr int kActions = 600;

int Any(MessageWorld& world, int below) {
  return static_cast<int>(world.random().Below(static_cast<uint64_t>(below)));
}

void Act(MessageWorld& world) {
  Random& random = world.random();
  const int one = Any(world, kMembers), other = Any(world, kMembers);
  const uint64_t draw = random.Below(1000);
  if (draw < 600) {
    if (!world.Begun(one) || one == other) return;
    const uint64_t burst = 1 + random.Below(8);
    for (uint64_t i = 0; i < burst; ++i) {
      const size_t bytes = random.Chance(0.1) ? random.Below(kMaxMessageBytes) : random.Below(9000);
      world.Send(one, other, bytes,
                 random.Chance(0.3) ? absl::Milliseconds(random.Below(50)) : absl::Minutes(10));
    }
    return;
  }
  if (draw < 960) return world.Take(one, random.Below(12));
  if (draw < 970) return world.LoseLink(Any(world, kNodes), Any(world, kNodes));
  if (draw < 985) return world.Start(one, Any(world, kNodes));
  if (world.Begun(one)) world.Stop(one);
}

// What the world shows of one pair after everything has come to rest.
void CheckPair(MessageWorld& world, const std::pair<LifeKey, LifeKey>& key,
               const MessageWorld::Pair& pair) {
  const std::string name = absl::StrCat(key.first.ToString(), " to ", key.second.ToString());
  std::vector<uint64_t> left;
  for (size_t i = 0; i < pair.sends.size(); ++i) {
    // The Sends of a dead member end with it.
    if (!pair.sends[i].has_value() && world.Live(key.first)) {
      world.violations.push_back(absl::StrCat(name, ": Send ", i, " did not end"));
    }
    if (pair.sends[i].has_value() && pair.sends[i]->ok()) left.push_back(i);
  }
  for (size_t i = 1; i < pair.arrived.size(); ++i) {
    if (pair.arrived[i] <= pair.arrived[i - 1]) {
      world.violations.push_back(
          absl::StrCat(name, ": ", pair.arrived[i], " after ", pair.arrived[i - 1]));
    }
  }
  const bool all_live = world.Live(key.first) && world.Live(key.second);
  if (all_live && !pair.link_lost && pair.arrived != left) {
    world.violations.push_back(
        absl::StrCat(name, ": ", pair.arrived.size(), " of ", left.size(), " arrived"));
  }
}

std::vector<std::string> RunSimulation(uint64_t seed) {
  MessageWorld world(seed, kNodes);
  for (int rank = 0; rank < kMembers; ++rank) world.Start(rank, Any(world, kNodes));
  for (int i = 0; i < kActions; ++i) {
    Act(world);
    world.Run(absl::Microseconds(world.random().Below(1000)));
  }
  for (int i = 0; i < 1000; ++i) {
    for (int rank = 0; rank < kMembers; ++rank) world.Take(rank, 1000);
    world.Run(absl::Milliseconds(20));
  }
  for (const auto& [key, pair] : world.pairs()) CheckPair(world, key, pair);
  for (int node = 0; node < kNodes; ++node) {
    if (world.core(node).parked_bytes() != 0) world.violations.push_back("parked for ever");
  }
  return world.violations;
}

TEST(MessageSimulation, MessagesArriveOnceAndInOrderAtTheLifeToWhichTheyWereSent) {
  const uint64_t first = ::phalanx::testing::TestSeed(1);
  const uint64_t seeds = ::phalanx::testing::SeedGiven() ? 1 : kSeeds;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    EXPECT_THAT(RunSimulation(seed), ::testing::IsEmpty());
    if (HasFailure()) break;
  }
}

class MessageDefects : public ::testing::TestWithParam<Defect> {};

TEST_P(MessageDefects, AreDetected) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<std::string> violations;
    {
      const ::phalanx::testing::ScopedDefect defect(GetParam());
      violations = RunSimulation(seed);
    }
    if (violations.empty()) continue;
    EXPECT_THAT(RunSimulation(seed), ::testing::IsEmpty()) << "seed " << seed;
    return;
  }
  ADD_FAILURE() << DefectName(GetParam()) << " was not detected";
}

INSTANTIATE_TEST_SUITE_P(Messages, MessageDefects,
                         ::testing::Values(Defect::kMessageTwice, Defect::kMessageToOlderLife,
                                           Defect::kMessageCreditLost));

}  // namespace
}  // namespace phalanx::jobs
