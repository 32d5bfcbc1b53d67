// The messages that the core has decided to send, in the order of the decisions, and the number of
// inline bytes among them.
//
// Owned by DirectoryCore; every component appends. Thread rule: the shard's control loop.
#ifndef PHALANX_DIRECTORY_CORE_OUTBOX_H_
#define PHALANX_DIRECTORY_CORE_OUTBOX_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"

namespace phalanx::directory {

struct ObjectInfo;

struct Outgoing {
  NodeKey to;
  v1::ShardMessage message;
};

class Outbox {
 public:
  // Appends a message for `to` and returns it to be filled in. The reference is valid until the
  // next Send.
  v1::ShardMessage& Send(const NodeKey& to);

  // The generation was deleted; `expired`: because its time to live had passed.
  void SendDeleted(const NodeKey& to, const ObjectId& id, const Generation& generation,
                   bool expired);
  // The generation is void; `reason` is for people.
  void SendVoid(const NodeKey& to, const ObjectId& id, const Generation& generation,
                absl::string_view reason);
  // No copy of the object is left.
  void SendLost(const NodeKey& to, const ObjectId& id, absl::string_view reason);
  // The node's Want with the number `want` has ended. `why` is the error of the object's producer,
  // or OK if the shard has reached its limit of Wants; `reason` is for people.
  void SendRefused(const NodeKey& to, const ObjectId& id, uint64_t want, absl::StatusCode why,
                   absl::string_view reason);
  // ADOPTED or DELETED.
  void SendVerdict(const NodeKey& to, const ObjectId& id, const Generation& generation,
                   v1::Verdict::Kind kind);
  // STANDBY or SUPERSEDED by the generation `adopted` of which `info` is known.
  void SendVerdict(const NodeKey& to, const ObjectId& id, const Generation& generation,
                   v1::Verdict::Kind kind, const Generation& adopted, const ObjectInfo& info);
  // SUPERSEDED by a generation that is not known: the node drops its bytes of `info`.
  void SendSuperseded(const NodeKey& to, const ObjectId& id, const Generation& generation,
                      const ObjectInfo& info);
  // Asks the node to fetch the object under `plan`. `keep`: as a primary copy. `only_confirm`: the
  // node reports whether it has the object and fetches nothing.
  void SendFetch(const NodeKey& to, const ObjectId& id, PlanId plan, bool keep,
                 bool only_confirm = false);
  // A primary copy on the node becomes a secondary one.
  void SendRelease(const NodeKey& to, const ObjectId& id, PlanId plan);
  // The node need not carry out its Fetch of this plan any more.
  void SendFetchEnd(const NodeKey& to, const ObjectId& id, PlanId plan);
  // The scope has ended, and those with smaller numbers.
  void SendScopeEnded(const NodeKey& to, const Scope& scope);
  // The object is no longer reference-counted.
  void SendKept(const NodeKey& to, const ObjectId& id, const Generation& generation);

  // `bytes` of inline data were put into a message of this turn.
  void AddInlineBytes(uint64_t bytes) { inline_bytes_ += bytes; }
  // Inline bytes in the messages since the last Take.
  uint64_t inline_bytes() const { return inline_bytes_; }
  // Inline bytes that were taken and are not acknowledged by their nodes.
  uint64_t unacknowledged_bytes() const { return unacknowledged_bytes_; }
  void SetUnacknowledgedBytes(uint64_t bytes) { unacknowledged_bytes_ = bytes; }

  std::vector<Outgoing> Take();

 private:
  std::vector<Outgoing> messages_;
  uint64_t inline_bytes_ = 0;
  uint64_t unacknowledged_bytes_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_OUTBOX_H_
