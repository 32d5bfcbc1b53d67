// The bytes of Puts that the node has not answered. The node refuses more than
// local::kMaxPutBytesInFlight, so the client counts them as well and waits.
//
// A Put first reserves its bytes, then gets a number when it is sent. A cancelled Put counts until
// the node answers it, because the node counts it until then, too.
//
// Owned by a connection, used under its lock.
#ifndef PHALANX_CLIENT_CONNECTION_PUT_WINDOW_H_
#define PHALANX_CLIENT_CONNECTION_PUT_WINDOW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

class PutWindow {
 public:
  // Reserved and unanswered bytes.
  size_t bytes() const { return bytes_; }
  // One Put always fits, even one above the limit; otherwise it would wait forever.
  bool HasRoom(size_t bytes) const {
    return bytes_ == 0 || bytes_ + bytes <= object_store::local::kMaxPutBytesInFlight;
  }
  void Reserve(size_t bytes) { bytes_ += bytes; }
  // A reserved Put is not sent after all.
  void Return(size_t bytes) { bytes_ -= std::min(bytes, bytes_); }
  // A reserved Put is sent under this number.
  void Sent(uint64_t number, size_t bytes) {
    if (bytes > 0) unanswered_[number] = bytes;
  }
  // Does nothing if the number is no Put's.
  void Answered(uint64_t number) {
    const auto it = unanswered_.find(number);
    if (it == unanswered_.end()) return;
    bytes_ -= it->second;
    unanswered_.erase(it);
  }
  // The connection has ended: no answer arrives any more.
  void Clear() {
    unanswered_.clear();
    bytes_ = 0;
  }

 private:
  absl::flat_hash_map<uint64_t, size_t> unanswered_;
  size_t bytes_ = 0;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_PUT_WINDOW_H_
