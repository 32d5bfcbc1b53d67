// Reductions over a simulated cluster with production shards, nodes and data planes: results bit
// for bit, and deaths of nodes and shards during a reduction.
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/defects.h"
#include "src/common/io/log.h"
#include "src/common/testing/scoped_defect.h"
#include "src/sim/cluster/sim_cluster.h"

namespace phalanx::sim {
namespace {

using object_store::GetEvents;
using object_store::GetOptions;
using object_store::PutOptions;
using object_store::PutResult;
using object_store::View;

constexpr uint64_t kCount = 100'000;

ClusterOptions Options(int nodes, int shards, double bytes_per_second) {
  ClusterOptions options;
  options.nodes = nodes;
  options.shards = shards;
  options.verbose = std::getenv("VERBOSE") != nullptr;
  options.capacity_bytes = 64 << 20;
  options.lease = absl::Seconds(1);
  options.fabric.link.latency = absl::Microseconds(100);
  options.fabric.interface_bytes_per_second = bytes_per_second;
  options.fabric.send_buffer_bytes = options.fabric.receive_buffer_bytes = 64 << 10;
  return options;
}

ObjectId Source(int n) { return ObjectId::FromName("source", absl::StrCat(n)); }
const ObjectId kTarget = ObjectId::FromName("target", "sum");

uint32_t Number(int n, uint64_t i) { return static_cast<uint32_t>(1000003 * (n + 1) + 7 * i); }

std::string Numbers(int n, uint64_t count = kCount) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t value = Number(n, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

std::string SumOf(const std::vector<int>& sources, uint64_t count = kCount) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t value = 0;
    for (const int n : sources) value += Number(n, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

class ReduceScenario : public ::testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }

  void Begin(int nodes, int shards = 1) {
    clients_.clear();
    cluster_ = std::make_unique<SimCluster>(Options(nodes, shards, bytes_per_second_));
    Until([this] {
      for (int n = 0; n < cluster_->num_nodes(); ++n) {
        if (cluster_->node(n) == nullptr) return false;
        for (const absl::Status& state : cluster_->node(n)->ShardStates()) {
          if (!state.ok()) return false;
        }
      }
      return true;
    });
  }
  bool Until(absl::FunctionRef<bool()> done) {
    const bool reached = cluster_->scheduler().RunUntil(done, absl::Minutes(1));
    EXPECT_TRUE(reached) << "a minute has passed";
    return reached;
  }
  void Pass(absl::Duration time) { cluster_->scheduler().RunFor(time); }

  using Client = object_store::ClientId;
  void OnNode(int n, std::function<void(object_store::Store&, Client)> task) {
    bool ran = false;
    cluster_->OnNode(n, [&] {
      object_store::Store& store = cluster_->node(n)->store();
      if (clients_.count({n, cluster_->node(n)->key().incarnation}) == 0) {
        clients_[{n, cluster_->node(n)->key().incarnation}] = store.OpenClient();
      }
      task(store, clients_[{n, cluster_->node(n)->key().incarnation}]);
      ran = true;
    });
    Until([&] { return ran; });
  }
  void Put(int n, const ObjectId& id, std::string bytes) {
    auto result = std::make_shared<std::optional<absl::Status>>();
    OnNode(n, [&](object_store::Store& store, Client client) {
      PutOptions options;
      options.id = id;
      options.wait_for_adoption = true;
      store.Put(client, options, std::move(bytes),
                [result](absl::StatusOr<PutResult> r) { *result = r.status(); });
    });
    ASSERT_TRUE(Until([&] { return result->has_value(); }));
    EXPECT_TRUE((*result)->ok()) << **result;
  }
  static ReduceSpec SpecOf(int sources) {
    ReduceSpec spec;
    spec.elements = DType::kU32;
    for (int n = 0; n < sources; ++n) spec.sources.push_back(Source(n));
    return spec;
  }
  using Pending = std::shared_ptr<std::optional<absl::Status>>;
  Pending StartReduce(int n, ReduceSpec spec) {
    auto result = std::make_shared<std::optional<absl::Status>>();
    OnNode(n, [&](object_store::Store&, Client client) {
      cluster_->node(n)->reducer().Reduce(client, {kTarget}, std::move(spec), Instant::Infinite(),
                                          [result](absl::Status s) { *result = s; });
    });
    return result;
  }
  void ExpectReduced(const Pending& pending) {
    ASSERT_TRUE(Until([&] { return pending->has_value(); }));
    EXPECT_TRUE((*pending)->ok()) << **pending;
  }
  std::string Get(int n, const ObjectId& id) {
    auto result = std::make_shared<std::optional<absl::StatusOr<View>>>();
    OnNode(n, [&](object_store::Store& store, Client client) {
      GetEvents events;
      events.on_view = [result](absl::StatusOr<View> view) { *result = std::move(view); };
      store.Get(client, GetOptions{id, Instant::Infinite(), false}, std::move(events));
    });
    if (!Until([&] { return result->has_value(); }) || !(*result)->ok()) return "";
    const View& view = ***result;
    std::string bytes(view.buffer->slice(0).data(), view.buffer->layout().object_bytes);
    OnNode(n, [&](object_store::Store& store, Client client) {
      (void)store.Release(client, view.pin);
    });
    return bytes;
  }
  // Expects that only the result of the reduction is left.
  void ExpectRest() {
    Pass(absl::Seconds(3));
    for (int n = 0; n < cluster_->num_nodes(); ++n) {
      if (cluster_->node(n) == nullptr) continue;
      SCOPED_TRACE(n);
      const collectives::Reducer::Stats stats = cluster_->node(n)->reducer().stats();
      EXPECT_EQ(stats.folds, 0u);
      EXPECT_EQ(stats.scratch_bytes, 0u);
      EXPECT_EQ(stats.waiting, 0u);
      EXPECT_EQ(cluster_->store(n)->stats().pins, 0u);
      EXPECT_TRUE(cluster_->store(n)->CheckInvariants().ok());
      EXPECT_TRUE(cluster_->node(n)->reducer().CheckInvariants().ok());
    }
  }
  // Returns a node other than `except` that has folded half of its part.
  int Folder(int except) {
    int found = -1;
    Until([&] {
      for (int n = 0; n < cluster_->num_nodes() && found < 0; ++n) {
        if (n == except || cluster_->node(n) == nullptr) continue;
        const collectives::Reducer::Stats stats = cluster_->node(n)->reducer().stats();
        if (stats.folds > 0 && stats.scratch_bytes > 0) found = n;
      }
      return found >= 0;
    });
    return found;
  }

  double bytes_per_second_ = 1e7;
  std::unique_ptr<SimCluster> cluster_;
  std::map<std::pair<int, uint64_t>, Client> clients_;
};

TEST_F(ReduceScenario, EveryNodesSourceIsSummed) {
  Begin(5);
  for (int n = 0; n < 5; ++n) Put(n, Source(n), Numbers(n));
  ExpectReduced(StartReduce(2, SpecOf(5)));
  for (int n = 0; n < 5; ++n) EXPECT_TRUE(Get(n, kTarget) == SumOf({0, 1, 2, 3, 4})) << n;
  ExpectRest();
}

TEST_F(ReduceScenario, SourcesArePutAfterTheReduceOnAnyNode) {
  Begin(4);
  const Pending reduced = StartReduce(0, SpecOf(6));
  Pass(absl::Milliseconds(50));
  for (int s = 5; s >= 0; --s) {
    Put(1 + s % 3, Source(s), Numbers(s));
    Pass(absl::Milliseconds(20));
  }
  ExpectReduced(reduced);
  EXPECT_TRUE(Get(3, kTarget) == SumOf({0, 1, 2, 3, 4, 5}));
  ExpectRest();
}

TEST_F(ReduceScenario, SmallSourcesAreSummedToo) {
  Begin(4);
  for (int n = 0; n < 4; ++n) Put(n, Source(n), Numbers(n, 10));
  ExpectReduced(StartReduce(1, SpecOf(4)));
  EXPECT_TRUE(Get(2, kTarget) == SumOf({0, 1, 2, 3}, 10));
  ExpectRest();
}

TEST_F(ReduceScenario, SourcesOfOtherShardsAreWatchedThroughTheRootsNode) {
  Begin(4, /*shards=*/3);
  const Pending reduced = StartReduce(0, SpecOf(8));
  for (int s = 0; s < 8; ++s) Put(s % 4, Source(s), Numbers(s));
  ExpectReduced(reduced);
  EXPECT_TRUE(Get(2, kTarget) == SumOf({0, 1, 2, 3, 4, 5, 6, 7}));
  ExpectRest();
}

TEST_F(ReduceScenario, ANodeThatDiesIsReplacedByASourceThatIsPutAgain) {
  Begin(6);
  for (int n = 0; n < 5; ++n) Put(n, Source(n), Numbers(n));
  const Pending reduced = StartReduce(5, SpecOf(5));
  const int dead = Folder(/*except=*/5);
  cluster_->CrashNode(dead);
  Pass(absl::Milliseconds(100));
  Put((dead + 1) % 5, Source(dead), Numbers(dead));
  ExpectReduced(reduced);
  EXPECT_TRUE(Get(5, kTarget) == SumOf({0, 1, 2, 3, 4}));
  ExpectRest();
}

TEST_F(ReduceScenario, ASpareTakesTheSlotOfANodeThatDies) {
  Begin(7);
  for (int n = 0; n < 6; ++n) Put(n, Source(n), Numbers(n));
  ReduceSpec spec = SpecOf(6);
  spec.num_objects = 4;
  const Pending reduced = StartReduce(6, spec);
  const int dead = Folder(/*except=*/6);
  cluster_->CrashNode(dead);
  ExpectReduced(reduced);
  const std::string got = Get(6, kTarget);
  bool matches = false;
  for (int skip1 = 0; skip1 < 6; ++skip1) {
    for (int skip2 = skip1 + 1; skip2 < 6; ++skip2) {
      std::vector<int> in;
      for (int n = 0; n < 6; ++n) {
        if (n != skip1 && n != skip2) in.push_back(n);
      }
      matches = matches || got == SumOf(in);
    }
  }
  EXPECT_TRUE(matches) << "four of them, each once";
  ExpectRest();
}

// Four sources, with second copies on two other nodes.
class MovedSlots : public ReduceScenario {
 protected:
  void BeginReduce(uint64_t count = kCount, const std::vector<int>& copied = {0, 1, 2, 3}) {
    Begin(7);
    for (int n = 0; n < 4; ++n) Put(n, Source(n), Numbers(n, count));
    for (const int n : copied) EXPECT_TRUE(Get(4 + n % 2, Source(n)) == Numbers(n, count));
    reduced_ = StartReduce(6, SpecOf(4));
    Folder(/*except=*/-1);
  }
  bool SumIsRight() {
    ExpectReduced(reduced_);
    return Get(6, kTarget) == SumOf({0, 1, 2, 3});
  }
  // `second` dies `after` the death of `first`, and its source is put again: the slot starts over.
  bool SumIsRightAfter(int first, int second, absl::Duration after) {
    BeginReduce(kCount, {first});
    Pass(absl::Milliseconds(20));
    cluster_->CrashNode(first);
    Pass(after);
    cluster_->CrashNode(second);
    Pass(absl::Milliseconds(50));
    Put(5, Source(second), Numbers(second));
    return SumIsRight();
  }
  uint64_t BytesFolded(int n) { return cluster_->node(n)->reducer().stats().bytes_folded; }

  Pending reduced_;
};

TEST_F(MovedSlots, ASlotThatMovesContinuesAtTheByteThatTheFoldAboveHas) {
  for (int dead = 0; dead < 4; ++dead) {
    SCOPED_TRACE(dead);
    BeginReduce();
    Pass(absl::Milliseconds(20));
    cluster_->CrashNode(dead);
    EXPECT_TRUE(SumIsRight());
    // Two operands of 400,000 bytes if it began at the first byte; none if it hands its source on.
    EXPECT_LT(BytesFolded(4) + BytesFolded(5), 700'000u);
    ExpectRest();
  }
}

// 1 MB takes as long as 32 MiB at 1 Gbit/s: a death is noticed after a ninth of that time.
TEST_F(MovedSlots, ANodeThatDiesAtHalfCostsLittle) {
  constexpr uint64_t kMore = 250'000;
  bytes_per_second_ = 3.56e6;
  const auto time_of = [this](int dead) {
    BeginReduce(kMore);
    const Instant start = cluster_->scheduler().now();
    if (dead >= 0) {
      Pass(absl::Milliseconds(140));
      cluster_->CrashNode(dead);
    }
    ExpectReduced(reduced_);
    const absl::Duration time = cluster_->scheduler().now() - start;
    EXPECT_TRUE(Get(6, kTarget) == SumOf({0, 1, 2, 3}, kMore));
    return time;
  };
  const absl::Duration undisturbed = time_of(-1);
  for (int dead = 0; dead < 4; ++dead) {
    const double ratio = absl::FDivDuration(time_of(dead), undisturbed);
    std::cout << "node " << dead << " dies at half: " << ratio << " of the time without\n";
    EXPECT_LT(ratio, 1.2) << dead;
  }
}

// A fold above that starts over needs the bytes that the moved slot has left out.
TEST_F(MovedSlots, AFoldAboveStartsOverAfterItsInputHasMoved) {
  for (const int milliseconds : {5, 40, 50, 60}) {
    for (int first = 0; first < 4; ++first) {
      for (int second = 0; second < 4; ++second) {
        if (second == first) continue;
        SCOPED_TRACE(absl::StrCat(first, ", then ", second, " after ", milliseconds, " ms"));
        EXPECT_TRUE(SumIsRightAfter(first, second, absl::Milliseconds(milliseconds)));
        ExpectRest();
      }
    }
  }
}

TEST_F(MovedSlots, ADefectThatServesTheBytesThatAreLeftOutIsDetected) {
  const testing::ScopedDefect on(Defect::kBytesBelowBeginServed);
  int wrong = 0;
  for (const int milliseconds : {40, 50, 60}) {
    for (int first = 0; first < 4; ++first) {
      for (int second = 0; second < 4; ++second) {
        if (second == first) continue;
        wrong += SumIsRightAfter(first, second, absl::Milliseconds(milliseconds)) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(ReduceScenario, TheShardDiesDuringTheReduction) {
  Begin(5);
  for (int n = 0; n < 4; ++n) Put(n, Source(n), Numbers(n));
  const Pending reduced = StartReduce(4, SpecOf(4));
  Folder(/*except=*/-1);
  cluster_->CrashShard(0);
  Pass(absl::Milliseconds(200));
  cluster_->StartShard(0);
  ExpectReduced(reduced);
  EXPECT_TRUE(Get(0, kTarget) == SumOf({0, 1, 2, 3}));
  ExpectRest();
}

TEST_F(ReduceScenario, TheCallersNodeDiesAndAnotherRepeatsTheCall) {
  Begin(5);
  for (int n = 0; n < 4; ++n) Put(n, Source(n), Numbers(n));
  StartReduce(4, SpecOf(4));
  Folder(/*except=*/-1);
  cluster_->CrashNode(4);
  ExpectReduced(StartReduce(3, SpecOf(4)));
  EXPECT_TRUE(Get(3, kTarget) == SumOf({0, 1, 2, 3}));
  ExpectRest();
}

TEST_F(ReduceScenario, ADeletedTargetEndsItsReduction) {
  Begin(4);
  for (int n = 0; n < 3; ++n) Put(n, Source(n), Numbers(n));
  const Pending reduced = StartReduce(3, SpecOf(3));
  Folder(/*except=*/-1);
  OnNode(0, [&](object_store::Store& store, Client client) {
    store.Delete(client, kTarget, Instant::Infinite(), [](absl::Status) {});
  });
  if (Until([&] { return reduced->has_value(); })) {
    EXPECT_EQ((*reduced)->code(), absl::StatusCode::kNotFound) << **reduced;
  }
  ExpectRest();
}

}  // namespace
}  // namespace phalanx::sim
