// Open MPI as a peer: mpirun starts one such process per host. The settings of a step are control
// variables ("coll_tuned_bcast_algorithm=3"); a communicator keeps the values under which it was
// created.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "benchmarks/peer_programs/trial.h"

namespace phalanx::benchmarks {
namespace {

// One integer control variable of the library.
class Variable {
 public:
  explicit Variable(const std::string& name) {
    int index = 0, count = 0;
    if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &count) != MPI_SUCCESS) {
      std::fprintf(stderr, "this Open MPI has no control variable %s\n", name.c_str());
      std::exit(2);
    }
    MPI_T_cvar_read(handle_, &preset_);
  }

  void Set(int value) {
    int found = 0;
    if (MPI_T_cvar_write(handle_, &value) != MPI_SUCCESS ||
        MPI_T_cvar_read(handle_, &found) != MPI_SUCCESS || found != value) {
      std::fprintf(stderr, "a control variable does not take the value %d\n", value);
      std::exit(2);
    }
  }

  void Reset() { Set(preset_); }

 private:
  MPI_T_cvar_handle handle_ = nullptr;
  int preset_ = 0;
};

class OpenMpi : public Peer {
 public:
  void Prepare(const Step& step, const float* in, float* out) override {
    op_ = step.op, in_ = in, out_ = out, count_ = static_cast<int>(step.size / sizeof(float));
    for (auto& [name, variable] : variables_) variable.Reset();
    std::istringstream settings(step.settings == "-" ? "" : step.settings);
    for (std::string setting; std::getline(settings, setting, ',');) {
      const size_t equals = setting.find('=');
      const std::string name = setting.substr(0, equals);
      variables_.try_emplace(name, name).first->second.Set(std::atoi(setting.c_str() + equals + 1));
    }
    if (all_ != MPI_COMM_NULL) MPI_Comm_free(&all_);
    MPI_Comm_dup(MPI_COMM_WORLD, &all_);
  }

  // MPI's default error handler ends all ranks.
  void Perform() override {
    if (op_ == "broadcast") MPI_Bcast(out_, count_, MPI_FLOAT, 0, all_);
    if (op_ == "reduce") MPI_Reduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, 0, all_);
    if (op_ == "allreduce") MPI_Allreduce(in_, out_, count_, MPI_FLOAT, MPI_SUM, all_);
    if (op_ == "gather") MPI_Gather(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, 0, all_);
    if (op_ == "barrier") MPI_Barrier(all_);
    if (op_ == "allgather") MPI_Allgather(in_, count_, MPI_FLOAT, out_, count_, MPI_FLOAT, all_);
  }

  bool Progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    return true;
  }

 private:
  std::map<std::string, Variable> variables_;
  MPI_Comm all_ = MPI_COMM_NULL;
  std::string op_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  int count_ = 0;
};

}  // namespace
}  // namespace phalanx::benchmarks

int main(int argc, char** argv) {
  int threads = 0;
  MPI_Init(&argc, &argv);
  MPI_T_init_thread(MPI_THREAD_SINGLE, &threads);
  const auto options = phalanx::benchmarks::ParseTrialOptions(argc, argv);
  phalanx::benchmarks::OpenMpi peer;
  const int status = phalanx::benchmarks::RunTrial(options, peer);
  MPI_T_finalize();
  MPI_Finalize();
  return status;
}
