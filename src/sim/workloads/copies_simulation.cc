#include "src/sim/workloads/copies_simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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
constexpr uint32_t kMostCopies = 4;

class CopiesSimulation final : public ClientSimulation {
 public:
  explicit CopiesSimulation(const CopiesPlan& plan)
      : ClientSimulation(plan.world,
                         {.mean_pause = plan.mean_pause,
                          .settle_within = kSettleWithin + kWaitForLost * plan.world.cluster.nodes,
                          .sample_every = std::max(plan.world.sample_every, 16)},
                         Random(plan.seed * 211 + 3), Random(plan.seed * 223 + 4)),
        plan_(plan) {}

 private:
  struct Object {
    ObjectId id;
    int puts = 0;
    bool deleting = false;
  };
  struct Request {
    size_t object = 0;
    NodeKey life;
    uint32_t copies = 0;
    int puts = 0;
  };
  // What the nodes have of one object.
  struct Truth {
    std::set<int> hosts;  // with a complete primary copy of the shard's generation
    int primaries = 0;
    v1::StickyMark latest;  // of the marks of its copies
  };

  static std::string NameOf(size_t object) { return absl::StrCat("o", object); }
  int HostOf(int n) const { return n % plan_.world.cluster.hosts; }

  // ---- phases

  void Begin() override {
    for (int i = 0; i < plan_.objects; ++i) NewObject();
  }

  void Settle() override {
    Await("for the copies of each object", [this] { return AtRest(); });
    if (!failed()) AwaitRegistrations();
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
    for (const Object& object : objects_) of_shard.emplace(cluster_.ShardOf(object.id), object.id);
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
          status.counters().at("short_of_copies") + status.counters().at("copies_waited_for");
      if (left == 0) continue;
      return absl::UnavailableError(absl::StrCat(ShardName(s), " lacks ", left, " copies"));
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
    object.id = ObjectId::FromName("copies", absl::StrCat(objects_.size()));
    current_.push_back(objects_.size());
    objects_.push_back(object);
  }

  uint32_t AnyCopies() { return 1 + static_cast<uint32_t>(random_.Below(kMostCopies)); }

  void Act(int n) override {
    const size_t object = current_[random_.Below(current_.size())];
    const double choice = random_.Unit();
    if (objects_[object].puts == 0 || choice < 0.15) {
      Put(n, object);
    } else if (choice < 0.45) {
      Replicate(n, object);
    } else if (choice < 0.5) {
      Delete(n, object);
    } else if (choice < 0.8) {
      Get(n, object);
    } else if (choice < 0.83) {
      CloseClient(n);
    }
  }

  void Put(int n, size_t number) {
    Object& object = objects_[number];
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    // Like a task that runs again because its result is lost; sometimes also if it is not lost.
    if (object.puts > 0 && summary.complete_copies() > 0 && !random_.Chance(0.1)) return;
    ++object.puts;
    object_store::PutOptions options;
    options.id = object.id;
    options.copies = random_.Chance(0.7) ? AnyCopies() : 0;
    options.wait_for_copies = random_.Chance(0.5);
    options.deadline = cluster_.NowAt(n) + absl::Seconds(2);
    cluster_.journal().Note(NodeName(n), " puts ", NameOf(number), " with ", options.copies,
                            " copies");
    const uint64_t size =
        random_.Chance(0.4) ? random_.Below(1000) : random_.Below(plan_.max_bytes);
    const Request request{number, cluster_.node(n)->key(), options.copies, object.puts};
    const bool waits = options.wait_for_copies && options.copies > 0;
    const uint64_t put_number = ++last_request_;
    puts_[put_number] = cluster_.node(n)->key();
    cluster_.store(n)->Put(
        ClientOf(n), options, std::string(size, 'x'),
        [this, request, waits, put_number](const absl::StatusOr<object_store::PutResult>& put) {
          puts_.erase(put_number);
          if (put.ok() && waits) CheckThere(request);
        });
  }

  void Replicate(int n, size_t number) {
    const uint64_t request = ++last_request_;
    requests_[request] =
        Request{number, cluster_.node(n)->key(), AnyCopies(), objects_[number].puts};
    object_store::BroadcastOptions options;
    options.copies = requests_[request].copies;
    cluster_.journal().Note(NodeName(n), " asks for ", options.copies, " copies of ",
                            NameOf(number));
    const Instant deadline = random_.Chance(0.3)
                                 ? cluster_.NowAt(n) + absl::Seconds(1) * random_.Unit()
                                 : Instant::Infinite();
    cluster_.store(n)->Broadcast(
        ClientOf(n), objects_[number].id, std::move(options), deadline,
        [this, request](const absl::StatusOr<int>& hosts) { Answered(request, hosts); });
  }

  void Answered(uint64_t number, const absl::StatusOr<int>& hosts) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) return;
    const Request request = found->second;
    requests_.erase(found);
    cluster_.journal().Note("copies of ", NameOf(request.object), " ", hosts.status().ToString());
    // A node that no sender feeds gives up after a minute.
    const bool known = hosts.ok() || absl::IsDeadlineExceeded(hosts.status()) ||
                       absl::IsNotFound(hosts.status()) || absl::IsDataLoss(hosts.status()) ||
                       absl::IsResourceExhausted(hosts.status());
    if (!known) {
      cluster_.journal().Violation(absl::StrCat("copies of ", NameOf(request.object)),
                                   hosts.status());
    }
    if (!hosts.ok()) return;
    ++answered_;
    CheckThere(request);
  }

  // Without faults the answer is exact, unless another client has asked for fewer meanwhile.
  void CheckThere(const Request& request) {
    const Object& object = objects_[request.object];
    if (!plan_.world.cluster.peaceful || object.deleting || object.puts != 1) return;
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    if (summary.copies_wanted() != request.copies) return;
    const Truth truth = TruthOf(object.id, directory::FromProto(summary.generation()));
    const int least = std::min<int>(static_cast<int>(request.copies), plan_.world.cluster.hosts);
    if (static_cast<int>(truth.hosts.size()) >= least) return;
    cluster_.journal().Violation(absl::StrCat("the request for ", request.copies, " copies of ",
                                              NameOf(request.object),
                                              " was answered with copies on ", truth.hosts.size(),
                                              " hosts; ", cluster_.DescribeEverywhere(object.id)));
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
    objects_[number].deleting = true;
    cluster_.journal().Note(NodeName(n), " deletes ", NameOf(number));
    cluster_.store(n)->Delete(ClientOf(n), objects_[number].id,
                              cluster_.NowAt(n) + absl::Seconds(5), [](const absl::Status&) {});
    std::erase(current_, number);
    NewObject();
  }

  // ---- at rest

  Truth TruthOf(const ObjectId& id, const Generation& generation) {
    Truth truth;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) continue;
      for (const CopyInfo& copy : cluster_.store(n)->Copies()) {
        if (copy.id != id || copy.generation != generation || !copy.complete) continue;
        if (copy.primary) {
          truth.hosts.insert(HostOf(n));
          ++truth.primaries;
        }
        if (copy.sticky.stamp() > truth.latest.stamp()) truth.latest = copy.sticky;
      }
    }
    return truth;
  }

  absl::Status AtRest() {
    if (absl::Status status = checkers_.Settled(); !status.ok()) return status;
    uint64_t checked = 0;
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (absl::Status status = ObjectAtRest(i, checked); !status.ok()) return status;
    }
    for (const auto& [number, request] : requests_) {
      if (cluster_.FindNode(request.life) < 0) continue;
      return absl::UnavailableError(
          absl::StrCat("a request for copies of ", NameOf(request.object), " is not answered; ",
                       cluster_.DescribeEverywhere(objects_[request.object].id)));
    }
    checked_ += checked;
    return absl::OkStatus();
  }

  absl::Status ObjectAtRest(size_t number, uint64_t& checked) {
    const Object& object = objects_[number];
    const v1::ObjectSummary summary = cluster_.Describe(object.id).summary();
    if (summary.deleted() || summary.complete_copies() == 0) return absl::OkStatus();
    const Truth truth = TruthOf(object.id, directory::FromProto(summary.generation()));
    const auto wrong = [&](const auto&... what) {
      return absl::UnavailableError(absl::StrCat(NameOf(number), ": ", what..., "; ",
                                                 cluster_.DescribeEverywhere(object.id)));
    };
    // A restarted shard has learned the number from the nodes that have copies.
    if (truth.latest.copies() != summary.copies_wanted()) {
      return wrong("the marks of its copies want ", truth.latest.copies(), ", the shard wants ",
                   summary.copies_wanted());
    }
    if (summary.copies_wanted() == 0) return absl::OkStatus();
    const size_t hosts =
        std::min<size_t>(summary.copies_wanted(), static_cast<size_t>(plan_.world.cluster.hosts));
    ++checked;
    // With fewer hosts than copies nothing is released.
    const bool exact = summary.copies_wanted() == hosts;
    if (truth.hosts.size() != hosts || (exact && truth.primaries != static_cast<int>(hosts))) {
      return wrong(truth.primaries, " primary copies on ", truth.hosts.size(), " hosts, of ",
                   hosts);
    }
    if (summary.copies_there() != hosts) {
      return wrong("the shard counts copies on ", summary.copies_there(), " hosts of ", hosts);
    }
    return absl::OkStatus();
  }

  void FillResult(SimulationResult& result) override {
    result.operations = answered_;
    result.bytes_checked = checked_;
  }

  const CopiesPlan& plan_;
  std::vector<Object> objects_;
  std::vector<size_t> current_;  // the objects that clients use
  std::map<NodeKey, ClientId> clients_;
  std::map<uint64_t, Request> requests_;  // not answered yet
  std::map<uint64_t, NodeKey> puts_;      // not answered yet, with the node
  uint64_t last_request_ = 0;
  uint64_t answered_ = 0;
  uint64_t checked_ = 0;
};

}  // namespace

CopiesPlan DrawCopiesPlan(uint64_t seed, bool peace) {
  CopiesPlan plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 227 + 5);
  // No node is full for long: each has room for all objects.
  ClusterOptions& cluster = plan.world.cluster;
  cluster.capacity_bytes = 64 << 20;
  cluster.allocation_failures = 0;
  cluster.nodes = std::max(cluster.nodes, 3);
  // Hosts of different zones are different ones, whatever they are called.
  cluster.zones = 0;
  cluster.hosts = 2 + static_cast<int>(random.Below(static_cast<uint64_t>(cluster.nodes) - 1));
  auto& weights = plan.world.faults.weights;
  weights[static_cast<size_t>(Fault::kMemory)] = 0;
  weights[static_cast<size_t>(Fault::kDrain)] = 0;
  if (!peace) {
    weights[static_cast<size_t>(Fault::kCrashNode)] += 1;
    weights[static_cast<size_t>(Fault::kCrashShard)] += 0.5;
    if (random.Chance(0.5)) cluster.allocation_delay = absl::Seconds(1) * random.Unit();
    plan.world.faults.memory_fails = false;
  }
  plan.mean_pause = absl::Milliseconds(30 + random.Below(120));
  plan.max_bytes = 1000 + random.Below(300'000);
  plan.objects = static_cast<int>(3 + random.Below(8));
  SimFabric::Options& fabric = cluster.fabric;
  if (fabric.link.bytes_per_second > 0) {
    fabric.link.bytes_per_second = std::max(fabric.link.bytes_per_second, 4e7);
  }
  if (fabric.interface_bytes_per_second > 0) {
    fabric.interface_bytes_per_second = std::max(fabric.interface_bytes_per_second, 4e7);
  }
  return plan;
}

std::string Describe(const CopiesPlan& plan) {
  return absl::StrCat(plan.objects, " objects of up to ", plan.max_bytes, " bytes, ",
                      plan.world.cluster.hosts, " hosts; ", Describe(plan.world));
}

SimulationResult RunCopiesSimulation(const CopiesPlan& plan) {
  return CopiesSimulation(plan).Run();
}

}  // namespace phalanx::sim
