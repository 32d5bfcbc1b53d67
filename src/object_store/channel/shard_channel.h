// What one node and the directory's shards say to each other: the order of a node's messages, the
// registration in a new session, and which component handles which message of a shard.
//
//   store ────┐ Handle(kind)                     ┌─ OnMessage ◄── session with shard 0
//             ├────────────► ShardChannel ◄──────┼─ OnMessage ◄── session with shard 1
//   reducer ──┘ AddRegistrant        │           └─ OnSession
//                                    └─ send ───► session with the shard
//
// A registration, in the order in which the shard reads it
//   RegisterBegin                       from FillBegin of every registrant
//   what RegisterSome registers         in this turn, and in later turns if there is much
//   what BeginSession returned          of every registrant, in the order of AddRegistrant
//   RegisterEnd
//   what was sent meanwhile             held back until here, also from within BeginSession
//
// Invariants
//  1. Between RegisterBegin and RegisterEnd of a shard only registrants' messages are sent to it.
//  2. A new session ends the registration that was under way: what it held back is void, since
//     every registrant sends its open requests again in BeginSession.
//  3. Each kind of message has at most one handler. Messages without one are ignored.
//
// Thread rule: no thread, lock, clock or I/O inside; the control loop only. Owned by the node;
// outlives the components that use it.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_SHARD_CHANNEL_H_
#define PHALANX_OBJECT_STORE_CHANNEL_SHARD_CHANNEL_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/shard_of.h"

namespace phalanx::object_store {

// Returns the status of a shard's reply; Unknown for a code that this release does not know.
absl::Status ReplyStatus(int code, absl::string_view message);

// What a component contributes to the registration in a new session.
class Registrant {
 public:
  virtual ~Registrant() = default;
  // Adds this component's fields to the message that begins the registration.
  virtual void FillBegin(int /*shard*/, v1::RegisterBegin* /*begin*/) {}
  // A new session has begun. Everything that the shard knew of this node is void. Returns what is
  // registered last, in one turn; sends what the shard must answer again.
  virtual std::vector<v1::NodeMessage> BeginSession(int shard) = 0;
  // Registers a part with ShardChannel::Register. Returns true when everything is registered; else
  // the next part follows in a later turn, so that no turn is long.
  virtual bool RegisterSome(int /*shard*/) { return true; }
  // The channel has sent what one turn of the registration sends.
  virtual void EndRegistrationTurn() {}
};

class ShardChannel {
 public:
  // Queues the message in the session with the shard. By rvalue reference, here and below: each
  // move constructs and destroys a protobuf, and a message passes through six calls.
  using SendToShard = absl::AnyInvocable<void(int shard, v1::NodeMessage&& message)>;
  // Runs the task in a later turn of the control loop, or never.
  using Task = absl::AnyInvocable<void()>;
  using Later = absl::AnyInvocable<void(Task task)>;
  using Handler = absl::AnyInvocable<void(int shard, const v1::ShardMessage& message)>;

  ShardChannel(int num_shards, SendToShard send, Later later);
  ~ShardChannel();
  ShardChannel(const ShardChannel&) = delete;
  ShardChannel& operator=(const ShardChannel&) = delete;

  // ---- components
  // REQUIRES: the kind has no handler.
  void Handle(v1::ShardMessage::KindCase kind, Handler handler);
  void AddRegistrant(Registrant* registrant);
  // Ends every registration that is under way: the node is being taken down.
  void RemoveRegistrant(Registrant* registrant);
  // `flush` sends the changes of this node's holds; see SendAfterHolds.
  void SetFlushHolds(absl::AnyInvocable<void()> flush) { flush_holds_ = std::move(flush); }

  // ---- the sessions
  void OnSession(int shard);
  void OnMessage(int shard, const v1::ShardMessage& message);

  // ---- sending
  int num_shards() const { return num_shards_; }
  // The shard that keeps the object.
  int ShardOf(const ObjectId& id) const { return phalanx::ShardOf(id, num_shards_); }
  // Sends to the shard, after its registration if one is under way.
  void SendTo(int shard, v1::NodeMessage&& message);
  void Send(const ObjectId& id, v1::NodeMessage&& message) {
    SendTo(ShardOf(id), std::move(message));
  }
  // As SendTo; but the shards know of every hold of this node first. For messages after which an
  // object can lose its other holds: a shard that learns of the hold later frees the object.
  void SendAfterHolds(int shard, v1::NodeMessage&& message);
  // Part of the registration. REQUIRES: called within RegisterSome of this shard.
  void Register(int shard, v1::NodeMessage&& message) { send_(shard, std::move(message)); }

 private:
  struct Registration {
    std::vector<v1::NodeMessage> last;  // of BeginSession
    std::vector<v1::NodeMessage> held;
  };

  void Continue(int shard);
  void EndTurn();

  const int num_shards_;
  SendToShard send_;
  Later later_;
  absl::AnyInvocable<void()> flush_holds_ = [] {};
  std::vector<Registrant*> registrants_;
  std::map<int, Handler> handlers_;  // by kind
  // By shard: this life of the node has had a session with it.
  std::vector<bool> had_session_;
  std::map<int, std::shared_ptr<Registration>> registrations_;  // under way, by shard
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_SHARD_CHANNEL_H_
