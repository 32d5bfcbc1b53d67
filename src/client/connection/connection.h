// A client's connection to its node. It numbers and sends requests, hands the answers to their
// calls, and lets the threads that wait drive all of this. Its parts own the state:
//
//   Client, Future, WritableBuffer, ObjectStream ──► Connection ◄── HeldPin ◄── Buffer
//       ┌───────────────┬──────────────┬────────────┬────┴──────┬────────────┐
//   RequestQueue   AnswerReader    CallTable    PutWindow   NodeMemory   WaitQueue
//   bytes out      bytes in        numbers,     bytes of    files,       waiting
//                                  deadlines    Puts        pins         threads
//
// Leader and followers
//  1. A thread that waits becomes the leader if there is none. The leader polls the socket without
//     the lock, then handles the received frames with the lock. Every other waiting thread blocks
//     on its own condition variable.
//  2. WaitQueue::leading() is true from before the leader releases the lock until it holds the lock
//     again. Only the leader touches the AnswerReader, and no thread closes the socket while a
//     thread leads.
//  3. A leader whose own wait has ended wakes one follower, which leads next.
//  4. A thread that changes what the polling leader waits for (bytes to write, an earlier deadline,
//     the leader's own result, a callback to run) wakes the leader through an eventfd (Nudge).
//  5. Callbacks, and destructors of objects that the user passed, run without the lock. Objects to
//     destroy go to `trash_`, which the thread that held the lock empties after it unlocks.
//
// In a child of fork every method returns at once and touches nothing.
//
// Owned by the client and by every object that came from the client. Leaked in a child of fork,
// because a thread that does not exist there can hold the lock. Any thread.
#ifndef PHALANX_CLIENT_CONNECTION_CONNECTION_H_
#define PHALANX_CLIENT_CONNECTION_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/client/connection/call_table.h"
#include "src/client/connection/file_mapping.h"
#include "src/client/connection/name_table.h"
#include "src/client/connection/node_memory.h"
#include "src/client/connection/put_window.h"
#include "src/client/connection/wait_queue.h"
#include "src/client/socket/answer_reader.h"
#include "src/client/socket/fork_guard.h"
#include "src/client/socket/local_socket.h"
#include "src/client/socket/readiness_fd.h"
#include "src/client/socket/request_queue.h"
#include "src/common/threads/mutex.h"
#include "src/common/time/clock.h"
#include "src/common/time/instant.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

namespace local = object_store::local;

class Call;
class Connection;

// Limit of requests that have not ended. Beyond it, new calls fail with ResourceExhausted. A call
// that is admitted can add a window of requests (gather.h); the node accepts all of them.
inline constexpr size_t kMaxOutstandingRequests = 60000;
// Bytes that wait for the daemon to read them. Beyond this limit calls fail with ResourceExhausted.
inline constexpr size_t kMaxQueuedBytes = size_t{64} << 20;
// If the daemon has not answered this long after the deadline, the client ends the call itself.
inline constexpr absl::Duration kDeadlineGrace = absl::Seconds(1);

// Pages that the node keeps for this client. The destructor releases them.
class HeldPin {
 public:
  HeldPin() = default;
  HeldPin(std::shared_ptr<Connection> connection, uint64_t pin,
          std::shared_ptr<FileMapping> mapping);
  HeldPin(HeldPin&&) = default;
  HeldPin& operator=(HeldPin&& other) noexcept;
  ~HeldPin() { Release(); }
  // Null if this holds no pin.
  const FileMapping* mapping() const { return mapping_.get(); }

 private:
  void Release();

  std::shared_ptr<Connection> connection_;
  uint64_t pin_ = 0;
  uint64_t forks_ = 0;
  std::shared_ptr<FileMapping> mapping_;
};

// An object's bytes in a file of the node.
struct MappedObject {
  HeldPin pin;
  absl::string_view bytes;
};

struct ConnectionOptions {
  std::string address;  // "unix:..." as shown in messages
  std::string socket_path;
  absl::Duration connect_timeout = absl::Seconds(10);
  bool callback_thread = false;
};

// The node, as it introduced itself.
struct NodeIdentity {
  std::string name;
  std::string directory;
  NodeKey node;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // While a batch lives, requests of all threads are queued; the end of the last batch, a thread
  // that waits, or a queue of RequestQueue::kMaxBatchBytes sends them together. An idle node wakes
  // at the first bytes, so requests that are sent one by one cost it a turn each. REQUIRES: the
  // connection outlives the batch.
  class Batch {
   public:
    explicit Batch(Connection& connection) : connection_(connection) { Begin(connection_); }
    ~Batch() { End(connection_); }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    // For callers that cannot keep an object. Each Begin needs its End.
    static void Begin(Connection& connection);
    static void End(Connection& connection);

   private:
    Connection& connection_;
  };

  // Errors: Unavailable, DeadlineExceeded, PermissionDenied, FailedPrecondition (another protocol
  // version). The text names the address.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(ConnectionOptions options);

  // ---- calls; without the lock
  uint64_t NewRequests(uint64_t count) { return next_request_.fetch_add(count); }
  // Registers the call under `count` numbers from `first` and sends `request`, which has the number
  // `first`. On failure the call ends. Two kinds are admitted beyond the limits: a Seal, because it
  // only ends a writer, and a GroupCall, because the other members make it, too: its caller waits
  // until Admit is OK.
  void Start(const std::shared_ptr<Call>& call, uint64_t first, uint64_t count, Instant deadline,
             const local::Request& request);
  // Waits, drives the connection and runs callbacks until the call has ended. Returns false if
  // `until` passes first.
  bool WaitFor(const Call& call, Instant until);
  // Waits and drives the connection until `done`, evaluated under the lock, is true. For calls
  // other than Wait and Poll; these do not run callbacks.
  bool WaitInsideCall(absl::FunctionRef<bool()> done, Instant until);
  // Ends the call with Cancelled unless it has ended.
  void Cancel(Call& call);
  // Waits until the node can accept this many more bytes of Puts, and reserves them. The caller
  // must call Start with the Put next. Fails with DeadlineExceeded, or the error that ended the
  // connection.
  absl::Status ReservePutBytes(size_t bytes, Instant until);
  // Sends a request that has no answer. Fails with ResourceExhausted if too much is outstanding or
  // queued; Abort and Unhold are exempt.
  absl::Status Post(const local::Request& request);
  // Runs `change` under the lock, then does the work that follows from it (see Lock).
  void Update(absl::FunctionRef<void()> change);

  // ---- for calls; lock held
  void Send(const local::Request& request);
  // Sends one more request of a call that was started with a row of numbers.
  void SendPart(const std::shared_ptr<Call>& call, const local::Request& request, uint64_t number);
  // A call without requests, whose OnFailure is called at this time, while a thread drives the
  // connection, or with the connection's error when that ends before; it ends the call with Finish.
  // Does nothing if the connection has ended.
  void StartTimer(const std::shared_ptr<Call>& call, Instant at);
  // The request with this number of a row is answered.
  void EndPart(uint64_t number) { calls_.EndPart(number, trash_); }
  // Cancels the call's open requests at the node.
  void CancelRequests(const Call& call);
  void Finish(Call& call);
  void AddReady(absl::AnyInvocable<void()> callback) { ready_.push_back(std::move(callback)); }
  void Trash(std::shared_ptr<void> trash) { trash_.push_back(std::move(trash)); }
  // Takes over the pin. Fails with ResourceExhausted if the file could not be mapped here, or
  // Internal if the answer points outside the file; in both cases the pin is released.
  absl::StatusOr<MappedObject> Take(const local::Mapped& answer);
  // Returns the mapping to write into. The caller returns it with PutBackWriter. Errors as Take.
  absl::StatusOr<std::shared_ptr<FileMapping>> TakeWriter(const local::Granted& answer,
                                                          uint64_t size);
  void PutBackWriter(std::shared_ptr<FileMapping> mapping);
  // Also the answers of calls that were cancelled free buffers.
  GroupBuffers& group_buffers() { return memory_.group_buffers(); }
  // Whether the node can still get requests, and how many bytes of them wait for room in the
  // socket.
  bool CanSend() const { return status_.ok() && !out_.broken(); }
  size_t unsent() const { return out_.size(); }
  // Why a new call cannot be made, or OK.
  absl::Status Admit() const;
  // OK while calls can be made.
  const absl::Status& status() const { return status_; }

  // ---- driving
  int fd();
  int Poll(absl::Duration timeout);
  void Close();

  // Fails with FailedPrecondition, naming fork, in a child; lock-free.
  absl::Status CheckProcess() const;
  bool forked() const { return mark_.Forked(); }
  const std::string& address() const { return options_.address; }
  const NodeIdentity& identity() const { return identity_; }
  // Its lock cannot be taken in a child of fork.
  NameTable& names() { return names_; }

 private:
  friend class HeldPin;
  // Locks. The destructor does the work that is due after a change, unlocks and empties the trash.
  class Lock;

  Connection(ConnectionOptions options, LocalSocket socket);
  ~Connection() = default;
  static void Delete(Connection* connection);
  absl::Status Greet();
  absl::Status TakeHello(absl::string_view payload);

  void ReleasePin(uint64_t pin, uint64_t forks, std::shared_ptr<FileMapping> mapping);

  // ---- output; lock held
  // Sends the queue and then `bytes`, which end the last request in it.
  void Flush(absl::string_view bytes = {});
  // A client without its own thread must not leave queued requests behind: an unsent Release keeps
  // memory of the node.
  void PushOut();
  void SendForgets();

  // ---- input; lock held but where stated
  void Lead(Waiter* self, Instant until);
  // Without the lock.
  absl::Status PollAndReceive(bool want_write, Instant until);
  void TakeFrames();
  void Dispatch(const local::Answer& answer);
  void OnFile(const local::File& file);
  void DispatchTo(uint64_t request, const local::Answer& answer);
  void ReturnUnclaimed(const local::Answer& answer);
  void ExpireDeadlines();
  void Fail(const absl::Status& why);

  // ---- waiting; lock held
  enum class Callbacks { kRun, kLeave };
  bool WaitLocked(absl::FunctionRef<bool()> done, Instant until, Callbacks callbacks,
                  int* callbacks_run = nullptr);
  bool WaitAs(Waiter& self, Instant until, int* callbacks_run);
  bool MayRunCallbacks() const;
  // Returns how many callbacks ran. Releases the lock while they run, and gives up the lead for
  // good; it does not wake `self` to take the lead.
  int RunCallbacks(const Waiter* self);
  void HandOver(const Waiter* self);
  void RunCallbackThread();
  void FlushBeforeClosing();
  void CloseSocketIfDone();
  void Unlock();

  // Constant after Open.
  const ConnectionOptions options_;
  const ProcessMark mark_;
  NodeIdentity identity_;

  std::atomic<uint64_t> next_request_{1};
  NameTable names_;
  AnswerReader in_;  // the leader's

  Mutex mu_;
  LocalSocket socket_;  // replaced under mu_ and only while no thread leads
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  RequestQueue out_ ABSL_GUARDED_BY(mu_);
  CallTable calls_ ABSL_GUARDED_BY(mu_);
  PutWindow puts_ ABSL_GUARDED_BY(mu_);
  NodeMemory memory_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::AnyInvocable<void()>> ready_ ABSL_GUARDED_BY(mu_);
  CallTable::Trash trash_ ABSL_GUARDED_BY(mu_);
  ReadinessFd readiness_fd_ ABSL_GUARDED_BY(mu_);
  // Used under mu_, but for nudge_fd(), which is constant: the leader polls it without the lock.
  WaitQueue waiters_;
  // Number of frames handled. Poll returns when it changes.
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread callback_thread_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_CONNECTION_H_
