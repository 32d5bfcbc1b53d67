// Has nodes try their connections when a pair of nodes is found to be cut. A node that has lost one
// of its links has often lost others. Without the answers, ways around them would be found by one
// failed attempt after the other.
//
//   FailedPairs ──new cut──► CutProber ──Probe──► the receiver: which senders does it reach?
//        ▲                       │    └──Probe──► other nodes: do they reach the sender?
//        └───────────────────────┘◄──ProbeReport (the peers that were not reached)
//
// Each of the two questions is asked about a node at most once in a lease, of at most
// kMaxProbedPeers other nodes, those after the sender in the order of keys. In a larger cluster a
// way around can be one that was not tried.
//
// Owned by PullScheduler. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_
#define PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_

#include <vector>

#include "absl/status/status.h"
#include "phalanx/v1/reachability.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/pulls/failed_pairs.h"

namespace phalanx::directory {

class CutProber {
 public:
  // All of them outlive this.
  CutProber(CoreContext& context, NodeTable& nodes, Outbox& outbox, FailedPairs& pairs)
      : context_(context), nodes_(nodes), outbox_(outbox), pairs_(pairs) {}

  // Sends the probes for the pairs that were found to be cut in this turn.
  void RunPending();
  // Returns InvalidArgument if the report is malformed; nothing is changed then.
  absl::Status OnReport(const Node& node, const v1::ProbeReport& m);

 private:
  // The connected nodes but these two, at most kMaxProbedPeers.
  std::vector<Node*> Others(const NodeKey& receiver, const NodeKey& sender);
  void AddPeer(const Node& peer, v1::Probe& probe);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  FailedPairs& pairs_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_
