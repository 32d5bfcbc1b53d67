// The plan of a reduction whose result all nodes that have sources want: a ring of these, in which
// each folds a slice of the object to its end.
//
//     slice 2 of 4:   node 3 ──► node 0 ──► node 1 ──► node 2      folded on the way,
//                     node 2 ──► node 3 ──► node 0 ──► node 1      then handed on
//
// Every link carries 2(n-1)/n of the object, in one direction (Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms", 2009); a chain with the broadcast grown on it carries all of it
// twice over each inner link. It is chosen when all sources are known, there is one generation of
// each, and it is faster by the model: what is lost is that each hop waits for the other slices'
// segments.
//
// Nothing is mended: the ring is whole or broken. Who broke it is no matter; what was folded is
// dropped, and the result is computed by a tree (reduce_plan.h), which is mended.
//
// Pure. Thread rule: no thread, lock, clock or I/O inside.
#ifndef PHALANX_DIRECTORY_RING_PLAN_H_
#define PHALANX_DIRECTORY_RING_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/directory/reduce_plan.h"
#include "src/directory/reduce_shape.h"

namespace phalanx::directory {

// From all sources there to all of the result at every node: by a ring of `members`, and by a
// chain on which the broadcast is grown while it is computed.
absl::Duration RingTime(int members, uint64_t size_bytes, const ReduceCosts& costs);
absl::Duration ReduceAndBroadcastTime(int members, uint64_t size_bytes, const ReduceCosts& costs);

class RingPlan {
 public:
  // A source and where it is.
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

  // Whether such a reduction can be a ring at all: of all of at least three sources, whole, in any
  // order, wherever it ends.
  static bool Possible(const ReduceSpec& spec, const NodeKey& root);

  // The ring of the nodes that hold `sources`, which are all there are, in that order. Nothing when
  // they are on fewer than three nodes, in several zones, of different sizes or not whole elements,
  // when somebody's bytes are with the shard alone, or when a tree is faster. `version` and
  // `generation` are what the members call what they fold, and the target. REQUIRES: Possible.
  static std::optional<RingPlan> Choose(const ReduceSpec& spec, absl::Span<const Known> sources,
                                        const ReduceCosts& costs, const Generation& version,
                                        const Generation& generation);

  const std::vector<Member>& members() const { return members_; }
  const Generation& version() const { return version_; }
  const Generation& generation() const { return generation_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // The result's: that of the first source in the list that has any.
  const std::string& metadata() const { return metadata_; }
  size_t sources() const { return sources_; }
  // The member's place, or nothing.
  std::optional<size_t> PlaceOf(const NodeKey& node) const;
  // Who feeds the member at that place.
  const NodeKey& Before(size_t place) const;

  // ---- what happens
  // The source is now of another generation: what is folded of the old one is no result.
  void OnSource(const ObjectId& source, const Generation& generation);
  // The member is gone, or gave up.
  void OnLost(const NodeKey& node);
  // The member has its slice, but for the last bytes. True: all have, and are to be told to commit.
  // Once.
  bool OnReady(const NodeKey& node);

  bool committed() const { return committed_; }
  // It will not come to its end by itself. A committed one may have, at some member.
  bool broken() const { return broken_; }

 private:
  RingPlan() = default;

  std::vector<Member> members_;
  Generation version_;
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

#endif  // PHALANX_DIRECTORY_RING_PLAN_H_
