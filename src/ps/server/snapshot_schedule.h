// SnapshotSchedule: when the part of a table is written as a snapshot, which one is under way, and
// what the newest one that has its copies shows.
//
//   idle ──due──► Begin ──► under way ──Stored──► idle
//                               └────── Failed ──► idle, due again at the next occasion
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_SNAPSHOT_SCHEDULE_H_
#define PHALANX_PS_SERVER_SNAPSHOT_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "phalanx/ps_table.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

class SnapshotSchedule {
 public:
  SnapshotSchedule(const TableSpec& spec, int workers);

  bool enabled() const { return every_ > 0; }
  // With TableSpec::snapshot_bytes 0: how many bytes each of so many workers may keep; else 0.
  uint64_t keep(uint64_t workers) const { return in_proportion_ && workers ? part_ / workers : 0; }

  // ---- what makes one due
  // m is `min` now.
  void OnMin(uint64_t min);
  // A push of so many bytes has come to a part of so many.
  void OnPushed(uint64_t bytes, uint64_t part);
  // A worker waits for a snapshot with this number or a later one that shows it at this position.
  // Nothing, if the one under way, or else the newest one, does.
  void Ask(int worker, const Position& at, uint64_t first);
  // After a failure: another attempt.
  void Retry() { failed_ = false; }
  // None is written from now on: what is due counts as stored.
  void GiveUp() {
    given_up_ = true;
    failed_ = false;
  }
  bool given_up() const { return given_up_; }

  bool due() const { return enabled() && wanted_ && !failed_ && !under_way_.has_value(); }
  // A snapshot of this state is under way. Returns its number. REQUIRES: due().
  uint64_t Begin(uint64_t min, std::vector<Position> positions);
  // It has its copies. Returns the number of the one before it, which is needed no more; 0 if there
  // is none. Returns nothing if it is not the one under way.
  std::optional<uint64_t> Stored(uint64_t number);
  void Failed(uint64_t number);
  // An earlier life has stored this one.
  void Restored(uint64_t number, uint64_t min, std::vector<Position> positions);

  // Of the newest one that has its copies; 0 and {0, 0, 0} if there is none.
  uint64_t stored_number() const { return stored_.number; }
  const Position& stored(int worker) const { return stored_.positions[worker]; }
  // Of the last one that was begun.
  uint64_t last_number() const { return last_number_; }
  bool under_way() const { return under_way_.has_value(); }
  bool failed() const { return failed_; }

 private:
  struct Shown {
    uint64_t number = 0;
    std::vector<Position> positions;
  };

  const uint32_t every_;
  const uint64_t bytes_;  // 0: pushes alone make none due
  const bool in_proportion_;
  bool wanted_ = false;
  bool failed_ = false;
  uint64_t last_number_ = 0;
  uint64_t last_min_ = 0;  // of the last one that was begun
  uint64_t pushed_ = 0;    // bytes since then
  uint64_t part_ = 0;      // bytes, at the last push
  bool given_up_ = false;
  std::optional<Shown> under_way_;
  Shown stored_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_SNAPSHOT_SCHEDULE_H_
