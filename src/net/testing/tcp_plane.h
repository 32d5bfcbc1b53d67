// Nodes with a data plane over real sockets on the loopback of this machine, each with its own
// control loop and I/O loops. For tests and benchmarks. Testonly.
//
// Called from the thread of the test. Methods that must run on the control loop post a task there
// and wait for it.
#ifndef PHALANX_NET_TESTING_TCP_PLANE_H_
#define PHALANX_NET_TESTING_TCP_PLANE_H_

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/net/loop/event_loop.h"
#include "src/net/plane/data_plane.h"
#include "src/net/tcp/tcp_network.h"
#include "src/net/testing/plane_objects.h"

namespace phalanx::net::testing {

class TcpPlane {
 public:
  explicit TcpPlane(uint64_t number, DataPlaneOptions options = {}, int io_loops = 1)
      : self_{number, 1} {
    options.self = self_;
    shelf_.SetHome(control_);
    PHALANX_CHECK(control_.Start(absl::StrCat("control", number)).ok(), "a thread");
    std::vector<Executor*> io;
    for (int i = 0; i < io_loops; ++i) {
      loops_.push_back(std::make_unique<EventLoop>());
      PHALANX_CHECK(loops_.back()->Start(absl::StrCat("io", number)).ok(), "a thread");
      io.push_back(loops_.back().get());
    }
    OnControl([&] {
      plane_ = DataPlane::Create(network_, control_, io, std::move(options),
                                 [this](const ServeRequest& r, DataPlane::ServeReply reply) {
                                   reply(shelf_.Serve(r));
                                 })
                   .value();
      address_ = plane_->Listen("127.0.0.1:0").value();
    });
  }
  ~TcpPlane() {
    Stop();
    for (auto& loop : loops_) loop->Stop();
    control_.Stop();
  }

  // Ends the data plane. The loops continue.
  void Stop() {
    OnControl([this] { plane_.reset(); });
  }

  void Put(const ObjectId& id, std::shared_ptr<TransferBuffer> buffer) {
    OnControl([&] { shelf_.Put(id, Gen(), std::move(buffer)); });
  }

  struct Pull {
    DataPlane::PullHandle handle;
    std::future<PullOutcome> outcome;
  };
  Pull Start(PullSpec spec) {
    Pull pull;
    std::promise<PullOutcome> promise;
    pull.outcome = promise.get_future();
    OnControl([&] {
      pull.handle = plane_->StartPull(
          std::move(spec), [promise = std::move(promise)](const PullOutcome& outcome) mutable {
            // A copy that shares no memory, as for every status that passes between threads.
            PullOutcome copy = outcome;
            copy.status = absl::Status(outcome.status.code(), outcome.status.message());
            promise.set_value(std::move(copy));
          });
    });
    return pull;
  }
  Pull Start(const TcpPlane& from, const ObjectId& id, std::shared_ptr<TransferBuffer> into) {
    return Start({from.self_, from.address_, id, Gen(), std::move(into), ~uint64_t{0}});
  }
  void Cancel(const Pull& pull) {
    OnControl([&] { plane_->CancelPull(pull.handle); });
  }
  DataPlaneStats stats() {
    DataPlaneStats stats;
    OnControl([&] { stats = plane_->stats(); });
    return stats;
  }
  // Runs `task` on the control loop and waits for it.
  void OnControl(absl::AnyInvocable<void()> task) {
    std::promise<void> done;
    control_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  DataPlane& plane() { return *plane_; }
  const Address& address() const { return address_; }
  const NodeKey& self() const { return self_; }
  int pins() const { return shelf_.pins(); }
  int pins_released_elsewhere() const { return shelf_.released_elsewhere(); }

 private:
  const NodeKey self_;
  EventLoop control_;
  std::vector<std::unique_ptr<EventLoop>> loops_;
  TcpNetwork network_;
  Shelf shelf_;
  Address address_;
  std::unique_ptr<DataPlane> plane_;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_TCP_PLANE_H_
