// Collectives of ranks that survive the deaths of some of them: the interface of dmlc/rabit, over
// Phalanx. docs/coming-from.md, "From Rabit", describes how to move a program over.
//
//   rabit::Init(argc, argv);
//   int version = rabit::LoadCheckPoint(&model);          // 0: a new model
//   for (; version < rounds; ++version) {
//     rabit::Allreduce<rabit::op::Sum>(&gradients[0], gradients.size(), [&] { Compute(); });
//     model.Apply(gradients);
//     rabit::CheckPoint(&model);
//   }
//   rabit::Finalize();
//
// All ranks make the same calls in the same order. A rank that has died is started again by
// `phalanx launch`, loads the last checkpoint, and is given the results of the calls since then.
// Calls before LoadCheckPoint are repeated in the same way.
//
// Threads: a thread has an engine of its own, from Init to Finalize. Functions are not to be called
// from `prepare` or a reduce function, GetRank, GetWorldSize and VersionNumber aside.
//
// Errors end in utils::Error, which exits the process with 255, or calls what the program defines
// (RABIT_CUSTOMIZE_MSG_, internal/utils.h).
#ifndef RABIT_RABIT_H_
#define RABIT_RABIT_H_

#include <functional>
#include <string>
#include <vector>

#include "internal/engine.h"
#include "internal/timer.h"
#include "serializable.h"

// Programs ask whether there are the functions with a std::function.
#ifndef DMLC_USE_CXX11
#define DMLC_USE_CXX11 1
#endif

namespace rabit {

// What Allreduce does with two elements.
namespace op {
struct Max {
  static const engine::mpi::OpType kType = engine::mpi::kMax;
  template <typename DType>
  static void Reduce(DType& into, const DType& from) {  // NOLINT
    if (into < from) into = from;
  }
};
struct Min {
  static const engine::mpi::OpType kType = engine::mpi::kMin;
  template <typename DType>
  static void Reduce(DType& into, const DType& from) {  // NOLINT
    if (from < into) into = from;
  }
};
struct Sum {
  static const engine::mpi::OpType kType = engine::mpi::kSum;
  template <typename DType>
  static void Reduce(DType& into, const DType& from) {  // NOLINT
    into = static_cast<DType>(into + from);
  }
};
// Of integers; of floats it is an error.
struct BitOR {
  static const engine::mpi::OpType kType = engine::mpi::kBitwiseOR;
  template <typename DType>
  static void Reduce(DType& into, const DType& from) {  // NOLINT
    into = static_cast<DType>(into | from);
  }
};
// Folds elements with one of them: a reduce function of engine::Allreduce_ and ReduceHandle.
template <typename OP, typename DType>
inline void Reducer(const void* from, void* into, int count, const MPI::Datatype& type);
}  // namespace op

// ---- the process

// Joins the other ranks, and waits for them. Arguments `name=value` that are parameters count
// before those in the environment; all others are left to the program. Does nothing if it was
// called.
inline bool Init(int argc, char* argv[]);
// Waits until all ranks have called it. The thread cannot call Init again.
inline bool Finalize();
inline int GetRank();
inline int GetWorldSize();
// Whether there was a launcher; a world of 1 can be distributed, too.
inline bool IsDistributed();
inline std::string GetProcessorName();
// The rank before this one, and before rank 0 the last one.
inline int GetRingPrevRank();

// Prints at the launch, or on standard output without one.
inline void TrackerPrint(const std::string& text);
// At most 1,023 bytes.
inline void TrackerPrintf(const char* format, ...);

// ---- collectives. The last three arguments are hidden: they are where the call is.

// All ranks' memory becomes the root's.
inline void Broadcast(void* inout, size_t size, int root, const char* _file = RABIT_CALL_FILE,
                      int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
// Likewise, with the root's length: two collectives, or one if there are no elements.
template <typename DType>
inline void Broadcast(std::vector<DType>* inout, int root, const char* _file = RABIT_CALL_FILE,
                      int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
inline void Broadcast(std::string* inout, int root, const char* _file = RABIT_CALL_FILE,
                      int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);

// Each element becomes the Max, Min, Sum or BitOR of all ranks' elements: of char to unsigned long
// long, float and double. `prepare` fills them before that; it is not called if the result is
// there, in a rank that was started again.
template <typename OP, typename DType>
inline void Allreduce(DType* inout, size_t count, void (*prepare_fun)(void*) = NULL,
                      void* prepare_arg = NULL, const char* _file = RABIT_CALL_FILE,
                      int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
template <typename OP, typename DType>
inline void Allreduce(DType* inout, size_t count, std::function<void()> prepare_fun,
                      const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                      const char* _caller = RABIT_CALL_FUNCTION);

// `inout` has `total` elements, of which this rank's are size_slice, from `begin` on: parts follow
// one another in the order of ranks. The elements of the others come to their places.
// size_prev_slice is how many rank GetRingPrevRank() has; it is not used.
template <typename DType>
inline void Allgather(DType* inout, size_t total, size_t begin, size_t size_slice,
                      size_t size_prev_slice, const char* _file = RABIT_CALL_FILE,
                      int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);

// ---- checkpoints

// Loads the models as they were at the last checkpoint, and returns its version. 0: there is none,
// and the models are as they were. Once in each life, with a local model if and only if CheckPoint
// has one.
inline int LoadCheckPoint(Serializable* global_model, Serializable* local_model = NULL);
// Saves the models, as those of the next version. The global model is the same on all ranks; a
// local one, which differs from rank to rank, is copied to other hosts.
inline void CheckPoint(const Serializable* global_model, const Serializable* local_model = NULL);
// Saves nothing unless a rank dies: the model must not change, and its memory not be freed, until
// the last collective before the next checkpoint, or Finalize, has ended.
inline void LazyCheckPoint(const Serializable* global_model);
// The number of checkpoints so far.
inline int VersionNumber();

// ---- functions of the program

// The elements are plain data of any size. `freduce` is associative.
template <typename DType, void (*freduce)(DType& into, const DType& from)>  // NOLINT
class Reducer {
 public:
  inline Reducer();
  inline void Allreduce(DType* inout, size_t count, void (*prepare_fun)(void*) = NULL,
                        void* prepare_arg = NULL, const char* _file = RABIT_CALL_FILE,
                        int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);
  inline void Allreduce(DType* inout, size_t count, std::function<void()> prepare_fun,
                        const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                        const char* _caller = RABIT_CALL_FUNCTION);

 private:
  engine::ReduceHandle handle_;
};

// The elements have Save(Stream&) const, which writes at most max_nbyte bytes; Load(Stream&); and
// Reduce(const DType& from, size_t max_nbyte).
template <typename DType>
class SerializeReducer {
 public:
  inline SerializeReducer();
  // `prepare` is called before the elements are saved.
  inline void Allreduce(DType* inout, size_t max_nbyte, size_t count,
                        void (*prepare_fun)(void*) = NULL, void* prepare_arg = NULL,
                        const char* _file = RABIT_CALL_FILE, int _line = RABIT_CALL_LINE,
                        const char* _caller = RABIT_CALL_FUNCTION);
  inline void Allreduce(DType* inout, size_t max_nbyte, size_t count,
                        std::function<void()> prepare_fun, const char* _file = RABIT_CALL_FILE,
                        int _line = RABIT_CALL_LINE, const char* _caller = RABIT_CALL_FUNCTION);

 private:
  engine::ReduceHandle handle_;
};

}  // namespace rabit

#include "internal/rabit-inl.h"

#endif  // RABIT_RABIT_H_
