// The bytes of a snapshot: a part of a table with its clocks, and with BSP the pushes that wait for
// theirs.
//
//   "PHPS", version, number, rank, servers, spec
//   m; for each worker: clock, counted, position
//   for each kept push, in the order of (worker, position): worker, position, keys, values
//   the part (Part::Save)
//
// Numbers are little-endian. Decoding trusts no input: it returns InvalidArgument with the cause,
// and allocates no more than a fixed multiple of the bytes.
//
// Values and pure functions; any thread.
#ifndef PHALANX_PS_SERVER_SNAPSHOT_FORMAT_H_
#define PHALANX_PS_SERVER_SNAPSHOT_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/ps_table.h"
#include "src/ps/clocks.h"
#include "src/ps/key_lists.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

inline constexpr uint8_t kSnapshotVersion = 2;

struct Snapshot {
  struct KeptPush {
    int worker = 0;
    Position at = {};
    KeyList keys = nullptr;
    absl::string_view values = {};  // as Push::values of ps_wire.h
  };

  uint64_t number = 0;
  int rank = 0;
  int servers = 0;
  TableSpec spec = {};
  uint64_t min = 0;
  std::vector<Clocks::Worker> clocks = {};
  std::vector<Position> positions = {};  // by worker
  std::vector<KeptPush> kept = {};
  absl::string_view part = {};
};

// REQUIRES: there are as many positions as clocks.
std::string Encode(const Snapshot& snapshot);
// Views point into `bytes`. The spec is valid, and all keys increase; what else has to fit together
// is the caller's to check.
absl::StatusOr<Snapshot> DecodeSnapshot(absl::string_view bytes);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_SNAPSHOT_FORMAT_H_
