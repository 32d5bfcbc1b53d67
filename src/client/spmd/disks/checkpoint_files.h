// CheckpointFiles: the checkpoints of one rank as files of a directory, from which a job goes on
// whose ranks have all died. One file for each version:
//
//   train_worker_8c1f0a2b3c4d5e6f_2_5d0c11f3_90a1b2c3d4e5f607_3_12.checkpoint
//   job, role, a hash of both; number, line and id of the run; rank, version
//
//   bytes   what                     all numbers little-endian
//   8       "phxckpt2"
//   4, 4, 8 the run: number, line and id
//   8       the version
//   4       the rank
//   4       1: with a local model; 2: with it the run has gone on from disks; 4: a mark
//   8, 8    the sizes of the global model and of the local one
//   4       the size of the name: the job, a zero, the role
//   4       CRC32C of all that is before this, and of all that follows
//           the name, the global model, the local model
//
// A file is written under another name, and renamed when its bytes are on the disk. What is not
// whole is not read. disk_runs.h has which files count. A mark, that a run has ended, is a file
// without models, with "ended" instead of rank and version in its name.
//
// Owned by a SessionState. One thread at a time.
#ifndef PHALANX_CLIENT_SPMD_DISKS_CHECKPOINT_FILES_H_
#define PHALANX_CLIENT_SPMD_DISKS_CHECKPOINT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/client/spmd/disks/disk_runs.h"

namespace phalanx::spmd::internal {

struct CheckpointFile {
  DiskRun run;
  uint64_t version = 0;
  bool first = false;  // with it the run has begun
  std::string global;
  std::string local;
};

class CheckpointFiles {
 public:
  CheckpointFiles(std::string directory, absl::string_view job, absl::string_view role, int rank);

  // ---- as the rank joins
  // Removes what earlier lives of this rank have begun to write and not ended.
  void RemoveUnfinished() const;
  // What this rank proposes for the run that begins (disk_runs.h). FailedPrecondition: there is a
  // file of another version of Phalanx. Others, here and below: a file, or the directory, cannot be
  // read.
  absl::StatusOr<uint64_t> ProposePlace(uint32_t line) const;
  // What is written from now on is of this run.
  void Begin(const DiskRun& run) { run_ = run; }
  const DiskRun& run() const { return run_; }

  // Replaces the file of this version. `local`: nothing if there are no local models. The error
  // names the file, which can be there whole or not at all.
  absl::Status Write(uint64_t version, absl::string_view global,
                     std::optional<absl::string_view> local) const;
  // The same of the first file of a run that goes on from another one's.
  absl::Status WriteFirst(uint64_t version, absl::string_view global,
                          std::optional<absl::string_view> local) const;

  // ---- in Load
  // The newest marks that are whole.
  absl::StatusOr<DiskMarks> Marks() const;
  // The newest file that is whole, of the runs before this one, without those that have a mark;
  // nothing if there is none. With local models one of this rank, else of any rank.
  absl::StatusOr<std::optional<CheckpointFile>> Newest(bool local, const DiskRun& before,
                                                       absl::Span<const DiskRun> marks) const;
  // That of this version of this rank, with a local model, if it is whole.
  absl::StatusOr<std::optional<CheckpointFile>> Read(const DiskRun& run, uint64_t version) const;
  // Removes files of any rank whose runs have one of these marks. Here and below, what cannot be
  // removed stays.
  void RemoveEnded(absl::Span<const DiskRun> marks) const;
  // Removes this rank's files of runs between `base` and this one.
  void RemovePassedOver(const DiskRun& base) const;

  // ---- later
  // Removes this rank's files up to this version; the first time also those of any rank, and of
  // earlier runs.
  void RemoveUntil(uint64_t version);
  // The run has ended: removes this rank's files of all runs, and what RemoveUntil has removed the
  // first time. `mark`: writes a mark before.
  void RemoveAll(bool mark) const;

 private:
  struct Name {
    DiskFile file;
    bool mark = false;
    bool unfinished = false;
    std::string path;
  };

  std::string PathOf(const DiskRun& run, absl::string_view what) const;
  std::string PathOf(uint64_t version) const;
  // Nothing if it is no name of a file of this job and role.
  absl::StatusOr<std::optional<Name>> Parse(absl::string_view entry) const;
  // Of this job and role, the newest first.
  absl::StatusOr<std::vector<Name>> List() const;
  // Those of the list for which `predicate` holds.
  void Remove(absl::FunctionRef<bool(const Name&)> predicate) const;
  absl::Status WriteTo(const std::string& path, std::string header, absl::string_view global,
                       absl::string_view local) const;
  std::string HeaderOf(uint64_t version, int rank, uint32_t kind) const;
  absl::Status WriteAs(uint32_t kind, uint64_t version, absl::string_view global,
                       std::optional<absl::string_view> local) const;
  absl::StatusOr<std::optional<CheckpointFile>> ReadFile(const Name& name, bool local) const;

  const std::string directory_;
  const std::string of_job_;  // what a file has in it
  const std::string prefix_;  // of the names of files
  const int rank_;
  DiskRun run_;
  std::optional<uint64_t> removed_;  // files up to this version have been
};

// Writes nothing without files. InvalidArgument: a global model that no call can send when the job
// goes on from it.
absl::Status WriteFile(const std::optional<CheckpointFiles>& files, uint64_t version,
                       absl::string_view global, std::optional<absl::string_view> local);

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_DISKS_CHECKPOINT_FILES_H_
