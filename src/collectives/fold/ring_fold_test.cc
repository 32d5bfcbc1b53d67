#include "src/collectives/fold/ring_fold.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/collectives/testing/reduce_world.h"

namespace phalanx::collectives {
namespace {

using testing::CommitOf;
using testing::DropOf;
using testing::FoldOf;
using ::testing::IsEmpty;
using testing::Named;
using testing::Numbers;
using testing::ReduceNode;
using testing::ReduceWorld;
using testing::Source;
using testing::SumOf;
using testing::Version;

constexpr uint64_t kCount = 100'003;  // no multiple of anything
constexpr uint64_t kBytes = 4 * kCount;

class RingFoldTest : public ::testing::Test {
 protected:
  const ObjectId target_ = Named("target", 0);

  // Member i has sources i * own, ..., as many as `own`.
  void AddMembers(int count, int own = 1) {
    for (int i = 0; i < count; ++i) {
      members_.push_back(&world_.Add(absl::StrCat("m", i)));
      for (int k = 0; k < own; ++k) sources_.push_back(i * own + k);
    }
    generation_ = Generation{members_[0]->self(), uint64_t{1} << 63 | 7};
    own_ = own;
  }
  FoldOf OrderFor(size_t member) {
    FoldOf order(target_, Version(1), kBytes);
    for (int k = 0; k < own_; ++k) {
      const int source = static_cast<int>(member) * own_ + k;
      order.Source(Source(source), members_[member]->Put(Source(source), Numbers(source, kCount)));
    }
    std::vector<ObjectId> all;
    for (const int source : sources_) all.push_back(Source(source));
    order.Root(all);
    v1::Fold& fold = order.fold();
    fold.set_slot(static_cast<uint32_t>(member));
    fold.set_slots(static_cast<uint32_t>(members_.size()));
    fold.set_planned(sources_.size());
    const ReduceNode& before = *members_[(member + members_.size() - 1) % members_.size()];
    directory::ToProto(generation_, fold.mutable_ring()->mutable_generation());
    directory::ToProto(before.self(), fold.mutable_ring()->mutable_before());
    fold.mutable_ring()->set_before_address(before.address());
    return order;
  }
  void Place(size_t member) { members_[member]->Shard(OrderFor(member)); }
  void PlaceAll() {
    for (size_t i = 0; i < members_.size(); ++i) Place(i);
  }
  bool AllReady() {
    return world_.RunUntil([&] {
      for (ReduceNode* member : members_) {
        if (member->Reports(v1::FoldReport::READY).empty()) return false;
      }
      return true;
    });
  }
  void CommitAll() {
    for (ReduceNode* member : members_) member->Shard(CommitOf(target_, Version(1)));
  }
  bool AllComplete() {
    return world_.RunUntil([&] {
      for (ReduceNode* member : members_) {
        if (!member->Complete(target_)) return false;
      }
      return true;
    });
  }
  static std::string BytesAt(ReduceNode& node, const ObjectId& id) {
    const auto copy = node.Copy(id);
    return std::string(copy->buffer->slice(0).data(), copy->buffer->layout().object_bytes);
  }
  void ExpectNothingHeld(ReduceNode& node, uint64_t bytes) {
    EXPECT_EQ(node.store().stats().used_bytes, bytes);
    EXPECT_EQ(node.store().stats().pins, 0u);
    EXPECT_EQ(node.reducer().stats().folds, 0u);
    EXPECT_TRUE(node.store().CheckInvariants().ok()) << node.store().CheckInvariants();
  }

  ReduceWorld world_;
  std::vector<ReduceNode*> members_;
  std::vector<int> sources_;
  Generation generation_;
  int own_ = 1;
};

class RingSizeTest : public RingFoldTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Members, RingSizeTest, ::testing::Values(2, 3, 5, 8));

TEST_P(RingSizeTest, EveryMemberHasTheSumAfterTheCommit) {
  AddMembers(GetParam());
  PlaceAll();
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  for (ReduceNode* member : members_) {
    EXPECT_EQ(BytesAt(*member, target_), SumOf(sources_, kCount));
  }
}

TEST_F(RingFoldTest, EveryCopyGoesWithTheMetadataOfTheOrder) {
  AddMembers(3);
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i]->Shard(OrderFor(i).Metadata("a matrix"));
  }
  ASSERT_TRUE(AllReady());
  for (ReduceNode* member : members_) {
    int announced = 0;
    for (const auto& [shard, message] : member->sent()) {
      if (!message.has_announce_create()) continue;
      if (message.announce_create().object_id() != object_store::IdBytes(target_)) continue;
      ++announced;
      EXPECT_EQ(message.announce_create().info().metadata(), "a matrix");
    }
    EXPECT_EQ(announced, 1);
  }
}

TEST_F(RingFoldTest, SourcesOfOneNodeAreFoldedThere) {
  AddMembers(3, /*own=*/2);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  for (ReduceNode* member : members_) {
    EXPECT_EQ(BytesAt(*member, target_), SumOf(sources_, kCount));
  }
}

TEST_F(RingFoldTest, NoMemberHasAWholeCopyBeforeAllCommit) {
  AddMembers(3);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  members_[0]->Shard(CommitOf(target_, Version(1)));
  members_[1]->Shard(CommitOf(target_, Version(1)));
  world_.RunFor(absl::Seconds(1));
  for (ReduceNode* member : members_) EXPECT_FALSE(member->Complete(target_));
  members_[2]->Shard(CommitOf(target_, Version(1)));
  EXPECT_TRUE(AllComplete());
}

TEST_F(RingFoldTest, ARingWaitsForMembersThatGetTheirOrderLater) {
  AddMembers(4);
  Place(2);
  Place(0);
  world_.RunFor(absl::Seconds(2));
  for (ReduceNode* member : members_)
    EXPECT_THAT(member->Reports(v1::FoldReport::READY), IsEmpty());
  Place(3);
  Place(1);
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  EXPECT_EQ(BytesAt(*members_[1], target_), SumOf(sources_, kCount));
}

TEST_F(RingFoldTest, AnEarlyReceiverIsServedWhenItsSenderBegins) {
  AddMembers(3);
  std::vector<FoldOf> orders;
  for (size_t i = 0; i < 3; ++i) orders.push_back(OrderFor(i));
  members_[1]->Shard(orders[1]);
  members_[2]->Shard(orders[2]);
  world_.RunFor(absl::Milliseconds(5));
  const Instant began = world_.scheduler().now();
  members_[0]->Shard(orders[0]);
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  EXPECT_LT(world_.scheduler().now() - began, absl::Milliseconds(50));
}

TEST_F(RingFoldTest, EachLinkCarriesItsShareAndNoMore) {
  AddMembers(4);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  const double share = 2.0 * 3 / 4 * kBytes;
  for (ReduceNode* member : members_) {
    const uint64_t sent = member->plane().plane().stats().bytes_sent;
    EXPECT_GE(sent, share * 0.99);
    EXPECT_LE(sent, share * 1.03);
  }
}

TEST_F(RingFoldTest, OneThatIsDroppedGivesEverythingBack) {
  AddMembers(3);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  for (ReduceNode* member : members_) member->Shard(DropOf(target_, Version(1)));
  world_.RunFor(absl::Seconds(1));
  for (ReduceNode* member : members_) {
    EXPECT_FALSE(member->Copy(target_).has_value());
    ExpectNothingHeld(*member, kBytes);
  }
}

TEST_F(RingFoldTest, ACommittedMemberEndsAndOnlyTheFirstCopyIsPinned) {
  AddMembers(3);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  CommitAll();
  ASSERT_TRUE(AllComplete());
  world_.RunFor(absl::Seconds(1));
  for (ReduceNode* member : members_) {
    ExpectNothingHeld(*member, 2 * kBytes + 3 * ObjectId::kSize);
    EXPECT_EQ(member->Copy(target_)->primary, member == members_[0]);
  }
}

TEST_F(RingFoldTest, AMemberWithoutItsSourceRefusesAndHoldsNothing) {
  AddMembers(3);
  FoldOf order = OrderFor(1);
  directory::ToProto(Generation{members_[1]->self(), 999},
                     order.fold().mutable_inputs(0)->mutable_generation());
  members_[1]->Shard(order);
  ASSERT_TRUE(
      world_.RunUntil([&] { return !members_[1]->Reports(v1::FoldReport::DROPPED).empty(); }));
  world_.RunFor(absl::Seconds(1));
  ExpectNothingHeld(*members_[1], kBytes);
}

TEST_F(RingFoldTest, AMemberWithoutMemoryRefuses) {
  ReduceWorld::Options small;
  small.capacity = kBytes + kBytes / 2;
  members_.push_back(&world_.Add("small", small));
  AddMembers(2);
  members_.push_back(members_[0]);
  members_.erase(members_.begin());
  sources_ = {0, 1, 2};
  Place(2);
  ASSERT_TRUE(
      world_.RunUntil([&] { return !members_[2]->Reports(v1::FoldReport::NO_MEMORY).empty(); }));
}

TEST_F(RingFoldTest, ANewSessionWithTheShardEndsAnUnsealedMember) {
  AddMembers(3);
  PlaceAll();
  ASSERT_TRUE(AllReady());
  members_[1]->Run([&] { members_[1]->channel().OnSession(0); });
  world_.RunFor(absl::Seconds(1));
  EXPECT_FALSE(members_[1]->Copy(target_).has_value());
  ExpectNothingHeld(*members_[1], kBytes);
  bool withdrawn = false;
  for (const ReduceNode::Sent& sent : members_[1]->sent()) {
    withdrawn = withdrawn || sent.message.has_withdraw();
  }
  EXPECT_TRUE(withdrawn);
}

TEST_F(RingFoldTest, AnInvalidRingOrderIsRefused) {
  AddMembers(3);
  const auto refused = [&](auto spoil) {
    FoldOf order = OrderFor(0);
    spoil(order.fold());
    const size_t before = members_[0]->Reports(v1::FoldReport::DROPPED).size();
    members_[0]->Shard(order);
    return members_[0]->Reports(v1::FoldReport::DROPPED).size() == before + 1 &&
           members_[0]->reducer().stats().folds == 0;
  };
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_slot(3); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_slots(65); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_slots(1); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_root(false); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_committed(true); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.set_size_bytes(8); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.mutable_ring()->clear_before(); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) { fold.mutable_ring()->clear_generation(); }));
  EXPECT_TRUE(refused([](v1::Fold& fold) {
    fold.mutable_inputs(0)->clear_source_id();
    fold.mutable_inputs(0)->set_has_inline(true);
    fold.mutable_inputs(0)->set_inline_bytes(std::string(kBytes, 'x'));
  }));
}

}  // namespace
}  // namespace phalanx::collectives
