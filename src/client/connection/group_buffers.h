// Memory of the node into which this client writes large inputs of group calls. The groups of a
// client share it: the answer to any call names the buffers that are free again.
//
//   Granted ──► taken ──Use──► in use ──Free──► free ──Take──► taken
//                                └─ GiveUp        └─ TakeSurplus
//
// A large input is copied into its buffer when the buffer is in use already. Until EndFilling the
// buffer stays there, whatever happens to the call, since a thread writes into it without the lock.
//
// It sends nothing. The caller sends an Abort for each buffer that it gets and does not use.
//
// Owned by a connection, used under its lock.
#ifndef PHALANX_CLIENT_CONNECTION_GROUP_BUFFERS_H_
#define PHALANX_CLIENT_CONNECTION_GROUP_BUFFERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/client/connection/file_mapping.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

// From so many buffers on a new one replaces the smallest free one. The rest of what the node gives
// is for inputs that are all in use.
inline constexpr size_t kManyGroupBuffers = object_store::local::kMaxGroupBuffers / 2;

// Whether the input is still copied into a buffer in use, and what becomes of the buffer then.
enum class Filling : uint8_t { kOver, kUnderWay, kThenFree, kThenGivenUp };

struct GroupBuffer {
  uint64_t number = 0;
  std::shared_ptr<FileMapping> mapping;
  char* data = nullptr;
  uint64_t bytes = 0;
  uint64_t call = 0;  // the request whose input is in it
  Filling filling = Filling::kOver;
};

class GroupBuffers {
 public:
  void BeginGroup() { ++groups_; }
  // Returns all buffers if this was the last group.
  std::vector<GroupBuffer> EndGroup() {
    std::vector<GroupBuffer> rest;
    if (--groups_ > 0) return rest;
    rest.swap(free_);
    std::move(used_.begin(), used_.end(), std::back_inserter(rest));
    used_.clear();
    return rest;
  }
  // Returns the smallest free buffer of at least so many bytes.
  std::optional<GroupBuffer> Take(uint64_t bytes) {
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (at->bytes >= bytes && (best == free_.end() || at->bytes < best->bytes)) best = at;
    }
    return TakeAt(free_, best);
  }
  // Before the node is asked for another buffer: returns the one that it replaces, if any.
  std::optional<GroupBuffer> TakeSurplus() {
    if (free_.size() + used_.size() < kManyGroupBuffers) return std::nullopt;
    return TakeAt(free_, std::min_element(free_.begin(), free_.end(),
                                          [](auto& a, auto& b) { return a.bytes < b.bytes; }));
  }
  // The input of the call with this request is in the buffer; or, with kUnderWay, will be.
  void Use(GroupBuffer buffer, uint64_t call, Filling filling = Filling::kOver) {
    buffer.call = call;
    buffer.filling = filling;
    used_.push_back(std::move(buffer));
  }
  // No thread writes into the buffer any more. Returns it if it was given up meanwhile.
  std::optional<GroupBuffer> EndFilling(uint64_t call) {
    const auto at = Using(call);
    if (at == used_.end()) return std::nullopt;
    const Filling then = std::exchange(at->filling, Filling::kOver);
    if (then == Filling::kThenGivenUp) return TakeAt(used_, at);
    if (then == Filling::kThenFree) free_.push_back(*TakeAt(used_, at));
    return std::nullopt;
  }
  // No node needs the inputs in these buffers any more. Ignores numbers that are not in use.
  void Free(const std::vector<uint64_t>& numbers) {
    for (const uint64_t number : numbers) {
      const auto at = std::find_if(used_.begin(), used_.end(), [number](const GroupBuffer& each) {
        return each.number == number;
      });
      if (at == used_.end()) continue;
      if (at->filling == Filling::kOver) {
        free_.push_back(*TakeAt(used_, at));
      } else if (at->filling == Filling::kUnderWay) {
        at->filling = Filling::kThenFree;
      }
    }
  }
  // Returns the input of this call, or null if it is not complete, or its buffer is free again.
  const char* InputOf(uint64_t call) {
    const auto at = Using(call);
    return at == used_.end() || at->filling != Filling::kOver ? nullptr : at->data;
  }
  // Returns the buffer with the input of this call, unless it is free again, or will be returned by
  // EndFilling.
  std::optional<GroupBuffer> GiveUp(uint64_t call) {
    const auto at = Using(call);
    if (at != used_.end() && at->filling != Filling::kOver) {
      at->filling = Filling::kThenGivenUp;
      return std::nullopt;
    }
    return TakeAt(used_, at);
  }

 private:
  using Buffers = std::vector<GroupBuffer>;
  Buffers::iterator Using(uint64_t call) {
    return std::find_if(used_.begin(), used_.end(),
                        [call](const GroupBuffer& each) { return each.call == call; });
  }
  static std::optional<GroupBuffer> TakeAt(Buffers& buffers, Buffers::iterator at) {
    if (at == buffers.end()) return std::nullopt;
    GroupBuffer buffer = std::move(*at);
    buffers.erase(at);
    return buffer;
  }

  size_t groups_ = 0;
  Buffers free_;
  Buffers used_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_GROUP_BUFFERS_H_
