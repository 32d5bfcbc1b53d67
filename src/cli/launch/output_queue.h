// The bytes that wait for a descriptor of the launch: its standard output or error.
//
// A reader that is slow or stopped must not stop the launch, which has to see signals and the ends
// of tasks. The descriptor stays blocking, because O_NONBLOCK would apply to all processes that
// share it, such as the shell of a terminal. So the queue opens a pipe or a terminal once more,
// non-blocking. What it cannot open, such as a socket, gets only as much as poll promises room for.
// An epoll descriptor of its own waits for room.
//
// Owned by the Launcher; loop thread only.
#ifndef PHALANX_CLI_LAUNCH_OUTPUT_QUEUE_H_
#define PHALANX_CLI_LAUNCH_OUTPUT_QUEUE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/unique_fd.h"

namespace phalanx::runtime {

class OutputQueue {
 public:
  // A full queue asks its owner to stop reading from tasks. It takes what a task that has ended has
  // left, nevertheless.
  static constexpr size_t kFullBytes = 1 << 20;

  struct Events {
    // The queue was full and no longer is, or has become empty.
    std::function<void()> on_room;
    // Nothing can be written any more; `error` is an errno. The queue drops all bytes from then on.
    std::function<void(int error)> on_error;
  };
  // Returns Unavailable if the system refuses. `fd` stays open.
  static absl::StatusOr<std::unique_ptr<OutputQueue>> Open(net::EventLoop& loop, int fd,
                                                           Events events);

  // Appends what `add` appends to its argument, and writes what there is room for.
  void Append(const std::function<void(std::string*)>& add);

  bool full() const { return waiting_.size() - written_ >= kFullBytes; }
  // Whether the last byte was a newline, or there was none.
  bool at_line_start() const { return at_line_start_; }
  bool empty() const { return waiting_.size() == written_; }

 private:
  OutputQueue(int fd, Events events);

  absl::Status WatchRoom(net::EventLoop& loop);
  void OnRoom();
  void Write();
  bool WriteOnce();

  // Non-blocking. None if the system refuses, and of sockets and files.
  const net::UniqueFd own_;
  // Where bytes go: own_, else the descriptor that others share.
  const int fd_;
  const Events events_;
  // Readable when fd_ is writable.
  net::UniqueFd epoll_;
  // Null: fd_ is a file, which is always writable.
  std::unique_ptr<net::FdWatcher> watcher_;
  std::string waiting_;
  // How much of waiting_ was written. Less than kFullBytes, or half of it.
  size_t written_ = 0;
  bool broken_ = false;
  bool at_line_start_ = true;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_OUTPUT_QUEUE_H_
