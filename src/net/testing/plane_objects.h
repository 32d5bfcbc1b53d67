// Objects for tests of the data plane: buffers whose bytes are a closed form, and a shelf that
// serves them. Testonly.
#ifndef PHALANX_NET_TESTING_PLANE_OBJECTS_H_
#define PHALANX_NET_TESTING_PLANE_OBJECTS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/pull/pull.h"
#include "src/net/pull/transfer_buffer.h"

namespace phalanx::net::testing {

// Byte `i` of every object: adjacent bytes differ, and the period is not that of a slice or a
// segment.
inline char ByteAt(uint64_t i) { return static_cast<char>(i * 37 + i / 251 + 1); }

inline ObjectId Id(int n) { return ObjectId::FromName("plane", absl::StrCat(n)); }
inline Generation Gen(uint64_t sequence = 1) { return {{7, 7}, sequence}; }

// A buffer with its own memory, filled with zeros.
inline std::shared_ptr<TransferBuffer> EmptyBuffer(uint64_t bytes, int slices = 1) {
  auto memory = std::make_shared<std::vector<char>>(bytes);
  const absl::Span<char> span = absl::MakeSpan(*memory);
  return std::make_shared<TransferBuffer>(SliceLayout{bytes, slices}, span, std::move(memory));
}

// Writes the closed form up to `to` of the slice, and publishes it.
inline void Grow(TransferBuffer& buffer, int slice, uint64_t to) {
  const absl::Span<char> place = buffer.slice(slice);
  const uint64_t begin = buffer.layout().Begin(slice);
  for (uint64_t i = buffer.watermark(slice); i < to; ++i) place[i] = ByteAt(begin + i);
  buffer.Publish(slice, to);
}

inline std::shared_ptr<TransferBuffer> WholeBuffer(uint64_t bytes, int slices = 1) {
  auto buffer = EmptyBuffer(bytes, slices);
  for (int i = 0; i < slices; ++i) Grow(*buffer, i, buffer->layout().Size(i));
  buffer->Close(absl::OkStatus());
  return buffer;
}

// Returns the first byte below a watermark that differs from the closed form.
inline std::optional<uint64_t> FirstWrongByte(const TransferBuffer& buffer) {
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    const absl::Span<const char> place = buffer.slice(slice);
    const uint64_t begin = buffer.layout().Begin(slice);
    for (uint64_t i = 0; i < buffer.watermark(slice); ++i) {
      if (place[i] != ByteAt(begin + i)) return begin + i;
    }
  }
  return std::nullopt;
}

// The objects that a node serves: a ServeHandler over a map. Used on the control loop of the node;
// `pins` on any thread.
class Shelf {
 public:
  void Put(const ObjectId& id, const Generation& generation,
           std::shared_ptr<TransferBuffer> buffer) {
    objects_[id] = {generation, std::move(buffer)};
  }

  absl::StatusOr<ServeGrant> Serve(const ServeRequest& request) {
    ++requests_;
    const auto found = objects_.find(request.object);
    if (found == objects_.end() || found->second.first != request.generation) {
      return absl::NotFoundError(absl::StrCat("no ", request.object.ShortHex(), " of generation ",
                                              request.generation.ToString()));
    }
    ++pins_->held;
    return ServeGrant{found->second.second, std::shared_ptr<void>(nullptr, [pins = pins_](void*) {
                        if (pins->home != nullptr && !pins->home->InLoop()) ++pins->elsewhere;
                        --pins->held;
                      })};
  }

  // From this call on, records if pins are released on this executor.
  void SetHome(const Executor& home) { pins_->home = &home; }

  int pins() const { return pins_->held; }
  int released_elsewhere() const { return pins_->elsewhere; }
  int requests() const { return requests_; }

 private:
  std::map<ObjectId, std::pair<Generation, std::shared_ptr<TransferBuffer>>> objects_;
  struct Pins {
    std::atomic<int> held{0};
    std::atomic<int> elsewhere{0};
    const Executor* home = nullptr;
  };
  const std::shared_ptr<Pins> pins_ = std::make_shared<Pins>();
  int requests_ = 0;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_PLANE_OBJECTS_H_
