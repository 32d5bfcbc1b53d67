#include "src/directory/objects/hold_manager.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using testing::kA;
using testing::kB;
using testing::ObjectFixture;

class FakeFreer final : public ObjectFreer {
 public:
  void Free(Object& object) override { freed.push_back(object.id); }

  std::vector<ObjectId> freed;
};

class HoldManagerTest : public ObjectFixture {
 protected:
  HoldManagerTest() {
    listeners_ = {&pulls_, &reductions_, &drains_, &placements_};
    for (const NodeKey& key : {kA, kB, testing::kC}) {
      holds_.SessionBegins(key);
      holds_.Registered(key);
    }
  }

  template <typename Message>
  static Message About(const ObjectId& id) {
    Message m;
    m.set_object_ids(id.binary().data(), ObjectId::kSize);
    return m;
  }
  void Hold(const NodeKey& key) {
    PHALANX_ASSERT_OK(manager_.OnHold(node(key), About<v1::Hold>(id_)));
  }
  void Unhold(const NodeKey& key) {
    PHALANX_ASSERT_OK(manager_.OnUnhold(node(key), About<v1::Unhold>(id_)));
  }
  std::vector<ObjectId> Freed() {
    while (manager_.FreeUnreferenced()) {
    }
    return std::exchange(freer_.freed, {});
  }

  FakeFreer freer_;
  HoldManager manager_{
      {context_, nodes_, outbox_, gate_, holds_, tombstones_, table_, reductions_, freer_}};
};

using Ids = std::vector<ObjectId>;

TEST_F(HoldManagerTest, AnOwnedObjectIsFreedWhenItsLastHoldEnds) {
  Hold(kA);
  Hold(kB);
  Create(kA, /*complete=*/true, /*size=*/4, /*owned=*/true);
  EXPECT_EQ(Freed(), Ids{});
  Unhold(kA);
  EXPECT_EQ(Freed(), Ids{});
  Unhold(kB);
  EXPECT_EQ(Freed(), Ids{id_});
  EXPECT_EQ(context_.counters.freed, 1u);
}

TEST_F(HoldManagerTest, AnObjectThatIsNotOwnedStays) {
  Hold(kA);
  Create(kA, /*complete=*/true);
  Unhold(kA);
  EXPECT_EQ(Freed(), Ids{});
}

TEST_F(HoldManagerTest, ASourceOfAReductionIsNotFreed) {
  reductions_.watches = true;
  Create(kA, /*complete=*/true, /*size=*/4, /*owned=*/true);
  EXPECT_EQ(Freed(), Ids{});
  reductions_.watches = false;
  table_.NoteUnreferenced(id_);
  EXPECT_EQ(Freed(), Ids{id_});
}

TEST_F(HoldManagerTest, NothingIsFreedInTheGraceOfASource) {
  Hold(kA);
  Create(kA, /*complete=*/true, /*size=*/4, /*owned=*/true);
  table_.GrantGrace(id_);
  Unhold(kA);
  EXPECT_EQ(Freed(), Ids{});
  Advance(context_.options.lease);
  table_.Tick();
  EXPECT_EQ(Freed(), Ids{id_});
}

TEST_F(HoldManagerTest, AKeptObjectIsNotOwnedAndItsHoldersAreNotified) {
  Create(kA, /*complete=*/true, /*size=*/4, /*owned=*/true);
  outbox_.Take();
  manager_.AnswerKeep(id_, kB, /*request_id=*/5);
  EXPECT_FALSE(object().info.owned);
  const std::vector<Outgoing> sent = outbox_.Take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_TRUE(sent[0].message.has_kept());
  EXPECT_EQ(sent[0].to, kA);
  EXPECT_EQ(sent[1].message.keep_reply().request_id(), 5u);
  EXPECT_EQ(sent[1].message.keep_reply().code(), 0);
}

TEST_F(HoldManagerTest, AnUnknownObjectCannotBeKept) {
  manager_.AnswerKeep(id_, kB, /*request_id=*/5);
  EXPECT_EQ(TakeMessages(kB).front().keep_reply().code(),
            static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(HoldManagerTest, AClaimIsConfirmedOnlyToANodeWhoseObjectTheClaimantHolds) {
  v1::Claim m;
  m.set_object_ids(id_.binary().data(), ObjectId::kSize);
  ToProto(kA, m.mutable_node());
  m.add_numbers(3);
  PHALANX_ASSERT_OK(manager_.OnClaim(node(kB), m));
  EXPECT_TRUE(TakeMessages(kA).empty());
  Hold(kB);
  PHALANX_ASSERT_OK(manager_.OnClaim(node(kB), m));
  EXPECT_THAT(TakeMessages(kA).front().claimed().numbers(), ElementsAre(3));
}

TEST_F(HoldManagerTest, OfSeveralClaimsThoseOfHeldObjectsAreConfirmed) {
  const ObjectId other = ObjectId::FromName("test", "other");
  Hold(kB);
  v1::Claim m;
  ToProto(kA, m.mutable_node());
  for (const ObjectId& id : {other, id_}) {
    m.mutable_object_ids()->append(id.binary().data(), ObjectId::kSize);
  }
  m.add_numbers(7);
  EXPECT_THAT(manager_.OnClaim(node(kB), m), StatusIs(absl::StatusCode::kInvalidArgument))
      << "one number for two ids";
  m.add_numbers(8);
  PHALANX_ASSERT_OK(manager_.OnClaim(node(kB), m));
  const v1::ShardMessage sent = TakeMessages(kA).front();
  EXPECT_EQ(sent.claimed().object_ids(), id_.binary());
  EXPECT_THAT(sent.claimed().numbers(), ElementsAre(8));
}

}  // namespace
}  // namespace phalanx::directory
