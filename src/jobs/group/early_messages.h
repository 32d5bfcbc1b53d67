// EarlyMessages: messages that arrived before this node can use them: of a list of members that it
// does not know yet, or of a call that its members have not made yet.
//
// A node sends a call at most kEagerBytes, in at most kEagerMessages, to another node that has not
// said kReady, and is at most kAcknowledgeEvery calls ahead of it, so an honest node stays below
// the limits.
//
// Owned by a GroupCore. Pure; one thread at a time.
#ifndef PHALANX_JOBS_GROUP_EARLY_MESSAGES_H_
#define PHALANX_JOBS_GROUP_EARLY_MESSAGES_H_

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/group_wire.h"

namespace phalanx::jobs {

// Bytes and messages of a call that a node sends to another one before that one has said kReady.
inline constexpr uint64_t kEagerBytes = 65536;
inline constexpr uint32_t kEagerMessages = 64;
// Every so many calls are acknowledged by all nodes (MakeGroupPlan), so that no node is further
// ahead. Calls of more than kAlwaysAcknowledgedBytes always are.
inline constexpr uint64_t kAcknowledgeEvery = 4;
inline constexpr uint64_t kAlwaysAcknowledgedBytes = 1 << 20;
// Limits of what is kept of one node.
inline constexpr size_t kMaxEarlyBytes = 2 * (kAcknowledgeEvery + 1) * kEagerBytes;
inline constexpr size_t kMaxEarlyMessages = 1024;
static_assert(2 * (kAcknowledgeEvery + 1) * kEagerMessages <= kMaxEarlyMessages);

class EarlyMessages {
 public:
  struct Message {
    NodeKey from;
    GroupHeader header;
    std::string payload;
    Instant since = {};  // of its arrival, if the owner drops old messages
  };

  // Returns false, and drops the message, if the node would exceed its limits.
  bool Add(Message message) {
    Held& held = held_[message.from];
    if (held.messages + 1 > kMaxEarlyMessages ||
        held.bytes + message.payload.size() > kMaxEarlyBytes) {
      return false;
    }
    ++held.messages;
    held.bytes += message.payload.size();
    messages_.push_back(std::move(message));
    return true;
  }

  // Removes and returns the messages for which `wanted` is true, in the order of their arrival.
  std::vector<Message> Take(absl::FunctionRef<bool(const Message&)> wanted) {
    std::vector<Message> taken;
    std::deque<Message> left;
    for (Message& message : messages_) {
      if (!wanted(message)) {
        left.push_back(std::move(message));
        continue;
      }
      Held& held = held_[message.from];
      --held.messages;
      held.bytes -= message.payload.size();
      if (held.messages == 0) held_.erase(message.from);
      taken.push_back(std::move(message));
    }
    messages_ = std::move(left);
    return taken;
  }

  // The message that arrived first. REQUIRES: there is one.
  const Message& first() const { return messages_.front(); }
  bool empty() const { return messages_.empty(); }
  size_t size() const { return messages_.size(); }

 private:
  struct Held {
    size_t messages = 0;
    size_t bytes = 0;
  };

  std::deque<Message> messages_;
  std::map<NodeKey, Held> held_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_EARLY_MESSAGES_H_
