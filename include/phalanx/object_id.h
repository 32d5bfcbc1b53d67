// ObjectId: the 20-byte name of an immutable object.
//
// Random for objects that one task hands to another, or derived from a namespace and a name so that
// parties that never met find the same object. A value type: copy it freely, any thread.
#ifndef PHALANX_OBJECT_ID_H_
#define PHALANX_OBJECT_ID_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx {

class ObjectId {
 public:
  static constexpr size_t kSize = 20;

  // The nil id, all zero bytes: names no object, every call refuses it with InvalidArgument.
  constexpr ObjectId() = default;

  // 160 bits from the system's generator. Thread-safe.
  static ObjectId Random();

  // The same id for the same pair, in every process, on every host, in every version. Not a secret
  // and not collision-resistant against somebody who chooses names in order to collide (XXH3-128
  // and 32 further bits).
  static ObjectId FromName(absl::string_view name_space, absl::string_view name);

  // Exactly 20 bytes, or InvalidArgument that says how many there were.
  static absl::StatusOr<ObjectId> FromBinary(absl::string_view bytes);

  // Exactly 40 hexadecimal digits of either case, or InvalidArgument.
  static absl::StatusOr<ObjectId> FromHex(absl::string_view hex);

  bool nil() const { return *this == ObjectId(); }
  absl::string_view binary() const {
    return absl::string_view(reinterpret_cast<const char*>(bytes_.data()), kSize);
  }
  // 40 lower-case hexadecimal digits.
  std::string hex() const;
  // The first 8 of them, for drawings and logs.
  std::string ShortHex() const;
  // Well mixed whatever the id's origin; the shard of an id is ShardHash() % shards.
  uint64_t ShardHash() const;

  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ObjectId& id) {
    return H::combine(std::move(h), id.binary());
  }
  friend std::ostream& operator<<(std::ostream& out, const ObjectId& id) { return out << id.hex(); }

 private:
  std::array<uint8_t, kSize> bytes_ = {};
};

}  // namespace phalanx

#endif  // PHALANX_OBJECT_ID_H_
