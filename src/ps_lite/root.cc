#include "src/ps_lite/root.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <sstream>

namespace phalanx::ps_lite {
namespace {

constexpr char kGreeting[] = "phalanx-ps";
constexpr char kJoined[] = "joined ";
// Of a question and an answer.
constexpr size_t kMostLineBytes = 1024;
// How long a process can take to ask, and how many can do so at once.
constexpr int64_t kPatienceMillis = 10'000;
constexpr size_t kMostAsking = 1024;
// Between two tries to reach the root.
constexpr int64_t kRetryMillis = 50;
// How often the root looks for connections that take too long.
constexpr int kPollMillis = 1000;
// How long the root does not accept when it has no descriptors.
constexpr int64_t kPauseMillis = 1000;
// How long a process asks a root that has given all ranks.
constexpr int64_t kFullMillis = 5'000;

int64_t NowMillis() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string RootText(const std::string& host, int port) {
  return host + ":" + std::to_string(port);
}

struct Addresses {
  addrinfo* first = nullptr;

  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

std::string Resolve(const std::string& host, int port, int flags, Addresses* to) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &to->first);
  return error == 0 ? "" : "DMLC_PS_ROOT_URI=" + host + ": " + gai_strerror(error);
}

// Waits for the descriptor. Returns false at the time `until`.
bool Await(int fd, short events, int64_t until) {
  while (true) {
    const int64_t left = until - NowMillis();
    pollfd ready = {fd, events, 0};
    const int count = left <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left));
    if (count > 0) return true;
    if (count == 0) return false;
  }
}

// Returns a connection, or -1.
int Dial(const addrinfo& address, int64_t until) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS && Await(fd, POLLOUT, until)) {
    socklen_t size = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == 0 && !IsConnectedToItself(fd)) return fd;
  close(fd);
  return -1;
}

// Sends the question and reads the answer; empty if the connection ends before.
std::string Ask(int fd, const std::string& question, int64_t until) {
  const std::string line = question + "\n";
  if (send(fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return "";
  std::string answer;
  while (answer.size() < kMostLineBytes && Await(fd, POLLIN, until)) {
    char bytes[256];
    const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return "";
    answer.append(bytes, static_cast<size_t>(got));
    if (answer.back() == '\n') return answer;
  }
  return answer;
}

// The answer of the first address that takes the connection; empty if there is none. The connection
// stays open as long as `hold`.
std::string AskOnce(const addrinfo* addresses, const std::string& question, int64_t until,
                    Hold* hold) {
  for (const addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    const int fd = Dial(*each, until);
    if (fd < 0) continue;
    *hold = Hold::Of(fd);
    return Ask(fd, question, until);
  }
  return "";
}

bool RoleNamed(const std::string& name, Role* role) {
  const auto* const found = std::find_if(std::begin(kRoles), std::end(kRoles),
                                         [&](Role each) { return name == NameOf(each); });
  if (found == std::end(kRoles)) return false;
  *role = *found;
  return true;
}

}  // namespace

// ---------------------------------------------------------------------------- ranks

std::string RankBook::Assign(Role role, int wanted, int* rank) {
  std::vector<Given>& given = given_[static_cast<int>(role)];
  const std::string name = NameOf(role);
  if (wanted >= static_cast<int>(given.size())) {
    return "DMLC_RANK=" + std::to_string(wanted) + ": the job has " + std::to_string(given.size()) +
           " processes of role " + name;
  }
  const auto is_free = [](const Given& each) { return !each.given; };
  const auto free =
      wanted < 0 ? std::find_if(given.begin(), given.end(), is_free) : given.begin() + wanted;
  if (free == given.end()) {
    return "the job has all its " + std::to_string(given.size()) + " processes of role " + name;
  }
  *rank = static_cast<int>(free - given.begin());
  if (free->given) return "another " + name + " has the rank " + std::to_string(wanted);
  free->given = true;
  free->life.reset();
  return "";
}

// The news of the death come from the job, and "joined" by a connection: each can be the first.
void RankBook::Joined(Peer peer, uint64_t life) {
  Given& given = At(peer);
  given.given = !given.died.has_value() || life > *given.died;
  given.life = life;
}

void RankBook::Died(Peer peer, uint64_t life) {
  Given& given = At(peer);
  given.died = life;
  if (given.life.has_value() && *given.life <= life) {
    given.given = false;
    given.life.reset();
  }
}

// ---------------------------------------------------------------------------- the scheduler

std::unique_ptr<Root> Root::Listen(const std::string& host, int port, std::string* wrong) {
  Addresses addresses;
  *wrong = Resolve(host, port, AI_PASSIVE, &addresses);
  if (!wrong->empty()) return nullptr;
  const addrinfo& address = *addresses.first;
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  int stop[2] = {-1, -1};
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
      pipe2(stop, O_CLOEXEC) == 0) {
    return std::unique_ptr<Root>(new Root(fd, stop));
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  *wrong = "the scheduler cannot listen at " + RootText(host, port) +
           " (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT): ";
  if (error == EADDRINUSE) {
    *wrong += "the port is in use";
  } else if (error == EADDRNOTAVAIL) {
    *wrong += "that is not an address of this host";
  } else {
    *wrong += std::strerror(error);
  }
  return nullptr;
}

Root::~Root() {
  close(stop_[1]);
  if (thread_.joinable()) thread_.join();
  close(stop_[0]);
  close(listening_);
}

void Root::Serve(const Settings& settings, const Place& place,
                 std::function<void(const std::string& why)> failed) {
  settings_ = settings;
  place_ = place;
  failed_ = std::move(failed);
  {
    std::lock_guard<std::mutex> lock(ranks_mu_);
    ranks_ = std::make_unique<RankBook>(settings.workers, settings.servers);
  }
  thread_ = std::thread([this] { Run(); });
}

void Root::Run() {
  std::vector<Asking> asking;
  while (true) {
    const bool pauses = NowMillis() < accepts_from_;
    std::vector<pollfd> ready = {{stop_[0], POLLIN, 0}, {pauses ? -1 : listening_, POLLIN, 0}};
    for (const Asking& each : asking) ready.push_back({each.fd, POLLIN, 0});
    const int timeout = asking.empty() && !pauses ? -1 : kPollMillis;
    if (poll(ready.data(), ready.size(), timeout) < 0) {
      if (errno == EINTR) continue;
      failed_(std::string("the scheduler's port does not answer any more: ") +
              std::strerror(errno));
      break;
    }
    if (ready[0].revents != 0) break;
    // Backwards, since those that are done with leave the list.
    for (size_t i = asking.size(); i-- > 0;) {
      const bool due = NowMillis() > asking[i].until;
      if (!due && (ready[i + 2].revents == 0 || !Read(&asking[i]))) continue;
      Close(asking[i]);
      asking.erase(asking.begin() + static_cast<ptrdiff_t>(i));
    }
    if (ready[1].revents != 0) Accept(&asking);
  }
  for (const Asking& each : asking) close(each.fd);
}

void Root::Accept(std::vector<Asking>* asking) {
  const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    // The connection stays in the queue: poll would return at once.
    if (accepts_from_ == 0) {
      std::fprintf(stderr, "ps: the scheduler's port has to wait: %s\n", std::strerror(errno));
    }
    accepts_from_ = NowMillis() + kPauseMillis;
    return;
  }
  if (asking->size() == kMostAsking) {
    close(fd);
    return;
  }
  asking->push_back({fd, "", NowMillis() + kPatienceMillis});
}

bool Root::Read(Asking* asking) {
  char bytes[256];
  const ssize_t got = recv(asking->fd, bytes, sizeof(bytes), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return true;
  asking->text.append(bytes, static_cast<size_t>(got));
  const size_t end = asking->text.find('\n');
  if (asking->given) {
    uint64_t life = 0;
    std::istringstream words(asking->text);
    std::string word;
    if (end != std::string::npos && words >> word >> life && word + " " == kJoined)
      asking->joined = life;
    return end != std::string::npos || asking->text.size() > kMostLineBytes;
  }
  if (end == std::string::npos) return asking->text.size() > kMostLineBytes;
  const std::string answer = AnswerTo(asking->text.substr(0, end), &asking->given) + "\n";
  asking->text.clear();
  // As long as it takes to join.
  asking->until = std::numeric_limits<int64_t>::max();
  // It fits into the socket. A process that has gone needs none.
  const ssize_t sent = send(asking->fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  return sent != static_cast<ssize_t>(answer.size()) || !asking->given;
}

// A process that ends before it has joined leaves its rank to the next one.
void Root::Close(const Asking& asking) {
  close(asking.fd);
  if (!asking.given) return;
  std::lock_guard<std::mutex> lock(ranks_mu_);
  if (asking.joined) {
    ranks_->Joined(*asking.given, *asking.joined);
  } else {
    ranks_->GiveBack(*asking.given);
  }
}

void Root::Died(Peer peer, uint64_t life) {
  std::lock_guard<std::mutex> lock(ranks_mu_);
  if (ranks_ != nullptr) ranks_->Died(peer, life);
}

std::string Root::AnswerTo(const std::string& line, std::optional<Peer>* given) {
  std::istringstream words(line);
  std::string greeting, name;
  int wanted = -1, workers = 0, servers = 0;
  Role role = Role::kScheduler;
  if (!(words >> greeting >> name >> wanted >> workers >> servers) || greeting != kGreeting ||
      !RoleNamed(name, &role)) {
    return "error this is the scheduler of a job, which does not understand the question";
  }
  if (role == Role::kScheduler) return "error the job has a scheduler";
  if (workers != settings_.workers || servers != settings_.servers) {
    return "error the scheduler has DMLC_NUM_WORKER=" + std::to_string(settings_.workers) +
           " and DMLC_NUM_SERVER=" + std::to_string(settings_.servers) + ", but this process " +
           std::to_string(workers) + " and " + std::to_string(servers);
  }
  int rank = 0;
  std::string wrong;
  {
    std::lock_guard<std::mutex> lock(ranks_mu_);
    wrong = ranks_->Assign(role, wanted, &rank);
  }
  if (!wrong.empty()) return "full " + wrong;
  *given = Peer{role, rank};
  return "ok " + std::to_string(rank) + (place_.private_cluster ? " 1 " : " 0 ") + place_.job +
         " " + place_.address;
}

// ---------------------------------------------------------------------------- the others

std::string QuestionOf(const Settings& settings) {
  return std::string(kGreeting) + " " + NameOf(settings.role) + " " +
         std::to_string(settings.rank) + " " + std::to_string(settings.workers) + " " +
         std::to_string(settings.servers);
}

std::string ReadAnswer(const std::string& line, Place* place, bool* full) {
  std::istringstream words(line);
  std::string result;
  words >> result;
  *full = result == "full";
  if (result == "error" || *full) {
    std::string text;
    std::getline(words >> std::ws, text);
    return text;
  }
  int own = 0;
  if (result == "ok" && words >> place->rank >> own >> place->job >> std::ws && place->rank >= 0) {
    place->private_cluster = own != 0;
    // A path can have blanks.
    if (std::getline(words, place->address) && !place->address.empty()) return "";
  }
  return "what answers there is no scheduler of this library";
}

bool IsConnectedToItself(int fd) {
  sockaddr_storage own = {}, other = {};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

Hold Hold::Of(int fd) {
  Hold hold;
  hold.fd_ = fd;
  return hold;
}

Hold& Hold::operator=(Hold&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Hold::~Hold() {
  if (fd_ >= 0) close(fd_);
}

void Hold::Confirm(uint64_t life) {
  if (fd_ < 0) return;
  const std::string line = kJoined + std::to_string(life) + "\n";
  // A scheduler that has gone is a death, which the job sees.
  static_cast<void>(!send(fd_, line.data(), line.size(), MSG_NOSIGNAL));
  close(std::exchange(fd_, -1));
}

std::string AskRoot(const Settings& settings, Place* place, Hold* hold) {
  const std::string root = RootText(settings.root_host, settings.root_port);
  const int64_t until = NowMillis() + int64_t{1000} * settings.timeout_seconds;
  // The death of a host is known when its node's lease has ended.
  const int64_t if_full = settings.role == Role::kServer
                              ? std::max(kFullMillis, int64_t{1000} * settings.restart_seconds)
                              : kFullMillis;
  std::string unknown;
  // What the root says that has given all ranks, and how long it is asked.
  std::string full;
  int64_t until_if_full = 0;
  do {
    Addresses addresses;
    // A name can become known later.
    unknown = Resolve(settings.root_host, settings.root_port, 0, &addresses);
    const std::string answer = AskOnce(addresses.first, QuestionOf(settings), until, hold);
    if (!answer.empty()) {
      bool is_full = false;
      const std::string refused = ReadAnswer(answer, place, &is_full);
      if (refused.empty()) return "";
      if (full.empty()) until_if_full = NowMillis() + if_full;
      full = "the scheduler at " + root + ": " + refused;
      if (!is_full || NowMillis() >= until_if_full) return full;
    } else if (NowMillis() < until) {
      // A scheduler that ends, or is not there yet behind its port, says nothing. The next one has
      // ranks to give. Only a question whose time is over says nothing about the one before.
      full.clear();
    }
    poll(nullptr, 0, static_cast<int>(kRetryMillis));
  } while (NowMillis() < until);
  if (!full.empty()) return full;
  return "no scheduler at " + root + " (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT) within " +
         std::to_string(settings.timeout_seconds) + " s (PHALANX_PS_TIMEOUT)" +
         (unknown.empty() ? "" : "; " + unknown);
}

}  // namespace phalanx::ps_lite
