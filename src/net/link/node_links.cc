#include "src/net/link/node_links.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/net/link/link.h"
#include "src/net/link/link_frame.h"
#include "src/net/link/link_inbox.h"
#include "src/net/link/link_session.h"

namespace phalanx::net {
namespace {

// Holds hundreds of small messages; larger payloads go to their place from the second read on.
constexpr size_t kStagingBytes = size_t{64} << 10;

static_assert(NodeLinks::kMaxHeaderBytes == kMaxLinkBodyBytes);
static_assert(NodeLinks::kMaxPayloadBytes == kMaxLinkPayloadBytes);
static_assert(NodeLinks::kMaxUnplacedBytes == LinkInbox::kMaxUnplacedBytes);

// Refuses a request for which there is no link.
void Refuse(ByteStream& stream, LinkVerdict verdict) {
  const std::string welcome =
      LinkFrame(LinkFrameType::kWelcome, 0, EncodeBody(WelcomeBody{verdict, 0, 0}));
  const iovec piece = {const_cast<char*>(welcome.data()), welcome.size()};
  (void)stream.Write({&piece, 1});
}

}  // namespace

class NodeLinks::Impl {
 public:
  Impl(Network& network, Executor& control, NodeLinksOptions options)
      : shared_{network, control, std::move(options)} {
    shared_.staging.resize(kStagingBytes);
    shared_.on_lost = [this](const NodeKey& peer, const absl::Status& why) { Lost(peer, why); };
  }

  void SetReceiver(LinkService service, LinkReceiver* receiver) {
    shared_.receivers[static_cast<size_t>(service)] = receiver;
  }
  absl::Status Send(const LinkPeer& to, LinkService service, absl::string_view header,
                    absl::string_view payload, std::shared_ptr<const void> keep);
  void Forget(const NodeKey& peer);
  bool Contains(const NodeKey& peer) const { return links_.contains(peer); }
  void Accept(IncomingLink incoming);
  LinkStats stats() const;

 private:
  using Links = std::map<NodeKey, std::shared_ptr<Link>>;

  const NodeKey& self() const { return shared_.options.handshake.self; }
  // Returns the link; makes it if there is none. An incarnation replaces the earlier ones of its
  // node. Unavailable if a later one is known, or if the link is lost; ResourceExhausted at the
  // limit.
  absl::StatusOr<std::shared_ptr<Link>> LinkTo(const NodeKey& peer);
  // Links that are not given up.
  size_t kept() const { return links_.size() - losing_; }
  // Gives up the links with peers that have ended.
  void MakeRoom();
  void Lost(const NodeKey& peer, const absl::Status& why);
  uint64_t NewSession() const;

  Link::Shared shared_;
  // By incarnation, so that the links of one node are neighbors.
  Links links_;
  // Links that are given up, whose OnLost is still to be called.
  size_t losing_ = 0;
  // MakeRoom looks at all links, so it waits before the next time.
  Instant make_room_at_;
  // Expires with this object.
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

absl::Status NodeLinks::Impl::Send(const LinkPeer& to, LinkService service,
                                   absl::string_view header, absl::string_view payload,
                                   std::shared_ptr<const void> keep) {
  const size_t most = keep == nullptr ? kMaxUnplacedBytes : kMaxPayloadBytes;
  if (header.size() > kMaxHeaderBytes || payload.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat("a message with a header of ", header.size(),
                                                   " bytes and a payload of ", payload.size(),
                                                   "; at most ", kMaxHeaderBytes, " and ", most));
  }
  if (to.key == self()) return absl::InvalidArgumentError("a message to this node itself");
  const absl::StatusOr<std::shared_ptr<Link>> link = LinkTo(to.key);
  if (!link.ok()) return link.status();
  return (*link)->Send(to.address, service, header, payload, std::move(keep));
}

absl::StatusOr<std::shared_ptr<Link>> NodeLinks::Impl::LinkTo(const NodeKey& peer) {
  // The first incarnation that is known. There is more than one only until OnLost of the others.
  for (auto it = links_.lower_bound({peer.node, 0});
       it != links_.end() && it->first.node == peer.node; ++it) {
    if (peer < it->first) {
      return absl::UnavailableError(
          absl::StrCat("node ", peer.ToString(), " has restarted as ", it->first.ToString()));
    }
    if (it->first < peer) {
      it->second->GiveUp(absl::AbortedError(absl::StrCat("node ", it->first.ToString(),
                                                         " has restarted as ", peer.ToString())),
                         /*notify=*/false);
      continue;
    }
    if (!it->second->lost()) return it->second;
    return absl::UnavailableError(
        absl::StrCat("the link with node ", peer.ToString(), " is given up"));
  }
  if (kept() >= shared_.options.max_links) MakeRoom();
  if (kept() >= shared_.options.max_links) {
    return absl::ResourceExhaustedError(
        absl::StrCat("node ", self().ToString(), " has links with ", kept(), " others"));
  }
  return links_.emplace(peer, std::make_shared<Link>(shared_, peer, NewSession())).first->second;
}

void NodeLinks::Impl::MakeRoom() {
  const Instant now = shared_.executor.Now();
  if (shared_.options.ended == nullptr || now < make_room_at_) return;
  make_room_at_ = now + absl::Seconds(1);
  for (const auto& [peer, link] : links_) {
    if (link->lost() || now - link->last_used() < kKeepIdleLink) continue;
    if (!shared_.options.ended(peer)) continue;
    link->GiveUp(absl::UnavailableError(absl::StrCat("node ", peer.ToString(), " has ended")),
                 /*notify=*/true);
  }
}

uint64_t NodeLinks::Impl::NewSession() const {
  uint64_t session = 0;
  while (session == 0) shared_.options.handshake.nonce_bytes(&session, sizeof(session));
  return session;
}

// Posted: a service hears of a loss in no call of its own.
void NodeLinks::Impl::Lost(const NodeKey& peer, const absl::Status& why) {
  ++shared_.counters.lost;
  ++losing_;
  shared_.executor.Post([this, alive = std::weak_ptr<const bool>(alive_), peer, why] {
    if (alive.expired()) return;
    links_.erase(peer);
    --losing_;
    // A receiver can remove another one, or destroy this object.
    for (size_t service = 1; service <= kLinkServices && !alive.expired(); ++service) {
      LinkReceiver* const receiver = shared_.receivers[service];
      if (receiver != nullptr) receiver->OnLost(peer, why);
    }
  });
}

void NodeLinks::Impl::Forget(const NodeKey& peer) {
  const auto link = links_.find(peer);
  if (link == links_.end()) return;
  link->second->GiveUp(absl::UnavailableError(absl::StrCat(
                           "node ", self().ToString(), " has forgotten node ", peer.ToString())),
                       /*notify=*/true);
}

void NodeLinks::Impl::Accept(IncomingLink incoming) {
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = incoming.stream->Attach(shared_.executor);
  // The connection has ended: the peer dials again.
  if (!stream.ok()) return;
  const bool known = links_.contains(incoming.peer);
  // It knows a link that this side has given up.
  if (!known && incoming.request.known_session != 0) {
    return Refuse(**stream, LinkVerdict::kForgotten);
  }
  const absl::StatusOr<std::shared_ptr<Link>> link = LinkTo(incoming.peer);
  if (!link.ok()) return Refuse(**stream, LinkVerdict::kRefused);
  if ((*link)->Accept(*stream, incoming.request) != LinkSession::Answer::kRenew) return;
  // The peer dials again, after OnLost here.
  Refuse(**stream, LinkVerdict::kBusy);
  (*link)->GiveUp(absl::UnavailableError(
                      absl::StrCat("node ", incoming.peer.ToString(), " has given the link up")),
                  /*notify=*/false);
}

LinkStats NodeLinks::Impl::stats() const {
  LinkStats stats = shared_.counters;
  stats.links = static_cast<int>(links_.size());
  for (const auto& [key, link] : links_) {
    stats.connections += link->connected() ? 1 : 0;
    stats.queued_bytes += link->queued_bytes();
  }
  return stats;
}

NodeLinks::NodeLinks(Network& network, Executor& control, NodeLinksOptions options)
    : impl_(std::make_unique<Impl>(network, control, std::move(options))) {}
NodeLinks::~NodeLinks() = default;

void NodeLinks::SetReceiver(LinkService service, LinkReceiver* receiver) {
  impl_->SetReceiver(service, receiver);
}
absl::Status NodeLinks::Send(const LinkPeer& to, LinkService service, std::string header,
                             absl::string_view payload, std::shared_ptr<const void> keep) {
  return impl_->Send(to, service, header, payload, std::move(keep));
}
void NodeLinks::Forget(const NodeKey& peer) { impl_->Forget(peer); }
bool NodeLinks::Contains(const NodeKey& peer) const { return impl_->Contains(peer); }
void NodeLinks::Accept(IncomingLink incoming) { impl_->Accept(std::move(incoming)); }
LinkStats NodeLinks::stats() const { return impl_->stats(); }

}  // namespace phalanx::net
