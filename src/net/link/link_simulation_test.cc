// Links under random faults. Three hosts send each other messages at random times while connections
// are reset, stall, break on one side and trickle, links are cut, nodes stop, forget each other and
// restart. Then the faults end, and everything that was not lost must arrive.
//
// LinkChecker verifies each message; a side that hears of a loss begins a new era. A seeded
// defect must be detected within the seeds that the test runs. (node_links_test has the one that
// needs a loss in the instant of a message.)
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/scoped_defect.h"
#include "src/common/testing/seed.h"
#include "src/net/testing/sim_links.h"

namespace phalanx::net {
namespace {

using testing::SimLinkNode;
using testing::SimLinks;

constexpr uint64_t kSeeds = 200;
constexpr int kHosts = 3;
constexpr int kActions = 100;

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed), world_(Fabric(seed), seed), hosts_(kHosts), incarnations_(kHosts, 0) {
    for (int host = 0; host < kHosts; ++host) StartNode(host);
  }

  // Returns the violations.
  std::vector<std::string> Run() {
    for (int i = 0; i < kActions; ++i) {
      Act();
      world_.RunFor(absl::Microseconds(random_.Below(random_.Chance(0.1) ? 3'000'000 : 20'000)));
    }
    world_.fabric().HealAll();
    world_.fabric().SetShortIo(0, false);
    for (SimLinkNode* const node : hosts_) node->process().Resume();
    world_.RunFor(absl::Seconds(30));
    for (const auto& node : world_.nodes()) {
      for (const std::string& what : node->checker.violations) {
        violations_.push_back(absl::StrCat(node->key().ToString(), " got ", what));
      }
    }
    for (SimLinkNode* const from : hosts_) {
      for (SimLinkNode* const to : hosts_) {
        if (from != to) CheckAllArrived(*from, *to);
      }
    }
    return violations_;
  }

 private:
  static sim::SimFabric::Options Fabric(uint64_t seed) {
    sim::SimFabric::Options options;
    options.seed = seed;
    options.link.jitter = absl::Microseconds(seed % 3 * 200);
    options.link.bytes_per_second = seed % 4 == 0 ? 20e6 : 0;
    options.short_io = seed % 5 == 0 ? 0.3 : 0;
    return options;
  }

  std::string Host(int host) const { return std::string(1, static_cast<char>('a' + host)); }
  int AnyHost() { return static_cast<int>(random_.Below(kHosts)); }

  void StartNode(int host) {
    NodeLinksOptions options;
    options.silence_timeout = absl::Milliseconds(500);
    options.connect_timeout = absl::Milliseconds(500);
    hosts_[host] =
        &world_.Add(Host(host), options, {static_cast<uint64_t>(host) + 1, ++incarnations_[host]});
  }

  void Act() {
    const int one = AnyHost();
    const int other = (one + 1 + static_cast<int>(random_.Below(kHosts - 1))) % kHosts;
    const uint64_t draw = random_.Below(100);
    if (draw < 60) return SendSome(one, other);
    if (draw < 90) return BreakSomething(one, other, random_.Below(8));
    if (draw < 96) {
      if (!hosts_[one]->process().stalled()) hosts_[one]->links().Forget(hosts_[other]->key());
      return;
    }
    if (draw < 97) return Restart(one);
    world_.fabric().HealAll();
    world_.fabric().SetShortIo(0, false);
    for (SimLinkNode* const node : hosts_) node->process().Resume();
  }

  void SendSome(int one, int other) {
    if (hosts_[one]->process().stalled()) return;
    const uint64_t messages = 1 + random_.Below(10);
    for (uint64_t i = 0; i < messages; ++i) {
      const size_t sizes[] = {0, 1 + random_.Below(64), 900 + random_.Below(200),
                              random_.Below(100'000)};
      const size_t bytes = sizes[random_.Below(random_.Chance(0.2) ? 4 : 3)];
      const LinkPeer& peer = hosts_[other]->peer();
      const uint64_t era = hosts_[one]->checker.Era(peer.key);
      // Refused until the loss is reported; the number is then not used again in this era.
      if (!hosts_[one]->Send(peer, bytes).ok()) skipped_.push_back({hosts_[one], peer.key, era});
    }
  }

  void BreakSomething(int one, int other, uint64_t how) {
    sim::SimFabric& fabric = world_.fabric();
    if (how <= 1) return fabric.Reset(Host(one), Host(other));
    if (how == 2) return fabric.HalfOpen(Host(one), Host(other));
    if (how == 3) {
      return fabric.Sever(Host(one), Host(other), absl::Microseconds(random_.Below(100'000)));
    }
    if (how == 4) return fabric.Partition(Host(one), Host(other));
    if (how == 5) return fabric.Refuse(Host(one), Host(other));
    if (how == 6) return fabric.SetShortIo(0.5, random_.Chance(0.3), 0.05);
    hosts_[one]->process().Stall();
  }

  void Restart(int host) {
    const NodeKey before = hosts_[host]->key();
    hosts_[host]->process().Resume();
    hosts_[host]->Kill();
    StartNode(host);
    // The directory notifies some nodes; the others learn from the new incarnation.
    for (SimLinkNode* const node : hosts_) {
      if (random_.Chance(0.5)) node->links().Forget(before);
    }
  }

  void CheckAllArrived(SimLinkNode& from, SimLinkNode& to) {
    const std::string pair = absl::StrCat(from.key().ToString(), " to ", to.key().ToString());
    if (from.links().stats().queued_bytes != 0) {
      violations_.push_back(absl::StrCat(pair, ": not all is acknowledged"));
    }
    const uint64_t era = from.checker.Era(to.key());
    for (const Skipped& skipped : skipped_) {
      if (skipped.from == &from && skipped.to == to.key() && skipped.era == era) return;
    }
    const uint64_t sent = from.checker.Sent(to.key());
    const uint64_t arrived = to.checker.ReceivedOfEra(from.key(), era);
    // The receiver alone can have heard of a loss, of a link that was idle.
    if (arrived != sent && !(arrived == 0 && to.checker.lost.contains(from.key()))) {
      violations_.push_back(absl::StrCat(pair, ": ", arrived, " of ", sent, " arrived"));
    }
    if (from.Kept() != 0) violations_.push_back(absl::StrCat(pair, ": payloads are kept"));
  }

  struct Skipped {
    SimLinkNode* from;
    NodeKey to;
    uint64_t era;
  };

  Random random_;
  SimLinks world_;
  std::vector<SimLinkNode*> hosts_;
  std::vector<uint64_t> incarnations_;
  std::vector<Skipped> skipped_;
  std::vector<std::string> violations_;
};

TEST(LinkSimulation, EveryMessageArrivesOnceAndInOrderUnlessTheLinkIsLost) {
  const uint64_t first = ::phalanx::testing::TestSeed(1);
  const uint64_t seeds = ::phalanx::testing::SeedGiven() ? 1 : kSeeds;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    PHALANX_TRACE_SEED(seed);
    EXPECT_THAT(Simulation(seed).Run(), ::testing::IsEmpty());
    if (HasFailure()) break;
  }
}

class LinkDefects : public ::testing::TestWithParam<Defect> {};

TEST_P(LinkDefects, AreDetected) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<std::string> violations;
    {
      const ::phalanx::testing::ScopedDefect defect(GetParam());
      violations = Simulation(seed).Run();
    }
    if (violations.empty()) continue;
    EXPECT_THAT(Simulation(seed).Run(), ::testing::IsEmpty()) << "seed " << seed;
    return;
  }
  ADD_FAILURE() << DefectName(GetParam()) << " was not detected";
}

INSTANTIATE_TEST_SUITE_P(Links, LinkDefects,
                         ::testing::Values(Defect::kLinkResumesAtWritten, Defect::kLinkCountsLate));

}  // namespace
}  // namespace phalanx::net
