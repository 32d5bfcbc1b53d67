#include "src/common/io/wire.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"

namespace phalanx {

void ByteWriter::Bytes(absl::string_view bytes) {
  PHALANX_CHECK(bytes.size() <= std::numeric_limits<uint32_t>::max(), "length needs 32 bits");
  U32(static_cast<uint32_t>(bytes.size()));
  Raw(bytes);
}

void ByteWriter::Fixed(uint64_t value, int width) {
  char bytes[8];
  for (int i = 0; i < width; ++i) bytes[i] = static_cast<char>((value >> (8 * i)) & 0xff);
  out_.append(bytes, static_cast<size_t>(width));
}

uint64_t ByteReader::Fixed(int width) {
  // Empty after an error: the result is then 0.
  const absl::string_view bytes = Raw(static_cast<size_t>(width));
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

absl::string_view ByteReader::Bytes(size_t max) {
  const uint32_t length = U32();
  // Before Raw: a length that a peer claims must not exceed what the caller is ready to store.
  if (length > max) {
    Fail(absl::StrCat("length ", length, " is over the limit of ", max));
    return {};
  }
  return Raw(length);
}

absl::string_view ByteReader::Raw(size_t size) {
  if (!ok_) return {};
  if (size > in_.size()) {
    Fail(absl::StrCat("needs ", size, " bytes, has ", in_.size()));
    return {};
  }
  const absl::string_view bytes = in_.substr(0, size);
  in_.remove_prefix(size);
  return bytes;
}

void ByteReader::Fail(absl::string_view why) {
  // Only the first error counts: the later ones follow from it.
  if (!ok_) return;
  ok_ = false;
  error_ = absl::StrCat("at byte ", size_ - in_.size(), ": ", why);
}

absl::Status ByteReader::status() const {
  return ok_ ? absl::OkStatus() : absl::InvalidArgumentError(error_);
}

absl::Status ByteReader::Finish() {
  if (ok_ && !in_.empty()) Fail(absl::StrCat(in_.size(), " bytes too many"));
  return status();
}

}  // namespace phalanx
