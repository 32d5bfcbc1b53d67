// DiskStart: from which files the servers of a job go on, so that all parts of a table come from
// states that fit.
//
// 1. A table with kBsp that waits for workers that die is exact: its state has the number of the
//    clock as which it has just turned, mostly a multiple of snapshot_every. All workers are at the
//    beginning of that clock then, at each server, or ahead, with pushes that are in the file. So
//    parts of one state fit, and the workers repeat the clocks since then with the same bits. The
//    greatest state that all servers have is taken. Servers are at most a clock apart
//    (worker_core.h, rule 1), so each keeps some states. Exact tables with the same snapshot_every
//    whose newest states are of about the same clock have their clocks together: all take one
//    state. Others take the greatest one of their own.
// 2. Any other table has the numbers of its snapshots as states, and each server takes its newest
//    one: a worker begins at the least clock of all servers, and those that have more of it ignore
//    what it pushes again. Nothing is lost or counts twice, and no bits were promised.
// 3. State 0 is the one in which a table begins. Each server writes it before any worker is
//    welcomed, so a server without a file has lost it.
// 4. A line is a history of the job. Those of one family are in their order: a later one begins
//    when the servers of an exact table go on from snapshots of different clocks in the store, or
//    from one that is behind a file. The clocks behind these are made again then, and can have
//    other bits, so files of two lines do not fit. An earlier line counts until all servers have a
//    state of the later one. Files of two families never fit.
// 5. What a server has in the store, or has begun with, stays. If only some have, the others begin
//    with the state with which these have begun, which must be one, and no server may have come
//    further since: if one has, the others had snapshots in the store, which are lost.
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

struct DiskTable {
  std::string name;
  bool exact = false;
  uint32_t every = 0;  // clocks
};

// What a server has of a table.
struct DiskOffer {
  // It stands at, or has begun in this life with, this clock: rule 5.
  std::optional<uint64_t> at = {};
  bool moved = false;             // it has come further than that
  uint64_t line = 0;              // that it writes; 0: it does not know
  uint64_t from = 0;              // the line of the file `at`; 0: it comes from none
  std::vector<PartState> states;  // of its files, by line and state
  friend bool operator==(const DiskOffer&, const DiskOffer&) = default;
};

// How a server begins that does not stand anywhere.
struct DiskStart {
  enum class Kind : uint8_t {
    kEmpty,   // as the table begins
    kState,   // with this state
    kNewest,  // with its newest state
  };
  Kind kind = Kind::kEmpty;
  uint64_t line = 0;  // of all that is written from now on
  uint64_t from = 0;  // the line of the state, or of the newest one
  uint64_t state = 0;
  // All servers begin so: no other file of the table is of use.
  bool all = false;
  friend bool operator==(const DiskStart&, const DiskStart&) = default;
};

// By table. `offers`: of all tables, and of each those of all servers, by rank. `new_line` is that
// of a job that begins anew (FirstLine). FailedPrecondition, NotFound: the files do not fit; names
// a server that lacks some.
absl::StatusOr<std::vector<DiskStart>> ChooseStarts(absl::Span<const DiskTable> tables,
                                                    absl::Span<const std::vector<DiskOffer>> offers,
                                                    uint64_t new_line);

// The first line of a new family, of a number that was drawn by chance. Not 0.
uint64_t FirstLine(uint64_t random);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_DISKS_DISK_START_H_
