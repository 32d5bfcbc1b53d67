// CheckpointFiles: the checkpoints of one rank as files of a directory, from which a job goes on
// whose ranks have all died. One file for each version:
//
//   train_worker_8c1f0a2b3c4d5e6f_3_12.checkpoint     job, role, a hash of both; rank, version
//
//   bytes   what                     all numbers little-endian
//   8       "phxckpt1"
//   8       the version
//   4       the rank
//   4       1: with a local model
//   8, 8    the sizes of the global model and of the local one
//   4       the size of the name: the job, a zero, the role
//   4       CRC32C of all that is before this, and of all that follows
//           the name, the global model, the local model
//
// A file is written under another name, and renamed when its bytes are on the disk. What is not
// whole is not read. Owned by a SessionState. One thread at a time.
#ifndef PHALANX_CLIENT_SPMD_CHECKPOINT_FILES_H_
#define PHALANX_CLIENT_SPMD_CHECKPOINT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::spmd::internal {

// Castagnoli's, of `bytes` behind others whose value is `before`.
uint32_t Crc32c(absl::string_view bytes, uint32_t before = 0);

struct CheckpointFile {
  uint64_t version = 0;
  std::string global;
  std::string local;
};

class CheckpointFiles {
 public:
  // Whether the directory can be read. Its error names it.
  static absl::Status Check(const std::string& directory);

  CheckpointFiles(std::string directory, absl::string_view job, absl::string_view role, int rank);

  // Replaces the file of this version. `local`: nothing if there are no local models. The error
  // names the file, which can be there whole or not at all.
  absl::Status Write(uint64_t version, absl::string_view global,
                     std::optional<absl::string_view> local) const;
  // The newest one that is whole; nothing if there is none. With local models one of this rank,
  // else of any rank. Errors, here and below: a file, or the directory, cannot be read.
  absl::StatusOr<std::optional<CheckpointFile>> Newest(bool local) const;
  // That of this version of this rank, with a local model, if it is whole.
  absl::StatusOr<std::optional<CheckpointFile>> Read(uint64_t version) const;
  // Removes this rank's files up to this version. What cannot be removed stays.
  void RemoveUntil(uint64_t version);
  // Removes this rank's files behind this version, so that they are not on the disk any more.
  absl::Status RemoveAfter(uint64_t version) const;

 private:
  struct Name {
    int rank = 0;
    uint64_t version = 0;
  };

  std::string PathOf(const Name& name) const;
  // Of this job and role, the newest first.
  absl::StatusOr<std::vector<Name>> List() const;
  absl::StatusOr<std::optional<CheckpointFile>> ReadFile(const Name& name, bool local) const;
  absl::Status SyncDirectory() const;

  const std::string directory_;
  const std::string of_job_;  // what a file has in it
  const std::string prefix_;  // of the names of files
  const int rank_;
  std::optional<uint64_t> removed_;  // files up to this version have been
};

// Writes nothing without files. InvalidArgument: a global model that no call can send when the job
// goes on from it.
absl::Status WriteFile(const std::optional<CheckpointFiles>& files, uint64_t version,
                       absl::string_view global, std::optional<absl::string_view> local);

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_CHECKPOINT_FILES_H_
