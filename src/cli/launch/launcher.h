// Runs the tasks of one `phalanx launch`: starts and restarts their processes, passes on their
// output and the launch's signals, and ends with all of them.
//
//  LaunchPlan, DeclaredDeaths                                what to do
//      └────────► Launcher ──► Task ──► ChildProcess         the process
//                    │  │        └────► LinePrefixer (2)     its output as lines
//                    │  └── PrintSocket     │                what it prints at the launch
//                    └── OutputQueue (1 or 2) ◄──┘           standard output and error
//
// One loop on main's thread, which is the only thread of the process.
#ifndef PHALANX_CLI_LAUNCH_LAUNCHER_H_
#define PHALANX_CLI_LAUNCH_LAUNCHER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/cli/launch/child_process.h"
#include "src/cli/launch/declared_deaths.h"
#include "src/cli/launch/job_place.h"
#include "src/cli/launch/launch_plan.h"
#include "src/cli/launch/line_prefixer.h"
#include "src/cli/launch/output_queue.h"
#include "src/cli/launch/print_socket.h"
#include "src/cli/launch/task_environment.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/unique_fd.h"
#include "src/node/host/process_signals.h"

namespace phalanx::runtime {

struct LaunchOptions {
  // The program and its arguments.
  std::vector<std::string> command;
  // Of one role; or servers and workers, the roles of a parameter server.
  LaunchTasks tasks = LaunchTasks({RolePlace{}});
  std::string job;
  // The node of the tasks.
  std::string address;
  // Where the tasks write checkpoints; empty: as their environment says.
  std::string checkpoint_dir = {};
  // It is that of this process's private cluster (EmbeddedAddress).
  bool private_cluster = false;
  int restarts = 0;
  // How long a server has been dead whose part a spare takes, if there are restarts: one that is
  // started again within that time comes back.
  absl::Duration spare_after = absl::Seconds(30);
  DeclaredDeaths deaths = {};
  // A declared death that is not made fails the launch. Otherwise it is reported at the end.
  bool deaths_must_be_made = true;
  absl::Duration grace = absl::Seconds(5);
  absl::Duration timeout = absl::InfiniteDuration();
  bool prefix = true;
};

class Launcher {
 public:
  explicit Launcher(LaunchOptions options);

  // Returns OK when all tasks have ended with 0. Errors have the exit code of the launch
  // (WithExitCode): the first failed task's, 127 or 126 if the program cannot be started, 128 + the
  // signal that has ended the launch. DeadlineExceeded after the timeout; Unavailable if a task
  // fails and the private cluster has ended; ClosedPipe if the reader of the output is gone. No
  // task runs then. REQUIRES: called once; descriptors 0 to 2 were open before the constructor.
  absl::Status Run();

 private:
  struct Stream {
    int fd = -1;
    std::unique_ptr<LinePrefixer> lines;
    // Null: at its end.
    std::unique_ptr<net::FdWatcher> watcher;
    // Not read, because the output is full.
    bool held = false;
  };
  // Destroyed from its end: watchers go before their descriptors.
  struct Task {
    std::string name;
    // Null: not started, or ended.
    std::unique_ptr<ChildProcess> process;
    std::unique_ptr<net::FdWatcher> end;
    // Of a life with a declared death: a file of the memory into which it writes which one it dies.
    net::UniqueFd mark;
    // Of a spare: the same, for the parts that it has had.
    net::UniqueFd parts;
    // Started when the output has room.
    bool held = false;
    Stream streams[2];
  };

  absl::Status Prepare();
  absl::StatusOr<std::shared_ptr<OutputQueue>> OpenOutput(int stream);
  std::vector<std::string> EnvironmentOf(size_t index) const;
  // Names the servers that still run although all workers have ended.
  void ReportServers();
  void EndSpares();

  void Start(size_t index);
  absl::Status TryToStart(size_t index);
  absl::Status MakeMark(size_t index);
  // All tasks have ended by themselves: a server can have failed whose part no spare has had.
  void JudgeParts();
  // The same: reports the declared deaths that were not made.
  void JudgeDeaths();
  // Starts tasks again that OnEnd has held back.
  void StartHeld();
  void OnEnd(size_t index);
  void OnOutput(Task& task, int stream);
  // Passes on up to `most` bytes of output. Returns their number; 0 at the end, -1 as read(2).
  ssize_t Read(Task& task, int stream, size_t most);
  // Passes on what the pipe holds, and closes the stream.
  void PassRest(Task& task, int stream);
  void OnPrint();
  // Passes on the texts that wait.
  void PassPrints();
  // Passes on the next text that a task has printed at the launch. Returns false if none waits.
  bool PassPrint();
  // Reads on from the tasks, each in its turn.
  void OnRoom(int stream);
  void OnSignal(int number);
  void OnTimeout();
  void OnBrokenOutput(int stream, int error);

  // Stops all tasks, unless the launch stops already. The first reason is the result of Run.
  void Stop(absl::Status reason, int signal);
  void StopTasks(absl::Status reason, int signal);
  // Kills all tasks, and waits for the reader of the output no longer.
  void Abandon();
  // Sends all tasks a signal that ends them, also stopped ones.
  void EndAll(int signal);
  void SignalAll(int signal);
  void RunAfter(absl::Duration delay, phalanx::Task task);
  // The error line of the launch goes to /dev/null if standard error would block it.
  void SkipStalledError();
  // Ends the loop when no task runs and all output is written or abandoned.
  void EndIfDone();
  // Writes a line to standard error.
  void Report(const std::string& text);

  const LaunchOptions options_;
  const std::string id_;  // of this launch
  LaunchPlan plan_;
  DeclaredDeaths deaths_;
  // Why the launch stops; OK: it does not.
  absl::Status reason_;
  // Output that is not written yet is dropped when no task runs.
  bool abandoned_ = false;
  net::EventLoop loop_;
  std::unique_ptr<ProcessSignals> signals_;
  // The same queue twice if both are one file.
  std::shared_ptr<OutputQueue> outputs_[2];
  std::unique_ptr<PrintSocket> prints_;
  // Null: the launch ends.
  std::unique_ptr<net::FdWatcher> print_watcher_;
  // Not read, because the output is full.
  bool print_held_ = false;
  // Which stream of all tasks' (2 * task + stream) each output reads first when it has room.
  size_t next_[2] = {0, 0};
  std::vector<Task> tasks_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_LAUNCHER_H_
