// Paths of sockets of this user's daemons. Any thread.
#ifndef PHALANX_RUNTIME_PATHS_H_
#define PHALANX_RUNTIME_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phalanx::runtime {

// Returns $XDG_RUNTIME_DIR/phalanx, or /tmp/phalanx-UID.
std::string UserFolder();

// Returns node.sock in the user's folder. Nodes listen there, and commands connect there, by
// default.
std::string DefaultSocketPath();

// A new folder of mode 0700. The destructor removes it and the files directly in it.
class TemporaryFolder {
 public:
  // Creates it below $XDG_RUNTIME_DIR, or below /tmp if that is not writable. Returns Unavailable
  // if both fail.
  static absl::StatusOr<TemporaryFolder> Make();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_PATHS_H_
