// UniqueFd: owns one file descriptor and closes it. A value that moves; any thread.
#ifndef PHALANX_NET_TCP_UNIQUE_FD_H_
#define PHALANX_NET_TCP_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace phalanx::net {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Releases the descriptor; the caller closes it.
  int Release() && { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_TCP_UNIQUE_FD_H_
