#include "src/sim/workloads/scopes_simulation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/sim/workloads/client_simulation.h"

namespace phalanx::sim {
namespace {

using object_store::ClientId;
using CopyInfo = object_store::Store::CopyInfo;

constexpr absl::Duration kSettleWithin = absl::Seconds(100);
constexpr uint64_t kAllNumbers = std::numeric_limits<uint64_t>::max();
// Clients use the objects that were put last.
constexpr size_t kRecent = 24;

class ScopesSimulation final : public ClientSimulation {
 public:
  explicit ScopesSimulation(const ScopesPlan& plan)
      : ClientSimulation(plan.world,
                         {.mean_pause = plan.mean_pause,
                          .settle_within = kSettleWithin,
                          .sample_every = std::max(plan.world.sample_every, 16)},
                         Random(plan.seed * 229 + 3), Random(plan.seed * 233 + 4)),
        plan_(plan),
        scopes_(static_cast<size_t>(plan.scopes)) {}

 private:
  struct Object {
    ObjectId id;
    size_t scope = 0;
    uint64_t number = 0;
  };
  // The greatest number that a client asked to end, and the ends that were acknowledged.
  struct Ended {
    uint64_t number = 0;
    Instant begun;  // when the end was asked for
    Instant at;     // when it was acknowledged
  };
  struct Name {
    uint64_t next = 1;  // the number that clients put into
    uint64_t asked = 0;
    std::vector<Ended> ended;  // by growing numbers
  };
  struct Request {
    NodeKey life;
    size_t scope = 0;
  };

  Scope ScopeOf(size_t scope, uint64_t number) const {
    return Scope{absl::StrCat("s", scope), number};
  }

  // ---- phases

  void Settle() override {
    Await("for scopes to be freed", [this] { return AtRest(); });
  }

  void CleanUp() override {
    const auto left = std::make_shared<size_t>(scopes_.size());
    OnNode(0, [this, left](int n) {
      for (size_t scope = 0; scope < scopes_.size(); ++scope) {
        scopes_[scope].asked = kAllNumbers;
        cluster_.store(n)->EndScope(ClientOf(n), ScopeOf(scope, kAllNumbers), Instant::Infinite(),
                                    [this, left](const absl::Status& done) {
                                      if (!done.ok()) {
                                        cluster_.journal().Violation("the end of a scope", done);
                                      }
                                      --*left;
                                    });
      }
    });
    Await("for the ends of all scopes", [&left] {
      return *left == 0 ? absl::OkStatus()
                        : absl::UnavailableError(absl::StrCat(*left, " are not answered"));
    });
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      OnNode(n, [this](int node) { CloseClient(node); });
    }
  }

  absl::Status Empty() override {
    // The general checks first: their messages are more specific.
    if (absl::Status status = checkers_.Empty(); !status.ok()) return status;
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      const uint64_t left =
          status.counters().at("scope_objects") + status.counters().at("scopes_waited_for");
      if (left == 0 && status.tombstones() == 0) continue;
      return absl::UnavailableError(absl::StrCat(ShardName(s), " has ", left,
                                                 " objects in scopes or requests, and ",
                                                 status.tombstones(), " tombstones"));
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
  }

  void Act(int n) override {
    const double choice = random_.Unit();
    if (objects_.empty() || choice < 0.45) {
      Put(n);
    } else if (choice < 0.88) {
      Get(n);
    } else if (choice < 0.98) {
      End(n);
    } else {
      CloseClient(n);
    }
  }

  void Put(int n) {
    Object object;
    object.id = ObjectId::FromName("scopes", absl::StrCat(objects_.size()));
    object.scope = random_.Below(scopes_.size());
    Name& name = scopes_[object.scope];
    object.number = name.next;
    // A task that is late, or one that runs ahead.
    if (name.asked > 0 && random_.Chance(0.15)) object.number = 1 + random_.Below(name.asked);
    if (random_.Chance(0.1)) ++object.number;
    object_store::PutOptions options;
    options.id = object.id;
    options.scope = ScopeOf(object.scope, object.number);
    options.wait_for_adoption = random_.Chance(0.3);
    options.deadline = cluster_.NowAt(n) + absl::Seconds(2);
    cluster_.journal().Note(NodeName(n), " puts o", objects_.size(), " into ",
                            options.scope.ToString());
    objects_.push_back(object);
    const uint64_t size =
        random_.Chance(0.6) ? random_.Below(1000) : random_.Below(plan_.max_bytes);
    cluster_.store(n)->Put(ClientOf(n), options, std::string(size, 'x'),
                           [this, object](const absl::StatusOr<object_store::PutResult>& put) {
                             if (absl::IsNotFound(put.status())) CheckEnd(object, put.status());
                           });
  }

  void Get(int n) {
    const size_t recent = std::min(objects_.size(), kRecent);
    const Object object = objects_[objects_.size() - 1 - random_.Below(recent)];
    object_store::GetOptions options;
    options.id = object.id;
    if (random_.Chance(0.7)) options.scope = ScopeOf(object.scope, object.number);
    options.deadline = cluster_.NowAt(n) + absl::Seconds(1) * random_.Unit();
    object_store::GetEvents events;
    events.on_view = [this, object, begun = now(), life = cluster_.node(n)->key(),
                      client = ClientOf(n)](absl::StatusOr<object_store::View> view) {
      const int node = cluster_.FindNode(life);
      if (absl::IsNotFound(view.status())) CheckEnd(object, view.status());
      if (node < 0 || !view.ok()) return;
      CheckRead(node, object, begun);
      cluster_.store(node)->Release(client, view->pin).IgnoreError();
    };
    cluster_.store(n)->Get(ClientOf(n), options, std::move(events));
  }

  // The call ended with its scope: a client must have asked for that.
  void CheckEnd(const Object& object, const absl::Status& end) {
    if (!absl::StrContains(end.message(), "has ended")) return;
    if (object.number <= scopes_[object.scope].asked) return;
    cluster_.journal().Violation(absl::StrCat("no client has ended number ", object.number, " of s",
                                              object.scope, ", but: ", end.message()));
  }

  // A Get that began after the end of the scope was acknowledged reads nothing of it, on a node
  // that was in touch.
  void CheckRead(int n, const Object& object, Instant begun) {
    for (const Ended& ended : scopes_[object.scope].ended) {
      if (object.number > ended.number || begun <= ended.at || !InTouch(n, ended.begun)) continue;
      cluster_.journal().Violation(absl::StrCat(NodeName(n), " reads an object of number ",
                                                object.number, " of s", object.scope,
                                                ", which has ended"));
    }
  }

  void End(int n) {
    const size_t scope = random_.Below(scopes_.size());
    Name& name = scopes_[scope];
    // Sometimes again one that has ended.
    const uint64_t number =
        name.asked > 0 && random_.Chance(0.2) ? 1 + random_.Below(name.asked) : name.next;
    name.next = std::max(name.next, number + 1);
    name.asked = std::max(name.asked, number);
    cluster_.journal().Note(NodeName(n), " ends ", ScopeOf(scope, number).ToString());
    const uint64_t request = ++last_request_;
    requests_[request] = Request{cluster_.node(n)->key(), scope};
    const Instant deadline = random_.Chance(0.3)
                                 ? cluster_.NowAt(n) + absl::Seconds(1) * random_.Unit()
                                 : Instant::Infinite();
    cluster_.store(n)->EndScope(ClientOf(n), ScopeOf(scope, number), deadline,
                                [this, request, number, begun = now()](const absl::Status& done) {
                                  Answered(request, number, begun, done);
                                });
  }

  void Answered(uint64_t request, uint64_t number, Instant begun, const absl::Status& done) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    const size_t scope = found->second.scope;
    requests_.erase(found);
    cluster_.journal().Note("end of ", ScopeOf(scope, number).ToString(), ": ", done.ToString());
    if (absl::IsDeadlineExceeded(done)) return;
    if (!done.ok()) {
      cluster_.journal().Violation("the end of a scope", done);
      return;
    }
    ++answered_;
    std::vector<Ended>& ended = scopes_[scope].ended;
    // Of the earlier ends, those of greater numbers still say something.
    std::erase_if(ended, [number](const Ended& other) { return other.number <= number; });
    ended.push_back(Ended{number, begun, now()});
    CheckScope(scope);
  }

  // ---- invariants

  // A lease and a half: a node that was away just before can have been declared dead.
  bool InTouch(int n, Instant since) {
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      if (!cluster_.Undisturbed(n, s, since - plan_.world.cluster.lease * 1.5)) return false;
    }
    return true;
  }

  // Returns a copy of the scope, or of a smaller number, on the node.
  std::optional<CopyInfo> CopyOf(int n, size_t scope, uint64_t number) {
    const Scope ended = ScopeOf(scope, number);
    for (const CopyInfo& copy : cluster_.store(n)->Copies()) {
      if (copy.scope.name == ended.name && copy.scope.number <= number) return copy;
    }
    return std::nullopt;
  }

  void CheckScope(size_t scope) {
    for (const Ended& ended : scopes_[scope].ended) {
      for (int n = 0; n < cluster_.num_nodes(); ++n) {
        if (cluster_.node(n) == nullptr || !InTouch(n, ended.begun)) continue;
        ++checked_;
        const std::optional<CopyInfo> copy = CopyOf(n, scope, ended.number);
        if (!copy.has_value()) continue;
        cluster_.journal().Violation(
            absl::StrCat(NodeName(n), " has a copy in number ", copy->scope.number, " of s", scope,
                         ", although the end of ", ended.number, " was acknowledged; ",
                         cluster_.DescribeEverywhere(copy->id)));
        return;
      }
    }
  }

  void OnSample() override {
    for (size_t scope = 0; scope < scopes_.size(); ++scope) CheckScope(scope);
    for (int s = 0; s < cluster_.num_shards(); ++s) {
      if (cluster_.shard(s) == nullptr) continue;
      v1::GetStatusResponse status;
      cluster_.shard(s)->FillStatus(&status);
      if (status.tombstones() == 0) continue;
      cluster_.journal().Violation(
          absl::StrCat(ShardName(s), " has ", status.tombstones(), " tombstones"));
    }
  }

  // ---- at rest

  absl::Status AtRest() {
    if (absl::Status status = checkers_.Settled(); !status.ok()) return status;
    for (const auto& [number, request] : requests_) {
      if (cluster_.FindNode(request.life) < 0) continue;
      return absl::UnavailableError(absl::StrCat("an end of s", request.scope, " is not answered"));
    }
    for (size_t scope = 0; scope < scopes_.size(); ++scope) {
      for (const Ended& ended : scopes_[scope].ended) {
        if (absl::Status status = ScopeAtRest(scope, ended.number); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status ScopeAtRest(size_t scope, uint64_t number) {
    bool known = false;
    for (int n = 0; n < cluster_.num_nodes(); ++n) {
      if (cluster_.node(n) == nullptr) {
        return absl::UnavailableError(absl::StrCat(NodeName(n), " is down"));
      }
      known = known || cluster_.store(n)->HasEnded(ScopeOf(scope, number));
    }
    // If every node that knew is dead, and the shard has restarted, the end is forgotten.
    for (int n = 0; n < cluster_.num_nodes() && known; ++n) {
      const std::optional<CopyInfo> copy = CopyOf(n, scope, number);
      if (!copy.has_value()) continue;
      return absl::UnavailableError(absl::StrCat(NodeName(n), " has a copy in number ",
                                                 copy->scope.number, " of s", scope, "; ",
                                                 cluster_.DescribeEverywhere(copy->id)));
    }
    return absl::OkStatus();
  }

  void FillResult(SimulationResult& result) override {
    result.operations = answered_;
    result.bytes_checked = checked_;
  }

  const ScopesPlan& plan_;
  std::vector<Name> scopes_;
  std::vector<Object> objects_;
  std::map<NodeKey, ClientId> clients_;
  std::map<uint64_t, Request> requests_;  // ends that are not answered yet
  uint64_t last_request_ = 0;
  uint64_t answered_ = 0;
  uint64_t checked_ = 0;
};

}  // namespace

ScopesPlan DrawScopesPlan(uint64_t seed, bool peace) {
  ScopesPlan plan;
  plan.seed = seed;
  plan.world = DrawPlan(seed, peace ? Focus::kPeace : Focus::kAnything);
  Random random(seed * 239 + 5);
  ClusterOptions& cluster = plan.world.cluster;
  // No node is full for long: the clients give up no Put for want of memory.
  cluster.capacity_bytes = 64 << 20;
  cluster.allocation_failures = 0;
  auto& weights = plan.world.faults.weights;
  weights[static_cast<size_t>(Fault::kMemory)] = 0;
  if (!peace) {
    weights[static_cast<size_t>(Fault::kCrashNode)] += 1;
    weights[static_cast<size_t>(Fault::kCrashShard)] += 1;
    if (random.Chance(0.5)) cluster.allocation_delay = absl::Milliseconds(300) * random.Unit();
    plan.world.faults.memory_fails = false;
  }
  plan.mean_pause = absl::Milliseconds(10 + random.Below(50));
  plan.max_bytes = 1000 + random.Below(300'000);
  plan.scopes = static_cast<int>(1 + random.Below(3));
  return plan;
}

std::string Describe(const ScopesPlan& plan) {
  return absl::StrCat(plan.scopes, " scopes, objects of up to ", plan.max_bytes, " bytes; ",
                      Describe(plan.world));
}

SimulationResult RunScopesSimulation(const ScopesPlan& plan) {
  return ScopesSimulation(plan).Run();
}

}  // namespace phalanx::sim
