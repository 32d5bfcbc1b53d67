// A doubly linked list through hooks in its elements: no allocation, removal in constant time, an
// element is in one list per hook at most. The list does not own its elements. One thread.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_INTRUSIVE_LIST_H_
#define PHALANX_OBJECT_STORE_OBJECTS_INTRUSIVE_LIST_H_

#include <cstddef>

#include "src/common/check.h"

namespace phalanx::object_store {

template <typename T>
struct ListHook {
  T* previous = nullptr;
  T* next = nullptr;
  bool linked = false;
};

template <typename T, ListHook<T> T::*kHook>
class IntrusiveList {
 public:
  bool empty() const { return front_ == nullptr; }
  size_t size() const { return size_; }
  T* front() const { return front_; }
  static T* Next(const T* element) { return (element->*kHook).next; }
  static bool Linked(const T* element) { return (element->*kHook).linked; }

  void PushBack(T* element) { Link(element, back_, nullptr); }
  void PushFront(T* element) { Link(element, nullptr, front_); }

  // REQUIRES: the element is in this list.
  void Remove(T* element) {
    ListHook<T>& hook = element->*kHook;
    PHALANX_CHECK(hook.linked, "only an element of the list can leave it");
    (hook.previous != nullptr ? (hook.previous->*kHook).next : front_) = hook.next;
    (hook.next != nullptr ? (hook.next->*kHook).previous : back_) = hook.previous;
    hook = ListHook<T>();
    --size_;
  }

 private:
  void Link(T* element, T* previous, T* next) {
    ListHook<T>& hook = element->*kHook;
    PHALANX_CHECK(!hook.linked, "an element is in one list at a time");
    hook = {previous, next, true};
    (previous != nullptr ? (previous->*kHook).next : front_) = element;
    (next != nullptr ? (next->*kHook).previous : back_) = element;
    ++size_;
  }

  T* front_ = nullptr;
  T* back_ = nullptr;
  size_t size_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_INTRUSIVE_LIST_H_
