// A DirectoryCore with named nodes around it, for tests: messages in one line each, answers picked
// out by kind. Testonly.
//
//   Harness h;
//   const NodeKey a = h.Up("a"), b = h.Up("b");
//   const Generation g = h.Create(a, x, {.size = 1 << 20});
//   h.Want(b, x);
//   EXPECT_EQ(h.LastAssign(b).sender, a);
//
// Every step checks the core's invariants. Time moves by Advance alone.
#ifndef PHALANX_DIRECTORY_DIRECTORY_CORE_HARNESS_H_
#define PHALANX_DIRECTORY_DIRECTORY_CORE_HARNESS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/directory_core.h"

namespace phalanx::directory::testing {

using Labels = std::map<std::string, std::string>;

// The object called `name`.
ObjectId Id(absl::string_view name);

struct Creation {
  uint64_t size = 1 << 20;
  uint32_t slices = 1;
  bool complete = false;
  // Of `size` bytes, complete; empty: not inline.
  std::string inline_bytes = {};
  std::string metadata = {};
  bool owned = false;
};

// What a test looks at of an Assign.
struct Assignment {
  NodeKey sender;
  PlanId plan = 0;
  Generation generation;
  bool keep = false;
};

class Harness {
 public:
  // With `learning`, time stands at the start; otherwise the first lease has passed.
  explicit Harness(bool learning = false, DirectoryOptions options = {});

  DirectoryCore& core() { return *core_; }
  Instant now() const { return now_; }
  void Advance(absl::Duration by);
  // Forgets the whole core and starts another; nodes have to come up again.
  void RestartShard();

  // A new node and session, registered without any state.
  NodeKey Up(const std::string& name, Labels labels = {});
  // The session alone, to be followed by Register*.
  void NewSession(const NodeKey& node, bool had_session = false);
  void RegisterEnd(const NodeKey& node);
  void Down(const NodeKey& node);
  void Connected(const NodeKey& node, bool connected);

  Generation NewGeneration(const NodeKey& creator);
  Generation Create(const NodeKey& node, const ObjectId& id, const Creation& creation = {});
  void Announce(const NodeKey& node, const ObjectId& id, const Generation& generation,
                const Creation& creation);
  void Seal(const NodeKey& node, const ObjectId& id, const Generation& generation,
            const std::string& inline_bytes = {});
  void Withdraw(const NodeKey& node, const ObjectId& id, const Generation& generation);
  void Want(const NodeKey& node, const ObjectId& id, bool keep = false);
  // A Want that names the object whose maker is its neighbour.
  void WantNear(const NodeKey& node, const ObjectId& id, const ObjectId& near);
  // A Want of a node that has no memory for the generation.
  void WantWithoutRoom(const NodeKey& node, const ObjectId& id, const Generation& generation);
  void Unwant(const NodeKey& node, const ObjectId& id);
  // Ends the node's current pull, as of its last Assign.
  void Finish(const NodeKey& node, const ObjectId& id);
  void Fail(const NodeKey& node, const ObjectId& id,
            absl::StatusCode code = absl::StatusCode::kUnavailable);
  void Report(const NodeKey& node, const v1::PullReport& report);
  // The report that Finish would send, to be changed.
  v1::PullReport ReportOf(const NodeKey& node, const ObjectId& id, bool complete);
  void Progress(const NodeKey& node, const ObjectId& id, uint64_t bytes, double rate,
                absl::Duration starved = absl::ZeroDuration());
  void Delete(const NodeKey& node, const ObjectId& id, uint64_t request = 1);
  void Query(const NodeKey& node, const ObjectId& id, uint64_t request = 1);
  void Evict(const NodeKey& node, const ObjectId& id, const Generation& generation);
  void Confirm(const NodeKey& node, const ObjectId& id, const Generation& generation);

  struct Copy {
    bool adopted = true;
    bool complete = true;
    bool primary = true;
    NodeKey sender = {};
    uint64_t size = 1 << 20;
    // A part without a sender at its creator: of a pull, not being written.
    bool pulled = false;
    bool owned = false;
  };
  void RegisterCopy(const NodeKey& node, const ObjectId& id, const Generation& generation,
                    const Copy& copy);
  void RegisterWant(const NodeKey& node, const ObjectId& id);
  void RegisterHold(const NodeKey& node, const ObjectId& id);
  void Hold(const NodeKey& node, const ObjectId& id);
  void Unhold(const NodeKey& node, const ObjectId& id);
  // By `node`, of what left `from` under that number.
  void Claim(const NodeKey& node, const ObjectId& id, const NodeKey& from, uint64_t number);
  void Keep(const NodeKey& node, const ObjectId& id, uint64_t request = 1);
  void RegisterTombstone(const NodeKey& node, const ObjectId& id, const Generation& generation);

  // The status of the last message.
  const absl::Status& status() const { return status_; }
  absl::Status Send(const NodeKey& node, const v1::NodeMessage& message);

  // What the node has got since the last Clear.
  const std::vector<v1::ShardMessage>& Received(const NodeKey& node) { return inboxes_[node]; }
  void Clear() { inboxes_.clear(); }
  size_t messages() const;
  std::optional<v1::ShardMessage> Last(const NodeKey& node, v1::ShardMessage::KindCase kind);
  // The node's last Assign for the object, from any time.
  std::optional<Assignment> LastAssign(const NodeKey& node, const ObjectId& id);
  // Who the node was told to pull from; an invalid key when nobody.
  NodeKey SenderOf(const NodeKey& node, const ObjectId& id);
  v1::Verdict::Kind LastVerdict(const NodeKey& node);
  std::optional<v1::Gone::Kind> LastGone(const NodeKey& node);
  int Count(const NodeKey& node, v1::ShardMessage::KindCase kind);

  v1::DescribeObjectResponse Describe(const ObjectId& id);
  bool Known(const ObjectId& id);
  const v1::NodeInfo& Info(const NodeKey& node) { return infos_[node]; }
  // How many invariants were found broken; tests that do not switch defects on want 0 (and fail at
  // once otherwise).
  int broken() const { return broken_; }
  void TolerateBrokenInvariants() { tolerate_ = true; }
  // For large tests: the check costs as much as the shard has state.
  void CheckEvery(int steps) { check_every_ = steps; }

 private:
  void Step();

  const DirectoryOptions options_;
  Instant now_ = Instant::FromNanos(1'000'000'000);
  uint64_t lives_ = 0;
  std::unique_ptr<DirectoryCore> core_;
  std::map<NodeKey, v1::NodeInfo> infos_;
  std::map<NodeKey, std::vector<v1::ShardMessage>> inboxes_;
  std::map<std::pair<NodeKey, ObjectId>, Assignment> assigned_;
  uint64_t wants_ = 0;  // the number of the last Want
  uint64_t next_node_ = 1;
  uint64_t next_sequence_ = 1;
  absl::Status status_;
  bool tolerate_ = false;
  int broken_ = 0;
  int check_every_ = 1;
  int steps_ = 0;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_DIRECTORY_CORE_HARNESS_H_
