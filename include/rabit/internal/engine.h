// The engine: what the functions of rabit.h call. A thread has an engine of its own, from Init to
// Finalize; before and after that, and without a launcher, there is one rank, and every call is
// local.
//
// An error ends in utils::Error of the program.
#ifndef RABIT_INTERNAL_ENGINE_H_
#define RABIT_INTERNAL_ENGINE_H_

#include <cstddef>
#include <string>

#include "../serializable.h"
#include "io.h"
#include "utils.h"

// Where a program calls: hidden default arguments of the collectives.
#if (defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 5) || \
    (defined(__clang__) && __clang_major__ >= 9)
#define RABIT_CALL_FILE __builtin_FILE()
#define RABIT_CALL_LINE __builtin_LINE()
#define RABIT_CALL_FUNCTION __builtin_FUNCTION()
#else
#define RABIT_CALL_FILE "N/A"
#define RABIT_CALL_LINE -1
#define RABIT_CALL_FUNCTION "N/A"
#endif

namespace MPI {
// The type of what a function reduces; ReduceHandle::TypeSize has its size.
class Datatype;
}  // namespace MPI

namespace rabit {
namespace engine {

namespace mpi {

enum OpType { kMax = 0, kMin = 1, kSum = 2, kBitwiseOR = 3 };

enum DataType {
  kChar = 0,
  kUChar = 1,
  kInt = 2,
  kUInt = 3,
  kLong = 4,
  kULong = 5,
  kFloat = 6,
  kDouble = 7,
  kLongLong = 8,
  kULongLong = 9
};

}  // namespace mpi

// Begins the engine of this thread, with arguments `name=value`. Does nothing if it has begun.
inline bool Init(int argc, char* argv[]);
// Waits until all ranks have come here, and ends the engine of this thread.
inline bool Finalize();

// The functions of librabit and librabit_mock. Their types are plain, so that they do not depend on
// the program's standard library, nor on its dmlc/io.h. Those that return a text return NULL, or
// what was wrong: it is valid until the thread's next call.
namespace library {

typedef void(Prepare)(void* argument);
typedef void(Reduce)(const void* from, void* into, int count, const MPI::Datatype& type);
// Takes bytes of a model.
typedef void(Put)(void* to, const void* bytes, size_t size);

// A line below 1: it is not known.
struct Where {
  const char* file;
  int line;
  const char* function;
};

// What a checkpoint is made from, and loaded into. `model` is NULL if there is none.
struct Saved {
  const void* model;
  void (*save)(const void* model, Put* put, void* to);
};
struct Loaded {
  void* model;
  void (*load)(void* model, const void* bytes, size_t size);
};

const char* Init(int argc, char** argv);
const char* Finalize();
int Rank();
int WorldSize();
int IsDistributed();
int Version();
// The name of this host; valid as an error's text is.
const char* Host();
const char* Print(const char* text);
const char* Allreduce(void* inout, size_t count, int type, int op, Prepare* prepare, void* argument,
                      const Where& where);
const char* AllreduceBy(void* inout, size_t element, size_t count, Reduce* reduce, Prepare* prepare,
                        void* argument, const Where& where);
const char* Broadcast(void* inout, size_t size, int root, const Where& where);
// This rank's part has `size` of the `total` bytes, from `begin` on.
const char* Allgather(void* inout, size_t total, size_t begin, size_t size, const Where& where);
const char* Load(const Loaded& global, const Loaded& local, int* version);
const char* CheckPoint(const Saved& global, const Saved& local);
// `global` is saved by a later call, if a rank needs it.
const char* LazyCheckPoint(const Saved& global);
size_t TypeSize(const MPI::Datatype& type);

}  // namespace library

// The engine of the calling thread.
class IEngine {
 public:
  typedef library::Prepare PreprocFunction;
  typedef library::Reduce ReduceFunction;

  inline void Allreduce(void* inout, size_t type_nbytes, size_t count, ReduceFunction reducer,
                        PreprocFunction prepare = NULL, void* argument = NULL,
                        const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                        const char* _caller = RABIT_CALL_FUNCTION);
  inline void Broadcast(void* inout, size_t size, int root, const char* _file = RABIT_CALL_FILE,
                        int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
  // All in bytes. This rank's part begins at slice_begin and ends at slice_end.
  inline void Allgather(void* inout, size_t total_size, size_t slice_begin, size_t slice_end,
                        size_t size_prev_slice, const char* _file = RABIT_CALL_FILE,
                        int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
  inline int LoadCheckPoint(Serializable* global_model, Serializable* local_model = NULL);
  inline void CheckPoint(const Serializable* global_model, const Serializable* local_model = NULL);
  inline void LazyCheckPoint(const Serializable* global_model);
  inline void TrackerPrint(const std::string& text);

  int VersionNumber() const { return library::Version(); }
  int GetRank() const { return library::Rank(); }
  int GetWorldSize() const { return library::WorldSize(); }
  bool IsDistributed() const { return library::IsDistributed() != 0; }
  // The rank before this one, and before rank 0 the last one.
  int GetRingPrevRank() const {
    return (library::Rank() + library::WorldSize() - 1) % library::WorldSize();
  }
  std::string GetHost() const { return library::Host(); }
};

inline IEngine* GetEngine() {
  static IEngine engine;
  return &engine;
}

// Reduces by `red`; if it is NULL, by the operation on elements of the type.
inline void Allreduce_(void* inout, size_t type_nbytes, size_t count, IEngine::ReduceFunction red,
                       mpi::DataType dtype, mpi::OpType op,
                       IEngine::PreprocFunction prepare_fun = NULL, void* prepare_arg = NULL,
                       const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                       const char* _caller = RABIT_CALL_FUNCTION);

// Reduces elements of any size by a function of the program.
class ReduceHandle {
 public:
  ReduceHandle() : reduce_(NULL) {}

  // The size of an element is that of each Allreduce.
  void Init(IEngine::ReduceFunction redfunc, size_t /*type_nbytes*/) { reduce_ = redfunc; }
  inline void Allreduce(void* inout, size_t type_nbytes, size_t count,
                        IEngine::PreprocFunction prepare_fun = NULL, void* prepare_arg = NULL,
                        const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                        const char* _caller = RABIT_CALL_FUNCTION);
  // In bytes.
  static int TypeSize(const MPI::Datatype& dtype) {
    return static_cast<int>(library::TypeSize(dtype));
  }

 private:
  IEngine::ReduceFunction* reduce_;
};

}  // namespace engine
}  // namespace rabit

#include "engine-inl.h"

#endif  // RABIT_INTERNAL_ENGINE_H_
