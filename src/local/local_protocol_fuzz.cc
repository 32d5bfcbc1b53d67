// Bytes from a socket, as a client's and as a node's: the first byte cuts the stream into reads,
// what decodes is encoded again and must decode to the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "src/local/local_protocol.h"

namespace {

using phalanx::object_store::local::DecodeAnswer;
using phalanx::object_store::local::DecodeRequest;
using phalanx::object_store::local::Encode;
using phalanx::object_store::local::FrameBuffer;

template <typename Decode>
void Check(absl::string_view payload, Decode decode) {
  const auto message = decode(payload);
  if (!message.ok()) return;
  std::string frame;
  Encode(*message, frame);
  const auto again = decode(absl::string_view(frame).substr(4));
  if (!again.ok()) std::abort();
  std::string frame_again;
  Encode(*again, frame_again);
  if (frame != frame_again) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0];
  absl::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameBuffer buffer;
  while (!stream.empty()) {
    const absl::Span<char> space = buffer.Space();
    const size_t n = std::min({space.size(), step, stream.size()});
    stream.copy(space.data(), n);
    stream.remove_prefix(n);
    buffer.Filled(n);
    while (true) {
      const auto payload = buffer.Next();
      if (!payload.ok()) return 0;
      if (!payload->has_value()) break;
      Check(**payload, DecodeRequest);
      Check(**payload, DecodeAnswer);
    }
  }
  return 0;
}
