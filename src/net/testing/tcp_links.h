// Nodes with a data plane and links over real sockets on the loopback of this machine, each with
// its own control loop and one I/O loop. For tests and benchmarks. Testonly.
//
// Called from the thread of the test. OnControl runs a task on the control loop and waits for it.
#ifndef PHALANX_NET_TESTING_TCP_LINKS_H_
#define PHALANX_NET_TESTING_TCP_LINKS_H_

#include <future>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/net/link/node_links.h"
#include "src/net/loop/event_loop.h"
#include "src/net/plane/data_plane.h"
#include "src/net/tcp/tcp_network.h"

namespace phalanx::net::testing {

class TcpLinkNode {
 public:
  // `receiver` is used on the control loop, and outlives the node.
  TcpLinkNode(uint64_t number, LinkReceiver& receiver) {
    peer_.key = {number, 1};
    PHALANX_CHECK(control_.Start(absl::StrCat("control", number)).ok(), "a thread");
    PHALANX_CHECK(io_.Start(absl::StrCat("io", number)).ok(), "a thread");
    OnControl([&] {
      DataPlaneOptions plane;
      plane.self = peer_.key;
      plane.handshake.self = peer_.key;
      plane_ = DataPlane::Create(network_, control_, {&io_}, plane,
                                 [](const ServeRequest&, DataPlane::ServeReply) {})
                   .value();
      NodeLinksOptions options;
      options.handshake = plane.handshake;
      links_ = std::make_unique<NodeLinks>(network_, control_, std::move(options));
      links_->SetReceiver(LinkService::kMessages, &receiver);
      plane_->SetLinkHandler(
          [this](IncomingLink incoming) { links_->Accept(std::move(incoming)); });
      peer_.address = plane_->Listen("127.0.0.1:0").value();
    });
  }
  ~TcpLinkNode() {
    OnControl([this] {
      plane_.reset();
      links_.reset();
    });
    io_.Stop();
    control_.Stop();
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

  // Used on the control loop.
  NodeLinks& links() { return *links_; }
  EventLoop& control() { return control_; }
  const LinkPeer& peer() const { return peer_; }

 private:
  EventLoop control_;
  EventLoop io_;
  TcpNetwork network_;
  LinkPeer peer_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<NodeLinks> links_;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_TCP_LINKS_H_
