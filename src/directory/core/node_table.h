// The nodes that have a session at the shard.
//
// Owned by DirectoryCore, which adds and removes nodes. Other components look nodes up and link
// them to the objects in which they have a part; each field of Node names the component that writes
// it. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_CORE_NODE_TABLE_H_
#define PHALANX_DIRECTORY_CORE_NODE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/pulls/link_model.h"

namespace phalanx::directory {

struct Node {
  // ---- written by DirectoryCore
  v1::NodeInfo info;  // but info.used_bytes, below
  NodeKey key;
  Endpoint endpoint;
  uint64_t host = 0;  // HostOf(info)
  // Numbers the node's sessions: distinguishes requests of an earlier session from current ones.
  uint64_t session = 0;
  bool connected = true;
  // From the beginning of the session to RegisterEnd.
  bool registering = false;
  Instant last_heard;
  // The node was out of touch for longer than a lease before this session: what it registers can
  // have been deleted, as long as the shard learns. Its copies of names are not served until then.
  bool lease_ended = false;

  // ---- written by DrainManager
  bool draining = false;

  // ---- written by CutProber
  Instant next_probe_of_senders;  // not before
  // Which nodes reach this one is asked in rounds over all nodes, some at a time.
  struct ReachRound {
    Instant next;  // no more nodes are asked before
    Instant end;   // no other round begins before
    NodeKey last;  // of those that were visited
    size_t visited = 0;
  };
  ReachRound reach_round;

  // ---- written by ObjectTable
  // Objects of which the node has a copy, a want or a standby generation, or which it was asked to
  // fetch for a draining node. Iterated in the order of ids only (Sorted).
  absl::flat_hash_set<ObjectId> objects;
  uint64_t copies = 0;

  // ---- written by PullScheduler, which also keeps info.used_bytes as Progress reports it
  uint64_t pulls = 0;
};

class NodeTable {
 public:
  // Returns the node's record, new or known.
  struct Opened {
    Node& node;
    bool added;
  };
  Opened Open(const NodeKey& key);
  uint64_t NewSession() { return next_session_++; }
  // Takes the node out of the table, so that nothing is planned for it while its objects are
  // settled. NameOf still knows the node until EndRemove. Returns nullptr if there is no such node.
  Node* BeginRemove(const NodeKey& key);
  void EndRemove();

  // Returns nullptr if the node has no session.
  Node* Find(const NodeKey& key);
  const Node* Find(const NodeKey& key) const;
  // Returns the key of another life of the same node, or an invalid key.
  NodeKey OtherLife(const NodeKey& key) const;
  // The node's name, or its key as text if the node is unknown.
  std::string NameOf(const NodeKey& key) const;
  // The nodes whose names are in `names`; "*" means every node. Removes the names it found.
  std::vector<Node*> Named(absl::btree_set<absl::string_view>& names) const;
  // "object X: no node is called A, B, and N more; there are C, D", bounded in length.
  std::string UnknownMessage(const ObjectId& id,
                             const absl::btree_set<absl::string_view>& names) const;

  // Ordered by key.
  const absl::btree_map<NodeKey, std::unique_ptr<Node>>& all() const { return nodes_; }

 private:
  absl::btree_map<NodeKey, std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Node> being_removed_;
  uint64_t next_session_ = 1;
};

// Iterates a hash set in the order of ids: the core decides in the same order in every replay.
std::vector<ObjectId> Sorted(const absl::flat_hash_set<ObjectId>& ids);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_NODE_TABLE_H_
