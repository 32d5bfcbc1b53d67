// A job of a thousand members on fifty nodes: they join, reduce a thousand times, and ten of them
// die meanwhile. Every result has all members that live, and joins and deaths cost the shard as
// much per member in a large job as in a small one.
//
// The members and the shard are those of MemberWorld, the group of each node is a GroupCore that
// takes its views, and messages of groups arrive at once.
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/testing/group_parts.h"
#include "src/jobs/testing/member_world.h"

namespace phalanx::jobs::testing {
namespace {

constexpr int kNodes = 50;
constexpr int kCalls = 1000;
constexpr int kCallsOfALife = 100;  // between two deaths
constexpr uint64_t kDeaths = kCalls / kCallsOfALife;
constexpr absl::Duration kSoon = absl::Seconds(2);
constexpr CallSpec kSum{
    .kind = CallKind::kAllReduce, .dtype = DType::kU64, .on_loss = OnLoss::kExclude, .bytes = 8};

// The groups of all nodes.
class Groups {
 public:
  explicit Groups(MemberWorld& world) : world_(world) {
    for (int n = 0; n < kNodes; ++n) {
      nodes_.push_back(std::make_unique<Node>(static_cast<uint64_t>(n) + 1));
      world.members(n).AddObserver(nodes_.back().get());
    }
  }

  // All members that live make a call. Returns the number of members in its results, which must be
  // the same for all; 0: it has not ended for all, or has another result for one.
  int Reduce() {
    results_.clear();
    uint64_t calls = 0;
    for (const auto& client : world_.clients()) {
      if (!client->live()) continue;
      ++calls;
      Node& node = *nodes_[static_cast<size_t>(client->node())];
      GroupCallRequest request{.id = ++last_id_, .spec = kSum, .input = {kOne, sizeof(kOne)}};
      const auto [rank, life] = std::pair(client->member().rank, client->member().life);
      EXPECT_THAT(node.core.Call(rank, life, request, world_.now()), ::phalanx::testing::IsOk());
    }
    Deliver();
    const bool same =
        results_.size() == calls && std::set(results_.begin(), results_.end()).size() == 1;
    return same ? static_cast<int>(results_[0]) : 0;
  }
  void Deliver() {
    for (bool any = true; any;) {
      any = false;
      for (const auto& node : nodes_) {
        for (const GroupEffect& effect : node->core.TakeEffects()) {
          any = true;
          Carry(*node, effect);
        }
      }
    }
  }
  uint64_t messages() const { return messages_; }

 private:
  struct Node final : public GroupObserver {
    explicit Node(uint64_t number) : key{number, 1}, core(key, 7, "train/worker") {}
    // As GroupService does.
    void OnView(const GroupView& view) override {
      for (const Member& member : view.members) {
        if (member.live() && member.node == key) core.AddMember(member.rank, member.life);
      }
      (void)core.OnView(view, Instant());
    }
    void OnGroupLeft(absl::string_view, absl::string_view) override {}

    const NodeKey key;
    GroupCore core;
  };

  void Carry(Node& from, const GroupEffect& effect) {
    if (std::holds_alternative<GroupRunMore>(effect)) return from.core.Advance();
    if (const auto* done = std::get_if<GroupDone>(&effect)) {
      EXPECT_THAT(done->status, ::phalanx::testing::IsOk());
      uint64_t sum = 0;
      if (done->result.size() == sizeof(sum)) std::memcpy(&sum, done->result.data(), sizeof(sum));
      EXPECT_EQ(sum, static_cast<uint64_t>(done->members));
      return results_.push_back(sum);
    }
    if (const auto* allocate = std::get_if<GroupAllocate>(&effect)) {
      return from.core.OnMemory(allocate->ticket,
                                NewMemory(allocate->work_bytes, allocate->scratch_bytes));
    }
    const auto* send = std::get_if<GroupSend>(&effect);
    if (send == nullptr) return;
    ++messages_;
    const absl::string_view payload = send->keep != nullptr ? send->payload : send->copied;
    nodes_[send->to.key.node - 1]->core.OnMessage(from.key, *DecodeHeader(send->header), payload,
                                                  world_.now());
    if (send->keep != nullptr) from.core.OnReleased(send->to.key, payload.size());
  }

  static constexpr char kOne[8] = {1};
  MemberWorld& world_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint64_t> results_;
  GroupCallId last_id_ = 0;
  uint64_t messages_ = 0;
};

// What passed between the nodes and the shard.
struct ShardWork {
  double messages_per_join = 0;
  double bytes_per_join = 0;
  uint64_t messages_of_deaths = 0;
};

ShardWork RunJob(int members) {
  MemberWorld world({.nodes = kNodes});
  Groups groups(world);
  world.RunFor(kSoon);
  ShardWork work;
  uint64_t messages = world.messages(), bytes = world.message_bytes();
  const auto since = [&] { return world.messages() - std::exchange(messages, world.messages()); };
  for (int i = 0; i < members; ++i) {
    world.Join(i % kNodes, {"train", "worker", absl::StrCat("worker", i), members});
  }
  world.RunFor(kSoon);
  work.bytes_per_join = static_cast<double>(world.message_bytes() - bytes) / members;
  work.messages_per_join = static_cast<double>(since()) / members;
  groups.Deliver();
  for (int call = 1; call <= kCalls; ++call) {
    const int dead = (call - 1) / kCallsOfALife;
    EXPECT_EQ(groups.Reduce(), members - dead) << "call " << call;
    world.RunFor(absl::Milliseconds(1));
    if (call % kCallsOfALife != 0) continue;
    // Not of one node, and not in the order of ranks.
    world.End(*world.clients()[static_cast<size_t>((dead * 37 + 5) % members)], MemberState::kDied);
    world.RunFor(kSoon);
    groups.Deliver();
    work.messages_of_deaths += since();
  }
  EXPECT_THAT(world.broken(), ::phalanx::testing::IsOk());
  std::cout << members << " members: " << work.messages_per_join << " messages and "
            << work.bytes_per_join << " bytes per join, " << work.messages_of_deaths
            << " messages of " << kDeaths << " deaths; " << groups.messages()
            << " messages between nodes in " << kCalls << " calls\n";
  return work;
}

TEST(JobScale, AThousandMembersCostTheShardAsMuchPerMemberAsAHundred) {
  const ShardWork small = RunJob(100);
  const ShardWork large = RunJob(1000);
  EXPECT_LE(large.messages_per_join, small.messages_per_join);
  EXPECT_LE(large.bytes_per_join, 1.1 * small.bytes_per_join);
  // The node's report, and one message to each node.
  EXPECT_EQ(small.messages_of_deaths, kDeaths * (kNodes + 1));
  EXPECT_EQ(large.messages_of_deaths, kDeaths * (kNodes + 1));
}

}  // namespace
}  // namespace phalanx::jobs::testing
