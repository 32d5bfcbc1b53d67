// What a node tells of who holds what, in which order; and Gets of what is lost.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store::testing {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = v1::NodeMessage::KindCase;

constexpr Generation kForeign{kPeer, 1};

std::string Ids(const std::vector<ObjectId>& ids) {
  std::string bytes;
  for (const ObjectId& id : ids) bytes += IdBytes(id);
  return bytes;
}

class StoreHoldTest : public ::testing::Test {
 protected:
  // Messages of these kinds, in order.
  std::vector<Kind> Kinds(StoreWorld& w) {
    std::vector<Kind> kinds;
    for (const v1::NodeMessage& message : w.sent()) kinds.push_back(message.kind_case());
    return kinds;
  }
  void Hold(const std::vector<ObjectId>& ids, ClientId client = 0) {
    w_.Run([&] { EXPECT_THAT(w_.store().Hold(client != 0 ? client : w_.client(), ids), IsOk()); });
  }
  void Unhold(const std::vector<ObjectId>& ids) {
    w_.Run([&] { w_.store().Unhold(w_.client(), ids); });
  }
  PutOptions Owned(const ObjectId& id, const std::string& refers_to = "") {
    PutOptions options;
    options.id = id;
    options.owned = true;
    options.refers_to = refers_to;
    return options;
  }
  v1::ShardMessage Claimed(const ObjectId& id, uint64_t number) {
    v1::ShardMessage message;
    message.mutable_claimed()->set_object_ids(IdBytes(id));
    message.mutable_claimed()->add_numbers(number);
    return message;
  }
  v1::ShardMessage Lost(const ObjectId& id) {
    v1::ShardMessage message;
    message.mutable_gone()->set_object_id(IdBytes(id));
    message.mutable_gone()->set_kind(v1::Gone::LOST);
    message.mutable_gone()->set_reason("the last was on node z");
    return message;
  }
  std::shared_ptr<Reading> Get(const ObjectId& id, bool fail_when_lost) {
    GetOptions options;
    options.id = id;
    options.fail_when_lost = fail_when_lost;
    return w_.Get(options);
  }

  StoreWorld w_;
};

TEST_F(StoreHoldTest, TheHoldOfAPutIsSentBeforeTheAnnouncement) {
  w_.Run([&] {
    EXPECT_THAT(w_.store().Hold(w_.client(), {{Id(1)}}), IsOk());
    w_.store().Put(w_.client(), Owned(Id(1)), "bytes", [](absl::StatusOr<PutResult>) {});
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kAnnounceCreate));
  EXPECT_TRUE(w_.Sent<v1::AnnounceCreate>()[0].info().owned());
}

TEST_F(StoreHoldTest, ManyHoldsAreOneMessage) {
  Hold({Id(1), Id(2), Id(1)});
  Unhold({Id(1)});
  ASSERT_EQ(w_.Sent<v1::Hold>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::Hold>()[0].object_ids(), Ids({Id(1), Id(2)}));
  EXPECT_THAT(w_.Sent<v1::Unhold>(), IsEmpty());
  Unhold({Id(1), Id(2)});
  ASSERT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::Unhold>()[0].object_ids(), Ids({Id(1), Id(2)}));
}

TEST_F(StoreHoldTest, MoreIdsThanAMessageHasAreSeveral) {
  std::vector<ObjectId> ids;
  for (size_t i = 0; i <= kMaxReferences; ++i) ids.push_back(Id(static_cast<int>(i)));
  Hold(ids);
  const auto holds = w_.Sent<v1::Hold>();
  ASSERT_EQ(holds.size(), 2u);
  EXPECT_EQ(holds[0].object_ids().size(), kMaxReferences * ObjectId::kSize);
  EXPECT_EQ(holds[1].object_ids().size(), ObjectId::kSize);
}

TEST_F(StoreHoldTest, TheHoldsOfADeadClientEnd) {
  const ClientId other = w_.OpenClient();
  Hold({Id(1), Id(2)}, other);
  Hold({Id(2)});
  w_.CloseClient(other, /*clean=*/false);
  ASSERT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::Unhold>()[0].object_ids(), Ids({Id(1)}));
  EXPECT_EQ(w_.store().stats().held, 1u);
}

TEST_F(StoreHoldTest, AReferenceInTransitIsHeldUntilItIsClaimedAfterItsClientEnds) {
  const ClientId other = w_.OpenClient();
  Hold({Id(1)}, other);
  w_.Run([&] { w_.store().Transit(Id(1), 17); });
  w_.CloseClient(other, /*clean=*/false);
  w_.Pass(absl::Seconds(59));
  EXPECT_THAT(w_.Sent<v1::Unhold>(), IsEmpty());
  w_.Shard(Claimed(Id(1), 18));
  EXPECT_THAT(w_.Sent<v1::Unhold>(), IsEmpty());
  w_.Shard(Claimed(Id(1), 17));
  EXPECT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
  w_.Shard(Claimed(Id(1), 17));
  EXPECT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
}

TEST_F(StoreHoldTest, AnUnclaimedReferenceIsHeldForAMinute) {
  w_.Run([&] { w_.store().Transit(Id(1), 17); });
  w_.Pass(absl::Seconds(60));
  EXPECT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
  EXPECT_EQ(w_.store().stats().unclaimed, 1u);
}

TEST_F(StoreHoldTest, AClaimFollowsTheHold) {
  w_.Run([&] {
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(1), TransitMark{kPeer, 17}), IsOk());
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kClaim));
  EXPECT_THAT(w_.Sent<v1::Claim>()[0].numbers(), ElementsAre(17));
  EXPECT_EQ(directory::FromProto(w_.Sent<v1::Claim>()[0].node()), kPeer);
}

TEST_F(StoreHoldTest, GatheredHoldsLeaveInOneMessageBeforeTheirClaims) {
  w_.Run([&] {
    w_.store().Gather(true);
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(1), TransitMark{kPeer, 17}), IsOk());
    EXPECT_THAT(w_.store().Hold(w_.client(), {{Id(2)}}), IsOk());
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(3), TransitMark{kPeer, 18}), IsOk());
    EXPECT_THAT(w_.sent(), IsEmpty());
    w_.store().Gather(false);
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kClaim));
  EXPECT_EQ(w_.Sent<v1::Hold>()[0].object_ids(), Ids({Id(1), Id(2), Id(3)}));
  EXPECT_EQ(w_.Sent<v1::Claim>()[0].object_ids(), Ids({Id(1), Id(3)}));
  EXPECT_THAT(w_.Sent<v1::Claim>()[0].numbers(), ElementsAre(17, 18));
}

TEST_F(StoreHoldTest, ClaimsFromTwoNodesAreTwoMessages) {
  constexpr NodeKey kOther{kPeer.node + 1, 1};
  w_.Run([&] {
    w_.store().Gather(true);
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(1), TransitMark{kPeer, 17}), IsOk());
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(2), TransitMark{kOther, 17}), IsOk());
    w_.store().Gather(false);
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kClaim, Kind::kClaim));
}

TEST_F(StoreHoldTest, AClaimOfAnObjectThatIsHeldAlreadyIsSent) {
  Hold({Id(1)});
  w_.Run([&] {
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(1), TransitMark{kPeer, 17}), IsOk());
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kClaim));
}

TEST_F(StoreHoldTest, AClaimOnTheSameNodeIsNotSent) {
  w_.Run([&] {
    w_.store().Transit(Id(1), 17);
    EXPECT_THAT(w_.store().Claim(w_.client(), Id(1), TransitMark{kSelf, 17}), IsOk());
  });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold));
  EXPECT_EQ(w_.store().stats().transits, 0u);
  Unhold({Id(1)});
  EXPECT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
}

TEST_F(StoreHoldTest, ANewSessionRegistersHoldsBeforeCopies) {
  Hold({Id(1), Id(2)});
  PHALANX_ASSERT_OK(w_.Put(Id(3), "bytes"));
  Unhold({Id(2)});
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kRegisterBegin, Kind::kRegisterHolds,
                                     Kind::kRegisterCopy, Kind::kRegisterEnd));
  EXPECT_EQ(w_.Sent<v1::RegisterHolds>()[0].object_ids(), Ids({Id(1)}));
}

TEST(StoreHoldRegister, ManyHoldsAreRegisteredInSeveralTurns) {
  StoreOptions options;
  options.registered_per_turn = 2;
  StoreWorld w(64 << 20, options);
  std::vector<ObjectId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Id(i));
  w.Run([&] { EXPECT_THAT(w.store().Hold(w.client(), ids), IsOk()); });
  w.ForgetSent();
  w.Run([&] {
    w.channel().OnSession(0);
    // Told behind the registration.
    w.store().Unhold(w.client(), {&ids[0], 1});
  });
  EXPECT_EQ(w.Sent<v1::RegisterHolds>().size(), 3u);
  ASSERT_FALSE(w.sent().empty());
  EXPECT_TRUE(w.sent().back().has_unhold());
}

TEST(StoreHoldLimits, AClientThatHoldsTooMuchIsRefused) {
  StoreOptions options;
  options.max_holds_per_client = 2;
  StoreWorld w(64 << 20, options);
  w.Run([&] {
    EXPECT_THAT(w.store().Hold(w.client(), {{Id(1), Id(2), Id(3)}}),
                StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(w.store().Hold(w.client(), {{ObjectId()}}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(w.store().Hold(w.client(), {{Id(1), Id(2), Id(2)}}), IsOk());
  });
}

// ---- what copies refer to

TEST_F(StoreHoldTest, ACreatedCopyHoldsTheObjectsItRefersTo) {
  w_.StartPut(Owned(Id(1), Ids({Id(2), Id(3)})), "bytes");
  EXPECT_THAT(Kinds(w_), ElementsAre(Kind::kHold, Kind::kAnnounceCreate));
  EXPECT_EQ(w_.Sent<v1::Hold>()[0].object_ids(), Ids({Id(2), Id(3)}));
  EXPECT_EQ(w_.Sent<v1::AnnounceCreate>()[0].info().refers_to(), Ids({Id(2), Id(3)}));
  w_.Shard(Gone(Id(1), Generation{kSelf, 1}, v1::Gone::DELETED));
  ASSERT_EQ(w_.Sent<v1::Unhold>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::Unhold>()[0].object_ids(), Ids({Id(2), Id(3)}));
}

TEST_F(StoreHoldTest, AFetchedCopyHoldsTheObjectsItRefersTo) {
  const auto reading = w_.Get(Id(1));
  w_.Shard(Assign(Id(1), kForeign, {.size = 100'000, .owned = true, .refers_to = Ids({Id(2)})}));
  ASSERT_EQ(w_.Sent<v1::Hold>().size(), 1u) << "before the shard hears that the copy is complete";
  w_.Run([&] { w_.pulls().Finish(0, Content(100'000)); });
  ASSERT_TRUE(reading->answered());
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  ASSERT_EQ(w_.Sent<v1::RegisterCopy>().size(), 1u);
  EXPECT_TRUE(w_.Sent<v1::RegisterCopy>()[0].info().owned());
  EXPECT_EQ(w_.Sent<v1::RegisterCopy>()[0].info().refers_to(), Ids({Id(2)}));
  EXPECT_EQ(w_.Sent<v1::RegisterHolds>()[0].object_ids(), Ids({Id(2)}));
}

TEST(StoreHoldReferences, HoldsAtAnotherShardEndALittleLater) {
  StoreWorld w(64 << 20, {}, /*num_shards=*/2);
  // Of the same shard as Id(1), and of the other.
  ObjectId same = Id(2), other = Id(2);
  for (int i = 2; same.ShardHash() % 2 != Id(1).ShardHash() % 2; ++i) same = Id(i);
  for (int i = 2; other.ShardHash() % 2 == Id(1).ShardHash() % 2; ++i) other = Id(i);
  PutOptions put;
  put.id = Id(1);
  put.refers_to = Ids({same, other});
  w.StartPut(put, "bytes");
  w.Shard(Gone(Id(1), Generation{kSelf, 1}, v1::Gone::DELETED));
  ASSERT_EQ(w.Sent<v1::Unhold>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::Unhold>()[0].object_ids(), Ids({same}));
  w.Pass(StoreOptions().reference_patience);
  ASSERT_EQ(w.Sent<v1::Unhold>().size(), 2u);
  EXPECT_EQ(w.Sent<v1::Unhold>()[1].object_ids(), Ids({other}));
  EXPECT_EQ(w.store().stats().unclaimed, 0u);
}

TEST_F(StoreHoldTest, ReferencesCountAndAreBounded) {
  PHALANX_ASSERT_OK(w_.Put(Id(1), "bytes"));
  const uint64_t plain = w_.store().Copies()[0].counted_bytes;
  w_.StartPut(Owned(Id(2), Ids({Id(3)})), "bytes");
  for (const Store::CopyInfo& copy : w_.store().Copies()) {
    EXPECT_EQ(copy.counted_bytes, copy.id == Id(2) ? plain + 100 : plain);
  }
  std::string many;
  for (size_t i = 0; i <= kMaxReferences; ++i) many += IdBytes(Id(static_cast<int>(i)));
  for (const std::string& bad : {many, std::string(19, 'x'), std::string(20, '\0')}) {
    const auto refused = w_.StartPut(Owned(Id(4), bad), "bytes");
    EXPECT_THAT((*refused)->status(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// ---- objects that are to stay after all

TEST_F(StoreHoldTest, AKeptObjectIsRegisteredAsKept) {
  w_.StartPut(Owned(Id(1)), "bytes");
  v1::ShardMessage kept;
  SetSubject(Id(1), Generation{kSelf, 1}, kept.mutable_kept());
  w_.Shard(kept);
  w_.Run([&] { w_.channel().OnSession(0); });
  ASSERT_EQ(w_.Sent<v1::RegisterCopy>().size(), 1u);
  EXPECT_FALSE(w_.Sent<v1::RegisterCopy>()[0].info().owned());
}

TEST_F(StoreHoldTest, KeepIsSentAgainInANewSession) {
  absl::Status done = absl::UnknownError("not answered");
  w_.Run([&] {
    w_.store().Keep(w_.client(), Id(1), Instant::Infinite(),
                    [&done](absl::Status status) { done = std::move(status); });
  });
  w_.Run([&] { w_.channel().OnSession(0); });
  const auto asked = w_.Sent<v1::KeepRequest>();
  ASSERT_EQ(asked.size(), 2u);
  v1::ShardMessage reply;
  reply.mutable_keep_reply()->set_request_id(asked[1].request_id());
  w_.Shard(reply);
  EXPECT_THAT(done, IsOk());
}

// ---- what is lost

TEST_F(StoreHoldTest, ALossEndsOnlyTheGetsWithFailWhenLost) {
  const auto patient = Get(Id(1), /*fail_when_lost=*/false);
  const auto impatient = Get(Id(1), /*fail_when_lost=*/true);
  w_.Shard(Lost(Id(1)));
  EXPECT_FALSE(patient->answered());
  ASSERT_TRUE(impatient->answered());
  EXPECT_THAT(impatient->status(), StatusIs(absl::StatusCode::kDataLoss,
                                            AllOf(HasSubstr(Id(1).hex()), HasSubstr("on node z"))));
  const auto later = Get(Id(1), /*fail_when_lost=*/true);
  EXPECT_THAT(later->status(), StatusIs(absl::StatusCode::kDataLoss));
  w_.Shard(Deliver(Id(1), kForeign, "bytes"));
  ASSERT_TRUE(patient->answered());
  EXPECT_THAT(patient->status(), IsOk());
}

TEST_F(StoreHoldTest, AnObjectThatIsPutAgainIsNotLost) {
  const auto patient = Get(Id(1), /*fail_when_lost=*/false);
  w_.Shard(Lost(Id(1)));
  w_.Shard(Assign(Id(1), kForeign, {.size = 100'000}));
  const auto later = Get(Id(1), /*fail_when_lost=*/true);
  EXPECT_FALSE(later->answered());
  w_.Run([&] { w_.pulls().Finish(0, Content(100'000)); });
  EXPECT_THAT(later->status(), IsOk());
}

TEST_F(StoreHoldTest, ANewSessionKnowsNothingOfLosses) {
  const auto patient = Get(Id(1), /*fail_when_lost=*/false);
  w_.Shard(Lost(Id(1)));
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_FALSE(Get(Id(1), /*fail_when_lost=*/true)->answered());
}

TEST_F(StoreHoldTest, ALossIsForgottenWhenNoGetWaitsForTheObject) {
  const auto first = Get(Id(1), /*fail_when_lost=*/true);
  w_.Shard(Lost(Id(1)));
  ASSERT_TRUE(first->answered());
  const auto second = Get(Id(1), /*fail_when_lost=*/true);
  EXPECT_FALSE(second->answered()) << "the shard is asked again";
  w_.Shard(Lost(Id(1)));
  EXPECT_TRUE(second->answered());
}

}  // namespace
}  // namespace phalanx::object_store::testing
