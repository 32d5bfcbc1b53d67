#include "tests/simulation/coarse_broadcast.h"

#include <algorithm>
#include <array>
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
    int pull = 0;
    int slice = 0;

    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  struct Assigned {
    ObjectId object;
    Generation generation;
    PlanId plan = 0;
    int sender = kNobody;
    uint64_t slices = 0;
  };
  static constexpr int kSlices = 2;  // at most
  using Hops = std::array<uint64_t, kSlices>;
  struct Pull {
    Assigned order;
    uint64_t life = 0;  // events of an earlier life are void
    Hops sent = {};     // the sender has sent the hops of each slice up to here
    bool starved = true;
    Instant last_arrival;
    absl::Duration starved_for = {};
    net::SegmentRate rate = {};
    uint64_t hops_reported = 0;

    bool Has(int slice) const { return (order.slices >> slice & 1) != 0; }
  };
  struct Receiver {
    int node = kNobody;
    int pull = 0;
    friend bool operator==(const Receiver&, const Receiver&) = default;
  };
  // A node and its pulls, each at the place of its first slice.
  struct Node {
    NodeKey key;
    bool alive = true;
    bool sending = false;
    std::vector<Receiver> receivers;  // served in turn
    Hops hops = {};                   // has [0, hops) of each slice
    std::array<Pull, kSlices> pulls;
    std::array<int, kSlices> fed_by = {kNobody, kNobody};  // the sender of the last hop
  };

  // What `pull` of the node fetches, of `hops`.
  uint64_t HopsOf(const Pull& pull, const Hops& hops) const {
    return (pull.Has(0) ? hops[0] : 0) + (pull.Has(1) ? hops[1] : 0);
  }
  void Schedule(absl::Duration after, Kind kind, int node, uint64_t detail = 0, int pull = 0,
                int slice = 0);
  void Step();
  void RunUntilQuiet();
  // Sends a message to the shard; it arrives at once, or after `control`.
  void Deliver(int node, const v1::NodeMessage& message);
  void DeliverLater(int node, v1::NodeMessage message);
  void TakeOutbox();

  void Broadcast(const ObjectId& id, uint64_t size, int last, bool waiting);
  void Assign(int node, const Assigned& assigned);
  void ClosePull(Receiver at);
  void Send(int sender);
  // The slice of the receiver's pull that the sender has hops of, and sends next; kNobody if none.
  int NextSlice(const Node& sender, Receiver receiver) const;
  void Sent(Receiver receiver, int slice, uint64_t detail);
  void Arrived(Receiver at, int slice);
  // The pull has every byte that it fetches; the node, too, or another pull brings the others.
  void ReportEnd(Receiver at);
  void ReportProgress(Receiver at);
  void ReportBroken(Receiver at);
  template <typename Message>
  void Describe(Receiver at, Message& message) const;
  Pull& At(Receiver at) { return nodes_[at.node].pulls[at.pull]; }
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
  Hops hops_ = {};  // of the current object
  int slices_ = 1;
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

void CoarseWorld::Schedule(absl::Duration after, Kind kind, int node, uint64_t detail, int pull,
                           int slice) {
  events_.push(Event{now_ + after, next_order_++, kind, node, detail, pull, slice});
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
                               CoarseShard::NodeOf(FromProto(assign.sender())), assign.slices()});
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
      return Sent({event.node, event.pull}, event.slice, event.detail);
    default:
      break;
  }
  const Receiver at{event.node, event.pull};
  Pull& pull = At(at);
  if (!node.alive || pull.life != event.detail) return;
  switch (event.kind) {
    case Kind::kOpened:
      pull.sent = node.hops;
      nodes_[pull.order.sender].receivers.push_back(at);
      return Send(pull.order.sender);
    case Kind::kArrived:
      return Arrived(at, event.slice);
    case Kind::kProgress:
      return ReportProgress(at);
    default:
      return ReportBroken(at);
  }
}

void CoarseWorld::RunUntilQuiet() {
  while (!events_.empty()) {
    Step();
    const Node& first = nodes_[1];
    const bool half = first.hops[0] + first.hops[1] >= (hops_[0] + hops_[1]) / 2;
    if (!killed_ && half) KillRelays();
  }
}

void CoarseWorld::Assign(int key, const Assigned& assigned) {
  Node& node = nodes_[key];
  if (node.hops == hops_) return;
  for (int i = 0; i < kSlices; ++i) {
    if ((node.pulls[i].order.slices & assigned.slices) != 0) ClosePull({key, i});
  }
  const Receiver at{key, (assigned.slices & 1) != 0 ? 0 : 1};
  Pull& pull = At(at);
  pull = {.order = assigned, .life = pull.life, .last_arrival = now_};
  pull.hops_reported = HopsOf(pull, node.hops);
  if (pull.hops_reported == HopsOf(pull, hops_)) return ReportEnd(at);
  const bool gone = !nodes_[assigned.sender].alive;
  Schedule(gone ? 2 * plan_.links.latency : plan_.links.latency,
           gone ? Kind::kBroken : Kind::kOpened, key, pull.life, at.pull);
  Schedule(kProgressInterval, Kind::kProgress, key, pull.life, at.pull);
}

void CoarseWorld::ClosePull(Receiver at) {
  Pull& pull = At(at);
  ++pull.life;
  pull.order.slices = 0;
  if (pull.order.sender == kNobody) return;
  std::vector<Receiver>& receivers = nodes_[pull.order.sender].receivers;
  receivers.erase(std::remove(receivers.begin(), receivers.end(), at), receivers.end());
  pull.order.sender = kNobody;
}

int CoarseWorld::NextSlice(const Node& sender, Receiver receiver) const {
  const Pull& pull = nodes_[receiver.node].pulls[receiver.pull];
  int next = kNobody;
  for (int slice = 0; slice < slices_; ++slice) {
    if (!pull.Has(slice) || pull.sent[slice] >= sender.hops[slice]) continue;
    if (next == kNobody || pull.sent[slice] < pull.sent[next]) next = slice;
  }
  return next;
}

// Sends the link's next hop, to the receiver that has waited longest of those that lack hops.
void CoarseWorld::Send(int key) {
  Node& sender = nodes_[key];
  if (sender.sending || !sender.alive) return;
  const auto next =
      std::find_if(sender.receivers.begin(), sender.receivers.end(),
                   [&](const Receiver& at) { return NextSlice(sender, at) != kNobody; });
  if (next == sender.receivers.end()) return;
  const Receiver receiver = *next;
  sender.receivers.erase(next);
  sender.receivers.push_back(receiver);
  sender.sending = true;
  Schedule(hop_time_, Kind::kSent, receiver.node,
           static_cast<uint64_t>(key) << 32 | At(receiver).life, receiver.pull,
           NextSlice(sender, receiver));
}

void CoarseWorld::Sent(Receiver at, int slice, uint64_t detail) {
  const int from = static_cast<int>(detail >> 32);
  Node& sender = nodes_[from];
  Pull& pull = At(at);
  sender.sending = false;
  if (sender.alive && nodes_[at.node].alive && pull.life == (detail & 0xffffffff)) {
    ++pull.sent[slice];
    Schedule(plan_.links.latency, Kind::kArrived, at.node, pull.life, at.pull, slice);
  }
  Send(from);
}

void CoarseWorld::Arrived(Receiver at, int slice) {
  Node& node = nodes_[at.node];
  Pull& pull = At(at);
  pull.rate.Segment(now_, plan_.links.hop_bytes, pull.starved);
  if (pull.starved) pull.starved_for += now_ - pull.last_arrival;
  // If the sender had no more hops when this one arrived, the next comes after a gap.
  pull.starved = NextSlice(nodes_[pull.order.sender], at) == kNobody;
  pull.last_arrival = now_;
  if (++node.hops[slice] == hops_[slice]) node.fed_by[slice] = pull.order.sender;
  if (HopsOf(pull, node.hops) == HopsOf(pull, hops_)) ReportEnd(at);
  Send(at.node);
}

template <typename Message>
void CoarseWorld::Describe(Receiver at, Message& message) const {
  const Node& node = nodes_[at.node];
  const Assigned& order = node.pulls[at.pull].order;
  message.mutable_object_id()->assign(order.object.binary().data(), ObjectId::kSize);
  ToProto(order.generation, message.mutable_generation());
  message.set_plan_id(order.plan);
  for (int slice = 0; slice < slices_; ++slice) {
    message.add_watermarks(node.hops[slice] * plan_.links.hop_bytes);
  }
}

void CoarseWorld::ReportEnd(Receiver at) {
  const Pull& pull = At(at);
  v1::NodeMessage message;
  v1::PullReport& report = *message.mutable_pull_report();
  Describe(at, report);
  report.set_complete(nodes_[at.node].hops == hops_);
  if (report.complete()) last_byte_ = now_;
  report.set_first_byte_ns(2 * absl::ToInt64Nanoseconds(plan_.links.latency));
  report.set_bytes_per_second(pull.rate.bytes_per_second());
  report.set_starved_ns(absl::ToInt64Nanoseconds(pull.starved_for));
  ClosePull(at);
  DeliverLater(at.node, std::move(message));
}

void CoarseWorld::ReportProgress(Receiver at) {
  Pull& pull = At(at);
  v1::NodeMessage message;
  v1::Progress::Pull& out = *message.mutable_progress()->add_pulls();
  Describe(at, out);
  const uint64_t hops = HopsOf(pull, nodes_[at.node].hops);
  const uint64_t bytes = (hops - pull.hops_reported) * plan_.links.hop_bytes;
  out.set_bytes_per_second(static_cast<double>(bytes) / absl::ToDoubleSeconds(kProgressInterval));
  out.set_starved_ns(absl::ToInt64Nanoseconds(pull.starved_for));
  pull.hops_reported = hops;
  DeliverLater(at.node, std::move(message));
  Schedule(kProgressInterval, Kind::kProgress, at.node, pull.life, at.pull);
}

void CoarseWorld::ReportBroken(Receiver at) {
  v1::NodeMessage message;
  v1::PullReport& report = *message.mutable_pull_report();
  Describe(at, report);
  report.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  ClosePull(at);
  DeliverLater(at.node, std::move(message));
}

uint64_t CoarseWorld::Below(int key) const {
  uint64_t below = 0;
  for (int slice = 0; slice < slices_; ++slice) {
    std::vector<int> pending = {key};
    while (!pending.empty()) {
      const Node& node = nodes_[pending.back()];
      pending.pop_back();
      for (const Receiver& receiver : node.receivers) {
        const Pull& pull = nodes_[receiver.node].pulls[receiver.pull];
        // Once for a pull of both slices.
        if (!pull.Has(slice)) continue;
        below += receiver.pull == slice ? 1 : 0;
        pending.push_back(receiver.node);
      }
    }
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
    for (int i = 0; i < kSlices; ++i) ClosePull({victim, i});
    node.alive = false;
    for (const Receiver& receiver : std::exchange(node.receivers, {})) {
      Pull& orphan = At(receiver);
      ++orphan.life;
      Schedule(plan_.links.latency, Kind::kBroken, receiver.node, orphan.life, receiver.pull);
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
  slices_ = plan_.slices;
  const uint64_t hops = size / plan_.links.hop_bytes;
  hops_ = {hops / slices_, slices_ == kSlices ? hops / kSlices : 0};
  for (Node& node : nodes_) node.hops = {};
  nodes_[0].hops = hops_;
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  create.mutable_object_id()->assign(id.binary().data(), ObjectId::kSize);
  ToProto(Generation{nodes_[0].key, next_order_ + 1}, create.mutable_generation());
  create.mutable_info()->set_size_bytes(size);
  create.mutable_info()->set_slices(slices_);
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
    for (int slice = 0; slice < slices_; ++slice) {
      // In two trees a node relays one slice only, so this counts the receivers of either.
      if (slice == 0 || node.fed_by[0] != node.fed_by[1]) ++fed[node.fed_by[slice]];
      result.fan_out = std::max(result.fan_out, fed[node.fed_by[slice]]);
      int depth = 0;
      for (int at = static_cast<int>(i); at > 0; at = nodes_[at].fed_by[slice]) ++depth;
      result.depth = std::max(result.depth, depth);
    }
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
