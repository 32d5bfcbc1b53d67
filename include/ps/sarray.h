// SArray: elements in memory that several arrays share and count. Copies, segments and casts are
// views of the same memory, which is freed with the last of them. For plain data.
//
// One thread at a time uses one SArray; several can use the same memory, as their program arranges.
#ifndef PS_SARRAY_H_
#define PS_SARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "ps/internal/utils.h"
#include "ps/range.h"

namespace ps {

template <typename V>
class SArray {
 public:
  SArray() {}
  explicit SArray(size_t size, V val = 0) { resize(size, val); }
  // The same bytes as elements of another type.
  template <typename W>
  explicit SArray(const SArray<W>& other) {
    *this = other;
  }
  template <typename W>
  void operator=(const SArray<W>& other) {
    CHECK_EQ(other.size() * sizeof(W) % sizeof(V), 0u)
        << other.size() * sizeof(W) << " bytes are no whole number of elements of " << sizeof(V);
    ptr_ = std::shared_ptr<V>(other.ptr(), reinterpret_cast<V*>(other.data()));
    size_ = other.size() * sizeof(W) / sizeof(V);
    capacity_ = other.capacity() * sizeof(W) / sizeof(V);
  }
  // Memory of the program, which must stay while there are views of it; with `deletable` it is
  // deleted with the last of them.
  SArray(V* data, size_t size, bool deletable = false) {
    if (deletable) {
      reset(data, size, [](V* memory) { delete[] memory; });
    } else {
      reset(data, size, [](V*) {});
    }
  }
  // A copy.
  explicit SArray(const std::vector<V>& from) { CopyFrom(from.data(), from.size()); }
  // A view.
  explicit SArray(const std::shared_ptr<std::vector<V>>& from)
      : size_(from->size()), capacity_(from->size()), ptr_(from, from->data()) {}
  template <typename W>
  SArray(const std::initializer_list<W>& list) {  // NOLINT
    CopyFrom(list.begin(), list.end());
  }
  template <typename W>
  void operator=(const std::initializer_list<W>& list) {
    CopyFrom(list.begin(), list.end());
  }

  // Into memory of its own, so that other views of the old memory stay as they are.
  void CopyFrom(const V* data, size_t size) { CopyFrom(data, data + size); }
  void CopyFrom(const SArray<V>& other) {
    if (this != &other) CopyFrom(other.data(), other.size());
  }
  template <typename ForwardIt>
  void CopyFrom(const ForwardIt& first, const ForwardIt& last) {
    const size_t size = static_cast<size_t>(std::distance(first, last));
    SArray<V> copy;
    copy.Allocate(size);
    std::copy(first, last, copy.data());
    copy.size_ = size;
    *this = copy;
  }

  template <typename Deleter>
  void reset(V* data, size_t size, Deleter deleter) {
    ptr_.reset(data, deleter);
    size_ = capacity_ = size;
  }
  // New elements are `val`. Moves to other memory if this has no room.
  void resize(size_t size, V val = 0) {
    const size_t before = size_;
    reserve(size);
    size_ = size;
    if (size > before) std::fill(data() + before, data() + size, val);
  }
  void reserve(size_t size) {
    if (size <= capacity_) return;
    const SArray<V> old(*this);
    Allocate(size);
    if (old.size() > 0) std::copy(old.data(), old.data() + old.size(), data());
  }
  void clear() { *this = SArray<V>(); }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }

  V* begin() { return data(); }
  const V* begin() const { return data(); }
  V* end() { return data() + size_; }
  const V* end() const { return data() + size_; }
  V* data() const { return ptr_.get(); }
  std::shared_ptr<V>& ptr() { return ptr_; }
  const std::shared_ptr<V>& ptr() const { return ptr_; }

  V front() const {
    CHECK(!empty());
    return data()[0];
  }
  V back() const {
    CHECK(!empty());
    return data()[size_ - 1];
  }
  V& operator[](size_t i) { return data()[i]; }
  const V& operator[](size_t i) const { return data()[i]; }

  void push_back(const V& val) {
    // The value can be one of this array.
    const V copy = val;
    if (size_ == capacity_) reserve(size_ * 2 + 4);
    data()[size_++] = copy;
  }
  void pop_back() {
    if (size_ > 0) --size_;
  }
  void append(const SArray<V>& other) {
    if (other.empty()) return;
    const SArray<V> from(other);
    reserve(size_ + from.size());
    std::copy(from.data(), from.data() + from.size(), data() + size_);
    size_ += from.size();
  }

  // A view of the elements from begin on, before end.
  SArray<V> segment(size_t begin, size_t end) const {
    CHECK_GE(end, begin);
    CHECK_LE(end, size());
    SArray<V> part;
    part.ptr_ = std::shared_ptr<V>(ptr_, data() + begin);
    part.size_ = part.capacity_ = end - begin;
    return part;
  }

 private:
  // Memory for so many elements; the size stays.
  void Allocate(size_t size) {
    ptr_.reset(new V[size], [](V* memory) { delete[] memory; });
    capacity_ = size;
  }

  size_t size_ = 0;
  size_t capacity_ = 0;
  std::shared_ptr<V> ptr_;
};

// Where the values from lower on, before upper, are in a sorted array.
template <typename V>
Range FindRange(const SArray<V>& sorted, V lower, V upper) {
  if (upper <= lower) return Range(0, 0);
  const V* const first = std::lower_bound(sorted.begin(), sorted.end(), lower);
  const V* const last = std::lower_bound(first, sorted.end(), upper);
  return Range(static_cast<uint64_t>(first - sorted.begin()),
               static_cast<uint64_t>(last - sorted.begin()));
}

// The first and the last m elements.
template <typename V>
inline std::string DebugStr(const V* data, int n, int m = 5) {
  std::ostringstream text;
  text << "[" << n << "]: ";
  for (int i = 0; i < n; ++i) {
    if (n >= 2 * m && i == m) {
      text << "... ";
      i = n - m;
    }
    text << data[i] << " ";
  }
  return text.str();
}

template <typename V>
std::ostream& operator<<(std::ostream& out, const SArray<V>& array) {
  return out << DebugStr(array.data(), static_cast<int>(array.size()));
}

}  // namespace ps

#endif  // PS_SARRAY_H_
