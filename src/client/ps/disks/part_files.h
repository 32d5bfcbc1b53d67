// PartFiles: the snapshots of one part of a table as files of a directory, from which a job goes on
// all of whose nodes have ended. One file for each state:
//
//   train_weights_8c1f0a2b3c4d5e6f_2of4_90a1b2c3d4e5f607_120.part
//   job and table, a hash of job, role and table; part, number of parts; line, state
//
//   bytes   what                   all numbers little-endian
//   8       "phxpart1"
//   8       the line: of all files of one history of the job
//   8       the state: disk_start.h says which number that is
//   8       the number of the snapshot
//   8       the number of the newest one in the store, which counts otherwise (snapshot_store.h)
//   8       the size of the snapshot
//   4       the size of the name: the job, the role and the table, a zero between two
//   4       CRC32C of all that is before this, and of all that follows
//           the name, the snapshot
//
// A file is written under a name of its own life of the server, and renamed: in a directory of all
// hosts, an earlier life that was stopped can go on, and write the same state.
//
// Belongs to ServerDisks. One thread at a time.
#ifndef PHALANX_CLIENT_PS_DISKS_PART_FILES_H_
#define PHALANX_CLIENT_PS_DISKS_PART_FILES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::ps::internal {

// Lines are of one family if they differ in their last bits alone (disk_start.h, rule 4).
inline constexpr int kLineBits = 20;
inline uint64_t FamilyOf(uint64_t line) { return line >> kLineBits; }

struct PartState {
  uint64_t line = 0;
  uint64_t state = 0;
  friend auto operator<=>(const PartState&, const PartState&) = default;
};

class PartFiles {
 public:
  struct Owner {
    std::string job;
    std::string role;
    std::string table;
    int part = 0;
    int parts = 0;
    uint64_t life = 0;
  };
  PartFiles(std::string directory, const Owner& owner);

  // By line and state. FailedPrecondition names a file of this part of a job with another number of
  // servers. Others, here and below: the directory or a file cannot be read or written; the text
  // names it, and what to do.
  absl::StatusOr<std::vector<PartState>> List() const;
  struct Numbers {
    uint64_t snapshot = 0;
    uint64_t stored = 0;  // of the newest one in the store
    friend bool operator==(const Numbers&, const Numbers&) = default;
  };
  // Replaces the file of this state.
  absl::Status Write(const PartState& at, const Numbers& numbers, absl::string_view snapshot) const;
  struct Content {
    Numbers numbers;
    std::string snapshot;
  };
  // DataLoss: it is damaged or cut off. NotFound.
  absl::StatusOr<Content> Read(const PartState& at) const;
  std::string PathOf(const PartState& at) const;

  // Here what cannot be removed stays. Only so many newest states of the line stay; once they are
  // there, none of earlier lines of its family does.
  void KeepNewest(uint64_t line, size_t count) const;
  // None stays but those of this line up to this state.
  void RemoveOthers(const PartState& last) const;
  // What earlier lives have begun to write.
  void RemoveUnfinished() const;
  // All, and what was begun to be written. Returns when that is on the disk. The error names a file
  // that stays, or the directory.
  absl::Status RemoveAll() const;

 private:
  struct Name {
    PartState at;
    int parts = 0;
    bool unfinished = false;
    std::string path;
  };
  // Of this part, whatever the number of parts is.
  absl::StatusOr<std::vector<Name>> ListNames() const;
  // Returns the first error, and goes on after it.
  absl::Status Remove(absl::FunctionRef<bool(const Name&)> predicate) const;

  const std::string directory_;
  const std::string of_table_;
  const std::string prefix_;
  const int part_;
  const int parts_;
  const uint64_t life_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_DISKS_PART_FILES_H_
