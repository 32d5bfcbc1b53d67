#include "src/common/ids/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace phalanx {

Digest128 DigestOf(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace phalanx
