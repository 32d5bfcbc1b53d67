// Ways around pairs of nodes that cannot reach each other, for receivers that reach no node with
// bytes of the object: a third node, the relay, is ordered to fetch the object, and is then a
// sender like any other. The receiver can pull from it while its bytes still arrive.
//
//   holder ──X──► receiver              holder ──► relay ──► receiver
//                   │ PullReport(error)    ▲ Fetch, Want, Assign  ▲ Assign
//                   ▼                      └──────────┬───────────┘
//              FailedPairs ─────────────────────► PullRoutes
//
// CutProber finds out which nodes a relay could reach; beyond that the shard learns by trial. A
// relay that does not reach the holders, or that the receiver does not reach, is given up for
// another. One whose bytes arrive is kept, whatever a probe says of new connections. If no node is
// left to try, the receiver tries the holder again; its next failure after a lease begins another
// search.
//
// The order ends when no receiver needs the relay: a relay that is still fetching then stops, and a
// complete copy is the first that its node evicts, unless a client there has read it.
//
// Invariants (CheckInvariants)
//  1. A route is that of an open want, and its relay is ordered.
//  2. A receiver has one relay at a time. A relay has no relay.
//
// Owned by PullScheduler. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PULLS_PULL_ROUTES_H_
#define PHALANX_DIRECTORY_PULLS_PULL_ROUTES_H_

#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "src/common/defects.h"
#include "src/common/ids/ids.h"
#include "src/directory/objects/object_table.h"
#include "src/directory/placement/placement_table.h"
#include "src/directory/pulls/pull_planner.h"

namespace phalanx::directory {

class PullRoutes {
 public:
  // All of them outlive this.
  PullRoutes(CoreContext& context, NodeTable& nodes, Outbox& outbox, ObjectTable& objects,
             const PlacementTable& placements, const PullPlanner& planner)
      : context_(context),
        nodes_(nodes),
        outbox_(outbox),
        objects_(objects),
        placements_(placements),
        planner_(planner) {}

  // Returns true if there are nodes that can send, and this one, which wants the object, reaches
  // none of them.
  bool Isolated(const Object& object, const NodeKey& node) const {
    return Unreached(object, node).valid() && !DefectActive(Defect::kCutHoldsUpGets);
  }
  // Returns true if the node is isolated and is to wait for its relay. Orders a relay if there is
  // none.
  bool Around(Object& object, const NodeKey& receiver);
  // The node refuses to fetch the object. `plan`: that of the order; 0: of any.
  void OnRefused(Object& object, const NodeKey& node, PlanId plan = 0);
  // What the routes depend on can have changed: ends those that are not needed any more, and
  // replaces lost relays.
  void Refresh(Object& object);
  // Returns the receivers to plan again: their relay can send to them, or none was found.
  std::vector<NodeKey> Ready(const Object& object) const;
  // The generation or the object is given up.
  void EndAll(const Object& object);

  bool Has(const Object& object) const { return routing_.contains(object.id); }
  // Returns "b cannot reach a (10.0.0.5:7001); c hands its bytes on" for each receiver, at most
  // `most`.
  std::vector<std::string> TroublesOf(const Object& object, size_t most) const;
  absl::Status CheckInvariants() const;

 private:
  // Of a receiver that is isolated.
  struct Route {
    NodeKey holder;  // one of the nodes that it does not reach
    NodeKey relay;   // invalid if no node is left to try
    // Nodes that have refused, or were found not to reach both.
    absl::btree_set<NodeKey> tried;
    Instant search_at;  // without a relay: when all nodes are tried again
  };
  // The order of a relay to fetch the object.
  struct Order {
    PlanId plan = 0;
    Instant due;        // the relay is given up if it can send nothing by then
    bool sent = false;  // it could send something once
  };
  // Of one object.
  struct Routing {
    absl::btree_map<NodeKey, Route> receivers;
    absl::btree_map<NodeKey, Order> relays;
  };

  bool Cut(const NodeKey& receiver, const NodeKey& sender) const {
    return planner_.pairs().Cut(receiver, sender, context_.now);
  }
  // If the node reaches no node that can send, returns one of these; else an invalid key, also if
  // there is none.
  NodeKey Unreached(const Object& object, const NodeKey& node) const;
  // Returns true if the node could be a relay for the receiver.
  bool CanRelay(const Object& object, const NodeKey& receiver, const Node& node) const;
  // Replaces the route's relay if it is lost.
  void Renew(Object& object, Routing& routing, const NodeKey& receiver);
  void Choose(Object& object, Routing& routing, const NodeKey& receiver);
  NodeKey ChooseAmongNodes(const Object& object, const NodeKey& receiver, const Route& route) const;
  bool Needed(const Object& object, const NodeKey& receiver, const Route& route) const;
  // Returns true if the relay can send, or is likely to be able to soon.
  bool Works(const Object& object, const NodeKey& receiver, const NodeKey& relay,
             Order& order) const;
  std::string Describe(const NodeKey& receiver, const Route& route) const;
  void EndIdleRelays(const Object& object, Routing& routing);
  void EndOrder(const Object& object, const NodeKey& relay, const Order& order);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  ObjectTable& objects_;
  const PlacementTable& placements_;
  const PullPlanner& planner_;
  absl::btree_map<ObjectId, Routing> routing_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_PULL_ROUTES_H_
