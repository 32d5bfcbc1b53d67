#include "src/cli/launch/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/cli/command.h"
#include "src/client/connection/embedded.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxMarkBytes = 256;
constexpr int kKilled = 128 + SIGKILL;
// After that a server counts as dead that has not joined.
constexpr absl::Duration kAbsentAfter = absl::Seconds(30);
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

std::string SignalText(int number) {
  return absl::StrCat("signal ", number, " (", strsignal(number), ")");
}

std::string EndText(const ChildProcess::End& end) {
  return end.signalled ? absl::StrCat("ended by ", SignalText(end.number))
                       : absl::StrCat("ended with exit code ", end.number);
}

// Valid in processes of the same user, while this one has the file open.
std::string PathOf(const net::UniqueFd& fd) {
  return absl::StrCat("/proc/", getpid(), "/fd/", fd.get());
}

// What a spare has written: a line for each part, and one without a part when it began to wait.
LaunchPlan::Parts ReadParts(const std::string& text) {
  if (text.empty()) return std::nullopt;
  LaunchPlan::Parts parts(std::in_place);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    int part = 0;
    if (absl::SimpleAtoi(line, &part) && part >= 0) parts->push_back(part);
  }
  return parts;
}

// What a life has written into its mark.
std::string ReadMark(const net::UniqueFd& mark) {
  char text[kMaxMarkBytes];
  const ssize_t size = mark.valid() ? pread(mark.get(), text, sizeof(text), 0) : 0;
  const absl::string_view written(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return std::string(absl::StripAsciiWhitespace(written));
}

LaunchPlan::Roles RolesOf(const LaunchTasks& tasks) {
  LaunchPlan::Roles roles;
  const RolePlace* servers = tasks.Role(kServerRole);
  const RolePlace* workers = tasks.Role(kWorkerRole);
  if (servers == nullptr || workers == nullptr) return roles;
  roles.servers = static_cast<size_t>(servers->tasks);
  roles.alone = workers->tasks == workers->world;
  const RolePlace* spares = tasks.Role(kSpareRole);
  if (spares == nullptr) return roles;
  roles.spares = static_cast<size_t>(spares->tasks);
  roles.spares_of_job = static_cast<size_t>(spares->world);
  // A spare here can have the part of a server of another launch.
  roles.alone = roles.alone && servers->tasks == servers->world;
  return roles;
}

}  // namespace

Launcher::Launcher(LaunchOptions options)
    : options_(std::move(options)),
      id_(absl::StrCat(absl::Hex(SystemRandom64(), absl::kZeroPad16))),
      plan_(options_.tasks.size(), options_.restarts, RolesOf(options_.tasks)),
      deaths_(options_.deaths),
      tasks_(options_.tasks.size()) {}

absl::Status Launcher::Run() {
  PHALANX_RETURN_IF_ERROR(Prepare());
  for (size_t index = 0; index < tasks_.size() && !plan_.stopping(); ++index) Start(index);
  loop_.Post([this] { EndIfDone(); });
  loop_.Run();
  if (abandoned_) SkipStalledError();
  return reason_.ok() ? reason_ : WithExitCode(reason_, plan_.exit_code());
}

absl::Status Launcher::Prepare() {
  // A parent that ignores the ends of its children leaves that to its children; they would have no
  // exit codes.
  signal(SIGCHLD, SIG_DFL);
  HoldSignals(kSignals);
  PHALANX_ASSIGN_OR_RETURN(signals_,
                           ProcessSignals::Watch(
                               loop_, [this](int number) { OnSignal(number); }, kSignals));
  PHALANX_ASSIGN_OR_RETURN(outputs_[0], OpenOutput(0));
  // With two queues for one file, a line could come into the middle of another.
  outputs_[1] = outputs_[0];
  if (!SameFile(STDOUT_FILENO, STDERR_FILENO)) {
    PHALANX_ASSIGN_OR_RETURN(outputs_[1], OpenOutput(1));
  }
  PHALANX_ASSIGN_OR_RETURN(prints_, PrintSocket::Open());
  PHALANX_ASSIGN_OR_RETURN(print_watcher_, loop_.Watch(prints_->fd()));
  print_watcher_->OnReadable([this] { OnPrint(); });
  RunAfter(options_.timeout, [this] { OnTimeout(); });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<OutputQueue>> Launcher::OpenOutput(int stream) {
  OutputQueue::Events events;
  events.on_room = [this, stream] { OnRoom(stream); };
  events.on_error = [this, stream](int error) { OnBrokenOutput(stream, error); };
  return OutputQueue::Open(loop_, stream == 0 ? STDOUT_FILENO : STDERR_FILENO, std::move(events));
}

std::vector<std::string> Launcher::EnvironmentOf(size_t index) const {
  TaskVariables task;
  task.job = options_.job;
  task.role = options_.tasks.RoleOf(index).role;
  task.number = options_.tasks.NumberOf(index);
  task.world = options_.tasks.RoleOf(index).world;
  task.life = plan_.life(index);
  task.launch = id_;
  const RolePlace* servers = options_.tasks.Role(kServerRole);
  const RolePlace* workers = options_.tasks.Role(kWorkerRole);
  if (servers != nullptr && workers != nullptr) {
    task.parameter_server = ServersAndWorkers{.servers = servers->world, .workers = workers->world};
  }
  if (task.role == kSpareRole && servers != nullptr) {
    // The process that takes a restart may be on its way.
    const absl::Duration after =
        options_.restarts > 0 ? options_.spare_after : absl::ZeroDuration();
    // Another launch can begin late.
    const bool alone = !options_.tasks.job_is_larger();
    task.spare = SpareVariables{.world = task.world,
                                .after = absl::FormatDuration(after),
                                .absent_after = alone ? absl::FormatDuration(kAbsentAfter) : "",
                                .parts = PathOf(tasks_[index].parts)};
    task.role = kServerRole;
    task.world = servers->world;
  }
  task.address = options_.address;
  task.checkpoint_dir = options_.checkpoint_dir;
  task.print = prints_->path();
  task.fail = deaths_.PointOf(index, task.life);
  if (tasks_[index].mark.valid()) task.fail_mark = PathOf(tasks_[index].mark);
  return TaskEnvironment(task, environ);
}

void Launcher::Start(size_t index) {
  const absl::Status status = TryToStart(index);
  if (status.ok()) return plan_.Started();
  Task& task = tasks_[index];
  for (Stream& stream : task.streams) stream.watcher.reset();
  task.end.reset();
  task.process.reset();
  // Another attempt would fail as well.
  Stop(status, SIGTERM);
}

absl::Status Launcher::TryToStart(size_t index) {
  Task& task = tasks_[index];
  task.name = options_.tasks.NameOf(index);
  PHALANX_RETURN_IF_ERROR(MakeMark(index));
  PHALANX_ASSIGN_OR_RETURN(task.process,
                           ChildProcess::Start(options_.command, EnvironmentOf(index)));
  PHALANX_ASSIGN_OR_RETURN(task.end, loop_.Watch(task.process->end_fd()));
  task.end->OnReadable([this, index] { OnEnd(index); });
  for (const int stream : {0, 1}) {
    Stream& output = task.streams[stream];
    output.fd = task.process->output_fd(stream);
    output.lines = std::make_unique<LinePrefixer>(
        options_.prefix ? absl::StrCat("[", task.name, "] ") : std::string());
    PHALANX_ASSIGN_OR_RETURN(output.watcher, loop_.Watch(output.fd));
    output.watcher->OnReadable([this, &task, stream] { OnOutput(task, stream); });
  }
  return absl::OkStatus();
}

absl::Status Launcher::MakeMark(size_t index) {
  const auto make = [&](const char* name, bool wanted, net::UniqueFd& file) {
    file.Close();
    if (wanted) file = net::UniqueFd(memfd_create(name, MFD_CLOEXEC));
    return !wanted || file.valid();
  };
  Task& task = tasks_[index];
  if (make("phalanx-fail", deaths_.Has(index, plan_.life(index)), task.mark) &&
      make("phalanx-parts", options_.tasks.RoleOf(index).role == kSpareRole, task.parts)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot start ", task.name, ": ", strerror(errno)));
}

void Launcher::OnOutput(Task& task, int stream) {
  Stream& output = task.streams[stream];
  output.held = outputs_[stream]->full();
  if (output.held) return;
  const ssize_t size = Read(task, stream, kReadBytes);
  const bool more = size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
  if (!more) return output.watcher.reset();
  output.watcher->OnReadable([this, &task, stream] { OnOutput(task, stream); });
}

ssize_t Launcher::Read(Task& task, int stream, size_t most) {
  char bytes[kReadBytes];
  const ssize_t size = read(task.streams[stream].fd, bytes, std::min(most, sizeof(bytes)));
  if (size > 0) {
    outputs_[stream]->Append([&](std::string* out) {
      task.streams[stream].lines->Add(absl::string_view(bytes, static_cast<size_t>(size)), out);
    });
  }
  return size;
}

void Launcher::PassRest(Task& task, int stream) {
  Stream& output = task.streams[stream];
  // A process that the task has left can hold the pipe open, so this does not wait for its end.
  int left = 0;
  if (output.watcher != nullptr && ioctl(output.fd, FIONREAD, &left) == 0) {
    while (left > 0) {
      const ssize_t size = Read(task, stream, static_cast<size_t>(left));
      if (size <= 0) break;
      left -= static_cast<int>(size);
    }
  }
  outputs_[stream]->Append([&output](std::string* out) { output.lines->End(out); });
  output.watcher.reset();
}

void Launcher::OnPrint() {
  print_held_ = outputs_[0]->full();
  if (print_held_) return;
  PassPrint();
  print_watcher_->OnReadable([this] { OnPrint(); });
}

bool Launcher::PassPrint() {
  const bool knew = prints_->stranger().has_value();
  const std::optional<absl::string_view> text = prints_->Take();
  if (!text) return false;
  if (!text->empty()) {
    const bool ends = text->back() == '\n';
    // Without prefixes the line of a task can be open.
    const bool begins = outputs_[0]->at_line_start();
    outputs_[0]->Append([&](std::string* out) {
      absl::StrAppend(out, begins ? "" : "\n", *text, ends ? "" : "\n");
    });
  } else if (!knew && prints_->stranger()) {
    // Once: another user must not fill the output.
    Report(absl::StrCat("dropping what processes of user ", *prints_->stranger(), " print"));
  }
  return true;
}

void Launcher::PassPrints() {
  for (int i = prints_->most_waiting(); i > 0 && PassPrint(); --i) {
  }
}

void Launcher::OnEnd(size_t index) {
  Task& task = tasks_[index];
  const int pid = task.process->pid();
  const ChildProcess::End end = task.process->Reap();
  // What it has printed is among those that wait now. Other tasks can add to them without end.
  PassPrints();
  for (const int stream : {0, 1}) PassRest(task, stream);
  task.end.reset();
  task.process.reset();
  // It does not come back, so that a restart would fail as well.
  if (end.exit_code() != 0 && options_.private_cluster && !internal::EmbeddedRuns()) {
    Stop(absl::UnavailableError("the private cluster has ended"), SIGTERM);
  }
  const std::string text = absl::StrCat(task.name, " ", EndText(end));
  std::optional<std::string> missed;
  // Tasks that the launch stops miss no death.
  if (!plan_.stopping()) {
    // A SIGKILL alone can have come from the kernel, when memory was short.
    const std::string mark = end.exit_code() == kKilled ? ReadMark(task.mark) : "";
    // A shell that the launch has started ends with the exit code of the process that has died.
    const std::optional<int> process = end.signalled ? std::optional(pid) : std::nullopt;
    deaths_.Ended(index, plan_.life(index), text, DeathInMark(mark, plan_.life(index), process));
    if (options_.deaths_must_be_made) missed = deaths_.Missed(index, plan_.life(index));
  }
  const bool awaited = plan_.awaits_servers();
  const LaunchPlan::Next next =
      plan_.Ended(index, end.exit_code(), missed.has_value(), ReadParts(ReadMark(task.parts)));
  if (!awaited && plan_.awaits_servers()) RunAfter(options_.grace, [this] { ReportServers(); });
  if (next == LaunchPlan::Next::kStart) {
    task.held = true;
    Report(absl::StrCat(text, ": starting it again (life ", plan_.life(index),
                        ", restarts left: ", plan_.restarts_left(), ")"));
    StartHeld();
  } else if (next == LaunchPlan::Next::kSpare) {
    Report(absl::StrCat(text, ": not started again (spares left: ", plan_.spares_left(), ")"));
  } else if (next == LaunchPlan::Next::kStop) {
    reason_ = absl::AbortedError(missed.value_or(text));
    EndAll(SIGTERM);
    // All output is still passed on: it can have the cause.
    RunAfter(options_.grace, [this] { SignalAll(SIGKILL); });
  }
  if (plan_.TakeOnlySpares()) EndSpares();
  EndIfDone();
}

void Launcher::EndSpares() {
  EndAll(SIGTERM);
  RunAfter(options_.grace, [this] { SignalAll(SIGKILL); });
}

void Launcher::ReportServers() {
  std::vector<std::string> names;
  for (const Task& task : tasks_) {
    // Which spare has a part is not known here.
    const bool serves = plan_.spares_serve() || !absl::StartsWith(task.name, kSpareRole);
    if (task.process != nullptr && serves) names.push_back(task.name);
  }
  if (names.empty() || plan_.stopping()) return;
  Report(absl::StrCat("all workers have ended; waiting for ", absl::StrJoin(names, ", ")));
}

void Launcher::StartHeld() {
  for (size_t index = 0; index < tasks_.size(); ++index) {
    // The output of a life is taken although the output is full: it would grow with every life. The
    // launch can have begun to stop meanwhile, also by the report of the restart.
    const bool room = !outputs_[0]->full() && !outputs_[1]->full();
    if (!room || plan_.stopping()) return;
    if (std::exchange(tasks_[index].held, false)) Start(index);
  }
}

void Launcher::OnRoom(int stream) {
  // What tasks print has the last slot.
  const size_t streams = 2 * tasks_.size();
  const size_t slots = streams + 1;
  const size_t begin = next_[stream];
  for (size_t i = 0; i < slots && !outputs_[stream]->full(); ++i) {
    const size_t slot = (begin + i) % slots;
    if (slot == streams) {
      if (outputs_[0] == outputs_[stream] && print_held_) OnPrint();
      continue;
    }
    Task& task = tasks_[slot / 2];
    const int each = static_cast<int>(slot % 2);
    if (outputs_[each] != outputs_[stream] || !task.streams[each].held) continue;
    if (task.streams[each].watcher != nullptr) OnOutput(task, each);
    next_[stream] = (slot + 1) % slots;
  }
  StartHeld();
  EndIfDone();
}

void Launcher::OnBrokenOutput(int stream, int error) {
  // Nothing can be said without a standard error, but the tasks can go on.
  if (stream == 1) return;
  Stop(error == EPIPE
           ? ClosedPipe()
           : absl::UnknownError(absl::StrCat("cannot write to standard output: ", strerror(error))),
       SIGTERM);
}

void Launcher::OnSignal(int number) {
  // A blocked signal arrives here although it is ignored, as under nohup. Shells ignore these two
  // in every job in the background, which says nothing about signals sent on purpose.
  const bool of_terminal = number == SIGINT || number == SIGQUIT;
  struct sigaction action;
  if (!of_terminal && sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
    return;
  }
  if (number == SIGUSR1 || number == SIGUSR2) return SignalAll(number);
  const LaunchPlan::Next next = plan_.Signalled(number, loop_.Now());
  if (next == LaunchPlan::Next::kKill) return Abandon();
  if (next != LaunchPlan::Next::kStop) return;
  StopTasks(absl::CancelledError(absl::StrCat("ended by ", SignalText(number))), number);
}

void Launcher::OnTimeout() {
  // The tasks of a launch that stops have their grace already, but its reader can wait for ever.
  if (plan_.stopping()) return RunAfter(options_.grace, [this] { Abandon(); });
  Stop(absl::DeadlineExceededError(
           absl::StrCat(plan_.finished() ? "the output was not read" : "the tasks have not ended",
                        " within --timeout=", absl::FormatDuration(options_.timeout))),
       SIGTERM);
}

void Launcher::Stop(absl::Status reason, int signal) {
  if (plan_.Stop(ExitCode(reason))) StopTasks(std::move(reason), signal);
}

void Launcher::StopTasks(absl::Status reason, int signal) {
  reason_ = std::move(reason);
  EndAll(signal);
  RunAfter(options_.grace, [this] { Abandon(); });
}

void Launcher::EndAll(int signal) {
  SignalAll(signal);
  // A stopped process (SIGSTOP) acts on the signal only when it continues.
  SignalAll(SIGCONT);
}

void Launcher::Abandon() {
  SignalAll(SIGKILL);
  abandoned_ = true;
  EndIfDone();
}

void Launcher::SignalAll(int signal) {
  for (const Task& task : tasks_) {
    if (task.process != nullptr) task.process->Signal(signal);
  }
}

void Launcher::RunAfter(absl::Duration delay, phalanx::Task task) {
  if (delay != absl::InfiniteDuration()) loop_.RunAt(loop_.Now() + delay, std::move(task));
}

void Launcher::SkipStalledError() {
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (outputs_[1]->empty() && poll(&room, 1, 0) > 0) return;
  const net::UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  dup2(null.get(), STDERR_FILENO);
}

void Launcher::EndIfDone() {
  const auto done = [this] {
    const bool written = outputs_[0]->empty() && outputs_[1]->empty();
    return plan_.finished() && (written || abandoned_);
  };
  if (done() && print_watcher_ != nullptr) {
    // Processes that the tasks have left can print until now. They get an error from now on, so
    // that no text is lost that was taken.
    prints_->Refuse();
    print_watcher_.reset();
    print_held_ = false;
    PassPrints();
  }
  if (done() && !plan_.stopping()) JudgeParts();
  if (done() && !plan_.stopping()) JudgeDeaths();
  if (done()) loop_.Stop();
}

void Launcher::JudgeParts() {
  const std::optional<LaunchPlan::Lost> lost = plan_.lost();
  if (!lost.has_value()) return;
  plan_.Stop(lost->code);
  reason_ =
      absl::AbortedError(absl::StrCat(tasks_[lost->server].name, " has failed with exit code ",
                                      lost->code, ", and no spare has had its part to the end"));
}

void Launcher::JudgeDeaths() {
  const std::vector<std::string> unmade = deaths_.TakeUnmade();
  const bool fails = options_.deaths_must_be_made && !unmade.empty();
  // The only one is the error with which the launch ends.
  if (fails && unmade.size() == 1) return Stop(absl::AbortedError(unmade[0]), SIGTERM);
  for (const std::string& line : unmade) Report(line);
  if (fails) {
    Stop(absl::AbortedError(absl::StrCat(unmade.size(), " declared deaths were not made")),
         SIGTERM);
  }
}

void Launcher::Report(const std::string& text) {
  outputs_[1]->Append(
      [&text](std::string* out) { absl::StrAppend(out, "phalanx launch: ", text, "\n"); });
}

}  // namespace phalanx::runtime
