#include "src/client/c/completion_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "src/client/socket/fork_guard.h"

namespace phalanx::c {

Mailbox::Mailbox() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_ >= 0) internal::CloseInChildren(event_);
}

Mailbox::~Mailbox() {
  if (event_ < 0) return;
  internal::KeepInChildren(event_);
  close(event_);
}

void Mailbox::Add(uint64_t tag) {
  MutexLock lock(mu_);
  tags_.push_back(tag);
  const uint64_t one = 1;
  // The descriptor is readable already, so one system call serves many tags.
  if (tags_.size() > 1) return;
  [[maybe_unused]] const ssize_t done = write(event_, &one, sizeof(one));
}

size_t Mailbox::Take(uint64_t* tags, size_t n) {
  MutexLock lock(mu_);
  size_t taken = 0;
  for (; taken < n && !tags_.empty(); ++taken) {
    tags[taken] = tags_.front();
    tags_.pop_front();
  }
  // Reset only when the queue is empty, so that a reader that takes a part is called again.
  uint64_t count = 0;
  if (tags_.empty()) [[maybe_unused]]
    const ssize_t done = read(event_, &count, sizeof(count));
  return taken;
}

}  // namespace phalanx::c

phx_queue* phx_queue_new(void) { return new phx_queue{std::make_shared<phalanx::c::Mailbox>()}; }
int phx_queue_fd(const phx_queue* queue) { return queue->mailbox->fd(); }
size_t phx_queue_take(phx_queue* queue, uint64_t* tags, size_t n) {
  return queue->mailbox->Take(tags, n);
}
void phx_queue_free(phx_queue* queue) { delete queue; }
