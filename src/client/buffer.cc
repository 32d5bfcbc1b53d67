#include <algorithm>
#include <memory>
#include <utility>

#include "src/client/access.h"
#include "src/client/buffer_state.h"
#include "src/common/status_macros.h"

namespace phalanx {

absl::string_view Buffer::view() const {
  return state_ == nullptr ? absl::string_view() : state_->view;
}

absl::string_view Buffer::metadata() const {
  return state_ == nullptr ? absl::string_view() : absl::string_view(state_->metadata);
}

const ObjectId& Buffer::id() const {
  static constexpr ObjectId kNil;
  return state_ == nullptr ? kNil : state_->id;
}

uint64_t Buffer::object_size() const { return state_ == nullptr ? 0 : state_->object_size; }

namespace internal {

char* Access::PrivatePagesOf(const Buffer& buffer) {
  const FileMapping* mapping = buffer.state_ == nullptr ? nullptr : buffer.state_->pin.mapping();
  // Small objects share the pages of a file. Copying them costs less than mapping their pages.
  if (mapping == nullptr || buffer.size() < object_store::kOwnFileBytes) return nullptr;
  return mapping->PrivatePages(static_cast<uint64_t>(buffer.data() - mapping->data()),
                               buffer.size());
}

absl::StatusOr<Buffer> BufferFrom(Call& call, const local::Answer& answer, uint64_t offset,
                                  uint64_t length) {
  auto state = std::make_shared<BufferState>();
  state->id = call.id();
  // The answer points into the receive buffer, which the next frame overwrites, so small objects
  // are copied here.
  if (const auto* object = std::get_if<local::Object>(&answer)) {
    state->object_size = object->object_size;
    state->metadata = std::string(object->metadata);
    state->own = std::string(object->bytes);
    state->view = state->own;
    return Buffer(std::move(state));
  }
  PHALANX_ASSIGN_OR_RETURN(const local::Mapped* mapped, call.Expect<local::Mapped>(answer));
  absl::StatusOr<MappedObject> taken = call.connection().Take(*mapped);
  if (!taken.ok()) return call.Explain(taken.status());
  state->object_size = mapped->object_size;
  state->metadata = std::string(mapped->metadata);
  state->pin = std::move(taken->pin);
  // The node maps whole objects; the range is cut here, so Gets of several ranges share one
  // mapping.
  const uint64_t begin = std::min<uint64_t>(offset, taken->bytes.size());
  state->view = taken->bytes.substr(begin, length);
  return Buffer(std::move(state));
}

}  // namespace internal
}  // namespace phalanx
