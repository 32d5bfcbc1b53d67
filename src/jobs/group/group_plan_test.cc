// Plans of all nodes, taken over real memory in random interleavings, beside a serial model.
#include "src/jobs/group/group_plan.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/collectives/kernels/kernels.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/call_run.h"
#include "src/jobs/overlap/byte_ranges.h"

namespace phalanx::jobs {
namespace {

// `members` members on `nodes` nodes; the k-th is on node k % nodes, as ranks are dealt
// round-robin.
GroupShape Shape(int nodes, int members) {
  GroupShape shape{.world = members};
  shape.ranks.resize(static_cast<size_t>(nodes));
  for (int rank = 0; rank < members; ++rank) {
    shape.ranks[static_cast<size_t>(rank % nodes)].push_back(rank);
  }
  return shape;
}

// Element i of the input of a rank: small integers, so that sums are exact in any order.
float Value(int rank, uint64_t i) { return static_cast<float>((i * 7 + 3) % 97 + 100 * rank); }

std::string Floats(uint64_t count, const std::function<float(uint64_t)>& value) {
  std::string bytes(count * 4, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    const float each = value(i);
    std::memcpy(bytes.data() + 4 * i, &each, 4);
  }
  return bytes;
}

// All nodes of a group in one call, with a network that delivers in a random order.
class World {
 public:
  World(const GroupShape& shape, const CallSpec& spec, bool acknowledged, Random& random)
      : shape_(shape), spec_(spec), random_(random) {
    for (int node = 0; node < shape.nodes(); ++node) AddNode(node, acknowledged);
  }

  // Runs until all nodes are done. Returns false if they are stuck.
  bool Run() {
    for (;;) {
      bool all_done = true;
      for (int node = 0; node < shape_.nodes(); ++node) all_done &= RunNode(node);
      std::vector<std::pair<int, int>> links;
      for (const auto& [link, queue] : network_) {
        if (!queue.empty()) links.push_back(link);
      }
      if (links.empty()) return all_done;
      Deliver(links[random_.Below(links.size())]);
    }
  }

  std::string Result(int rank) const {
    const int node = shape_.NodeOf(rank);
    const std::vector<int>& ranks = shape_.ranks[static_cast<size_t>(node)];
    const auto slot = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    const CallRun& run = *nodes_[static_cast<size_t>(node)].run;
    const ResultPlace place = ResultOf(*nodes_[static_cast<size_t>(node)].plan, shape_, spec_, node,
                                       static_cast<size_t>(slot));
    if (place.bytes == 0) return "";
    return std::string(run.Bytes(place));
  }
  uint64_t SentBy(int node) const { return nodes_[static_cast<size_t>(node)].sent; }

 private:
  struct Node {
    std::vector<std::string> inputs;
    std::string work, scratch;
    std::shared_ptr<const GroupPlan> plan;
    std::unique_ptr<CallRun> run;
    uint64_t sent = 0;
    bool done = false;
  };

  void AddNode(int index, bool acknowledged) {
    auto plan = std::make_shared<GroupPlan>(MakeGroupPlan(shape_, spec_, index, acknowledged));
    Node& node = nodes_.emplace_back();
    CallMemory memory;
    for (const int rank : shape_.ranks[static_cast<size_t>(index)]) {
      const uint64_t count = InputBytes(spec_, shape_.world, rank) / 4;
      node.inputs.push_back(Floats(count, [&](uint64_t i) { return Value(rank, i); }));
    }
    for (const std::string& input : node.inputs) memory.inputs.push_back(input);
    node.work.assign(plan->work_bytes, '\xee');
    node.scratch.assign(plan->scratch_bytes, '\xee');
    memory.work = absl::MakeSpan(node.work.data(), node.work.size());
    memory.scratch = absl::MakeSpan(node.scratch.data(), node.scratch.size());
    node.plan = plan;
    node.run = std::make_unique<CallRun>(plan, spec_, memory, shape_.members());
  }
  bool RunNode(int index) {
    Node& node = nodes_[static_cast<size_t>(index)];
    while (!node.done) {
      const CallRun::State state = node.run->Run([&](int peer, absl::string_view bytes, bool copy) {
        node.sent += bytes.size();
        Message message{bytes, copy ? std::string(bytes) : std::string()};
        network_[{index, peer}].push_back(std::move(message));
        return true;
      });
      if (state == CallRun::State::kBlocked) return false;
      node.done = state == CallRun::State::kDone;
    }
    return true;
  }
  void Deliver(const std::pair<int, int>& link) {
    const Message message = std::move(network_[link].front());
    network_[link].pop_front();
    CallRun& run = *nodes_[static_cast<size_t>(link.second)].run;
    // What the plan does not copy is read only now.
    const absl::string_view bytes = message.copied.empty() ? message.bytes : message.copied;
    EXPECT_THAT(run.Arrived(link.first, bytes), testing::IsOk());
  }

  struct Message {
    absl::string_view bytes;
    std::string copied;
  };
  const GroupShape shape_;
  const CallSpec spec_;
  Random& random_;
  std::deque<Node> nodes_;
  std::map<std::pair<int, int>, std::deque<Message>> network_;
};

// What a rank must get.
std::string Expected(const GroupShape& shape, const CallSpec& spec, int rank) {
  const uint64_t count = spec.bytes / 4;
  const auto sum = [&](uint64_t i) {
    float total = 0;
    for (const std::vector<int>& ranks : shape.ranks) {
      for (const int each : ranks) total += Value(each, i);
    }
    return spec.op == ReduceOp::kMean ? total / static_cast<float>(shape.members()) : total;
  };
  const auto from = [&](uint64_t i) { return static_cast<int>(i / count); };
  const auto mine = static_cast<uint64_t>(rank) * count;
  switch (spec.kind) {
    case CallKind::kAllReduce:
      return Floats(count, sum);
    case CallKind::kReduce:
      return rank == static_cast<int>(spec.root) ? Floats(count, sum) : "";
    case CallKind::kBroadcast:
      return Floats(count, [&](uint64_t i) { return Value(static_cast<int>(spec.root), i); });
    case CallKind::kAllGather:
      return Floats(count * static_cast<uint64_t>(shape.world), [&](uint64_t i) {
        return shape.NodeOf(from(i)) < 0 ? 0 : Value(from(i), i % count);
      });
    case CallKind::kReduceScatter:
      return Floats(count, [&](uint64_t i) { return sum(mine + i); });
    case CallKind::kAllToAll:
      return Floats(count * static_cast<uint64_t>(shape.world), [&](uint64_t i) {
        return shape.NodeOf(from(i)) < 0 ? 0 : Value(from(i), mine + i % count);
      });
    case CallKind::kBarrier:
      return "";
  }
  return "";
}

std::vector<CallSpec> AllCalls(uint64_t bytes, int world) {
  std::vector<CallSpec> calls;
  for (uint8_t kind = 0; kind < kCallKinds; ++kind) {
    CallSpec spec{.kind = static_cast<CallKind>(kind), .bytes = bytes};
    if (spec.kind == CallKind::kBarrier) spec.bytes = 0;
    calls.push_back(spec);
    if (HasRoot(spec.kind) && world > 1) {
      calls.back().root = static_cast<uint32_t>(world - 1);
      spec.root = 1;
      calls.push_back(spec);
    }
  }
  calls.push_back({.kind = CallKind::kAllReduce, .op = ReduceOp::kMean, .bytes = bytes});
  return calls;
}

void ExpectRight(const GroupShape& shape, const CallSpec& spec, bool acknowledged, Random& random) {
  SCOPED_TRACE(absl::StrCat(spec.ToString(), " on ", shape.nodes(), " nodes, ", shape.members(),
                            " of ", shape.world, " members"));
  World world(shape, spec, acknowledged, random);
  ASSERT_TRUE(world.Run()) << "the nodes wait for each other";
  for (const std::vector<int>& ranks : shape.ranks) {
    for (const int rank : ranks) {
      ASSERT_TRUE(world.Result(rank) == Expected(shape, spec, rank)) << "rank " << rank;
    }
  }
}

TEST(GroupPlan, EveryKindOnEveryNumberOfNodesEqualsASerialModel) {
  const uint64_t seed = testing::TestSeed(11);
  PHALANX_TRACE_SEED(seed);
  Random random(seed);
  for (int nodes = 1; nodes <= 9; ++nodes) {
    for (const int extra : {0, nodes}) {
      const GroupShape shape = Shape(nodes, nodes + extra);
      for (const uint64_t bytes : {4, 1000, 2048, 2052, 16388, 100004}) {
        for (const CallSpec& spec : AllCalls(bytes, shape.world)) {
          ASSERT_NO_FATAL_FAILURE(ExpectRight(shape, spec, random.Chance(0.5), random));
        }
      }
    }
  }
}

TEST(GroupPlan, LargeVectorsEqualASerialModel) {
  Random random(testing::TestSeed(12));
  for (const int nodes : {2, 3, 5, 8}) {
    const GroupShape shape = Shape(nodes, nodes + 1);
    for (const CallSpec& spec : AllCalls(1 << 20, shape.world)) {
      ASSERT_NO_FATAL_FAILURE(ExpectRight(shape, spec, true, random));
    }
  }
}

TEST(GroupPlan, MembersThatAreLeftOutGiveNothingAndTheirPartsAreZero) {
  Random random(testing::TestSeed(13));
  for (const uint64_t bytes : {64, 4096, 100000}) {
    GroupShape shape = Shape(4, 8);
    shape.ranks = {{0}, {1, 5}, {3, 7}};  // 2, 4 and 6 are left out
    for (const CallSpec& spec : AllCalls(bytes, 2)) {
      ASSERT_NO_FATAL_FAILURE(ExpectRight(shape, spec, true, random));
    }
  }
}

TEST(GroupPlan, ResultsHaveTheSameBitsForAllMembersAndAllTimings) {
  Random random(testing::TestSeed(14));
  for (int nodes = 2; nodes <= 9; ++nodes) {
    const GroupShape shape = Shape(nodes, nodes + 2);
    for (const uint64_t bytes : {1024, 8192, 65536, 1 << 20}) {
      const CallSpec spec{.kind = CallKind::kAllReduce, .op = ReduceOp::kProd, .bytes = bytes};
      std::string first;
      for (int timing = 0; timing < 3; ++timing) {
        World world(shape, spec, false, random);
        ASSERT_TRUE(world.Run());
        if (first.empty()) first = world.Result(0);
        for (int rank = 0; rank < shape.world; ++rank) ASSERT_TRUE(world.Result(rank) == first);
      }
    }
  }
}

TEST(GroupPlan, ARingSendsEachByteTwiceAroundAndAHalvingSendsNoMore) {
  Random random(1);
  for (const uint64_t bytes : {64 << 10, 256 << 10, 1 << 20, 8 << 20}) {
    World world(Shape(8, 8), {.kind = CallKind::kAllReduce, .bytes = bytes}, false, random);
    ASSERT_TRUE(world.Run());
    for (int node = 0; node < 8; ++node) EXPECT_EQ(world.SentBy(node), bytes * 7 / 8 * 2);
  }
}

TEST(GroupPlan, FourMembersOnEachOfTwoNodesSendOneCopyOverTheLink) {
  Random random(1);
  const uint64_t bytes = 1 << 20;
  World world(Shape(2, 8), {.kind = CallKind::kAllReduce, .bytes = bytes}, false, random);
  ASSERT_TRUE(world.Run());
  EXPECT_EQ(world.SentBy(0), bytes);
  EXPECT_EQ(world.SentBy(1), bytes);
}

TEST(GroupPlan, ABroadcastAndAReduceSendTheVectorOnceOverEachEdge) {
  Random random(1);
  for (const uint64_t bytes : {1024, 8192, 1 << 20}) {
    for (const CallKind kind : {CallKind::kBroadcast, CallKind::kReduce}) {
      World world(Shape(6, 6), {.kind = kind, .bytes = bytes, .root = 4}, true, random);
      ASSERT_TRUE(world.Run());
      uint64_t total = 0;
      for (int node = 0; node < 6; ++node) total += world.SentBy(node);
      EXPECT_EQ(total, 5 * bytes);
    }
  }
}

TEST(CheckCall, NamesWhatIsWrong) {
  using testing::StatusIs;
  const auto check = [](CallSpec spec) { return CheckCall(spec, 4); };
  EXPECT_THAT(check({.kind = CallKind::kAllReduce, .bytes = 8}), testing::IsOk());
  EXPECT_THAT(check({.kind = CallKind::kAllReduce, .bytes = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "AllReduce of 0 bytes"));
  EXPECT_THAT(check({.kind = CallKind::kReduce, .bytes = 8, .root = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, "Reduce: root 4 is not in [0, 4)"));
  EXPECT_EQ(check({.kind = CallKind::kAllReduce, .bytes = 7}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check({.kind = CallKind::kAllGather, .bytes = kMaxGroupBytes / 2}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(check({.kind = CallKind::kBroadcast, .bytes = kMaxGroupBytes}), testing::IsOk());
  EXPECT_EQ(check({.kind = CallKind::kAllReduce, .op = ReduceOp::kBitOr, .bytes = 8}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      check({.kind = CallKind::kBarrier, .retain = kMaxRetainedCalls + 1, .copies = 1}).code(),
      absl::StatusCode::kInvalidArgument);
  CallSpec kept{.kind = CallKind::kBarrier, .retain = kUntilReleased, .copies = 1};
  kept.keep = {.boot = 3, .released = 3, .mark = 1};
  EXPECT_THAT(check(kept), testing::IsOk());
  kept.keep.boot = 4;
  EXPECT_THAT(check(kept), StatusIs(absl::StatusCode::kInvalidArgument,
                                    "Barrier: boot 4, released 3, mark 1 are no results to keep"));
  kept = {.kind = CallKind::kBarrier, .retain = 1, .copies = 1, .keep = {.mark = 1}};
  EXPECT_EQ(check(kept).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GroupPlan, NoStepClearsMoreThanAPiece) {
  const GroupShape shape{.world = 3, .ranks = {{0}, {2}}};
  for (const CallKind kind : {CallKind::kAllGather, CallKind::kAllToAll}) {
    const GroupPlan plan = MakeGroupPlan(shape, {.kind = kind, .bytes = 10 << 20}, 0, false);
    uint64_t cleared = 0;
    for (const Step& step : plan.steps) {
      if (step.kind != StepKind::kClear) continue;
      EXPECT_LE(step.bytes, kMaxPieceBytes);
      cleared += step.bytes;
    }
    EXPECT_EQ(cleared, uint64_t{10 << 20});
  }
}

// A member copies these bytes before the call has ended.
TEST(GroupPlan, FinalBytesAreWrittenByNoLaterStep) {
  for (uint8_t kind = 0; kind < kCallKinds; ++kind) {
    for (const auto& [nodes, members] : {std::pair{1, 2}, {2, 8}, {6, 7}}) {
      for (const uint64_t bytes : {1'000, 400'000}) {
        const GroupShape shape = Shape(nodes, members);
        CallSpec spec{.kind = static_cast<CallKind>(kind)};
        if (spec.kind != CallKind::kBarrier) spec.bytes = bytes;
        for (int node = 0; node < nodes; ++node) {
          const GroupPlan plan = MakeGroupPlan(shape, spec, node, false);
          std::vector<bool> final(plan.work_bytes), written(plan.work_bytes);
          for (const Step& step : plan.steps) {
            if (step.kind == StepKind::kSend || step.memory != StepMemory::kWork) continue;
            for (uint64_t i = step.at; i < step.at + step.bytes; ++i) {
              ASSERT_FALSE(final[i]) << spec.ToString() << ", node " << node << ", byte " << i;
              final[i] = step.final;
              written[i] = true;
            }
          }
          // The pieces of all steps are cut alike, so all of a result becomes final.
          ASSERT_EQ(final, written) << spec.ToString() << ", node " << node << " of " << nodes;
        }
      }
    }
  }
}

TEST(CallRun, AStepWaitsForTheInputThatItReads) {
  const CallSpec spec{.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 100'000};
  const std::string inputs[] = {std::string(spec.bytes, '\1'), std::string(spec.bytes, '\2')};
  const auto plan = std::make_shared<GroupPlan>(MakeGroupPlan(Shape(1, 2), spec, 0, false));
  std::string work(plan->work_bytes, '\0');
  const auto first = std::make_shared<ByteRanges>(spec.bytes);
  const auto second = std::make_shared<ByteRanges>(spec.bytes);
  CallRun run(plan, spec,
              {.inputs = {inputs[0], inputs[1]},
               .work = absl::MakeSpan(work.data(), work.size()),
               .scratch = {},
               .filled = {first, second}},
              2);
  const auto state = [&] { return run.Run([](int, absl::string_view, bool) { return true; }); };
  ASSERT_THAT(first->Add({0, spec.bytes}), testing::IsOk());
  ASSERT_THAT(second->Add({50'000, 50'000}), testing::IsOk());
  EXPECT_EQ(state(), CallRun::State::kBlocked);
  EXPECT_EQ(work[0], '\0');
  ASSERT_THAT(second->Add({0, 50'000}), testing::IsOk());
  EXPECT_EQ(state(), CallRun::State::kDone);
  EXPECT_EQ(work, std::string(spec.bytes, '\3'));
  EXPECT_EQ(run.TakeFinal(), (std::vector<ByteRange>{{0, spec.bytes}}));
}

}  // namespace
}  // namespace phalanx::jobs
