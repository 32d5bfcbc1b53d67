// Nodes with a data plane in a simulated world. Testonly.
//
//   SimPlanes world;
//   SimPlane& a = world.Add("a");
//   a.shelf.Put(Id(1), Gen(), WholeBuffer(1000));
//   auto pull = world.Add("b").Pull(a, Id(1), EmptyBuffer(1000));
//   ASSERT_TRUE(world.RunUntilDone(pull));
#ifndef PHALANX_NET_TESTING_SIM_PLANE_H_
#define PHALANX_NET_TESTING_SIM_PLANE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/net/plane/data_plane.h"
#include "src/net/testing/plane_objects.h"
#include "src/sim/seams/sim_executor.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::net::testing {

// A started pull and its outcome.
struct StartedPull {
  std::shared_ptr<TransferBuffer> into;
  DataPlane::PullHandle handle = 0;
  std::shared_ptr<std::optional<PullOutcome>> outcome =
      std::make_shared<std::optional<PullOutcome>>();
  // Watermarks when `done` ran.
  std::shared_ptr<uint64_t> present_at_done = std::make_shared<uint64_t>(0);

  bool done() const { return outcome->has_value(); }
  const absl::Status& status() const { return outcome->value().status; }
};

class SimPlane {
 public:
  SimPlane(sim::SimScheduler& scheduler, sim::SimFabric& fabric, const std::string& name,
           DataPlaneOptions options, int io_loops)
      : process_(scheduler.NewProcess(name)),
        control_(process_->NewExecutor("control")),
        network_(fabric.Join(*process_, name)) {
    std::vector<Executor*> io;
    for (int i = 0; i < io_loops; ++i) io.push_back(&process_->NewExecutor("io"));
    if (io.empty()) io.push_back(&control_);
    self_ = options.self;
    shelf.SetHome(control_);
    plane_ = DataPlane::Create(*network_, control_, io, std::move(options),
                               [this](const ServeRequest& request, DataPlane::ServeReply reply) {
                                 Serve(request, std::move(reply));
                               })
                 .value();
    address_ = plane_->Listen("0.0.0.0:7400").value();
    address_ = name + ":7400";
  }
  ~SimPlane() { Stop(); }

  StartedPull Pull(const SimPlane& from, const ObjectId& id, std::shared_ptr<TransferBuffer> into,
                   uint64_t slices = ~uint64_t{0}, Generation generation = Gen()) {
    return Pull(PullSpec{from.self(), from.address(), id, generation, std::move(into), slices});
  }
  StartedPull Pull(PullSpec spec) {
    StartedPull pull;
    pull.into = spec.into;
    pull.handle =
        plane_->StartPull(std::move(spec), [outcome = pull.outcome, present = pull.present_at_done,
                                            into = pull.into](const PullOutcome& o) {
          *outcome = o;
          if (into != nullptr) *present = into->bytes_present();
        });
    return pull;
  }
  void Stop() { plane_.reset(); }

  DataPlane& plane() { return *plane_; }
  sim::SimProcess& process() { return *process_; }
  sim::SimExecutor& control() { return control_; }
  Network& network() { return *network_; }
  const NodeKey& self() const { return self_; }
  const Address& address() const { return address_; }

  Shelf shelf;
  // If set, serves instead of the shelf.
  DataPlane::ServeHandler serve;

 private:
  void Serve(const ServeRequest& request, DataPlane::ServeReply reply) {
    if (serve) return serve(request, std::move(reply));
    reply(shelf.Serve(request));
  }

  const std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& control_;
  const std::unique_ptr<sim::SimNetwork> network_;
  NodeKey self_;
  Address address_;
  std::unique_ptr<DataPlane> plane_;
};

class SimPlanes {
 public:
  explicit SimPlanes(const sim::SimFabric::Options& options = {}, uint64_t seed = 1)
      : scheduler_({.seed = seed}), fabric_(scheduler_, options) {}
  ~SimPlanes() {
    for (auto& plane : planes_) plane->Stop();
    // Resources that the planes release in their last turns.
    scheduler_.RunFor(absl::Seconds(1));
  }

  // Adds the n-th node, named n, unless `options.self` is set.
  SimPlane& Add(const std::string& name, DataPlaneOptions options = {}, int io_loops = 1) {
    if (!options.self.valid()) options.self = {planes_.size() + 1, 1};
    planes_.push_back(std::make_unique<SimPlane>(scheduler_, fabric_, name, options, io_loops));
    return *planes_.back();
  }

  bool RunUntilDone(const StartedPull& pull, absl::Duration limit = absl::Seconds(60)) {
    return scheduler_.RunUntil([&pull] { return pull.done(); }, limit);
  }
  // Returns the simulated duration of the pull; infinite if it did not end within `limit`.
  absl::Duration TimeUntilDone(const StartedPull& pull, absl::Duration limit = absl::Seconds(60)) {
    const Instant start = scheduler_.now();
    if (!RunUntilDone(pull, limit)) return absl::InfiniteDuration();
    return scheduler_.now() - start;
  }
  void RunFor(absl::Duration time) { scheduler_.RunFor(time); }

  sim::SimScheduler& scheduler() { return scheduler_; }
  sim::SimFabric& fabric() { return fabric_; }

 private:
  sim::SimScheduler scheduler_;
  sim::SimFabric fabric_;
  std::vector<std::unique_ptr<SimPlane>> planes_;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_SIM_PLANE_H_
