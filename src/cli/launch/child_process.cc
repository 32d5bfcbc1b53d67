#include "src/cli/launch/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/command.h"

namespace phalanx::runtime {
namespace {

constexpr int kCannotExecute = 126;
constexpr int kNoSuchProgram = 127;

struct Pipe {
  net::UniqueFd reader;
  net::UniqueFd writer;

  bool Open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    reader = net::UniqueFd(fds[0]);
    writer = net::UniqueFd(fds[1]);
    return true;
  }
};

// Why the program of a child has not begun.
struct Failure {
  // 0: it has begun.
  int error = 0;
  // The program cannot be executed; else, the child could not be set up for it.
  bool program = false;
};

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void ResetSignals() {
  // They are ignored in this process, or in a job that a shell has started in the background. The
  // terminal cannot send them to another process group, so nothing has to ignore them.
  for (const int number : {SIGINT, SIGQUIT, SIGPIPE}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// What happens in the child until the program begins. Returns only if it does not begin.
Failure BecomeProgram(pid_t parent, const Pipe output[2], char* const* arguments,
                      char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent can have ended before; its child then belongs to another process.
  if (getppid() != parent) _exit(128 + SIGKILL);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 ||
      dup2(output[0].writer.get(), STDOUT_FILENO) < 0 ||
      dup2(output[1].writer.get(), STDERR_FILENO) < 0) {
    return {errno, /*program=*/false};
  }
  ResetSignals();
  execvpe(arguments[0], arguments, environment);
  return {errno, /*program=*/true};
}

// Returns what the child has sent, or error 0 when its program has begun.
Failure ReadFailure(int fd) {
  Failure failure;
  ssize_t size;
  do {
    size = read(fd, &failure, sizeof(failure));
  } while (size < 0 && errno == EINTR);
  return size == static_cast<ssize_t>(sizeof(failure)) ? failure : Failure();
}

absl::Status CannotRun(const std::string& program, int error) {
  const bool missing = error == ENOENT;
  const std::string text = absl::StrCat("cannot run ", program, ": ", strerror(error));
  return WithExitCode(missing ? absl::NotFoundError(text) : absl::PermissionDeniedError(text),
                      missing ? kNoSuchProgram : kCannotExecute);
}

absl::Status NoRoom(const std::string& program, int error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot start ", program, ": ", strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    std::vector<std::string> arguments, std::vector<std::string> environment) {
  const std::string program = arguments[0];
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  Pipe output[2], begun;
  if (!output[0].Open() || !output[1].Open() || !begun.Open()) return NoRoom(program, errno);
  const pid_t parent = getpid();
  auto child = std::unique_ptr<ChildProcess>(new ChildProcess);
  child->pid_ = fork();
  if (child->pid_ < 0) return NoRoom(program, errno);
  if (child->pid_ == 0) {
    const Failure failure = BecomeProgram(parent, output, argv.data(), envp.data());
    (void)!write(begun.writer.get(), &failure, sizeof(failure));
    _exit(kNoSuchProgram);
  }
  // Also here: a signal to the group must not come before the child has made it.
  setpgid(child->pid_, child->pid_);
  begun.writer.Close();
  if (const Failure failure = ReadFailure(begun.reader.get()); failure.error != 0) {
    return failure.program ? CannotRun(program, failure.error) : NoRoom(program, failure.error);
  }
  child->end_ = net::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, child->pid_, 0)));
  if (!child->end_.valid()) return NoRoom(program, errno);
  for (int stream : {0, 1}) child->output_[stream] = std::move(output[stream].reader);
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Reap();
  }
}

void ChildProcess::Signal(int number) const {
  // The program can have moved itself to another group.
  if (kill(-pid_, number) != 0) kill(pid_, number);
}

ChildProcess::End ChildProcess::Reap() {
  siginfo_t end = {};
  // The number of the group stays taken until the second call.
  while (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  Signal(SIGKILL);
  while (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED) != 0 && errno == EINTR) {
  }
  pid_ = -1;
  return {end.si_code != CLD_EXITED, end.si_status};
}

}  // namespace phalanx::runtime
