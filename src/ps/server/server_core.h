// ServerCore: one server, with its part of each table: what it does with messages of workers, with
// their deaths, and with snapshots.
//
// 1. A worker's pushes and clocks come in their order. What was there before is ignored (SyncCore).
// 2. A message of another channel than the last Hello's, or of an older life of a worker, or of one
//    that has ended, is ignored. A batch that is not the next one of its channel closes the
//    channel, and the worker gets Reset. A push, pull or request that breaks a rule is refused: its
//    ticket gets the error, or if it has none, the worker gets TableFailed. After a message that
//    cannot be decoded the worker gets TableFailed of every table, and the channel is closed.
//    Others go on.
// 3. A part is written as a snapshot when m has risen by `snapshot_every` since the last one, and
//    when a worker asks for one; one of a table at a time. When the owner reports that it has its
//    copies, the workers are shown up to which position it has their pushes, and the one before it
//    is freed.
// 4. A server in its next life restores the newest snapshot before it welcomes anybody: its clocks
//    and positions are those of the snapshot, and workers send again what came after these. So a
//    push counts once whatever dies: it is in the snapshot, or its worker still keeps it, or the
//    worker has died as well, and its next life, which begins at the least clock that any server
//    has of it, makes it again. (If only the end of a clock is missing, it begins behind that
//    clock: worker_core.h, rule 4. The mark that shows this is a push like any other here.)
// 5. A worker's next life is welcomed when a snapshot shows all that has come of the worker: what
//    it begins with cannot be lost any more, though it does not keep it.
// 6. Of an object table (rows/object_parts.h) all rows of the part can travel as objects, which the
//    owner makes, sums and frees: ServerTable has the rules. A worker's position, here and in rule
//    4, is that before its first push by object that is not in the rows.
// 7. A worker gets the values of its pulls as the owner sends on what it has been given (OnSent):
//    while so much is not sent, its pulls stay ready (WaitingPulls), and are no bytes.
// 8. Without snapshots (snapshot_every 0) a next life begins empty; a worker that sees a position
//    behind what it has freed fails with DataLoss.
// 9. With Options::awaits_workers a next life holds pulls of kSsp and kAsp until each worker that
//    lives has sent again what an earlier life had of it: no pull misses a push that was done.
//
// Pure: takes events, returns effects. Belongs to a Server, or a test. One thread at a time.
#ifndef PHALANX_PS_SERVER_SERVER_CORE_H_
#define PHALANX_PS_SERVER_SERVER_CORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"
#include "phalanx/ps_table.h"
#include "src/ps/part.h"
#include "src/ps/ps_wire.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/rows/ring_sums.h"
#include "src/ps/server/server_table.h"
#include "src/ps/server/worker_port.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

// The rest of a name is the table's number and the version's.
inline constexpr size_t kMaxObjectsPrefix = kMaxHandleBytes - 40;
// Bytes for one worker that the owner has not sent: no more answers are made for it, but those that
// cannot wait (WaitingPulls).
inline constexpr uint64_t kMaxUnsentAnswers = uint64_t{4} << 20;

class ServerCore {
 public:
  struct Options {
    int rank = 0;
    int servers = 0;
    int workers = 0;
    // The names of all objects that this server makes begin so. Unique, also among those of earlier
    // lives: an object never changes. At most kMaxObjectsPrefix bytes.
    std::string objects = {};
    // The least part of an object table: the same for all workers and servers.
    uint64_t object_bytes = kObjectPartBytes;
    // The least slice of a ring sum: the same for all servers, and in all their lives.
    uint64_t ring_bytes = kRingSliceBytes;
    bool files = false;  // Effects::files are made
    uint64_t unsent_bytes = kMaxUnsentAnswers;
    // The lengths and elements of an answer with rows that have lengths are so many at most, or one
    // row. At most kBatchBytes.
    uint64_t answer_bytes = kBatchBytes;
    // Rule 9. REQUIRES: the server is in a next life, and all workers that live are known before
    // anything that they send.
    bool awaits_workers = false;
  };
  // A message for a life of a worker. Those to one life go in this order.
  struct Send {
    int worker;
    uint64_t life;
    std::string bytes;
  };
  // The bytes of a part: the object has to get its copies, and then OnStored is called.
  struct Store {
    uint32_t table;
    uint64_t number;  // from 1; grows in each table, over all lives of the server that restore
    std::string bytes;
  };
  // The same as m has just passed a multiple of snapshot_every, with kBsp and kWait: all servers
  // make one of the same state, to go on from when all of them have ended.
  struct File {
    uint32_t table;
    uint64_t min;
    uint64_t number;
    std::string bytes;
  };
  // The snapshot is needed no more.
  struct Free {
    uint32_t table;
    uint64_t number;
  };
  // An object of these bytes is to be made. It belongs to this life of the server.
  struct Publish {
    uint32_t table;
    std::string handle;
    std::optional<std::string> copy;
    absl::string_view rows;  // if there is no copy; valid until the next call of the core
    absl::string_view bytes() const { return copy.has_value() ? *copy : rows; }
  };
  // The objects of these names, of workers, are to be summed in this order, as elements of the
  // table's dtype: OnReduced, or OnReduceFailed. That several attempts are under way is right.
  struct Reduce {
    uint32_t table;
    uint64_t attempt;
    uint64_t clock;
    std::vector<std::string> handles;
    bool only;       // the table's earlier attempts are void
    uint64_t bytes;  // of each object
    // Not empty: a ring sum (rows/ring_sums.h). `base`, a version of this server, is the first
    // source, and the result is the version `target`, if it is made in a ring. Its name can have
    // been sent to workers.
    std::string base;
    std::string target;
    bool ring() const { return !target.empty(); }
  };
  // OnRequest of the owner is to be called; it answers with Respond. A request comes again if
  // messages to the worker were lost before the answer had come.
  struct Asked {
    int worker;
    uint64_t life;
    uint64_t ticket;
    int32_t head;
    std::string body;
  };
  struct Effects {
    std::vector<Send> sends;
    std::vector<Store> stores;
    std::vector<File> files;
    std::vector<Free> frees;
    std::vector<Asked> asked;
    std::vector<Publish> publishes;
    std::vector<std::string> unpublishes;  // objects that are needed no more
    // Targets of ring sums that are never made. Readers are to find that they are not there.
    std::vector<std::string> voids;
    std::vector<uint32_t> cancels;  // tables whose sums under way are void; before `reduces`
    std::vector<Reduce> reduces;
  };

  explicit ServerCore(const Options& options);

  // Before Begin. AlreadyExists: a table of this name; InvalidArgument as of Check, or if `own` is
  // there without kOwn, or is not there with it; ResourceExhausted: there are kMaxTables, or the
  // part has no memory. Returns the table's number.
  absl::StatusOr<uint32_t> AddTable(const TableSpec& spec, OwnUpdate own = nullptr);
  // Before Begin: what an earlier life has stored. InvalidArgument if it is of another spec, or the
  // table has no snapshots.
  absl::Status Restore(uint32_t table, uint64_t number, absl::string_view bytes);
  // Before Begin: a snapshot as the table is, with this number.
  std::string Save(uint32_t table, uint64_t number) const;
  // Workers are welcomed from now on, also those that have said Hello before.
  void Begin();

  void OnMessage(int worker, uint64_t life, absl::string_view bytes);
  // A worker's state has changed. Died: each table's OnLoss. Left: the worker is not counted any
  // more; with all gone, done() is true. Of an older life: ignored.
  void OnMember(int worker, MemberState state, uint64_t life);
  // Messages to this life of the worker were lost with a link between nodes: the next one is Reset.
  void OnLost(int worker, uint64_t life);
  // So many bytes of Effects::sends to this worker, of whichever life, have left, or are lost.
  void OnSent(int worker, uint64_t bytes);
  // Some answers wait for OnSent.
  bool waits_for_room() const;
  void OnStored(uint32_t table, uint64_t number);
  // The object could not be written. Workers go on keeping their pushes. It is tried again, with
  // the next number, when m has risen far enough, when a worker asks, and at Retry, which the owner
  // calls a while later.
  void OnStoreFailed(uint32_t table, uint64_t number);
  // The table goes on without snapshots: workers keep what they push no longer, and what dies with
  // this server is lost. REQUIRES: none is under way.
  void GiveUpSnapshots(uint32_t table);
  // The sum, which is used during the call. Other attempts for the same clock are needed no more.
  // Ignored if the attempt is void. `target`: of a ring sum, the object of this name is there.
  // Returns true if it is a version now; else it is not needed.
  bool OnReduced(uint32_t table, uint64_t attempt, absl::string_view sum, bool target = false);
  // There is no ring for this attempt at a ring sum: its target is never there. The sum of its
  // slices is to come by OnReduced, which has the same bits.
  void OnSlices(uint32_t table, uint64_t attempt);
  // It is tried again at Retry; but InvalidArgument ends the table, and so does NotFound or
  // DataLoss that comes again and again, while the workers live. `handle`: of the object that is to
  // blame; empty: it is not known.
  void OnReduceFailed(uint32_t table, uint64_t attempt, const absl::Status& why,
                      absl::string_view handle = "");
  // The pulls that were answered with this object are refused.
  void OnPublishFailed(uint32_t table, absl::string_view handle, const absl::Status& why);
  void Retry();
  // Retry is to be called after a while, because a sum has failed, or its objects were replaced.
  bool wants_retry() const;
  // Ignored if the life has ended. A body of more than kMaxBodyBytes is refused with
  // ResourceExhausted.
  void Respond(const Asked& asked, int32_t head, absl::string_view body);
  void Refuse(const Asked& asked, const absl::Status& why);

  // Those that have not joined, or have died, count as workers that have left.
  void DropGone();

  // All workers have left.
  bool done() const;
  // For describe: a text of lines: clocks of each table, what waits, and on whom.
  std::string Describe() const;
  const SyncCore& sync(uint32_t table) const { return tables_[table]->sync(); }
  // Pushes that wait for their clock, and pulls that wait, of all tables.
  size_t waiting() const;

  // Of the messages that TakeEffects returns so far.
  uint64_t effect_bytes() const { return effect_bytes_; }
  Effects TakeEffects();

 private:
  bool Hears(int worker, uint64_t life);
  void OnHello(int worker, const Hello& hello);
  void OnBatch(int worker, WorkerBatch batch);
  void OnEntry(int worker, Push& push);
  void OnEntry(int worker, ClockEnd& end);
  void OnEntry(int worker, Pull& pull);
  void OnEntry(int worker, Request& request);
  void OnEntry(int worker, AskSnapshot& ask);
  void OnEntry(int worker, Read& read);
  // Null: no such table.
  ServerTable* Find(uint32_t table);
  absl::Status NoTable(uint32_t table) const;
  void RefusePush(int worker, const Push& push, const absl::Status& why);
  void TryWelcome(int worker);
  // The channel is open no more, and what waits for it is dropped.
  void Close(int worker);
  // The worker gets TableFailed of every table.
  void Break(int worker, const absl::Status& why);
  // The life has ended so.
  void Lose(int worker, MemberState state);

  void SendTo(int worker, std::string bytes);
  void Add(int worker, const ServerEntry& entry);
  void Flush(int worker);
  // What an event has led to in the tables, and sends all batches.
  void EndEvent();
  // Rule 9: nothing of the worker is missing.
  bool HasAll(int worker, uint32_t table) const;
  // Empty: no pulls of the table are held.
  std::string DescribeHeld(uint32_t table) const;
  void ReleasePulls();
  void TakeFrom(uint32_t table);
  void TakeAnswers(uint32_t table);
  // Of all tables, while there is room.
  void AnswerReady(int worker);
  void ShowDurable(uint32_t table);
  void ShowRoom(uint32_t table);
  // Once in each channel.
  void ShowFailure(int worker, uint32_t table);

  const Options options_;
  std::vector<std::unique_ptr<ServerTable>> tables_;
  std::vector<WorkerPort> workers_;
  bool begun_ = false;
  bool holds_ = false;    // pulls of some table
  std::set<int> unsent_;  // workers that have a batch, or had one in this event
  Effects effects_;
  uint64_t effect_bytes_ = 0;
  std::vector<uint64_t> unsent_bytes_;  // by worker, of all its lives
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_SERVER_CORE_H_
