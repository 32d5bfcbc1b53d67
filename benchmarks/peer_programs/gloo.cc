// Gloo as a peer, over its TCP transport. Most algorithms besides "default" belong to its older,
// stateful interface, which it offers beside the newer one.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <functional>
#include <memory>

#include "benchmarks/peer_programs/trial.h"

namespace phalanx::benchmarks {
namespace {

void Sum(void* to, const void* a, const void* b, size_t count) {
  gloo::sum<float>(to, a, b, count);
}

class Gloo : public Peer {
 public:
  explicit Gloo(const TrialOptions& options) : rank_(options.rank), world_(options.world) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.hosts[rank_];
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(options.store);
    context_ = std::make_shared<gloo::rendezvous::Context>(rank_, world_);
    context_->setTimeout(std::chrono::minutes(5));
    context_->connectFullMesh(store, device);
  }

  void Prepare(const Step& step, const float* in, float* out) override {
    const size_t count = step.size / sizeof(float);
    algorithm_ = step.algorithm;
    if (step.op == "broadcast") PrepareBroadcast(out, count);
    if (step.op == "reduce") PrepareReduce(in, out, count);
    if (step.op == "allreduce") PrepareAllreduce(in, out, count);
    if (step.op == "gather") PrepareGather(in, out, count);
    if (step.op == "allgather") PrepareAllgather(in, out, count);
    if (step.op == "barrier") PrepareBarrier();
  }

  void Perform() override { perform_(); }

 private:
  // Stateful algorithms are bound to their buffers when they are constructed.
  template <typename Algorithm>
  void Keep(std::shared_ptr<Algorithm> algorithm) {
    perform_ = [algorithm = std::move(algorithm)] { algorithm->run(); };
  }

  void PrepareBroadcast(float* out, size_t count) {
    if (algorithm_ == "one_to_all") {
      return Keep(std::make_shared<gloo::BroadcastOneToAll<float>>(
          context_, std::vector<float*>{out}, count));
    }
    perform_ = [this, out, count] {
      gloo::BroadcastOptions options(context_);
      options.setRoot(0);
      options.setOutput(out, count);
      gloo::broadcast(options);
    };
  }

  void PrepareReduce(const float* in, float* out, size_t count) {
    perform_ = [this, in, out, count] {
      gloo::ReduceOptions options(context_);
      options.setRoot(0);
      options.setInput(const_cast<float*>(in), count);
      options.setOutput(out, count);
      options.setReduceFunction(Sum);
      gloo::reduce(options);
    };
  }

  // The stateful algorithms work in place, so copying the input is part of the operation.
  template <typename Algorithm>
  void KeepInPlace(const float* in, float* out, size_t count) {
    auto algorithm =
        std::make_shared<Algorithm>(context_, std::vector<float*>{out}, static_cast<int>(count));
    perform_ = [algorithm, in, out, count] {
      std::copy(in, in + count, out);
      algorithm->run();
    };
  }

  void PrepareAllreduce(const float* in, float* out, size_t count) {
    if (algorithm_ == "ring_chunked") {
      return KeepInPlace<gloo::AllreduceRingChunked<float>>(in, out, count);
    }
    if (algorithm_ == "halving_doubling") {
      return KeepInPlace<gloo::AllreduceHalvingDoubling<float>>(in, out, count);
    }
    perform_ = [this, in, out, count, bcube = algorithm_ == "bcube"] {
      gloo::AllreduceOptions options(context_);
      if (bcube) {
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
      }
      options.setInput(const_cast<float*>(in), count);
      options.setOutput(out, count);
      options.setReduceFunction(Sum);
      gloo::allreduce(options);
    };
  }

  void PrepareGather(const float* in, float* out, size_t count) {
    perform_ = [this, in, out, count] {
      gloo::GatherOptions options(context_);
      options.setRoot(0);
      options.setInput(const_cast<float*>(in), count);
      if (rank_ == 0) options.setOutput(out, count * world_);
      gloo::gather(options);
    };
  }

  void PrepareAllgather(const float* in, float* out, size_t count) {
    if (algorithm_ == "ring") {
      return Keep(std::make_shared<gloo::AllgatherRing<float>>(
          context_, std::vector<const float*>{in}, out, static_cast<int>(count)));
    }
    perform_ = [this, in, out, count] {
      gloo::AllgatherOptions options(context_);
      options.setInput(const_cast<float*>(in), count);
      options.setOutput(out, count * world_);
      gloo::allgather(options);
    };
  }

  void PrepareBarrier() {
    perform_ = [this] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    };
  }

  const int rank_;
  const int world_;
  std::string algorithm_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::function<void()> perform_;
};

}  // namespace
}  // namespace phalanx::benchmarks

int main(int argc, char** argv) {
  const auto options = phalanx::benchmarks::ParseTrialOptions(argc, argv);
  phalanx::benchmarks::Gloo peer(options);
  return phalanx::benchmarks::RunTrial(options, peer);
}
