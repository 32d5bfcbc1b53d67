// The bodies of engine.h, which includes this file.
#ifndef RABIT_INTERNAL_ENGINE_INL_H_
#define RABIT_INTERNAL_ENGINE_INL_H_

#include <string>

#include "engine.h"

namespace rabit {
namespace engine {
namespace library {

// Ends in utils::Error if there is an error.
inline bool End(const char* error) {
  if (error == NULL) return true;
  utils::Error("%s", error);
  return false;
}

inline Where At(const char* file, int line, const char* function) {
  const Where where = {file, line, function};
  return where;
}

inline void SaveModel(const void* model, Put* put, void* to) {
  std::string bytes;
  utils::MemoryBufferStream stream(&bytes);
  static_cast<const Serializable*>(model)->Save(&stream);
  put(to, bytes.data(), bytes.size());
}

inline void LoadModel(void* model, const void* bytes, size_t size) {
  // The stream only reads.
  utils::MemoryFixSizeBuffer stream(const_cast<void*>(bytes), size);
  static_cast<Serializable*>(model)->Load(&stream);
}

inline Saved Saves(const Serializable* model) {
  const Saved saved = {model, SaveModel};
  return saved;
}

inline Loaded Loads(Serializable* model) {
  const Loaded loaded = {model, LoadModel};
  return loaded;
}

}  // namespace library

inline bool Init(int argc, char* argv[]) { return library::End(library::Init(argc, argv)); }

inline bool Finalize() { return library::End(library::Finalize()); }

inline void IEngine::Allreduce(void* inout, size_t type_nbytes, size_t count,
                               ReduceFunction reducer, PreprocFunction prepare, void* argument,
                               const char* _file, int _line, const char* _caller) {
  library::End(library::AllreduceBy(inout, type_nbytes, count, reducer, prepare, argument,
                                    library::At(_file, _line, _caller)));
}

inline void IEngine::Broadcast(void* inout, size_t size, int root, const char* _file, int _line,
                               const char* _caller) {
  library::End(library::Broadcast(inout, size, root, library::At(_file, _line, _caller)));
}

inline void IEngine::Allgather(void* inout, size_t total_size, size_t slice_begin, size_t slice_end,
                               size_t, const char* _file, int _line, const char* _caller) {
  library::End(library::Allgather(inout, total_size, slice_begin, slice_end - slice_begin,
                                  library::At(_file, _line, _caller)));
}

inline int IEngine::LoadCheckPoint(Serializable* global_model, Serializable* local_model) {
  int version = 0;
  library::End(library::Load(library::Loads(global_model), library::Loads(local_model), &version));
  return version;
}

inline void IEngine::CheckPoint(const Serializable* global_model, const Serializable* local_model) {
  library::End(library::CheckPoint(library::Saves(global_model), library::Saves(local_model)));
}

inline void IEngine::LazyCheckPoint(const Serializable* global_model) {
  library::End(library::LazyCheckPoint(library::Saves(global_model)));
}

inline void IEngine::TrackerPrint(const std::string& text) {
  library::End(library::Print(text.c_str()));
}

inline void Allreduce_(void* inout, size_t type_nbytes, size_t count, IEngine::ReduceFunction red,
                       mpi::DataType dtype, mpi::OpType op, IEngine::PreprocFunction prepare_fun,
                       void* prepare_arg, const char* _file, int _line, const char* _caller) {
  const library::Where where = library::At(_file, _line, _caller);
  library::End(
      red != NULL
          ? library::AllreduceBy(inout, type_nbytes, count, red, prepare_fun, prepare_arg, where)
          : library::Allreduce(inout, count, dtype, op, prepare_fun, prepare_arg, where));
}

inline void ReduceHandle::Allreduce(void* inout, size_t type_nbytes, size_t count,
                                    IEngine::PreprocFunction prepare_fun, void* prepare_arg,
                                    const char* _file, int _line, const char* _caller) {
  utils::Assert(reduce_ != NULL, "ReduceHandle: Allreduce before Init");
  GetEngine()->Allreduce(inout, type_nbytes, count, reduce_, prepare_fun, prepare_arg, _file, _line,
                         _caller);
}

}  // namespace engine
}  // namespace rabit

#endif  // RABIT_INTERNAL_ENGINE_INL_H_
