// GroupList: the members of a group as one list of one view: where they are, which have ended.
//
// A value, unchanged once it is made. Shared by the GroupCore and those that stand beside it.
#ifndef PHALANX_JOBS_GROUP_GROUP_LIST_H_
#define PHALANX_JOBS_GROUP_GROUP_LIST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/common/ids/ids.h"
#include "src/jobs/group/group_plan.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/members/group_view.h"
#include "src/net/stream/address.h"

namespace phalanx::jobs {

struct GroupList {
  // The same for two lists with the same members, live ones and others: ranks, lives and nodes.
  uint64_t digest = 0;
  JobEpoch epoch;
  GroupShape shape;  // the live members
  struct Node {
    NodeKey key;
    net::Address address;
  };
  std::vector<Node> nodes;  // as in `shape`
  // The hosts of these, numbered in the order in which they appear.
  std::vector<int> host_of;
  int hosts = 0;
  std::map<NodeKey, int> index;
  int self = -1;                // -1: no live member is on this node
  std::vector<uint64_t> lives;  // by rank
  std::vector<std::string> tasks;
  std::vector<uint32_t> ended;   // ranks that were members
  bool some_died = false;        // of these
  std::vector<uint32_t> absent;  // ranks that have never joined

  // Returns -1 if the node has no live member.
  int IndexOf(const NodeKey& node) const;
  // "rank 3 (worker3)"; "ranks 3 (worker3), 5 and 2 more".
  std::string Name(const MissingRanks& ranks) const;
  std::string Name(const std::vector<uint32_t>& ranks) const;
};

GroupList MakeGroupList(const GroupView& view, const NodeKey& self);

// At most kMaxNamedRanks of them, and their number.
MissingRanks Bounded(const std::vector<uint32_t>& ranks);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_LIST_H_
