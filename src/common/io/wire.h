// ByteWriter and ByteReader: little-endian fixed-width numbers and length-prefixed bytes.
//
// The reader is made for untrusted bytes. Every access is checked and nothing is allocated. The
// first error sticks: later reads return zero or empty, so a decoder reads all its fields and then
// checks status() once. One thread at a time.
#ifndef PHALANX_COMMON_IO_WIRE_H_
#define PHALANX_COMMON_IO_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phalanx {

// Appends to a string that the caller owns and that outlives the writer.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}

  void U8(uint8_t value) { Fixed(value, 1); }
  void U16(uint16_t value) { Fixed(value, 2); }
  void U32(uint32_t value) { Fixed(value, 4); }
  void U64(uint64_t value) { Fixed(value, 8); }
  // Writes a u32 length, then the bytes. REQUIRES: fewer than 2^32 bytes.
  void Bytes(absl::string_view bytes);
  // Writes the bytes without a length, for fields whose length both sides know.
  void Raw(absl::string_view bytes) { out_.append(bytes.data(), bytes.size()); }

 private:
  void Fixed(uint64_t value, int width);

  std::string& out_;
};

// Reads from bytes that the caller owns. The bytes outlive the reader and the views that it
// returns.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view in) : size_(in.size()), in_(in) {}

  uint8_t U8() { return static_cast<uint8_t>(Fixed(1)); }
  uint16_t U16() { return static_cast<uint16_t>(Fixed(2)); }
  uint32_t U32() { return static_cast<uint32_t>(Fixed(4)); }
  uint64_t U64() { return Fixed(8); }
  // Counterpart of ByteWriter::Bytes. A length over `max` is an error before any byte is read.
  absl::string_view Bytes(size_t max);
  // Returns exactly `size` bytes.
  absl::string_view Raw(size_t size);
  // Marks the input as bad, for values that are readable but not allowed. Only the first call has
  // an effect.
  void Fail(absl::string_view why);

  bool ok() const { return ok_; }
  size_t remaining() const { return in_.size(); }
  // Returns OK, or InvalidArgument with the offset and the cause.
  absl::Status status() const;
  // As status(), but also returns InvalidArgument if bytes are left over.
  absl::Status Finish();

 private:
  uint64_t Fixed(int width);

  const size_t size_;
  absl::string_view in_;
  bool ok_ = true;
  std::string error_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_WIRE_H_
