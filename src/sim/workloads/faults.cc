#include "src/sim/workloads/faults.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/common/check.h"

namespace phalanx::sim {
namespace {

absl::Duration AnyLength(absl::Duration mean, Random& random) {
  return mean * -std::log(1.0 - random.Unit());
}

}  // namespace

void Faults::Start() {
  running_ = true;
  ScheduleNext();
}

void Faults::Stop() {
  running_ = false;
  // HealEverything repairs all faults at once, so pending repairs check `running_` and do nothing.
  cluster_.HealEverything();
}

void Faults::ScheduleNext() {
  if (options_.mean_pause == absl::InfiniteDuration()) return;
  PHALANX_CHECK(!cluster_.options().peaceful, "checkers are strict with a cluster without faults");
  cluster_.scheduler().After(AnyLength(options_.mean_pause, random_), [this] {
    if (!running_) return;
    Inject(Choose());
    ScheduleNext();
  });
}

Fault Faults::Choose() {
  const auto& weights = options_.weights;
  double at = random_.Unit() * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < kFaults; ++i) {
    if (at < weights[i]) return static_cast<Fault>(i);
    at -= weights[i];
  }
  // Rounding can leave a remainder above the last weight.
  return Fault::kResetNodes;
}

void Faults::RepairLater(std::function<void()> repair) {
  cluster_.scheduler().After(AnyLength(options_.mean_length, random_),
                             [this, repair = std::move(repair)] {
                               // Stop has repaired everything else already.
                               if (running_) repair();
                             });
}

int Faults::AnyNode() {
  return static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_nodes())));
}

int Faults::AnyShard() {
  return static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_shards())));
}

int Faults::Running() {
  int running = 0;
  for (int n = 0; n < cluster_.num_nodes(); ++n) {
    if (cluster_.node(n) != nullptr && !cluster_.node_stalled(n)) ++running;
  }
  return running;
}

int Faults::AnyVictim() { return Running() <= options_.nodes_left ? -1 : AnyNode(); }

void Faults::Inject(Fault fault) {
  switch (fault) {
    case Fault::kCrashNode:
    case Fault::kLeaveNode:
      return EndNode(fault == Fault::kCrashNode);
    case Fault::kStallNode:
      return StallNode();
    case Fault::kCrashShard:
      return CrashShard();
    case Fault::kStallShard:
      return StallShard();
    case Fault::kPartitionNodes:
    case Fault::kPartitionNodesOneWay:
      return PartitionBetween(AnyNodeName(), AnyNodeName(), fault == Fault::kPartitionNodes);
    case Fault::kPartitionShard:
      return PartitionBetween(AnyNodeName(), AnyShardName(), random_.Chance(0.5));
    case Fault::kResetNodes:
      return cluster_.network().Reset(AnyNodeName(), AnyNodeName());
    case Fault::kResetShard:
      return cluster_.network().Reset(AnyNodeName(), AnyShardName());
    case Fault::kHalfOpenNodes:
      return cluster_.network().HalfOpen(AnyNodeName(), AnyNodeName());
    case Fault::kHalfOpenShard:
      return random_.Chance(0.5) ? cluster_.network().HalfOpen(AnyNodeName(), AnyShardName())
                                 : cluster_.network().HalfOpen(AnyShardName(), AnyNodeName());
    case Fault::kSlowLink:
      return SlowLink();
    case Fault::kShortIo:
      return ShortIo();
    case Fault::kMemory:
      return StarveMemory();
    case Fault::kDrain:
      return Drain();
    case Fault::kCorruption:
      return Corrupt();
    case Fault::kSeverNodes:
      return Sever(AnyNodeName(), AnyNodeName());
    case Fault::kSeverShard:
      return random_.Chance(0.5) ? Sever(AnyNodeName(), AnyShardName())
                                 : Sever(AnyShardName(), AnyNodeName());
  }
}

void Faults::EndNode(bool crash) {
  const int n = AnyVictim();
  if (n < 0) return;
  crash ? cluster_.CrashNode(n) : cluster_.LeaveNode(n);
  // A node that is still leaving at that time is running, and StartNode does nothing then.
  RepairLater([this, n] { cluster_.StartNode(n); });
}

void Faults::StallNode() {
  const int n = AnyVictim();
  if (n < 0) return;
  cluster_.StallNode(n);
  RepairLater([this, n] { cluster_.ResumeNode(n); });
}

void Faults::CrashShard() {
  const int s = AnyShard();
  cluster_.CrashShard(s);
  RepairLater([this, s] { cluster_.StartShard(s); });
}

void Faults::StallShard() {
  const int s = AnyShard();
  cluster_.StallShard(s);
  RepairLater([this, s] { cluster_.ResumeShard(s); });
}

void Faults::PartitionBetween(const std::string& a, const std::string& b, bool both_ways) {
  // A process is never partitioned from itself.
  if (a == b) return;
  // Drawn in both cases, so that a seed draws the same afterwards.
  const bool forward = random_.Chance(0.5);
  if (both_ways || forward) cluster_.network().Partition(a, b);
  if (both_ways || !forward) cluster_.network().Partition(b, a);
  RepairLater([this, a, b] {
    cluster_.network().Heal(a, b);
    cluster_.network().Heal(b, a);
  });
}

void Faults::Sever(const std::string& from, const std::string& to) {
  if (from == to) return;
  cluster_.network().Sever(from, to, AnyLength(options_.mean_length, random_) * random_.Unit());
}

void Faults::SlowLink() {
  const std::string a = AnyNodeName();
  const std::string b = random_.Chance(0.8) ? AnyNodeName() : AnyShardName();
  if (a == b) return;
  Link link = cluster_.fabric().GetLink(a, b);
  // Restores this link, because the plan can have set it.
  const Link before = link;
  link.latency = link.latency + absl::Milliseconds(50) * random_.Unit();
  link.jitter = absl::Milliseconds(20) * random_.Unit();
  link.bytes_per_second = 1e5 + 1e6 * random_.Unit();
  cluster_.network().SetLink(a, b, link);
  RepairLater([this, a, b, before] { cluster_.network().SetLink(a, b, before); });
}

void Faults::ShortIo() {
  const SimFabric::Options& usual = cluster_.options().fabric;
  cluster_.fabric().SetShortIo(random_.Unit(), /*one_byte_at_a_time=*/false, 0.05 * random_.Unit());
  RepairLater([this, usual] {
    cluster_.fabric().SetShortIo(usual.short_io, usual.one_byte_at_a_time, usual.trickle);
  });
}

void Faults::StarveMemory() {
  const int n = AnyNode();
  if (cluster_.node(n) == nullptr) return;
  const bool fails = options_.memory_fails;
  // Drawn in both cases, so that the following draws of a seed do not depend on the option.
  const double failures = random_.Unit();
  const absl::Duration delay = absl::Milliseconds(fails ? 100 : 5000) * random_.Unit();
  cluster_.memory(n).SetTrouble(delay, fails ? failures : 0);
  const ClusterOptions& usual = cluster_.options();
  RepairLater([this, n, usual] {
    // The next life of a stopped node starts with the usual memory.
    if (cluster_.node(n) == nullptr) return;
    cluster_.memory(n).SetTrouble(usual.allocation_delay, usual.allocation_failures);
  });
}

void Faults::Corrupt() {
  // Without checksums a flipped bit is not detected, so every run would fail.
  if (!cluster_.options().data_plane.checksums) return;
  cluster_.network().CorruptNodes(0.05 * random_.Unit());
  RepairLater([this] { cluster_.network().CorruptNodes(0); });
}

bool Faults::NodeIsLeaving() const {
  return away_ > 0 || std::any_of(leaving_.begin(), leaving_.end(), [this](const NodeKey& life) {
           return cluster_.FindNode(life) >= 0;
         });
}

// A node leaves in the proper way: its sole copies are moved first.
void Faults::Drain() {
  const int n = AnyVictim();
  if (n < 0 || cluster_.node(n) == nullptr) return;
  const NodeKey life = cluster_.node(n)->key();
  const absl::Duration timeout = options_.mean_length * 4 * random_.Unit();
  // Before the drain starts, so that the calm waits for this node in any case.
  leaving_.push_back(life);
  cluster_.OnNode(n, [this, n, life, timeout] {
    cluster_.journal().Note("drain ", NodeName(n));
    cluster_.Drain(n, timeout, [this, n, life](const absl::Status& status) {
      cluster_.journal().Note("drained ", NodeName(n), ": ", status.ToString());
      // Posted, because LeaveNode must not run inside the drain's own callback.
      cluster_.scheduler().After(absl::ZeroDuration(), [this, n, life] {
        // The node can have crashed during the drain.
        if (cluster_.FindNode(life) != n) return;
        cluster_.LeaveNode(n);
        ++away_;
        // Not by RepairLater: the node must restart even if Stop has repaired everything else in
        // the meantime.
        cluster_.scheduler().After(AnyLength(options_.mean_length, random_) + absl::Milliseconds(2),
                                   [this, n] {
                                     --away_;
                                     cluster_.StartNode(n);
                                   });
      });
    });
  });
}

}  // namespace phalanx::sim
