// BootCalls: which numbers of the group the calls of a life before Load have.
//
// Without names the calls have the numbers in their order, in each life. A call with a name is
// found again by it. From the first name on, each call follows a record, a small call of the group
// whose result is the name:
//
//   number    1     2     3  4       5     6        7     8       9
//            run  ids   rec vocabulary    rec ""   rec  lengths  rec Load       a first life
//                  │     └ "v" ┘ └ two parts  └unnamed  └ "l" ┘   └ the last boot call
//                  └ unnamed, before all names
//
//            run  lengths (8)   ids (2)   new name: only before Load of all      a next life, that
//                                                                                leaves some out
//
// A next life reads the results of the calls that have ended, and so finds the records. A named
// call that has none there is made with the others, after a record. So are unnamed ones, which are
// taken in their order. If the others make another call meanwhile, what the calls say differs
// (mark), so the group refuses both.
//
// Pure: no thread, clock or socket. Owned by a SessionCore. One thread at a time.
#ifndef PHALANX_CLIENT_SPMD_BOOT_CALLS_H_
#define PHALANX_CLIENT_SPMD_BOOT_CALLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::spmd::internal {

// The result of a record.
using NameRecord = std::array<uint64_t, 3>;

class BootCalls {
 public:
  // The calls up to `ended` have ended. `boot`: the last one before Load, if all have passed that,
  // else 0. `named`: whether there can be records among them.
  BootCalls(uint64_t ended, uint64_t boot, bool named);

  // ---- records
  // The last call that can be one, from 2 on; 0: there are none to read.
  uint64_t last_record() const;
  // The result of a call is a record. REQUIRES: numbers rise, and no call after the first is begun.
  void AddRecord(uint64_t number, const NameRecord& record);
  static bool IsRecord(const NameRecord& record);

  // ---- calls
  // A call of the program begins, or Load. Returns the record that is to be made before it, as the
  // next call of the group, if any. Idempotent until one is made. Errors: InvalidArgument (a call
  // of this life had the name, or the others have passed Load without it).
  absl::StatusOr<std::optional<NameRecord>> Begin(absl::string_view name);
  absl::StatusOr<std::optional<NameRecord>> BeginLoad();
  // The last call of the group before Load. REQUIRES: BeginLoad is OK, and its record was made.
  uint64_t last() const { return next_ - 1; }
  // The number of the next call of the group.
  uint64_t next() const { return next_; }
  // InvalidArgument: the call has made more calls of the group than in the life before.
  absl::Status CheckNext() const;
  void OnMade();
  // Whether calls follow records. Does not change back.
  bool named() const { return named_; }
  // What the next call says, so that other calls differ from it. 0 without names.
  uint64_t mark() const;

 private:
  struct Record {
    uint64_t number = 0;
    uint64_t name = 0;
  };
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  absl::StatusOr<std::optional<NameRecord>> BeginAs(uint64_t name, absl::string_view text);
  // The record of the name; of an unnamed call the next one.
  size_t Find(uint64_t name) const;
  uint64_t first_record() const { return records_.empty() ? kNone : records_.front().number; }
  bool passed_load() const;

  const uint64_t ended_;
  const uint64_t boot_;
  bool named_;
  std::vector<Record> records_;  // those that have ended, and that were made
  size_t unnamed_ = 0;           // the first record that an unnamed call can have
  uint64_t plain_ = 1;           // the next call before all records
  uint64_t made_;                // the last one that has ended or was made
  std::set<uint64_t> names_;     // of this life

  // The call of the program.
  uint64_t name_ = 0;
  bool is_plain_ = true;
  bool makes_record_ = false;
  size_t record_ = 0;
  uint64_t next_ = 1;
  uint64_t end_ = kNone;  // the call of the group that is not one of its own
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_BOOT_CALLS_H_
