// Phalanx's client: put, get and reduce immutable objects by id, as futures, from any thread.
//
//   auto client = phalanx::Client::Connect().value();   // PHALANX_ADDRESS, or a private cluster
//   phalanx::ObjectId id = phalanx::ObjectId::Random();
//   client->Put(id, "hello").Wait().IgnoreError();
//   absl::StatusOr<phalanx::Buffer> got = client->Get(id).Wait();
//   absl::string_view bytes = got->view();               // shared memory, read-only, no copy
//
// A client is a connection to the node daemon of its host over a Unix socket; bytes pass through
// shared memory. It links no gRPC and no protobuf.
//
// Threads. Every method of Client, Future, Buffer and WritableBuffer may be called from any thread.
// No thread is started unless ClientOptions::callback_thread asks for one: whoever waits drives the
// connection for everybody; programs with their own event loop watch fd() and call Poll(). (Within
// a Put of 32 MiB and more several make its pages, and have ended when it returns.) Callbacks run
// inside Wait, Poll or Close of whatever thread is there (or on the callback thread), never inside
// any other call, one that blocks included, and hold no lock of the client: they may call it.
//
// Fork. A child must not use a client made before fork: every call there returns
// FailedPrecondition, callbacks do not run, and the child's copy needs no care (its copies of the
// sockets are closed before fork returns). Buffers stay readable in the child; when their last copy
// in the *parent* is gone, pages that a child may still see are not reused. See docs/client.md.
//
// Errors, of every call: Unavailable (no daemon, or it died; text names the address),
// FailedPrecondition (closed, forked, or another protocol version), PermissionDenied (the daemon
// belongs to another user), InvalidArgument. Each text names the object, the node and the cause.
#ifndef PHALANX_CLIENT_H_
#define PHALANX_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/elements.h"
#include "phalanx/object_id.h"

namespace phalanx {

// The largest metadata of an object.
inline constexpr size_t kMaxObjectMetadataBytes = 4096;
// The most sources of one reduction.
inline constexpr size_t kMaxReductionSources = 16384;
// The most objects that one object refers to.
inline constexpr size_t kMaxObjectReferences = 16384;

namespace internal {
class Connection;
template <typename T>
struct FutureState;
struct BufferState;
struct WriterState;
struct StreamState;
class Access;
}  // namespace internal

// The result of a call that may take time. Copies share it. Dropping the last copy does not cancel
// the call.
template <typename T>
class Future {
 public:
  using Result = absl::StatusOr<T>;

  Future() = default;
  // Blocks until the result is there, driving the connection meanwhile. DeadlineExceeded when
  // `timeout` passes first: the call goes on, and may be waited for again.
  Result Wait(absl::Duration timeout = absl::InfiniteDuration()) const;
  // Never blocks, drives nothing.
  bool ready() const;
  // Runs `callback` once with the result, later (soon if it is there already). Any number of
  // callbacks.
  void OnReady(absl::AnyInvocable<void(const Result&)> callback) const;
  // The call ends with Cancelled unless its result is there already. A Put that was cancelled may
  // still take place.
  void Cancel() const;

  explicit Future(std::shared_ptr<internal::FutureState<T>> state) : state_(std::move(state)) {}

 private:
  friend class internal::Access;

  std::shared_ptr<internal::FutureState<T>> state_;
};

// Nothing, as a value.
struct Done {};

// Bytes of an object, in shared memory, read-only. Copies share them; the pages stay as they are
// until the last copy is gone, whatever happens to the object, the client or the daemon.
class Buffer {
 public:
  Buffer() = default;
  const char* data() const { return view().data(); }
  size_t size() const { return view().size(); }
  absl::string_view view() const;
  absl::Span<const char> span() const { return absl::Span<const char>(data(), size()); }
  // As given to Put; at most kMaxObjectMetadataBytes.
  absl::string_view metadata() const;
  const ObjectId& id() const;
  // The whole object's size; differs from size() for ranged Gets.
  uint64_t object_size() const;

  explicit Buffer(std::shared_ptr<const internal::BufferState> state) : state_(std::move(state)) {}

 private:
  friend class internal::Access;

  std::shared_ptr<const internal::BufferState> state_;
};

struct PutOptions {
  std::string metadata;
  // Into how many independently moved parts the object is cut, 1..64.
  int slices = 1;
  // End only when the directory has adopted this object, not already when it is sealed on this
  // node.
  bool wait_for_adoption = false;
  // The object is freed when nobody holds it any more (docs/lifetime.md); otherwise it stays until
  // it is deleted. This client holds it from now on, once, unless the call fails.
  bool owned = false;
  // Objects that the bytes refer to: held wherever there is a copy of this one. At most
  // kMaxObjectReferences.
  std::vector<ObjectId> refers_to = {};
  // How long to wait for memory when the node is full; ResourceExhausted then. (At once when the
  // machine itself has none.) With wait_for_adoption also how long for that, from Put or Seal on;
  // DeadlineExceeded then, and the object is there.
  absl::Duration timeout = absl::InfiniteDuration();
};

struct PutResult {
  // The id had a complete object of the same size already: it stays, the new bytes were dropped.
  // (Of another size: AlreadyExists.)
  bool already_existed = false;
};

// Memory of an object that is being made. Dropping it unsealed aborts the object.
class WritableBuffer {
 public:
  WritableBuffer() = default;
  WritableBuffer(WritableBuffer&&) = default;
  WritableBuffer& operator=(WritableBuffer&&) = default;

  // The object's place, to write into. Not to be touched after Seal or Abort (it becomes read-only,
  // or is unmapped).
  absl::Span<char> span() const;
  const ObjectId& id() const;

  // Bytes [0, n) are final: receivers may have them now. n grows from call to call. InvalidArgument
  // otherwise.
  absl::Status Publish(uint64_t n);
  // All bytes are final. Ends as Put does.
  Future<PutResult> Seal();
  void Abort();

  explicit WritableBuffer(std::shared_ptr<internal::WriterState> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal::WriterState> state_;
};

struct GetOptions {
  // DeadlineExceeded when it passes; an id that nobody has put yet is waited for until then. Zero:
  // only what is on this node already.
  absl::Duration timeout = absl::InfiniteDuration();
  // A part of the object: [offset, offset + length), cut at its end. OutOfRange when it begins
  // beyond the end.
  uint64_t offset = 0;
  uint64_t length = UINT64_MAX;
  // What to do about an object that was there and of which no copy is left, because nodes died.
  enum class OnLost {
    kWait,  // for somebody to put it again
    kFail,  // DataLoss, naming the node that had the last copy
  };
  OnLost on_lost = OnLost::kWait;
};

// Reads an object from its beginning while it arrives. What is read is provisional until Next has
// returned the end: Aborted
// ("what was read is void") means that the object was lost half-way and another attempt took its
// place; reading starts again at 0. Any thread, one at a time.
class ObjectStream {
 public:
  // The next bytes, at most `max_bytes`, as soon as there are any; empty at the end, when
  // everything read is final. The view is valid until the stream is gone or returned Aborted.
  absl::StatusOr<absl::string_view> Next(size_t max_bytes = SIZE_MAX,
                                         absl::Duration timeout = absl::InfiniteDuration());
  uint64_t object_size() const;
  absl::string_view metadata() const;

  explicit ObjectStream(std::shared_ptr<internal::StreamState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal::StreamState> state_;
};

struct ObjectStatus {
  bool known = false;     // somebody put it or began to
  bool deleted = false;   // it was there and was deleted
  bool complete = false;  // a complete copy is in the cluster; so whenever `local` is set
  bool local = false;     // a complete copy is on this node
  uint64_t size = 0;
  std::string metadata;
  int complete_copies = 0;
  int partial_copies = 0;
  int waiting = 0;      // nodes that wait for it
  int conflicts = 0;    // acknowledged Puts of another size under this id that were dropped
  bool owned = false;   // freed when nobody holds it
  int holders = 0;      // nodes on which somebody holds it, whether it is there or not
  bool sticky = false;  // nodes that come later get a copy
};

// What a reduction computes. Element i of the result is the op over the elements i of the sources,
// all of which have the same size, a whole number of elements. Partial results have the dtype, too:
// integers wrap, and each step of f16 and bf16 rounds. Shapes are no matter of the store.
struct ReduceOptions {
  DType dtype = DType::kF32;
  // For elements of several types, instead of `dtype`: run after run (elements.h), in bytes of the
  // result, whose size is the end of the last one. InvalidArgument: more than kMaxElementRuns, one
  // that is empty or ends at no multiple of kElementRunAlignment (but the last), a dtype that does
  // not have the op. A single run is another reduction than one of that dtype.
  std::vector<ElementRun> runs;
  // Bits are for integers, kMean is for floats.
  ReduceOp op = ReduceOp::kSum;
  enum class Order {
    // As the sources become ready: the fastest. Floats may differ in their last bits from one
    // reduction to the next, never from one reader of a result to another.
    kArrival,
    // The strict left fold of the list of sources, rounded at each step: the same bits whatever the
    // timing, the number of nodes or the failures. Slower: each step waits for the one before.
    kFixed,
  };
  Order order = Order::kArrival;
  // How many of the sources, those that come first; 0: all of them. The others may never come.
  size_t num_objects = 0;
  // More sources may be added, until the reduction is closed.
  bool open = false;
  enum class Root {
    kCaller,  // the result is made on this client's node
    kAny,     // on any node that suits
  };
  Root root = Root::kCaller;
  // Of the reduction, and of the wait for it. The latest that anybody gave counts for the
  // reduction, which goes on without who asked for it.
  absl::Duration timeout = absl::InfiniteDuration();
  // Bytes [offset, offset + length) of each source, whole elements both; length 0: all of it. With
  // runs the offset is a multiple of kElementRunAlignment, the length the end of the last run.
  uint64_t offset = 0;
  uint64_t length = 0;
  // The target is freed when nobody holds it, if all who ask for it before it is made say so. This
  // client holds it from now on, once, unless the call fails. Sources are held by who asks until
  // the call has ended.
  bool owned = false;
};

struct BroadcastOptions {
  // Names of nodes, at most 256; "*": all.
  std::vector<std::string> nodes = {"*"};
  // Nodes of these names that come later get it, too: until StopBroadcast, or the object is deleted
  // or freed, or no copy of it is left. Whoever asked may be gone meanwhile.
  bool sticky = false;
  // Of the wait; what was begun goes on after it.
  absl::Duration timeout = absl::InfiniteDuration();
};

// How far a broadcast has come, as the directory has heard, which nodes tell four times a second.
struct BroadcastProgress {
  int nodes = 0;         // that are to have it, of those that are there
  int complete = 0;      // of these, that have all of it
  int without_room = 0;  // that have no memory for it now, or have not taken it
  uint64_t bytes = 0;    // that have come to all of them together
  uint64_t total_bytes = 0;
  bool sticky = false;
};

struct ClientOptions {
  // "unix:/run/phalanx/node.sock" or a path. Empty: PHALANX_ADDRESS; when that is empty too, a
  // private cluster (`phalanx up`) is started that ends with this process.
  std::string address;
  // Prefixed to names by Id(name).
  std::string name_space = "default";
  absl::Duration connect_timeout = absl::Seconds(10);
  // Run callbacks on a thread of the client's own.
  bool callback_thread = false;
  // Capacity of a private cluster's node in bytes; 0: its default.
  uint64_t embedded_capacity = 0;
  // The `phalanx` executable of a private cluster, unless PHALANX_BINARY names one. Empty: see
  // Connect.
  std::string embedded_executable;
};

class Client : public std::enable_shared_from_this<Client> {
 public:
  // Unavailable when there is no daemon, DeadlineExceeded, or the errors above. NotFound when a
  // private cluster is needed and the `phalanx` executable is neither at PHALANX_BINARY, nor beside
  // this program, nor on PATH.
  static absl::StatusOr<std::shared_ptr<Client>> Connect(ClientOptions options = {});
  ~Client();

  // ---- writing
  // Copies `bytes` into the store before it returns. Ends when the object is sealed on this node.
  // From 1 MiB on it blocks, driving, until the node has the memory; smaller ones while 32 MiB of
  // them are not stored yet. Errors: AlreadyExists, ResourceExhausted, DeadlineExceeded.
  Future<PutResult> Put(const ObjectId& id, absl::string_view bytes, PutOptions options = {});
  // Memory to write `size` bytes into, which others can read as far as Publish says. Blocks while
  // the node is full, up to the timeout (ResourceExhausted).
  absl::StatusOr<WritableBuffer> Create(const ObjectId& id, uint64_t size, PutOptions options = {});

  // ---- reading
  // Errors: DeadlineExceeded, NotFound (deleted, or freed), ResourceExhausted (no room on this
  // node), OutOfRange, DataLoss (GetOptions::on_lost).
  Future<Buffer> Get(const ObjectId& id, GetOptions options = {});
  // All of them in the order given, or the first error.
  Future<std::vector<Buffer>> GetMany(absl::Span<const ObjectId> ids, GetOptions options = {});
  // The first `count` to arrive, with their positions in `ids`; the others are cancelled.
  struct Arrival {
    size_t index;
    Buffer buffer;
  };
  Future<std::vector<Arrival>> GetFirst(absl::Span<const ObjectId> ids, size_t count,
                                        GetOptions options = {});
  // Copies into the caller's memory; the number of bytes. InvalidArgument when the object (or
  // range) is larger than `into`.
  absl::StatusOr<size_t> GetInto(const ObjectId& id, absl::Span<char> into,
                                 GetOptions options = {});
  // Blocks until the object begins to arrive.
  absl::StatusOr<ObjectStream> GetStream(const ObjectId& id,
                                         absl::Duration timeout = absl::InfiniteDuration());

  // ---- reducing (the Hoplite paper, SIGCOMM 2021, section 3.4.2); collectives.h has more
  // Makes `target` out of `sources`, which may be put before or after, anywhere, several on one
  // node. Ends when the result is committed: it has a complete copy, and no failure changes its
  // bytes. It can be got from now on by anybody, and is relayed while it is being made. Its
  // metadata is that of the source that comes first in `sources` of those that went in and have
  // any, in whatever order they were folded; a result of a range has none. The same call again,
  // from anywhere, joins (whatever its root and timeout); once the result is there, it ends at
  // once. A source that is lost is replaced by the next to come, or by the same put again. Errors:
  // InvalidArgument, at once if it can be seen here (no source, one twice, `target` among them, the
  // nil id, op and dtype that do not go together, a range that is no whole elements, more sources
  // than kMaxReductionSources), else as soon as a source of another size comes; AlreadyExists
  // (another object has that id, or a reduction or result of other sources or arguments); NotFound
  // (`target` was deleted meanwhile); DeadlineExceeded; ResourceExhausted; DataLoss (the directory
  // was lost, and with it what was added to an open reduction); or why a source failed without
  // which there are too few.
  Future<Done> Reduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                      ReduceOptions options = {});
  // More sources for an open reduction. NotFound (there is no such reduction), FailedPrecondition
  // (it is not open), InvalidArgument.
  Future<Done> AddSources(const ObjectId& target, absl::Span<const ObjectId> sources,
                          absl::Duration timeout = absl::Seconds(30));
  // There are no more sources than were added until now: an open reduction of all ends with them.
  // Errors as AddSources.
  Future<Done> CloseReduction(const ObjectId& target, absl::Duration timeout = absl::Seconds(30));
  // Reduce, and the result: every participant makes the same call. The root is chosen freely.
  Future<Buffer> AllReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                           ReduceOptions options = {});
  // The sources that went into a result, in the order in which they were folded; empty for an
  // object that was put. NotFound (nobody has made it, or it was deleted), FailedPrecondition (it
  // is not complete).
  Future<std::vector<ObjectId>> ReducedFrom(const ObjectId& target,
                                            absl::Duration timeout = absl::Seconds(30));
  // For who was to put `id` and cannot: Gets of it end with `why`, and reductions do without it. A
  // later Put takes it back. InvalidArgument when `why` is OK, AlreadyExists when it is there.
  Future<Done> Fail(const ObjectId& id, const absl::Status& why,
                    absl::Duration timeout = absl::Seconds(30));

  // ---- lifetime (docs/lifetime.md)
  // This client holds these objects, each as often as it says so, whether anybody has put them or
  // not: until Release, Close, or the end of the process. None of these blocks or is answered.
  // Errors: InvalidArgument (the nil id), ResourceExhausted (the node has too much to read), or why
  // the connection ended. A client that holds more than 1,048,576 objects is closed by its node.
  absl::Status Hold(absl::Span<const ObjectId> ids);
  // Ends one hold of each; what is not held is passed over.
  void Release(absl::Span<const ObjectId> ids);
  // For a reference that leaves this process in a message, which takes the result with it: the node
  // holds the object for 60 s (`phalanx node --transit-patience`), or until it is claimed. The
  // token is 24 bytes that mean nothing to who passes them on. Errors as Hold.
  absl::StatusOr<std::string> Transit(const ObjectId& id);
  // Holds an object of which a message has come, and takes over from the token that came with it:
  // as soon as this hold counts, that of the sender's node ends. A token that was claimed before,
  // or whose time is over, does no harm. InvalidArgument for what is no token; errors as Hold.
  absl::Status Hold(const ObjectId& id, absl::string_view token);
  // The object is not owned any more: it stays until it is deleted. NotFound when nobody has put
  // it.
  Future<Done> Keep(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));

  // ---- managing
  Future<ObjectStatus> Stat(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // A complete copy is somewhere in the cluster.
  Future<bool> Contains(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // NotFound when nobody has put it.
  Future<Done> Delete(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // Has the named nodes fetch copies ("*": all); ends when they have been told, with their number.
  Future<int> Prefetch(const ObjectId& id, std::vector<std::string> nodes,
                       absl::Duration timeout = absl::Seconds(30));
  // Has nodes fetch copies, each from the next: a broadcast that is not waited for by who asks for
  // the object. Ends when each node that was named and there has a complete copy, with their
  // number, or is gone. Cancelled, or dropped, it goes on. Errors: NotFound (nobody has put it, it
  // was deleted meanwhile, or, unless it is sticky, no node has one of the names), DataLoss (no
  // copy is left), ResourceExhausted (some nodes have not taken it, it names them; or there are too
  // many broadcasts), DeadlineExceeded. A node that is full takes it when it has room again. A copy
  // made so may be evicted later like any that was fetched.
  Future<int> Broadcast(const ObjectId& id, BroadcastOptions options = {});
  // Nodes that come later do not get it any more; what is under way goes on. NotFound as above.
  Future<Done> StopBroadcast(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // To these nodes, whoever asked for it. NotFound when nobody has put it, or it was deleted.
  Future<BroadcastProgress> ProgressOf(const ObjectId& id, std::vector<std::string> nodes = {"*"},
                                       absl::Duration timeout = absl::Seconds(30));
  // Fetches a copy to this node and keeps it from eviction while the Buffer lives.
  Future<Buffer> Pin(const ObjectId& id, GetOptions options = {}) { return Get(id, options); }

  // ---- names
  ObjectId Id(absl::string_view name) const;

  // ---- driving
  // Readable when Poll has something to do. Watch it for reading (level-triggered).
  int fd() const;
  // Handles what has arrived and runs callbacks; returns how many ran. Blocks at most `timeout`.
  int Poll(absl::Duration timeout = absl::ZeroDuration());
  // Everything outstanding ends with FailedPrecondition ("closed"). Idempotent; the destructor
  // closes.
  void Close();

  // "unix:/..." of the daemon; its node's name; the directory it belongs to (for `phalanx
  // --directory=`).
  const std::string& address() const;
  const std::string& node_name() const;
  const std::string& directory() const;

 private:
  friend class internal::Access;

  explicit Client(std::shared_ptr<internal::Connection> connection);

  const std::shared_ptr<internal::Connection> connection_;
  std::string name_space_;  // constant after Connect
};

}  // namespace phalanx

#endif  // PHALANX_CLIENT_H_
