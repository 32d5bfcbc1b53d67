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
  int reader = -1;
  int writer = -1;

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    if (reader >= 0) close(reader);
    CloseWriter();
  }
  bool Open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    reader = fds[0];
    writer = fds[1];
    return true;
  }
  void CloseWriter() {
    if (writer >= 0) close(std::exchange(writer, -1));
  }
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

// What happens in the child until the program begins. Returns only if it does not begin, with
// errno.
void BecomeProgram(pid_t parent, const Pipe output[2], char* const* arguments,
                   char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent can have ended before; its child then belongs to another process.
  if (getppid() != parent) _exit(128 + SIGKILL);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output[0].writer, STDOUT_FILENO) < 0 ||
      dup2(output[1].writer, STDERR_FILENO) < 0) {
    return;
  }
  ResetSignals();
  execvpe(arguments[0], arguments, environment);
}

// Returns the error number that the child has sent, or 0 when its program has begun.
int ReadError(int fd) {
  int error = 0;
  ssize_t size;
  do {
    size = read(fd, &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  return size == static_cast<ssize_t>(sizeof(error)) ? error : 0;
}

absl::Status CannotRun(const std::string& program, int error) {
  const bool missing = error == ENOENT;
  const std::string text = absl::StrCat("cannot run ", program, ": ", strerror(error));
  return WithExitCode(missing ? absl::NotFoundError(text) : absl::PermissionDeniedError(text),
                      missing ? kNoSuchProgram : kCannotExecute);
}

absl::Status NoRoom(const std::string& program) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot start ", program, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    std::vector<std::string> arguments, std::vector<std::string> environment) {
  const std::string program = arguments[0];
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
  Pipe output[2], begun;
  if (!output[0].Open() || !output[1].Open() || !begun.Open()) return NoRoom(program);
  const pid_t parent = getpid();
  auto child = std::unique_ptr<ChildProcess>(new ChildProcess);
  child->pid_ = fork();
  if (child->pid_ < 0) return NoRoom(program);
  if (child->pid_ == 0) {
    BecomeProgram(parent, output, argv.data(), envp.data());
    (void)!write(begun.writer, &errno, sizeof(errno));
    _exit(kNoSuchProgram);
  }
  // Also here: a signal to the group must not come before the child has made it.
  setpgid(child->pid_, child->pid_);
  begun.CloseWriter();
  if (const int error = ReadError(begun.reader); error != 0) return CannotRun(program, error);
  child->end_ = static_cast<int>(syscall(SYS_pidfd_open, child->pid_, 0));
  if (child->end_ < 0) return NoRoom(program);
  for (int stream : {0, 1}) child->output_[stream] = std::exchange(output[stream].reader, -1);
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Reap();
  }
  for (const int fd : {end_, output_[0], output_[1]}) {
    if (fd >= 0) close(fd);
  }
}

void ChildProcess::Signal(int number) const {
  // The program can have moved itself to another group.
  if (kill(-pid_, number) != 0) kill(pid_, number);
}

int ChildProcess::Reap() {
  siginfo_t end = {};
  // The number of the group stays taken until the second call.
  while (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  Signal(SIGKILL);
  while (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED) != 0 && errno == EINTR) {
  }
  pid_ = -1;
  return end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
}

}  // namespace phalanx::runtime
