// Nodes with a data plane and links in a simulated world, and a receiver that checks every message.
// Testonly.
//
//   SimLinks world;
//   SimLinkNode& a = world.Add("a");
//   SimLinkNode& b = world.Add("b");
//   a.Send(b.peer(), 100);
//   world.RunFor(absl::Seconds(1));
//   EXPECT_EQ(b.Received(a.key()), 1u);
#ifndef PHALANX_NET_TESTING_SIM_LINKS_H_
#define PHALANX_NET_TESTING_SIM_LINKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/common/random.h"
#include "src/net/link/node_links.h"
#include "src/net/plane/data_plane.h"
#include "src/sim/seams/sim_executor.h"
#include "src/sim/seams/sim_network.h"

namespace phalanx::net::testing {

// Byte j of the payload of message i.
inline char LinkByte(uint64_t i, size_t j) { return static_cast<char>(i * 31 + j * 7 + j / 251); }

// The messages of one node. A sender numbers its messages to a peer from 0, anew after each loss of
// the peer (an era). The header of a message is "era:number:bytes". Any message that is not the
// expected one is a violation.
class LinkChecker final : public LinkReceiver {
 public:
  // A payload of more than this is given a place.
  size_t place_above = 1000;
  // If set, PlaceFor returns it.
  absl::Status refuse_place;
  // If set, runs after each message, and after each loss.
  std::function<void(const NodeKey& from)> on_message;
  std::function<void(const NodeKey& peer)> on_lost;

  std::vector<std::string> violations;
  std::map<NodeKey, std::vector<absl::Status>> lost;

  // The header of the next message to `peer`.
  std::string NextHeader(const NodeKey& peer, size_t bytes) {
    Peer& to = peers_[peer];
    return absl::StrCat(to.era, ":", to.sent++, ":", bytes);
  }
  uint64_t Sent(const NodeKey& peer) const { return Find(peer).sent; }
  uint64_t Era(const NodeKey& peer) const { return Find(peer).era; }
  // The number of messages that have arrived in all, and in the last era of `peer`.
  uint64_t Received(const NodeKey& peer) const { return Find(peer).received; }
  uint64_t ReceivedOfEra(const NodeKey& peer, uint64_t era) const {
    const Peer from = Find(peer);
    return from.heard && from.heard_era == era ? from.next : 0;
  }

  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, absl::string_view header,
                                            size_t payload_bytes) override {
    if (!refuse_place.ok()) return refuse_place;
    if (!EndsWithBytes(header, payload_bytes)) Violation(from, header, "another length");
    if (payload_bytes <= place_above) return absl::Span<char>();
    Peer& peer = peers_[from];
    if (peer.placing) Violation(from, header, "two places at a time");
    peer.placing = true;
    peer.place.assign(payload_bytes, 0);
    return absl::MakeSpan(peer.place.data(), peer.place.size());
  }

  void OnMessage(const NodeKey& from, absl::string_view header, absl::Span<char> payload) override {
    const std::vector<std::string> parts = absl::StrSplit(header, ':');
    const uint64_t era = std::stoull(parts.at(0)), number = std::stoull(parts.at(1));
    if (!EndsWithBytes(header, payload.size())) Violation(from, header, "another length");
    Peer& peer = peers_[from];
    if (payload.size() > place_above) {
      if (!std::exchange(peer.placing, false)) Violation(from, header, "no place");
      if (payload.data() != peer.place.data()) Violation(from, header, "another place");
    }
    for (size_t j = 0; j < payload.size(); ++j) {
      if (payload[j] != LinkByte(number, j)) {
        Violation(from, header, absl::StrCat("byte ", j));
        break;
      }
    }
    const bool expected = peer.heard ? era == peer.heard_era && number == peer.next
                                     : number == 0 && (peer.received == 0 || era > peer.heard_era);
    if (!expected) {
      Violation(from, header, absl::StrCat("expected ", peer.heard_era, ":", peer.next));
    }
    peer.heard = true;
    peer.heard_era = era;
    peer.next = number + 1;
    ++peer.received;
    if (on_message) on_message(from);
  }

  void OnLost(const NodeKey& from, const absl::Status& why) override {
    if (why.ok()) violations.push_back("lost without a reason");
    lost[from].push_back(why);
    Peer& peer = peers_[from];
    ++peer.era;
    peer.sent = 0;
    peer.heard = false;
    peer.placing = false;
    if (on_lost) on_lost(from);
  }

 private:
  struct Peer {
    // To it: the era and the number of messages in it.
    uint64_t era = 0;
    uint64_t sent = 0;
    // From it: its era, if something has arrived since the last loss, and the next number.
    bool heard = false;
    uint64_t heard_era = 0;
    uint64_t next = 0;
    uint64_t received = 0;
    bool placing = false;
    std::vector<char> place;
  };

  Peer Find(const NodeKey& peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? Peer() : found->second;
  }
  static bool EndsWithBytes(absl::string_view header, size_t bytes) {
    const std::vector<std::string> parts = absl::StrSplit(header, ':');
    return parts.size() == 3 && parts[2] == absl::StrCat(bytes);
  }
  void Violation(const NodeKey& from, absl::string_view header, absl::string_view what) {
    violations.push_back(absl::StrCat("message ", header, " from ", from.ToString(), ": ", what));
  }

  std::map<NodeKey, Peer> peers_;
};

class SimLinkNode {
 public:
  SimLinkNode(sim::SimScheduler& scheduler, sim::SimFabric& fabric, const std::string& host,
              NodeKey key, uint64_t seed, NodeLinksOptions options)
      : process_(scheduler.NewProcess(host)),
        control_(process_->NewExecutor("control")),
        network_(fabric.Join(*process_, host)),
        random_(std::make_shared<Random>(seed)),
        peer_{key, host + ":7400"} {
    options.handshake.self = key;
    options.handshake.nonce_bytes = [random = random_](void* out, size_t size) {
      for (size_t i = 0; i < size; ++i) {
        static_cast<char*>(out)[i] = static_cast<char>(random->Below(256));
      }
    };
    DataPlaneOptions plane;
    plane.self = key;
    plane.handshake = options.handshake;
    plane_ = DataPlane::Create(*network_, control_, {&process_->NewExecutor("io")}, plane,
                               [](const ServeRequest&, DataPlane::ServeReply) {})
                 .value();
    links_ = std::make_unique<NodeLinks>(*network_, control_, std::move(options));
    links_->SetReceiver(LinkService::kMessages, &checker);
    plane_->SetLinkHandler([this](IncomingLink incoming) { links_->Accept(std::move(incoming)); });
    address_ = plane_->Listen("0.0.0.0:7400").value();
  }
  ~SimLinkNode() { Stop(); }

  // Sends the next message to `to`, with a payload of `bytes`.
  absl::Status Send(const LinkPeer& to, size_t bytes) {
    const uint64_t number = checker.Sent(to.key);
    auto payload = std::make_shared<std::string>(bytes, '\0');
    for (size_t j = 0; j < bytes; ++j) (*payload)[j] = LinkByte(number, j);
    // Small payloads are copied by the link.
    const bool copied = bytes <= NodeLinks::kMaxUnplacedBytes && bytes % 2 == 0;
    const std::string header = checker.NextHeader(to.key, bytes);
    if (!copied) kept.push_back(payload);
    return links_->Send(to, LinkService::kMessages, header, *payload, copied ? nullptr : payload);
  }
  // Forgets payloads that the link has released, and returns the number of the others.
  size_t Kept() {
    std::erase_if(kept, [](const auto& payload) { return payload.use_count() == 1; });
    return kept.size();
  }
  uint64_t Received(const NodeKey& from) const { return checker.Received(from); }

  void Stop() {
    plane_.reset();
    links_.reset();
  }
  void Kill() {
    Stop();
    process_->Kill();
  }

  NodeLinks& links() { return *links_; }
  sim::SimProcess& process() { return *process_; }
  sim::SimExecutor& control() { return control_; }
  const LinkPeer& peer() const { return peer_; }
  const NodeKey& key() const { return peer_.key; }

  LinkChecker checker;
  std::vector<std::shared_ptr<std::string>> kept;

 private:
  const std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& control_;
  const std::unique_ptr<sim::SimNetwork> network_;
  const std::shared_ptr<Random> random_;
  const LinkPeer peer_;
  Address address_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<NodeLinks> links_;
};

class SimLinks {
 public:
  explicit SimLinks(const sim::SimFabric::Options& options = {}, uint64_t seed = 1)
      : seed_(seed), scheduler_({.seed = seed}), fabric_(scheduler_, options) {}
  ~SimLinks() {
    for (auto& node : nodes_) node->Stop();
    // Resources that the nodes release in their last turns.
    scheduler_.RunFor(absl::Seconds(1));
  }

  // Adds a node on `host`. Nodes are numbered from 1; `key` can name another incarnation.
  SimLinkNode& Add(const std::string& host, NodeLinksOptions options = {}, NodeKey key = {}) {
    if (!key.valid()) key = {nodes_.size() + 1, 1};
    nodes_.push_back(std::make_unique<SimLinkNode>(
        scheduler_, fabric_, host, key, seed_ * 1000 + nodes_.size(), std::move(options)));
    return *nodes_.back();
  }
  void RunFor(absl::Duration time) { scheduler_.RunFor(time); }

  sim::SimScheduler& scheduler() { return scheduler_; }
  sim::SimFabric& fabric() { return fabric_; }
  const std::vector<std::unique_ptr<SimLinkNode>>& nodes() { return nodes_; }

 private:
  const uint64_t seed_;
  sim::SimScheduler scheduler_;
  sim::SimFabric fabric_;
  std::vector<std::unique_ptr<SimLinkNode>> nodes_;
};

}  // namespace phalanx::net::testing

#endif  // PHALANX_NET_TESTING_SIM_LINKS_H_
