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
