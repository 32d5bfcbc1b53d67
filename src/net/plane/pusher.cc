#include "src/net/plane/pusher.h"

#include <utility>

namespace phalanx::net {

Pusher::Pusher(Executor& executor, Options options, EgressLimiter& limiter,
               absl::Span<char> scratch, DataPlaneCounters& counters, ConnectionBudget& budget,
               Listener& listener)
    : executor_(executor),
      options_(std::move(options)),
      limiter_(limiter),
      scratch_(scratch),
      counters_(counters),
      budget_(budget),
      listener_(listener) {}

Pusher::~Pusher() {
  for (auto& [id, connection] : connections_) {
    // Grants return even now, since their pins must be released on the control loop.
    if (connection.sender == nullptr) continue;
    const PushId push = {id, connection.sender->pull()};
    ServeGrant grant = connection.sender->Stop();
    if (grant.from != nullptr) listener_.PushEnded(push, std::move(grant));
  }
}

void Pusher::Accept(std::unique_ptr<ByteStream> stream) {
  const uint64_t id = next_id_++;
  Connection& connection = connections_[id];
  connection.peer = stream->peer();
  connection.ticket = budget_.Accept(executor_, [this, id] {
    Reject(id, absl::ResourceExhaustedError(
                   "too many connections that have not finished the handshake"));
  });
  connection.handshake = std::make_unique<StreamHandshake>(
      executor_, std::move(stream), options_.handshake, Handshake::Role::kAcceptor,
      executor_.Now() + options_.handshake_timeout,
      [this, id](absl::StatusOr<StreamHandshake::Authenticated> peer) {
        Authenticated(id, std::move(peer));
      });
}

void Pusher::Authenticated(uint64_t id, absl::StatusOr<StreamHandshake::Authenticated> peer) {
  if (!peer.ok()) {
    // Broken connections and time-outs are not counted: only a peer that was refused is.
    if (absl::IsPermissionDenied(peer.status()) || absl::IsFailedPrecondition(peer.status())) {
      DataPlaneCounters::Add(counters_.handshakes_refused);
    }
    return Reject(id, peer.status());
  }
  Connection& connection = connections_[id];
  // The limit of proven connections applies only from the proof on.
  if (!connection.ticket.Prove()) {
    return Reject(id, absl::ResourceExhaustedError("all connections of this node are in use"));
  }
  // Allowed within the callback of the handshake, which is its last action.
  connection.handshake.reset();
  connection.node = peer->peer;
  connection.sender =
      std::make_unique<PullSender>(id, executor_, std::move(peer->stream), peer->peer,
                                   options_.sender, limiter_, scratch_, counters_, *this);
  connection.sender->Start(peer->rest);
}

void Pusher::Reject(uint64_t id, const absl::Status& reason) {
  // Reported first, since the entry owns the address of the peer.
  const auto found = connections_.find(id);
  if (options_.on_rejected_peer) options_.on_rejected_peer(found->second.peer, reason);
  connections_.erase(found);
}

PullSender* Pusher::Find(uint64_t id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.sender.get();
}

void Pusher::Grant(PushId push, absl::StatusOr<ServeGrant> answer) {
  PullSender* const sender = Find(push.connection);
  if (sender != nullptr) return sender->Grant(push.pull, std::move(answer));
  // The connection was closed before the answer: the grant returns to the control loop.
  if (answer.ok()) listener_.PushEnded(push, *std::move(answer));
}

void Pusher::Abort(PushId push, absl::string_view reason) {
  PullSender* const sender = Find(push.connection);
  if (sender != nullptr) sender->Abort(push.pull, reason);
}

void Pusher::PullRequested(PullSender& sender, uint32_t pull, ServeRequest request) {
  // The budget has just dropped this connection, and a posted task closes it. The peer repeats its
  // request over another connection.
  if (!connections_.at(sender.connection()).ticket.Claim()) return;
  listener_.PushRequested({sender.connection(), pull}, std::move(request));
}

void Pusher::GrantReturned(PullSender& sender, uint32_t pull, ServeGrant grant) {
  listener_.PushEnded({sender.connection(), pull}, std::move(grant));
}

void Pusher::WentIdle(PullSender& sender) {
  const uint64_t id = sender.connection();
  // From here on the budget can drop the connection; the peer dials again if it needs one.
  connections_.at(id).ticket.MarkIdle([this, id] { connections_.erase(id); });
}

void Pusher::BecameLink(PullSender& sender, std::unique_ptr<ByteStream> stream,
                        LinkPayload request) {
  const uint64_t id = sender.connection();
  std::unique_ptr<DetachedStream> detached = stream->Detach();
  // The link does not count as a connection of the data plane: it has limits of its own.
  const NodeKey node = connections_.at(id).node;
  connections_.erase(id);
  if (detached != nullptr) listener_.LinkRequested({std::move(detached), node, request});
}

void Pusher::SenderClosed(PullSender& sender) { connections_.erase(sender.connection()); }

}  // namespace phalanx::net
