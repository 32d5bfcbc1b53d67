// ByteWriter and ByteReader: little-endian fixed-width numbers and length-prefixed bytes.
//
// The reader is made for untrusted bytes. Every access is checked and nothing is allocated. The
// first error sticks: later reads return zero or empty, so a decoder reads all its fields and then
// checks status() once. One thread at a time.
#ifndef PHALANX_COMMON_IO_WIRE_H_
#define PHALANX_COMMON_IO_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phalanx {

// A number is copied as it lies in memory: messages of calls and requests are mostly numbers, and
// byte by byte these took a fifth of a node's instructions for a small call of a group.
static_assert(std::endian::native == std::endian::little);

// Appends to a string that the caller owns and that outlives the writer.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}

  void U8(uint8_t value) { Fixed(value); }
  void U16(uint16_t value) { Fixed(value); }
  void U32(uint32_t value) { Fixed(value); }
  void U64(uint64_t value) { Fixed(value); }
  // Writes a u32 length, then the bytes. REQUIRES: fewer than 2^32 bytes.
  void Bytes(absl::string_view bytes);
  // Writes the bytes without a length, for fields whose length both sides know.
  void Raw(absl::string_view bytes) { out_.append(bytes.data(), bytes.size()); }

 private:
  template <typename T>
  void Fixed(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }

  std::string& out_;
};

// Reads from bytes that the caller owns. The bytes outlive the reader and the views that it
// returns.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view in) : size_(in.size()), in_(in) {}

  uint8_t U8() { return Fixed<uint8_t>(); }
  uint16_t U16() { return Fixed<uint16_t>(); }
  uint32_t U32() { return Fixed<uint32_t>(); }
  uint64_t U64() { return Fixed<uint64_t>(); }
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
  template <typename T>
  T Fixed() {
    T value = 0;
    if (ABSL_PREDICT_FALSE(!ok_ || in_.size() < sizeof(T))) {
      Raw(sizeof(T));
      return value;
    }
    std::memcpy(&value, in_.data(), sizeof(T));
    in_.remove_prefix(sizeof(T));
    return value;
  }

  const size_t size_;
  absl::string_view in_;
  bool ok_ = true;
  std::string error_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_WIRE_H_
