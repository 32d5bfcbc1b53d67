// Streams in memory.
#ifndef RABIT_INTERNAL_IO_H_
#define RABIT_INTERNAL_IO_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "../serializable.h"
#include "dmlc/io.h"
#include "utils.h"

namespace rabit {
namespace utils {

typedef dmlc::SeekStream SeekStream;

// What Stream::Write returns: nothing, or in newer releases of dmlc-core the number of bytes.
typedef decltype(std::declval<dmlc::Stream&>().Write(std::declval<const void*>(),
                                                     std::declval<size_t>())) WriteResult;

// A stream in memory of the program, of a size that does not change.
class MemoryFixSizeBuffer : public SeekStream {
 public:
  // For Seek.
  static size_t const kSeekEnd = static_cast<size_t>(-1);

  MemoryFixSizeBuffer(void* memory, size_t size)
      : memory_(static_cast<char*>(memory)), size_(size), at_(0) {}

  using dmlc::Stream::Read;
  virtual size_t Read(void* to, size_t size) {
    const size_t read = std::min(size, size_ - at_);
    if (read != 0) std::memcpy(to, memory_ + at_, read);
    at_ += read;
    return read;
  }
  using dmlc::Stream::Write;
  // An error if there is no room for all of it.
  virtual WriteResult Write(const void* from, size_t size) {
    Check(size <= size_ - at_, "%lu bytes do not fit: %lu of %lu bytes of the memory are used",
          static_cast<unsigned long>(size), static_cast<unsigned long>(at_),  // NOLINT
          static_cast<unsigned long>(size_));                                 // NOLINT
    if (size != 0) std::memcpy(memory_ + at_, from, size);
    at_ += size;
    return static_cast<WriteResult>(size);
  }
  virtual void Seek(size_t position) {
    at_ = position == static_cast<size_t>(-1) ? size_ : std::min(position, size_);
  }
  virtual size_t Tell() { return at_; }
  virtual bool AtEnd() const { return at_ == size_; }

 private:
  char* memory_;
  size_t size_;
  size_t at_;  // at most size_
};

// A stream in a string, which grows.
class MemoryBufferStream : public SeekStream {
 public:
  explicit MemoryBufferStream(std::string* text) : text_(text), at_(0) {}

  using dmlc::Stream::Read;
  virtual size_t Read(void* to, size_t size) {
    const size_t read = std::min(size, text_->size() - std::min(at_, text_->size()));
    if (read != 0) std::memcpy(to, &(*text_)[at_], read);
    at_ += read;
    return read;
  }
  using dmlc::Stream::Write;
  virtual WriteResult Write(const void* from, size_t size) {
    if (size != 0) {
      if (at_ + size > text_->size()) text_->resize(at_ + size);
      std::memcpy(&(*text_)[at_], from, size);
    }
    at_ += size;
    return static_cast<WriteResult>(size);
  }
  virtual void Seek(size_t position) { at_ = position; }
  virtual size_t Tell() { return at_; }
  virtual bool AtEnd() const { return at_ >= text_->size(); }

 private:
  std::string* text_;
  size_t at_;
};

}  // namespace utils
}  // namespace rabit

#endif  // RABIT_INTERNAL_IO_H_
