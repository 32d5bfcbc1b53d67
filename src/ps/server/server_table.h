// ServerTable: one table of a server: its part, its clocks, the pushes that wait for their clock to
// turn, the pulls that wait, and its snapshots.
//
// Pure. Belongs to a ServerCore. One thread at a time.
#ifndef PHALANX_PS_SERVER_SERVER_TABLE_H_
#define PHALANX_PS_SERVER_SERVER_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/ps_table.h"
#include "src/ps/part.h"
#include "src/ps/ps_wire.h"
#include "src/ps/server/snapshot_format.h"
#include "src/ps/server/snapshot_schedule.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

// Of one worker, in one table: further ones are refused.
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
  };
  // The answer of a pull.
  struct Answered {
    int worker;
    Values values;      // values.values is empty
    std::string bytes;  // of the table's wire type
  };
  struct Taken {
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
  absl::Status OnClock(int worker, uint64_t clock);
  absl::Status OnPull(int worker, Pull& pull, KeyLists& lists);
  void OnAskSnapshot(int worker);

  // ---- workers. The channel has closed: pulls that wait are dropped.
  void Forget(int worker);
  // A life has ended: what the table's OnLoss says.
  void Lose(int worker, uint64_t life);
  void Leave(int worker);
  // It is counted, if it was not.
  void Join(int worker);

  const TableSpec& spec() const { return spec_; }
  const SyncCore& sync() const { return sync_; }
  // OK, or with what all calls for the table end.
  const absl::Status& failed() const { return failed_; }

  // ---- snapshots
  std::optional<Taken> TakeSnapshot();
  SnapshotSchedule& snapshots() { return snapshots_; }
  const SnapshotSchedule& snapshots() const { return snapshots_; }
  // Up to this position the worker's pushes cannot be lost, and need not be kept by it. With BSP a
  // worker keeps those of clocks beyond m + 1, although a snapshot has them: so its own limit
  // bounds what waits here for its clock.
  Position DurableOf(int worker) const;
  // DurableOf may have risen for some worker since the last call.
  bool TakeDurableRisen();
  // Without snapshots: m has risen since the last TakeDurableRisen, and workers that are ahead keep
  // less now. Their own limit bounds what waits here in this case, too.
  bool MakesRoom() const;
  // The newest snapshot shows the worker as it is now, or the table has none. A worker that was
  // dropped is behind what an older one shows.
  bool Shows(int worker) const;

  // Since the last call, in their order.
  std::vector<Answered> TakeAnswers();
  // The table has failed since the last call.
  bool TakeFailed() { return std::exchange(newly_failed_, false); }

  // Pushes and pulls that wait.
  size_t waiting() const { return kept_.size() + pulls_.size(); }
  std::string Describe() const;

 private:
  struct Kept {
    int worker;
    Position at;
    KeyList keys;
    std::string values;
  };
  struct Parked {
    int worker;
    uint64_t ticket;
    uint32_t piece;
    KeyList keys;
  };
  // A push that counts at once.
  struct Incoming {
    From from;
    const std::vector<Key>& keys;
    absl::string_view values;
  };
  // A worker that is not counted, or was not: where it was then. Snapshots before this number can
  // have pushes of it that do not count now.
  struct Dropped {
    uint64_t first = 0;
    Position at = {};
  };
  using Token = SyncCore::Token;

  uint64_t row_bytes() const;
  absl::Status Error(absl::StatusCode code, absl::string_view why) const;
  absl::Status CheckPush(const Push& push, const absl::StatusOr<KeyList>& keys) const;
  // Elements of the dtype: `values` itself, or in scratch_ until the next call.
  const void* Elements(absl::string_view values);
  void RunEffects(const Incoming* incoming);
  void Apply(const Incoming& incoming);
  void TakeTurn(const SyncCore::Turn& turn);
  void AnswerPull(Token token);
  void DropKept(Token token);
  void DropPulls(int worker);
  void Fail(absl::Status why);
  absl::Status LoadSnapshot(const Snapshot& snapshot);

  const Options options_;
  const TableSpec spec_;
  Part part_;
  SyncCore sync_;
  absl::Status failed_;
  bool newly_failed_ = false;

  Token last_token_ = 0;
  absl::flat_hash_map<Token, Kept> kept_;  // BSP: of clocks that have not turned
  absl::flat_hash_map<Token, Parked> pulls_;
  std::vector<uint32_t> parked_;  // of each worker
  std::vector<Dropped> dropped_;  // of each worker
  std::vector<Answered> answers_;
  SnapshotSchedule snapshots_;
  // At the last TakeDurableRisen: the newest snapshot, and m.
  uint64_t shown_number_ = 0;
  uint64_t shown_min_ = 0;
  std::string scratch_;  // of one push or pull
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_SERVER_TABLE_H_
