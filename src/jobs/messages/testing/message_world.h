// A world of nodes with a MessageCore each, and members that live on them. Links are queues with
// delays that can be lost; news of members reach each node after a delay of its own. Testonly.
//
//   MessageWorld world(seed);
//   world.Start(/*rank=*/0, /*node=*/0);
//   world.Start(1, 1);
//   world.Run(absl::Seconds(1));
//   world.Send(0, 1, 100);
#ifndef PHALANX_JOBS_MESSAGES_TESTING_MESSAGE_WORLD_H_
#define PHALANX_JOBS_MESSAGES_TESTING_MESSAGE_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/random.h"
#include "src/jobs/messages/message_core.h"

namespace phalanx::jobs::testing {

class MessageWorld {
 public:
  // A member in one of its lives; lives on one node.
  struct Life {
    LifeKey key;
    int node = 0;
    bool live = true;
    // Messages that its client has not taken.
    std::deque<MessageCore::Deliver> mailbox = {};
    // The cost of what it has taken, by sender and stream, and not reported to its node.
    std::map<std::pair<LifeKey, uint64_t>, uint64_t> held = {};
  };
  // The Sends from one life to another, by their number, and what has arrived.
  struct Pair {
    std::vector<std::optional<absl::Status>> sends;
    std::vector<uint64_t> arrived;
    bool link_lost = false;
  };

  MessageWorld(uint64_t seed, int nodes) : random_(seed) {
    for (int i = 0; i < nodes; ++i) nodes_.push_back(std::make_unique<Node>(KeyOf(i)));
  }

  Random& random() { return random_; }
  Instant now() const { return now_; }
  std::vector<std::string> violations;

  static LifeKey KeyFor(int rank, uint64_t life) {
    return {GroupIdOf("job", "worker"), static_cast<uint32_t>(rank), life};
  }
  // The next life of the member begins on a node; the one before ends.
  void Start(int rank, int node) {
    if (Life* const before = Current(rank); before != nullptr && before->live) Stop(rank);
    const uint64_t life = lives_[rank].size();
    lives_[rank].push_back({KeyFor(rank, life), node});
    // The node hears of it from the shard like all others, and from the reply to the join.
    After(Delay(), [this, rank, life] {
      Life& member = lives_[rank][life];
      if (!member.live) return;
      nodes_[member.node]->core.Begin(member.key, now_);
      member_begun_.insert(member.key);
      Drain(member.node);
    });
    Announce(rank, {life, true});
  }
  void Stop(int rank) {
    Life& member = *Current(rank);
    member.live = false;
    member.mailbox.clear();
    if (member_begun_.contains(member.key)) nodes_[member.node]->core.End(member.key);
    Drain(member.node);
    Announce(rank, {member.key.life, false});
  }
  Life* Current(int rank) { return lives_[rank].empty() ? nullptr : &lives_[rank].back(); }
  bool Begun(int rank) {
    const Life* const member = Current(rank);
    return member != nullptr && member->live && member_begun_.contains(member->key);
  }

  // Sends the next message. REQUIRES: Begun(from).
  void Send(int from, int to, size_t bytes, absl::Duration timeout = absl::InfiniteDuration()) {
    const Life& sender = *Current(from);
    Node& node = *nodes_[sender.node];
    const std::optional<KnownLife> known = node.Find(KeyFor(0, 0).group, to);
    if (!known.has_value()) return;
    // As a node does: to the life that it knows, where the table says that it is.
    const LifeKey target = KeyFor(to, known->life);
    Pair& pair = pairs_[{sender.key, target}];
    const std::string name = absl::StrCat(pair.sends.size(), " to ", target.ToString());
    auto payload = std::make_shared<std::string>(name);
    if (payload->size() < bytes) payload->resize(bytes, '.');
    sends_[++last_send_] = {{sender.key, target}, pair.sends.size()};
    pair.sends.emplace_back();
    const int at = lives_[to][known->life].node;
    node.core.Send(last_send_, sender.key, {target, {KeyOf(at), "address"}}, std::move(payload),
                   now_ + timeout, now_);
    Drain(sender.node);
  }

  // The client of a member takes the first messages of its mailbox.
  void Take(int rank, size_t messages) {
    Life* const member = Current(rank);
    if (member == nullptr) return;
    for (size_t i = 0; i < messages && !member->mailbox.empty(); ++i) {
      const MessageCore::Deliver message = std::move(member->mailbox.front());
      member->mailbox.pop_front();
      // As the client does: in steps.
      uint64_t& held = member->held[{message.from, message.stream}];
      held += MessageCore::CostOf(message.bytes->size());
      if (held < kCreditStep) continue;
      nodes_[member->node]->core.Taken(member->key, message.from, message.stream,
                                       std::exchange(held, 0));
      Drain(member->node);
    }
  }

  // The link between two nodes is given up: what is on its way is lost.
  void LoseLink(int a, int b, const absl::Status& why = absl::UnavailableError("link lost")) {
    if (a == b) return;
    ++links_[{a, b}].session;
    ++links_[{b, a}].session;
    for (auto& [key, pair] : pairs_) {
      const int from = NodeOf(key.first), to = NodeOf(key.second);
      if ((from == a && to == b) || (from == b && to == a)) pair.link_lost = true;
    }
    for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
      nodes_[one]->core.PeerLost(KeyOf(other), why);
      Drain(one);
    }
  }

  void Run(absl::Duration time) {
    const Instant end = now_ + time;
    while (!events_.empty() && events_.begin()->first <= end) {
      now_ = events_.begin()->first;
      const std::function<void()> event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
    now_ = end;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i]->core.Tick(now_);
      Drain(static_cast<int>(i));
    }
  }

  const std::map<std::pair<LifeKey, LifeKey>, Pair>& pairs() const { return pairs_; }
  const MessageCore& core(int node) const { return nodes_[node]->core; }
  int NodeOf(const LifeKey& key) { return lives_[static_cast<int>(key.rank)][key.life].node; }
  bool Live(const LifeKey& key) { return lives_[static_cast<int>(key.rank)][key.life].live; }

 private:
  struct Node final : LifeLookup {
    explicit Node(NodeKey self) : core(self, *this) {}
    std::optional<KnownLife> Find(const GroupId&, uint32_t rank) const override {
      const auto found = table.find(rank);
      if (found == table.end()) return std::nullopt;
      return found->second;
    }
    std::map<uint32_t, KnownLife> table;
    // When the last news arrives, so that none overtakes another.
    Instant heard;
    MessageCore core;
  };
  struct Link {
    uint64_t session = 0;
    Instant last;
  };

  static NodeKey KeyOf(int node) { return {static_cast<uint64_t>(node) + 1, 1}; }
  static int IndexOf(const NodeKey& key) { return static_cast<int>(key.node) - 1; }
  absl::Duration Delay() { return absl::Microseconds(50 + random_.Below(3000)); }
  void After(absl::Duration delay, std::function<void()> event) {
    events_.emplace(now_ + delay, std::move(event));
  }

  void Announce(int rank, KnownLife news) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      nodes_[i]->heard = std::max(nodes_[i]->heard, now_ + Delay());
      events_.emplace(nodes_[i]->heard, [this, i, rank, news] {
        nodes_[i]->table[static_cast<uint32_t>(rank)] = news;
        nodes_[i]->core.LivesChanged();
        Drain(static_cast<int>(i));
      });
    }
  }

  void Drain(int node) {
    for (MessageCore::Effect& effect : nodes_[node]->core.TakeEffects()) {
      if (auto* const transmit = std::get_if<MessageCore::Transmit>(&effect)) {
        Carry(node, std::move(*transmit));
      } else if (auto* const deliver = std::get_if<MessageCore::Deliver>(&effect)) {
        Deliver(std::move(*deliver));
      } else {
        const auto& complete = std::get<MessageCore::Complete>(effect);
        const auto [key, number] = sends_.at(complete.send);
        std::optional<absl::Status>& status = pairs_[key].sends[number];
        if (status.has_value()) violations.push_back("a Send completed twice");
        status = complete.status;
      }
    }
  }

  void Carry(int from, MessageCore::Transmit transmit) {
    const int to = IndexOf(transmit.peer.key);
    Link& link = links_[{from, to}];
    link.last = std::max(link.last, now_ + Delay());
    events_.emplace(
        link.last, [this, from, to, session = link.session, transmit = std::move(transmit)] {
          if (links_[{from, to}].session != session) return;
          const absl::StatusOr<MessageHeader> header = DecodeMessageHeader(Encode(transmit.header));
          const absl::Status status =
              nodes_[to]->core.Arrived(KeyOf(from), *header, transmit.bytes, now_);
          if (!status.ok())
            violations.push_back(absl::StrCat("a node refused: ", status.message()));
          Drain(to);
        });
  }

  void Deliver(MessageCore::Deliver message) {
    Life& member = lives_[static_cast<int>(message.to.rank)][message.to.life];
    if (!member.live) violations.push_back("a message for a life that has ended");
    const size_t space = message.bytes->find(' ');
    const uint64_t number = std::stoull(message.bytes->substr(0, space));
    if (absl::StrCat(number, " to ", message.to.ToString()) !=
        message.bytes->substr(0, message.bytes->find_last_not_of('.') + 1)) {
      violations.push_back(absl::StrCat(message.to.ToString(), " got ", *message.bytes));
    }
    pairs_[{message.from, message.to}].arrived.push_back(number);
    member.mailbox.push_back(std::move(message));
  }

  Random random_;
  Instant now_;
  std::multimap<Instant, std::function<void()>> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<int, std::deque<Life>> lives_;
  std::set<LifeKey> member_begun_;
  std::map<std::pair<int, int>, Link> links_;
  std::map<std::pair<LifeKey, LifeKey>, Pair> pairs_;
  SendId last_send_ = 0;
  std::map<SendId, std::pair<std::pair<LifeKey, LifeKey>, size_t>> sends_;
};

}  // namespace phalanx::jobs::testing

#endif  // PHALANX_JOBS_MESSAGES_TESTING_MESSAGE_WORLD_H_
