#include "src/sim/workloads/broadcast_simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/directory/core/validate.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using CopyInfo = object_store::Store::CopyInfo;

constexpr absl::Duration kSettleWithin = absl::Seconds(40);
// In addition, for each node: a Get of a lost object waits this long, and then so do requests that
// wait for its memory.
constexpr absl::Duration kWaitForLost = absl::Seconds(60);
// The time within which a shard's message reaches an undisturbed node.
constexpr absl::Duration kMessageWithin = absl::Milliseconds(500);

class BroadcastSimulation final : public ClientSimulation {
 public:
  explicit BroadcastSimulation(const BroadcastPlan& plan)
      : ClientSimulation(plan.world,
                         {.mean_pause = plan.mean_pause,
                          .settle_within = kSettleWithin + kWaitForLost * plan.world.cluster.nodes,
                          .sample_every = std::max(plan.world.sample_every, 16)},
                         Random(plan.seed * 149 + 3), Random(plan.seed * 151 + 4)),
        plan_(plan) {
    cluster_.OnShardMessage([this](int n, const v1::ShardMessage& message) {
      if (message.has_broadcast_begun()) OnBroadcastBegun(n, message.broadcast_begun());
      if (message.has_sticky()) OnSticky(message.sticky());
    });
  }

 private:
  struct Object {
    ObjectId id;
    int shard = 0;
    int puts = 0;
    bool deleting = false;
    // The number of sticky requests, and those that can still take effect: the shard has not
    // confirmed the start, and the request has not ended.
    int sticky_requests = 0;
    std::set<uint64_t> unconfirmed;
    // A client was answered that the broadcast is stopped, and there was no sticky request since;
    // and the holders of copies that must know.
    bool stopped = false;
    Instant stopped_at;
    Instant stop_requested_at;
    std::set<NodeKey> knows_stop;
    // The latest stamp of a mark in a message to a node, except marks of a stop.
    uint64_t last_stamp = 0;
    // The nodes that had the mark at the previous sample, with its stamp.
    std::map<NodeKey, uint64_t> marked;
  };
  struct Request {
    uint64_t number = 0;
    size_t object = 0;
    NodeKey life;
    uint64_t request_id = 0;
    std::set<std::string> names;
    bool sticky = false;
    Instant begun;
    int puts = 0;
  };

  static std::string NameOf(size_t object) { return absl::StrCat("o", object); }

  // ---- phases

  void Begin() override {
    for (int i = 0; i < plan_.objects; ++i) NewObject();
  }

  void Settle() override {
    Await("for each node to have its sticky objects", [this] { return AtRest(); });
    if (failed()) return;
    CheckStops();
    AwaitRegistrations();
  }

  void CleanUp() override {
    const auto left = std::make_shared<size_t>(objects_.size());
    OnNode(0, [this, left](int n) {
      for (const Object& object : objects_) {
        cluster_.store(n)->Delete(ClientOf(n), object.id, Instant::Infinite(),
                                  [left](const absl::Status&) { --*left; });
      }
    });
    Await("for deletes", [&left] {
      return *left == 0 ? absl::OkStatus()
                        : absl::UnavailableError(absl::StrCat(*left, " are not answered"));
    });
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      OnNode(n, [this](int node) { CloseClient(node); });
    }
  }

  // Awaits that each shard knows the last puts before the deletes: a Stat arrives after the puts
  // and the registrations of its node. A Put on a node that died gets no answer.
  void AwaitRegistrations() {
    Await("for puts", [this] {
      const bool open = std::any_of(puts_.begin(), puts_.end(), [this](const auto& put) {
        return cluster_.FindNode(put.second) >= 0;
      });
      return open ? absl::UnavailableError("one is not answered") : absl::OkStatus();
    });
    std::map<int, ObjectId> of_shard;
    for (const Object& object : objects_) of_shard.emplace(object.shard, object.id);
    const auto left = std::make_shared<size_t>(0);
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      *left += of_shard.size();
      OnNode(n, [this, left, of_shard](int node) {
        for (const auto& [shard, id] : of_shard) {
          cluster_.store(node)->Stat(
              ClientOf(node), id, Instant::Infinite(),
              [left](const absl::StatusOr<object_store::ObjectStat>&) { --*left; });
        }
      });
    }
    Await("for the Stats of all nodes", [&left] {
      return *left == 0 ? absl::OkStatus()
                        : absl::UnavailableError(absl::StrCat(*left, " are not answered"));
    });
  }

  absl::Status Empty() override {
    // The general checks first: their messages are more specific.
    if (absl::Status status = checkers_.Empty(); !status.ok()) return status;
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      const uint64_t left =
          status.counters().at("sticky") + status.counters().at("broadcasts_waited_for");
      if (left == 0) continue;
      return absl::UnavailableError(absl::StrCat(ShardName(s), " has ", left, " broadcasts"));
    }
    return absl::OkStatus();
  }

  // ---- acts of clients; each on the node's control loop

  ClientId ClientOf(int n) {
    ClientId& client = clients_[cluster_.node(n)->key()];
    if (client == 0) client = cluster_.store(n)->OpenClient();
    return client;
  }
  void CloseClient(int n) {
    const auto client = clients_.find(cluster_.node(n)->key());
    if (client == clients_.end()) return;
    cluster_.store(n)->CloseClient(client->second, /*clean=*/true);
    // The node drops the callbacks of a closed client, so nothing else would remove these entries.
    clients_.erase(client);
    const NodeKey life = cluster_.node(n)->key();
    std::erase_if(requests_, [&life](const auto& request) { return request.second.life == life; });
    std::erase_if(puts_, [&life](const auto& put) { return put.second == life; });
  }

  void NewObject() {
    Object object;
    object.id = ObjectId::FromName("broadcasts", absl::StrCat(objects_.size()));
    object.shard = cluster_.ShardOf(object.id);
    current_.push_back(objects_.size());
    objects_.push_back(object);
  }

  size_t AnyObject() { return current_[random_.Below(current_.size())]; }
  std::string AnyNodeName() {
    return NodeName(static_cast<int>(random_.Below(static_cast<uint64_t>(cluster_.num_nodes()))));
  }

  void Act(int n) override {
    const size_t object = AnyObject();
    const double choice = random_.Unit();
    if (objects_[object].puts == 0 || choice < 0.1) {
      Put(n, object);
    } else if (choice < 0.55) {
      Broadcast(n, object);
    } else if (choice < 0.7) {
      Stop(n, object);
    } else if (choice < 0.74) {
      Delete(n, object);
    } else if (choice < 0.9) {
      Get(n, object);
    } else if (choice < 0.93) {
      CloseClient(n);
    }
  }

  void Put(int n, size_t number) {
    Object& object = objects_[number];
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    // Like a task that runs again because its result is lost; sometimes also if it is not lost.
    if (object.puts > 0 && summary.complete_copies() > 0 && !random_.Chance(0.1)) return;
    ++object.puts;
    cluster_.journal().Note(NodeName(n), " puts ", NameOf(number));
    object_store::PutOptions options;
    options.id = object.id;
    options.slices = plan_.slices;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(2);
    const uint64_t size =
        random_.Chance(0.4) ? random_.Below(1000) : random_.Below(plan_.max_bytes);
    const uint64_t put = ++last_put_;
    puts_[put] = cluster_.node(n)->key();
    cluster_.store(n)->Put(
        ClientOf(n), options, std::string(size, 'x'),
        [this, put](const absl::StatusOr<object_store::PutResult>&) { puts_.erase(put); });
  }

  void Get(int n, size_t object) {
    object_store::GetOptions options;
    options.id = objects_[object].id;
    options.deadline = cluster_.NowAt(n) + absl::Seconds(1) * random_.Unit();
    object_store::GetEvents events;
    events.on_view = [this, life = cluster_.node(n)->key(),
                      client = ClientOf(n)](absl::StatusOr<object_store::View> view) {
      const int node = cluster_.FindNode(life);
      if (node < 0 || !view.ok()) return;
      cluster_.store(node)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  void Delete(int n, size_t number) {
    Object& object = objects_[number];
    object.deleting = true;
    cluster_.journal().Note(NodeName(n), " deletes ", NameOf(number));
    cluster_.store(n)->Delete(ClientOf(n), object.id, cluster_.NowAt(n) + absl::Seconds(5),
                              [](const absl::Status&) {});
    // Invariants hold until a Delete only, so the clients continue with another object.
    std::erase(current_, number);
    NewObject();
  }

  void Broadcast(int n, size_t number) {
    Object& object = objects_[number];
    Request request;
    request.number = ++last_request_;
    request.object = number;
    request.life = cluster_.node(n)->key();
    request.names = {"*"};
    if (random_.Chance(0.4)) request.names = {AnyNodeName(), AnyNodeName()};
    request.sticky = random_.Chance(0.6);
    request.begun = now();
    request.puts = object.puts;
    // From here on the object can become sticky at any time, so an earlier stop no longer forbids
    // it.
    if (request.sticky) {
      ++object.sticky_requests;
      object.unconfirmed.insert(request.number);
      object.stopped = false;
      object.knows_stop.clear();
    }
    cluster_.journal().Note(NodeName(n), " broadcasts ", NameOf(number), " to ",
                            absl::StrJoin(request.names, " "), request.sticky ? ", sticky" : "");
    object_store::BroadcastOptions options;
    options.nodes.assign(request.names.begin(), request.names.end());
    options.sticky = request.sticky;
    const Instant deadline = random_.Chance(0.3)
                                 ? cluster_.NowAt(n) + absl::Seconds(1) * random_.Unit()
                                 : Instant::Infinite();
    requests_[request.number] = request;
    requests_[request.number].request_id = cluster_.store(n)->Broadcast(
        ClientOf(n), object.id, std::move(options), deadline,
        [this, number = request.number](const absl::StatusOr<int>& nodes) {
          Answered(number, nodes);
        });
  }

  // The shard has confirmed the start. A new session repeats the request as already started.
  void OnBroadcastBegun(int n, const v1::BroadcastBegun& begun) {
    for (const auto& [number, request] : requests_) {
      if (request.request_id != begun.request_id() || cluster_.FindNode(request.life) != n)
        continue;
      Object& object = objects_[request.object];
      object.unconfirmed.erase(number);
      object.last_stamp = std::max(object.last_stamp, begun.mark().stamp());
    }
  }

  void OnSticky(const v1::Sticky& sticky) {
    if (sticky.mark().nodes().empty()) return;
    for (Object& object : objects_) {
      if (object.id.binary() != sticky.object_id()) continue;
      object.last_stamp = std::max(object.last_stamp, sticky.mark().stamp());
    }
  }

  void Answered(uint64_t number, const absl::StatusOr<int>& nodes) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) return;
    const Request request = found->second;
    requests_.erase(found);
    Object& object = objects_[request.object];
    // A request whose deadline has passed can still be on its way to the shard.
    const bool ended = !absl::IsDeadlineExceeded(nodes.status());
    if (ended) object.unconfirmed.erase(request.number);
    cluster_.journal().Note("broadcast of ", NameOf(request.object), " ",
                            nodes.status().ToString());
    // A node that is down when the shard reads a request is not one that it knows.
    const bool unknown_node =
        absl::IsInvalidArgument(nodes.status()) && !request.sticky && !request.names.contains("*");
    const bool known = nodes.ok() || absl::IsDeadlineExceeded(nodes.status()) || unknown_node ||
                       absl::IsNotFound(nodes.status()) || absl::IsDataLoss(nodes.status());
    // A node that waits for a lost object gives up after a minute.
    const bool given_up = absl::IsResourceExhausted(nodes.status()) && !running_;
    if (!known && !given_up) {
      cluster_.journal().Violation(absl::StrCat("Broadcast of ", NameOf(request.object)),
                                   nodes.status());
    }
    if (nodes.ok()) CheckArrived(request);
  }

  // Checks that each node of the broadcast has the object. Skips nodes with trouble since the
  // start, and shortly before it, because the shard can have missed such a node; and nodes that the
  // shard does not know, whose first connection can take long.
  void CheckArrived(const Request& request) {
    ++answered_;
    const Object& object = objects_[request.object];
    // A second put can have replaced the generation while the first was under way.
    if (object.deleting || object.puts != 1 || request.puts != 1) return;
    v1::GetStatusResponse status;
    if (cluster_.shard(object.shard) != nullptr) cluster_.shard(object.shard)->FillStatus(&status);
    std::set<std::string> known;
    for (const v1::NodeStatus& node : status.nodes()) known.insert(node.info().name());
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (!known.contains(NodeName(n))) continue;
      const bool named = request.names.contains("*") || request.names.contains(NodeName(n));
      // A lease and a half: a node that was away just before the start can have been declared dead.
      const Instant since = request.begun - plan_.world.cluster.lease * 1.5;
      if (!named || !cluster_.Undisturbed(n, object.shard, since)) continue;
      ++checked_;
      if (Has(n, object.id)) continue;
      cluster_.journal().Violation(absl::StrCat("the broadcast of ", NameOf(request.object),
                                                " has ended, but ", NodeName(n), " has no copy; ",
                                                cluster_.DescribeEverywhere(object.id)));
    }
  }

  // A request that is open at the same time can reach the shard before or after the stop.
  void Stop(int n, size_t number) {
    Object& object = objects_[number];
    const bool alone = object.unconfirmed.empty();
    object.marked.clear();
    cluster_.journal().Note(NodeName(n), " stops the broadcast of ", NameOf(number));
    object_store::BroadcastOptions options;
    options.stop = true;
    cluster_.store(n)->Broadcast(ClientOf(n), object.id, std::move(options),
                                 cluster_.NowAt(n) + absl::Seconds(5),
                                 [this, number, alone, before = object.sticky_requests,
                                  requested_at = now()](const absl::StatusOr<int>& done) {
                                   Object& stopped = objects_[number];
                                   if (!done.ok() || !alone || stopped.sticky_requests != before)
                                     return;
                                   stopped.stopped = true;
                                   stopped.stopped_at = now();
                                   stopped.stop_requested_at = requested_at;
                                   stopped.knows_stop.clear();
                                   RestartShardLater(number);
                                 });
  }

  // Restarts the shard if a waiting sticky request will be repeated in the new session. The clients
  // no longer use this object, so the checks see what the repeated request does.
  void RestartShardLater(size_t number) {
    const bool waited_for =
        std::any_of(requests_.begin(), requests_.end(), [number](const auto& request) {
          return request.second.sticky && request.second.object == number;
        });
    if (plan_.world.cluster.peaceful || !waited_for || random_.Chance(0.5)) return;
    // The clients stop using this object, so no later request changes the outcome.
    std::erase(current_, number);
    NewObject();
    const int shard = objects_[number].shard;
    cluster_.scheduler().After(kMessageWithin * random_.Unit(), [this, shard] {
      if (!running_) return;
      cluster_.CrashShard(shard);
      cluster_.scheduler().After(plan_.world.cluster.lease * random_.Unit(),
                                 [this, shard] { cluster_.StartShard(shard); });
    });
  }

  // ---- invariants

  bool Has(int n, const ObjectId& id) {
    const std::vector<CopyInfo> copies = cluster_.store(n)->Copies();
    return std::any_of(copies.begin(), copies.end(),
                       [&id](const CopyInfo& copy) { return copy.id == id && copy.complete; });
  }

  void OnSample() override {
    for (size_t number = 0; number < objects_.size(); ++number) CheckObject(number);
  }

  // By node's life: the mark of its complete copy of the shard's generation.
  std::map<NodeKey, v1::StickyMark> MarksOf(const ObjectId& id, const Generation& generation) {
    std::map<NodeKey, v1::StickyMark> marks;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      for (const CopyInfo& copy : cluster_.store(n)->Copies()) {
        if (copy.id != id || !copy.complete) continue;
        if (!generation.valid() || copy.generation == generation) {
          marks[cluster_.node(n)->key()] = copy.sticky;
        }
      }
    }
    return marks;
  }

  void CheckObject(size_t number) {
    Object& object = objects_[number];
    if (object.puts == 0 || object.deleting) return;
    if (object.puts == 1) CheckMarks(number);
    if (!object.stopped || object.puts != 1) return;
    CheckStop(number);
  }

  // A node keeps the mark of its copy, or replaces it by a later one.
  void CheckMarks(size_t number) {
    Object& object = objects_[number];
    const std::map<NodeKey, v1::StickyMark> marks = MarksOf(object.id, Generation());
    for (const auto& [key, stamp] : object.marked) {
      const auto mark = marks.find(key);
      if (mark == marks.end() || mark->second.stamp() >= stamp) continue;
      cluster_.journal().Violation(
          absl::StrCat(key.ToString(), " has lost the sticky mark of ", NameOf(number)));
    }
    object.marked.clear();
    for (const auto& [key, mark] : marks) {
      if (mark.stamp() > 0) object.marked[key] = mark.stamp();
    }
  }

  // A stopped broadcast must not return: not in the life of the shard that stopped it, nor in a
  // later life that learned of the stop from a holder of a copy.
  void CheckStop(size_t number) {
    Object& object = objects_[number];
    const v1::DescribeObjectResponse described = cluster_.Describe(object.id);
    const v1::ObjectSummary& summary = described.summary();
    const bool same_shard = cluster_.last_shard_start(object.shard) < object.stop_requested_at;
    const auto marks = MarksOf(object.id, directory::FromProto(summary.generation()));
    bool knows = same_shard;
    for (const v1::CopyDescription& copy : described.copies()) {
      const NodeKey key = directory::FromProto(copy.node());
      knows = knows || (copy.complete() && marks.contains(key) && object.knows_stop.contains(key));
    }
    if (knows && summary.has_sticky()) {
      cluster_.journal().Violation(absl::StrCat(NameOf(number), " is sticky after it was stopped; ",
                                                cluster_.DescribeEverywhere(object.id)));
    }
    // A node knows the stop if its mark is empty and later than every other, or if it had enough
    // time.
    const bool long_ago = same_shard && now() >= object.stopped_at + kMessageWithin;
    for (const auto& [key, mark] : marks) {
      const bool undisturbed =
          cluster_.Undisturbed(cluster_.FindNode(key), object.shard, object.stop_requested_at);
      const bool informed = mark.nodes().empty() && mark.stamp() > object.last_stamp;
      if (informed || (long_ago && undisturbed && mark.stamp() > 0)) object.knows_stop.insert(key);
    }
  }

  // ---- at rest

  absl::Status AtRest() {
    if (absl::Status status = checkers_.Settled(); !status.ok()) return status;
    uint64_t checked = 0;
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (absl::Status status = ObjectAtRest(i, checked); !status.ok()) return status;
    }
    for (const auto& [number, request] : requests_) {
      if (cluster_.FindNode(request.life) < 0) continue;
      return absl::UnavailableError(
          absl::StrCat("the broadcast of ", NameOf(request.object), " is not answered; ",
                       cluster_.DescribeEverywhere(objects_[request.object].id)));
    }
    checked_ += checked;
    return absl::OkStatus();
  }

  absl::Status ObjectAtRest(size_t number, uint64_t& checked) {
    const Object& object = objects_[number];
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    if (summary.deleted() || summary.complete_copies() == 0) return absl::OkStatus();
    const auto wrong = [&](const auto&... what) {
      return absl::UnavailableError(absl::StrCat(NameOf(number), ": ", what..., "; ",
                                                 cluster_.DescribeEverywhere(object.id)));
    };
    // The latest mark wins: a shard learns it from the nodes after a restart.
    v1::StickyMark latest;
    for (const auto& [key, mark] : MarksOf(object.id, directory::FromProto(summary.generation()))) {
      if (mark.stamp() > latest.stamp()) latest = mark;
    }
    const std::set<std::string> marked(latest.nodes().begin(), latest.nodes().end());
    const std::set<std::string> known(summary.sticky().nodes().begin(),
                                      summary.sticky().nodes().end());
    // A restarted shard must have learned the mark from the nodes that have copies.
    if (marked != known) {
      return wrong("the marks of its copies name [", absl::StrJoin(marked, " "),
                   "], the shard has [", absl::StrJoin(known, " "), "]");
    }
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) return wrong(NodeName(n), " is down");
      if (!known.contains("*") && !known.contains(NodeName(n))) continue;
      ++checked;
      if (!Has(n, object.id)) return wrong(NodeName(n), " lacks it");
    }
    return absl::OkStatus();
  }

  // A stopped broadcast has not returned, if a node with a copy knows of the stop.
  void CheckStops() {
    for (size_t i = 0; i < objects_.size(); ++i) {
      const Object& object = objects_[i];
      if (!object.stopped || object.puts != 1) continue;
      const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
      const auto marks = MarksOf(object.id, directory::FromProto(summary.generation()));
      const bool known = std::any_of(object.knows_stop.begin(), object.knows_stop.end(),
                                     [&](const NodeKey& key) { return marks.contains(key); });
      if (known && summary.has_sticky()) {
        cluster_.journal().Violation(
            absl::StrCat(NameOf(i), " is sticky after the calm although it was stopped; ",
                         cluster_.DescribeEverywhere(object.id)));
      }
    }
  }

  void FillResult(SimulationResult& result) override {
    result.operations = answered_;
    result.bytes_checked = checked_;
  }

  const BroadcastPlan& plan_;
  std::vector<Object> objects_;
  std::vector<size_t> current_;  // the objects that clients use
  std::map<NodeKey, ClientId> clients_;
  std::map<uint64_t, Request> requests_;  // not answered yet
  uint64_t last_request_ = 0;
  std::map<uint64_t, NodeKey> puts_;  // not answered yet, with the node
  uint64_t last_put_ = 0;
  uint64_t answered_ = 0;
  uint64_t checked_ = 0;
};

}  // namespace

BroadcastPlan DrawBroadcastPlan(uint64_t seed, bool peace) {
  BroadcastPlan plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 157 + 5);
  // No node is full for long, and nothing is evicted: each node has room for all objects.
  plan.world.cluster.capacity_bytes = 64 << 20;
  plan.world.cluster.allocation_failures = 0;
  auto& weights = plan.world.faults.weights;
  weights[static_cast<size_t>(Fault::kMemory)] = 0;
  weights[static_cast<size_t>(Fault::kDrain)] = 0;
  if (!peace) {
    weights[static_cast<size_t>(Fault::kCrashNode)] += 1;
    weights[static_cast<size_t>(Fault::kCrashShard)] += 0.5;
    // Slow memory keeps requests open for longer.
    if (random.Chance(0.5)) weights[static_cast<size_t>(Fault::kMemory)] += 1;
    if (random.Chance(0.5)) plan.world.cluster.allocation_delay = absl::Seconds(1) * random.Unit();
    plan.world.faults.memory_fails = false;
  }
  plan.mean_pause = absl::Milliseconds(30 + random.Below(120));
  plan.max_bytes = 1000 + random.Below(300'000);
  plan.objects = static_cast<int>(3 + random.Below(8));
  SimFabric::Options& fabric = plan.world.cluster.fabric;
  if (fabric.link.bytes_per_second > 0) {
    fabric.link.bytes_per_second = std::max(fabric.link.bytes_per_second, 4e7);
  }
  if (fabric.interface_bytes_per_second > 0) {
    fabric.interface_bytes_per_second = std::max(fabric.interface_bytes_per_second, 4e7);
  }
  return plan;
}

BroadcastPlan InHalves(BroadcastPlan plan) {
  PullInHalves(plan.world.cluster, 2);
  plan.slices = 2;
  return plan;
}

std::string Describe(const BroadcastPlan& plan) {
  return absl::StrCat(plan.objects, " objects of up to ", plan.max_bytes, " bytes; ",
                      Describe(plan.world));
}

SimulationResult RunBroadcastSimulation(const BroadcastPlan& plan) {
  return BroadcastSimulation(plan).Run();
}

}  // namespace phalanx::sim
