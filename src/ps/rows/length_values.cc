#include "src/ps/rows/length_values.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "phalanx/elements.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"
#include "src/ps/part.h"

namespace phalanx::ps::internal {

uint64_t LengthRowBytes(const TableSpec& spec, uint32_t length) {
  return sizeof(length) + length * ElementSize(spec.wire);
}

uint64_t LeastRowBytes(const TableSpec& spec) {
  return spec.lengths ? LengthRowBytes(spec, 0) : spec.width * ElementSize(spec.wire);
}

std::string LengthsHead(absl::Span<const uint32_t> lengths) {
  std::string head;
  ByteWriter out(head);
  out.U32(static_cast<uint32_t>(lengths.size()));
  out.Raw({reinterpret_cast<const char*>(lengths.data()), lengths.size() * sizeof(uint32_t)});
  return head;
}

std::string WriteLengthValues(const TableSpec& spec, absl::Span<const uint32_t> lengths,
                              absl::string_view elements) {
  std::string values = LengthsHead(lengths);
  const size_t head = values.size();
  const uint64_t count = elements.size() / ElementSize(spec.dtype);
  values.resize(head + count * ElementSize(spec.wire));
  Convert(spec.dtype, spec.wire, elements.data(), values.data() + head, count);
  return values;
}

// The sum of lengths fits: there are less than 2^32 of them, and each has at most 17 bits.
absl::StatusOr<LengthValues> ReadLengthValues(const TableSpec& spec, absl::string_view bytes) {
  ByteReader in(bytes);
  LengthValues values;
  // Raw fails if so many bytes are not there, before any memory is taken.
  const absl::string_view lengths = in.Raw(uint64_t{in.U32()} * sizeof(uint32_t));
  PHALANX_RETURN_IF_ERROR(in.status());
  values.lengths.resize(lengths.size() / sizeof(uint32_t));
  if (!lengths.empty()) std::memcpy(values.lengths.data(), lengths.data(), lengths.size());
  uint64_t elements = 0;
  for (const uint32_t length : values.lengths) {
    if (length > spec.width) {
      return absl::InvalidArgumentError(
          absl::StrCat("a row of length ", length, ", the width is ", spec.width));
    }
    elements += length;
  }
  const uint64_t expected = elements * ElementSize(spec.wire);
  if (in.remaining() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("the lengths of ", values.lengths.size(), " rows do not add up: they are ",
                     elements, " elements of ", ElementSize(spec.wire), " bytes, and there are ",
                     in.remaining(), " bytes"));
  }
  values.elements = in.Raw(expected);
  return values;
}

}  // namespace phalanx::ps::internal
