// The ring plan of a reduction whose result every node with sources wants: a ring of these nodes,
// in which each node completes the fold of one slice of the object.
//
//     slice 2 of 4:   node 3 ──► node 0 ──► node 1 ──► node 2      folded on the way,
//                     node 2 ──► node 3 ──► node 0 ──► node 1      then handed on
//
// Every link carries 2(n-1)/n of the object, in one direction (Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms", 2009). In a chain with a broadcast behind it, each inner link
// carries the whole object twice. The shard chooses a ring if all sources are known, each has one
// generation, and the ring is faster by the model. The cost of a ring is that each hop waits for
// the segments of the other slices.
//
//   running ──OnReady of every member──► committed
//      └─────OnSource, OnLost──────► broken ◄──OnLost──┘
//
// A ring is never repaired. If it breaks, the folded bytes are dropped, and a tree (reduce_plan.h),
// which can be repaired, computes the result. A committed ring can also be broken: some members
// have the result then.
//
// Pure. Owned by Reduction. Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_RING_PLAN_H_
#define PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_RING_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"

namespace phalanx::directory {

// Returns the time from the moment at which all sources are ready to the last byte of the result at
// the last node: in a ring of `members`, and in a chain whose result is broadcast while the chain
// computes it.
absl::Duration RingTime(int members, uint64_t size_bytes, const ReduceCosts& costs);
absl::Duration ReduceAndBroadcastTime(int members, uint64_t size_bytes, const ReduceCosts& costs);

class RingPlan {
 public:
  // A source and its holders.
  struct Known {
    ObjectId id;
    ReduceSource state;
  };
  struct Own {
    ObjectId id;
    Generation generation;
  };
  struct Member {
    NodeKey node;
    std::vector<Own> own;  // in the order of the list
  };

  // Returns true if the reduction can be a ring at all: it reduces all of at least three sources,
  // as whole objects, in the order of a ring, or in any order without a requested root.
  static bool Possible(const ReduceSpec& spec, const NodeKey& root);

  // Returns the ring of the nodes that hold `sources`, in that order. `sources` are all sources of
  // the reduction. Returns nothing if the sources are on fewer than three nodes, in several zones,
  // of different sizes or not a whole number of elements, if only the shard has the bytes of a
  // source, or if a tree is faster. With ReduceSpec::Order::kRing it can be slower, but each source
  // needs a node of its own. `version` identifies the ring's fold, `generation` its target, whose
  // creator is the first member.
  // REQUIRES: Possible.
  static std::optional<RingPlan> Choose(const ReduceSpec& spec, absl::Span<const Known> sources,
                                        const ReduceCosts& costs, const SlotVersion& version,
                                        const Generation& generation);

  const std::vector<Member>& members() const { return members_; }
  const SlotVersion& version() const { return version_; }
  const Generation& generation() const { return generation_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // The metadata of the result: that of the first source in the list that has any.
  const std::string& metadata() const { return metadata_; }
  size_t sources() const { return sources_; }
  // Returns the place of the node in the ring, or nothing if the node is no member.
  std::optional<size_t> PlaceOf(const NodeKey& node) const;
  // Returns the node that sends to the member at that place.
  const NodeKey& Before(size_t place) const;

  // ---- what happens
  // The source has this generation now. If it was folded as another one, the ring is broken, unless
  // the result is committed.
  void OnSource(const ObjectId& source, const Generation& generation);
  // The node is down, or has given up its fold.
  void OnLost(const NodeKey& node);
  // The member has folded its slice up to the last bytes. Returns true, once, if all members have:
  // the shard then orders them to commit.
  bool OnReady(const NodeKey& node);

  bool committed() const { return committed_; }
  // The ring does not complete by itself. A committed ring can be complete at some members.
  bool broken() const { return broken_; }

 private:
  RingPlan() = default;

  std::vector<Member> members_;
  SlotVersion version_;
  Generation generation_;
  uint64_t size_bytes_ = 0;
  std::string metadata_;
  size_t sources_ = 0;
  absl::btree_map<ObjectId, Generation> folded_;
  absl::btree_set<NodeKey> ready_;
  bool committed_ = false;
  bool broken_ = false;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_RING_PLAN_H_
