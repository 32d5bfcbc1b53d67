// Streams of programs for Rabit. If the program has dmlc-core in any folder of its include path,
// that library's file is used, and this one is not needed: rabit/rabit.h works with both.
#ifndef DMLC_IO_H_
#if defined(__GNUC__)
#pragma GCC system_header
#endif
#if defined(__has_include_next)
#if __has_include_next(<dmlc/io.h>)
#define RABIT_DMLC_IO_FOLLOWS
#endif
#endif
#ifdef RABIT_DMLC_IO_FOLLOWS
#undef RABIT_DMLC_IO_FOLLOWS
#include_next <dmlc/io.h>
#else
#define DMLC_IO_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base.h"

namespace dmlc {

// Bytes that are read and written in order. Read and Write of values are those of dmlc-core: plain
// data as it is in memory; strings and vectors as their length in 64 bits, then their elements.
class Stream {
 public:
  virtual ~Stream() {}
  // Reads at most `size` bytes, and returns how many there were.
  virtual size_t Read(void* to, size_t size) = 0;
  virtual void Write(const void* from, size_t size) = 0;

  // Plain data, strings, and vectors of these.
  template <typename T>
  inline void Write(const T& value);
  // Returns false if the stream ends before the value does.
  template <typename T>
  inline bool Read(T* value);
};

class SeekStream : public Stream {
 public:
  virtual void Seek(size_t position) = 0;
  virtual size_t Tell() = 0;
};

// What saves itself in a stream, and loads itself from there.
class Serializable {
 public:
  virtual ~Serializable() {}
  virtual void Load(Stream* from) = 0;
  virtual void Save(Stream* to) const = 0;
};

namespace stream_values {

template <typename T>
struct Value {
  static_assert(std::is_trivially_copyable<T>::value,
                "a stream takes plain data, strings, and vectors of these");
  static void Write(Stream* to, const T& value) { to->Write(&value, sizeof(T)); }
  static bool Read(Stream* from, T* value) { return from->Read(value, sizeof(T)) == sizeof(T); }
};

template <>
struct Value<std::string> {
  static void Write(Stream* to, const std::string& value) {
    Value<uint64_t>::Write(to, value.size());
    if (!value.empty()) to->Write(value.data(), value.size());
  }
  static bool Read(Stream* from, std::string* value) {
    uint64_t size = 0;
    if (!Value<uint64_t>::Read(from, &size)) return false;
    value->resize(static_cast<size_t>(size));
    return size == 0 || from->Read(&(*value)[0], value->size()) == value->size();
  }
};

template <typename T>
struct Value<std::vector<T> > {
  static void Write(Stream* to, const std::vector<T>& value) {
    Value<uint64_t>::Write(to, value.size());
    WriteAll(to, value, std::is_trivially_copyable<T>());
  }
  static bool Read(Stream* from, std::vector<T>* value) {
    uint64_t size = 0;
    if (!Value<uint64_t>::Read(from, &size)) return false;
    value->resize(static_cast<size_t>(size));
    return ReadAll(from, value, std::is_trivially_copyable<T>());
  }

 private:
  static void WriteAll(Stream* to, const std::vector<T>& value, std::true_type) {
    if (!value.empty()) to->Write(&value[0], value.size() * sizeof(T));
  }
  static void WriteAll(Stream* to, const std::vector<T>& value, std::false_type) {
    for (size_t i = 0; i < value.size(); ++i) Value<T>::Write(to, value[i]);
  }
  static bool ReadAll(Stream* from, std::vector<T>* value, std::true_type) {
    const size_t bytes = value->size() * sizeof(T);
    return bytes == 0 || from->Read(&(*value)[0], bytes) == bytes;
  }
  static bool ReadAll(Stream* from, std::vector<T>* value, std::false_type) {
    for (size_t i = 0; i < value->size(); ++i) {
      if (!Value<T>::Read(from, &(*value)[i])) return false;
    }
    return true;
  }
};

}  // namespace stream_values

template <typename T>
inline void Stream::Write(const T& value) {
  stream_values::Value<T>::Write(this, value);
}

template <typename T>
inline bool Stream::Read(T* value) {
  return stream_values::Value<T>::Read(this, value);
}

}  // namespace dmlc

#endif
#endif  // DMLC_IO_H_
