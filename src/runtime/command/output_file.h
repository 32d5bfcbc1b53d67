// Where `get` writes: a file that appears whole or not at all, or standard output.
// Main's thread only.
#ifndef PHALANX_RUNTIME_COMMAND_OUTPUT_FILE_H_
#define PHALANX_RUNTIME_COMMAND_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {

class OutputFile {
 public:
  // "-" is standard output. A regular file is written beside its place under another name until
  // Commit; what is no regular file (/dev/null, a pipe) is written to directly. Errors: NotFound
  // for a folder that is not there, PermissionDenied, Unavailable; the text names the path.
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  // Removes what was not committed. An interrupted process does so too.
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  // What was written can be taken back by Restart.
  bool restartable() const { return !temporary_.empty(); }
  // ResourceExhausted when the disk is full, Unavailable otherwise.
  absl::Status Write(absl::string_view bytes);
  // Forgets what was written. REQUIRES: restartable().
  absl::Status Restart();
  absl::Status Commit();

 private:
  OutputFile(int fd, std::string path, std::string temporary)
      : fd_(fd), path_(std::move(path)), temporary_(std::move(temporary)) {}

  int fd_;
  std::string path_;
  std::string temporary_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_OUTPUT_FILE_H_
