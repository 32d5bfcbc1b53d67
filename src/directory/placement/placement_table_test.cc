// Random broadcasts against a simple model: nodes that join, leave, fetch and refuse.
#include "src/directory/placement/placement_table.h"

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {
namespace {

constexpr int kNodes = 5;
constexpr int kObjects = 4;

ObjectId Object(int i) { return ObjectId::FromName("broadcasts", absl::StrCat(i)); }

// Nodes are numbered; each life has its own key and the name of its number. Every node has a set of
// objects, and obeys its orders at random times.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), broadcasts_({}) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step();
      Carry();
      Check();
    }
    // Every node has joined and obeys its orders.
    for (int n = 0; n < kNodes; ++n) Join(n);
    for (int round = 0; round < 10; ++round) {
      Carry();
      const std::set<std::pair<int, int>> orders = orders_;
      for (const auto& [n, object] : orders) Obey(n, object, /*refuse=*/false);
    }
    Carry();
    Check();
    EXPECT_EQ(broadcasts_.requests(), 0u) << "every request is answered";
    for (int n = 0; n < kNodes; ++n) {
      for (int object = 0; object < kObjects; ++object) {
        const PlacementPolicy* policy = broadcasts_.PolicyOf(Object(object));
        if (policy == nullptr || !policy->Names(Name(n))) continue;
        if (broadcasts_.RefusedBy(Object(object), nodes_[n].key)) continue;
        EXPECT_TRUE(nodes_[n].has.contains(object)) << Name(n) << " lacks object " << object;
      }
    }
  }

 private:
  struct Node {
    NodeKey key;
    bool up = false;
    bool joined = false;
    std::set<int> has;
  };
  struct Asked {
    int object = 0;
    PlacementTable::Requester requester;
    std::set<NodeKey> missing;
  };

  static std::string Name(int n) { return absl::StrCat("n", n); }

  bool Lacks(const ObjectId& id, const NodeKey& key) {
    for (const auto& [n, node] : nodes_) {
      if (!node.up || node.key != key) continue;
      for (int object = 0; object < kObjects; ++object) {
        if (Object(object) == id) return !node.has.contains(object);
      }
    }
    return false;
  }
  auto lacks() {
    return [this](const ObjectId& id, const NodeKey& key) { return Lacks(id, key); };
  }
  int AnyNode() { return static_cast<int>(random_.Below(kNodes)); }
  int AnyObject() { return static_cast<int>(random_.Below(kObjects)); }

  void Step() {
    const uint64_t what = random_.Below(100);
    const int n = AnyNode();
    Node& node = nodes_[n];
    if (what < 20) return Join(n);
    if (what < 25) return GoDown(n);
    if (what < 30 && node.up) {
      node.joined = false;
      EraseOrders(n);
      broadcasts_.SessionBegins(node.key);
      return AskAgain(node.key);
    }
    if (what < 32 && node.up) return Leave(n);
    if (what < 45 && node.up) return Ask(n);
    if (what < 50) return broadcasts_.Stop(Object(AnyObject()));
    if (what < 53) return End(AnyObject());
    if (what < 56) return Anew(AnyObject());
    if (orders_.empty()) return;
    const auto order = std::next(orders_.begin(), static_cast<long>(random_.Below(orders_.size())));
    const auto [to, object] = *order;
    Obey(to, object, random_.Chance(0.2));
  }

  void Join(int n) {
    Node& node = nodes_[n];
    if (!node.up) node = Node{NodeKey{static_cast<uint64_t>(n) + 1, ++lives_}, true, false, {}};
    if (node.joined) return;
    node.joined = true;
    broadcasts_.NodeJoined(node.key, Name(n));
    broadcasts_.Walk(lacks());
  }

  void GoDown(int n) {
    Node& node = nodes_[n];
    if (!node.up) return;
    node.up = node.joined = false;
    EraseOrders(n);
    std::erase_if(asked_, [&](const auto& a) { return std::get<0>(a.first) == node.key; });
    for (auto& [who, asked] : asked_) asked.missing.erase(node.key);
    broadcasts_.NodeDown(node.key);
  }

  void EraseOrders(int n) {
    std::erase_if(orders_, [n](const auto& order) { return order.first == n; });
  }

  void Ask(int n) {
    const int object = AnyObject();
    PlacementTable::Requester requester{nodes_[n].key, ++requests_, {"*"}, random_.Chance(0.5)};
    if (random_.Chance(0.5)) requester.names = {Name(AnyNode()), Name(AnyNode())};
    const PlacementPolicy named{1, requester.names};
    Asked asked{object, requester, {}};
    absl::btree_set<NodeKey> missing;
    uint32_t there = 0;
    for (const auto& [other, node] : nodes_) {
      if (!node.up || !named.Names(Name(other))) continue;
      if (node.has.contains(object)) {
        ++there;
      } else {
        missing.insert(node.key);
        asked.missing.insert(node.key);
      }
    }
    asked_[{requester.node, requester.request_id}] = asked;
    PHALANX_ASSERT_OK(
        broadcasts_.Begin(Object(object), requester, there, std::move(missing), lacks()));
  }

  // A repeated request that has started has no second effect; one that has not started is dropped.
  void AskAgain(const NodeKey& key) {
    std::map<std::pair<NodeKey, uint64_t>, Asked> again;
    for (auto at = asked_.begin(); at != asked_.end();) {
      const auto asked = at++;
      if (asked->first.first == key) again.insert(asked_.extract(asked));
    }
    for (auto& [who, asked] : again) {
      if (!asked.requester.already_started) continue;
      const PlacementPolicy* policy = broadcasts_.PolicyOf(Object(asked.object));
      const uint64_t stamp = policy == nullptr ? 0 : policy->stamp;
      absl::btree_set<NodeKey> missing(asked.missing.begin(), asked.missing.end());
      asked_[who] = asked;
      PHALANX_ASSERT_OK(
          broadcasts_.Begin(Object(asked.object), asked.requester, 0, std::move(missing), lacks()));
      policy = broadcasts_.PolicyOf(Object(asked.object));
      EXPECT_EQ(policy == nullptr ? 0 : policy->stamp, stamp);
    }
  }

  // The node drains and still receives one object.
  void Leave(int n) {
    const int gets = AnyObject();
    const NodeKey key = nodes_[n].key;
    for (auto& [who, asked] : asked_) {
      if (asked.object != gets) asked.missing.erase(key);
    }
    broadcasts_.NodeDrains(
        key, [gets](const ObjectId& id, const NodeKey&) { return id == Object(gets); });
  }

  void End(int object) {
    for (auto& [n, node] : nodes_) node.has.erase(object);
    std::erase_if(orders_, [object](const auto& order) { return order.second == object; });
    for (auto& [who, asked] : asked_) {
      if (asked.object == object) asked.missing.clear();
    }
    broadcasts_.End(Object(object), absl::NotFoundError("deleted"));
  }

  // Another generation is adopted: no node has it.
  void Anew(int object) {
    for (auto& [n, node] : nodes_) node.has.erase(object);
    std::erase_if(orders_, [object](const auto& order) { return order.second == object; });
    broadcasts_.OnNewGeneration(Object(object), lacks());
  }

  void Obey(int n, int object, bool refuse) {
    if (!orders_.contains({n, object})) return;
    orders_.erase({n, object});
    Node& node = nodes_[n];
    if (!refuse) node.has.insert(object);
    for (auto& [who, asked] : asked_) {
      if (asked.object == object) asked.missing.erase(node.key);
    }
    if (refuse) return broadcasts_.Refused(Object(object), node.key);
    broadcasts_.Arrived(Object(object), node.key);
  }

  void Carry() {
    for (const BroadcastEffect& effect : broadcasts_.TakeEffects()) {
      if (const auto* order = std::get_if<OrderFetch>(&effect)) {
        if (!broadcasts_.IsOrdered(order->id, order->to)) continue;
        for (const auto& [n, node] : nodes_) {
          for (int object = 0; object < kObjects; ++object) {
            if (node.up && node.key == order->to && Object(object) == order->id) {
              EXPECT_TRUE(node.joined) << "ordered before it has registered";
              // Possibly for the second time: a stopped broadcast leaves its fetches running.
              orders_.insert({n, object});
            }
          }
        }
      } else if (const auto* begun = std::get_if<ConfirmStart>(&effect)) {
        const auto asked = asked_.find({begun->node, begun->request_id});
        if (asked == asked_.end()) continue;  // void since the same turn
        EXPECT_FALSE(asked->second.requester.already_started) << "confirmed twice";
        asked->second.requester.already_started = true;
        EXPECT_EQ(begun->policy.sticky(), asked->second.requester.sticky);
      } else if (const auto* answer = std::get_if<AnswerBroadcast>(&effect)) {
        const auto asked = asked_.find({answer->node, answer->request_id});
        ASSERT_TRUE(asked != asked_.end()) << "answered twice, or to a node that is down";
        EXPECT_TRUE(asked->second.missing.empty()) << "answered too early";
        asked_.erase(asked);
      }
    }
  }

  void Check() {
    PHALANX_EXPECT_OK(broadcasts_.CheckInvariants());
    for (const auto& [who, asked] : asked_) {
      EXPECT_FALSE(asked.missing.empty()) << "not answered";
    }
  }

  Random random_;
  PlacementTable broadcasts_;
  std::map<int, Node> nodes_;
  std::set<std::pair<int, int>> orders_;
  std::map<std::pair<NodeKey, uint64_t>, Asked> asked_;
  uint64_t lives_ = 0;
  uint64_t requests_ = 0;
};

TEST(PlacementTableTest, RandomWorldsKeepToTheModel) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    PHALANX_TRACE_SEED(seed);
    World(seed).Run(300);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace phalanx::directory
