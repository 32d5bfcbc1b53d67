// Stands for the file of that name in a program's own dmlc-core: it has what rabit/rabit.h needs.
#ifndef DMLC_IO_H_
#define DMLC_IO_H_

#include <cstddef>

namespace dmlc {

constexpr bool kOwn = true;

class Stream {
 public:
  virtual size_t Read(void* to, size_t size) = 0;
  virtual size_t Write(const void* from, size_t size) = 0;
  virtual ~Stream() {}
};

class SeekStream : public Stream {
 public:
  virtual void Seek(size_t position) = 0;
  virtual size_t Tell() = 0;
};

class Serializable {
 public:
  virtual ~Serializable() {}
  virtual void Load(Stream* from) = 0;
  virtual void Save(Stream* to) const = 0;
};

}  // namespace dmlc

#endif  // DMLC_IO_H_
