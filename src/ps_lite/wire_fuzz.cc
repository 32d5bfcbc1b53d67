// Fuzzes what one peer sends. The input is messages between members: two bytes of the size, then
// the bytes. What is put together travels again, and is the same.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/common/check.h"
#include "src/ps_lite/wire.h"

namespace phalanx::ps_lite {
namespace {

// Where a header has the sizes of arrays, and what of them is not tried: memory is reserved for an
// array when its first piece comes.
constexpr size_t kFixedBytes = 64;
constexpr uint64_t kMostTriedBytes = uint64_t{1} << 20;

std::string Take(Assembly* assembly, const std::string& bytes) {
  const auto owner = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  return assembly->Take(owner->data(), owner->size(), owner);
}

bool IsTooLarge(const std::string& header) {
  for (size_t at = kFixedBytes; at + sizeof(uint64_t) <= header.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, header.data() + at, sizeof(word));
    if ((word & 1) != 0 && word >> 8 > kMostTriedBytes) return true;
  }
  return false;
}

void CheckTravels(const ::ps::Message& message) {
  const Encoded encoded = Encode(message);
  Assembly again;
  PHALANX_CHECK(Take(&again, encoded.header).empty(), "an own header");
  for (const std::string_view array : encoded.in_pieces) {
    PHALANX_CHECK(Take(&again, std::string(array)).empty(), "an own piece");
  }
  PHALANX_CHECK(again.complete(), "all of it");
  const ::ps::Message got = again.Release();
  PHALANX_CHECK(got.DebugString() == message.DebugString(), "the same message");
  for (size_t i = 0; i < got.data.size(); ++i) {
    const bool same = std::equal(got.data[i].begin(), got.data[i].end(), message.data[i].begin());
    PHALANX_CHECK(same, "the same bytes");
  }
}

}  // namespace
}  // namespace phalanx::ps_lite

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::ps_lite::Assembly assembly;
  bool between = true;
  for (size_t at = 0; at + 2 <= size;) {
    const size_t length = std::min<size_t>(data[at] | data[at + 1] << 8, size - at - 2);
    const std::string bytes(reinterpret_cast<const char*>(data) + at + 2, length);
    at += 2 + length;
    if (between && phalanx::ps_lite::IsTooLarge(bytes)) return 0;
    if (!phalanx::ps_lite::Take(&assembly, bytes).empty()) return 0;
    between = assembly.complete();
    if (between) phalanx::ps_lite::CheckTravels(assembly.Release());
  }
  return 0;
}
