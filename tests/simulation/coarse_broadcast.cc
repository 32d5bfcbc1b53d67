#include "tests/simulation/coarse_broadcast.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/check.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/net/pull/segment_rate.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {
namespace {

using directory::DirectoryCore;
using directory::FromProto;
using directory::ToProto;

constexpr absl::Duration kProgressInterval = absl::Milliseconds(250);
constexpr int kNobody = -1;

class CoarseWorld {
 public:
  explicit CoarseWorld(const CoarsePlan& plan);
  CoarseResult Run();

 private:
  enum class Kind {
    kToShard,
    kAssigned,
    kOpened,
    kSent,
    kArrived,
    kProgress,
    kBroken,
    kShardTimer
  };
  struct Event {
    Instant at;
    uint64_t order = 0;
    Kind kind = Kind::kToShard;
    int node = 0;
    // The life of the pull that the event belongs to (for kSent: below its sender, in the upper
    // half), or the index of the message or of the order.
    uint64_t detail = 0;

    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  struct Assigned {
    ObjectId object;
    Generation generation;
    PlanId plan = 0;
    int sender = kNobody;
  };
  // A node and its one pull.
  struct Node {
    NodeKey key;
    bool alive = true;
    bool sending = false;
    std::vector<int> receivers;  // served in turn
    uint64_t hops = 0;           // has [0, hops)
    Assigned pull;
    uint64_t life = 0;  // of the pull; events of an earlier life are void
    uint64_t sent = 0;  // the sender has sent hops up to here
    bool starved = true;
    Instant last_arrival;
    absl::Duration starved_for;
    net::SegmentRate rate;
    uint64_t hops_reported = 0;
    int fed_by = kNobody;  // the sender of its last hop
  };

  void Schedule(absl::Duration after, Kind kind, int node, uint64_t detail = 0);
  void Step();
  void RunUntilQuiet();
  // Sends a message to the shard; it arrives at once, or after `control`.
  void Deliver(int node, const v1::NodeMessage& message);
  void DeliverLater(int node, v1::NodeMessage message);
  void TakeOutbox();

  void Broadcast(const ObjectId& id, uint64_t size, int last, bool waiting);
  void Assign(int node, const Assigned& assigned);
  void ClosePull(int node);
  void Send(int sender);
  void Sent(int receiver, uint64_t life);
  void Arrived(int receiver);
  void ReportComplete(int node);
  void ReportProgress(int node);
  void ReportBroken(int node);
  void KillRelays();
  uint64_t Below(int node) const;
  void Measure(CoarseResult& result) const;

  const CoarsePlan plan_;
  const absl::Duration hop_time_;
  CoarseShard shard_;
  Instant now_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  uint64_t next_order_ = 0;
  std::vector<std::pair<int, v1::NodeMessage>> in_flight_;
  std::vector<Assigned> orders_;
  uint64_t hops_ = 0;  // of the current object
  Instant last_byte_;
  bool killed_ = true;
  CoarseResult result_;
};

directory::DirectoryOptions OptionsOf(const CoarsePlan& plan) {
  directory::DirectoryOptions options;
  options.relay_bytes = plan.links.hop_bytes;
  return options;
}

CoarseWorld::CoarseWorld(const CoarsePlan& plan)
    : plan_(plan),
      hop_time_(
          absl::Seconds(static_cast<double>(plan.links.hop_bytes) / plan.links.bytes_per_second)),
      shard_(OptionsOf(plan), plan.receivers + 1, /*seed=*/1, plan.listener),
      now_(shard_.start()),
      nodes_(plan.receivers + 1) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].key = CoarseShard::KeyOf(static_cast<int>(i));
  }
}

void CoarseWorld::Schedule(absl::Duration after, Kind kind, int node, uint64_t detail) {
  events_.push(Event{now_ + after, next_order_++, kind, node, detail});
}

void CoarseWorld::Deliver(int node, const v1::NodeMessage& message) {
  shard_.Deliver(node, message, now_);
  TakeOutbox();
}

void CoarseWorld::DeliverLater(int node, v1::NodeMessage message) {
  in_flight_.emplace_back(node, std::move(message));
  Schedule(plan_.links.control, Kind::kToShard, node, in_flight_.size() - 1);
}

void CoarseWorld::TakeOutbox() {
  for (const DirectoryCore::Outgoing& out : shard_.TakeOutbox()) {
    if (!out.message.has_assign()) continue;
    const v1::Assign& assign = out.message.assign();
    orders_.push_back(Assigned{*ObjectId::FromBinary(assign.object_id()),
                               FromProto(assign.generation()), assign.plan_id(),
                               CoarseShard::NodeOf(FromProto(assign.sender()))});
    Schedule(plan_.links.control, Kind::kAssigned, CoarseShard::NodeOf(out.to), orders_.size() - 1);
  }
  const Instant deadline = shard_.core().NextDeadline();
  if (!deadline.infinite()) {
    Schedule(std::max(absl::ZeroDuration(), deadline - now_), Kind::kShardTimer, 0);
  }
}

void CoarseWorld::Step() {
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  Node& node = nodes_[event.node];
  switch (event.kind) {
    case Kind::kToShard:
      if (node.alive) Deliver(event.node, in_flight_[event.detail].second);
      in_flight_[event.detail].second.Clear();
      return;
    case Kind::kShardTimer:
      if (shard_.core().NextDeadline() > now_) return;
      shard_.Tick(now_);
      return TakeOutbox();
    case Kind::kAssigned:
      if (node.alive) Assign(event.node, orders_[event.detail]);
      return;
    case Kind::kSent:
      return Sent(event.node, event.detail);
    default:
      break;
  }
  if (!node.alive || node.life != event.detail) return;
  switch (event.kind) {
    case Kind::kOpened:
      node.sent = node.hops;
      nodes_[node.pull.sender].receivers.push_back(event.node);
      return Send(node.pull.sender);
    case Kind::kArrived:
      return Arrived(event.node);
    case Kind::kProgress:
      return ReportProgress(event.node);
    default:
      return ReportBroken(event.node);
  }
}

void CoarseWorld::RunUntilQuiet() {
  while (!events_.empty()) {
    Step();
    if (!killed_ && nodes_[1].hops >= hops_ / 2) KillRelays();
  }
}

void CoarseWorld::Assign(int key, const Assigned& assigned) {
  Node& node = nodes_[key];
  if (node.hops == hops_) return;
  ClosePull(key);
  node.pull = assigned;
  node.starved = true;
  node.starved_for = absl::ZeroDuration();
  node.last_arrival = now_;
  node.rate = net::SegmentRate();
  node.hops_reported = node.hops;
  const bool gone = !nodes_[assigned.sender].alive;
  Schedule(gone ? 2 * plan_.links.latency : plan_.links.latency,
           gone ? Kind::kBroken : Kind::kOpened, key, node.life);
  Schedule(kProgressInterval, Kind::kProgress, key, node.life);
}

void CoarseWorld::ClosePull(int key) {
  Node& node = nodes_[key];
  ++node.life;
  if (node.pull.sender == kNobody) return;
  std::vector<int>& receivers = nodes_[node.pull.sender].receivers;
  receivers.erase(std::remove(receivers.begin(), receivers.end(), key), receivers.end());
  node.pull.sender = kNobody;
}

// Sends the link's next hop, to the receiver that has waited longest of those that lack hops.
void CoarseWorld::Send(int key) {
  Node& sender = nodes_[key];
  if (sender.sending || !sender.alive) return;
  const auto next = std::find_if(sender.receivers.begin(), sender.receivers.end(),
                                 [&](int at) { return nodes_[at].sent < sender.hops; });
  if (next == sender.receivers.end()) return;
  const int receiver = *next;
  sender.receivers.erase(next);
  sender.receivers.push_back(receiver);
  sender.sending = true;
  Schedule(hop_time_, Kind::kSent, receiver,
           static_cast<uint64_t>(key) << 32 | nodes_[receiver].life);
}

void CoarseWorld::Sent(int key, uint64_t detail) {
  const int from = static_cast<int>(detail >> 32);
  Node& sender = nodes_[from];
  Node& receiver = nodes_[key];
  sender.sending = false;
  if (sender.alive && receiver.alive && receiver.life == (detail & 0xffffffff)) {
    ++receiver.sent;
    Schedule(plan_.links.latency, Kind::kArrived, key, receiver.life);
  }
  Send(from);
}

void CoarseWorld::Arrived(int key) {
  Node& node = nodes_[key];
  const Node& sender = nodes_[node.pull.sender];
  node.rate.Segment(now_, plan_.links.hop_bytes, node.starved);
  if (node.starved) node.starved_for += now_ - node.last_arrival;
  // If the sender had no more hops when this one arrived, the next comes after a gap.
  node.starved = node.sent >= sender.hops;
  node.last_arrival = now_;
  ++node.hops;
  if (node.hops == hops_) ReportComplete(key);
  Send(key);
}

void CoarseWorld::ReportComplete(int key) {
  Node& node = nodes_[key];
  last_byte_ = now_;
  node.fed_by = node.pull.sender;
  v1::NodeMessage message;
  v1::PullReport& report = *message.mutable_pull_report();
  report.mutable_object_id()->assign(node.pull.object.binary().data(), ObjectId::kSize);
  ToProto(node.pull.generation, report.mutable_generation());
  report.set_plan_id(node.pull.plan);
  report.set_complete(true);
  report.add_watermarks(hops_ * plan_.links.hop_bytes);
  report.set_first_byte_ns(2 * absl::ToInt64Nanoseconds(plan_.links.latency));
  report.set_bytes_per_second(node.rate.bytes_per_second());
  report.set_starved_ns(absl::ToInt64Nanoseconds(node.starved_for));
  ClosePull(key);
  DeliverLater(key, std::move(message));
}

void CoarseWorld::ReportProgress(int key) {
  Node& node = nodes_[key];
  v1::NodeMessage message;
  v1::Progress::Pull& pull = *message.mutable_progress()->add_pulls();
  pull.mutable_object_id()->assign(node.pull.object.binary().data(), ObjectId::kSize);
  ToProto(node.pull.generation, pull.mutable_generation());
  pull.set_plan_id(node.pull.plan);
  pull.add_watermarks(node.hops * plan_.links.hop_bytes);
  const uint64_t bytes = (node.hops - node.hops_reported) * plan_.links.hop_bytes;
  pull.set_bytes_per_second(static_cast<double>(bytes) / absl::ToDoubleSeconds(kProgressInterval));
  pull.set_starved_ns(absl::ToInt64Nanoseconds(node.starved_for));
  node.hops_reported = node.hops;
  DeliverLater(key, std::move(message));
  Schedule(kProgressInterval, Kind::kProgress, key, node.life);
}

void CoarseWorld::ReportBroken(int key) {
  Node& node = nodes_[key];
  v1::NodeMessage message;
  v1::PullReport& report = *message.mutable_pull_report();
  report.mutable_object_id()->assign(node.pull.object.binary().data(), ObjectId::kSize);
  ToProto(node.pull.generation, report.mutable_generation());
  report.set_plan_id(node.pull.plan);
  report.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  report.add_watermarks(node.hops * plan_.links.hop_bytes);
  ClosePull(key);
  DeliverLater(key, std::move(message));
}

uint64_t CoarseWorld::Below(int key) const {
  uint64_t below = 0;
  std::vector<int> pending = {key};
  while (!pending.empty()) {
    const Node& node = nodes_[pending.back()];
    pending.pop_back();
    below += node.receivers.size();
    pending.insert(pending.end(), node.receivers.begin(), node.receivers.end());
  }
  return below;
}

// Kills relays that have receivers, spread over all of them. The shard sees each death at once,
// like a broken connection.
void CoarseWorld::KillRelays() {
  killed_ = true;
  std::vector<int> relays;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (!nodes_[i].receivers.empty()) relays.push_back(static_cast<int>(i));
  }
  const uint64_t examined = shard_.Counter("candidates_examined");
  const uint64_t visited = shard_.Counter("members_visited");
  const uint64_t repairs = shard_.Counter("repairs");
  const size_t kills = std::min<size_t>(plan_.relays_killed, relays.size());
  for (size_t i = 0; i < kills; ++i) {
    const int victim = relays[(2 * i + 1) * relays.size() / (2 * kills)];
    Node& node = nodes_[victim];
    result_.repair_below += Below(victim);
    ClosePull(victim);
    node.alive = false;
    for (const int receiver : std::exchange(node.receivers, {})) {
      Node& orphan = nodes_[receiver];
      ++orphan.life;
      Schedule(plan_.links.latency, Kind::kBroken, receiver, orphan.life);
    }
    shard_.NodeDown(victim, now_);
    TakeOutbox();
  }
  result_.repair_examined = shard_.Counter("candidates_examined") - examined;
  result_.repair_visited = shard_.Counter("members_visited") - visited;
  result_.repairs = shard_.Counter("repairs") - repairs;
}

// Node 0 puts the object; nodes [1, last) get it at one instant.
void CoarseWorld::Broadcast(const ObjectId& id, uint64_t size, int last, bool waiting) {
  hops_ = size / plan_.links.hop_bytes;
  for (Node& node : nodes_) node.hops = 0;
  nodes_[0].hops = hops_;
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  create.mutable_object_id()->assign(id.binary().data(), ObjectId::kSize);
  ToProto(Generation{nodes_[0].key, next_order_ + 1}, create.mutable_generation());
  create.mutable_info()->set_size_bytes(size);
  create.mutable_info()->set_slices(1);
  create.set_complete(true);
  if (!waiting) Deliver(0, message);
  for (int i = 1; i < last; ++i) {
    v1::NodeMessage want;
    want.mutable_want()->mutable_object_id()->assign(id.binary().data(), ObjectId::kSize);
    want.mutable_want()->set_number(++next_order_);
    waiting ? Deliver(i, want) : DeliverLater(i, std::move(want));
  }
  if (waiting) DeliverLater(0, std::move(message));
  RunUntilQuiet();
}

void CoarseWorld::Measure(CoarseResult& result) const {
  std::vector<int> fed(nodes_.size(), 0);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.alive || node.hops != hops_) continue;
    ++result.complete;
    result.fan_out = std::max(result.fan_out, ++fed[node.fed_by]);
    int depth = 0;
    for (int at = static_cast<int>(i); at > 0; at = nodes_[at].fed_by) ++depth;
    result.depth = std::max(result.depth, depth);
  }
}

CoarseResult CoarseWorld::Run() {
  // Enough bytes for a rate: SegmentRate ignores the first ones.
  const uint64_t probe = std::max<uint64_t>(8 * plan_.links.hop_bytes, 1 << 20);
  if (plan_.measured) Broadcast(ObjectId::FromName("coarse", "probe"), probe, 2, /*waiting=*/false);
  result_ = CoarseResult();
  shard_.ResetCounts();
  const uint64_t examined = shard_.Counter("candidates_examined");
  const uint64_t visited = shard_.Counter("members_visited");
  killed_ = plan_.relays_killed == 0;
  const Instant start = now_;
  Broadcast(ObjectId::FromName("coarse", "object"), plan_.size_bytes,
            static_cast<int>(nodes_.size()), plan_.waiting);
  result_.time = last_byte_ - start;
  result_.messages = shard_.messages();
  result_.core_time = shard_.core_time();
  result_.examined = shard_.Counter("candidates_examined") - examined;
  result_.visited = shard_.Counter("members_visited") - visited;
  Measure(result_);
  PHALANX_CHECK(shard_.core().CheckInvariants().ok(), "the core's invariants hold");
  return result_;
}

absl::Duration WayDown(const CoarseLinks& links, int depth, int fan_out) {
  const absl::Duration hop =
      absl::Seconds(static_cast<double>(links.hop_bytes) / links.bytes_per_second);
  return links.latency + (depth - 1) * (links.latency + fan_out * hop);
}

}  // namespace

CoarseResult RunCoarseBroadcast(const CoarsePlan& plan) { return CoarseWorld(plan).Run(); }

int TreeDepth(int receivers, int fan_out) {
  if (fan_out == 1) return receivers;
  int depth = 0;
  for (int64_t level = 1, reached = 0; reached < receivers; ++depth) reached += level *= fan_out;
  return depth;
}

absl::Duration TreeTime(const CoarseLinks& links, int receivers, uint64_t size_bytes, int fan_out) {
  if (fan_out == 0) {
    absl::Duration best = absl::InfiniteDuration();
    for (int f = 1; f <= receivers; ++f) {
      best = std::min(best, TreeTime(links, receivers, size_bytes, f));
    }
    return best;
  }
  const absl::Duration once =
      absl::Seconds(static_cast<double>(size_bytes) / links.bytes_per_second);
  return 2 * links.control + links.latency + fan_out * once +
         WayDown(links, TreeDepth(receivers, fan_out), fan_out);
}

absl::Duration SlicedTime(const CoarseLinks& links, int receivers, uint64_t size_bytes,
                          int fan_out) {
  const absl::Duration once =
      absl::Seconds(static_cast<double>(size_bytes) / links.bytes_per_second);
  return 2 * links.control + links.latency + once +
         WayDown(links, TreeDepth(receivers, fan_out) + 1, fan_out);
}

}  // namespace phalanx::sim
