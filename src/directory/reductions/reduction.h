// What a shard knows of one running reduction. A plain value, owned by ReductionCatalog.
//
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/ids/version.h"
#include "src/common/time/instant.h"
#include "src/directory/reductions/ring_plan/ring_plan.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory {

//   kCollecting ──a requester wants the result on every node──► kRingWanted
//   kRingWanted ──every source is ready──► kRing ──committed, sealed──► ended
//        │                                   └── broken ──► kCollecting
//        └── sources are late, or a ring is not faster ──► kCollecting
//   kCollecting ──the shard has learned enough──► kPlanned ──committed, sealed──► ended
enum class ReductionPhase {
  kCollecting,  // the description and the sources arrive; neither ring nor plan has begun
  kRingWanted,  // as kCollecting; a ring is placed as soon as its sources are ready
  kRing,        // a ring computes the result
  kPlanned,     // the tree's plan has begun
};

// A reduction whose target belongs to this shard, until it has ended. Its parts are grouped
// by the component whose rules they follow.
struct Reduction {
  Reduction(const ObjectId& id, ReduceSpec spec, const NodeKey& root)
      : target(id), plan(id, std::move(spec), root) {}

  // A request that waits for the result.
  struct Requester {
    NodeKey node;
    uint64_t session = 0;
    uint64_t request_id = 0;  // 0: the node keeps the description and does not wait
    ReductionId id = {};      // the reduction's, if the node knows it
    std::pair<NodeKey, uint64_t> key() const { return {node, request_id}; }
  };
  // An input of a fold of which few bytes come, or none.
  struct Trouble {
    Instant since;                // when the bytes ceased, or when a low rate was reported
    uint64_t watermark = 0;       // the bytes that were here then
    double bytes_per_second = 0;  // the low rate, or the rate before the silence
    bool silent = false;
    NodeKey sender;    // the node from which they were pulled then
    Instant judge_at;  // infinite once it is judged
  };
  // A node that has turned out to be slow while this reduction ran.
  struct SlowNode {
    double speed = 1;     // as ReduceSource::Holder::speed
    bool silent = false;  // nothing comes from it
    // The other end of the link that showed it, which can be the slow one; not valid once it is
    // proven.
    NodeKey with;
  };
  // A fold that a node was ordered to compute.
  struct Placed {
    uint64_t watermark = 0;
    double bytes_per_second = 0;
    std::string trouble;
    int times_lost = 0;
    Instant again = Instant::Infinite();  // the node lost it: it is placed again then
    // The node was sent the order, or registered the fold, in its current session.
    bool registered = true;
    // By the input's number.
    absl::btree_map<size_t, Trouble> troubles;
    // When the fold is looked at again: its entry in `looks`.
    Instant look = Instant::Infinite();
  };
  using FoldKey = std::pair<NodeKey, SlotVersion>;
  // How much of an input its fold had when its sender failed.
  struct Arrived {
    FoldKey fold;
    uint64_t bytes = 0;
  };
  // A way around two nodes that cannot reach each other; of one input of a fold.
  struct Route {
    NodeKey parent;
    SlotVersion parent_version;
    NodeKey child;
    NodeKey relay;    // pulls the input from the child, and serves it to the parent
    std::string why;  // names the pair
  };

  // ---- ReductionCatalog
  struct Identity {
    // What nodes and tombstones name the reduction by. Minted by this life of the shard until a
    // node names an id that an earlier life minted (`confirmed`).
    ReductionId id;
    ReductionId minted_id;
    bool confirmed = false;
    // The target was reduced before: requesters are sent the id, so that they mean no other one.
    bool target_reused = false;
    // Of an open reduction: the id that nodes hold while a client of theirs can close it.
    ObjectId open_hold;
  };
  // ---- ReductionManager
  struct Requests {
    std::vector<Requester> waiting;
    // Every requester wants the target to be owned.
    bool owned = false;
    // Every request of an open reduction, and every extension that was carried out, by node and
    // request number.
    absl::btree_set<std::pair<NodeKey, uint64_t>> seen;
    // A node requested it that had not done so in an earlier session.
    bool has_new = false;
    // The node of the first request that this life of the shard has received.
    NodeKey first;
  };
  // ---- SourceWatcher
  struct Sources {
    // The sources that the plan knows to be ready.
    absl::btree_set<ObjectId> ready;
    // Nodes that reported not to hold that generation of a source. A shard that knows the source by
    // way of another shard hears of its end later.
    absl::btree_set<std::tuple<ObjectId, Generation, NodeKey>> absent;
    bool failed = false;
    // Sources of other shards: the node through which they are watched, and their states.
    NodeKey watch_proxy;
    bool has_foreign = false;
    absl::btree_map<ObjectId, v1::SourceState> foreign;
    size_t foreign_inline_bytes = 0;
  };
  // ---- CommitTracker
  struct Commit {
    // The generation of the target that the root's node has announced for the plan's root version.
    Generation root_generation;
    // Announced by a root that was not committed: no node can have all of its bytes.
    Generation open_root;
    // Everything was folded for a generation that stands by until the one before it is given up.
    bool root_ready = false;
    // Nodes that were ordered to commit, or notified of the commit: each may have answered its own
    // clients from the result before the shard hears that it is sealed.
    absl::btree_set<NodeKey> sent_to;
    // Those of them that are gone. The plan hears of it when no node turns out to have the result.
    absl::btree_set<NodeKey> lost_roots;
    // Those of them that may come back with the result, within a lease. Nothing is computed
    // meanwhile.
    absl::btree_set<NodeKey> awaited;
    Instant awaited_until = Instant::Infinite();
  };
  // ---- RingDriver
  struct Ring {
    std::unique_ptr<RingPlan> plan;
    Instant wait_until = Instant::Infinite();  // for sources that are missing
    Instant began;
  };
  // ---- ReductionDescriptors
  struct Replicas {
    // Nodes that keep the whole description.
    absl::btree_set<NodeKey> whole;
    // Of an open reduction: requesters that are sent each extension, and every node that keeps a
    // part of the list. Of another: requesters that keep the description, since they were sent its
    // id.
    absl::btree_set<NodeKey> extensions;
    absl::btree_set<NodeKey> parts;
    // After a restart: parts of the list by place that have a gap before them, and the number of
    // sources when the list was closed, if it was.
    absl::btree_map<size_t, std::vector<ObjectId>> list_parts;
    std::optional<size_t> closed_at;
  };

  // Returns true if a node that names `one` means this reduction.
  bool Is(const ReductionId& one) const { return one == identity.id || one == identity.minted_id; }
  bool committed() const {
    return ring.plan != nullptr ? ring.plan->committed() : plan.committed();
  }

  // The fold is looked at then, unless it is earlier.
  void LookAt(const FoldKey& key, Placed& fold, Instant when) {
    if (when >= fold.look) return;
    looks.erase({fold.look, key});
    fold.look = when;
    looks.insert({when, key});
  }
  // Returns the folds that are due.
  std::vector<FoldKey> TakeDue(Instant now) {
    std::vector<FoldKey> due;
    for (; !looks.empty() && looks.begin()->first <= now; looks.erase(looks.begin())) {
      const auto& [when, key] = *looks.begin();
      const auto found = placed.find(key);
      // The fold is gone, or was placed anew since.
      if (found == placed.end() || found->second.look != when) continue;
      found->second.look = Instant::Infinite();
      due.push_back(key);
    }
    return due;
  }

  // Returns the node that the parent of this input is to pull it from.
  const NodeKey& SenderOf(const FoldInput& input) const {
    const auto route = routes.find(input.version);
    return route == routes.end() ? input.node : route->second.relay;
  }

  const ObjectId target;
  ReducePlan plan;
  ReductionPhase phase = ReductionPhase::kCollecting;
  ObjectName name;  // the target's, if a requester knows it
  Instant started;
  Instant deadline = Instant::Infinite();
  Instant timer = Instant::Infinite();
  Identity identity;
  Requests requests;
  Sources sources;
  Commit commit;
  Ring ring;
  Replicas replicas;
  // The folds, ring members and relays that nodes have orders for.
  absl::btree_map<FoldKey, Placed> placed;
  // By Placed::look, so that a timer costs nothing for the other folds. The entry of a fold that is
  // gone stays until it is due.
  absl::btree_set<std::pair<Instant, FoldKey>> looks;
  // ---- FoldDispatcher
  // By the version of the input.
  absl::btree_map<SlotVersion, Arrived> arrived;
  // ---- FoldPaces
  absl::btree_map<NodeKey, SlowNode> slow_nodes;
  // ---- FoldRoutes
  // By the version of the input.
  absl::btree_map<SlotVersion, Route> routes;
  // Nodes that had no room for a relay.
  absl::btree_set<NodeKey> relays_refused;
  // Folds that were registered while the shard learned, until the plan begins.
  std::vector<std::pair<NodeKey, v1::RegisterFold>> registered;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_H_
