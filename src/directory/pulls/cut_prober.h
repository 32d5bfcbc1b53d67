// Has nodes try their connections when a pair of nodes is found to be cut. A node that has lost one
// of its links has often lost others. Without the answers, ways around them would be found by one
// failed attempt after the other.
//
//   FailedPairs ──new cut──► CutProber ──Probe──► the receiver: which senders does it reach?
//        ▲                       │    └──Probe──► other nodes: do they reach the sender?
//        └───────────────────────┘◄──ProbeReport (the peers that were not reached)
//
// A receiver is asked at most once in a lease, about at most kMaxProbedPeers senders. Of the nodes
// that may reach a sender, so many are asked at a time, in the order of keys from the sender's on,
// and each once in a lease. Others are asked if another receiver does not reach the sender either,
// an eighth of a lease later or more. Without them, a rack of receivers that are cut off from one
// sender would try it one after the other, and a lease would be over before the last of them is
// known. In a cluster of more than 8 * kMaxProbedPeers nodes a way around can be one that was not
// tried.
//
// Owned by PullScheduler. Thread rule: the shard's control loop; no I/O, replays from its inputs.
#ifndef PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_
#define PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_

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
  // Has the receiver try other senders.
  void ProbeSenders(Node& receiver, const NodeKey& sender);
  // Has the next nodes of the round try the sender.
  void ProbeSender(const NodeKey& receiver, Node& sender);
  void AddPeer(const Node& peer, v1::Probe& probe);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  FailedPairs& pairs_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_CUT_PROBER_H_
