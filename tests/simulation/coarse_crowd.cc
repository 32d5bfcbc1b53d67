#include "tests/simulation/coarse_crowd.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/check.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/net/pull/segment_rate.h"
#include "src/object_store/pulls/pull_watch.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {

using directory::DirectoryCore;
using directory::FromProto;
using directory::ToProto;

directory::DirectoryOptions OptionsOf(const CrowdPlan& plan) {
  directory::DirectoryOptions options;
  options.relay_bytes = plan.relay_bytes;
  return options;
}

constexpr absl::Duration kProgressInterval = absl::Milliseconds(250);

class CoarseCrowd::World {
 public:
  explicit World(const CrowdPlan& plan);
  absl::Duration BroadcastFrom(int sources);

  std::vector<uint64_t> hops_sent;  // by node
  std::vector<uint64_t> hops_received;
  uint64_t hops_crossed = 0;
  std::vector<absl::Duration> finished;
  uint64_t moves = 0;
  int depth = 0;
  CrowdPlan plan;
  int objects_needed(int node) const {
    return static_cast<int>(objects_.size()) - (node < static_cast<int>(objects_.size()) ? 1 : 0);
  }

 private:
  using What = std::function<void()>;
  struct Event {
    Instant at;
    uint64_t order = 0;
    What what;
    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  struct Pull {
    int object = 0;
    int sender = 0;
    int receiver = 0;
    v1::Assign assign;
    bool open = true;
    uint64_t sent = 0;
    int on_the_way = 0;
    int window = 0;     // the hops that it can have on the way
    Instant delivered;  // hops arrive in order: none before this
    bool starved = true;
    Instant last_arrival;
    absl::Duration starved_for;
    net::SegmentRate rate;
    uint64_t hops_reported = 0;
    object_store::PullWatch watch{Instant(), 0};
  };
  using PullPtr = std::shared_ptr<Pull>;
  struct Node {
    NodeKey key;
    double bytes_per_second = 0;
    bool stopped = false;
    std::vector<What> when_resumed;
    bool sending = false;
    std::vector<PullPtr> pushes;  // served in turn
    std::deque<PullPtr> arriving;
    std::map<int, uint64_t> hops;  // by object: the number of hops that it has
    std::map<int, int> depth;      // by object
    std::map<int, PullPtr> pulls;  // by object
  };

  void After(absl::Duration wait, What what) {
    events_.push(Event{now_ + wait, next_order_++, std::move(what)});
  }
  void Deliver(int node, const v1::NodeMessage& message);
  void TakeOutbox();
  void Assign(int receiver, const v1::Assign& assign);
  void Close(Pull& pull);
  void Send(int sender);
  void Sent(const PullPtr& pull);
  void Receive(int receiver);
  void Arrived(const PullPtr& pull);
  void ReportComplete(const Pull& pull);
  void ReportProgress(const PullPtr& pull);
  void Look(const PullPtr& pull);
  v1::Progress::Pull& AddProgress(const Pull& pull, v1::NodeMessage& message) const;
  void ApplyChanges(int node);
  void Apply(CrowdChange change, int node);
  void SetRate(int node, double bytes_per_second);
  int Below(int node, int object) const;
  // Returns true if the node is stopped; it does `what` when it resumes.
  bool Postponed(int node, What what);
  void StartGets(int sources);
  void Delete();
  uint64_t size_in_hops() const { return plan.size_bytes / plan.hop_bytes; }
  absl::Duration HopTime(int node) const {
    return absl::Seconds(static_cast<double>(plan.hop_bytes) / nodes_[node].bytes_per_second);
  }
  int ZoneOf(int node) const { return node * plan.zones / plan.nodes; }
  bool Far(int a, int b) const { return ZoneOf(a) != ZoneOf(b); }
  absl::Duration Latency(int a, int b) const { return Far(a, b) ? plan.far.latency : plan.latency; }
  absl::Duration ToShard(int node) const { return Latency(0, node); }
  // How long the pull's next hop needs from its sender's link to the receiver's.
  absl::Duration Way(Pull& pull);
  // The receiver has read a hop.
  void Acknowledged(Pull& pull);
  double RateOf(int node) const {
    const auto index = static_cast<size_t>(node);
    const bool own = index < plan.rates.size() && plan.rates[index] > 0;
    return own ? plan.rates[index] : plan.bytes_per_second;
  }

  Random random_;
  std::map<std::pair<int, int>, Instant> far_free_;  // by zones: when the link has sent all it has
  CoarseShard shard_;
  Instant now_;
  std::vector<Node> nodes_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  uint64_t next_order_ = 0;
  // The objects of the current call.
  std::map<ObjectId, int> numbers_;
  std::vector<std::pair<ObjectId, Generation>> objects_;
  std::vector<CrowdChange> changes_;  // to come
  Instant start_;
  Instant last_byte_;
};

CoarseCrowd::World::World(const CrowdPlan& crowd)
    : plan(crowd),
      random_(crowd.seed),
      shard_(OptionsOf(crowd), crowd.nodes, crowd.seed, crowd.listener, crowd.zones),
      now_(shard_.start()),
      nodes_(crowd.nodes) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].key = CoarseShard::KeyOf(static_cast<int>(i));
  }
}

void CoarseCrowd::World::Deliver(int node, const v1::NodeMessage& message) {
  shard_.Deliver(node, message, now_);
  TakeOutbox();
}

void CoarseCrowd::World::TakeOutbox() {
  for (const DirectoryCore::Outgoing& out : shard_.TakeOutbox()) {
    if (!out.message.has_assign()) continue;
    const int to = CoarseShard::NodeOf(out.to);
    After(ToShard(to), [this, to, assign = out.message.assign()] { Assign(to, assign); });
  }
}

bool CoarseCrowd::World::Postponed(int node, What what) {
  if (!nodes_[node].stopped) return false;
  nodes_[node].when_resumed.push_back(std::move(what));
  return true;
}

void CoarseCrowd::World::SetRate(int node, double bytes_per_second) {
  nodes_[node].bytes_per_second = bytes_per_second;
  nodes_[node].stopped = bytes_per_second == 0;
  if (nodes_[node].stopped) return;
  for (const What& what : std::exchange(nodes_[node].when_resumed, {})) what();
}

int CoarseCrowd::World::Below(int node, int object) const {
  int below = 0;
  for (const PullPtr& push : nodes_[node].pushes) {
    if (push->object == object) below += 1 + Below(push->receiver, object);
  }
  return below;
}

void CoarseCrowd::World::ApplyChanges(int node) {
  for (size_t i = 0; i < changes_.size(); ++i) {
    const CrowdChange change = changes_[i];
    const bool here = change.node < 0 ? node != 0 && Below(node, 0) >= 2 : change.node == node;
    if (!here || nodes_[node].hops[0] < change.at_share * size_in_hops()) continue;
    changes_.erase(changes_.begin() + static_cast<std::ptrdiff_t>(i));
    Apply(change, node);
    return;
  }
}

void CoarseCrowd::World::Apply(CrowdChange change, int node) {
  SetRate(node, change.bytes_per_second);
  if (change.lasts == absl::InfiniteDuration()) return;
  After(change.lasts, [this, node] { SetRate(node, RateOf(node)); });
}

void CoarseCrowd::World::Assign(int receiver, const v1::Assign& assign) {
  if (Postponed(receiver, [this, receiver, assign] { Assign(receiver, assign); })) return;
  const auto number = numbers_.find(*ObjectId::FromBinary(assign.object_id()));
  if (number == numbers_.end()) return;
  Node& node = nodes_[receiver];
  const int object = number->second;
  if (node.hops[object] == size_in_hops()) return;
  if (const auto old = node.pulls.find(object); old != node.pulls.end()) Close(*old->second);
  const auto pull = std::make_shared<Pull>();
  pull->object = object;
  pull->sender = CoarseShard::NodeOf(FromProto(assign.sender()));
  pull->receiver = receiver;
  pull->assign = assign;
  pull->sent = node.hops[object];
  pull->hops_reported = pull->sent;
  pull->window = Far(pull->sender, receiver) ? 2 : plan.window_hops;
  pull->last_arrival = now_;
  pull->watch = object_store::PullWatch(now_, pull->sent * plan.hop_bytes);
  node.pulls[object] = pull;
  After(Latency(pull->sender, receiver), [this, pull] {
    if (!pull->open) return;
    pull->sent = nodes_[pull->receiver].hops[pull->object];
    nodes_[pull->sender].pushes.push_back(pull);
    Send(pull->sender);
  });
  After(kProgressInterval, [this, pull] { ReportProgress(pull); });
  After(pull->watch.next_look() - now_, [this, pull] { Look(pull); });
}

void CoarseCrowd::World::Close(Pull& pull) {
  pull.open = false;
  std::erase_if(nodes_[pull.sender].pushes, [&pull](const PullPtr& p) { return p.get() == &pull; });
}

// Sends the next hop, of the pull that has waited longest of those that lack hops and have room in
// their window.
void CoarseCrowd::World::Send(int key) {
  Node& sender = nodes_[key];
  if (sender.sending || Postponed(key, [this, key] { Send(key); })) return;
  const auto next =
      std::find_if(sender.pushes.begin(), sender.pushes.end(), [&](const PullPtr& pull) {
        return pull->sent < sender.hops[pull->object] && pull->on_the_way < pull->window;
      });
  if (next == sender.pushes.end()) return;
  const PullPtr pull = *next;
  sender.pushes.erase(next);
  sender.pushes.push_back(pull);
  sender.sending = true;
  ++pull->on_the_way;
  ++hops_sent[key];
  After(HopTime(key), [this, pull] { Sent(pull); });
}

void CoarseCrowd::World::Sent(const PullPtr& pull) {
  nodes_[pull->sender].sending = false;
  ++pull->sent;
  After(Way(*pull), [this, pull] {
    std::deque<PullPtr>& arriving = nodes_[pull->receiver].arriving;
    arriving.push_back(pull);
    if (arriving.size() == 1) Receive(pull->receiver);
  });
  Send(pull->sender);
}

absl::Duration CoarseCrowd::World::Way(Pull& pull) {
  if (!Far(pull.sender, pull.receiver)) return plan.latency;
  ++hops_crossed;
  Instant& free = far_free_[{ZoneOf(pull.sender), ZoneOf(pull.receiver)}];
  free = std::max(free, now_) +
         absl::Seconds(static_cast<double>(plan.hop_bytes) / plan.far.bytes_per_second);
  const bool lost = random_.Chance(plan.far.loss);
  pull.delivered = std::max(pull.delivered, free + (lost ? 3 : 1) * plan.far.latency);
  return pull.delivered - now_;
}

void CoarseCrowd::World::Acknowledged(Pull& pull) {
  --pull.on_the_way;
  if (!Far(pull.sender, pull.receiver)) return;
  // No more than the link holds in two round trips.
  const double most = 4 * absl::ToDoubleSeconds(plan.far.latency) * plan.far.bytes_per_second;
  if (pull.window * static_cast<double>(plan.hop_bytes) < most) ++pull.window;
}

void CoarseCrowd::World::Receive(int receiver) {
  if (Postponed(receiver, [this, receiver] { Receive(receiver); })) return;
  After(HopTime(receiver), [this, receiver] {
    ++hops_received[receiver];
    Node& node = nodes_[receiver];
    const PullPtr pull = node.arriving.front();
    node.arriving.pop_front();
    if (!node.arriving.empty()) Receive(receiver);
    if (pull->open) Arrived(pull);
    if (!Far(pull->sender, receiver)) {
      Acknowledged(*pull);
      return Send(pull->sender);
    }
    After(plan.far.latency, [this, pull] {
      Acknowledged(*pull);
      Send(pull->sender);
    });
  });
}

void CoarseCrowd::World::Arrived(const PullPtr& pull) {
  Node& node = nodes_[pull->receiver];
  pull->rate.Segment(now_, plan.hop_bytes, pull->starved);
  if (pull->starved) pull->starved_for += now_ - pull->last_arrival;
  pull->starved = pull->sent >= nodes_[pull->sender].hops[pull->object];
  pull->last_arrival = now_;
  if (++node.hops[pull->object] == size_in_hops()) {
    node.depth[pull->object] = nodes_[pull->sender].depth[pull->object] + 1;
    depth = std::max(depth, node.depth[pull->object]);
    finished[pull->receiver] = now_ - start_;
    ReportComplete(*pull);
  }
  if (!changes_.empty()) ApplyChanges(pull->receiver);
  Send(pull->receiver);
}

void CoarseCrowd::World::ReportComplete(const Pull& pull) {
  last_byte_ = now_;
  v1::NodeMessage message;
  v1::PullReport& report = *message.mutable_pull_report();
  *report.mutable_object_id() = pull.assign.object_id();
  *report.mutable_generation() = pull.assign.generation();
  report.set_plan_id(pull.assign.plan_id());
  report.set_complete(true);
  report.add_watermarks(plan.size_bytes);
  report.set_first_byte_ns(2 * absl::ToInt64Nanoseconds(Latency(pull.sender, pull.receiver)));
  report.set_bytes_per_second(pull.rate.bytes_per_second());
  report.set_starved_ns(absl::ToInt64Nanoseconds(pull.starved_for));
  const int receiver = pull.receiver;
  Close(*nodes_[receiver].pulls[pull.object]);
  After(ToShard(receiver), [this, receiver, message] { Deliver(receiver, message); });
}

v1::Progress::Pull& CoarseCrowd::World::AddProgress(const Pull& pull,
                                                    v1::NodeMessage& message) const {
  v1::Progress::Pull& progress = *message.mutable_progress()->add_pulls();
  *progress.mutable_object_id() = pull.assign.object_id();
  *progress.mutable_generation() = pull.assign.generation();
  progress.set_plan_id(pull.assign.plan_id());
  progress.add_watermarks(nodes_[pull.receiver].hops.at(pull.object) * plan.hop_bytes);
  progress.set_starved_ns(absl::ToInt64Nanoseconds(pull.starved_for));
  return progress;
}

void CoarseCrowd::World::ReportProgress(const PullPtr& pull) {
  if (!pull->open || Postponed(pull->receiver, [this, pull] { ReportProgress(pull); })) return;
  v1::NodeMessage message;
  v1::Progress::Pull& progress = AddProgress(*pull, message);
  const uint64_t hops = nodes_[pull->receiver].hops[pull->object];
  const uint64_t bytes = (hops - pull->hops_reported) * plan.hop_bytes;
  progress.set_bytes_per_second(static_cast<double>(bytes) /
                                absl::ToDoubleSeconds(kProgressInterval));
  pull->hops_reported = hops;
  progress.set_starved_ns(absl::ToInt64Nanoseconds(pull->starved_for + pull->watch.Quiet(now_)));
  After(ToShard(pull->receiver), [this, to = pull->receiver, message] { Deliver(to, message); });
  After(kProgressInterval, [this, pull] { ReportProgress(pull); });
}

void CoarseCrowd::World::Look(const PullPtr& pull) {
  if (!pull->open || Postponed(pull->receiver, [this, pull] { Look(pull); })) return;
  const auto report =
      pull->watch.Look(now_, {nodes_[pull->receiver].hops[pull->object] * plan.hop_bytes,
                              static_cast<uint64_t>(absl::ToInt64Nanoseconds(pull->starved_for))});
  After(pull->watch.next_look() - now_, [this, pull] { Look(pull); });
  if (report.window == absl::ZeroDuration()) return;
  v1::NodeMessage message;
  v1::Progress::Pull& progress = AddProgress(*pull, message);
  progress.set_bytes_per_second(report.bytes_per_second);
  progress.set_window_ns(absl::ToInt64Nanoseconds(report.window));
  progress.set_window_starved_ns(report.starved_ns);
  progress.set_silent_ns(absl::ToInt64Nanoseconds(report.silent));
  After(ToShard(pull->receiver), [this, to = pull->receiver, message] { Deliver(to, message); });
}

// All nodes send all their Gets at once; the order of arrival is drawn.
void CoarseCrowd::World::StartGets(int sources) {
  for (int receiver = 0; receiver < plan.nodes; ++receiver) {
    absl::Duration wait = ToShard(receiver) + absl::Microseconds(random_.Below(3000));
    if (static_cast<size_t>(receiver) < plan.ask_at.size()) wait = plan.ask_at[receiver];
    for (int i = 1; i < plan.nodes; ++i) {
      const int source = (receiver + i) % plan.nodes;
      if (source >= sources) continue;
      v1::NodeMessage message;
      message.mutable_want()->mutable_object_id()->assign(objects_[source].first.binary().data(),
                                                          ObjectId::kSize);
      message.mutable_want()->set_number(++next_order_);
      After(wait, [this, receiver, message] { Deliver(receiver, message); });
      wait += absl::Microseconds(random_.Below(200));
    }
  }
}

void CoarseCrowd::World::Delete() {
  for (size_t i = 0; i < objects_.size(); ++i) {
    v1::NodeMessage message;
    message.mutable_delete_request()->mutable_object_id()->assign(objects_[i].first.binary().data(),
                                                                  ObjectId::kSize);
    Deliver(static_cast<int>(i), message);
  }
  numbers_.clear();
  objects_.clear();
}

absl::Duration CoarseCrowd::World::BroadcastFrom(int sources) {
  Delete();
  hops_sent.assign(plan.nodes, 0);
  hops_received.assign(plan.nodes, 0);
  hops_crossed = 0;
  finished.assign(plan.nodes, absl::InfiniteDuration());
  changes_ = plan.changes;
  depth = 0;
  const uint64_t moves_before = shard_.Counter("relieved");
  for (int n = 0; n < plan.nodes; ++n) SetRate(n, RateOf(n));
  for (Node& node : nodes_) {
    node.hops.clear();
    node.depth.clear();
    node.pulls.clear();
  }
  for (int i = 0; i < sources; ++i) {
    const ObjectId id = ObjectId::FromName("crowd", absl::StrCat(next_order_, "/", i));
    numbers_[id] = i;
    objects_.emplace_back(id, Generation{nodes_[i].key, ++next_order_});
    nodes_[i].hops[i] = size_in_hops();
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    create.mutable_object_id()->assign(id.binary().data(), ObjectId::kSize);
    ToProto(objects_.back().second, create.mutable_generation());
    create.mutable_info()->set_size_bytes(plan.size_bytes);
    create.mutable_info()->set_slices(1);
    create.set_complete(true);
    Deliver(i, message);
  }
  start_ = now_;
  StartGets(sources);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    PHALANX_CHECK(now_ - start_ < absl::Minutes(10), "a broadcast ends");
    event.what();
  }
  PHALANX_CHECK(shard_.core().CheckInvariants().ok(), "the core's invariants hold");
  moves = shard_.Counter("relieved") - moves_before;
  for (const Node& node : nodes_) {
    for (int i = 0; i < sources && !node.stopped; ++i) {
      PHALANX_CHECK(node.hops.at(i) == size_in_hops(), "everybody has everything");
    }
  }
  return last_byte_ - start_;
}

CoarseCrowd::CoarseCrowd(const CrowdPlan& plan) : world_(std::make_unique<World>(plan)) {}
CoarseCrowd::~CoarseCrowd() = default;
absl::Duration CoarseCrowd::BroadcastFrom(int sources) { return world_->BroadcastFrom(sources); }
double CoarseCrowd::most_sent() const {
  const auto& sent = world_->hops_sent;
  return static_cast<double>(*std::max_element(sent.begin(), sent.end())) * world_->plan.hop_bytes /
         world_->plan.size_bytes;
}
int CoarseCrowd::depth() const { return world_->depth; }
absl::Duration CoarseCrowd::finished(int node) const { return world_->finished[node]; }
double CoarseCrowd::crossed() const {
  return static_cast<double>(world_->hops_crossed * world_->plan.hop_bytes) /
         static_cast<double>(world_->plan.size_bytes);
}
uint64_t CoarseCrowd::moves() const { return world_->moves; }
void CoarseCrowd::SetChanges(std::vector<CrowdChange> changes) {
  world_->plan.changes = std::move(changes);
}
void CoarseCrowd::SetAskAt(std::vector<absl::Duration> ask_at) {
  world_->plan.ask_at = std::move(ask_at);
}
uint64_t CoarseCrowd::bytes_twice(int node) const {
  const uint64_t needed = world_->plan.size_bytes * world_->objects_needed(node);
  const uint64_t got = world_->hops_received[node] * world_->plan.hop_bytes;
  return got - std::min(got, needed);
}

}  // namespace phalanx::sim
