// DiskStart: from which files the servers of a job go on, so that all parts of a table come from
// states that fit.
//
// 1. A table with kBsp that waits for workers that die is exact: its state has the number of the
//    clock as which it has just turned, a multiple of snapshot_every. All workers are at the
//    beginning of that clock then, at each server. So parts of one state fit, and the workers
//    repeat the clocks since then with the same bits. The greatest state that all servers have is
//    taken. Servers are at most a clock apart (worker_core.h, rule 1), so each keeps some states.
// 2. Any other table has the numbers of its snapshots as states, and each server takes its newest
//    one: a worker begins at the least clock of all servers, and those that have more of it ignore
//    what it pushes again. Nothing is lost or counts twice, and no bits were promised.
// 3. State 0 is the one in which a table begins. Each server writes it before any worker is
//    welcomed, so a server without a file has lost it.
// 4. A line is a history of the job, from a beginning to its end: files of two lines never fit.
// 5. What a server has in the store, or has begun with, stays. If only some have, the others begin
//    with the state with which these have begun, which must be one: then no worker has done
//    anything since.
//
// Pure. Any thread.
#ifndef PHALANX_CLIENT_PS_DISKS_DISK_START_H_
#define PHALANX_CLIENT_PS_DISKS_DISK_START_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/client/ps/disks/part_files.h"

namespace phalanx::ps::internal {

// Rule 1.
bool IsExact(const TableSpec& spec);

// What a server has of a table.
struct DiskOffer {
  // It stands at, or has begun in this life with, this clock: rule 5.
  std::optional<uint64_t> at = {};
  uint64_t line = 0;              // of `at`; 0: it does not know
  std::vector<PartState> states;  // of its files, by line and state
  friend bool operator==(const DiskOffer&, const DiskOffer&) = default;
};

// How a server begins that does not stand anywhere.
struct DiskStart {
  enum class Kind : uint8_t {
    kEmpty,   // as the table begins
    kState,   // with this state of the line
    kNewest,  // with its newest state of the line
  };
  Kind kind = Kind::kEmpty;
  uint64_t line = 0;  // of all that is written from now on
  uint64_t state = 0;
  friend bool operator==(const DiskStart&, const DiskStart&) = default;
};

// `offers` of all servers, by rank. `new_line` is that of a job that begins anew.
// FailedPrecondition, NotFound: the files do not fit; names a server that lacks some.
absl::StatusOr<DiskStart> ChooseStart(const std::string& table, bool exact,
                                      absl::Span<const DiskOffer> offers, uint64_t new_line);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_DISKS_DISK_START_H_
