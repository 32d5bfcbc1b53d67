// Forwards the states of sources from the sources' shards to the targets' shards: shards have no
// connections to each other.
//
//   target's shard ──WatchSource──► node ──WatchSource──► source's shard
//                  ◄──SourceState──      ◄──SourceState──
//
// A watch lasts until the target's shard ends it or begins a new session, in which it watches
// again. When a source's shard begins a new session, the node sends that shard its watches again.
//
// Thread rule: no thread, lock, clock or I/O inside; on the control loop. Owned by the reducer.
#ifndef PHALANX_COLLECTIVES_REDUCER_SOURCE_WATCHES_H_
#define PHALANX_COLLECTIVES_REDUCER_SOURCE_WATCHES_H_

#include <functional>
#include <map>
#include <set>
#include <string>

#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"

namespace phalanx::collectives {

class SourceWatches {
 public:
  // Watched sources of all targets. A source beyond the limit is reported to the target's shard as
  // failed, with ResourceExhausted and this node's name.
  static constexpr size_t kMaxWatches = 1 << 20;
  using Send = std::function<void(int shard, v1::NodeMessage message)>;

  // `name` is the node's, for error texts.
  SourceWatches(std::string name, int num_shards, Send send, size_t max_watches = kMaxWatches);

  // Malformed messages are ignored, and states of sources that are not watched.
  void OnWatch(const v1::WatchSource& watch);
  void OnState(const v1::SourceState& state);
  // A new session with this shard.
  void OnSession(int shard);

  size_t size() const { return size_; }

 private:
  // Sends to the shards of the sources, one message to each.
  void Tell(const ObjectId& target, const std::set<ObjectId>& sources, bool end);
  void End(const ObjectId& target, const std::set<ObjectId>& sources);
  void Refuse(const ObjectId& target, const std::set<ObjectId>& sources);

  const std::string name_;
  const int num_shards_;
  const size_t max_watches_;
  Send send_;
  size_t size_ = 0;
  std::map<ObjectId, std::set<ObjectId>> watches_;  // by target
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_REDUCER_SOURCE_WATCHES_H_
