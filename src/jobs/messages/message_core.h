// MessageCore: the messages from and to the members of one node. Pure.
//
//   member ──Send──► Outgoing ──Transmit──► link ──► Incoming ──Deliver──► member
//                  waits for credit                                          │ Taken
//                       ▲──────────── credit ◄──── link ◄──── Transmit ◄─────┘
//
// Messages from one life of a member to one life of another form a stream: numbered, in order, and
// bounded by what the receiver has not taken. A Send is answered when its message has left, and
// waits until credit is there. It fails at once when the life of the receiver ends.
//
//    Send         credit       the receiver's life ends, refused   link lost
//   ──────► waiting ──► left   waiting ──► Unavailable             waiting ──► Unavailable
//              │                                                   left, not taken ──►
//              │ deadline, Cancel                                  DataLoss of the next Send
//              └──► DeadlineExceeded, Cancelled
//
// A message from or for a life that this node does not know yet is parked: another node has heard
// of it first. A message that is refused ends its stream, and so those that follow it are refused.
//
// Credit: a sender that has messages which cost kMessageWindow / 4 or less without an answer sends
// the next one whatever its length; else up to kMessageWindow in all, or a few messages up to
// kFewMessagesWindow, so that long ones go on while an answer is on its way behind others. A
// receiver's client reports what it has taken when that is kCreditStep, and the receiver's node
// answers in such steps too, so a sender that waits is always answered.
//
// Owned by Messages; the control loop.
#ifndef PHALANX_JOBS_MESSAGES_MESSAGE_CORE_H_
#define PHALANX_JOBS_MESSAGES_MESSAGE_CORE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/messages/message_header.h"
#include "src/net/link/link_types.h"

namespace phalanx::jobs {

inline constexpr uint64_t kMessageWindow = 256 << 10;
inline constexpr uint64_t kCreditStep = kMessageWindow / 8;
// The cost of a message is its length and this.
inline constexpr uint64_t kMessageOverhead = 64;
// Three of the longest messages, and short ones between them.
inline constexpr size_t kFewMessages = 8;
inline constexpr uint64_t kFewMessagesWindow =
    3 * (kMaxMessageBytes + kMessageOverhead) + kMessageWindow / 4;
// Costs of the messages that wait for credit, of one sender, and of parked ones of a node.
inline constexpr uint64_t kMaxWaitingBytes = 32 << 20;
inline constexpr uint64_t kMaxParkedBytes = 32 << 20;
// A life that a node has not heard of for so long does not come.
inline constexpr absl::Duration kMaxParkedTime = absl::Seconds(10);

using MessageBytes = std::shared_ptr<const std::string>;
// Numbers the Sends of a node.
using SendId = uint64_t;

// What the node knows of the member with this group and rank.
struct KnownLife {
  uint64_t life = 0;
  bool live = false;
};
class LifeLookup {
 public:
  virtual ~LifeLookup() = default;
  // Returns nullopt if the node knows of no life.
  virtual std::optional<KnownLife> Find(const GroupId& group, uint32_t rank) const = 0;
};

class MessageCore {
 public:
  struct Transmit {
    // An answer has no address: the sender of a message is known by its key.
    net::LinkPeer peer;
    MessageHeader header;
    MessageBytes bytes;  // null for an empty payload
  };
  // A message has arrived for a member of this node. The receiver calls Taken with its cost.
  struct Deliver {
    LifeKey to;
    LifeKey from;
    uint64_t stream = 0;
    MessageBytes bytes;
  };
  struct Complete {
    SendId send = 0;
    absl::Status status;
  };
  using Effect = std::variant<Transmit, Deliver, Complete>;

  struct Target {
    LifeKey key;
    net::LinkPeer peer;  // its node
  };

  // `lookup` outlives the core.
  MessageCore(NodeKey self, const LifeLookup& lookup) : self_(self), lookup_(lookup) {}

  static uint64_t CostOf(size_t bytes) { return bytes + kMessageOverhead; }

  // A life of a member of this node begins, ends. REQUIRES: each once, in this order.
  void Begin(const LifeKey& member, Instant now);
  void End(const LifeKey& member);

  // Queues a message of a member of this node. REQUIRES: `from` has begun; the length is at most
  // kMaxMessageBytes; `send` is greater than all before it. Completes with OK when the message has
  // left, with Unavailable if the target is not live, with ResourceExhausted at kMaxWaitingBytes,
  // with DataLoss if messages before it to this target were lost; DeadlineExceeded; Cancelled.
  void Send(SendId send, const LifeKey& from, const Target& to, MessageBytes bytes,
            Instant deadline, Instant now);
  void Cancel(SendId send);

  // A message has arrived over the link. An error gives the link up.
  absl::Status Arrived(const NodeKey& from, const MessageHeader& header, MessageBytes bytes,
                       Instant now);
  // A member of this node has taken messages that cost so much. Ignores streams that are over.
  void Taken(const LifeKey& member, const LifeKey& from, uint64_t stream, uint64_t cost);

  // What `lookup` says may have changed.
  void LivesChanged();
  // The link was given up: what was under way to and from this node is lost.
  void PeerLost(const NodeKey& peer, const absl::Status& why);

  // Ends Sends whose deadline has passed, and parked messages whose member has not come.
  void Tick(Instant now);
  // The time of the next Tick; nullopt if none is needed.
  std::optional<Instant> next_tick() const;

  // The effects since the last call, in order.
  std::vector<Effect> TakeEffects() { return std::exchange(effects_, {}); }

  // The costs of parked messages; for tests.
  uint64_t parked_bytes() const { return parked_bytes_; }

 private:
  // From one life to another.
  using StreamKey = std::pair<LifeKey, LifeKey>;
  // What is done with the messages of a stream that arrive.
  enum class Verdict { kAccept, kPark, kRefuse, kDrop };

  struct Outgoing {
    net::LinkPeer peer;
    uint64_t stream = 0;
    // Of the stream: messages and costs that have left, and costs that were taken.
    uint64_t count = 0;
    uint64_t sent = 0;
    uint64_t taken = 0;
    // `sent` behind each of the last messages; that of message n is at n % kFewMessages.
    std::array<uint64_t, kFewMessages> sent_behind = {};
    std::set<SendId> waiting;  // in the order of their calls
    // Messages that had left were lost; the next Send says so.
    bool lost = false;
  };
  struct Incoming {
    NodeKey node;  // of the sender
    uint64_t stream = 0;
    uint64_t count = 0;
    uint64_t arrived = 0;
    uint64_t taken = 0;
    // What the sender knows to be taken.
    uint64_t credited = 0;
  };
  struct Waiting {
    StreamKey key;
    MessageBytes bytes;
    Instant deadline;
  };
  struct Parked {
    NodeKey from;
    MessageHeader header;
    MessageBytes bytes;
    Instant until;
  };

  static bool MayLeave(const Outgoing& stream, uint64_t cost);
  void Flush(const StreamKey& key, Outgoing& stream);
  void Leave(const StreamKey& key, Outgoing& stream, MessageBytes bytes);
  void FailWaiting(Outgoing& stream, const absl::Status& why);
  void Finish(SendId send, absl::Status status);
  absl::Status Dispatch(const NodeKey& from, const MessageHeader& header, MessageBytes bytes);
  Verdict Judge(const StreamKey& key) const;
  absl::Status Message(Parked message);
  void Unpark(const StreamKey& key);
  void UnparkAll();
  Parked TakeParked(uint64_t number);
  absl::Status Accept(const NodeKey& from, const MessageHeader& header, MessageBytes bytes);
  absl::Status Credit(const MessageHeader& header);
  void Refused(const MessageHeader& header);
  void BeginAgain(Outgoing& stream);
  void Reply(const NodeKey& to, MessageKind kind, const MessageHeader& header, uint64_t count);
  void Post(Transmit transmit);
  // Handles what was sent to this node itself.
  void RunLocal();

  const NodeKey self_;
  const LifeLookup& lookup_;
  // Lives of members of this node, and the cost of what they wait to send.
  std::map<LifeKey, uint64_t> members_;
  std::map<StreamKey, Outgoing> outgoing_;
  // The receiver comes first in these keys, so that both maps are sorted by the member of this
  // node.
  std::map<StreamKey, Incoming> incoming_;
  uint64_t last_stream_ = 0;
  std::map<SendId, Waiting> waiting_;
  std::set<std::pair<Instant, SendId>> deadlines_;
  // In the order of their arrival, and so of their time.
  std::map<uint64_t, Parked> parked_;
  std::map<StreamKey, std::set<uint64_t>> parked_streams_;
  uint64_t last_parked_ = 0;
  uint64_t parked_bytes_ = 0;
  std::deque<Transmit> local_;
  bool running_local_ = false;
  // Of the last call that has reported it.
  Instant now_;
  std::vector<Effect> effects_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MESSAGES_MESSAGE_CORE_H_
