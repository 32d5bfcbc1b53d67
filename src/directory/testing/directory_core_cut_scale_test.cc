// How the search for ways around cuts grows: 100 receivers of 200 nodes do not reach the only
// holder. Counts messages, probes, open orders and simulated time; the nodes are a coarse model.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

constexpr absl::Duration kStep = absl::Milliseconds(5);
// As a node measures them: until it reports that a pull, or a probe, is not connected.
constexpr absl::Duration kPatience = absl::Milliseconds(250);
constexpr absl::Duration kProbePatience = absl::Milliseconds(250 * 7 / 8);
constexpr absl::Duration kPull = absl::Milliseconds(20);
constexpr int kNodes = 200;
constexpr int kCut = 100;

const ObjectId x = Id("x");

// Every answer arrives one step after its question.
class CutCrowd {
 public:
  CutCrowd() {
    h_.CheckEvery(kNodes);
    for (int i = 0; i < kNodes; ++i) nodes_.push_back(h_.Up("n" + std::to_string(i)));
  }

  const NodeKey& holder() const { return nodes_.front(); }
  const NodeKey& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  void Put() { h_.Create(holder(), x, {.size = 32 << 20, .complete = true}); }
  void Want(const NodeKey& node) {
    wants_.insert(node);
    h_.Want(node, x);
  }

  // Returns the time until all wants have ended; infinite if that takes longer than `most`.
  absl::Duration Run(absl::Duration most) {
    const Instant begin = h_.now();
    while (h_.now() - begin < most) {
      Read();
      most_orders = std::max(most_orders, orders_.size());
      if (wants_.empty()) return h_.now() - begin;
      h_.Advance(kStep);
      while (!events_.empty() && events_.begin()->first <= h_.now()) {
        const std::function<void()> event = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        event();
      }
      FinishPulls();
    }
    return absl::InfiniteDuration();
  }

  uint64_t Probes() {
    v1::GetStatusResponse status;
    h_.core().FillStatus(h_.now(), &status);
    return status.counters().at("probes");
  }
  size_t open_orders() const { return orders_.size(); }
  bool Complete(const NodeKey& node) const { return complete_.contains(node) || node == holder(); }

  uint64_t messages = 0;  // of the shard
  uint64_t failed_attempts = 0;
  size_t most_orders = 0;

 private:
  struct Pull {
    NodeKey sender;
    PlanId plan = 0;
    Instant began;
  };

  static bool Cut(int receiver, const NodeKey& sender, const NodeKey& holder) {
    return receiver >= 1 && receiver <= kCut && sender == holder;
  }
  bool Reaches(const NodeKey& receiver, const NodeKey& sender) const {
    const auto at = std::find(nodes_.begin(), nodes_.end(), receiver);
    return !Cut(static_cast<int>(at - nodes_.begin()), sender, holder());
  }
  void After(absl::Duration time, std::function<void()> event) {
    events_.emplace(h_.now() + time, std::move(event));
  }

  void Read() {
    std::vector<std::pair<NodeKey, v1::ShardMessage>> all;
    for (const NodeKey& node : nodes_) {
      for (const v1::ShardMessage& message : h_.Received(node)) all.emplace_back(node, message);
    }
    h_.Clear();
    messages += all.size();
    for (const auto& [node, message] : all) OnMessage(node, message);
  }

  void OnMessage(const NodeKey& node, const v1::ShardMessage& m) {
    if (m.has_assign()) {
      pulls_[node] = {FromProto(m.assign().sender()), m.assign().plan_id(), h_.now()};
      if (!Reaches(node, pulls_[node].sender)) AwaitConnection(node, m.assign().plan_id());
    } else if (m.has_probe()) {
      OnProbe(node, m.probe());
    } else if (m.has_fetch() && m.fetch().end()) {
      orders_.erase(node);
      if (wants_.contains(node) || !pulls_.contains(node)) return;
      pulls_.erase(node);
      After(kStep, [this, node] { h_.Unwant(node, x); });
    } else if (m.has_fetch()) {
      orders_.insert(node);
      After(kStep, [this, node] {
        if (orders_.contains(node) && !Complete(node)) h_.Want(node, x);
      });
    }
  }

  void AwaitConnection(const NodeKey& node, PlanId plan) {
    After(kPatience, [this, node, plan] {
      if (!Pulls(node, plan)) return;
      ++failed_attempts;
      v1::NodeMessage message;
      v1::Progress::Pull& pull = *message.mutable_progress()->add_pulls();
      pull.set_object_id(x.binary().data(), ObjectId::kSize);
      ToProto(h_.LastAssign(node, x)->generation, pull.mutable_generation());
      pull.set_plan_id(plan);
      pull.add_watermarks(0);
      pull.set_connecting(true);
      h_.Send(node, message).IgnoreError();
      AwaitConnection(node, plan);
    });
  }
  bool Pulls(const NodeKey& node, PlanId plan) const {
    const auto pull = pulls_.find(node);
    return pull != pulls_.end() && pull->second.plan == plan;
  }

  void OnProbe(const NodeKey& node, const v1::Probe& probe) {
    v1::NodeMessage message;
    for (const v1::Probe::Peer& peer : probe.peers()) {
      if (Reaches(node, FromProto(peer.key()))) continue;
      v1::ProbeReport::Unreached& out = *message.mutable_probe_report()->add_unreached();
      *out.mutable_key() = peer.key();
      out.set_code(static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded));
    }
    if (!message.has_probe_report()) return;
    After(kProbePatience, [this, node, message] { h_.Send(node, message).IgnoreError(); });
  }

  // A pull is complete a moment after it began, if its sender is: bytes pass through a chain at
  // once.
  void FinishPulls() {
    for (bool more = true; more;) {
      std::vector<NodeKey> done;
      for (const auto& [node, pull] : pulls_) {
        if (!Complete(pull.sender) || !Reaches(node, pull.sender)) continue;
        if (h_.now() - pull.began >= kPull) done.push_back(node);
      }
      more = !done.empty();
      for (const NodeKey& node : done) {
        pulls_.erase(node);
        complete_.insert(node);
        wants_.erase(node);
        h_.Finish(node, x);
      }
    }
  }

  Harness h_;
  std::vector<NodeKey> nodes_;
  std::multimap<Instant, std::function<void()>> events_;
  std::map<NodeKey, Pull> pulls_;
  std::set<NodeKey> wants_;
  std::set<NodeKey> complete_;
  std::set<NodeKey> orders_;
};

struct Case {
  const char* name;
  bool all_at_once;
  bool others_too;  // the nodes that reach the holder want the object, too
};

class ManyCutReceivers : public ::testing::TestWithParam<Case> {};

// The cut receivers are the first ones by key, so that probes and relays begin with them.
TEST_P(ManyCutReceivers, FindWaysAroundWithBoundedWork) {
  const Case& c = GetParam();
  CutCrowd crowd;
  crowd.Put();
  absl::Duration took;
  for (int i = 1; i <= kCut; ++i) {
    crowd.Want(crowd.node(i));
    if (!c.all_at_once) took = std::max(took, crowd.Run(absl::Seconds(2)));
  }
  for (int i = kCut + 1; i < kNodes && c.others_too; ++i) crowd.Want(crowd.node(i));
  if (c.all_at_once) took = crowd.Run(absl::Seconds(20));
  std::cout << took << ", " << crowd.messages << " messages, " << crowd.Probes() << " probes, "
            << crowd.failed_attempts << " failed attempts, " << crowd.most_orders
            << " orders at a time\n";
  // Before the first failure is forgotten: otherwise the search might never end.
  EXPECT_LT(took, absl::Seconds(2));
  EXPECT_LE(crowd.failed_attempts, 10u);
  EXPECT_LE(crowd.most_orders, 2u);
  EXPECT_LE(crowd.messages, 5u * kNodes);
  // A round over all nodes, and as many peers for each receiver that has failed.
  EXPECT_LE(crowd.Probes(), kNodes + crowd.failed_attempts * kMaxProbedPeers);
  crowd.Run(absl::Milliseconds(20));
  EXPECT_EQ(crowd.open_orders(), 0u) << "no receiver needs a relay any more";
}

INSTANTIATE_TEST_SUITE_P(Cases, ManyCutReceivers,
                         ::testing::Values(Case{"AllAtOnce", true, false},
                                           Case{"OneByOne", false, false},
                                           Case{"AmongOthers", true, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace phalanx::directory
