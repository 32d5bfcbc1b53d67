// MockEngine: the engine of librabit_mock. It stands in front of another one, and
//  - dies on entry to the calls that `mock=` names: collectives, CheckPoint and LazyCheckPoint. The
//    collectives of a version are counted from 0. Those that a life repeats count, those that
//    return an error do not;
//  - with `report_stats`, prints a line per version at rank 0;
//  - with `force_local`, turns global models into local ones, so that their copies can be tested.
#ifndef PHALANX_RABIT_MOCK_ENGINE_H_
#define PHALANX_RABIT_MOCK_ENGINE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "src/rabit/engine.h"
#include "src/rabit/parameters.h"

namespace phalanx::rabit {

class MockEngine : public Engine {
 public:
  MockEngine(std::unique_ptr<Engine> engine, const Parameters& parameters);

  int rank() const override { return engine_->rank(); }
  int world() const override { return engine_->world(); }
  bool distributed() const override { return engine_->distributed(); }
  int life() const override { return life_; }
  int version() const override { return engine_->version(); }

  Error Print(const std::string& text) override { return engine_->Print(text); }
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
  Error Leave() override { return engine_->Leave(); }
  void Die(const std::string& death) override { engine_->Die(death); }

 private:
  using Time = std::chrono::steady_clock::time_point;

  void DieIfDue();
  // Makes a collective, and counts it unless it fails.
  template <typename Call>
  Error Collective(Call call);
  // Makes a checkpoint, and reports it.
  template <typename Call>
  Error Checkpoint(Call call);
  void BeginVersion(Time now);

  const std::unique_ptr<Engine> engine_;
  const std::vector<MockDeath> deaths_;
  const bool report_stats_;
  const bool force_local_;
  const int life_;
  int seq_ = 0;
  // Of this version, for `report_stats`.
  std::chrono::duration<double> in_calls_{0};
  Time began_;
};

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_MOCK_ENGINE_H_
