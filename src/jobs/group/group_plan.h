// GroupPlan: what one node does in one call of a group, as a list of steps that it takes in order.
//
// The plan is a pure function of the members' nodes and the call, so all nodes compute plans that
// fit together without a message: the i-th Send of node a to node b is the i-th Receive of node b
// from node a, with the same number of bytes. Since the order of all folds is in the plan, the bits
// of a result depend on the list of members, the op, the type and the size alone.
//
// Members of one node are folded first, in the order of their ranks ("own" below). Between nodes
// (n nodes, S bytes; tiny, small, middle and large are the k...Bytes below):
//
//   AllReduce       tiny: a tree with 8 children up and down. small: recursive doubling.
//                   middle: recursive halving and doubling (Rabenseifner). large: a ring, in which
//                   each node sends 2(n-1)/n * S bytes.
//   Reduce          a tree: 8 children if tiny, 2 if small, 1 (a chain of pieces) otherwise
//   Broadcast       the same trees, from the root down
//   AllGather       tiny: a tree up and down. else: a ring
//   ReduceScatter   tiny and small: as AllReduce, of which each member takes its part. else: a ring
//   AllToAll        each node sends to each other node directly
//   Barrier         a tree with 8 children up and down, without bytes
//
// Bytes are received straight into `work` or `scratch`. A Receive never lands on bytes that an
// earlier step still has to read, even if its message arrives first: the sender can only have
// computed it after this node's earlier bytes had arrived there. The same holds for the bytes of a
// Send; where it does not, the Send copies.
//
// Values and pure functions; any thread.
#ifndef PHALANX_JOBS_GROUP_GROUP_PLAN_H_
#define PHALANX_JOBS_GROUP_GROUP_PLAN_H_

#include <cstdint>
#include <vector>

#include "src/jobs/group/group_call.h"

namespace phalanx::jobs {

inline constexpr uint64_t kTinyBytes = 2048;
inline constexpr uint64_t kSmallBytes = 16384;
// AllReduce uses a ring if each node's slice has at least so many bytes.
inline constexpr uint64_t kRingSliceBytes = 32768;
inline constexpr uint64_t kRingSliceBytesOddNodes = 8192;
// The greatest message, and so the greatest piece of a pipeline.
inline constexpr uint64_t kMaxPieceBytes = 65536;
inline constexpr uint64_t kMinPieceBytes = 8192;
inline constexpr uint64_t kTargetPieces = 32;
inline constexpr int kWideTree = 8;

// Where the members of a call are. Ranks that the call leaves out are on no node.
struct GroupShape {
  int world = 0;
  // By node, the ranks on it, ascending. Nodes are in the order of their least ranks.
  std::vector<std::vector<int>> ranks = {};

  int nodes() const { return static_cast<int>(ranks.size()); }
  int members() const;
  // Returns -1 if the rank is left out.
  int NodeOf(int rank) const;
  friend bool operator==(const GroupShape&, const GroupShape&) = default;
};

enum class StepKind : uint8_t {
  kOwn,      // work[at] = the fold of this node's inputs at `at`
  kAddOwn,   // work[at] = work[at] op that fold
  kAdd,      // work[at] = work[at] op scratch[from]
  kFinish,   // work[at] is a sum of all: divides it if the op is mean
  kTake,     // work[at] = input `slot` [from]
  kClear,    // work[at] = 0
  kSend,     // `memory`[from] goes to node `peer`
  kReceive,  // the next message from node `peer` lands at `memory`[at]
};

enum class StepMemory : uint8_t { kWork, kScratch, kInput };

struct Step {
  StepKind kind = StepKind::kOwn;
  StepMemory memory = StepMemory::kWork;
  // Of a Send: later steps change the bytes although the peer may not have received them.
  bool copy = false;
  // No later step writes these bytes of work.
  bool final = false;
  // Of memory kInput: which of this node's members.
  uint16_t slot = 0;
  int peer = -1;
  uint64_t at = 0;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

struct GroupPlan {
  std::vector<Step> steps;
  // By node, the steps that receive from it, in order.
  std::vector<std::vector<uint32_t>> receives;
  uint64_t work_bytes = 0;
  uint64_t scratch_bytes = 0;
  // The result of a broadcast at its root, if that is the only member of its node, is the input.
  bool result_is_input = false;
  // When this node has taken all steps, every node has begun the call.
  bool proves_all_began = false;

  uint64_t ReceivedBytes(int peer) const;
};

// Where the result of one member is in the memory of its node. No bytes if it gets none.
struct ResultPlace {
  StepMemory memory = StepMemory::kWork;
  uint16_t slot = 0;  // of an input
  uint64_t from = 0;
  uint64_t bytes = 0;
};

// The plan of node `node`. With `acknowledged`, a Reduce or a Broadcast ends at its root only after
// every node has taken part, and a Reduce nowhere before. REQUIRES: CheckCall is OK, the shape has
// at least one node, and the root is on a node.
GroupPlan MakeGroupPlan(const GroupShape& shape, const CallSpec& spec, int node, bool acknowledged);

// The plan of node `node` of `nodes` with which `holder`, whose only input is a result, gives it to
// the nodes `takers`. REQUIRES: the node is the holder or a taker.
GroupPlan MakeAdoptionPlan(int nodes, int node, uint32_t holder,
                           const std::vector<uint32_t>& takers, uint64_t bytes);

// The result of the `slot`-th member of `node`.
ResultPlace ResultOf(const GroupPlan& plan, const GroupShape& shape, const CallSpec& spec, int node,
                     size_t slot);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_PLAN_H_
