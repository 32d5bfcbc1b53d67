// The sources of reductions: which generation of each exists, and on which nodes.
//
//   a source of this shard:      object changed ──► NoteChange ──► RunChanges ──► the plan
//   a source of another shard:   WatchSource by way of a node (the watch proxy) ──► that shard
//                                SourceState from the proxy ──► the plan
//   a source that is watched here for another shard:  changes ──► SourceState to the proxy
//
// Owned by ReductionManager. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_SOURCE_WATCHER_H_
#define PHALANX_DIRECTORY_REDUCTIONS_SOURCE_WATCHER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"
#include "src/directory/reductions/reduction_parts.h"

namespace phalanx::directory {

// Implemented by RingDriver.
class RingListener {
 public:
  virtual ~RingListener() = default;
  // A source of the reduction's ring has changed: the ring cannot commit.
  virtual void OnSourceLost(Reduction& reduction) = 0;
};

class SourceWatcher {
 public:
  SourceWatcher(const ReductionParts& parts, ReductionCatalog& catalog, RingListener& rings);

  // ---- messages of nodes. InvalidArgument names the field; nothing is changed then.
  // At the sources' shard: another shard's reduction watches them through `node`.
  absl::Status OnWatchSource(Node& node, const v1::WatchSource& m);
  // At the target's shard: the state of a source of another shard.
  absl::Status OnSourceState(Node& node, const v1::SourceState& m);

  // The reduction depends on these sources from now on; its plan hears what is known of them.
  void Watch(Reduction& reduction, absl::Span<const ObjectId> sources);
  void UnwatchAll(Reduction& reduction);
  // Chooses a node through which the sources of other shards are watched, if the reduction has such
  // sources and no proxy.
  void ChooseProxy(Reduction& reduction);
  // What other shards watch through this node is not watched any more.
  void NodeDown(const NodeKey& node);
  // A node that other shards knew before this one did has a session: the plans hear again of the
  // copies that it holds.
  void NodeUp();
  // The gate has opened: watchers hear of the sources that do not exist.
  void EndLearning();

  bool Watches(const ObjectId& source) const { return watchers_.contains(source); }
  // The object changed; its watchers hear of it in RunChanges.
  void NoteChange(const ObjectId& id) {
    if (!watchers_.empty() && watchers_.contains(id)) changed_.insert(id);
  }
  bool has_changes() const { return !changed_.empty(); }
  void RunChanges();
  // The plan hears of one source again, or of all.
  void ReportSource(Reduction& reduction, const ObjectId& source);
  void ReportSources(Reduction& reduction);
  // A source that was deleted while its node held it for a fold is gone with the node: the plan
  // hears of it, for no other message will say so.
  void ReportUnplaced(Reduction& reduction);

  // What the shard knows of a source; as the plans take it, or nullopt if it cannot be had.
  v1::SourceState StateOfSource(const Reduction& reduction, const ObjectId& source);
  std::optional<ReduceSource> KnownSource(const Reduction& reduction, const ObjectId& source,
                                          const v1::SourceState& state) const;
  // ReduceSource::Holder::speed of that node, by the measured links, and by what the reduction has
  // seen of it.
  double SpeedOf(const Node& node) const;
  double SpeedOf(const Reduction& reduction, const Node& node) const;
  // The bytes of the generation that the input names, in the reduction's range; nullopt if the
  // shard does not have them.
  std::optional<absl::string_view> InlineBytesOf(const Reduction& reduction, const FoldInput& input,
                                                 uint64_t size_bytes);

  absl::Status CheckInvariants() const;

 private:
  // The reduction of `target`, here (no node) or at another shard, by way of `node`.
  struct Watcher {
    NodeKey node;
    ObjectId target;
    friend auto operator<=>(const Watcher&, const Watcher&) = default;
  };

  void Unwatch(const ObjectId& source, const Watcher& watcher);
  void ListHolders(const Object& object, v1::SourceState* state) const;
  // Without the bytes of a small source.
  v1::SourceState StateOf(const ObjectId& source);
  // For another shard, with the bytes if `bytes_left` and the limit of unacknowledged bytes allow.
  v1::SourceState ForeignStateOf(const ObjectId& source, size_t& bytes_left);
  void ReportToPlan(Reduction& reduction, const ObjectId& source, const v1::SourceState& state);
  // `held`: plans that decide when they have heard of every change.
  void NotifyWatchers(const ObjectId& source, absl::btree_set<ObjectId>& held);

  CoreContext& context_;
  NodeTable& nodes_;
  Outbox& outbox_;
  const RecoveryGate& gate_;
  ObjectTable& objects_;
  const TombstoneTable& tombstones_;
  const FailureTable& failures_;
  const LinkModel& links_;
  ReductionCatalog& catalog_;
  RingListener& rings_;
  absl::btree_map<ObjectId, absl::btree_set<Watcher>> watchers_;
  // By node, the (source, target) pairs that other shards watch through it.
  absl::btree_map<NodeKey, absl::btree_set<std::pair<ObjectId, ObjectId>>> watched_through_;
  absl::btree_set<ObjectId> changed_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_SOURCE_WATCHER_H_
