// Ways around pairs of nodes that cannot reach each other: a third node that reaches both is
// ordered to pull the output of the child and to serve it under the same version. The parent is
// ordered to pull from there. Its input has the same bytes, so it continues at its watermark.
//
//   child ──X──► parent              child ──► relay ──► parent
//                  │ FAILED            ▲ Fold(relay)  ▲ Fold, with another sender
//                  ▼                   └──────┬───────┘
//              FailedPairs ──────────────► FoldRoutes
//
// A relay stays until its parent or its child changes, also when the pair is forgotten meanwhile.
// If no node reaches both, the parent continues to try the child itself, and each of its failures
// leads to another look.
//
// Invariants, checked by CheckInvariants
//  1. A route is that of an input of a placed fold: the plan has the parent with this input, at
//     these nodes, and the relay is placed.
//
// Owned by ReductionManager; writes Reduction::routes. Thread rule: the shard's control loop; no
// I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_FOLD_ROUTES_H_
#define PHALANX_DIRECTORY_REDUCTIONS_FOLD_ROUTES_H_

#include "absl/status/status.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/fold_dispatcher.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_parts.h"

namespace phalanx::directory {

class FoldRoutes {
 public:
  FoldRoutes(const ReductionParts& parts, FoldDispatcher& dispatcher);

  // Applies what the plan decided, after the relays that the fold's inputs need.
  void Apply(Reduction& reduction, const PlaceFold& effect);
  // The plan has changed, or nodes are gone: ends the routes that no fold needs, and replaces lost
  // relays.
  void Refresh(Reduction& reduction);
  // The node is about to begin another session, in which it has no relays.
  void SessionBegins(Reduction& reduction, const NodeKey& node);
  // The reduction ends.
  void EndAll(Reduction& reduction);

  // The node reports that the fold's input cannot be had. REQUIRES: the fold, which can be a relay,
  // is placed at the node; m.kind() is FAILED.
  void OnFailed(Reduction& reduction, const NodeKey& node, const SlotVersion& version,
                const v1::FoldReport& m);
  static bool IsRelay(const Reduction& reduction, const NodeKey& node, const SlotVersion& version);
  // The node has no room for the relay, or has lost it. REQUIRES: IsRelay.
  void OnRelayRefused(Reduction& reduction, const NodeKey& node, const SlotVersion& version);

  absl::Status CheckInvariants(const Reduction& reduction) const;

 private:
  using Route = Reduction::Route;

  // Keeps, makes or ends the route of one input. Returns true if the parent has another sender now.
  bool Choose(Reduction& reduction, const NodeKey& parent, const SlotVersion& parent_version,
              const FoldInput& input, uint64_t size_bytes);
  // Returns the node that is to hand on from `child` to `parent`; not valid if no node can.
  NodeKey ChooseRelay(const Reduction& reduction, const NodeKey& parent,
                      const NodeKey& child) const;
  // What the node sends and receives for the reduction already.
  int LoadOf(const Reduction& reduction, const NodeKey& node) const;
  // The relay is dropped, and Refresh chooses another one.
  void LoseRelay(Reduction& reduction, const NodeKey& node, const SlotVersion& version);
  // By value: it erases the entry whose key the caller can name.
  void EndRelay(Reduction& reduction, SlotVersion version);
  // The input of the parent's placed fold, or null.
  static const FoldInput* InputOf(const Reduction& reduction, const SlotVersion& version,
                                  const Route& route);

  CoreContext& context_;
  NodeTable& nodes_;
  FailedPairs& pairs_;
  FoldDispatcher& dispatcher_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_FOLD_ROUTES_H_
