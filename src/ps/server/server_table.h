// ServerTable: one table of a server: its part, its clocks, the pushes that wait for their clock to
// turn, the pulls that wait, and its snapshots.
//
// Of an object table (rows/object_parts.h) pushes and pulls of all keys of the part can be objects:
//
// 1. With kBsp the pushes of a clock that are objects are summed by the owner (Reduce), in the
//    order of workers and then of their pushes, and count as one push before those with keys. The
//    turn waits for it, and all that is behind the turn. Meanwhile the rows are those of the clock
//    of that turn, which is the clock that workers see; entries are taken as ever.
// 2. Such a push dies with its worker until it is in the rows. So the worker's position is that
//    before its first one: there its next life begins, and there a snapshot, which has no objects,
//    cuts what has come of it. What the next life pushes there, and behind it, replaces what the
//    life before has pushed at the same positions. An object that is lost while its worker lives
//    is never pushed again, so the table fails.
// 3. A pull by object is answered with a version (versions.h).
//
// Pure. Belongs to a ServerCore. One thread at a time.
#ifndef PHALANX_PS_SERVER_SERVER_TABLE_H_
#define PHALANX_PS_SERVER_SERVER_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/ps/part.h"
#include "src/ps/ps_wire.h"
#include "src/ps/server/kept_pushes.h"
#include "src/ps/server/object_pushes.h"
#include "src/ps/server/snapshot_format.h"
#include "src/ps/server/snapshot_schedule.h"
#include "src/ps/server/turn_queue.h"
#include "src/ps/server/turn_sums.h"
#include "src/ps/server/versions.h"
#include "src/ps/server/waiting_pulls.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

// Of one worker, in one table, that wait for their clock: further ones are refused.
inline constexpr uint32_t kMaxParkedPulls = 1 << 16;
// Workers of a table that Describe lists.
inline constexpr int kDescribedWorkers = 64;

class ServerTable {
 public:
  struct Options {
    uint32_t number = 0;
    int rank = 0;
    int servers = 0;
    int workers = 0;
    std::string objects = {};             // versions have names that begin so
    uint64_t object_bytes = 0;            // the least part of an object table
    uint64_t ring_bytes = 0;              // the least slice of a ring sum
    uint64_t answer_bytes = kBatchBytes;  // the most of an answer of rows with lengths
    bool files = false;                   // TakeFiles has some
  };
  struct Taken {
    uint64_t number;
    std::string bytes;
  };
  struct File {
    uint64_t min;
    uint64_t number;
    std::string bytes;
  };

  // REQUIRES: Check(spec) is OK; `own` is there exactly with kOwn.
  ServerTable(const Options& options, const TableSpec& spec, OwnUpdate own);

  // What an earlier life has stored. InvalidArgument if it is of another spec, part or number; the
  // table is as it was then.
  absl::Status Restore(uint64_t number, absl::string_view bytes);

  // ---- what workers send. An error names the table, the clock and the worker, and the key that is
  // wrong; the table goes on without the entry. Keys are taken from `lists` in any case.
  absl::Status OnPush(int worker, uint64_t life, Push& push, KeyLists& lists);
  absl::Status OnClock(int worker, uint64_t life, uint64_t clock);
  absl::Status OnPull(int worker, Pull& pull, KeyLists& lists);
  void OnAskSnapshot(int worker);
  TurnQueue& turns() { return turns_; }
  // Those that were held there are held no longer.
  void ReleasePulls();

  // ---- workers. The channel has closed: pulls that wait are dropped.
  void Forget(int worker);
  // A life has ended: what the table's OnLoss says.
  void Lose(int worker, uint64_t life);
  void Leave(int worker);
  // It is counted, if it was not.
  void Join(int worker);

  const TableSpec& spec() const { return spec_; }
  const SyncCore& sync() const { return sync_; }
  // The clock of the rows: SyncCore's least one, or that of the first turn that waits.
  uint64_t min() const;
  // Where the worker's next life begins: behind all that cannot die with it, in the clock that it
  // has reached there.
  Position PositionOf(int worker) const;
  // It has pushes by object of this worker that are in no rows: all of them are behind PositionOf.
  bool HoldsObjectsOf(int worker) const { return objects_.SafeOf(worker).has_value(); }
  // OK, or with what all calls for the table end.
  const absl::Status& failed() const { return failed_; }

  // ---- snapshots
  std::optional<Taken> TakeSnapshot();
  // With kBsp and Options::files: the states as m has passed multiples of snapshot_every.
  std::vector<File> TakeFiles() { return std::exchange(files_.made, {}); }
  // A snapshot of this moment. REQUIRES: it is between two events, and the table has not failed.
  std::string Save(uint64_t number) const;
  SnapshotSchedule& snapshots() { return snapshots_; }
  const SnapshotSchedule& snapshots() const { return snapshots_; }
  // Up to this position the worker's pushes cannot be lost, and need not be kept by it. With BSP a
  // worker keeps those of clocks beyond m + 1, although a snapshot has them: so its own limit
  // bounds what waits here for its clock.
  Position DurableOf(int worker) const;
  // DurableOf may have risen for some worker since the last call.
  bool TakeDurableRisen();
  // Without snapshots: m has risen since the last TakeDurableRisen, and workers that are ahead keep
  // less now. Their own limit bounds what waits here in this case, too. All workers keep pushes
  // that are objects up to here.
  bool MakesRoom() const;
  // The newest snapshot shows the worker as it is now, or the table has none. A worker that was
  // dropped is behind what an older one shows.
  bool Shows(int worker) const;

  // ---- objects
  // 0: it is no object table.
  uint64_t object_bytes() const { return by_object_.part_bytes; }
  // The table has pushes that are objects.
  bool has_object_pushes() const { return by_object_.pushes; }
  // The sum of an attempt, which ends the others of its turn. Void ones, and those of a turn that
  // has been made, are ignored. `target`: the object that a ring sum was to make is there. Returns
  // true if it is a version now.
  bool OnReduced(uint64_t attempt, absl::string_view sum, bool target);
  // InvalidArgument: the table fails, with Internal. After other errors another attempt is made,
  // but with DataLoss the table fails if an object is not there again and again, though the life of
  // the worker that has pushed it lives.
  void OnReduceFailed(uint64_t attempt, const absl::Status& why, absl::string_view handle,
                      const TurnSums::Lives& lives);
  TurnSums& sums() { return sums_; }
  Versions& versions() { return versions_; }
  // Of a dense table; valid until the next event.
  absl::string_view rows() const { return part_.AllValues(); }

  // Its answers, and the pulls of which these are to be made.
  WaitingPulls& pulls() { return pulls_; }
  // The table has failed since the last call.
  bool TakeFailed() { return std::exchange(newly_failed_, false); }

  // Pushes and pulls that wait.
  size_t waiting() const { return kept_.size() + objects_.size() + pulls_.size(); }
  std::string Describe() const;

 private:
  // A push that counts at once.
  struct Incoming {
    From from;
    const std::vector<Key>& keys;
    absl::string_view values;
  };
  // What is pushed, as Part takes it. Valid until the next one is made.
  struct Pushed {
    const void* values;
    absl::Span<const uint32_t> lengths;
  };
  // A worker that is not counted, or was not: where it was then. Snapshots before this number can
  // have pushes of it that do not count now.
  struct Dropped {
    uint64_t first = 0;
    Position at = {};
  };
  struct OfWorker {
    Dropped dropped = {};
    // It has asked for a snapshot when it was at `asked`, and has had objects that no snapshot
    // could have. Another one is made when it is safe up to the beginning of its clock then, and
    // one when it is up to there.
    std::optional<Position> next_snapshot = {};
    Position asked = {};
  };
  using Token = SyncCore::Token;

  // Of a row as it travels, the least.
  uint64_t row_bytes() const;
  absl::Status Error(absl::StatusCode code, absl::string_view why) const;
  absl::Status CheckPush(const Push& push, const absl::StatusOr<KeyList>& keys) const;
  absl::Status CheckObjectPush(int worker, uint64_t life, const Push& push) const;
  absl::Status OnObjectPush(int worker, uint64_t life, const Push& push);
  absl::StatusOr<KeyList> KeysOfPull(int worker, Pull& pull, KeyLists& lists) const;
  // The elements are `values` itself, or in scratch_.
  Pushed Elements(absl::string_view values);
  // What SyncCore has decided, up to a turn that waits.
  void RunEffects(const Incoming* incoming);
  void Proceed();
  void MakeFile();
  void Apply(const Incoming& incoming);
  // `sum` is that of its objects; null: it has none. `ring`: it has the rows, too.
  void TakeTurn(const SyncCore::Turn& turn, const void* sum, bool ring = false);
  // Snapshots for those that have asked, and whose objects are in the rows now.
  void AskAgain();
  absl::Status AddAndTurn(const SyncCore::Turn& turn, const void* sum, bool ring);
  // They never count. RunEffects follows.
  void TakeOut(const std::vector<Token>& pushes);
  // What an earlier life has pushed there.
  void Replace(int worker, uint64_t life, const Push& push, const KeyList& keys);
  void ReplaceByObject(Token token, const Push& push, int worker, uint64_t life);
  void AnswerPull(Token token);
  void DropPulls(int worker);
  void Fail(absl::Status why);
  SyncCore::Saved SafeState() const;
  absl::Status LoadSnapshot(const Snapshot& snapshot);

  const Options options_;
  const TableSpec spec_;
  Part part_;
  const struct {
    uint64_t part_bytes;  // 0: it is no object table
    bool pushes;
    uint64_t ring_bytes;  // 0: its turns are no ring sums
  } by_object_;
  SyncCore sync_;
  absl::Status failed_;
  bool newly_failed_ = false;

  Token last_token_ = 0;
  KeptPushes kept_;       // BSP: of clocks that have not turned
  ObjectPushes objects_;  // the same, of pushes that are objects
  TurnQueue turns_;
  Versions versions_;
  TurnSums sums_{turns_, objects_, kept_, versions_, by_object_.ring_bytes};
  WaitingPulls pulls_;
  std::vector<OfWorker> of_worker_;
  SnapshotSchedule snapshots_;
  struct {
    std::vector<File> made;
    uint64_t min = 0;  // at the last one
  } files_;
  // At the last TakeDurableRisen: the newest snapshot, and the clock of the rows.
  struct {
    uint64_t number = 0;
    uint64_t min = 0;
  } shown_;
  // Of one push.
  std::string scratch_;
  std::vector<uint32_t> lengths_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_SERVER_TABLE_H_
