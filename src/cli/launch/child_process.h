// A process of a launch, in a process group of its own.
//
// The kernel kills it with SIGKILL when the thread that started it ends, and so however this
// process ends. That is not so for processes that it starts itself, nor if it changes its user.
//
// Owned by the Launcher; main's thread only, for that reason.
#ifndef PHALANX_CLI_LAUNCH_CHILD_PROCESS_H_
#define PHALANX_CLI_LAUNCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::runtime {

class ChildProcess {
 public:
  // Starts arguments[0], searched along PATH, with /dev/null as its standard input, default
  // handlers of SIGINT, SIGQUIT and SIGPIPE, and no masked signals. Errors: as WithExitCode, 127 if
  // there is no such program and 126 if it cannot be executed; ResourceExhausted without
  // descriptors or processes, or when the child cannot be set up. REQUIRES: this process has no
  // other thread.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(std::vector<std::string> arguments,
                                                             std::vector<std::string> environment);
  // Kills its group, unless it was reaped.
  ~ChildProcess();

  // -1: it was reaped.
  pid_t pid() const { return pid_; }
  // Readable when the process has ended.
  int end_fd() const { return end_.get(); }
  // The read ends of its standard output [0] and error [1].
  int output_fd(int stream) const { return output_[stream].get(); }

  // Sends a signal to its group. REQUIRES: not reaped.
  void Signal(int number) const;
  struct End {
    bool signalled = false;
    // The signal, or what the program returned.
    int number = 0;

    // As a shell has it.
    int exit_code() const { return signalled ? 128 + number : number; }
  };
  // Waits for its end, and kills what it has left in its group.
  End Reap();

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;
  net::UniqueFd end_;
  net::UniqueFd output_[2];
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_CHILD_PROCESS_H_
