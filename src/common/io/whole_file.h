// Files of a directory for checkpoints that are there whole or not at all, whenever the process or
// its host dies. A file is written under another name, and renamed when its bytes are on the disk.
//
// Functions without state. Any thread; one at a time for a path.
#ifndef PHALANX_COMMON_IO_WHOLE_FILE_H_
#define PHALANX_COMMON_IO_WHOLE_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace phalanx {

// Castagnoli's, of `bytes` behind others whose value is `before`.
uint32_t Crc32c(absl::string_view bytes, uint32_t before = 0);

// What the names of files of a job's role begin with: both in characters that names can have, and a
// hash of `of_job`, which is both exactly.
std::string FilePrefix(absl::string_view job, absl::string_view role, absl::string_view of_job);

// Whether the directory can be read. Its error names it.
absl::Status CheckDirectory(const std::string& directory);
// The names in the directory, in no order. The error names it.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory);

// Replaces the file `path` in the directory by the parts, one behind the other, and returns when it
// is on the disk. `temporary` is another path in the directory. The error names the file, which can
// be there whole or not at all.
absl::Status WriteWholeFile(const std::string& directory, const std::string& path,
                            const std::string& temporary,
                            absl::Span<const absl::string_view> parts);
// Returns when what was created, renamed and removed in the directory is on the disk. The error
// names it.
absl::Status SyncDirectory(const std::string& directory);
// Nothing if it is not there, or is no file. The error names it.
absl::StatusOr<std::optional<std::string>> ReadWholeFile(const std::string& path);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_WHOLE_FILE_H_
