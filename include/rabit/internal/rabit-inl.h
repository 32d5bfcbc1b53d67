// The bodies of rabit.h, which includes this file.
#ifndef RABIT_INTERNAL_RABIT_INL_H_
#define RABIT_INTERNAL_RABIT_INL_H_

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "../rabit.h"
#include "io.h"

namespace rabit {
namespace engine {
namespace mpi {

template <typename DType>
inline DataType GetType();
template <>
inline DataType GetType<char>() {
  return kChar;
}
template <>
inline DataType GetType<unsigned char>() {
  return kUChar;
}
template <>
inline DataType GetType<int>() {
  return kInt;
}
template <>
inline DataType GetType<unsigned int>() {
  return kUInt;
}
template <>
inline DataType GetType<long>() {  // NOLINT
  return kLong;
}
template <>
inline DataType GetType<unsigned long>() {  // NOLINT
  return kULong;
}
template <>
inline DataType GetType<float>() {
  return kFloat;
}
template <>
inline DataType GetType<double>() {
  return kDouble;
}
template <>
inline DataType GetType<long long>() {  // NOLINT
  return kLongLong;
}
template <>
inline DataType GetType<unsigned long long>() {  // NOLINT
  return kULongLong;
}

}  // namespace mpi

// A `prepare` that is a std::function.
inline void CallFunction(void* function) { (*static_cast<std::function<void()>*>(function))(); }

template <typename T>
inline bool IsAligned(const void* elements) {
  return reinterpret_cast<uintptr_t>(elements) % alignof(T) == 0;
}

template <typename T, void (*freduce)(T& into, const T& from)>  // NOLINT
inline void ReduceEach(const void* from, void* into, int count, const MPI::Datatype&) {
  const T* const others = static_cast<const T*>(from);
  T* const sums = static_cast<T*>(into);
  if (IsAligned<T>(from) && IsAligned<T>(into)) {
    for (int i = 0; i < count; ++i) freduce(sums[i], others[i]);
    return;
  }
  typename std::aligned_storage<sizeof(T), alignof(T)>::type sum, other;
  for (int i = 0; i < count; ++i) {
    std::memcpy(&sum, static_cast<const void*>(sums + i), sizeof(T));
    std::memcpy(&other, static_cast<const void*>(others + i), sizeof(T));
    freduce(*reinterpret_cast<T*>(&sum), *reinterpret_cast<const T*>(&other));
    std::memcpy(static_cast<void*>(sums + i), &sum, sizeof(T));
  }
}

template <typename T>
inline void ReduceSerialized(const void* from, void* into, int count, const MPI::Datatype& type) {
  const size_t element = library::TypeSize(type);
  for (int i = 0; i < count; ++i) {
    const size_t begin = static_cast<size_t>(i) * element;
    // The stream only reads.
    utils::MemoryFixSizeBuffer higher(const_cast<char*>(static_cast<const char*>(from)) + begin,
                                      element);
    utils::MemoryFixSizeBuffer lower(static_cast<char*>(into) + begin, element);
    T sum;
    T other;
    sum.Load(lower);
    other.Load(higher);
    sum.Reduce(other, element);
    utils::MemoryFixSizeBuffer result(static_cast<char*>(into) + begin, element);
    sum.Save(result);
  }
}

// Saves the elements of a SerializeReducer in the memory that is reduced.
template <typename T>
struct SerializedElements {
  T* elements;
  size_t element;
  size_t count;
  char* memory;
  IEngine::PreprocFunction* prepare;
  void* argument;

  static void Save(void* self) {
    SerializedElements* const all = static_cast<SerializedElements*>(self);
    if (all->prepare != NULL) all->prepare(all->argument);
    for (size_t i = 0; i < all->count; ++i) {
      utils::MemoryFixSizeBuffer to(all->memory + i * all->element, all->element);
      all->elements[i].Save(to);
    }
  }
  void Load() {
    for (size_t i = 0; i < count; ++i) {
      utils::MemoryFixSizeBuffer from(memory + i * element, element);
      elements[i].Load(from);
    }
  }
};

}  // namespace engine

namespace op {
template <typename OP, typename DType>
inline void Reducer(const void* from, void* into, int count, const MPI::Datatype& type) {
  engine::ReduceEach<DType, OP::template Reduce<DType> >(from, into, count, type);
}
}  // namespace op

// ---- the process

inline bool Init(int argc, char* argv[]) { return engine::Init(argc, argv); }
inline bool Finalize() { return engine::Finalize(); }
inline int GetRank() { return engine::GetEngine()->GetRank(); }
inline int GetWorldSize() { return engine::GetEngine()->GetWorldSize(); }
inline bool IsDistributed() { return engine::GetEngine()->IsDistributed(); }
inline std::string GetProcessorName() { return engine::GetEngine()->GetHost(); }
inline int GetRingPrevRank() { return engine::GetEngine()->GetRingPrevRank(); }
inline void TrackerPrint(const std::string& text) { engine::GetEngine()->TrackerPrint(text); }

inline void TrackerPrintf(const char* format, ...) {
  char text[1 << 10];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  TrackerPrint(text);
}

// ---- collectives

inline void Broadcast(void* inout, size_t size, int root, const char* _file, int _line,
                      const char* _caller) {
  engine::GetEngine()->Broadcast(inout, size, root, _file, _line, _caller);
}

template <typename DType>
inline void Broadcast(std::vector<DType>* inout, int root, const char* _file, int _line,
                      const char* _caller) {
  uint64_t size = inout->size();
  Broadcast(&size, sizeof(size), root, _file, _line, _caller);
  if (inout->size() != size) inout->resize(static_cast<size_t>(size));
  if (size != 0) {
    Broadcast(static_cast<void*>(&(*inout)[0]), inout->size() * sizeof(DType), root, _file, _line,
              _caller);
  }
}

inline void Broadcast(std::string* inout, int root, const char* _file, int _line,
                      const char* _caller) {
  uint64_t size = inout->size();
  Broadcast(&size, sizeof(size), root, _file, _line, _caller);
  if (inout->size() != size) inout->resize(static_cast<size_t>(size));
  if (size != 0) Broadcast(&(*inout)[0], inout->size(), root, _file, _line, _caller);
}

template <typename OP, typename DType>
inline void Allreduce(DType* inout, size_t count, void (*prepare_fun)(void*), void* prepare_arg,
                      const char* _file, int _line, const char* _caller) {
  engine::Allreduce_(inout, sizeof(DType), count, NULL, engine::mpi::GetType<DType>(), OP::kType,
                     prepare_fun, prepare_arg, _file, _line, _caller);
}

template <typename OP, typename DType>
inline void Allreduce(DType* inout, size_t count, std::function<void()> prepare_fun,
                      const char* _file, int _line, const char* _caller) {
  Allreduce<OP>(inout, count, engine::CallFunction, &prepare_fun, _file, _line, _caller);
}

template <typename DType>
inline void Allgather(DType* inout, size_t total, size_t begin, size_t size_slice,
                      size_t size_prev_slice, const char* _file, int _line, const char* _caller) {
  engine::GetEngine()->Allgather(inout, total * sizeof(DType), begin * sizeof(DType),
                                 (begin + size_slice) * sizeof(DType),
                                 size_prev_slice * sizeof(DType), _file, _line, _caller);
}

// ---- checkpoints

inline int LoadCheckPoint(Serializable* global_model, Serializable* local_model) {
  return engine::GetEngine()->LoadCheckPoint(global_model, local_model);
}
inline void CheckPoint(const Serializable* global_model, const Serializable* local_model) {
  engine::GetEngine()->CheckPoint(global_model, local_model);
}
inline void LazyCheckPoint(const Serializable* global_model) {
  engine::GetEngine()->LazyCheckPoint(global_model);
}
inline int VersionNumber() { return engine::GetEngine()->VersionNumber(); }

// ---- functions of the program

template <typename DType, void (*freduce)(DType& into, const DType& from)>  // NOLINT
inline Reducer<DType, freduce>::Reducer() {
  handle_.Init(engine::ReduceEach<DType, freduce>, sizeof(DType));
}

template <typename DType, void (*freduce)(DType& into, const DType& from)>  // NOLINT
inline void Reducer<DType, freduce>::Allreduce(DType* inout, size_t count,
                                               void (*prepare_fun)(void*), void* prepare_arg,
                                               const char* _file, int _line, const char* _caller) {
  handle_.Allreduce(inout, sizeof(DType), count, prepare_fun, prepare_arg, _file, _line, _caller);
}

template <typename DType, void (*freduce)(DType& into, const DType& from)>  // NOLINT
inline void Reducer<DType, freduce>::Allreduce(DType* inout, size_t count,
                                               std::function<void()> prepare_fun, const char* _file,
                                               int _line, const char* _caller) {
  Allreduce(inout, count, engine::CallFunction, &prepare_fun, _file, _line, _caller);
}

template <typename DType>
inline SerializeReducer<DType>::SerializeReducer() {
  handle_.Init(engine::ReduceSerialized<DType>, 0);
}

template <typename DType>
inline void SerializeReducer<DType>::Allreduce(DType* inout, size_t max_nbyte, size_t count,
                                               void (*prepare_fun)(void*), void* prepare_arg,
                                               const char* _file, int _line, const char* _caller) {
  std::string memory(max_nbyte * count, '\0');
  engine::SerializedElements<DType> all = {inout,      max_nbyte,   count,
                                           &memory[0], prepare_fun, prepare_arg};
  handle_.Allreduce(&memory[0], max_nbyte, count, engine::SerializedElements<DType>::Save, &all,
                    _file, _line, _caller);
  all.Load();
}

template <typename DType>
inline void SerializeReducer<DType>::Allreduce(DType* inout, size_t max_nbyte, size_t count,
                                               std::function<void()> prepare_fun, const char* _file,
                                               int _line, const char* _caller) {
  Allreduce(inout, max_nbyte, count, engine::CallFunction, &prepare_fun, _file, _line, _caller);
}

}  // namespace rabit

#endif  // RABIT_INTERNAL_RABIT_INL_H_
