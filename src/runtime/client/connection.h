// A client's connection to its node: numbers requests, sends them, takes the answers, keeps the
// mappings and pins, and lets whichever thread waits drive all of it.
//
//   Client, Future, WritableBuffer, ObjectStream ──► Connection ──► LocalSocket, MappingTable
//   Buffer ── HeldPin ──────────────────────────────►    │
//                                                     Call × n
//
// Leader and followers
//  1. Whoever waits becomes the leader if there is none: it polls the socket without the lock, then
//     takes what came with the lock. Everybody else waits on a condition of their own.
//  2. `leading_` is true from before the leader lets go of the lock until it has it again; only the
//     leader touches the receive buffer, and nobody closes the socket meanwhile.
//  3. A leader whose own wait is over wakes one follower, which leads next.
//  4. Whoever changes what a polling leader polls for (something to write, an earlier deadline, its
//     own result, a callback to run) nudges it through an event.
//  5. Callbacks, and destructors of what users gave, run without the lock: what is to be destroyed
//     goes to `trash_`, which the holder of the lock empties after letting go.
//
// In a child of fork every method returns at once, touching nothing.
//
// Owned by the client and everything that came from it; leaked in a child of fork, since its lock
// may be held by a thread that does not exist there. Any thread.
#ifndef PHALANX_RUNTIME_CLIENT_CONNECTION_H_
#define PHALANX_RUNTIME_CLIENT_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/clock.h"
#include "src/common/instant.h"
#include "src/common/mutex.h"
#include "src/local/local_protocol.h"
#include "src/runtime/client/attention.h"
#include "src/runtime/client/file_mapping.h"
#include "src/runtime/client/fork_guard.h"
#include "src/runtime/client/local_socket.h"

namespace phalanx::internal {

namespace local = object_store::local;

class Call;
class Connection;

// Beyond so many requests that have not ended, new calls fail with ResourceExhausted. A call that
// is let in may add a window of requests (gather.h): the node takes all of them.
inline constexpr size_t kMaxOutstandingRequests = 60000;
// Bytes that wait for the daemon to read them; beyond them calls fail with ResourceExhausted.
inline constexpr size_t kMaxQueuedBytes = size_t{64} << 20;
// Mappings kept although nobody looks at them.
inline constexpr size_t kMaxIdleMappings = 8;
// A daemon that has not answered so long after a deadline passed is answered for.
inline constexpr absl::Duration kDeadlineGrace = absl::Seconds(1);

// Pages that the node keeps for us. Released when destroyed.
class HeldPin {
 public:
  HeldPin() = default;
  HeldPin(std::shared_ptr<Connection> connection, uint64_t pin,
          std::shared_ptr<FileMapping> mapping);
  HeldPin(HeldPin&&) = default;
  HeldPin& operator=(HeldPin&& other) noexcept;
  ~HeldPin() { Release(); }
  // Null when it holds nothing.
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

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Unavailable, DeadlineExceeded, PermissionDenied, FailedPrecondition (another version); the text
  // names the address.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(ConnectionOptions options);

  // ---- calls; without the lock
  uint64_t NewRequests(uint64_t count) { return next_request_.fetch_add(count); }
  // Registers the call under `count` numbers from `first` and sends `request`, which has the first
  // of them. On failure the call ends. A Seal is never too much: it only ends something.
  void Start(const std::shared_ptr<Call>& call, uint64_t first, uint64_t count, Instant deadline,
             const local::Request& request);
  // Waits, driving and running callbacks, until the call has ended; false when `until` came first.
  bool WaitFor(const Call& call, Instant until);
  // Waits, driving, until `done`, evaluated under the lock, is true; for calls that are no Wait and
  // no Poll of the user's, so callbacks do not run.
  bool WaitInsideCall(absl::FunctionRef<bool()> done, Instant until);
  // The call ends with Cancelled unless it has ended.
  void Cancel(Call& call);
  // Waits until the node can take so many more bytes of Puts, and counts them: to be followed by
  // the Start of the Put. DeadlineExceeded; or why the connection ended.
  absl::Status ReservePutBytes(size_t bytes, Instant until);
  // Sends what is not answered. ResourceExhausted when too much is outstanding or queued, which
  // an Abort or Unhold never is.
  absl::Status Post(const local::Request& request);
  // Runs `change` under the lock, then what follows from it.
  void Update(absl::FunctionRef<void()> change);
  // A call that nobody else knows has ended.
  static void MarkEnded(Call& call);

  // ---- for calls; lock held
  void Send(const local::Request& request);
  // Sends one more request of a call that was started with a row of numbers.
  void SendPart(const std::shared_ptr<Call>& call, const local::Request& request, uint64_t number);
  // One number of a row is answered.
  void EndPart(uint64_t number);
  // The call's answers are not wanted any more.
  void CancelRequests(const Call& call);
  void Finish(Call& call);
  void AddReady(absl::AnyInvocable<void()> callback);
  void Trash(std::shared_ptr<void> trash) { trash_.push_back(std::move(trash)); }
  // Takes over the pin. ResourceExhausted when the file could not be mapped here, Internal when the
  // answer points outside of it: the pin is released then.
  absl::StatusOr<MappedObject> Take(const local::Mapped& answer);
  // The mapping to write into, put back with PutBackWriter; errors as Take.
  absl::StatusOr<std::shared_ptr<FileMapping>> TakeWriter(const local::Granted& answer,
                                                          uint64_t size);
  void PutBackWriter(std::shared_ptr<FileMapping> mapping);
  // OK while calls can be made.
  const absl::Status& status() const { return status_; }

  // ---- driving
  int fd();
  int Poll(absl::Duration timeout);
  void Close();

  // FailedPrecondition, naming fork, in a child; lock-free.
  absl::Status CheckProcess() const;
  bool forked() const { return mark_.Forked(); }
  const std::string& address() const { return options_.address; }
  const std::string& node_name() const { return node_name_; }
  const std::string& directory() const { return directory_; }
  const NodeKey& node() const { return node_; }

 private:
  friend class HeldPin;
  // Locks; on destruction does what is due after a change, unlocks and empties the trash.
  class Hold;
  struct Waiter {
    absl::FunctionRef<bool()> done;
    bool runs_callbacks = false;
    CondVar wake;
  };

  Connection(ConnectionOptions options, LocalSocket socket);
  ~Connection();
  static void Delete(Connection* connection);
  absl::Status Greet();
  absl::Status TakeHello(absl::string_view payload);

  void ReleasePin(uint64_t pin, uint64_t forks, std::shared_ptr<FileMapping> mapping);
  // Why a new call cannot be made; OK when it can.
  absl::Status Admit() const;

  // ---- output; lock held
  void FlushWith(absl::string_view bytes);
  void Flush() { FlushWith({}); }
  // Without a thread of its own a client must not leave behind what it has begun to say: a Release
  // that nobody sends keeps memory of the node.
  void PushOut();
  size_t queued() const { return out_.size() - out_sent_; }
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
  void Nudge();
  void WakeWaiters();
  bool MayRunCallbacks() const;
  // How many; lets go of the lock meanwhile, and of the lead for good: `self` is not asked to take
  // it.
  int RunCallbacks(const Waiter* self);
  void HandOver(const Waiter* self);
  void RunCallbackThread();
  void SendLeave();
  void FlushBeforeClosing();
  void CloseSocketIfDone();
  void Unlock();

  // Constant after Open.
  const ConnectionOptions options_;
  const ProcessMark mark_;
  std::string node_name_;
  std::string directory_;
  NodeKey node_;
  int nudge_ = -1;

  std::atomic<uint64_t> next_request_{1};

  // The leader's: the receive buffer, and descriptors whose File frame has not been read.
  local::FrameBuffer in_;
  std::deque<int> descriptors_;

  Mutex mu_;
  LocalSocket socket_;  // replaced under mu_ and only while nobody leads
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // nothing can be sent any more
  std::string out_ ABSL_GUARDED_BY(mu_);
  size_t out_sent_ ABSL_GUARDED_BY(mu_) = 0;
  // The node did not read in time; it is not waited for until it has read everything.
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> pending_ ABSL_GUARDED_BY(mu_);
  // By deadline and first number.
  std::map<std::pair<Instant, uint64_t>, std::shared_ptr<Call>> deadlines_ ABSL_GUARDED_BY(mu_);
  // Bytes of Puts that the node has not answered, cancelled ones included.
  absl::flat_hash_map<uint64_t, size_t> put_bytes_ ABSL_GUARDED_BY(mu_);
  size_t put_bytes_sum_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<uint64_t> pins_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<MappingTable> files_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::AnyInvocable<void()>> ready_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<void>> trash_ ABSL_GUARDED_BY(mu_);
  Attention attention_ ABSL_GUARDED_BY(mu_);

  bool leading_ ABSL_GUARDED_BY(mu_) = false;
  bool nudged_ ABSL_GUARDED_BY(mu_) = false;
  Waiter* leader_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::list<Waiter*> waiters_ ABSL_GUARDED_BY(mu_);
  // Turns of a leader that took something in.
  uint64_t progress_ ABSL_GUARDED_BY(mu_) = 0;

  std::thread callback_thread_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_CONNECTION_H_
