// ByteQueue: a queue of bytes, appended at the back, taken from the front.
//
// A value; one thread.
#ifndef PHALANX_SIM_SEAMS_BYTE_QUEUE_H_
#define PHALANX_SIM_SEAMS_BYTE_QUEUE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace phalanx::sim {

class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - head_; }
  bool empty() const { return size() == 0; }
  void Append(absl::string_view bytes) { bytes_.append(bytes.data(), bytes.size()); }
  std::string Take(size_t size) {
    std::string taken = bytes_.substr(head_, size);
    head_ += size;
    // Compacts when half of the bytes are gone, so each byte moves once on average.
    if (head_ * 2 > bytes_.size()) {
      bytes_.erase(0, head_);
      head_ = 0;
    }
    return taken;
  }
  void Clear() {
    bytes_.clear();
    head_ = 0;
  }

 private:
  std::string bytes_;
  size_t head_ = 0;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_SEAMS_BYTE_QUEUE_H_
