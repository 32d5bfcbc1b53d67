// Engine: the ranks as one thread of a process sees them. LocalEngine has one rank and no others;
// SessionEngine is a session of the store; the mock library puts a MockEngine in front of either.
//
// An Engine belongs to one thread. Its functions return what was wrong as a text, empty if nothing
// was. Exceptions of functions of the program pass through them.
#ifndef PHALANX_RABIT_ENGINE_H_
#define PHALANX_RABIT_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "rabit/internal/engine.h"

// What a function of the program gets as the type of its elements. Without functions of its own, so
// that it does not collide with that of an MPI library.
namespace MPI {
class Datatype {
 public:
  size_t size;
};
}  // namespace MPI

namespace phalanx::rabit {

namespace library = ::rabit::engine::library;

using Error = std::string;

// A function of the program that fills the input of a call, or none.
struct Preparation {
  library::Prepare* prepare = nullptr;
  void* argument = nullptr;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual bool distributed() const = 0;
  // How often this rank was started again.
  virtual int life() const = 0;
  virtual int version() const = 0;

  virtual Error Print(const std::string& text) = 0;
  // `type` and `op` are mpi::DataType and mpi::OpType, and fit each other.
  virtual Error Allreduce(void* inout, size_t count, int type, int op, Preparation preparation,
                          const library::Where& where) = 0;
  virtual Error AllreduceBy(void* inout, size_t element, size_t count, library::Reduce* reduce,
                            Preparation preparation, const library::Where& where) = 0;
  virtual Error Broadcast(void* inout, size_t size, int root, const library::Where& where) = 0;
  virtual Error Allgather(void* inout, size_t total, size_t begin, size_t size,
                          const library::Where& where) = 0;
  virtual Error Load(const library::Loaded& global, const library::Loaded& local, int* version) = 0;
  virtual Error CheckPoint(const library::Saved& global, const library::Saved& local) = 0;
  virtual Error LazyCheckPoint(const library::Saved& global) = 0;
  // Waits for the other ranks. The engine can only be destroyed then.
  virtual Error Leave() = 0;
  // Ends the process as the death `death` that its arguments declare, "mock=1,1,1,0". Does not
  // return.
  virtual void Die(const std::string& death) = 0;
};

// The bytes of a model.
std::string BytesOf(const library::Saved& saved);
// The size of an element of mpi::DataType, 0 if it is none.
size_t SizeOf(int type);
// What is wrong with these arguments of an Allreduce.
Error CheckReducible(int type, int op);

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_ENGINE_H_
