#include "src/directory/placement/copy_keeper.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/random.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

// Three nodes, each on a host of its own unless a test says otherwise; a has the object.
class CopyKeeperTest : public ObjectFixture {
 protected:
  CopyKeeperTest() {
    listeners_ = {&pulls_, &reductions_, &drains_, &placements_};
    uint64_t host = 0;
    for (const NodeKey& key : {kA, kB, kC}) node(key).host = ++host;
    Create(kA, /*complete=*/true);
    outbox_.Take();
  }
  ~CopyKeeperTest() override { PHALANX_EXPECT_OK(keeper_.CheckInvariants()); }

  void Want(uint32_t copies) { keeper_.Want(id_, copies, absl::OkStatus()); }
  void Await(uint64_t request = 1) { PHALANX_ASSERT_OK(keeper_.Await(id_, kA, request)); }
  // The node reports a complete primary copy, as one that carries out its order does.
  void Arrives(const NodeKey& key) {
    table_.AddCopy(object(), node(key));
    table_.CompleteCopy(object(), key);
    keeper_.OnReported(object(), key, plans_[key], /*primary=*/true);
    table_.Reevaluate(object());
  }
  void Leaves(const NodeKey& key) {
    Down(key);
    keeper_.SessionBegins(key);
    keeper_.OnCopiesChanged(id_);
  }
  // A second object with the number, of node a unless another is given.
  ObjectId PutAnother(size_t number, bool complete, const NodeKey& creator = kA) {
    const ObjectId id = ObjectId::FromName("test", std::to_string(number));
    v1::AnnounceCreate m;
    m.set_object_id(id.binary().data(), ObjectId::kSize);
    ToProto(Gen(creator, 10 + number), m.mutable_generation());
    m.mutable_info()->set_size_bytes(1);
    m.mutable_info()->set_slices(1);
    m.set_complete(complete);
    PHALANX_EXPECT_OK(table_.OnCreate(node(creator), m));
    return id;
  }
  // "node: keep", "node: release" or "node: end", or "node: hosts N" or "node: error CODE" of a
  // reply.
  std::vector<std::string> Sent() {
    keeper_.RunPending();
    std::vector<std::string> sent;
    for (const Outgoing& out : outbox_.Take()) {
      const std::string to = nodes_.NameOf(out.to) + ": ";
      if (out.message.has_fetch()) {
        plans_[out.to] = out.message.fetch().plan_id();
        const v1::Fetch& fetch = out.message.fetch();
        sent.push_back(to + (fetch.release() ? "release" : fetch.end() ? "end" : "keep"));
      }
      if (!out.message.has_broadcast_reply()) continue;
      const v1::BroadcastReply& reply = out.message.broadcast_reply();
      sent.push_back(reply.code() == 0 ? to + "hosts " + std::to_string(reply.nodes())
                                       : to + "error " + std::to_string(reply.code()));
    }
    std::sort(sent.begin(), sent.end());
    return sent;
  }

  CopyKeeper keeper_{{context_, nodes_, outbox_, gate_, table_}};
  absl::btree_map<NodeKey, PlanId> plans_;
};

using Messages = std::vector<std::string>;

TEST_F(CopyKeeperTest, OrdersOneNodeOfEachMissingHostAndAnswersWhenTheCopiesAreThere) {
  Want(3);
  Await();
  EXPECT_EQ(Sent(), (Messages{"b: keep", "c: keep"}));
  Arrives(kB);
  EXPECT_EQ(Sent(), Messages());
  Arrives(kC);
  EXPECT_EQ(Sent(), (Messages{"a: hosts 3"}));
  EXPECT_EQ(HostsWithPrimary(object(), nodes_), 3u);
}

TEST_F(CopyKeeperTest, OrdersNoNodeOnAHostThatHasACopy) {
  node(kB).host = node(kA).host;
  Want(2);
  EXPECT_EQ(Sent(), (Messages{"c: keep"}));
}

TEST_F(CopyKeeperTest, MakesACopyThatIsThereAPrimaryOneBeforeItSendsBytes) {
  AddCompleteCopy(kC);
  Want(2);
  EXPECT_EQ(Sent(), (Messages{"c: keep"}));
}

TEST_F(CopyKeeperTest, PlacesAsManyAsThereAreHostsAndMoreWhenNodesJoin) {
  Leaves(kC);
  Want(3);
  Await();
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  Arrives(kB);
  EXPECT_EQ(Sent(), (Messages{"a: hosts 2"}));
  EXPECT_EQ(keeper_.short_of_copies(), 1u);
  Node& joined = nodes_.Open(kC).node;
  joined.info.set_name("c");
  joined.host = 3;
  keeper_.RetryAll();
  EXPECT_EQ(Sent(), (Messages{"c: keep"}));
  EXPECT_EQ(keeper_.short_of_copies(), 0u);
}

TEST_F(CopyKeeperTest, MakesACopyAgainWhenAHolderDies) {
  Want(2);
  const Messages first = Sent();
  ASSERT_EQ(first.size(), 1u);
  const NodeKey holder = first == Messages{"b: keep"} ? kB : kC;
  Arrives(holder);
  EXPECT_EQ(Sent(), Messages());
  Leaves(holder);
  EXPECT_EQ(Sent(), (Messages{holder == kB ? "c: keep" : "b: keep"}));
}

TEST_F(CopyKeeperTest, ReleasesTheCopyThatIsTooManyAndKeepsTheCreators) {
  Want(3);
  Sent();
  Arrives(kB);
  Arrives(kC);
  Want(2);
  EXPECT_EQ(Sent(), (Messages{"c: release"}));
  EXPECT_EQ(HostsWithPrimary(object(), nodes_), 2u);
  // A report that crossed the order does not count.
  keeper_.OnReported(object(), kC, plans_[kC] - 1, /*primary=*/true);
  EXPECT_EQ(HostsWithPrimary(object(), nodes_), 2u);
  EXPECT_EQ(Sent(), Messages());
  keeper_.OnReported(object(), kC, plans_[kC], /*primary=*/false);
  EXPECT_EQ(Sent(), Messages());
  EXPECT_EQ(HostsWithPrimary(object(), nodes_), 2u);
}

TEST_F(CopyKeeperTest, ReleasesNothingForTheSakeOfANodeThatMayBeDead) {
  Want(3);
  Sent();
  Arrives(kB);
  Arrives(kC);
  Sent();
  node(kB).connected = false;
  Want(2);
  EXPECT_EQ(Sent(), Messages());
  Leaves(kB);
  EXPECT_EQ(Sent(), Messages());
}

TEST_F(CopyKeeperTest, ANodeWithoutRoomIsAskedAgainAfterAPause) {
  Leaves(kC);
  Want(2);
  Await();
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  keeper_.OnOrderRefused(id_, kB, plans_[kB]);
  EXPECT_EQ(Sent(), (Messages{"a: error 8"}));
  Advance(Refusals::kFirstPause);
  EXPECT_LE(keeper_.NextDeadline(), context_.now);
  keeper_.Tick();
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  Arrives(kB);
}

// Else a record would keep every node that has ever refused. (CheckInvariants)
TEST_F(CopyKeeperTest, TheRefusalsOfANodeThatIsDownAreForgotten) {
  Want(3);
  Sent();
  keeper_.OnOrderRefused(id_, kB, plans_[kB]);
  EXPECT_EQ(Sent(), Messages());
  Leaves(kB);
  PHALANX_EXPECT_OK(keeper_.CheckInvariants());
  keeper_.OnOrderRefused(id_, kC, plans_[kC]);
  keeper_.SessionBegins(kC);
  EXPECT_EQ(Sent(), (Messages{"c: keep"})) << "a new session can have room";
}

TEST_F(CopyKeeperTest, ARefusalOfAnEarlierFetchEndsNoOrder) {
  Want(3);
  Sent();
  keeper_.OnOrderRefused(id_, kB, plans_[kB] - 1);
  EXPECT_EQ(Sent(), Messages());
}

TEST_F(CopyKeeperTest, AnEvictionThatCrossedTheOrderIsOrderedAgain) {
  Leaves(kC);
  Want(2);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  keeper_.OnEvictAsked(id_, kB);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
}

TEST_F(CopyKeeperTest, ANewSessionMakesItsOrdersVoidAndEndsItsRequests) {
  Want(3);
  Await();
  Sent();
  keeper_.SessionBegins(kB);
  keeper_.SessionBegins(kA);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  EXPECT_EQ(keeper_.requests(), 0u);
}

// The node registered the want of an order of its last session, and the shard had the bytes.
TEST_F(CopyKeeperTest, ADeliveredPrimaryCopyWithoutAnOrderIsConfirmedAndThenCounted) {
  Leaves(kC);
  AddCompleteCopy(kB, CopyState::kDelivered);
  object().copies.at(kB).primary = true;
  Want(1);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  table_.ConfirmCopy(object(), object().copies.at(kB));
  keeper_.OnReported(object(), kB, plans_[kB], /*primary=*/true);
  EXPECT_EQ(Sent(), (Messages{"b: release"}));
}

TEST_F(CopyKeeperTest, TheEndOfTheObjectEndsItsRequestsWithTheReason) {
  Want(3);
  Await();
  Sent();
  keeper_.Want(id_, 0, absl::NotFoundError("it was deleted"));
  EXPECT_EQ(Sent(), (Messages{"a: error 5"}));
}

TEST_F(CopyKeeperTest, ADrainingNodeDoesNotCount) {
  Want(2);
  const Messages first = Sent();
  Arrives(first == Messages{"b: keep"} ? kB : kC);
  Sent();
  node(kA).draining = true;
  keeper_.OnCopiesChanged(id_);
  EXPECT_EQ(Sent().size(), 1u);
}

// Each link carries two objects in either direction then, whichever is written first.
TEST_F(CopyKeeperTest, EachNodeGetsAsManyCopiesAsItSendsIfAllWriteAnObject) {
  node(kA).draining = true;
  for (const NodeKey& key : {kB, kC}) Leaves(key);
  std::vector<NodeKey> writers;
  for (uint64_t i = 0; i < 8; ++i) {
    writers.push_back({100 + i, 1});
    Node& joined = nodes_.Open(writers.back()).node;
    joined.info.set_name("n" + std::to_string(i));
    joined.host = 100 + i;
  }
  Random random(1);
  for (size_t round = 0; round < 50; ++round) {
    for (size_t i = writers.size(); i-- > 1;) std::swap(writers[i], writers[random.Below(i + 1)]);
    std::vector<ObjectId> ids;
    absl::btree_map<std::string, int> orders;
    for (size_t i = 0; i < writers.size(); ++i) {
      ids.push_back(PutAnother(100 * round + i, /*complete=*/true, writers[i]));
      keeper_.Want(ids.back(), 3, absl::OkStatus());
      for (const std::string& sent : Sent()) ++orders[sent];
    }
    ASSERT_EQ(orders.size(), writers.size()) << "round " << round;
    for (const auto& [order, count] : orders) EXPECT_EQ(count, 2) << order << ", round " << round;
    PHALANX_ASSERT_OK(keeper_.CheckInvariants());
    for (const ObjectId& id : ids) keeper_.Want(id, 0, absl::OkStatus());
  }
}

// Fills the queue of orders: further objects wait until one is carried out.
TEST_F(CopyKeeperTest, OnlySoManyOrdersAreOpen) {
  Leaves(kC);
  Leaves(kB);
  std::vector<ObjectId> ids;
  for (size_t i = 0; i <= CopyKeeper::kMaxOrders; ++i) {
    ids.push_back(PutAnother(i, /*complete=*/true));
    keeper_.Want(ids.back(), 2, absl::OkStatus());
  }
  EXPECT_EQ(Sent(), Messages());
  nodes_.Open(kB).node.info.set_name("b");
  node(kB).host = 2;
  keeper_.RetryAll();
  EXPECT_EQ(Sent().size(), CopyKeeper::kMaxOrders);
  EXPECT_EQ(Sent(), Messages());
  // The first in the order of ids has been ordered, and the last has not.
  Object& stored = *table_.Find(*std::min_element(ids.begin(), ids.end()));
  table_.AddCopy(stored, node(kB));
  table_.CompleteCopy(stored, kB);
  keeper_.OnReported(stored, kB, plans_[kB], /*primary=*/true);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  for (const ObjectId& id : ids) keeper_.Want(id, 0, absl::OkStatus());
}

// A draft can be open for as long as its client likes.
TEST_F(CopyKeeperTest, ADraftIsOrderedWhenItIsSealedAndOccupiesNoOrderBefore) {
  Leaves(kC);
  std::vector<ObjectId> drafts;
  for (size_t i = 0; i <= CopyKeeper::kMaxOrders; ++i) {
    drafts.push_back(PutAnother(i, /*complete=*/false));
    keeper_.Want(drafts.back(), 2, absl::OkStatus());
  }
  EXPECT_EQ(Sent(), Messages());
  Want(2);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
  table_.CompleteCopy(*table_.Find(drafts.front()), kA);
  keeper_.OnCopiesChanged(drafts.front());
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
}

TEST_F(CopyKeeperTest, TheOrdersOfAnObjectWithoutBytesEndAndAreRepeatedWhenAHolderReturns) {
  Want(3);
  EXPECT_EQ(Sent(), (Messages{"b: keep", "c: keep"}));
  table_.AddCopy(object(), node(kB));
  Leaves(kA);
  EXPECT_EQ(Sent(), (Messages{"b: end", "c: end"}));
  EXPECT_EQ(Sent(), Messages());
  Arrives(kC);
  EXPECT_EQ(Sent(), (Messages{"b: keep"}));
}

// A report of freed memory comes with each progress of each node.
TEST_F(CopyKeeperTest, FreedRoomIsATurnOnlyForObjectsForWhichANodeWaitsForMemory) {
  Want(3);
  EXPECT_EQ(Sent(), (Messages{"b: keep", "c: keep"}));
  Arrives(kB);
  object().wants[kC].no_room_for = object().generation;
  keeper_.OnOrderRefused(id_, kC, plans_[kC]);
  const ObjectId refused = PutAnother(1, /*complete=*/true);
  keeper_.Want(refused, 3, absl::OkStatus());
  EXPECT_EQ(Sent(), (Messages{"b: keep", "c: keep"}));
  keeper_.OnOrderRefused(refused, kC, plans_[kC]);
  EXPECT_EQ(Sent(), Messages());
  EXPECT_EQ(keeper_.short_of_copies(), 2u);
  keeper_.OnRoomFreed();
  EXPECT_EQ(keeper_.to_compare(), 1u);
  // Nothing has changed for it, and the next report is a turn for it again.
  EXPECT_EQ(Sent(), Messages());
  Advance(Refusals::kFirstPause);
  object().wants.clear();
  keeper_.OnRoomFreed();
  EXPECT_EQ(Sent(), (Messages{"c: keep"}));
}

}  // namespace
}  // namespace phalanx::directory
