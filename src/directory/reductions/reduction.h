// What a shard knows of one reduction that goes on, and of what is asked about reductions. Owned by
// DirectoryCore; no thread of its own.
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
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/reduce_plan.h"
#include "src/directory/ring_plan.h"

namespace phalanx::directory {

// A reduction whose target belongs to this shard, until it has ended.
struct Reduction {
  Reduction(const ObjectId& id, ReduceSpec spec, const NodeKey& root)
      : target(id), plan(id, std::move(spec), root) {}

  struct Asker {
    NodeKey node;
    uint64_t session = 0;
    uint64_t request_id = 0;
    // The reduction's, if its node knows it.
    Generation number = {};
    std::pair<NodeKey, uint64_t> key() const { return {node, request_id}; }
  };
  // A fold that a node was told of.
  struct Placed {
    uint64_t watermark = 0;
    double bytes_per_second = 0;
    std::string trouble;
    int times_lost = 0;
    Instant again = Instant::Infinite();  // it was lost; placed again then
    // Told by its node in this session, or in this session told to it.
    bool registered = true;
  };
  using FoldKey = std::pair<NodeKey, Generation>;

  bool Is(const Generation& one) const { return one == number || one == minted; }
  bool committed() const { return ring != nullptr ? ring->committed() : plan.committed(); }

  const ObjectId target;
  ReducePlan plan;
  // What nodes and tombstones call it. One of which nobody has told the number has one that this
  // life of the shard minted, until somebody does.
  Generation number;
  Generation minted;
  bool firm = false;
  // Somebody asked for it who had not done so in an earlier session.
  bool fresh = false;
  // There was another one of this target: who asks is told the number, so as to ask for no other.
  bool anew = false;
  std::vector<Asker> askers;
  // Of an open one: all that there have been, by node and number of the request.
  absl::btree_set<std::pair<NodeKey, uint64_t>> asked;
  // All who asked for it want the target to be owned.
  bool owned = false;
  Instant started;
  Instant deadline = Instant::Infinite();
  // What the timer is set to.
  Instant timer = Instant::Infinite();
  bool begun = false;
  absl::btree_map<FoldKey, Placed> placed;
  // Folds that go on, told while the shard learned; until the plan has begun.
  std::vector<std::pair<NodeKey, v1::RegisterFold>> registered;
  // Of which sources a node has said that it does not hold that generation: a shard that knows them
  // by way of another hears of their end later.
  absl::btree_set<std::tuple<ObjectId, Generation, NodeKey>> absent;
  // Sources that are there, as the plan was told.
  absl::btree_set<ObjectId> ready;
  // The generation of the target that the root's node has announced for the plan's root version.
  Generation root_generation;
  // One of which nobody can have all bytes: what a root announced that was not committed.
  Generation open_root;
  // Told to commit what they compute, or with the order that it is committed: each may have
  // answered its own clients from the result before the shard has heard that it is sealed.
  absl::btree_set<NodeKey> told_to_commit;
  // Those of them that are gone; the plan hears of it when nobody turns out to have the result.
  absl::btree_set<NodeKey> lost_roots;
  // Those of them that may come back with it, within a lease. Nothing is computed meanwhile.
  absl::btree_set<NodeKey> awaited;
  Instant awaited_until = Instant::Infinite();
  // All was folded for a generation that stands by until the one before it is given up.
  bool root_ready = false;
  // Of other shards: through whom they are watched, and what they are.
  NodeKey agent;
  bool has_foreign = false;
  absl::btree_map<ObjectId, v1::SourceState> foreign;
  size_t foreign_inline_bytes = 0;
  // All who have sources want the result: a ring is tried before the plan begins; waited for until.
  bool ring_wanted = false;
  Instant ring_until = Instant::Infinite();
  std::unique_ptr<RingPlan> ring;
  Instant ring_began;
  bool source_failed = false;
  // Told to keep the reduction in mind.
  absl::btree_set<NodeKey> keepers;
  // Of an open one: askers that are told of each extension, and all who keep a part of the list in
  // mind. Of others: askers that keep it, since they were told its number.
  absl::btree_set<NodeKey> informed;
  absl::btree_set<NodeKey> part_keepers;
  // What they tell after a restart: parts of the list by place, those with a gap before them; and
  // how many sources there were when it was closed, if it was.
  absl::btree_map<size_t, std::vector<ObjectId>> parts;
  std::optional<size_t> closed_at;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REDUCTION_H_
