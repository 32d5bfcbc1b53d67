#include "src/client/connection/embedded.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/client/connection/connection.h"
#include "src/client/socket/fork_guard.h"
#include "src/common/status_macros.h"
#include "src/common/threads/mutex.h"

namespace phalanx::internal {
namespace {

// The descriptor number under which the daemon inherits its end of the pair.
constexpr int kInheritedFd = 3;
constexpr size_t kMaxLineBytes = 4096;
// How long a daemon whose socket is closed can take to end.
constexpr absl::Duration kTimeToEnd = absl::Seconds(1);

struct Cluster {
  std::string address;
  pid_t daemon = -1;
  int lifeline = -1;
};

// An empty folder would mean the root, so a bare name gives ".".
std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Settings of this host's cluster that do not apply to the private cluster. Both would bind the
// same listener, and an error in a config file that the program never named would keep the private
// cluster from starting.
constexpr absl::string_view kSettingsOfTheHost[] = {
    "PHALANX_ADVERTISE", "PHALANX_CLUSTER_ID", "PHALANX_CONFIG",   "PHALANX_DIRECTORY",
    "PHALANX_LABEL",     "PHALANX_LISTEN",     "PHALANX_LOG_FILE", "PHALANX_METRICS_LISTEN",
    "PHALANX_NAME",      "PHALANX_NUM_SHARDS", "PHALANX_SECRET",   "PHALANX_SECRET_FILE",
    "PHALANX_SOCKET",    "PHALANX_SHARD_INDEX"};

// The environment of the daemon, ended by a null pointer. Points into this process's environment.
std::vector<char*> EnvironmentOfDaemon() {
  std::vector<char*> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const absl::string_view name = text.substr(0, text.find('='));
    const auto* end = std::end(kSettingsOfTheHost);
    if (std::find(std::begin(kSettingsOfTheHost), end, name) == end) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// Resets what a child would inherit and must not: masked signals, and the terminal's Ctrl-C.
class SpawnSettings {
 public:
  explicit SpawnSettings(int inherited) {
    posix_spawn_file_actions_init(&actions_);
    // This goes first: in a program without standard input the inherited descriptor can be number 0
    // or 1.
    posix_spawn_file_actions_adddup2(&actions_, inherited, kInheritedFd);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD}) sigaddset(&defaults, number);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    // A session of its own: Ctrl-C in the terminal must end the program, which then ends the
    // daemon, not the daemon first.
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  absl::StatusOr<pid_t> Run(const std::string& executable, std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::vector<char*> environment = EnvironmentOfDaemon();
    pid_t pid = -1;
    const int error = posix_spawn(&pid, executable.c_str(), &actions_, &attributes_, argv.data(),
                                  environment.data());
    if (error == 0) return pid;
    return absl::UnavailableError(absl::StrCat(executable, ": ", std::strerror(error)));
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

absl::StatusOr<std::string> FindExecutable(const std::string& named) {
  const std::vector<std::string> candidates = ExecutableCandidates(named);
  for (const std::string& candidate : candidates) {
    struct stat info;  // a folder can be "executable" too
    const bool file = stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode);
    if (file && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(
      absl::StrCat("a private cluster needs the `phalanx` executable, which was not found at: ",
                   absl::StrJoin(candidates, ", "),
                   " (set PHALANX_BINARY, or PHALANX_ADDRESS to use a running node)"));
}

// Returns the daemon's first line. Unavailable if the daemon ends without one.
absl::StatusOr<std::string> ReadLine(int fd, Instant until) {
  std::string line;
  while (line.size() < kMaxLineBytes) {
    const absl::Duration left = until - MonotonicNow();
    if (left <= absl::ZeroDuration())
      return absl::DeadlineExceededError("it was not ready in time");
    pollfd ready{fd, POLLIN, 0};
    const timespec limit = absl::ToTimespec(std::min(left, absl::Hours(1)));
    if (ppoll(&ready, 1, &limit, nullptr) <= 0) continue;
    // Byte by byte: the descriptor stays open afterwards, and there is one line only.
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return absl::UnavailableError("it ended before it was ready; its log has the reason");
    if (byte == '\n') return line;
    line.push_back(byte);
  }
  return absl::UnavailableError("it did not write READY");
}

absl::StatusOr<std::string> ReadAddress(int fd, Instant until) {
  PHALANX_ASSIGN_OR_RETURN(const std::string line, ReadLine(fd, until));
  absl::string_view rest = line;
  if (absl::ConsumePrefix(&rest, "READY ")) return std::string(rest);
  absl::ConsumePrefix(&rest, "ERROR ");
  return absl::UnavailableError(rest);
}

// Removes the daemons that have ended, and so leaves no zombies.
void Reap(std::vector<pid_t>& ending) {
  std::erase_if(ending, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

// Closes the daemon's end of file signal. The daemon can take a while to end, so its pid joins
// `ending`.
void End(Cluster& cluster, std::vector<pid_t>& ending) {
  if (cluster.lifeline >= 0) {
    KeepInChildren(cluster.lifeline);
    close(cluster.lifeline);
  }
  if (cluster.daemon > 0) ending.push_back(cluster.daemon);
  Reap(ending);
  cluster = Cluster();
}

absl::StatusOr<Cluster> StartCluster(const std::string& named, uint64_t capacity_bytes,
                                     absl::Duration timeout, std::vector<pid_t>& ending) {
  const Instant until = MonotonicNow() + timeout;
  PHALANX_ASSIGN_OR_RETURN(const std::string executable, FindExecutable(named));
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return absl::ResourceExhaustedError(std::strerror(errno));
  }
  Cluster cluster;
  cluster.lifeline = pair[0];
  CloseInChildren(cluster.lifeline);
  // The parent's settings reach the daemon by the environment, the capacity by this flag.
  std::vector<std::string> arguments = {executable, "up",
                                        absl::StrCat("--embedded-fd=", kInheritedFd)};
  if (capacity_bytes > 0) arguments.push_back(absl::StrCat("--capacity=", capacity_bytes));
  const absl::StatusOr<pid_t> daemon = SpawnSettings(pair[1]).Run(executable, arguments);
  // The daemon has its own copy. While this one is open, the end of the daemon is not seen as end
  // of file.
  close(pair[1]);
  if (daemon.ok()) cluster.daemon = *daemon;
  const absl::StatusOr<std::string> address =
      daemon.ok() ? ReadAddress(cluster.lifeline, until) : daemon.status();
  if (!address.ok()) {
    End(cluster, ending);
    return absl::Status(address.status().code(),
                        absl::StrCat("starting a private cluster with ", executable, ": ",
                                     address.status().message()));
  }
  cluster.address = *address;
  return cluster;
}

struct SharedCluster {
  const ProcessMark mark = ProcessMark::Current();
  Mutex mu;
  Cluster cluster ABSL_GUARDED_BY(mu);
  // Daemons that are ending, until they are reaped, at the latest by the next connection.
  std::vector<pid_t> ending ABSL_GUARDED_BY(mu);
};

// A child of fork starts its own cluster: another thread can have held the parent's lock during
// fork, and the child's copy of the descriptor is closed. Never destroyed, because threads can
// still connect while the process ends.
SharedCluster& OfThisProcess() {
  static std::atomic<SharedCluster*> shared{nullptr};
  SharedCluster* current = shared.load();
  while (current == nullptr || current->mark.Forked()) {
    auto* fresh = new SharedCluster;
    if (shared.compare_exchange_strong(current, fresh)) return *fresh;
    delete fresh;
  }
  return *current;
}

// Returns false as soon as the daemon has ended, and true if it has not within `patience`.
bool Alive(const Cluster& cluster, absl::Duration patience) {
  if (cluster.lifeline < 0) return false;
  // The daemon writes only its first line, so anything readable now is its end of file.
  pollfd ready{cluster.lifeline, POLLIN, 0};
  return poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) == 0;
}

}  // namespace

std::vector<std::string> ExecutableCandidates(const std::string& executable) {
  const char* binary = std::getenv("PHALANX_BINARY");
  // A set variable is the only candidate, so that a typing error is reported instead of hidden by
  // another binary.
  if (binary != nullptr && *binary != '\0') return {binary};
  if (!executable.empty()) return {executable};
  std::vector<std::string> candidates;
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
  if (length > 0) {
    const std::string path(program, static_cast<size_t>(length));
    candidates.push_back(absl::StrCat(FolderOf(path), "/phalanx"));
  }
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(&ExecutableCandidates), &library) != 0 &&
      library.dli_fname != nullptr && std::strchr(library.dli_fname, '/') != nullptr) {
    // lib/ of an installation is beside its bin/. (A bare name is this program's, found on PATH.)
    const std::string folder = FolderOf(library.dli_fname);
    candidates.push_back(absl::StrCat(folder, "/phalanx"));
    candidates.push_back(absl::StrCat(folder, "/../bin/phalanx"));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (!folder.empty()) candidates.push_back(absl::StrCat(folder, "/phalanx"));
  }
  return candidates;
}

absl::StatusOr<std::string> EmbeddedAddress(const std::string& executable, uint64_t capacity_bytes,
                                            absl::Duration timeout, absl::string_view refused) {
  SharedCluster& shared = OfThisProcess();
  MutexLock lock(shared.mu);
  Reap(shared.ending);
  const bool ending = shared.cluster.address == refused;
  if (!Alive(shared.cluster, ending ? std::min(timeout, kTimeToEnd) : absl::ZeroDuration())) {
    End(shared.cluster, shared.ending);
    PHALANX_ASSIGN_OR_RETURN(shared.cluster,
                             StartCluster(executable, capacity_bytes, timeout, shared.ending));
  }
  return shared.cluster.address;
}

bool EmbeddedRuns() {
  SharedCluster& shared = OfThisProcess();
  MutexLock lock(shared.mu);
  return Alive(shared.cluster, absl::ZeroDuration());
}

}  // namespace phalanx::internal
