// Reductions over links of different rates, links that change, and nodes that stop: a slow source
// is not waited for if others do, and receives nothing but the result if it is needed. The
// production shard and nodes, with exact sums.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "src/common/io/log.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/sim/cluster/sim_cluster.h"

namespace phalanx::sim {
namespace {

using directory::ReducePlan;
using object_store::GetEvents;
using object_store::GetOptions;
using object_store::PutOptions;
using object_store::PutResult;
using object_store::View;
using object_store::WriteGrant;

// As long as 32 MiB at 1 Gbit/s.
constexpr uint64_t kBytes = 8 << 20;
constexpr double kFast = 125e6 / 4;
constexpr double kSlow = kFast / 10;
constexpr int kNodes = 8;

double Seconds(absl::Duration time) { return absl::ToDoubleSeconds(time); }
// S/B.
double Once(double rate) { return kBytes / rate; }

std::string Numbers(int n) {
  std::string bytes(kBytes, '\0');
  for (uint64_t i = 0; i < kBytes / 4; ++i) {
    const auto value = static_cast<uint32_t>((uint64_t{1} << (4 * n)) + 7 * i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

std::string HostOf(int n) { return absl::StrCat("n", n); }
ObjectId IdOf(absl::string_view name, int n) { return ObjectId::FromName(name, absl::StrCat(n)); }

ClusterOptions Options(uint64_t seed) {
  ClusterOptions options;
  options.seed = seed;
  options.nodes = kNodes;
  options.capacity_bytes = 256 << 20;
  options.fabric.link.latency = absl::Microseconds(100);
  options.fabric.interface_bytes_per_second = kFast;
  options.fabric.send_buffer_bytes = options.fabric.receive_buffer_bytes = 128 << 10;
  return options;
}

// Eight nodes, each with a source of its own.
class Cluster {
 public:
  explicit Cluster(uint64_t seed = 1) : cluster_(Options(seed)), clients_(kNodes) {
    SetLogLevel(LogLevel::kOff);
    Until([this] {
      for (int n = 0; n < kNodes; ++n) {
        if (cluster_.node(n) == nullptr) return false;
        for (const absl::Status& state : cluster_.node(n)->ShardStates()) {
          if (!state.ok()) return false;
        }
      }
      return true;
    });
    for (int n = 0; n < kNodes; ++n) {
      OnNode(n, [this, n](object_store::Store& store) { clients_[n] = store.OpenClient(); });
    }
  }

  SimCluster& world() { return cluster_; }
  Instant now() { return cluster_.scheduler().now(); }
  void Pass(absl::Duration time) { cluster_.scheduler().RunFor(time); }
  bool Until(absl::FunctionRef<bool()> done) {
    const bool reached = cluster_.scheduler().RunUntil(done, absl::Minutes(2));
    EXPECT_TRUE(reached) << "two minutes have passed";
    return reached;
  }
  void SetRate(int n, double rate) { cluster_.fabric().SetInterface(HostOf(n), rate); }

  // Node n puts the source of that number and round.
  void Put(int n) { PutObject(n, IdOf(absl::StrCat("source", round_), n)); }
  void PutAll() {
    for (int n = 0; n < kNodes; ++n) Put(n);
    Pass(absl::Milliseconds(20));
  }
  // The same, written piece by piece at a tenth of the rate of a fast link.
  void PutSlowly(int n) {
    OnNode(n, [this, n](object_store::Store& store) {
      PutOptions options;
      options.id = IdOf(absl::StrCat("source", round_), n);
      store.Create(clients_[n], options, kBytes,
                   [this, n](const absl::StatusOr<WriteGrant>& grant) {
                     ASSERT_TRUE(grant.ok()) << grant.status();
                     const std::string numbers = Numbers(n);
                     std::memcpy(grant->buffer->slice(0).data(), numbers.data(), kBytes);
                     WriteOn(n, *grant, 0);
                   });
    });
  }
  // All nodes get an object of that node: the shard measures the links.
  void BroadcastFrom(int n) {
    const ObjectId id = IdOf("broadcast", ++broadcasts_);
    PutObject(n, id);
    int done = 0;
    for (int to = 0; to < kNodes; ++to) Get(to, id, [&done](const std::string&) { ++done; });
    Until([&done] { return done == kNodes; });
    Delete(id);
  }

  struct Call {
    int of = kNodes;         // how many sources
    int from = 0;            // the caller
    bool everybody = false;  // all nodes call, and get the result
    bool root_here = true;
  };
  // Begins a reduction of this round's sources, which can be put later.
  void Begin(const Call& call) {
    call_ = call;
    began_ = now();
    done_.assign(kNodes, std::nullopt);
    result_.clear();
    for (int n = 0; n < kNodes; ++n) {
      if (n == call.from || call.everybody) BeginAt(n);
    }
  }
  bool Done(int n) const { return done_[n].has_value(); }
  // Awaits the result at the nodes that called, except one, and checks it.
  void Await(int except = -1) {
    Until([this, except] {
      for (int n = 0; n < kNodes; ++n) {
        if ((n == call_.from || call_.everybody) && n != except && !Done(n)) return false;
      }
      return true;
    });
    left_out_ = CheckSum();
  }
  // Seconds since the call, or since `since`, until node n had the result.
  double TimeOf(int n, Instant since = Instant()) const {
    return done_[n] ? Seconds(*done_[n] - std::max(since, began_)) : 1e9;
  }
  // The greatest time of the nodes, except one.
  double TimeOfAll(int except = -1) const {
    double most = 0;
    for (int n = 0; n < kNodes; ++n) {
      if (n != except) most = std::max(most, TimeOf(n));
    }
    return most;
  }
  // The source that is not in the sum; -1 if all are, or more are missing.
  int left_out() const { return left_out_; }
  // The sources that gave way to others, of all rounds.
  uint64_t Swaps() {
    v1::GetStatusResponse status;
    cluster_.shard(0)->FillStatus(&status);
    return status.counters().at("slow_replaced");
  }
  // Ends the round: its sources and its result are deleted.
  void EndRound() {
    Delete(Target());
    for (int n = 0; n < kNodes; ++n) Delete(IdOf(absl::StrCat("source", round_), n));
    Pass(absl::Milliseconds(100));
    ++round_;
  }

 private:
  void WriteOn(int n, const WriteGrant& grant, uint64_t written) {
    constexpr uint64_t kPiece = kBytes / 64;
    written += kPiece;
    (void)cluster_.node(n)->store().Publish(clients_[n], grant.writer, written);
    if (written == kBytes) {
      cluster_.node(n)->store().Seal(clients_[n], grant.writer, /*wait_for_adoption=*/false,
                                     [](const absl::StatusOr<PutResult>& result) {
                                       EXPECT_TRUE(result.ok()) << result.status();
                                     });
      return;
    }
    cluster_.scheduler().At(now() + absl::Seconds(kPiece / kSlow), [this, n, grant, written] {
      cluster_.OnNode(n, [this, n, grant, written] { WriteOn(n, grant, written); });
    });
  }
  ObjectId Target() const { return IdOf("target", round_); }
  void OnNode(int n, const std::function<void(object_store::Store&)>& task) {
    bool ran = false;
    cluster_.OnNode(n, [&] {
      task(cluster_.node(n)->store());
      ran = true;
    });
    Until([&ran] { return ran; });
  }
  // The numbers of node n.
  void PutObject(int n, const ObjectId& id) {
    OnNode(n, [this, n, id](object_store::Store& store) {
      PutOptions options;
      options.id = id;
      store.Create(clients_[n], options, kBytes,
                   [this, n, &store](const absl::StatusOr<WriteGrant>& grant) {
                     ASSERT_TRUE(grant.ok()) << grant.status();
                     const std::string numbers = Numbers(n);
                     std::memcpy(grant->buffer->slice(0).data(), numbers.data(), kBytes);
                     store.Seal(clients_[n], grant->writer, /*wait_for_adoption=*/false,
                                [](const absl::StatusOr<PutResult>& result) {
                                  EXPECT_TRUE(result.ok()) << result.status();
                                });
                   });
    });
  }
  void Delete(const ObjectId& id) {
    OnNode(0, [&](object_store::Store& store) {
      store.Delete(clients_[0], id, Instant::Infinite(), [](const absl::Status&) {});
    });
  }
  // Without waiting for the node, which can be stopped.
  void Get(int n, const ObjectId& id, std::function<void(std::string)> done) {
    cluster_.OnNode(n, [this, n, id, done = std::move(done)] {
      object_store::Store& store = cluster_.node(n)->store();
      GetEvents events;
      events.on_view = [&store, client = clients_[n], done](absl::StatusOr<View> view) {
        EXPECT_TRUE(view.ok()) << view.status();
        if (!view.ok()) return;
        done(std::string(view->buffer->slice(0).data(), view->buffer->layout().slices == 1
                                                            ? view->buffer->layout().object_bytes
                                                            : 0));
        (void)store.Release(client, view->pin);
      };
      store.Get(clients_[n], GetOptions{id, Instant::Infinite(), false}, std::move(events));
    });
  }
  void BeginAt(int n) {
    cluster_.OnNode(n, [this, n] {
      ReduceSpec spec;
      spec.elements = DType::kU32;
      for (int i = 0; i < kNodes; ++i) {
        spec.sources.push_back(IdOf(absl::StrCat("source", round_), i));
      }
      if (call_.of < kNodes) spec.num_objects = static_cast<uint32_t>(call_.of);
      ReduceTarget target{Target()};
      target.root_here = call_.root_here && !call_.everybody;
      target.everybody = call_.everybody;
      cluster_.node(n)->reducer().Reduce(
          clients_[n], target, spec, Instant::Infinite(),
          [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    });
    Get(n, Target(), [this, n](std::string bytes) {
      done_[n] = now();
      // A ring's result is in slices; the other tests of rings check their bytes.
      if (!bytes.empty()) result_ = std::move(bytes);
    });
  }
  int CheckSum() const {
    if (result_.empty()) return -1;
    const auto number = [this](uint64_t i) {
      uint32_t value = 0;
      std::memcpy(&value, result_.data() + 4 * i, 4);
      return value;
    };
    // Digit n of the first element is the number of times that source n was summed.
    int absent = 0, left_out = -1;
    for (int n = 0; n < kNodes; ++n) {
      const uint32_t times = number(0) >> (4 * n) & 15;
      EXPECT_LE(times, 1u) << "source " << n;
      if (times != 0) continue;
      ++absent;
      left_out = n;
    }
    EXPECT_EQ(kNodes - absent, call_.of);
    for (uint64_t i = 0; i < kBytes / 4; ++i) {
      if (number(i) == number(0) + static_cast<uint32_t>(7 * i * (kNodes - absent))) continue;
      ADD_FAILURE() << "element " << i << " is no sum of " << kNodes - absent << " sources";
      break;
    }
    if (absent > 1) return -1;
    return left_out;
  }

  SimCluster cluster_;
  std::vector<object_store::ClientId> clients_;
  int round_ = 0;
  int broadcasts_ = 0;
  Call call_;
  Instant began_;
  std::vector<std::optional<Instant>> done_;
  std::string result_;
  int left_out_ = -1;
};

// A cluster whose node `slow` has a tenth of the rate, measured by broadcasts or not.
std::unique_ptr<Cluster> Uneven(int slow, bool measured, uint64_t seed = 1) {
  auto cluster = std::make_unique<Cluster>(seed);
  cluster->SetRate(slow, kSlow);
  for (int i = 0; measured && i < 3; ++i) cluster->BroadcastFrom(slow == 0 ? 1 : 0);
  return cluster;
}

std::vector<int> RandomOrder(Random& random) {
  std::vector<int> order(kNodes);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

TEST(UnevenReduceTest, OverLinksAlikeNothingIsReplaced) {
  Cluster cluster;
  for (const int of : {kNodes, kNodes - 1, kNodes, kNodes - 1}) {
    cluster.PutAll();
    cluster.Begin({.of = of});
    cluster.Await();
    std::cout << of << " of 8, even: " << cluster.TimeOf(0) / Once(kFast) << " S/B\n";
    EXPECT_LE(cluster.TimeOf(0), 1.1 * Once(kFast));
    cluster.EndRound();
  }
  EXPECT_EQ(cluster.Swaps(), 0u);
}

TEST(UnevenReduceTest, AllOfEightTakeTheSlowOnesTime) {
  for (const bool measured : {false, true}) {
    for (const int slow : {0, 1, 3, 7}) {
      const auto cluster = Uneven(slow, measured);
      cluster->PutAll();
      cluster->Begin({});
      cluster->Await();
      const double time = cluster->TimeOf(0) / Once(kSlow);
      std::cout << "all of 8, node " << slow << " slow, measured " << measured << ": " << time
                << " of its S/B\n";
      EXPECT_LE(time, 1.05) << slow;
    }
  }
}

TEST(UnevenReduceTest, SevenOfEightDoNotWaitForASlowOneThatWasMeasured) {
  for (const int slow : {1, 3, 7}) {
    const auto cluster = Uneven(slow, /*measured=*/true);
    for (int i = 0; i < 2; ++i) {
      cluster->PutAll();
      cluster->Begin({.of = 7});
      cluster->Await();
      const double time = cluster->TimeOf(0) / Once(kFast);
      std::cout << "7 of 8, node " << slow << " slow: " << time << " of the fast S/B, without "
                << cluster->left_out() << "\n";
      EXPECT_LE(time, 1.1) << slow;
      EXPECT_EQ(cluster->left_out(), slow);
      cluster->EndRound();
    }
  }
}

// The sources arrive in an order of their own, 2 ms apart.
TEST(UnevenReduceTest, SevenOfEightDoNotWaitForASlowOneInAnyOrderOfArrival) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Random random(seed);
    const int slow = 1 + static_cast<int>(random.Below(kNodes - 1));
    const auto cluster = Uneven(slow, /*measured=*/true, seed);
    cluster->Begin({.of = 7});
    Instant last_fast;
    for (const int n : RandomOrder(random)) {
      cluster->Put(n);
      if (n != slow) last_fast = cluster->now();
      cluster->Pass(absl::Milliseconds(2));
    }
    cluster->Await();
    const double time = cluster->TimeOf(0, last_fast) / Once(kFast);
    std::cout << "7 of 8, seed " << seed << ": " << time << " of the fast S/B\n";
    EXPECT_LE(time, 1.1);
    EXPECT_LE(cluster->Swaps(), 1u);
  }
}

TEST(UnevenReduceTest, AnAllreduceTakesTheSlowOnesTimeIfItWasMeasured) {
  for (const int slow : {0, 3, 7}) {
    const auto cluster = Uneven(slow, /*measured=*/true);
    for (int i = 0; i < 2; ++i) {
      cluster->PutAll();
      cluster->Begin({.everybody = true});
      cluster->Await();
      const double time = cluster->TimeOfAll() / Once(kSlow);
      std::cout << "allreduce, node " << slow << " slow: " << time << " of its S/B\n";
      EXPECT_LE(time, 1.1) << slow;
      cluster->EndRound();
    }
  }
}

// ---- found out while the reduction runs: nothing was measured before

// What the nodes and the shard take to find out. A simulated slow link hands on 128 KiB at a time,
// in 40 ms, so that several of these are needed to tell its rate.
constexpr double kFound = 1;

TEST(UnevenReduceTest, SevenOfEightLeaveASlowOneThatTheyFind) {
  for (int slow = 1; slow < kNodes; ++slow) {
    const auto cluster = Uneven(slow, /*measured=*/false);
    cluster->PutAll();
    cluster->Begin({.of = 7});
    cluster->Await();
    const double first = cluster->TimeOf(0) / Once(kFast);
    const int left_out = cluster->left_out();
    EXPECT_LE(first, 1 + kFound) << slow;
    EXPECT_LE(cluster->Swaps(), 2u) << slow;
    cluster->EndRound();
    cluster->PutAll();
    cluster->Begin({.of = 7});
    cluster->Await();
    const double second = cluster->TimeOf(0) / Once(kFast);
    std::cout << "7 of 8, node " << slow << " slow, found: " << first << ", then " << second
              << " of the fast S/B, without " << left_out << ", " << cluster->left_out() << "; "
              << cluster->Swaps() << " swaps\n";
    EXPECT_LE(second, 1.1) << slow;
  }
}

// A node's link becomes slow when a part is there.
TEST(UnevenReduceTest, SevenOfEightLeaveOneThatBecomesSlow) {
  for (const double part : {0.25, 0.5}) {
    for (int slow = 1; slow < kNodes; ++slow) {
      Cluster cluster;
      cluster.PutAll();
      cluster.Begin({.of = 7});
      cluster.Pass(absl::Seconds(part * Once(kFast)));
      cluster.SetRate(slow, kSlow);
      cluster.Await();
      const double time = cluster.TimeOf(0) / Once(kFast);
      std::cout << "7 of 8, node " << slow << " slow from " << part << " on: " << time
                << " of the fast S/B, without " << cluster.left_out() << "\n";
      EXPECT_LE(time, part + 1 + kFound) << slow;
      EXPECT_LE(cluster.Swaps(), 2u);
    }
  }
}

// The rest takes less time at a tenth of the rate than all of it again.
TEST(UnevenReduceTest, ANodeThatBecomesSlowNearTheEndIsWaitedFor) {
  for (int slow = 1; slow < kNodes; ++slow) {
    Cluster cluster;
    cluster.PutAll();
    cluster.Begin({.of = 7});
    cluster.Pass(absl::Seconds(0.9 * Once(kFast)));
    cluster.SetRate(slow, kSlow);
    cluster.Await();
    EXPECT_EQ(cluster.Swaps(), 0u) << slow;
    EXPECT_LE(cluster.TimeOf(0), Once(kFast) + 0.15 * Once(kSlow)) << slow;
  }
}

TEST(UnevenReduceTest, SevenOfEightDoWithoutOneThatStops) {
  for (const double part : {0.25, 0.5, 0.75}) {
    for (int stopped = 1; stopped < kNodes; ++stopped) {
      Cluster cluster;
      cluster.PutAll();
      cluster.Begin({.of = 7});
      cluster.Pass(absl::Seconds(part * Once(kFast)));
      cluster.world().StallNode(stopped);
      cluster.Await();
      const double time = cluster.TimeOf(0) / Once(kFast);
      std::cout << "7 of 8, node " << stopped << " stops at " << part << ": " << time
                << " of S/B, without " << cluster.left_out() << "\n";
      // Waited for as long as starting over costs, and started over.
      EXPECT_LE(time, part + ReducePlan::kMuchSooner - (1 - part) + 1 + 0.3) << stopped;
      EXPECT_LE(cluster.Swaps(), 1u);
      cluster.world().ResumeNode(stopped);
    }
  }
}

// A stop that ends before starting over would pay moves nothing, however much is done.
TEST(UnevenReduceTest, AShortStopStartsNothingOver) {
  for (const double part : {0.5, 0.9, 0.97}) {
    for (int stopped = 1; stopped < kNodes; ++stopped) {
      Cluster cluster;
      cluster.PutAll();
      cluster.Begin({.of = 7});
      cluster.Pass(absl::Seconds(part * Once(kFast)));
      cluster.world().StallNode(stopped);
      cluster.Pass(absl::Milliseconds(120));
      cluster.world().ResumeNode(stopped);
      cluster.Await();
      EXPECT_EQ(cluster.Swaps(), 0u) << stopped << " at " << part;
      EXPECT_LE(cluster.TimeOf(0), 1.1 * Once(kFast) + 0.15) << stopped << " at " << part;
    }
  }
}

// A source that is still written is waited for: its link is not slow.
TEST(UnevenReduceTest, ASlowWriterIsNoSlowLink) {
  for (int writer = 1; writer < kNodes; ++writer) {
    Cluster cluster;
    for (int n = 0; n < kNodes; ++n) n == writer ? cluster.PutSlowly(n) : cluster.Put(n);
    cluster.Pass(absl::Milliseconds(20));
    cluster.Begin({.of = 7});
    cluster.Await();
    EXPECT_EQ(cluster.Swaps(), 0u) << writer;
    cluster.EndRound();
  }
}

// Rates that change all the time: exact sums, and bounded moves.
TEST(UnevenReduceTest, RatesThatChangeMoveLittle) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PHALANX_TRACE_SEED(seed);
    Random random(seed);
    Cluster cluster(seed);
    cluster.PutAll();
    const int of = 5 + static_cast<int>(random.Below(4));
    cluster.Begin({.of = of});
    for (int i = 0; i < 60 && !cluster.Done(0); ++i) {
      const int n = static_cast<int>(random.Below(kNodes));
      cluster.SetRate(n, random.Below(2) == 0 ? kFast : kSlow);
      if (random.Below(4) == 0) {
        const int stopped = 1 + static_cast<int>(random.Below(kNodes - 1));
        cluster.world().StallNode(stopped);
        cluster.Pass(absl::Milliseconds(static_cast<int64_t>(random.Below(300))));
        cluster.world().ResumeNode(stopped);
      }
      cluster.Pass(absl::Milliseconds(50));
    }
    for (int n = 0; n < kNodes; ++n) cluster.SetRate(n, kFast);
    cluster.Await();
    EXPECT_LE(cluster.Swaps(), static_cast<uint64_t>(ReducePlan::kMaxSwaps));
  }
}

}  // namespace
}  // namespace phalanx::sim
