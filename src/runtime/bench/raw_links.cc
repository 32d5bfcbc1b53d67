#include "src/runtime/bench/raw_links.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

constexpr size_t kChunkBytes = 128 * 1024;

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

int PollMillis(absl::Duration timeout) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 1, INT_MAX));
}

struct AddressList {
  addrinfo* list = nullptr;
  ~AddressList() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

absl::Status Resolve(const std::string& address, bool passive, AddressList* out) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  const int error =
      getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &out->list);
  if (error == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(address, ": ", gai_strerror(error)));
}

void SetNoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// For each call that waits: connect and accept, too.
void SetTimeout(int fd, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

absl::StatusOr<int> Dial(const std::string& address, char kind, uint32_t rank,
                         absl::Duration timeout) {
  AddressList resolved;
  PHALANX_RETURN_IF_ERROR(Resolve(address, /*passive=*/false, &resolved));
  const int fd = socket(resolved.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  SetTimeout(fd, timeout);
  if (connect(fd, resolved.list->ai_addr, resolved.list->ai_addrlen) != 0) {
    const absl::Status error = SystemError(absl::StrCat("connect to ", address));
    close(fd);
    return error;
  }
  SetNoDelay(fd);
  char greeting[5] = {kind};
  std::memcpy(greeting + 1, &rank, sizeof rank);
  if (send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) {
    close(fd);
    return SystemError("greeting");
  }
  return fd;
}

}  // namespace

RawLinks::RawLinks(int rank, int world, absl::Duration timeout)
    : rank_(rank),
      world_(world),
      timeout_(timeout),
      from_others_(world, -1),
      buffer_(kChunkBytes) {}

RawLinks::~RawLinks() {
  for (const int fd : from_others_)
    if (fd >= 0) close(fd);
  for (const int fd : {listener_, previous_, next_, to_root_})
    if (fd >= 0) close(fd);
}

absl::StatusOr<std::string> RawLinks::Listen(const std::string& host) {
  AddressList resolved;
  PHALANX_RETURN_IF_ERROR(Resolve(absl::StrCat(host, ":0"), /*passive=*/true, &resolved));
  listener_ = socket(resolved.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0 || bind(listener_, resolved.list->ai_addr, resolved.list->ai_addrlen) != 0 ||
      listen(listener_, world_ + 1) != 0) {
    return SystemError(absl::StrCat("listen on ", host));
  }
  SetTimeout(listener_, timeout_);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length);
  const uint16_t port = bound.ss_family == AF_INET6
                            ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return absl::StrCat(host, ":", ntohs(port));
}

absl::Status RawLinks::Connect(const std::vector<std::string>& addresses) {
  if (rank_ + 1 < world_) {
    PHALANX_ASSIGN_OR_RETURN(next_, Dial(addresses[rank_ + 1], 'c', rank_, timeout_));
  }
  if (rank_ > 0) {
    PHALANX_ASSIGN_OR_RETURN(to_root_, Dial(addresses[0], 's', rank_, timeout_));
  }
  const int expected = (rank_ > 0 ? 1 : 0) + (rank_ == 0 ? world_ - 1 : 0);
  for (int i = 0; i < expected; ++i) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return SystemError(absl::StrCat("no rank has connected to rank ", rank_));
    SetNoDelay(fd);
    SetTimeout(fd, timeout_);
    char greeting[5];
    if (recv(fd, greeting, sizeof greeting, MSG_WAITALL) != sizeof greeting) {
      close(fd);
      return SystemError("greeting");
    }
    uint32_t from = 0;
    std::memcpy(&from, greeting + 1, sizeof from);
    if (greeting[0] == 'c') {
      previous_ = fd;
    } else if (from < from_others_.size()) {
      from_others_[from] = fd;
    }
  }
  return absl::OkStatus();
}

absl::Status RawLinks::SendZeroes(int to, uint64_t bytes) {
  for (uint64_t left = bytes; left > 0;) {
    const ssize_t n =
        send(to, buffer_.data(), std::min<uint64_t>(left, buffer_.size()), MSG_NOSIGNAL);
    if (n <= 0) return SystemError("send");
    left -= n;
  }
  return absl::OkStatus();
}

absl::Status RawLinks::Receive(int from, uint64_t bytes) { return Relay(from, -1, bytes); }

absl::Status RawLinks::Relay(int from, int to, uint64_t bytes) {
  for (uint64_t left = bytes; left > 0;) {
    const ssize_t n = recv(from, buffer_.data(), std::min<uint64_t>(left, buffer_.size()), 0);
    if (n <= 0) return SystemError("receive");
    left -= n;
    if (to >= 0) PHALANX_RETURN_IF_ERROR(SendZeroes(to, n));
  }
  return absl::OkStatus();
}

absl::Status RawLinks::Pair(uint64_t bytes) {
  if (rank_ == 0 && world_ > 1) return SendZeroes(next_, bytes);
  if (rank_ == 1) return Receive(previous_, bytes);
  return absl::OkStatus();
}

absl::Status RawLinks::Chain(uint64_t bytes) {
  if (world_ < 2) return absl::OkStatus();
  if (rank_ == 0) return SendZeroes(next_, bytes);
  return Relay(previous_, next_, bytes);
}

absl::Status RawLinks::Star(uint64_t bytes) {
  if (rank_ > 0) return SendZeroes(to_root_, bytes);
  std::vector<uint64_t> left(world_, bytes);
  uint64_t total = bytes * (world_ - 1);
  std::vector<pollfd> waiting;
  while (total > 0) {
    waiting.clear();
    for (int i = 1; i < world_; ++i)
      if (left[i] > 0) waiting.push_back({from_others_[i], POLLIN, 0});
    const int ready = poll(waiting.data(), waiting.size(), PollMillis(timeout_));
    if (ready < 0) return SystemError("poll");
    if (ready == 0) return absl::UnavailableError("nothing comes from the other ranks");
    for (int i = 1, w = 0; i < world_; ++i) {
      if (left[i] == 0) continue;
      if (waiting[w++].revents == 0) continue;
      const ssize_t n = recv(from_others_[i], buffer_.data(),
                             std::min<uint64_t>(left[i], buffer_.size()), MSG_DONTWAIT);
      if (n <= 0) return SystemError("receive");
      left[i] -= n;
      total -= n;
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::runtime::bench
