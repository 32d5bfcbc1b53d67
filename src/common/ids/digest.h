// The digest of a description, such as a list of ids: 128 bits of XXH3. Every node and every shard
// computes the same digest from the same description. Digests have no order, and they do not
// protect against forgery.
//
// Pure functions, any thread.
#ifndef PHALANX_COMMON_IDS_DIGEST_H_
#define PHALANX_COMMON_IDS_DIGEST_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

namespace phalanx {

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const Digest128&, const Digest128&) = default;
};

// Returns the digest of a description that is encoded as `bytes`.
Digest128 DigestOf(absl::string_view bytes);

// The same digest of bytes that are there one part after the other. One thread at a time.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;

  void Append(absl::string_view bytes);
  // Returns the digest of all bytes so far.
  Digest128 digest() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_DIGEST_H_
