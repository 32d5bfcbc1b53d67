// LocalEngine: one rank without others. Calls return the rank's own input, and there are no
// checkpoints, only their number. Without a launcher every program has it.
#ifndef PHALANX_RABIT_LOCAL_ENGINE_H_
#define PHALANX_RABIT_LOCAL_ENGINE_H_

#include <string>

#include "src/rabit/engine.h"

namespace phalanx::rabit {

class LocalEngine : public Engine {
 public:
  explicit LocalEngine(int life) : life_(life) {}

  int rank() const override { return 0; }
  int world() const override { return 1; }
  bool distributed() const override { return false; }
  int life() const override { return life_; }
  int version() const override { return version_; }

  Error Print(const std::string& text) override;
  Error Allreduce(void* inout, size_t count, int type, int op, Preparation preparation,
                  const library::Where& where) override;
  Error AllreduceBy(void* inout, size_t element, size_t count, library::Reduce* reduce,
                    Preparation preparation, const library::Where& where) override;
  Error Broadcast(void* inout, size_t size, int root, const library::Where& where) override;
  Error Allgather(void* inout, size_t total, size_t begin, size_t size,
                  const library::Where& where) override;
  Error Load(const library::Loaded& global, const library::Loaded& local, int* version) override;
  Error CheckPoint(const library::Saved& global, const library::Saved& local) override;
  Error LazyCheckPoint(const library::Saved& global) override;
  Error Leave() override { return ""; }
  // Exits with 254.
  void Die(const std::string& death) override;

 private:
  const int life_;
  int version_ = 0;
};

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_LOCAL_ENGINE_H_
