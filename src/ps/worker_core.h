// WorkerCore: what one worker sends to each server, what it keeps, and which of its calls have
// ended.
//
// For each server there is a channel, from a life of the server to this life of the worker:
//
//   kAway ──server lives──► kHello sent ──Welcome──► open ──server dies, messages lost──► kAway
//
// 1. Entries for a server go out in the order of the calls, in batches. A batch is sent when it is
//    full, when the program waits (Flush), and when nothing sent before has to be awaited. The end
//    of a clock goes behind all pushes of its clock. With kBsp and more than one server a mark
//    (kAllPushes) goes behind the last push to each of them, and the end of the clock goes to none
//    before all have taken the mark: a round trip more, for rule 4. Of that table what is called
//    after Clock is held back with it.
// 2. A push and a clock are kept until they are durable (a table with snapshots), or until they are
//    done (without; with kBsp not before the least clock is m, for those up to the end of clock m +
//    1: the server has the others in memory, and snapshot_bytes bounds that). A Welcome says from
//    where they are to be sent again. So are pulls and requests that are unanswered; all in the
//    order of the calls. With kBsp a pull that is awaited before its clock is ended gets the state
//    of that clock whatever is lost; one that is not can get a later one.
// 3. A Welcome whose position is behind what was freed means that the server has lost pushes: all
//    calls for the table end with DataLoss, which names the server and both positions.
// 4. A worker in its next life begins, in each table, at the least clock that any server has of it.
//    What a server has more of it is not sent to it again. But if a server has the end of a clock,
//    and all the others have its mark, it begins behind that clock, and ends it for those. So with
//    kBsp no clock is repeated that has turned at any server: what a life pulls is the state of the
//    clock, and pushes that depend on it have the same bits as those of the life before. A program
//    with several such tables makes all pushes of a clock before it ends it in the first one, and
//    pushes nothing to a table that is ahead. One exception: the worker died, and a server that had
//    its pushes of a clock in no snapshot yet.
// 5. All rows of a large dense table travel as objects of the store (rows/object_parts.h), one for
//    each server; messages have their names. The caller puts what is pushed before the core sends
//    the names, and frees it when the core says so: not before the server has consumed it, which it
//    shows by a snapshot, or by a least clock that is greater than the push's; if the caller has no
//    memory for the next ones, the servers are asked for snapshots. A server that lacks the object,
//    because the worker has died, waits for the push of its next life. What is pulled is an object
//    of the server, which the caller reads.
// 6. A call with many keys is made piece by piece, and its first pieces can be sent before the last
//    ones are cut (Start and Cut). Another call completes it before it begins, so the pieces of two
//    calls are never mixed.
// 7. Tables are those of the servers: numbers and specs are the same on all of them, else Open
//    fails and names two servers that differ.
//
// Pure: takes calls and events, returns effects. Belongs to a Worker, or a test. One thread at a
// time.
#ifndef PHALANX_PS_WORKER_CORE_H_
#define PHALANX_PS_WORKER_CORE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/ps/ps_wire.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/split.h"
#include "src/ps/worker/channel.h"
#include "src/ps/worker/kept.h"
#include "src/ps/worker/pieces.h"

namespace phalanx::ps::internal {

// The most keys of a call: positions in them have 32 bits.
inline constexpr uint64_t kMaxCallKeys = (uint64_t{1} << 32) - 1;

// The greatest part of the name of an object that is the same for all: the rest has numbers.
inline constexpr size_t kMaxObjectPrefix = 160;

// What a slicer leaves for a key to which it has given no server.
inline constexpr int32_t kNoServer = -1;

// The greatest body of a request.
inline constexpr size_t kMaxRequestBody = kMaxBodyBytes;

// How much of an object WorkerCore::OnFetched has.
struct ShownBytes {
  // Some of it, from this place on; the rest follows. It is copied at once, and can be void.
  bool more = false;
  uint64_t place = 0;
  // All of it, which was copied piece by piece since it was last void.
  bool copied = false;
};

class WorkerCore {
 public:
  struct Options {
    int rank = 0;
    uint64_t life = 0;
    int servers = 0;
    int workers = 1;  // of the job
    // The names of objects that are pushed begin with this and a slash: no other worker, and no
    // other life of this one, has the same. At most kMaxObjectPrefix bytes.
    std::string objects = {};
    uint64_t object_part_bytes = kObjectPartBytes;
    // Of a piece of a call, and of a message: the same in all lives of the worker, which cut the
    // same push in the same way. At most kBatchBytes.
    uint64_t batch_bytes = kBatchBytes;
  };
  // A message for a life of a server. Those to one life go in this order.
  struct Send {
    int server;
    uint64_t life;
    std::string bytes;
  };
  using Ticket = uint64_t;  // from 1
  // How a program sees one table.
  struct Table {
    TableSpec spec;
    uint64_t clock = 0;
    uint64_t min_clock = 0;  // as the servers have last said, the least of them
    // All rows travel as objects: with PullDense; with BeginPushDense.
    bool pulls_objects = false;
    bool pushes_objects = false;
  };
  // A push of all rows, between BeginPushDense and EndPushDense.
  struct DensePush {
    // What server `server` is to get: its rows of the push (GatherPart), as the object `name`.
    struct Part {
      int server;
      std::string name;
      uint64_t bytes;
    };
    Position at;
    // Of the servers that can need it.
    std::vector<Part> parts;
  };
  // What the caller does in the store, since the last call of TakeObjects.
  struct Objects {
    // Reads an object of a server, and calls OnFetched with its bytes, or an error.
    struct Fetch {
      uint64_t number;  // not used again
      int server;
      std::string name;
      uint64_t bytes;  // that it has to have
    };
    std::vector<Fetch> fetches;
    // Fetches that are wanted no more; they can be in `fetches`, too.
    std::vector<uint64_t> dropped;
    // Objects of pushes that are needed no more: those that were not put, or not completely, are
    // among them.
    std::vector<std::string> frees;
  };

  explicit WorkerCore(const Options& options);

  // ---- events, in any order. What comes from, or says of, an older life than the newest that was
  // named is ignored, and a server that is none of Options::servers.
  void OnServer(int server, bool live, uint64_t life);
  void OnMessage(int server, uint64_t life, absl::string_view bytes);
  // Messages to this life of the server were lost.
  void OnLost(int server, uint64_t life);
  // To be called from time to time, about each half second, unless idle(). Asks each server of
  // which something is awaited: messages that were lost on an idle link are noticed by the next one
  // alone. Sends what is held back. `no_memory`: the node lacks memory for what is pushed or
  // pulled, so that snapshots are asked for which free what it keeps of all tables.
  void Probe(bool no_memory = false);

  // ---- calls
  // All servers have welcomed this life at least once.
  bool ready() const { return ready_; }
  // Those that have not.
  std::vector<int> missing() const;
  // REQUIRES: ready(). NotFound lists the tables that there are; InvalidArgument as rule 7 says.
  absl::StatusOr<uint32_t> Open(absl::string_view name) const;
  // REQUIRES: of Open. Valid as long as the core.
  const Table& table(uint32_t table) const { return tables_[table].view; }

  // A push, a pull, or both in one: what is pulled is as after the push then (with kBsp as of the
  // clock's start). Keys, servers and values are there until Cut has returned false.
  struct Rows {
    uint32_t table = 0;
    absl::Span<const Key> keys = {};  // strictly increasing
    // With Split::kOwn alone: the server of each key.
    absl::Span<const int32_t> servers = {};
    bool pushes = false;
    const void* values = nullptr;  // keys.size() rows of the table's dtype
    // Of what is pushed to a table with TableSpec::lengths, and of nothing else. REQUIRES: as many
    // as keys; their sum is that of `values`. A pull of such a table has no `out`: TakeAnswer has
    // the rows.
    absl::Span<const uint32_t> lengths = {};
    bool pulls = false;
    // Room for keys.size() rows, there until the ticket has ended. Parts of it can be written
    // before that.
    void* out = nullptr;
  };
  // Begins a call, which Cut completes. Errors at once: InvalidArgument (names the table, the key,
  // and what is wrong; also a server that there is not, or not as many as keys), ResourceExhausted
  // (more is kept than the table's snapshot_bytes: the program waits until must_wait is false, and
  // calls again), and the error of a table that has failed.
  absl::StatusOr<Ticket> Start(const Rows& rows);
  // Makes pieces of this call, or of any that has begun, until there is a message to send. Returns
  // false when all are made, by whichever call. A push that is cancelled gets all its pieces; one
  // that a server has refused gets no more.
  bool Cut(std::optional<Ticket> only = {});
  // A push of all rows, in three steps. REQUIRES: pushes_objects; and until EndPushDense neither
  // another push nor Clock of the table: must_wait is true meanwhile. Errors at once as those of
  // Start, and ResourceExhausted for more than MaxClockObjects in a clock.
  absl::StatusOr<DensePush> BeginPushDense(uint32_t table);
  // The parts are in the store, or `put` is the error of one of them: the push is refused then, as
  // by OnPushRefused, and its number is that of the next one. Returns the ticket, or an error:
  // `put`, or that of a table that has failed meanwhile. All parts are the core's to free. Not
  // `refuses`: with an error it is as if the push had not begun.
  absl::StatusOr<Ticket> EndPushDense(uint32_t table, DensePush push, const absl::Status& put,
                                      bool refuses = true);
  // A pull of all keys. REQUIRES: pulls_objects.
  absl::StatusOr<Ticket> PullDense(uint32_t table, void* out);
  // What a fetch has led to: the bytes, which are copied to the memory of the call, or an error.
  // NotFound and DataLoss: the next Probe asks the server again, which has heard that the object is
  // lost. Other errors end the call. Ignored if the fetch is not wanted any more.
  void OnFetched(uint64_t number, const absl::StatusOr<absl::string_view>& bytes,
                 const ShownBytes& shown = {});
  Objects TakeObjects();
  // Ends the worker's clock in the table. If a push was refused since the last call, at once or by
  // a server, returns the error of the first one instead, once: the clock goes on.
  absl::Status Clock(uint32_t table);
  // The caller has refused a push itself: Clock is to return this.
  void OnPushRefused(uint32_t table, const absl::Status& why);
  // Also before ready(). It waits for the server's next life, which can get a request again that an
  // earlier life has answered.
  // InvalidArgument: the body is greater than kMaxRequestBody. REQUIRES: 0 <= server < servers.
  absl::StatusOr<Ticket> Request(int server, int32_t head, absl::string_view body);
  // Takes the pushes of this clock that any server has of an earlier life as made, so that the next
  // one is a new push. Returns how many that are. If a server waits for objects of an earlier life
  // in this clock, which are lost unless they are pushed again, the next Clock returns
  // FailedPrecondition, once.
  uint64_t SkipPushed(uint32_t table);
  // The table keeps more than it may, or a push of objects has begun: no push until this is false.
  bool must_wait(uint32_t table) const;

  // Sends what is held back.
  void Flush();

  // The ticket has ended: OK or an error. Nothing while it has not. NotFound: no such ticket, or it
  // was taken before.
  std::optional<absl::Status> Take(Ticket ticket);
  // Of a request, or with `rows` of a pull of a table with TableSpec::lengths.
  struct Answer {
    int32_t head = 0;
    std::string body = {};
    RowData rows = {};
  };
  // Once, before Take. Nothing, unless the ticket has ended with OK.
  std::optional<Answer> TakeAnswer(Ticket ticket);
  // Nothing waits for the memory of the ticket any more; it ends with Cancelled. What was pushed
  // still counts.
  void Cancel(Ticket ticket);
  // Tickets that have ended since the last call of this.
  std::vector<Ticket> TakeEnded();
  // As a text for errors: "table \"w\" of worker 2 at clock 5".
  std::string Where(uint32_t table, uint64_t clock) const;
  // On which servers the ticket waits, and why, as a text for errors: "server 1 (died in life 2)".
  std::string WaitsFor(Ticket ticket) const;
  // No push or clock is kept that a server has not, and no ticket is under way. After BeginLeave
  // also: nothing is kept at all, so the worker may leave.
  bool idle() const;
  // Asks for snapshots of all that is kept, now and in Probe: when the worker has left, nothing can
  // be sent again.
  void BeginLeave();
  // What idle() waits for, as a text for errors: "2 calls; server 1 (died in life 2) for table
  // \"w\"".
  std::string Pending() const;

  std::vector<Send> TakeSends();

 private:
  // A pull is some pieces, a request is one without keys.
  struct Question {
    Piece piece;
    uint64_t call = 0;
    bool answered = false;
    LengthAnswer rows = {};  // on the channel on which it was sent
    // A pull by object: on which channel it was sent, and the fetch that is under way.
    bool by_object = false;
    uint64_t channel = 0;
    uint64_t fetch = 0;
    bool lost = false;   // the object of the last answer was, and the server was not asked again
    bool again = false;  // it was asked again at once
  };
  struct Operation {
    std::optional<uint32_t> table;  // none: a request
    std::optional<absl::Status> ended = {};
    uint64_t pushes = 0;   // kept entries that are not done
    uint64_t pulls = 0;    // questions that are not answered
    void* out = nullptr;   // of a pull
    uint64_t clock = 0;    // of a pull
    bool cutting = false;  // it has not all its pieces
    std::vector<Question> questions = {};
    Answer request = {};  // of a request: what was asked
    // With the lengths of rows as they come.
    Answer answer = {};

    bool done() const { return !cutting && pushes == 0 && pulls == 0; }
  };
  // The call between Start and the last piece.
  struct Cutting {
    Ticket ticket;
    Rows rows;                     // `pushes` until these are made
    std::vector<uint64_t> starts;  // of rows with lengths
    Position at;
    std::optional<Cutter> cutter;
    std::vector<bool> touched;  // by server
    bool cancelled = false;
  };
  struct Operations {
    // With the ticket `next`.
    Operation& New(std::optional<uint32_t> table);
    // Null: it has ended, or the question is not open at this server.
    Operation* Open(int server, Ticket ticket, uint32_t piece);

    absl::flat_hash_map<Ticket, Operation> all;
    Ticket next = 1;
    uint64_t under_way = 0;
    std::vector<Ticket> ended;  // since the last TakeEnded
  };
  struct TableAtServer {
    KeptEntries kept;
    Position had;  // as the last Welcome said
    uint64_t min_clock = 0;
    bool snapshot_asked = false;
    uint64_t keep = 0;   // as Durable says
    bool named = false;  // Hello has said of a push that the server has had it
  };
  struct TableState {
    TableState(const TableSpec& spec, const Options& options);
    bool has_snapshots() const { return view.spec.snapshot_every > 0; }
    // Its clocks have marks (rule 1).
    bool marked() const { return servers.size() > 1 && view.spec.sync == Sync::kBsp; }
    void SetMinClock(int server, uint64_t clock);
    void FreeDone(int server);
    // What is called from this call on is not sent now.
    uint64_t HeldFrom() const;
    // Servers that have not taken the mark of the first clock that is held back.
    std::vector<int> Unmarked() const;
    bool must_wait() const { return kept_bytes() > may_keep(); }
    uint64_t kept_bytes() const;
    uint64_t may_keep() const;
    // idle() waits for the server.
    bool Awaits(const TableAtServer& at, bool leaving) const;
    // A worker that leaves may not yet: something is kept that is to count.
    bool HoldsUpLeave(const TableAtServer& at) const;

    Table view;
    Splitter splitter;
    uint32_t pushes = 0;       // calls of this clock
    uint64_t dense = 0;        // those of them by object
    bool dense_begun = false;  // BeginPushDense, without EndPushDense
    // At the clock `first`, where this life began, a server waits for objects of an earlier one.
    bool repeats = false;
    uint64_t first = 0;
    absl::Status refused;  // a push since the last call of Clock
    // Of the last clocks that the program has ended, whose ends are held back: the first call that
    // is held back with each.
    std::deque<uint64_t> held;
    absl::Status failed;
    std::vector<TableAtServer> servers;
  };
  struct Server {
    explicit Server(const Options& options) : channel(options.batch_bytes) {}

    WorkerChannel channel;
    bool welcomed = false;
    bool anew = false;  // a Hello is to take back what the last one has said
    // Until ready(): what it has last said of the tables, and those that have failed.
    std::vector<Welcome::Table> tables;
    std::vector<TableFailed> failed;
  };

  // ---- messages
  void OnWelcome(int server, Welcome welcome);
  void OnEntry(int server, const Done& done);
  void OnEntry(int server, const Values& values);
  void OnEntry(int server, const Refused& refused);
  void OnEntry(int server, const Response& response);
  void OnEntry(int server, const Durable& durable);
  void OnEntry(int server, const MinClock& min);
  void OnEntry(int server, const TableFailed& failed);
  // All servers have welcomed this worker for the first time.
  void Begin();
  // What the Welcome of an open channel says of a table.
  void OnWelcomeTable(int server, uint32_t table, const Welcome::Table& welcome);
  // Of all tables, or of one; from this call on.
  void SendAgain(int server, std::optional<uint32_t> only = {}, uint64_t from = 0);

  // ---- calls
  absl::Status CheckCall(uint32_t table, absl::Span<const Key> keys, bool pushes) const;
  // Of the call that is cut; `operation` is null if it was cancelled.
  void AddPush(const Piece& piece, Operation* operation);
  void AddQuestion(Ticket ticket, Piece piece, bool by_object);
  void AddKept(int server, uint32_t table, KeptEntries::Kept kept);
  void AddMarks(uint32_t table);
  void SendKept(int server, uint32_t table, KeptEntries::Kept& kept);
  void SendQuestion(int server, Ticket ticket, Operation& operation, Question& question);
  // Sends what is held back for marks that all servers have taken.
  void Release(uint32_t table);
  // `no_memory`: also for what the node keeps.
  void AskIfNeeded(uint32_t table, bool no_memory = false);

  // ---- ends
  void OnPushesDone(const std::vector<Ticket>& tickets);
  // The question's fetch has ended, or is wanted no more: its server may free the object, if it is
  // not `lost`. Returns its number. REQUIRES: it has one.
  uint64_t EndFetch(Ticket ticket, Question& question, bool lost = false);
  void OnAnswered(Ticket ticket, Operation& operation, Question& question);
  void End(Ticket ticket, Operation& operation, absl::Status status);
  void FailTable(uint32_t table, const absl::Status& why);

  const Options options_;
  std::vector<Server> servers_;
  std::vector<TableState> tables_;
  absl::Status tables_differ_;
  bool ready_ = false;
  bool leaving_ = false;
  uint64_t next_call_ = 1;
  Operations operations_;
  std::optional<Cutting> cutting_;
  // Objects.
  uint64_t next_push_ = 1;  // of BeginPushDense, of all tables
  uint64_t next_fetch_ = 1;
  absl::flat_hash_map<uint64_t, std::pair<Ticket, uint32_t>> fetching_;  // by number
  Objects objects_;  // without those that the tables' entries have freed
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_CORE_H_
