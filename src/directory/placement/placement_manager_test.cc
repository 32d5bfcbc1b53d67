#include "src/directory/placement/placement_manager.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

class PlacementManagerTest : public ObjectFixture {
 protected:
  PlacementManagerTest() {
    listeners_ = {&pulls_, &reductions_, &drains_, &manager_};
    for (const auto& [key, node] : nodes_.all())
      placements_table_.NodeJoined(key, node->info.name());
  }
  ~PlacementManagerTest() override { PHALANX_EXPECT_OK(placements_table_.CheckInvariants()); }

  void Broadcast(const std::vector<std::string>& names, bool sticky = false, bool stop = false) {
    v1::BroadcastRequest m;
    m.set_request_id(++request_);
    m.set_object_id(id_.binary().data(), ObjectId::kSize);
    m.mutable_nodes()->Add(names.begin(), names.end());
    m.set_sticky(sticky);
    m.set_stop(stop);
    PHALANX_ASSERT_OK(manager_.OnBroadcast(node(kA), m));
  }
  // "node: kind" of each message since the last call; "node: reply CODE" of a BroadcastReply.
  std::vector<std::string> Sent() {
    manager_.RunPending();
    std::vector<std::string> sent;
    for (const Outgoing& out : outbox_.Take()) {
      const std::string to = nodes_.NameOf(out.to) + ": ";
      if (out.message.has_fetch()) sent.push_back(to + "fetch");
      if (out.message.has_sticky()) sent.push_back(to + "policy");
      if (out.message.has_broadcast_begun()) sent.push_back(to + "started");
      if (out.message.has_broadcast_reply()) {
        sent.push_back(to + "reply " + std::to_string(out.message.broadcast_reply().code()));
      }
    }
    return sent;
  }

  PlacementTable placements_table_{PlacementTable::Limits{}};
  CopyKeeper copies_{{context_, nodes_, outbox_, gate_, table_}};
  PlacementManager manager_{
      {context_, nodes_, outbox_, gate_, table_, tombstones_, losses_, placements_table_, copies_}};
  uint64_t request_ = 0;
};

using Messages = std::vector<std::string>;

TEST_F(PlacementManagerTest, ABroadcastOrdersTheNodesThatLackACopyAndEndsWhenTheyHaveIt) {
  Create(kA, /*complete=*/true);
  Broadcast({"*"});
  EXPECT_EQ(Sent(), (Messages{"a: started", "b: fetch", "c: fetch"}));
  AddCompleteCopy(kB);
  EXPECT_EQ(Sent(), Messages{});
  AddCompleteCopy(kC);
  EXPECT_EQ(Sent(), Messages{"a: reply 0"});
}

TEST_F(PlacementManagerTest, ADeliveredCopyDoesNotCountBeforeItsNodeConfirmsIt) {
  Create(kA, /*complete=*/true);
  Broadcast({"b"});
  EXPECT_EQ(Sent(), (Messages{"a: started", "b: fetch"}));
  AddCompleteCopy(kB, CopyState::kDelivered);
  EXPECT_EQ(Sent(), Messages{});
  table_.ConfirmCopy(object(), object().copies.at(kB));
  table_.CompleteCopy(object(), kB);
  EXPECT_EQ(Sent(), Messages{"a: reply 0"});
}

TEST_F(PlacementManagerTest, AnUnknownObjectIsNotFoundAndAnUnknownNodeIsInvalid) {
  const auto reply = [](absl::StatusCode code) {
    return Messages{"a: reply " + std::to_string(static_cast<int>(code))};
  };
  Broadcast({"b"});
  EXPECT_EQ(Sent(), reply(absl::StatusCode::kNotFound));
  Create(kA, /*complete=*/true);
  Broadcast({"zed"});
  EXPECT_EQ(Sent(), reply(absl::StatusCode::kInvalidArgument));
}

TEST_F(PlacementManagerTest, AStickyBroadcastReachesANodeThatJoinsLater) {
  Create(kA, /*complete=*/true);
  Broadcast({"a", "d"}, /*sticky=*/true);
  EXPECT_EQ(Sent(), (Messages{"a: policy", "a: reply 0"}));
  const NodeKey d{4, 1};
  nodes_.Open(d).node.info.set_name("d");
  placements_table_.NodeJoined(d, "d");
  EXPECT_EQ(Sent(), Messages{"d: fetch"});
}

TEST_F(PlacementManagerTest, AStoppedBroadcastOrdersNoNodeThatJoinsLater) {
  Create(kA, /*complete=*/true);
  Broadcast({"a", "d"}, /*sticky=*/true);
  Sent();
  Broadcast({}, /*sticky=*/false, /*stop=*/true);
  EXPECT_EQ(Sent(), (Messages{"a: reply 0", "a: policy"}));
  const NodeKey d{4, 1};
  nodes_.Open(d).node.info.set_name("d");
  placements_table_.NodeJoined(d, "d");
  EXPECT_EQ(Sent(), Messages{});
}

TEST_F(PlacementManagerTest, ALostObjectKeepsItsPolicyUntilAHolderReturns) {
  Create(kA, /*complete=*/true);
  Broadcast({"c"}, /*sticky=*/true);
  Sent();
  Down(kA);
  ASSERT_EQ(table_.Find(id_), nullptr);
  ASSERT_NE(losses_.Find(id_), nullptr);
  EXPECT_TRUE(losses_.Find(id_)->policy.sticky());
  Registration returned;
  returned.generation = Gen(kA);
  returned.info.size_bytes = 4;
  returned.adopted = returned.complete = true;
  Object& again = table_.GetOrCreate(id_);
  table_.RegisterAdopted(again, node(kB), returned, {});
  ASSERT_NE(placements_table_.PolicyOf(id_), nullptr);
  EXPECT_TRUE(placements_table_.PolicyOf(id_)->Names("c"));
  const Messages sent = Sent();
  EXPECT_EQ(sent.front(), "b: policy");
  EXPECT_GT(std::count(sent.begin(), sent.end(), "c: fetch"), 0);
}

}  // namespace
}  // namespace phalanx::directory
