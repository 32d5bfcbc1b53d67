#include "src/client/socket/request_queue.h"

#include <algorithm>

namespace phalanx::internal {
namespace {

// An emptied queue larger than this is freed.
constexpr size_t kRestingBytes = size_t{1} << 20;

}  // namespace

void RequestQueue::Flush(LocalSocket& socket, absl::string_view bytes) {
  while (!broken_ && size() + bytes.size() > 0) {
    const iovec parts[2] = {{bytes_.data() + sent_, size()},
                            {const_cast<char*>(bytes.data()), bytes.size()}};
    const absl::StatusOr<size_t> sent = socket.Send(parts);
    // The node's last frame can hold the reason. The next thread that reads the socket finds it.
    if (!sent.ok()) broken_ = true;
    if (!sent.ok() || *sent == 0) break;
    const size_t of_queue = std::min(*sent, size());
    sent_ += of_queue;
    bytes.remove_prefix(*sent - of_queue);
  }
  if (broken_) bytes = {};
  if (broken_ || size() == 0) {
    bytes_.clear();
    sent_ = 0;
    if (bytes_.capacity() > kRestingBytes) bytes_.shrink_to_fit();
  }
  bytes_.append(bytes.data(), bytes.size());
}

bool RequestQueue::WorthWaiting() {
  if (size() == 0) stalled_ = false;
  return size() > 0 && !broken_ && !stalled_;
}

}  // namespace phalanx::internal
