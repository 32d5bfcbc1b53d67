// Pusher: the accepted connections of one I/O loop. Runs the handshake on each and then serves the
// requests of its peer.
//
// Owned by the data plane; lives on its loop.
#ifndef PHALANX_NET_PLANE_PUSHER_H_
#define PHALANX_NET_PLANE_PUSHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/net/link/incoming_link.h"
#include "src/net/plane/connection_budget.h"
#include "src/net/pull/data_plane_counters.h"
#include "src/net/pull/pull.h"
#include "src/net/push/egress_limiter.h"
#include "src/net/push/pull_sender.h"
#include "src/net/stream/byte_stream.h"
#include "src/net/stream/handshake.h"
#include "src/net/stream/stream_handshake.h"

namespace phalanx::net {

class Pusher final : public PullSender::Host {
 public:
  struct Options {
    HandshakeConfig handshake;
    PullSender::Options sender;
    absl::Duration handshake_timeout;
    std::function<void(absl::string_view peer, const absl::Status& reason)> on_rejected_peer;
  };
  // One push: pull number `pull` on connection number `connection` of this loop.
  struct PushId {
    uint64_t connection = 0;
    uint32_t pull = 0;
    friend auto operator<=>(const PushId&, const PushId&) = default;
  };
  // Called on this loop; must not call the pusher.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The listener answers with Grant.
    virtual void PushRequested(PushId push, ServeRequest request) = 0;
    // Called once for each grant: the push has ended. `grant` must be destroyed on the control
    // loop.
    virtual void PushEnded(PushId push, ServeGrant grant) = 0;
    // A proven peer wants a link over its connection.
    virtual void LinkRequested(IncomingLink incoming) = 0;
  };

  // REQUIRES: all references outlive the pusher.
  Pusher(Executor& executor, Options options, EgressLimiter& limiter, absl::Span<char> scratch,
         DataPlaneCounters& counters, ConnectionBudget& budget, Listener& listener);
  // Closes all connections. Still calls PushEnded for each current push.
  ~Pusher() override;

  // Runs the handshake on a new connection. If there are too many unproven connections, the oldest
  // is dropped. `on_rejected_peer` is called for a connection that ends before its proof.
  void Accept(std::unique_ptr<ByteStream> stream);
  void Grant(PushId push, absl::StatusOr<ServeGrant> answer);
  // Ends the push with Aborted and the text `reason`, if it has not ended.
  void Abort(PushId push, absl::string_view reason);

 private:
  // Either `handshake` or `sender` is set.
  struct Connection {
    ConnectionTicket ticket;
    // For messages, until `sender` is set.
    std::string peer;
    std::unique_ptr<StreamHandshake> handshake;
    std::unique_ptr<PullSender> sender;
    // The node that proved itself.
    NodeKey node;
  };

  void PullRequested(PullSender& sender, uint32_t pull, ServeRequest request) override;
  void GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) override;
  void WentIdle(PullSender& sender) override;
  void BecameLink(PullSender& sender, std::unique_ptr<ByteStream> stream,
                  LinkPayload request) override;
  void SenderClosed(PullSender& sender) override;
  void Authenticated(uint64_t id, absl::StatusOr<StreamHandshake::Authenticated> peer);
  void Reject(uint64_t id, const absl::Status& reason);
  PullSender* Find(uint64_t id);

  // Constant after construction.
  Executor& executor_;
  const Options options_;
  EgressLimiter& limiter_;
  const absl::Span<char> scratch_;
  DataPlaneCounters& counters_;
  ConnectionBudget& budget_;
  Listener& listener_;

  std::map<uint64_t, Connection> connections_;
  uint64_t next_id_ = 1;
};

}  // namespace phalanx::net

#endif  // PHALANX_NET_PLANE_PUSHER_H_
