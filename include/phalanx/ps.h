// A parameter server: servers hold tables, workers push updates to them and pull values, each at
// its own pace. docs/parameter-server.md explains which consistency to take, and what survives the
// deaths of servers and workers.
//
//   // a server
//   auto server = phalanx::ps::Server::Join(*client).value();
//   status = server.AddTable({.name = "w", .keys = 784, .sync = Sync::kSsp, .staleness = 3,
//                             .update = Update::kSgd});
//   return server.Run();                                        // until all workers have left
//
//   // a worker
//   auto worker = phalanx::ps::Worker::Join(*client).value();
//   auto table = worker.Open<float>("w").value();
//   std::vector<float> w(784);
//   while (table.clock() < 100) {
//     status = table.PullDense(absl::MakeSpan(w)).Wait().status();
//     if (!status.ok()) return status;
//     table.PushDense(Gradient(w));
//     status = table.Clock();
//     if (!status.ok()) return status;
//   }
//   return worker.Leave();
//
// Servers and workers are the members of two roles of one job. Server r has part r of each table. A
// process that dies is started again (by `phalanx launch --restarts`): a server goes on from its
// last snapshot, and the workers send again what it lacks; a worker goes on with the clock that the
// servers know, and what it pushes again in that clock is ignored. Calls wait meanwhile.
//
// Fork: in a child every call returns FailedPrecondition.
#ifndef PHALANX_PS_H_
#define PHALANX_PS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/elements.h"
#include "phalanx/group.h"
#include "phalanx/job.h"
#include "phalanx/ps_barrier.h"
#include "phalanx/ps_table.h"

namespace phalanx::ps {

namespace internal {
class Part;
class ServerState;
class WorkerState;
struct OpenTable;
// Rows of consecutive keys from `first` on, one behind the other.
struct RowRun {
  Key first = 0;
  uint64_t keys = 0;
  void* values = nullptr;
};
// The elements of one row; null: there is none.
struct RowValues {
  void* values = nullptr;
  uint32_t length = 0;
};
}  // namespace internal

struct Options {
  // Empty or 0: PHALANX_JOB, PHALANX_TASK and PHALANX_WORLD, which `phalanx launch` sets. `world`
  // is the number of servers, or of workers: of those that join with these options.
  std::string job = {};
  std::string task = {};
  int world = 0;
  // The roles of the job. `server_role` and `worker_role` are the same for all processes.
  std::string server_role = "server";
  std::string worker_role = "worker";
  // How long Join, a Push or Clock that waits for snapshots, Barrier and Leave wait for the others;
  // PushDense and PullDense, for memory of the node; and Run, when no worker lives.
  absl::Duration peer_timeout = absl::Minutes(5);
  // Of servers: a directory where they also write their snapshots, and from which the job goes on
  // when all nodes have ended. All servers have one, or none; it exists. Empty:
  // PHALANX_CHECKPOINT_DIR, else none.
  std::string checkpoint_dir = {};
  // Of a server. Its next life answers pulls of tables with kSsp and kAsp when all workers that
  // live have sent it again what the life before had of them, so that none misses a push whose
  // future has ended. Each worker has to drive its client then: by a call that waits, or
  // ClientOptions::callback_thread.
  bool await_workers = false;
};

// Whose push an own update is given. With kBsp a push is the sum of all workers' pushes of a clock,
// and `worker` is -1.
struct Pusher {
  int worker = -1;
  uint64_t clock = 0;
  uint64_t life = 0;
};

// Rows of a server's part, for an own update. Valid during the call.
template <typename T>
class Rows {
 public:
  // The values of a key of the batch: `width`, or those that the row has if the table has lengths
  // (TableSpec::lengths). Makes the row. Valid until the next row is made, or this one is resized.
  // Empty, with null as data(): this server does not have the key.
  absl::Span<T> operator[](Key key) const {
    // Mostly the rows of a dense table lie in the order of their keys, and none is looked up.
    if (key - run_.first < run_.keys) {
      return {static_cast<T*>(run_.values) + (key - run_.first) * width_, width_};
    }
    return SpanOf(RowOf(key));
  }
  // Of a table with lengths: the row after it got this length; makes the row. The values that it
  // keeps stay, and new ones are 0. Empty, with null as data(), and nothing has changed: this
  // server does not have the key, `length` is greater than width(), or the table has no lengths.
  absl::Span<T> Resize(Key key, uint32_t length) const { return SpanOf(ResizeRow(key, length)); }
  // The rows of all these keys, which increase as those of a batch do, one behind the other; so an
  // update can be one loop over them. Empty, if they do not lie so: they do if the table is dense
  // and split by range, and the keys are consecutive, as those of AnyTable::PushDense are.
  absl::Span<T> Run(absl::Span<const Key> keys) const {
    const bool run = !keys.empty() && keys.back() - keys.front() == keys.size() - 1 &&
                     keys.front() - run_.first < run_.keys && keys.back() - run_.first < run_.keys;
    if (!run) return {};
    T* const values = static_cast<T*>(run_.values) + (keys.front() - run_.first) * width_;
    return {values, keys.size() * width_};
  }
  uint32_t width() const { return width_; }

 private:
  friend class Server;
  Rows(internal::Part& part, uint32_t width);
  static absl::Span<T> SpanOf(const internal::RowValues& row) {
    return {static_cast<T*>(row.values), row.length};
  }
  internal::RowValues RowOf(Key key) const;
  internal::RowValues ResizeRow(Key key, uint32_t length) const;

  internal::Part& part_;
  const uint32_t width_;
  const internal::RowRun run_;
};

// A request that a worker has made, and what is answered.
struct RequestInfo {
  int worker = 0;
  int32_t head = 0;
  std::string body;
};
struct Reply {
  int32_t head = 0;
  std::string body;
};

// One thread at a time, but Stop, Drop, Finish, Members and barriers.
class Server {
 public:
  // Joins the job as a server. A spare (`phalanx launch --spares`) waits here for the part of a
  // server that has died. Errors: those of Client::Join; Cancelled (a spare: all servers have
  // left).
  static absl::StatusOr<Server> Join(Client& client, Options options = {});
  // Without the end of Run, the others see that this server has died, and wait for its next life.
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  int rank() const;
  int servers() const;
  uint64_t life() const;

  // All servers add the same tables in the same order, before Run. AlreadyExists, InvalidArgument.
  absl::Status AddTable(const TableSpec& spec);
  // With an own update: update(const Pusher&, absl::Span<const Key>, absl::Span<const T> values,
  // Rows<T>) -> absl::Status, where values are keys.size() rows; or, if the table has lengths
  // (TableSpec::lengths), update(const Pusher&, absl::Span<const Key>, absl::Span<const T> values,
  // absl::Span<const uint32_t> lengths, Rows<T>), where row i of `values` has lengths[i] elements.
  // InvalidArgument: it takes lengths and the table has none, or the reverse. It runs in the thread
  // of Run. An error, or an exception, ends all calls for the table with an error that names both.
  // The spec's dtype is that of T, and its wire too unless that is given: f16 or bf16 for float.
  template <typename T, typename F>
  absl::Status AddTable(TableSpec spec, F update);
  // `lengths` is empty unless the table has lengths.
  using OwnUpdate =
      std::function<absl::Status(const Pusher& from, absl::Span<const Key> keys, const void* values,
                                 absl::Span<const uint32_t> lengths, internal::Part& part)>;
  absl::Status AddTableWith(const TableSpec& spec, OwnUpdate update);
  // Answers Worker::Request, in the thread of Run. A request can come again, also to the next life
  // of this server: what it changes has to allow for that.
  void OnRequest(std::function<absl::StatusOr<Reply>(const RequestInfo& request)> answer);

  // Serves until all workers have left, and returns OK; or until Stop, with Cancelled. Restores the
  // snapshots of an earlier life first, or files of the directory of checkpoints. Errors: those of
  // files, which name the file and what to do; Aborted (a next life of this server has joined);
  // DataLoss (no copy of its snapshot is left); DeadlineExceeded (no worker has lived for
  // peer_timeout, and not all have left: names those; with tables that all have OnLoss::kDrop, Run
  // returns OK then, if those have died); or the error of the connection with the node.
  absl::Status Run();
  // Ends Run. Any thread.
  void Stop();
  // The same, and frees the snapshots before it: no next life goes on from them. Any thread.
  void Drop();
  // From now on Run does not wait for workers that have not joined, or have died: it ends when no
  // worker lives. Any thread.
  void Finish();
  // Before Run: a table whose snapshots do not fit into the store, or could not be written for two
  // minutes, goes on without them, after `unsaved` was called in the thread of Run. Without this,
  // pushes wait when their workers keep too much.
  void OnUnsaved(std::function<void(absl::string_view table, const absl::Status& why)> unsaved);
  // As those of Worker, of groups with servers. Before Run, in its thread: of kServers alone, as
  // workers join when all servers are in Run. One of kAll is waited for in another thread, or begun
  // before Run with BarrierAsync. Server 0 counts those that come, while any of its threads is in a
  // call of its client: barriers wait for its Join, and for its next life. Its own first call can
  // ask nodes, for up to peer_timeout, before it has come, BarrierAsync too.
  absl::Status Barrier(BarrierGroup group, const BarrierOptions& options = {}) {
    return BarrierAsync(group, options).Wait().status();
  }
  Future<Done> BarrierAsync(BarrierGroup group, const BarrierOptions& options = {});
  // Clocks of each table, and which pulls wait for whom, as text.
  std::string Describe() const;
  // All members of a role of the job, in the order of ranks: which live, have left, or have died.
  // As Membership::Members; empty: the own role. Any thread.
  std::vector<Member> Members(absl::string_view role) const;

 private:
  explicit Server(std::unique_ptr<internal::ServerState> state);

  std::unique_ptr<internal::ServerState> state_;
};

class Worker;

// Which server has a key of a table with Split::kOwn: a function of the workers' program. It writes
// the rank of a server, 0 to Worker::servers() - 1, for each of the keys, which increase strictly;
// `servers` has -1 for each of them before. It is called for each push and pull with keys, in the
// thread that makes the call and without a lock; by several threads at once, if several make calls.
//
// It depends on the key alone, and all workers have the same one, in each of their lives and in a
// run of the job that goes on from files: servers know nothing of it, and a key that is given to
// another one than before has another row there. A key without a server, a server that there is
// not, an error or an exception is an InvalidArgument of the call; nothing of it was sent.
using Slicer = std::function<absl::Status(absl::Span<const Key> keys, absl::Span<int32_t> servers)>;

// A worker's view of a table. A value; copies share their worker. Any thread; calls of several
// threads for one table have some order.
//
// A call returns when what it pushes is copied; its future ends when the servers have answered.
// Errors of all futures: InvalidArgument (keys that do not increase strictly, or that the table
// does not have; 2^32 keys or more; sizes that do not fit), ResourceExhausted, DataLoss (a server
// has lost its part and had no snapshots), Unavailable (a worker has died and the table is to fail
// then), Internal (the table's own update has failed), Aborted (this life of the worker has ended),
// Cancelled. Wait has the deadline, and its error names the servers that have not answered; what
// ends a wait ends no call.
class AnyTable {
 public:
  // `values` is keys.size() rows of the table's dtype. Waits while more than
  // TableSpec::snapshot_bytes of this worker's pushes are in no snapshot, also if other threads
  // push: DeadlineExceeded after peer_timeout. A push that is refused does not count, and Clock
  // returns its error: the future can be dropped.
  //
  // A later life of the worker makes the pushes of its clock again: the first, the second and so on
  // that a server has of an earlier life do not count again there. So they are the same pushes, in
  // the same order, in each life; several threads that push have to agree on an order, and a push
  // that was refused is made again before any other one. A program that does not repeat its pushes,
  // as one with kAsp and no clocks, calls SkipPushed.
  Future<Done> Push(absl::Span<const Key> keys, const void* values, uint64_t bytes) const;
  // `out` gets keys.size() rows. It must be there until the future has ended.
  Future<Done> Pull(absl::Span<const Key> keys, void* out, uint64_t bytes) const;
  // What is pulled is as after the push, with kBsp as the clock began. `out` is as long as
  // `values`.
  Future<Done> PushPull(absl::Span<const Key> keys, const void* values, void* out,
                        uint64_t bytes) const;
  // Of a table with TableSpec::lengths, which is neither pushed nor pulled by the calls above:
  // lengths[i] elements of `values` are the row of keys[i], one row behind the other. 0: a row
  // without elements is made, or with kAssign emptied. InvalidArgument: as many lengths as keys are
  // needed, of at most `width`, and their sum is the size of `values`. What a later life pushes
  // again has the same lengths as well: long pushes are cut by these, and servers know the parts by
  // their numbers. A program that pushes as much as it has pulled is one of kBsp, or calls
  // SkipPushed.
  Future<Done> Push(absl::Span<const Key> keys, const void* values, uint64_t bytes,
                    absl::Span<const uint32_t> lengths) const;
  // A row that was never pushed has no elements. What is pulled takes memory of this process.
  Future<PulledRows> Pull(absl::Span<const Key> keys) const;
  Future<PulledRows> PushPull(absl::Span<const Key> keys, const void* values, uint64_t bytes,
                              absl::Span<const uint32_t> lengths) const;
  // All keys of a dense table. If the part of each server has 64 KiB or more, pulls, and with kBsp
  // pushes, are objects of the store ("How rows travel" in docs/parameter-server.md). Such a push
  // is copied into memory of the worker's node, which has it until the servers cannot lose it. The
  // call waits for this memory, and asks for snapshots that free what is kept there:
  // ResourceExhausted after peer_timeout. A pull needs memory of this node and of the servers':
  // ResourceExhausted, too. Of the pushes of a clock with kBsp the dense ones are added first then.
  // A worker can make 16,384 / workers of them in a clock: ResourceExhausted. None of this with
  // kAssign, or with more workers than that: such pushes are messages.
  Future<Done> PushDense(const void* values, uint64_t bytes) const;
  Future<Done> PullDense(void* out, uint64_t bytes) const;
  // Returns when a push, or Clock, need not wait for snapshots, unless another thread pushes
  // meanwhile: for bindings that wait in slices. It does not wait for memory of the node.
  // DeadlineExceeded.
  absl::Status AwaitRoom(absl::Duration timeout) const;
  // PushDense, which waits for memory of the node only so long. ResourceExhausted: there was none,
  // and it is as if the call had not been made.
  absl::StatusOr<Future<Done>> PushDenseWithin(const void* values, uint64_t bytes,
                                               absl::Duration timeout) const;
  // Ends this worker's clock. Pushes before it belong to that clock. Waits for nothing but room,
  // as Push, and for a PushDense of another thread. Returns the error of the table, if it has
  // failed. If a push was refused since the last call, returns the error of the first one, once,
  // and the clock goes on: the program can push again what was refused, behind the others, and call
  // Clock again. With kBsp and several servers these get the end of the clock when all have
  // answered the pushes, which the client takes in while a thread waits in any call.
  absl::Status Clock() const;

  // In a later life, before its first push: what servers have of the pushes of this clock is not
  // made again, and the next push is a new one. Returns how many pushes it skips. A push that was
  // under way when the earlier life ended can be there in part, or not at all. Nothing can be
  // skipped where an earlier life has pushed all rows as objects in a clock that has not turned:
  // these are lost with it, and count with all pushes behind them if they are made again. It
  // returns 0 then, and the next call of Clock returns FailedPrecondition, once.
  uint64_t SkipPushed() const;

  const TableSpec& spec() const;
  // Clocks that this worker has ended.
  uint64_t clock() const;
  // The least clock of all workers, as the servers have last said.
  uint64_t min_clock() const;

 private:
  friend class Worker;
  template <typename T>
  friend class Table;
  AnyTable(std::shared_ptr<internal::WorkerState> worker,
           std::shared_ptr<internal::OpenTable> table)
      : worker_(std::move(worker)), table_(std::move(table)) {}
  Future<Done> PushPull(absl::Span<const Key> keys, const void* values, uint64_t pushed, void* out,
                        uint64_t bytes) const;

  std::shared_ptr<internal::WorkerState> worker_;
  std::shared_ptr<internal::OpenTable> table_;
};

// The same with elements of one type.
template <typename T>
class Table {
 public:
  Future<Done> Push(absl::Span<const Key> keys, absl::Span<const T> values) const {
    return table_.Push(keys, values.data(), values.size() * sizeof(T));
  }
  Future<Done> Pull(absl::Span<const Key> keys, absl::Span<T> out) const {
    return table_.Pull(keys, out.data(), out.size() * sizeof(T));
  }
  // `out` is as long as `values`, else InvalidArgument.
  Future<Done> PushPull(absl::Span<const Key> keys, absl::Span<const T> values,
                        absl::Span<T> out) const {
    return table_.PushPull(keys, values.data(), values.size() * sizeof(T), out.data(),
                           out.size() * sizeof(T));
  }
  // With lengths.
  Future<Done> Push(absl::Span<const Key> keys, absl::Span<const T> values,
                    absl::Span<const uint32_t> lengths) const {
    return table_.Push(keys, values.data(), values.size() * sizeof(T), lengths);
  }
  Future<PulledRows> Pull(absl::Span<const Key> keys) const { return table_.Pull(keys); }
  Future<PulledRows> PushPull(absl::Span<const Key> keys, absl::Span<const T> values,
                              absl::Span<const uint32_t> lengths) const {
    return table_.PushPull(keys, values.data(), values.size() * sizeof(T), lengths);
  }
  Future<Done> PushDense(absl::Span<const T> values) const {
    return table_.PushDense(values.data(), values.size() * sizeof(T));
  }
  absl::StatusOr<Future<Done>> PushDenseWithin(absl::Span<const T> values,
                                               absl::Duration timeout) const {
    return table_.PushDenseWithin(values.data(), values.size() * sizeof(T), timeout);
  }
  Future<Done> PullDense(absl::Span<T> out) const {
    return table_.PullDense(out.data(), out.size() * sizeof(T));
  }
  absl::Status Clock() const { return table_.Clock(); }
  uint64_t SkipPushed() const { return table_.SkipPushed(); }

  const TableSpec& spec() const { return table_.spec(); }
  uint64_t clock() const { return table_.clock(); }
  uint64_t min_clock() const { return table_.min_clock(); }

 private:
  friend class Worker;
  explicit Table(AnyTable table) : table_(std::move(table)) {}

  AnyTable table_;
};

// A value; copies share their state. When the last copy, and that of its tables, is dropped without
// Leave, the others see that the worker has died. Any thread.
class Worker {
 public:
  // Joins the job as a worker, and waits for the servers. Errors: those of Client::Join,
  // DeadlineExceeded (names the servers that have not come).
  static absl::StatusOr<Worker> Join(Client& client, Options options = {});

  int rank() const;
  int workers() const;
  int servers() const;
  uint64_t life() const;
  // This is a later life: the tables' clocks are those from which it goes on.
  bool restarted() const { return life() > 0; }

  // NotFound names the tables that there are; InvalidArgument: another type, servers that differ in
  // their tables, or a slicer without Split::kOwn or none with it.
  template <typename T>
  absl::StatusOr<Table<T>> Open(absl::string_view name, Slicer slicer = nullptr) const {
    absl::StatusOr<AnyTable> table = OpenAs(name, DTypeOf<T>(), std::move(slicer));
    if (!table.ok()) return table.status();
    return Table<T>(*std::move(table));
  }
  absl::StatusOr<AnyTable> Open(absl::string_view name, Slicer slicer = nullptr) const;

  // Asks a server's OnRequest. Waits for the server's next life, as a pull does. A request can run
  // twice: if the server dies, or its answer is lost, it is sent again. Errors: Unimplemented (the
  // server has no OnRequest), InvalidArgument (no such server; a body of more than 480 KiB),
  // ResourceExhausted (the reply has a greater one), those that OnRequest returns, and, as those of
  // tables, Aborted and Cancelled.
  Future<Reply> Request(int server, int32_t head, absl::string_view body) const;
  // Ends when all tasks of the group have come to this barrier, or to a later one of the group.
  // What a task has done before, as a push that it has awaited, is there for all that go on.
  //
  // A barrier that has ended stays so: a next life that comes to it again goes on at once. One that
  // has not ended waits for the next life of a task that has died, wherever the task was. So a next
  // life makes the same barriers as the life before; a program that goes on at its clock gives the
  // clock as the epoch.
  //
  // A task that has left is not waited for, nor a worker that has died if all tables have
  // OnLoss::kDrop. Errors: Unavailable (a worker has died, and a table has kFail; names the
  // worker), DeadlineExceeded (names those that have not come), InvalidArgument (a group without
  // this task: it has not come), FailedPrecondition (server 0 has left), Aborted, Cancelled. After
  // an error, and when it was cancelled, the task has come all the same, and others can go on; it
  // can call the same barrier again.
  absl::Status Barrier(BarrierGroup group = BarrierGroup::kWorkers,
                       const BarrierOptions& options = {}) const {
    return BarrierAsync(group, options).Wait().status();
  }
  Future<Done> BarrierAsync(BarrierGroup group = BarrierGroup::kWorkers,
                            const BarrierOptions& options = {}) const;
  // OK while the worker is a member of its job.
  absl::Status status() const;
  // As Server::Members.
  std::vector<Member> Members(absl::string_view role) const;

  // Waits until the servers have all pushes of this worker, in snapshots if the tables have these,
  // and leaves the job. Clocks do not wait for it any more.
  absl::Status Leave() const;
  // The same without waiting for snapshots: for the case that what a server loses by a later death
  // is not needed any more.
  absl::Status Quit() const;
  // Ends the worker, as its death for the others. Calls under way end with an error.
  absl::Status Fail() const;

 private:
  explicit Worker(std::shared_ptr<internal::WorkerState> state) : state_(std::move(state)) {}
  absl::StatusOr<AnyTable> OpenAs(absl::string_view name, DType dtype, Slicer slicer) const;

  std::shared_ptr<internal::WorkerState> state_;
};

namespace internal {
RowValues RowOf(Part& part, Key key);
RowValues ResizeRow(Part& part, Key key, uint32_t length);
RowRun RunOf(Part& part);
}  // namespace internal

template <typename T>
Rows<T>::Rows(internal::Part& part, uint32_t width)
    : part_(part), width_(width), run_(internal::RunOf(part)) {}

template <typename T>
internal::RowValues Rows<T>::RowOf(Key key) const {
  return internal::RowOf(part_, key);
}

template <typename T>
internal::RowValues Rows<T>::ResizeRow(Key key, uint32_t length) const {
  return internal::ResizeRow(part_, key, length);
}

template <typename T, typename F>
absl::Status Server::AddTable(TableSpec spec, F update) {
  spec.update = Update::kOwn;
  spec.dtype = DTypeOf<T>();
  // The default of TableSpec is that of floats.
  if (spec.wire == DType::kF32) spec.wire = spec.dtype;
  using Keys = absl::Span<const Key>;
  using Values = absl::Span<const T>;
  using Lengths = absl::Span<const uint32_t>;
  constexpr bool kPlain =
      std::is_invocable_r_v<absl::Status, const F&, const Pusher&, Keys, Values, Rows<T>>;
  constexpr bool kLengths =
      std::is_invocable_r_v<absl::Status, const F&, const Pusher&, Keys, Values, Lengths, Rows<T>>;
  static_assert(kPlain || kLengths,
                "an own update takes a Pusher, keys, values, with lengths these, and Rows");
  const uint32_t width = spec.width;
  if constexpr (kLengths) {
    if (spec.lengths) {
      return AddTableWith(
          spec,
          [update = std::move(update), width](const Pusher& from, Keys keys, const void* values,
                                              Lengths lengths,
                                              internal::Part& part) -> absl::Status {
            const size_t elements = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
            return update(from, keys, Values(static_cast<const T*>(values), elements), lengths,
                          Rows<T>(part, width));
          });
    }
  }
  if constexpr (kPlain) {
    if (!spec.lengths) {
      return AddTableWith(
          spec,
          [update = std::move(update), width](const Pusher& from, Keys keys, const void* values,
                                              Lengths, internal::Part& part) -> absl::Status {
            return update(from, keys, Values(static_cast<const T*>(values), keys.size() * width),
                          Rows<T>(part, width));
          });
    }
  }
  return absl::InvalidArgumentError(
      "AddTable: " + spec.name +
      (spec.lengths ? ": a table with lengths needs an update that has the lengths as a parameter"
                    : ": the update has lengths as a parameter, and the table has none"));
}

}  // namespace phalanx::ps

#endif  // PHALANX_PS_H_
