// One client of the node: its requests become calls of the Store, their results become answers.
//
//   socket ──► FrameBuffer ──► On(request) ──► Store, Reducer
//   socket ◄── LocalOutbox ◄── closures ◄───── callbacks
//
// Bounds
//  1. A client that does not read its answers is not read from once kMaxWaitingAnswers of them
//     wait. Nothing that it could send would make it read, so no circle closes.
//  2. Bytes of Puts that the store has not answered are at most local::kMaxPutBytesInFlight; more
//     are refused, not left unread: a Release behind them may be what makes room for them.
//  3. Requests that wait are bounded by the store; reductions by the ids that they name, and
//     answers with the sources of a result by their number.
//
// A message that a client must not send ends this client's session with an error, and no other's.
//
// Loop thread only. Owned by the LocalService; after `ended` it is inert.
#ifndef PHALANX_LOCAL_LOCAL_SESSION_H_
#define PHALANX_LOCAL_LOCAL_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/collectives/reducer/reducer.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"
#include "src/net/loop/event_loop.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

inline constexpr size_t kMaxWaitingAnswers = 4096;
// Ids in one client's calls about reductions that have not been answered; a call counts one
// besides.
inline constexpr size_t kMaxReduceIds = 1 << 20;
// Answers with the sources of a result that one client may wait for.
inline constexpr size_t kMaxReducedFromAnswers = 64;

// Told to every client.
struct LocalGreeting {
  std::string node_name;
  std::string directory;
  NodeKey node = {};
};

class LocalSession : public std::enable_shared_from_this<LocalSession> {
 public:
  // Takes over the socket. `ended` is called once, within a call of another method or a callback of
  // the loop: the session is to be destroyed, in a later turn. `why` is OK for a client that left
  // in order.
  LocalSession(net::EventLoop& loop, Store& store, collectives::Reducer& reducer,
               const LocalGreeting& greeting, int socket,
               absl::AnyInvocable<void(const absl::Status& why)> ended);
  ~LocalSession();

  // REQUIRES: called once, first.
  void Start();
  // The node ends: sends the client the reason.
  void Close(const absl::Status& why);

  // Open as long as the session is there.
  int socket() const { return socket_; }
  // The client may have some of the node's memory mapped.
  bool has_shown_memory() const { return out_.has_shown_files(); }

 private:
  enum class State { kGreeting, kOpen, kLeft, kEnded };
  struct Writer {
    std::shared_ptr<MemoryBlock> block;
    uint64_t size = 0;
    uint64_t published = 0;
    bool has_file = false;
  };
  // A streaming Get that looks through a view that is not final.
  struct Stream {
    PinId pin = 0;
    std::shared_ptr<net::TransferBuffer> buffer;
    net::TransferBuffer::SubscriptionId subscription = 0;
  };

  // ---- reading
  void ReadSome();
  // Reads and handles what is there; false when reading does not go on by itself.
  bool TakeWhatCame();
  void KeepReading();
  absl::Status TakeFrames();
  absl::Status Greet(absl::string_view payload);
  absl::Status Handle(const local::Request& request);

  absl::Status On(const local::ClientHello& hello);
  absl::Status On(const local::Put& put);
  absl::Status On(const local::Create& create);
  absl::Status On(const local::Publish& publish);
  absl::Status On(const local::Seal& seal);
  absl::Status On(const local::Abort& abort);
  absl::Status On(const local::Get& get);
  absl::Status On(const local::Cancel& cancel);
  absl::Status On(const local::Release& release);
  absl::Status On(const local::Delete& remove);
  absl::Status On(const local::Stat& stat);
  absl::Status On(const local::Prefetch& prefetch);
  absl::Status On(const local::Broadcast& broadcast);
  absl::Status On(const local::Forget& forget);
  absl::Status On(const local::Leave& leave);
  absl::Status On(const local::Reduce& reduce);
  absl::Status On(const local::Extend& extend);
  absl::Status On(const local::Fail& fail);
  absl::Status On(const local::Hold& hold);
  absl::Status On(const local::Unhold& unhold);
  absl::Status On(const local::Transit& transit);
  absl::Status On(const local::Claim& claim);
  absl::Status On(const local::Keep& keep);

  // Whether a call about reductions that names so many ids can be made; answers it if it cannot.
  bool AdmitReduce(uint64_t request, size_t ids);
  // What answers such a call.
  collectives::ReduceDone AnswerReduce(uint64_t request, size_t ids);
  // Nothing happens if there is no such Reduce.
  void CancelReduce(uint64_t request);
  void CancelAllReduces();
  void AnswerStat(const local::Stat& stat, const ObjectStat& found);
  // Takes the bytes that came with a Publish or Seal of a writer without a file.
  absl::Status TakeBytes(Writer& writer, uint64_t upto, absl::string_view bytes);
  PutOptions OptionsOf(const local::Description& object) const;
  Instant Deadline(absl::Duration timeout) const;

  // ---- answering
  void OnGrant(uint64_t request, uint64_t size, absl::StatusOr<WriteGrant> grant);
  void OnView(const local::Get& get, absl::StatusOr<View> view);
  bool EncodeView(const local::Get& get, const View& view, LocalOutbox::Batch& batch);
  void EncodeInline(const local::Get& get, const View& view, absl::string_view bytes,
                    LocalOutbox::Batch& batch);
  void StreamGrew(uint64_t request, PinId pin);
  void EncodeProgress(uint64_t request, PinId pin, LocalOutbox::Batch& batch);
  void Subscribe(uint64_t request, Stream& stream);
  void EndStream(uint64_t request);
  void ReleasePin(PinId pin, bool recycle);
  void AnswerPut(uint64_t request, const absl::StatusOr<PutResult>& result);
  void Answer(const local::Answer& answer);
  void AnswerFailed(uint64_t request, const absl::Status& why);

  // ---- writing
  // Sends everything that a turn brought in one piece: what came of this client's requests when
  // they have been handled, the rest at the end of the turn.
  void SendLater();
  void SendNow();
  void End(const absl::Status& why);

  // Constant after construction.
  net::EventLoop& loop_;
  Store& store_;
  collectives::Reducer& reducer_;
  const LocalGreeting& greeting_;
  const int socket_;

  absl::AnyInvocable<void(const absl::Status&)> ended_;
  std::unique_ptr<net::FdWatcher> watcher_;
  TimerId greeting_timer_ = 0;
  TimerId retry_timer_ = 0;
  State state_ = State::kGreeting;
  ClientId client_ = 0;
  local::FrameBuffer in_;
  LocalOutbox out_;
  bool send_posted_ = false;
  bool in_read_ = false;
  bool send_due_ = false;
  bool waits_for_room_ = false;
  bool reading_ = false;

  // Gets and Creates that wait, by the client's number.
  absl::flat_hash_map<uint64_t, RequestId> requests_;
  absl::flat_hash_map<uint64_t, Stream> streams_;
  struct Reduction {
    RequestId id = 0;
    size_t ids = 0;
  };
  absl::flat_hash_map<uint64_t, Reduction> reductions_;
  size_t reduce_ids_ = 0;
  size_t reduced_from_answers_ = 0;
  absl::flat_hash_map<WriterId, Writer> writers_;
  // Handed out, or in an answer that waits.
  absl::flat_hash_set<PinId> pins_;
  absl::flat_hash_set<PinId> kept_at_leave_;
  uint64_t put_bytes_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_SESSION_H_
