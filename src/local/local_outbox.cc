#include "src/local/local_outbox.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace phalanx::object_store {
namespace {

// A batch of this many bytes takes no further answer. It bounds the bytes that wait for a slow
// client.
constexpr size_t kMaxBatchBytes = size_t{256} << 10;
// Messages from this size on are not copied into the batch.
constexpr size_t kLongMessageBytes = size_t{32} << 10;

}  // namespace

LocalOutbox::Batch::Reference LocalOutbox::Batch::Refer(const std::shared_ptr<MemoryBlock>& block,
                                                        bool writable) {
  const uint64_t file = block->file_id();
  // A client that has the file mapped writable reads through that mapping.
  if (files_.contains({file, true}) || (!writable && files_.contains({file, false}))) {
    return Reference::kGiven;
  }
  // A descriptor belongs to the first byte of a send.
  if (!bytes_.empty()) return Reference::kLater;
  // A copy: the block can have closed its own writable descriptor when this is sent.
  descriptor_ =
      writable ? fcntl(block->writable_fd(), F_DUPFD_CLOEXEC, 0) : block->OpenFor(viewer_);
  if (descriptor_ < 0) return Reference::kNone;
  has_shown_files_ = true;
  files_.insert({file, writable});
  Add(local::File{file, writable, block->file_bytes()});
  return Reference::kGiven;
}

void LocalOutbox::Batch::AddMessage(const local::MessageArrived& message,
                                    std::shared_ptr<const std::string> message_bytes) {
  if (message.bytes.size() < kLongMessageBytes) return Add(message);
  local::EncodeAllButBytes(message, bytes_);
  last_ = std::move(message_bytes);
}

std::array<iovec, 2> LocalOutbox::Batch::Rest() {
  const size_t of_bytes = std::min(sent_, bytes_.size());
  std::array<iovec, 2> rest = {{{bytes_.data() + of_bytes, bytes_.size() - of_bytes}, {}}};
  if (last_ == nullptr) return rest;
  const size_t of_last = sent_ - of_bytes;
  rest[1] = {const_cast<char*>(last_->data()) + of_last, last_->size() - of_last};
  return rest;
}

void LocalOutbox::Batch::Clear() {
  bytes_.clear();
  last_.reset();
  sent_ = 0;
}

void LocalOutbox::Batch::CloseDescriptor() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

void LocalOutbox::Batch::Forget(uint64_t file, bool writable) {
  files_.erase({file, writable});
  Add(local::Forgotten{file, writable});
}

void LocalOutbox::Add(const local::Answer& answer) {
  std::string frame;
  local::Encode(answer, frame);
  items_.push_back([frame = std::move(frame)](Batch& batch) {
    batch.bytes_.append(frame);
    return true;
  });
}

void LocalOutbox::Close() {
  items_.clear();
  batch_.Clear();
  batch_.CloseDescriptor();
}

void LocalOutbox::Fill() {
  batch_.Clear();
  while (!items_.empty() && batch_.bytes_.size() < kMaxBatchBytes && batch_.last_ == nullptr) {
    // Taken out first, because the item can add others to the queue.
    Item item = std::move(items_.front());
    items_.pop_front();
    if (item(batch_)) continue;
    // Back to the front: the order of answers is the order of the stream.
    items_.push_front(std::move(item));
    return;
  }
}

LocalOutbox::State LocalOutbox::Send(int socket) {
  while (true) {
    if (batch_.sent_ == batch_.size()) Fill();
    if (batch_.bytes_.empty()) return State::kEmpty;
    std::array<iovec, 2> rest = batch_.Rest();
    msghdr message{};
    message.msg_iov = rest.data();
    message.msg_iovlen = rest.size();
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (batch_.descriptor_ >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &batch_.descriptor_, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return State::kFull;
    // The kernel limits descriptors in flight per user; the socket itself can have room.
    if (sent < 0 && (errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM)) {
      return State::kCrowded;
    }
    if (sent < 0) return State::kBroken;
    batch_.sent_ += static_cast<size_t>(sent);
    // The descriptor went out with the first byte, even if the send was partial.
    batch_.CloseDescriptor();
  }
}

}  // namespace phalanx::object_store
