// The output of `get`: a file that appears only when it is complete, or standard output.
// Main's thread only.
#ifndef PHALANX_CLI_OBJECTS_OUTPUT_FILE_H_
#define PHALANX_CLI_OBJECTS_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {

class OutputFile {
 public:
  // "-" is standard output. A regular file is written beside its place under another name until
  // Commit. Any other file (/dev/null, a pipe) is written directly. Errors: NotFound if the folder
  // does not exist, PermissionDenied, Unavailable; the text names the path.
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  // Removes the file unless it was committed. An interrupted process removes it too.
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  // Returns whether Restart can take back the written bytes.
  bool restartable() const { return !temporary_.empty(); }
  // Returns ResourceExhausted if the disk is full, ClosedPipe if the reader of a pipe is gone,
  // otherwise Unavailable.
  absl::Status Write(absl::string_view bytes);
  // Discards the written bytes. REQUIRES: restartable().
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

#endif  // PHALANX_CLI_OBJECTS_OUTPUT_FILE_H_
