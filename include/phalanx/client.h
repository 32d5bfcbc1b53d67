// The client of Phalanx: puts, gets and reduces immutable objects by id. Calls return futures and
// can be made from any thread.
//
//   auto client = phalanx::Client::Connect().value();   // PHALANX_ADDRESS, or a private cluster
//   phalanx::ObjectId id = phalanx::ObjectId::Random();
//   client->Put(id, "hello").Wait().IgnoreError();
//   absl::StatusOr<phalanx::Buffer> got = client->Get(id).Wait();
//   absl::string_view bytes = got->view();               // shared memory, read-only, no copy
//
// A client is a connection to the node daemon of its host over a Unix socket. Bytes pass through
// shared memory. The client links neither gRPC nor protobuf.
//
// Threads. Any thread may call any method of Client, Future, Buffer and WritableBuffer. The client
// starts no thread unless ClientOptions::callback_thread is set: a thread that waits drives the
// connection for all threads. Programs with their own event loop watch fd() and call Poll(). (A Put
// of 32 MiB or more allocates pages with several threads, which end before it returns.) A callback
// runs inside Wait, Poll or Close of any thread, or on the callback thread. It never runs inside
// another call, even one that blocks. The client holds no lock during a callback, so a callback may
// call the client.
//
// Fork. A child process must not use a client that was made before the fork: every call returns
// FailedPrecondition, callbacks do not run, and the child need not close its copy (fork closes the
// child's copies of the sockets before it returns). Buffers stay readable in the child. After their
// last copy in the *parent* is gone, pages that a child can still see are not reused. See
// docs/client.md.
//
// Errors of every call: Unavailable (no daemon, or the daemon died; the text names the address),
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
#include "phalanx/scope.h"

namespace phalanx {

// The maximum size of the metadata of an object.
inline constexpr size_t kMaxObjectMetadataBytes = 4096;
// The maximum number of sources of one reduction.
inline constexpr size_t kMaxReductionSources = 16384;
// The maximum number of objects that one object can refer to.
inline constexpr size_t kMaxObjectReferences = 16384;
// The greatest number of primary copies that a client can ask for.
inline constexpr int kMaxObjectCopies = 64;

namespace internal {
class Connection;
template <typename T>
struct FutureState;
struct BufferState;
struct WriterState;
struct StreamState;
class Access;
}  // namespace internal

class Membership;
struct JoinOptions;

// The result of an asynchronous call. Copies share it. Dropping the last copy does not cancel the
// call.
template <typename T>
class Future {
 public:
  using Result = absl::StatusOr<T>;

  Future() = default;
  // Blocks until the result is available, and drives the connection meanwhile. Returns
  // DeadlineExceeded if `timeout` passes first; the call continues, and the caller can wait again.
  Result Wait(absl::Duration timeout = absl::InfiniteDuration()) const;
  // Returns true if the result is available. Never blocks and does not drive the connection.
  bool ready() const;
  // Runs `callback` once with the result, after OnReady returns; soon if the result is already
  // available. A future can have any number of callbacks.
  void OnReady(absl::AnyInvocable<void(const Result&)> callback) const;
  // Ends the call with Cancelled if it has no result yet. A cancelled Put can still take effect.
  void Cancel() const;

  explicit Future(std::shared_ptr<internal::FutureState<T>> state) : state_(std::move(state)) {}

 private:
  friend class internal::Access;

  std::shared_ptr<internal::FutureState<T>> state_;
};

// The value of a call that returns nothing.
struct Done {};

// Bytes of an object, read-only, in shared memory. Copies share them. The pages do not change until
// the last copy is gone, even if the object is deleted or the client or the daemon ends.
class Buffer {
 public:
  Buffer() = default;
  const char* data() const { return view().data(); }
  size_t size() const { return view().size(); }
  absl::string_view view() const;
  absl::Span<const char> span() const { return absl::Span<const char>(data(), size()); }
  // The metadata given to Put; at most kMaxObjectMetadataBytes.
  absl::string_view metadata() const;
  const ObjectId& id() const;
  // The size of the whole object. It differs from size() for ranged Gets.
  uint64_t object_size() const;

  explicit Buffer(std::shared_ptr<const internal::BufferState> state) : state_(std::move(state)) {}

 private:
  friend class internal::Access;

  std::shared_ptr<const internal::BufferState> state_;
};

struct PutOptions {
  std::string metadata;
  // The number of slices, 1..64: parts of the object that are transferred independently. With two,
  // a large object that 64 nodes or more get at once takes about half of the time
  // (docs/protocol.md, "Two trees"); streaming readers see the beginning of each part first.
  int slices = 1;
  // Ends the call only when the directory has adopted this object, instead of when it is sealed on
  // this node.
  bool wait_for_adoption = false;
  // The object is freed when its last hold ends (docs/lifetime.md). Otherwise it exists until it is
  // deleted. This client holds it once from the call on, unless the call fails.
  bool owned = false;
  // Objects that the bytes refer to. Each node that has a copy of this object holds them. At most
  // kMaxObjectReferences.
  std::vector<ObjectId> refers_to = {};
  // The time to live: when it has passed, the directory deletes the object, as Delete does, even if
  // clients hold it. It is counted from the creation (the first byte, not the seal), on the
  // directory's monotonic clock. If the object exists already, the time of that object stays. More
  // than a hundred years is infinite; zero and less is InvalidArgument.
  absl::Duration ttl = absl::InfiniteDuration();
  // Primary copies on so many different hosts are wanted, 1 to kMaxObjectCopies (Replicate); 0: one
  // copy, and no number of them is kept. If the object exists already, its number stays.
  int copies = 0;
  // Ends the call only when the copies are there, as Replicate does, within the timeout. If the
  // call fails meanwhile, the object exists, and its copies are still made.
  bool wait_for_copies = false;
  // The scope of the object: EndScope frees it. If its name is empty, the object is in no scope.
  Scope scope = {};
  // Limits the wait for memory if the node is full; the call then ends with ResourceExhausted (at
  // once if the machine itself has no memory). With wait_for_adoption it also limits that wait,
  // from Put or Seal on; the call then ends with DeadlineExceeded, and the object exists.
  absl::Duration timeout = absl::InfiniteDuration();
};

struct PutResult {
  // The id already had a complete object of the same size. That object stays, and the new bytes are
  // dropped. (With another size the call returns AlreadyExists.)
  bool already_existed = false;
};

// Memory of an object that the caller writes. Dropping it unsealed aborts the object.
class WritableBuffer {
 public:
  WritableBuffer() = default;
  WritableBuffer(WritableBuffer&&) = default;
  WritableBuffer& operator=(WritableBuffer&&) = default;

  // The memory to write into. The caller must not touch it after Seal or Abort, which make it
  // read-only or unmap it.
  absl::Span<char> span() const;
  const ObjectId& id() const;

  // Declares bytes [0, n) final, so that receivers can read them. Returns InvalidArgument if n
  // decreases or exceeds the size.
  absl::Status Publish(uint64_t n);
  // Declares all bytes final. The future ends like that of Put.
  Future<PutResult> Seal();
  void Abort();

  explicit WritableBuffer(std::shared_ptr<internal::WriterState> state)
      : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal::WriterState> state_;
};

struct GetOptions {
  // The call ends with DeadlineExceeded after this time, also if no client has put the id yet.
  // Zero: only an object that is already on this node.
  absl::Duration timeout = absl::InfiniteDuration();
  // Selects the bytes [offset, offset + length), cut at the end of the object. The call returns
  // OutOfRange if `offset` is beyond the end.
  uint64_t offset = 0;
  uint64_t length = UINT64_MAX;
  // The behaviour for an object that has lost its last copy because nodes died.
  enum class OnLost {
    kWait,  // until a client puts it again or a holder returns
    kFail,  // DataLoss that names the node of the last copy
  };
  OnLost on_lost = OnLost::kWait;
  // The scope that the object was put into, if the caller knows it: the call ends with NotFound
  // when the scope ends, and at once if it has ended. Without it, a Get of an object that was freed
  // with its scope waits like one of an id that no client has put.
  Scope scope = {};
};

// Reads an object from its beginning while it arrives. The bytes are provisional until Next returns
// the end. Aborted ("what was read is void") means that this generation of the object was lost and
// another one has replaced it; reading restarts at 0. Any thread, one at a time.
class ObjectStream {
 public:
  // Returns the next bytes, at most `max_bytes`, as soon as some are available. Returns an empty
  // view at the end, when everything read is final. The view is valid until the stream is destroyed
  // or returns Aborted.
  absl::StatusOr<absl::string_view> Next(size_t max_bytes = SIZE_MAX,
                                         absl::Duration timeout = absl::InfiniteDuration());
  uint64_t object_size() const;
  absl::string_view metadata() const;

  explicit ObjectStream(std::shared_ptr<internal::StreamState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal::StreamState> state_;
};

struct ObjectStatus {
  bool known = false;     // a client has put it or is writing it
  bool deleted = false;   // it existed and was deleted
  bool complete = false;  // the cluster has a complete copy; always set with `local`
  bool local = false;     // this node has a complete copy
  uint64_t size = 0;
  std::string metadata;
  int complete_copies = 0;
  int partial_copies = 0;
  int waiting = 0;     // nodes that wait for it
  int conflicts = 0;   // acknowledged Puts of another size under this id that were dropped
  bool owned = false;  // freed when its last hold ends
  // Primary copies that are wanted, each on another host (0: no number of them), and how many hosts
  // have one.
  int copies_wanted = 0;
  int copies_there = 0;
  int holders = 0;      // nodes that hold it, even if it does not exist
  bool sticky = false;  // nodes that join later get a copy
  // What is left of the time to live (PutOptions::ttl); infinite if the object has none.
  absl::Duration ttl = absl::InfiniteDuration();
  // The name that the id was derived from and its namespace; empty if the cluster knows none.
  std::string name;
  std::string name_space;
};

// What a reduction computes. Element i of the result is the op over the elements i of all sources.
// All sources have the same size, a whole number of elements. Partial results have the dtype of the
// elements: integers wrap, and each step of f16 and bf16 rounds. The store does not know shapes.
struct ReduceOptions {
  DType dtype = DType::kF32;
  // For elements of several types, instead of `dtype`: consecutive runs (elements.h), in bytes of
  // the result. The end of the last run is the size of the result. Returns InvalidArgument if there
  // are more than kMaxElementRuns, a run is empty, a run other than the last ends at no multiple of
  // kElementRunAlignment, or a dtype does not support the op. A single run is not the same
  // reduction as its dtype alone.
  std::vector<ElementRun> runs;
  // Bit ops need integers, kMean needs floats.
  ReduceOp op = ReduceOp::kSum;
  enum class Order {
    // In the order in which sources become ready: the fastest. Floats can differ in their last bits
    // between two reductions, but never between two readers of one result.
    kArrival,
    // The strict left fold of the list of sources, rounded at each step: the same bits regardless
    // of timing, number of nodes and failures. Slower, since each step waits for the previous one.
    kFixed,
  };
  Order order = Order::kArrival;
  // The number of sources to fold: the first ones to arrive. 0: all of them. The others need not
  // exist.
  size_t num_objects = 0;
  // Sources can be added until the reduction is closed, by any client that knows the target. An
  // open reduction ends with Cancelled, for callers and for Gets of the target, when no client is
  // left, on any node, that has requested it or added to it: no client would close it. Once it is
  // closed it continues without clients.
  bool open = false;
  enum class Root {
    kCaller,  // the node of this client computes the result
    kAny,     // the directory chooses the node
  };
  Root root = Root::kCaller;
  // Limits the reduction and the wait for it. The latest timeout of all requests applies to the
  // reduction, which continues without its requesters.
  absl::Duration timeout = absl::InfiniteDuration();
  // The bytes [offset, offset + length) of each source, both a whole number of elements. If length
  // is 0, the whole source. With runs, the offset is a multiple of kElementRunAlignment and the
  // length is the end of the last run.
  uint64_t offset = 0;
  uint64_t length = 0;
  // The metadata that every source must have, at most 4 KiB; the reduction ends with
  // InvalidArgument if one that is to be folded has another. Empty: not compared. Requests that
  // differ here join one reduction, which compares what its first request named.
  std::string source_metadata;
  // The target is owned: it is freed when its last hold ends, if all requests before its creation
  // set this field. This client holds it once from the call on, unless the call fails. The client
  // holds the sources until the call has ended.
  bool owned = false;
};

struct BroadcastOptions {
  // Node names, at most 256, or "*" for all nodes.
  std::vector<std::string> nodes = {"*"};
  // Nodes of these names that join later also get the object, until StopBroadcast, until the object
  // is deleted or freed, or until no copy is left. The mark does not depend on the client that set
  // it.
  bool sticky = false;
  // Limits the wait. The broadcast continues after it.
  absl::Duration timeout = absl::InfiniteDuration();
};

// The progress of a broadcast, as known to the directory. Nodes report to it four times per second.
struct BroadcastProgress {
  int nodes = 0;         // connected nodes that the names select
  int complete = 0;      // of these, nodes with a complete copy
  int without_room = 0;  // nodes that have no memory for it or have declined it
  uint64_t bytes = 0;    // received by all these nodes together
  uint64_t total_bytes = 0;
  bool sticky = false;
};

struct ClientOptions {
  // "unix:/run/phalanx/node.sock" or a path. If empty, PHALANX_ADDRESS. If that is empty, too,
  // Connect starts a private cluster (`phalanx up`) that ends with this process.
  std::string address;
  // The namespace of Id(name).
  std::string name_space = "default";
  absl::Duration connect_timeout = absl::Seconds(10);
  // Runs callbacks on a thread of the client.
  bool callback_thread = false;
  // The capacity of the private cluster's node in bytes: at least
  // 1 MiB, or 0 for its default.
  uint64_t embedded_capacity = 0;
  // The `phalanx` executable of a private cluster, unless PHALANX_BINARY names one. If empty, see
  // Connect.
  std::string embedded_executable;
};

class Client : public std::enable_shared_from_this<Client> {
 public:
  // Returns Unavailable if there is no daemon, DeadlineExceeded, or the errors above. Returns
  // NotFound if a private cluster is needed and the `phalanx` executable is neither at
  // PHALANX_BINARY, nor next to this program or this library, nor in ../bin of the library's
  // folder, nor on PATH.
  static absl::StatusOr<std::shared_ptr<Client>> Connect(ClientOptions options = {});
  ~Client();

  // ---- writing
  // Copies `bytes` into the store before it returns. The future ends when the object is sealed on
  // this node. For 1 MiB and more, Put blocks and drives the connection until the node has memory;
  // smaller Puts block only while 32 MiB of them are not stored yet. Errors: AlreadyExists,
  // ResourceExhausted, DeadlineExceeded.
  Future<PutResult> Put(const ObjectId& id, absl::string_view bytes, PutOptions options = {});
  // Returns memory to write `size` bytes into. Other clients can read the bytes that Publish
  // declares final. Blocks while the node is full, up to the timeout, and then returns
  // ResourceExhausted.
  absl::StatusOr<WritableBuffer> Create(const ObjectId& id, uint64_t size, PutOptions options = {});

  // ---- reading
  // Errors: DeadlineExceeded, NotFound (deleted, or freed), ResourceExhausted (no memory on this
  // node), OutOfRange, DataLoss (GetOptions::on_lost).
  Future<Buffer> Get(const ObjectId& id, GetOptions options = {});
  // Returns all objects in the order of `ids`, or the first error.
  Future<std::vector<Buffer>> GetMany(absl::Span<const ObjectId> ids, GetOptions options = {});
  // Returns the first `count` objects to arrive, with their positions in `ids`. Cancels the other
  // Gets.
  struct Arrival {
    size_t index;
    Buffer buffer;
  };
  Future<std::vector<Arrival>> GetFirst(absl::Span<const ObjectId> ids, size_t count,
                                        GetOptions options = {});
  // Copies the object into memory of the caller and returns the number of bytes. Returns
  // InvalidArgument if the object (or range) is larger than `into`.
  absl::StatusOr<size_t> GetInto(const ObjectId& id, absl::Span<char> into,
                                 GetOptions options = {});
  // Blocks until the object begins to arrive.
  absl::StatusOr<ObjectStream> GetStream(const ObjectId& id,
                                         absl::Duration timeout = absl::InfiniteDuration());

  // ---- jobs: job.h, docs/jobs.md
  // This client's task joins the job. Empty names are those of PHALANX_JOB and PHALANX_TASK, which
  // `phalanx launch` sets. Returns when the directory has answered; the other tasks can come later.
  // Errors: InvalidArgument (also a world or rank that contradicts the job), AlreadyExists (another
  // task has the rank), ResourceExhausted, DeadlineExceeded.
  absl::StatusOr<Membership> Join(std::string job, std::string task, JoinOptions options);

  // ---- reducing (the Hoplite paper, SIGCOMM 2021, section 3.4.2); collectives.h has more
  // Reduces `sources` into `target`. Sources can be put before or after the call, on any nodes. The
  // future ends when the result is committed: it has a complete copy, and no failure changes its
  // bytes. Every client can then get the result; nodes relay it while it is computed.
  //
  // The metadata of the result is that of the first source, in the order of `sources`, that was
  // folded and has any, regardless of the order of the fold. The result of a range has no metadata.
  //
  // The same call again, from any client, joins the reduction (root and timeout are not compared).
  // If the result exists, the call ends at once. A lost source is replaced by the next source to
  // arrive, or by the same source if it is put again.
  //
  // Errors: InvalidArgument (no source, a duplicate source, `target` among the sources, the nil id,
  // an op that does not fit the dtype, a range that is no whole number of elements, more sources
  // than kMaxReductionSources; or, as soon as it arrives, a source of another size); AlreadyExists
  // (another object has the id of `target`, or a reduction or result of other sources or
  // arguments); NotFound (`target` was deleted meanwhile); DeadlineExceeded; ResourceExhausted;
  // DataLoss (the directory was lost, and with it sources that were added to an open reduction);
  // Cancelled (an open reduction whose last client ended before it was closed); or
  // the error of a failed source without which too few are left.
  Future<Done> Reduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                      ReduceOptions options = {});
  // Adds sources to an open reduction. Errors: NotFound (no such reduction), FailedPrecondition (it
  // is not open), InvalidArgument.
  Future<Done> AddSources(const ObjectId& target, absl::Span<const ObjectId> sources,
                          absl::Duration timeout = absl::Seconds(30));
  // Closes an open reduction: no more sources can be added, and one of all sources ends when these
  // are folded. Errors as AddSources.
  Future<Done> CloseReduction(const ObjectId& target, absl::Duration timeout = absl::Seconds(30));
  // Reduces and returns the result. Every participant makes the same call. The directory chooses
  // the root.
  Future<Buffer> AllReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                           ReduceOptions options = {});
  // Returns the folded sources of a result in the order of the fold; empty for an object that was
  // put. Errors: NotFound (the object does not exist or was deleted), FailedPrecondition (it is not
  // complete).
  Future<std::vector<ObjectId>> ReducedFrom(const ObjectId& target,
                                            absl::Duration timeout = absl::Seconds(30));
  // Declares that the producer of `id` has failed: Gets of it end with `why`, and reductions
  // continue without it. A later Put cancels this. Returns InvalidArgument if `why` is OK,
  // AlreadyExists if the object exists.
  Future<Done> Fail(const ObjectId& id, const absl::Status& why,
                    absl::Duration timeout = absl::Seconds(30));

  // ---- lifetime (docs/lifetime.md)
  // Adds one hold of this client on each of these objects, which need not exist. A hold lasts until
  // Release, Close or the end of the process. The functions of this section, except Keep, neither
  // block nor wait for an answer. Errors: InvalidArgument (the nil id), ResourceExhausted (the node
  // has too much to read), or the error that ended the connection. The node closes a client that
  // holds more than 1,048,576 objects.
  absl::Status Hold(absl::Span<const ObjectId> ids);
  // Ends one hold of each object. Ignores objects that the client does not hold.
  void Release(absl::Span<const ObjectId> ids);
  // Returns a token for a reference that leaves this process in a message. The node holds the
  // object for 60 s (`phalanx node --transit-patience`) or until the token is claimed. The token
  // has 24 opaque bytes, to be sent with the message. Errors as Hold.
  absl::StatusOr<std::string> Transit(const ObjectId& id);
  // Holds an object whose reference arrived in a message, and claims the token of the message: as
  // soon as this hold is registered, the hold of the sender's node ends. A token that was claimed
  // before or has expired has no effect. Returns InvalidArgument for a malformed token; errors as
  // Hold.
  absl::Status Hold(const ObjectId& id, absl::string_view token);
  // The object is no longer owned: it exists until it is deleted. Returns NotFound if the object
  // does not exist.
  Future<Done> Keep(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));

  // ---- managing
  Future<ObjectStatus> Stat(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // Returns true if the cluster has a complete copy.
  Future<bool> Contains(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // Returns NotFound if the object does not exist.
  Future<Done> Delete(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // Orders nodes to fetch copies, each relaying to the next, and returns the number of nodes that
  // have one. Ends when each named node that is connected has a complete copy or has disconnected.
  // A broadcast continues after it is cancelled or its future is dropped: a caller that only wants
  // the transfers to start drops the future. If the client is to close at once, it first waits for
  // ProgressOf, which returns after the directory has received the broadcast. Errors: NotFound (the
  // object does not exist or was deleted meanwhile), InvalidArgument (if not sticky: no node has
  // one of the names; the text names those that there are), DataLoss (no copy is left),
  // ResourceExhausted (some nodes, which the text names, have declined it; or there are too many
  // broadcasts), DeadlineExceeded. A full node takes the object when it has memory. A copy made by
  // a broadcast can be evicted like any fetched copy.
  Future<int> Broadcast(const ObjectId& id, BroadcastOptions options = {});
  // Stops a sticky broadcast: nodes that join later do not get the object. Transfers in progress
  // continue. NotFound as above.
  Future<Done> StopBroadcast(const ObjectId& id, absl::Duration timeout = absl::Seconds(30));
  // Asks for primary copies of the object on `copies` different hosts, 1 to kMaxObjectCopies, and
  // waits until they are there; on as many hosts as the cluster has if it has fewer. A host is what
  // the label "host" of its nodes says, else the host part of their addresses. Primary copies are
  // never evicted. They are made again on other hosts when nodes die, more are made when nodes
  // join, and surplus ones become secondary, until the object is deleted or another number is asked
  // for: this does not depend on the client that asked. 1 keeps one primary copy. Returns the
  // number of hosts that have one. NotFound (the object does not exist or was deleted meanwhile),
  // DataLoss, ResourceExhausted (no node on another host has room, or too many requests),
  // DeadlineExceeded; after the last two the copies are still made when there is room. Cancel ends
  // the wait only.
  Future<int> Replicate(const ObjectId& id, int copies,
                        absl::Duration timeout = absl::InfiniteDuration());
  // Returns the progress of the broadcasts of this object to these nodes, of any client. Returns
  // NotFound if the object does not exist or was deleted.
  Future<BroadcastProgress> ProgressOf(const ObjectId& id, std::vector<std::string> nodes = {"*"},
                                       absl::Duration timeout = absl::Seconds(30));
  // Fetches a copy to this node. The copy is not evicted while the Buffer exists.
  Future<Buffer> Pin(const ObjectId& id, GetOptions options = {}) { return Get(id, options); }

  // Ends a scope, and all scopes with its name and smaller numbers: their objects are freed on all
  // nodes, whether or not they are held; buffers that clients have stay valid. Returns when every
  // node that is in touch with the directory has dropped its copies. From then on, for ten minutes
  // at least, Puts into these scopes and Gets that name one (GetOptions::scope) are refused. No
  // tombstone is kept for an object. A scope that no object is in can be ended, too.
  // InvalidArgument, DeadlineExceeded (the text names the shards that have not answered; call
  // again).
  Future<Done> EndScope(const Scope& scope, absl::Duration timeout = absl::Seconds(30));

  // ---- names
  // Returns the id of a name in the client's namespace, or in another one: the same id in every
  // process (ObjectId::FromName). The client remembers its last 65,536 names. A Put, Create, Reduce
  // or Get of such an id sends the name along, which stays with the object on every node: Stat and
  // the command show it, and so do the errors of this client. Names and namespaces of more than 255
  // bytes, with control characters or not in UTF-8 derive ids as well, but are not kept.
  ObjectId Id(absl::string_view name) const;
  ObjectId Id(absl::string_view name_space, absl::string_view name) const;

  // ---- driving
  // Readable if Poll has something to do. Watch it for reading (level-triggered).
  int fd() const;
  // Handles received messages and runs callbacks. Returns the number of callbacks that ran. Blocks
  // at most `timeout`.
  int Poll(absl::Duration timeout = absl::ZeroDuration());
  // Ends all outstanding calls with FailedPrecondition ("closed"). Idempotent; the destructor calls
  // it.
  void Close();

  // The address of the daemon ("unix:/..."), the name of its node, and the address of its directory
  // (for `phalanx --directory=`).
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
