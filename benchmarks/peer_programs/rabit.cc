// The original Rabit as a peer. Its tracker gives the ranks, in the order of the texts of their
// hosts' addresses, so that a rank of this trial can have another number there.
#include <rabit/rabit.h>

#include <algorithm>
#include <string>

#include "benchmarks/peer_programs/trial.h"

namespace phalanx::benchmarks {
namespace {

// A model without bytes.
class Nothing : public ::rabit::Serializable {
 public:
  void Load(::rabit::Stream*) override {}
  void Save(::rabit::Stream*) const override {}
};

class Rabit : public Peer {
 public:
  // Agrees on the number that rank 0 of the trial has there.
  explicit Rabit(const TrialOptions& options) : root_(options.rank == 0 ? ::rabit::GetRank() : 0) {
    ::rabit::Allreduce<::rabit::op::Max>(&root_, 1);
    ::rabit::LoadCheckPoint(&model_);
  }

  void Prepare(const Step& step, const float* in, float* out) override {
    op_ = step.op, in_ = in, out_ = out, count_ = step.size / sizeof(float);
    // Rabit keeps results until the next checkpoint, for a rank that dies.
    ::rabit::CheckPoint(&model_);
  }

  // Ends the process on an error. It works in place, so copying the input is part of the operation.
  void Perform() override {
    if (op_ == "allreduce") {
      std::copy(in_, in_ + count_, out_);
      ::rabit::Allreduce<::rabit::op::Sum>(out_, count_);
    }
    if (op_ == "broadcast") ::rabit::Broadcast(out_, count_ * sizeof(float), root_);
    // Every rank has given something when this one ends.
    if (op_ == "barrier") {
      char nothing = 0;
      ::rabit::Allreduce<::rabit::op::Max>(&nothing, 1);
    }
  }

 private:
  int root_;
  Nothing model_;
  std::string op_;
  const float* in_ = nullptr;
  float* out_ = nullptr;
  size_t count_ = 0;
};

}  // namespace
}  // namespace phalanx::benchmarks

int main(int argc, char** argv) {
  const auto options = phalanx::benchmarks::ParseTrialOptions(argc, argv);
  // The tracker's address is in the environment; the arguments are not Rabit's.
  rabit::Init(1, argv);
  int status = 0;
  {
    phalanx::benchmarks::Rabit peer(options);
    status = phalanx::benchmarks::RunTrial(options, peer);
  }
  rabit::Finalize();
  return status;
}
