#include "src/common/ids/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace phalanx {

Digest128 DigestOf(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct DigestStream::State {
  XXH3_state_t xxh3;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

DigestStream::~DigestStream() = default;

void DigestStream::Append(absl::string_view bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

Digest128 DigestStream::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return {hash.low64, hash.high64};
}

}  // namespace phalanx
