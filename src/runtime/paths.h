// Where sockets of this user's daemons are. Any thread.
#ifndef PHALANX_RUNTIME_PATHS_H_
#define PHALANX_RUNTIME_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phalanx::runtime {

// $XDG_RUNTIME_DIR/phalanx, or /tmp/phalanx-UID.
std::string UserFolder();

// node.sock in the user's folder: where a node listens and commands look unless told otherwise.
std::string DefaultSocketPath();

// A new folder of mode 0700 that goes, with what is directly in it, when this object does.
class TemporaryFolder {
 public:
  // Below $XDG_RUNTIME_DIR, or /tmp when that is not to be written to. Unavailable.
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
