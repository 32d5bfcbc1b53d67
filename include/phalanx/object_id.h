// ObjectId: the 20-byte name of an immutable object.
//
// An id is random, for objects that one task passes to another, or derived from a namespace and a
// name, so that independent processes find the same object. A value type: any thread can copy it.
#ifndef PHALANX_OBJECT_ID_H_
#define PHALANX_OBJECT_ID_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace phalanx {

class ObjectId {
 public:
  static constexpr size_t kSize = 20;

  // The nil id: all bytes are zero. It names no object, and every call rejects it with
  // InvalidArgument.
  constexpr ObjectId() = default;

  // Returns 128 bits from the system's generator, and 32 that mark the id as drawn. Put one object
  // under it: after a Delete, a node that is out of touch with the directory serves its copy of a
  // drawn id, and not that of any other id (docs/lifetime.md). Thread-safe.
  static ObjectId Random();

  // Returns the same id for the same pair in every process, on every host and in every version. The
  // id is not a secret, and it does not resist an attacker that chooses names that collide
  // (XXH3-128 and 32 further bits).
  static ObjectId FromName(absl::string_view name_space, absl::string_view name);

  // Parses exactly 20 bytes. Returns InvalidArgument with the actual number otherwise.
  static absl::StatusOr<ObjectId> FromBinary(absl::string_view bytes);

  // Parses exactly 40 hexadecimal digits of either case. Returns InvalidArgument otherwise.
  static absl::StatusOr<ObjectId> FromHex(absl::string_view hex);

  bool nil() const { return *this == ObjectId(); }
  absl::string_view binary() const {
    return absl::string_view(reinterpret_cast<const char*>(bytes_.data()), kSize);
  }
  // Returns 40 lower-case hexadecimal digits.
  std::string hex() const;
  // Returns the first 8 of these digits, for drawings and logs.
  std::string ShortHex() const;
  // Returns a hash whose bits are well mixed for any id. The shard of an id is ShardHash() %
  // shards.
  uint64_t ShardHash() const;

  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ObjectId& id) {
    // As three integers: the hash of so many bytes is a call, which costs four times as much.
    uint64_t first = 0, second = 0;
    uint32_t third = 0;
    std::memcpy(&first, id.bytes_.data(), sizeof(first));
    std::memcpy(&second, id.bytes_.data() + 8, sizeof(second));
    std::memcpy(&third, id.bytes_.data() + 16, sizeof(third));
    return H::combine(std::move(h), first, second, third);
  }
  friend std::ostream& operator<<(std::ostream& out, const ObjectId& id) { return out << id.hex(); }

 private:
  std::array<uint8_t, kSize> bytes_ = {};
};

}  // namespace phalanx

#endif  // PHALANX_OBJECT_ID_H_
