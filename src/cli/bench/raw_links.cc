#include "src/cli/bench/raw_links.h"

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

// poll takes an int, and 0 would not wait at all.
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

// Otherwise Nagle's algorithm would delay the last bytes of a transfer.
void SetNoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// Applies to every call that waits, including connect and accept.
void SetTimeout(int fd, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Every kind of link starts with the same greeting of five bytes.
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
  // The kind and the rank: the other side cannot see from where the connection comes.
  char greeting[5] = {kind};
  std::memcpy(greeting + 1, &rank, sizeof rank);
  if (send(fd, greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) {
    close(fd);
    return SystemError("greeting");
  }
  return fd;
}

// received[i] += own[i]; `received` can be unaligned.
void FoldInto(const float* own, size_t count, char* received) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, received + i * sizeof(float), sizeof value);
    value += own[i];
    std::memcpy(received + i * sizeof(float), &value, sizeof value);
  }
}

}  // namespace

// The bytes that a rank sends in a ring, as one stream: the first part is its own, and each later
// part is the one that it received before. So it can send position p once it has received p - part
// bytes.
class RawLinks::RingTurn {
 public:
  RingTurn(RawLinks& links, uint64_t part, int folding_steps, int copying_steps)
      : links_(links),
        part_(part),
        folding_(part * static_cast<uint64_t>(folding_steps)),
        total_(folding_ + part * static_cast<uint64_t>(copying_steps)) {
    links.ring_.resize(part * static_cast<uint64_t>(links.world_));
  }

  absl::Status Go() {
    while (sent_ < total_ || received_ < total_) {
      // Polling both directions: with blocking calls every rank of a ring could wait in send.
      pollfd ready[2] = {{links_.next_, 0, 0}, {links_.previous_, 0, 0}};
      // Without bytes to send POLLOUT would end every poll at once.
      if (sent_ < SendLimit()) ready[0].events = POLLOUT;
      if (received_ < total_) ready[1].events = POLLIN;
      const int count = poll(ready, 2, PollMillis(links_.timeout_));
      if (count < 0) return SystemError("poll");
      if (count == 0) return absl::UnavailableError("no bytes arrive from the other ranks");
      if (ready[1].revents != 0) PHALANX_RETURN_IF_ERROR(TakeSome());
      if (ready[0].events != 0 && ready[0].revents != 0) PHALANX_RETURN_IF_ERROR(SendSome());
    }
    return absl::OkStatus();
  }

 private:
  // Limited by the bytes that are received and folded: whole elements only, except at the end of a
  // part.
  uint64_t SendLimit() const { return std::min(total_, part_ + folded_); }
  // The place in the whole of position `at` in the stream of rank_ - `back`.
  char* Place(uint64_t at, int back) {
    const uint64_t step = at / part_;
    const uint64_t world = static_cast<uint64_t>(links_.world_);
    const uint64_t index = (static_cast<uint64_t>(links_.rank_) + 2 * world -
                            static_cast<uint64_t>(back) - step % world) %
                           world;
    return links_.ring_.data() + index * part_ + at % part_;
  }
  uint64_t LeftOfPart(uint64_t at) const { return part_ - at % part_; }

  absl::Status SendSome() {
    const uint64_t length = std::min(SendLimit() - sent_, LeftOfPart(sent_));
    const ssize_t n = send(links_.next_, Place(sent_, 0), length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return absl::OkStatus();
    if (n <= 0) return SystemError("send");
    sent_ += static_cast<uint64_t>(n);
    return absl::OkStatus();
  }

  absl::Status TakeSome() {
    const bool fold = received_ < folding_;
    const uint64_t left = LeftOfPart(received_);
    char* const into = fold ? links_.buffer_.data() + (received_ - folded_) : Place(received_, 1);
    const uint64_t room =
        fold ? std::min<uint64_t>(left, links_.buffer_.size() - (received_ - folded_)) : left;
    const ssize_t n = recv(links_.previous_, into, room, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return absl::OkStatus();
    if (n <= 0) return SystemError("receive");
    received_ += static_cast<uint64_t>(n);
    if (fold) {
      // The last bytes of a part can be less than an element.
      Fold(static_cast<uint64_t>(n) == left);
    } else {
      folded_ = received_;
    }
    return absl::OkStatus();
  }

  void Fold(bool end_of_part) {
    const uint64_t have = received_ - folded_;
    const uint64_t whole = end_of_part ? have : have - have % sizeof(float);
    char* const own = Place(folded_, 1);
    for (uint64_t i = 0; i + sizeof(float) <= whole; i += sizeof(float)) {
      float value;
      float more;
      std::memcpy(&value, own + i, sizeof value);
      std::memcpy(&more, links_.buffer_.data() + i, sizeof more);
      value += more;
      std::memcpy(own + i, &value, sizeof value);
    }
    std::memmove(links_.buffer_.data(), links_.buffer_.data() + whole, have - whole);
    folded_ += whole;
  }

  RawLinks& links_;
  const uint64_t part_;
  const uint64_t folding_;  // bytes of the stream that are folded
  const uint64_t total_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t folded_ = 0;  // or copied
};

absl::Status RawLinks::Ring(uint64_t bytes, bool fold, bool copy) {
  if (world_ < 2) return absl::OkStatus();
  const uint64_t world = static_cast<uint64_t>(world_);
  const uint64_t element = sizeof(float);
  // Equal parts of whole elements; the last part can be padded.
  const uint64_t part = (bytes + world * element - 1) / (world * element) * element;
  if (part == 0) return absl::OkStatus();
  return RingTurn(*this, part, fold ? world_ - 1 : 0, copy ? world_ - 1 : 0).Go();
}

RawLinks::RawLinks(int rank, int world, absl::Duration timeout)
    : rank_(rank),
      world_(world),
      timeout_(timeout),
      from_others_(world, -1),
      buffer_(kChunkBytes) {}

RawLinks::~RawLinks() {
  for (const int fd : from_others_)
    if (fd >= 0) close(fd);
  // Closed by hand, because descriptors of a benchmark have no other owner.
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
  // The system chose the port, so it is read back.
  const uint16_t port = bound.ss_family == AF_INET6
                            ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port;
  return absl::StrCat(host, ":", ntohs(port));
}

absl::Status RawLinks::Connect(const std::vector<std::string>& addresses) {
  if (world_ > 1) {
    const std::string& next = addresses[(rank_ + 1) % world_];
    PHALANX_ASSIGN_OR_RETURN(next_, Dial(next, 'c', rank_, timeout_));
  }
  if (rank_ > 0) {
    PHALANX_ASSIGN_OR_RETURN(to_root_, Dial(addresses[0], 's', rank_, timeout_));
  }
  const int expected = (world_ > 1 ? 1 : 0) + (rank_ == 0 ? world_ - 1 : 0);
  // Both kinds of connection arrive in any order; the greeting tells them apart.
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

// Sockets block with a timeout, so a short send is not an error.
absl::Status RawLinks::SendAll(int to, const char* data, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(to, data, bytes, MSG_NOSIGNAL);
    if (n <= 0) return SystemError("send");
    data += n;
    bytes -= static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status RawLinks::SendZeroes(int to, uint64_t bytes) {
  for (uint64_t left = bytes; left > 0;) {
    const uint64_t n = std::min<uint64_t>(left, buffer_.size());
    PHALANX_RETURN_IF_ERROR(SendAll(to, buffer_.data(), n));
    left -= n;
  }
  return absl::OkStatus();
}

absl::Status RawLinks::Receive(int from, uint64_t bytes) {
  for (uint64_t left = bytes; left > 0;) {
    const ssize_t n = recv(from, buffer_.data(), std::min<uint64_t>(left, buffer_.size()), 0);
    if (n <= 0) return SystemError("receive");
    left -= static_cast<uint64_t>(n);
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
  // Each rank keeps the bytes, as the receivers of a broadcast do. If all went through one small
  // buffer, they would not leave the cores' caches: without shaped links that takes half of the
  // time. The memory is used again by later runs, like that of a store.
  kept_.resize(bytes);
  if (rank_ == 0) return SendAll(next_, kept_.data(), bytes);
  for (uint64_t done = 0; done < bytes;) {
    char* const into = kept_.data() + done;
    const ssize_t n = recv(previous_, into, std::min<uint64_t>(bytes - done, kChunkBytes), 0);
    if (n <= 0) return SystemError("receive");
    const size_t size = static_cast<size_t>(n);
    if (rank_ + 1 < world_) PHALANX_RETURN_IF_ERROR(SendAll(next_, into, size));
    done += size;
  }
  return absl::OkStatus();
}

absl::Status RawLinks::FoldingChain(uint64_t bytes) {
  if (world_ < 2) return absl::OkStatus();
  if (rank_ == 0) return SendZeroes(next_, bytes);
  // Kept between runs, so that the pages are warm like those of the store.
  own_.resize(bytes / sizeof(float));
  size_t have = 0;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t room = std::min<uint64_t>(bytes - done, buffer_.size()) - have;
    const ssize_t n = recv(previous_, buffer_.data() + have, room, 0);
    if (n <= 0) return SystemError("receive");
    have += static_cast<size_t>(n);
    // The rest of an element stays in the buffer until it is complete.
    const size_t whole = done + have == bytes ? have : have - have % sizeof(float);
    FoldInto(own_.data() + done / sizeof(float), whole / sizeof(float), buffer_.data());
    if (rank_ + 1 < world_) PHALANX_RETURN_IF_ERROR(SendAll(next_, buffer_.data(), whole));
    std::memmove(buffer_.data(), buffer_.data() + whole, have - whole);
    done += whole;
    have -= whole;
  }
  return absl::OkStatus();
}

absl::Status RawLinks::Star(uint64_t bytes) {
  if (rank_ > 0) return SendZeroes(to_root_, bytes);
  // Bytes left per rank; the order in which ranks finish is free.
  std::vector<uint64_t> left(world_, bytes);
  uint64_t total = bytes * (world_ - 1);
  std::vector<pollfd> waiting;
  while (total > 0) {
    waiting.clear();
    for (int i = 1; i < world_; ++i)
      if (left[i] > 0) waiting.push_back({from_others_[i], POLLIN, 0});
    const int ready = poll(waiting.data(), waiting.size(), PollMillis(timeout_));
    if (ready < 0) return SystemError("poll");
    if (ready == 0) return absl::UnavailableError("no bytes arrive from the other ranks");
    for (int i = 1, w = 0; i < world_; ++i) {
      if (left[i] == 0) continue;
      // `waiting` has an entry only for ranks with bytes left.
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
