#include "src/sim/workloads/delete_simulation.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/directory/core/validate.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using object_store::View;

// Beyond the leases that a Delete waits for: messages on slow links, behind large ones.
constexpr absl::Duration kSlowest = absl::Seconds(3);

class DeleteSimulation final : public ClientSimulation {
 public:
  explicit DeleteSimulation(const DeletePlan& plan)
      : ClientSimulation(
            plan.world,
            {.mean_pause = plan.mean_pause, .sample_every = std::max(plan.world.sample_every, 16)},
            Random(plan.seed * 139 + 3), Random(plan.seed * 149 + 4)),
        plan_(plan),
        lease_(plan.world.cluster.lease),
        // A silent node, and before that the first lease of a shard that starts.
        delete_bound_(lease_ * 4 + kSlowest),
        first_acknowledged_(static_cast<size_t>(plan.names), Instant::Infinite()),
        starts_(static_cast<size_t>(plan.world.cluster.shards)) {}

 private:
  ObjectId IdOf(size_t name) const { return ObjectId::FromName("deletes", absl::StrCat(name)); }
  static std::string Called(size_t name) { return absl::StrCat("o", name); }

  // ---- phases

  void Begin() override {
    // The shard's answer is the acknowledgement: the client reads it in the same turn.
    cluster_.OnShardMessage([this](int n, const v1::ShardMessage& m) { OnShardMessage(n, m); });
  }

  void OnSample() override {
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      std::vector<Instant>& starts = starts_[static_cast<size_t>(s)];
      const Instant last = cluster_.last_shard_start(s);
      if (starts.empty() || starts.back() != last) starts.push_back(last);
    }
  }

  void Settle() override {
    // Every node is up and has registered before the farewell deletes what they have.
    RunFor(lease_ * 2 + kSlowest);
    Await("to answer all requests", [this] {
      int open = 0;
      for (const auto& [life, requests] : open_) {
        if (cluster_.FindNode(life) >= 0) open += requests;
      }
      return open == 0 ? absl::OkStatus()
                       : absl::UnavailableError(absl::StrCat(open, " requests are open"));
    });
  }

  void CleanUp() override {
    OnNode(0, [this](int n) {
      for (size_t name = 0; name < first_acknowledged_.size(); ++name) Delete(n, name);
    });
    RunFor(delete_bound_);
    for (const auto& [life, client] : clients_) {
      OnNode(cluster_.FindNode(life), [this, client = client](int n) {
        cluster_.store(n)->CloseClient(client, /*clean=*/true);
      });
    }
  }

  // ---- acts of clients; each on the node's control loop

  ClientId ClientOf(int n) {
    const auto [at, added] = clients_.try_emplace(cluster_.node(n)->key());
    if (added) at->second = cluster_.store(n)->OpenClient();
    return at->second;
  }

  NodeKey BeginRequest(int n) {
    const NodeKey life = cluster_.node(n)->key();
    ++open_[life];
    return life;
  }

  void Act(int n) override {
    const size_t name = random_.Below(first_acknowledged_.size());
    const double choice = random_.Unit();
    if (choice < 0.3) {
      Put(n, name);
    } else if (choice < 0.5) {
      Delete(n, name);
    } else {
      Get(n, name, now());
    }
  }

  void Put(int n, size_t name) {
    object_store::PutOptions options;
    options.id = IdOf(name);
    options.deadline = cluster_.NowAt(n) + lease_ * 3;
    options.wait_for_adoption = random_.Chance(0.5);
    const uint64_t most = random_.Chance(0.6) ? 1000 : plan_.max_bytes;
    const NodeKey life = BeginRequest(n);
    cluster_.store(n)->Put(
        ClientOf(n), options, std::string(1 + random_.Below(most), 'x'),
        [this, life, name](const absl::StatusOr<object_store::PutResult>& result) {
          --open_[life];
          cluster_.journal().Note(
              NodeName(cluster_.FindNode(life)), " has put ", Called(name), ": ",
              result.ok() ? result->generation.ToString() : result.status().ToString());
        });
  }

  void Delete(int n, size_t name) {
    const NodeKey life = BeginRequest(n);
    cluster_.store(n)->Delete(ClientOf(n), IdOf(name), cluster_.NowAt(n) + delete_bound_,
                              [this, life, n, name, begun = now()](const absl::Status& status) {
                                --open_[life];
                                cluster_.journal().Note(NodeName(n), " has deleted ", Called(name),
                                                        ": ", status.ToString());
                                if (absl::IsDeadlineExceeded(status))
                                  CheckBound(n, name, begun, status);
                                if (status.ok() && running_) ReadEverywhere(name);
                              });
  }

  void CheckBound(int n, size_t name, Instant begun, const absl::Status& status) {
    if (!cluster_.Undisturbed(n, cluster_.ShardOf(IdOf(name)), begun - lease_)) return;
    cluster_.journal().Violation(
        absl::StrCat("a Delete took longer than ", absl::FormatDuration(delete_bound_),
                     " without a fault between its node and the shard: ", status.ToString(), "; ",
                     cluster_.DescribeEverywhere(IdOf(name))));
  }

  // At once and later; also on a node that is stopped, which reads the request when it continues.
  void ReadEverywhere(size_t name) {
    ++acknowledged_;
    first_acknowledged_[name] = std::min(first_acknowledged_[name], now());
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      for (const absl::Duration most : {absl::Milliseconds(3), lease_ * 2}) {
        cluster_.scheduler().After(most * random_.Unit(), [this, n, name] {
          if (!running_ || cluster_.node(n) == nullptr) return;
          cluster_.OnNode(n, [this, n, name, begun = now()] { Get(n, name, begun); });
        });
      }
    }
  }

  void Get(int n, size_t name, Instant begun) {
    object_store::GetOptions options;
    options.id = IdOf(name);
    // Some only ask for what is here.
    const absl::Duration patience =
        random_.Chance(0.3) ? absl::ZeroDuration() : lease_ * 2 * random_.Unit();
    options.deadline = cluster_.NowAt(n) + patience;
    options.streaming = random_.Chance(0.1);
    const NodeKey life = BeginRequest(n);
    object_store::GetEvents events;
    events.on_view = [this, life, n, name, begun, first = true](absl::StatusOr<View> view) mutable {
      // A streaming Get whose generation ends has another view.
      if (std::exchange(first, false)) --open_[life];
      Check(n, name, begun, view);
      if (view.ok()) {
        cluster_.store(n)->Release(clients_.at(life), view->pin).IgnoreError();
      }
    };
    events.on_void = [](const absl::Status&) {};
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  // ---- the oracle

  void Check(int n, size_t name, Instant begun, const absl::StatusOr<View>& view) {
    if (begun > first_acknowledged_[name]) ++checked_;
    cluster_.journal().Note(NodeName(n), " reads ", Called(name), ": ",
                            view.ok() ? view->generation.ToString() : view.status().ToString());
    if (!view.ok()) return;
    const auto deleted = acknowledged_at_.find(view->generation);
    if (deleted == acknowledged_at_.end() || begun <= deleted->second) return;
    const int s = cluster_.ShardOf(IdOf(name));
    if (MayBeForgotten(view->generation, s, deleted->second)) return;
    cluster_.journal().Violation(absl::StrCat(
        NodeName(n), " returns ", view->generation.ToString(), " of ", Called(name),
        " to a Get that began ", absl::FormatDuration(begun - deleted->second),
        " after its deletion was acknowledged; ", cluster_.DescribeEverywhere(IdOf(name))));
  }

  void OnShardMessage(int n, const v1::ShardMessage& m) {
    if (cluster_.node(n) == nullptr) return;
    const NodeKey life = cluster_.node(n)->key();
    if (m.gone().kind() == v1::Gone::DELETED) {
      knowers_[directory::FromProto(m.gone().generation())].insert(life);
    }
    if (m.verdict().kind() == v1::Verdict::DELETED) {
      knowers_[directory::FromProto(m.verdict().generation())].insert(life);
    }
    for (const v1::Generation& generation : m.delete_reply().generations()) {
      const Generation deleted = directory::FromProto(generation);
      knowers_[deleted].insert(life);
      acknowledged_at_.try_emplace(deleted, now());
    }
  }

  // The shard has restarted since, and no node that knew of the deletion was in touch with it while
  // it learned (docs/protocol.md, What is not promised).
  bool MayBeForgotten(const Generation& generation, int s, Instant acknowledged) {
    const std::vector<Instant>& starts = starts_[static_cast<size_t>(s)];
    const auto restarts = std::count_if(starts.begin(), starts.end(),
                                        [&](Instant start) { return start > acknowledged; });
    const Instant last = cluster_.last_shard_start(s);
    if (last <= acknowledged) return false;
    if (restarts > 1) return true;
    const Instant registered_by = last + lease_ / 2;
    if (now() < registered_by) return false;
    const std::set<NodeKey>& knowers = knowers_[generation];
    return std::none_of(knowers.begin(), knowers.end(), [&](const NodeKey& life) {
      const int n = cluster_.FindNode(life);
      return n >= 0 && cluster_.Undisturbed(n, s, registered_by);
    });
  }

  void FillResult(SimulationResult& result) override {
    result.operations = acknowledged_;
    result.bytes_checked = checked_;
  }

  const DeletePlan& plan_;
  const absl::Duration lease_;
  const absl::Duration delete_bound_;
  std::map<NodeKey, ClientId> clients_;
  std::map<NodeKey, int> open_;  // requests, by their node's life
  uint64_t acknowledged_ = 0;
  uint64_t checked_ = 0;
  std::vector<Instant> first_acknowledged_;  // by name
  // When the first Delete that names the generation was acknowledged.
  std::map<Generation, Instant> acknowledged_at_;
  std::map<Generation, std::set<NodeKey>> knowers_;
  std::vector<std::vector<Instant>> starts_;  // by shard
};

}  // namespace

DeletePlan DrawDeletePlan(uint64_t seed, bool peace) {
  DeletePlan plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 151 + 5);
  ClusterOptions& cluster = plan.world.cluster;
  cluster.nodes = std::max(cluster.nodes, 3);
  cluster.capacity_bytes = 16 << 20;
  cluster.allocation_failures = 0;
  plan.names = 1 + static_cast<int>(random.Below(5));
  plan.mean_pause = absl::Milliseconds(5 + random.Below(40));
  plan.max_bytes = 1000 + random.Below(150'000);
  if (peace) return plan;
  // Faults happen in each of these worlds, even if it was drawn without faults.
  cluster.peaceful = false;
  FaultOptions& faults = plan.world.faults;
  faults.mean_pause = cluster.lease * (0.1 + random.Unit());
  // Longer and shorter than a lease.
  faults.mean_length = cluster.lease * (0.2 + 2 * random.Unit());
  for (const Fault fault : {Fault::kPartitionShard, Fault::kStallNode, Fault::kHalfOpenShard,
                            Fault::kCrashShard, Fault::kStallShard, Fault::kResetShard}) {
    if (random.Chance(0.5)) faults.weights[static_cast<size_t>(fault)] = 2 * random.Unit();
  }
  plan.world.storm = plan.world.storm + cluster.lease * 4;
  return plan;
}

std::string Describe(const DeletePlan& plan) {
  return absl::StrCat(plan.names, " names, objects of up to ", plan.max_bytes, " bytes; ",
                      Describe(plan.world));
}

SimulationResult RunDeleteSimulation(const DeletePlan& plan) {
  return DeleteSimulation(plan).Run();
}

}  // namespace phalanx::sim
