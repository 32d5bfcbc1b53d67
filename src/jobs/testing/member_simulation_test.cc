// Jobs whose tasks join, leave, die and are started twice, while nodes and the shard die and
// return and sessions are cut. MemberWorld checks what every node sees. Every defect of jobs,
// switched on, is found within the seeds that pass without it.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/testing/member_world.h"

namespace phalanx::jobs::testing {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::ScopedDefect;

constexpr uint64_t kSeeds = 200;
constexpr int kNodes = 4;
constexpr int kSteps = 120;

// Node 0 lives through everything with a member of each job, so that no job is forgotten.
class Workload {
 public:
  explicit Workload(uint64_t seed) : w_({.nodes = kNodes, .seed = seed}) {}

  absl::Status Do() {
    for (const char* job : {"natural", "mixed"}) w_.Join(0, {job, "witness", "witness", 1});
    for (int step = 0; step < kSteps && w_.broken().ok(); ++step) {
      w_.RunFor(absl::Milliseconds(static_cast<int64_t>(w_.random().Below(150))));
      Act();
    }
    if (w_.broken().ok()) w_.Settle();
    return w_.broken();
  }

 private:
  int Pick(int bound) { return static_cast<int>(w_.random().Below(static_cast<uint64_t>(bound))); }
  int Victim() { return 1 + Pick(kNodes - 1); }

  JoinArguments Task() {
    const int number = Pick(4);
    if (w_.random().Chance(0.6)) {
      return {"natural", "worker", absl::StrCat("worker", number), 4};
    }
    // Two of these have the ranks of their names, unless the others were faster.
    static constexpr const char* kNames[] = {"alpha", "worker0", "beta", "worker1"};
    return {"mixed", "worker", kNames[number], 4};
  }

  void Act() {
    const int what = Pick(100);
    if (what < 45) return Start();
    if (what < 70) return End();
    if (what < 80) {
      const int victim = Victim();
      return w_.node_cut(victim) ? w_.Heal(victim) : w_.Cut(victim);
    }
    if (what < 88) {
      const int victim = Victim();
      return w_.node_up(victim) ? w_.CrashNode(victim) : w_.StartNode(victim);
    }
    if (what < 92 || !w_.shard_up()) return w_.shard_up() ? w_.StopShard() : w_.StartShard();
    w_.RunFor(absl::Seconds(Pick(3)));
  }

  void Start() {
    const JoinArguments task = Task();
    bool running = false;
    for (const auto& client : w_.clients()) {
      const bool same =
          client->arguments().job == task.job && client->arguments().task == task.task;
      if (same && client->state() != Client::State::kEnded) running = true;
    }
    // Sometimes a task is started while an earlier life is still there.
    if (running && !w_.random().Chance(0.2)) return;
    const int node = Pick(kNodes);
    if (w_.node_up(node)) w_.Join(node, task);
  }

  void End() {
    std::vector<Client*> running;
    for (const auto& client : w_.clients()) {
      const bool witness = client->arguments().role == "witness";
      if (!witness && client->state() != Client::State::kEnded) running.push_back(client.get());
    }
    if (running.empty()) return;
    Client& client = *running[static_cast<size_t>(Pick(static_cast<int>(running.size())))];
    w_.End(client, w_.random().Chance(0.3) ? MemberState::kLeft : MemberState::kDied);
  }

  MemberWorld w_;
};

TEST(MemberSimulation, EveryNodeSeesTheMembersThatLive) {
  const uint64_t first = ::phalanx::testing::TestSeed(1);
  const uint64_t seeds = ::phalanx::testing::SeedGiven() ? 1 : kSeeds;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    ASSERT_THAT(Workload(seed).Do(), IsOk());
  }
}

// Returns the first seed that detects the defect, and what it found.
std::optional<std::string> Detect(Defect defect) {
  const ScopedDefect on(defect);
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const absl::Status found = Workload(seed).Do();
    if (!found.ok()) return absl::StrCat("seed ", seed, ": ", found.message());
  }
  return std::nullopt;
}

class MemberDefectsTest : public ::testing::TestWithParam<Defect> {};

TEST_P(MemberDefectsTest, IsDetected) {
  const std::optional<std::string> found = Detect(GetParam());
  EXPECT_TRUE(found.has_value()) << DefectName(GetParam());
  RecordProperty("found", found.value_or(""));
}

INSTANTIATE_TEST_SUITE_P(All, MemberDefectsTest,
                         ::testing::Values(Defect::kOldLifeEndsNewLife, Defect::kRankGivenTwice,
                                           Defect::kLifeReusedAfterRestart, Defect::kDeathNotTold,
                                           Defect::kFencedMemberRevived,
                                           Defect::kReplacedLifeContinues,
                                           Defect::kMemberForgottenAtRestart),
                         [](const auto& info) {
                           std::string name(DefectName(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace phalanx::jobs::testing
