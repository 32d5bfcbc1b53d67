// One client of the node. Its requests become calls of the Store and the Reducer, their results
// become answers.
//
//   socket ──► FrameBuffer ──► On(request) ──► Store, Reducer
//                                 │ ClientWrites, ClientReductions, ClientPins
//   socket ◄── LocalOutbox ◄── closures ◄───── callbacks
//           SendSchedule
//
// Bounds
//  1. If kMaxWaitingAnswers answers wait, the session stops reading from the client until it reads.
//     Nothing that the client could send would make it read, so this cannot deadlock.
//  2. Bytes of Puts that the store has not answered are at most local::kMaxPutBytesInFlight. More
//     are refused, not left unread, because a Release behind them can be what makes room for them.
//  3. The store bounds the requests that wait; ClientReductions bounds reductions and answers with
//     the sources of a result.
//
// A message that a client must not send ends this client's session with an error, and no other's.
//
// Loop thread only. Owned by the LocalService. After `ended` it does nothing more.
#ifndef PHALANX_LOCAL_LOCAL_SESSION_H_
#define PHALANX_LOCAL_LOCAL_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/collectives/reducer/reducer.h"
#include "src/local/client_pins.h"
#include "src/local/client_reductions.h"
#include "src/local/client_writes.h"
#include "src/local/jobs/client_jobs.h"
#include "src/local/local_outbox.h"
#include "src/local/local_protocol.h"
#include "src/local/send_schedule.h"
#include "src/net/loop/event_loop.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

inline constexpr size_t kMaxWaitingAnswers = 4096;

// The components of the node that serve its clients; they outlive the service.
struct LocalParts {
  Store& store;
  collectives::Reducer& reducer;
  LocalJobs jobs;
};

// What the node sends to every client first.
struct LocalGreeting {
  std::string node_name;
  std::string directory;
  NodeKey node = {};
};

// Fails if there is a name and the id was not derived from it.
absl::Status CheckName(const ObjectName& name, const ObjectId& id);

class LocalSession : public std::enable_shared_from_this<LocalSession> {
 public:
  // Takes over the socket. Calls `ended` once, inside another method or a callback of the loop; the
  // owner then destroys the session in a later turn. `why` is OK if the client left in order.
  LocalSession(net::EventLoop& loop, const LocalParts& parts, const LocalGreeting& greeting,
               int socket, absl::AnyInvocable<void(const absl::Status& why)> ended);
  ~LocalSession();

  // REQUIRES: called once, first.
  void Start();
  // Sends the client the reason and ends the session.
  void Close(const absl::Status& why);

  // Open until the session is destroyed.
  int socket() const { return socket_; }
  // Whether the client can have mapped some of the node's memory.
  bool has_shown_memory() const { return out_.has_shown_files(); }

 private:
  // kUnheard: the client has closed its socket, which can still have requests in it.
  enum class State { kGreeting, kOpen, kUnheard, kLeft, kEnded };
  // A streaming Get whose view is not final.
  struct Stream {
    PinId pin = 0;
    std::shared_ptr<net::TransferBuffer> buffer;
    net::TransferBuffer::SubscriptionId subscription = 0;
    bool by_slice = false;
  };

  // ---- reading
  void ReadSome();
  // Reads and handles what has arrived. The result is whether the session keeps reading; if not, it
  // has ended or its answers wait.
  bool TakeReceived();
  void KeepReading();
  absl::Status TakeFrames();
  absl::Status HandleFrames();
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
  absl::Status On(const local::Broadcast& broadcast);
  absl::Status On(const local::Replicate& replicate);
  absl::Status On(const local::EndScope& end);
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
  // A request about jobs.
  template <typename R>
  requires requires(ClientJobs jobs, const R& request) { jobs.On(request); }
  absl::Status On(const R& request) { return jobs_.On(request); }

  // Whether a call about reductions can be made that names so many ids; if not, the client
  // gets the error.
  bool AdmitReduce(uint64_t request, size_t ids);
  // Returns a callback that answers such a call.
  collectives::ReduceDone AnswerReduce(uint64_t request, size_t ids);
  void StartBroadcast(uint64_t request, const ObjectId& id, BroadcastOptions options,
                      absl::Duration timeout);
  // Does nothing if no such Reduce waits.
  void CancelReduce(uint64_t request);
  void AnswerStat(const local::Stat& stat, const ObjectStat& found);
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
  // Sends at the moment that SendSchedule describes.
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
  TimerId timer_ = 0;  // of the greeting, later of a send that is tried again
  State state_ = State::kGreeting;
  ClientId client_ = 0;
  local::FrameBuffer in_;
  LocalOutbox out_;
  SendSchedule sends_;
  bool read_armed_ = false;

  // Gets, Creates and Broadcasts that wait, by the client's number.
  absl::flat_hash_map<uint64_t, RequestId> requests_;
  absl::flat_hash_map<uint64_t, Stream> streams_;
  ClientReductions reductions_;
  ClientJobs jobs_;
  ClientWrites writes_;
  ClientPins pins_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_SESSION_H_
