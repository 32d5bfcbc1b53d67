// DiskRuns: from which files on disks a job goes on, and which of them no rank needs any more. A
// file is a checkpoint of a rank in a run, which lasts from a beginning of the job to the end of
// its last rank. Its next beginning is another run, also if it goes on from disks.
//
//   run 1   files of versions 7, 8     all die
//   run 2   goes on from 8: each rank writes it once more, as a file of run 2, its first one; then
//           9 and 10, and removes what run 1 has left
//
// 1. A run has a number, a line and an id, which all lives of all ranks have from the first call of
//    the group. The number is one more than that of the newest run of which any rank sees a file or
//    a mark as it joins. The line is that of this run, or a new one if that has ended or there is
//    none. The id is drawn by chance: two runs can have seen the same one before them, and not each
//    other.
// 2. Without local models the newest version of the newest run counts, of any rank. A run that ends
//    in Load has that of the run before under its own name, on some disks.
// 3. With local models all ranks take one version of one run, each its own file of it: the newest
//    that all have of the newest run. A run that ends in Load has left its first files on some
//    disks alone. As long as no rank has later ones it is passed over, and the run before is taken:
//    they have the same models. If a rank has a later one, all ranks have had the first one, since
//    none goes on before: then the rank that has none is missing.
// 4. No file of an earlier run is removed in Load, except those of runs that were passed over, once
//    all ranks have said that they can read an older one. The others go with the first version that
//    the run frees: then all ranks have passed the next one. So does a file of a version that is
//    freed, on the disk of a host that its rank has left: any rank there removes it.
// 5. When all ranks have come to Leave, the run has ended. Files that they cannot remove, on hosts
//    that ranks have left, are there only if a rank has had a next life, or if the run has gone on
//    from disks. Then each rank that leaves first writes a mark, which stays. Files of this run,
//    and of earlier ones of its line, do not count in a run of which a rank sees the mark. (Where
//    none does, they do.)
//
// Pure: values and functions. Any thread.
#ifndef PHALANX_CLIENT_SPMD_DISKS_DISK_RUNS_H_
#define PHALANX_CLIENT_SPMD_DISKS_DISK_RUNS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace phalanx::spmd::internal {

// In the order in which they have begun, if the later one has seen the earlier one.
struct DiskRun {
  uint32_t number = 0;  // 0: none
  uint32_t line = 0;
  uint64_t id = 0;

  friend auto operator<=>(const DiskRun&, const DiskRun&) = default;
};

// A place that a rank proposes for the run that begins: all take the greatest, and with it
// RunAt. `newest`: the newest run that it sees. `line`: drawn by chance.
uint64_t ProposePlace(const DiskRun& newest, bool ended, uint32_t line);
DiskRun RunAt(uint64_t place, uint64_t id);

// So many of the newest marks stay.
inline constexpr size_t kMaxMarks = 4;
// Zeros behind the last one.
using DiskMarks = std::array<DiskRun, kMaxMarks>;

// Whether one of these marks says it.
bool HasEnded(const DiskRun& run, absl::Span<const DiskRun> marks);

struct DiskFile {
  DiskRun run;
  int rank = 0;
  uint64_t version = 0;
};

// What a rank says in Load of the newest file that it can read, of a run before a limit and without
// a mark that it knows; all zeros if there is none.
struct DiskOffer {
  DiskRun run;
  uint64_t version = 0;
  uint32_t first = 0;  // 1: with this file the run has begun
  uint32_t error = 0;  // not 0: it cannot read its files, or they are of the other kind
  DiskMarks marks;     // that it sees
};

struct DiskChoice {
  enum class Kind {
    kNothing,  // no rank has a file that counts
    kAgain,    // what they have without those of runs of which others have seen a mark
    kTake,     // this version of this run. Without local models `rank` has it
    kOlder,    // that of a run before this one, of which ranks say what they have
    kMissing,  // `rank` has no file of the run
  };
  Kind kind = Kind::kNothing;
  DiskRun run;
  uint64_t version = 0;
  int rank = 0;
};

// From what all ranks say, by rank. At least one. The same at all ranks.
std::vector<DiskRun> MarksOf(absl::Span<const DiskOffer> offers);
DiskChoice ChooseFile(absl::Span<const DiskOffer> offers, bool local);

// In Load of `run`, when all ranks can read a file of `base`.
bool WasPassedOver(const DiskFile& file, const DiskRun& base, const DiskRun& run);
// When `run` has freed the versions up to this one.
bool IsFreed(const DiskFile& file, const DiskRun& run, uint64_t version);
// Whether a rank that leaves writes a mark. `lives`: a rank has had a next life. `restored`: the
// run has gone on from disks.
bool NeedsMark(bool lives, bool restored);

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_DISKS_DISK_RUNS_H_
