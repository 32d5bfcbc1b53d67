// VouchedCalls: up to which call of one group all nodes have ended, for a node that the job's shard
// does not confirm (ShardLeases::Confirmed). Its members get their answers up to that call.
//
//   node a, not confirmed                              each other node of its list
//     │── kAskVouch: this call has ended here. There? ─────►│
//     │◄── kVouch: the last call that has ended, at once ───│
//     │◄── and after later ones, until it is the asked one ─│
//
// Such a node can have been taken out of the list. If the others have made a call again without it,
// the call has another result. So a vouch counts only if its node knows the same list as this one:
// from then on that node takes part in every later agreement as one on which the call has ended, or
// begins anew, without a say. When all nodes of the list have vouched, no later agreement can make
// the call again, although this node is not in it. It does not matter how old the vouches are, nor
// what their nodes have heard since.
//
// A node that asks vouches, too; so it is not asked, and need not answer, twice. A question that is
// lost with its link is repeated; a new list makes all of them void. A confirmed node asks nothing.
//
// If the shard has declared all members dead, no node is left that could tell their next lives of
// the calls: these begin a new group with call 1, and the old one ends when its nodes hear of it.
//
// A question, a vouch and a turn cost the same, however many nodes there are. A call that ends here
// while others ask about it, a call that this node asks about for the first time, and a new list
// cost a visit of each node.
//
// Pure: no thread, clock or socket. One thread at a time. Owned by the GroupService, or by a test.
#ifndef PHALANX_JOBS_GROUP_SERVICE_VOUCHED_CALLS_H_
#define PHALANX_JOBS_GROUP_SERVICE_VOUCHED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_wire.h"

namespace phalanx::jobs {

class VouchedCalls {
 public:
  // `group`: as that of the core.
  VouchedCalls(const NodeKey& self, uint64_t group) : self_(self), group_(group) {}

  // The core's, after each view.
  void OnList(std::shared_ptr<const GroupList> list);
  static bool Handles(GroupMessage kind) {
    return kind == GroupMessage::kAskVouch || kind == GroupMessage::kVouch;
  }
  // REQUIRES: Handles.
  void OnMessage(const NodeKey& from, const GroupHeader& header);
  // `why`: as GroupCore::OnLost.
  void OnLost(const NodeKey& node, const absl::Status& why);

  // After each turn of the core. Answers of calls up to `wanted` wait; 0: none does. Those that
  // have not ended here are asked about when they have.
  void Advance(const GroupStatus& core, uint64_t wanted);
  // The calls up to this one have ended on all nodes.
  uint64_t upto() const { return upto_; }
  // Whether the core is to agree with the other nodes. A link was lost, and no member has made a
  // call since: but this node is asked about a call, or it has answered one that failed with the
  // link, and that ends after the agreement.
  bool waits() const { return behind_ || !waiting_.empty(); }

  std::vector<GroupSend> TakeSends() { return std::exchange(sends_, {}); }

 private:
  // Another node.
  struct Peer {
    uint64_t ended = 0;  // it has vouched for the calls up to this one, under this node's list
    bool over = false;   // its process has ended, for ever
    // What this node has vouched for, to one that asks under list `list`.
    uint64_t said = 0;
    uint64_t question = 0;
    uint64_t list = 0;
    JobEpoch epoch;  // of that list
  };

  void Count(Peer& peer, uint64_t ended);
  void Answer(const NodeKey& node, uint64_t ended);
  void Ask(uint64_t call);
  void AskNode(const GroupList::Node& node);
  void Send(const GroupList::Node& to, GroupMessage kind, uint64_t call);

  // Constant after construction.
  const NodeKey self_;
  const uint64_t group_;

  std::shared_ptr<const GroupList> list_ = std::make_shared<const GroupList>();
  std::map<NodeKey, Peer> peers_;
  // How many of the other nodes of the list have vouched for the calls up to each one.
  std::map<uint64_t, size_t> vouches_;
  // The other nodes of the list were asked about this call, unless they had vouched for it or their
  // processes had ended. `unasked_`: those that are to be asked again, whose links were lost since.
  uint64_t asked_ = 0;
  std::set<NodeKey> unasked_;
  // Nodes whose questions wait, each in exactly one of the three sets: to be looked at in the next
  // turn; for the call to end here; and for a list that this node does not know.
  std::set<NodeKey> questions_;
  std::set<NodeKey> waiting_;
  std::set<NodeKey> early_;
  uint64_t answered_ = 0;  // the last call that had ended here when `waiting_` were answered
  uint64_t upto_ = 0;
  bool behind_ = false;  // an answer waits of a call that has not ended here
  std::vector<GroupSend> sends_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_SERVICE_VOUCHED_CALLS_H_
