// Paths of sockets of this user's daemons. Any thread.
#ifndef PHALANX_NODE_HOST_PATHS_H_
#define PHALANX_NODE_HOST_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phalanx::runtime {

// Returns $XDG_RUNTIME_DIR/phalanx, or /tmp/phalanx-UID.
std::string UserFolder();

// Returns node.sock in the user's folder. Nodes listen there, and commands connect there, by
// default.
std::string DefaultSocketPath();

// A new folder of mode 0700, removed with the files directly in it when this object is destroyed.
//
// The object holds an exclusive flock on the file `owner` in its folder, from before that file gets
// its name. If the process is killed, the kernel drops the lock, and the next Make removes the
// folder.
class TemporaryFolder {
 public:
  // Makes a folder below $XDG_RUNTIME_DIR, or below /tmp if that cannot be written to. Removes the
  // folders there that killed processes of this user left. Returns Unavailable if neither works.
  static absl::StatusOr<TemporaryFolder> Make();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path);
  std::string path_;
  int owner_ = -1;  // the locked file, or -1: such a folder is never taken for a killed process's
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_HOST_PATHS_H_
