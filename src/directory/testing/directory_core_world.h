// Nodes that follow the protocol, in a world of faults: messages wait, sessions are fenced, nodes
// and the shard die at any moment. Around the real DirectoryCore; no bytes, no streams. Testonly.
//
//   actions, drawn from a seed ──► WorldNode ── queue ──► DirectoryCore
//                                     ▲                        │
//                                     └───────── queue ◄───────┘
//
// A pull finishes if its sender has every byte, and fails if its sender is dead or lacks the
// generation. `Settle` stops the faults and lets everything finish; `Check` then compares the
// shard's state with the nodes' state.
#ifndef PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_WORLD_H_
#define PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_WORLD_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/random.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"

namespace phalanx::directory::testing {

class World {
 public:
  struct Options {
    int nodes = 5;
    int objects = 3;
    bool crashes = true;
    bool fencing = true;
    bool shard_restarts = true;
    bool deletes = true;
    bool disconnects = true;
    bool drains = true;
    bool stale_reports = true;
    bool memory_runs_out = true;
    // One node reaches only some of the others, or only some reach it, to the end. With crashes,
    // the nodes that reach both could be gone.
    bool cuts = false;
    // Prints every event and every message, as it is taken, to stderr.
    bool trace = false;
    // Called with every message of the core, in order, also those to nodes that are down. Can be
    // empty.
    std::function<void(const DirectoryCore::Outgoing&)> on_outgoing = {};
  };

  World(Options options, uint64_t seed);

  // One drawn action, then one message in each direction. An error if something is wrong.
  absl::Status Step();
  // No faults from now on: everything that can finish finishes.
  absl::Status Settle();
  // After Settle.
  absl::Status Check();

 private:
  struct Local {
    Generation generation;
    uint64_t size = 0;
    bool complete = false;
    bool primary = false;
    bool adopted = false;
    bool writing = false;
    NodeKey sender;
    PlanId plan = 0;  // 0: no pull in flight
    bool evicting = false;
  };
  struct Node {
    v1::NodeInfo info;
    NodeKey key;
    bool alive = true;
    bool up = false;  // has a session
    bool connected = true;
    Instant believed_until;  // while it is not connected
    bool knows_shard = false;
    uint64_t next_sequence = 1;
    std::map<ObjectId, Local> locals;
    std::map<ObjectId, bool> wants;  // value: keep
    // The wants without memory for the object, as the node reported them to the shard.
    std::map<ObjectId, Generation> lacking;
    std::map<ObjectId, PlanId> fetches;  // until the shard confirms them
    std::map<ObjectId, Generation> tombstones;
    std::deque<v1::NodeMessage> to_shard;
    std::deque<v1::ShardMessage> from_shard;
    v1::PullReport last_report;
  };

  void Act();
  void Put(Node& node, const ObjectId& id);
  void SealOne(Node& node);
  void Abort(Node& node);
  void EvictOne(Node& node);
  void Crash(Node& node);
  void Fence(Node& node);
  void Open(Node& node);
  void RestartShard();
  void ToggleStream(Node& node);
  // As the shard around the core does with nodes that do not reconnect in time.
  void FenceTheSilent();
  void AskFor(Node& node, const ObjectId& id, bool keep);
  // Sends the open want again, with or without memory for it.
  void AskAgain(Node& node, const ObjectId& id);
  // True if there is no memory for the generation; reports it to the shard then.
  bool Lacks(Node& node, const ObjectId& id, const Generation& generation);
  void FindMemory(Node& node);
  void SendProgress(Node& node);
  void RunPull(Node& node);
  void DrawCuts();
  bool Cut(const Node& receiver, const NodeKey& sender) const;
  // The node does not want the object any more. `order`: that of a Fetch, or 0.
  void GiveUp(Node& node, ObjectId id, PlanId order);
  void Fail(Node& node, const ObjectId& id, absl::StatusCode code);
  bool SendOne(Node& node);
  bool ReceiveOne(Node& node);
  void OnMessage(Node& node, const v1::ShardMessage& message);
  void OnVerdict(Node& node, const v1::Verdict& m);
  void OnAssign(Node& node, const v1::Assign& m);
  void OnDeliver(Node& node, const v1::Deliver& m);
  void OnFetch(Node& node, const v1::Fetch& m);
  void ReportComplete(Node& node, const ObjectId& id, const Generation& generation, PlanId plan);
  void OnGone(Node& node, const v1::Gone& m);
  void Drop(Node& node, const ObjectId& id, const Generation& generation);
  // Checked when the order is decided: it must not remove the last complete, adopted copy of an
  // object that was not deleted.
  void CheckOrder(const Node& node, const v1::ShardMessage& message);
  void Collect();
  Node* FindLife(const NodeKey& key);
  Node& AnyNode() { return nodes_[random_.Below(nodes_.size())]; }
  ObjectId AnyObject();
  absl::Status Invariants();
  void Trace(const Node& node, absl::string_view what,
             const google::protobuf::Message* m = nullptr);
  bool Finishing();

  const Options options_;
  Random random_;
  DirectoryOptions directory_options_;
  Instant now_ = Instant::FromNanos(1'000'000'000);
  std::unique_ptr<DirectoryCore> core_;
  std::vector<Node> nodes_;
  std::vector<ObjectId> ids_;
  std::set<Generation> deleted_;
  std::set<std::pair<uint64_t, uint64_t>> cuts_;  // receiver and sender, by the ids of their keys
  uint64_t next_request_ = 1;
  absl::Status wrong_;
  bool settling_ = false;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_WORLD_H_
