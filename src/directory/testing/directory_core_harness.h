// A DirectoryCore with named nodes around it, for tests: one line per message, answers selected by
// kind. Testonly.
//
//   Harness h;
//   const NodeKey a = h.Up("a"), b = h.Up("b");
//   const Generation g = h.Create(a, x, {.size = 1 << 20});
//   h.Want(b, x);
//   EXPECT_EQ(h.LastAssign(b).sender, a);
//
// Every step checks the core's invariants. Only Advance moves the time.
#ifndef PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_HARNESS_H_
#define PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_HARNESS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"

namespace phalanx::directory::testing {

using Labels = std::map<std::string, std::string>;

// The id of the object called `name`.
ObjectId Id(absl::string_view name);

struct Creation {
  uint64_t size = 1 << 20;
  uint32_t slices = 1;
  bool complete = false;
  // The bytes of a complete inline object, in place of `size`; empty: not inline.
  std::string inline_bytes = {};
  std::string metadata = {};
  ObjectName name = {};
  bool owned = false;
};

// The fields of an Assign that tests check.
struct Assignment {
  NodeKey sender;
  PlanId plan = 0;
  Generation generation;
  bool keep = false;
};

class Harness {
 public:
  // If `learning`, the time is that of the start; otherwise the first lease has passed.
  explicit Harness(bool learning = false, DirectoryOptions options = {});

  DirectoryCore& core() { return *core_; }
  Instant now() const { return now_; }
  void Advance(absl::Duration by);
  // Replaces the core by a new one; the nodes have to open new sessions.
  void RestartShard();

  // A new node and session, registered without any state.
  NodeKey Up(const std::string& name, Labels labels = {});
  // Only the session, for Register* calls after it.
  void NewSession(const NodeKey& node, bool had_session = false, bool lease_ended = false);
  void RegisterEnd(const NodeKey& node);
  // `serves`: how long the node can serve names from now on.
  void Down(const NodeKey& node, absl::Duration serves = absl::ZeroDuration());
  void Connected(const NodeKey& node, bool connected);

  Generation NewGeneration(const NodeKey& creator);
  Generation Create(const NodeKey& node, const ObjectId& id, const Creation& creation = {});
  void Announce(const NodeKey& node, const ObjectId& id, const Generation& generation,
                const Creation& creation);
  void Seal(const NodeKey& node, const ObjectId& id, const Generation& generation,
            const std::string& inline_bytes = {});
  void Withdraw(const NodeKey& node, const ObjectId& id, const Generation& generation);
  void Want(const NodeKey& node, const ObjectId& id, bool keep = false);
  // A Want whose near node is the creator of the object `near`.
  void WantNear(const NodeKey& node, const ObjectId& id, const ObjectId& near);
  // A Want of a node that has no memory for the generation.
  void WantWithoutRoom(const NodeKey& node, const ObjectId& id, const Generation& generation);
  void Unwant(const NodeKey& node, const ObjectId& id);
  // Ends the node's current pull, according to its last Assign.
  void Finish(const NodeKey& node, const ObjectId& id);
  void Fail(const NodeKey& node, const ObjectId& id,
            absl::StatusCode code = absl::StatusCode::kUnavailable);
  void Report(const NodeKey& node, const v1::PullReport& report);
  // The report that Finish would send, for the test to change.
  v1::PullReport ReportOf(const NodeKey& node, const ObjectId& id, bool complete);
  // An early report, of the time `window`, unless that is zero.
  void Progress(const NodeKey& node, const ObjectId& id, uint64_t bytes, double rate,
                absl::Duration starved = absl::ZeroDuration(),
                absl::Duration window = absl::ZeroDuration());
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
    // A partial copy without a sender at its creator: a pull, not a write.
    bool pulled = false;
    bool owned = false;
  };
  void RegisterCopy(const NodeKey& node, const ObjectId& id, const Generation& generation,
                    const Copy& copy);
  void RegisterWant(const NodeKey& node, const ObjectId& id);
  void RegisterHold(const NodeKey& node, const ObjectId& id);
  void Hold(const NodeKey& node, const ObjectId& id);
  void Unhold(const NodeKey& node, const ObjectId& id);
  // Claims, for `node`, the reference that `from` sent with that number.
  void Claim(const NodeKey& node, const ObjectId& id, const NodeKey& from, uint64_t number);
  void Keep(const NodeKey& node, const ObjectId& id, uint64_t request = 1);
  void RegisterTombstone(const NodeKey& node, const ObjectId& id, const Generation& generation);

  // The status of the last message.
  const absl::Status& status() const { return status_; }
  absl::Status Send(const NodeKey& node, const v1::NodeMessage& message);

  // The node's messages since the last Clear.
  const std::vector<v1::ShardMessage>& Received(const NodeKey& node) { return inboxes_[node]; }
  void Clear() { inboxes_.clear(); }
  // The number of messages to the node that end a registration, which Received leaves out.
  int Registered(const NodeKey& node) { return registered_[node]; }
  // How many of Received came before the last of these.
  size_t ReceivedBeforeRegistered(const NodeKey& node) { return before_registered_[node]; }
  size_t messages() const;
  std::optional<v1::ShardMessage> Last(const NodeKey& node, v1::ShardMessage::KindCase kind);
  // The node's last Assign for the object, also from before a Clear.
  std::optional<Assignment> LastAssign(const NodeKey& node, const ObjectId& id);
  // The sender in the node's last Assign; invalid if there is none.
  NodeKey SenderOf(const NodeKey& node, const ObjectId& id);
  v1::Verdict::Kind LastVerdict(const NodeKey& node);
  std::optional<v1::Gone::Kind> LastGone(const NodeKey& node);
  int Count(const NodeKey& node, v1::ShardMessage::KindCase kind);

  v1::DescribeObjectResponse Describe(const ObjectId& id);
  bool Known(const ObjectId& id);
  const v1::NodeInfo& Info(const NodeKey& node) { return infos_[node]; }
  // The number of broken invariants. Must be 0 unless a test switches a defect on; other tests fail
  // at the first one.
  int broken() const { return broken_; }
  void TolerateBrokenInvariants() { tolerate_ = true; }
  // For large tests: the cost of a check grows with the shard's state.
  void CheckEvery(int steps) { check_every_ = steps; }

 private:
  void Step();

  const DirectoryOptions options_;
  Instant now_ = Instant::FromNanos(1'000'000'000);
  uint64_t lives_ = 0;
  std::unique_ptr<DirectoryCore> core_;
  std::map<NodeKey, v1::NodeInfo> infos_;
  std::map<NodeKey, std::vector<v1::ShardMessage>> inboxes_;
  std::map<NodeKey, int> registered_;
  std::map<NodeKey, size_t> before_registered_;
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

#endif  // PHALANX_DIRECTORY_TESTING_DIRECTORY_CORE_HARNESS_H_
