// Pusher: the accepted connections of one I/O loop: each is made to show the secret, then serves
// what its peer asks for.
//
// Owned by the data plane; lives on its loop.
#ifndef PHALANX_NET_PUSHER_H_
#define PHALANX_NET_PUSHER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/executor.h"
#include "src/net/byte_stream.h"
#include "src/net/connection_budget.h"
#include "src/net/data_plane_counters.h"
#include "src/net/egress_limiter.h"
#include "src/net/handshake.h"
#include "src/net/pull.h"
#include "src/net/pull_sender.h"
#include "src/net/stream_handshake.h"

namespace phalanx::net {

class Pusher final : public PullSender::Host {
 public:
  struct Options {
    HandshakeConfig handshake;
    PullSender::Options sender;
    absl::Duration handshake_timeout;
    std::function<void(absl::string_view peer, const absl::Status& why)> turned_away;
  };
  // One push: the `pull`-th on the `connection`-th connection of this loop.
  struct PushId {
    uint64_t connection = 0;
    uint32_t pull = 0;
    friend auto operator<=>(const PushId&, const PushId&) = default;
  };
  // Told on this loop; must not call back from within.
  class Listener {
   public:
    virtual ~Listener() = default;
    // To be answered with Grant.
    virtual void Asked(PushId push, ServeRequest request) = 0;
    // Once for each grant: the push is over. `grant` is to be destroyed on the control loop.
    virtual void PushEnded(PushId push, ServeGrant grant) = 0;
  };

  // REQUIRES: all references outlive the pusher.
  Pusher(Executor& executor, Options options, EgressLimiter& limiter, absl::Span<char> scratch,
         DataPlaneCounters& counters, ConnectionBudget& budget, Listener& listener);
  // Closes all connections; PushEnded is still called for each push going on.
  ~Pusher() override;

  // The oldest connection that has not proved itself makes room for it when there are too many of
  // them. What ends before its proof is told to `turned_away`.
  void Accept(std::unique_ptr<ByteStream> stream);
  void Grant(PushId push, absl::StatusOr<ServeGrant> answer);
  // Ends the push with Aborted and the text `why`, unless it has ended.
  void Abort(PushId push, absl::string_view why);

 private:
  // One of the two is there.
  struct Connection {
    ConnectionTicket ticket;
    // For messages, as long as there is no sender.
    std::string peer;
    std::unique_ptr<StreamHandshake> handshake;
    std::unique_ptr<PullSender> sender;
  };

  void Asked(PullSender& sender, uint32_t pull, ServeRequest request) override;
  void GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) override;
  void WentIdle(PullSender& sender) override;
  void SenderClosed(PullSender& sender) override;
  void Authenticated(uint64_t id, absl::StatusOr<StreamHandshake::Authenticated> peer);
  void TurnAway(uint64_t id, const absl::Status& why);
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

#endif  // PHALANX_NET_PUSHER_H_
