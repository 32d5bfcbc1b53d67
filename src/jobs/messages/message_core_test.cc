#include "src/jobs/messages/message_core.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/messages/testing/message_world.h"

namespace phalanx::jobs {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::IsOkAndHolds;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MessageWorld;
using ::testing::SizeIs;

// Members 0 and 1 live on two nodes, and know of each other.
class MessageCoreTest : public ::testing::Test {
 protected:
  MessageCoreTest() : world_(1, 2) {
    world_.Start(0, 0);
    world_.Start(1, 1);
    world_.Run(absl::Milliseconds(10));
  }
  const MessageWorld::Pair& Pair(uint64_t to_life = 0) {
    return world_.pairs().at({MessageWorld::KeyFor(0, 0), MessageWorld::KeyFor(1, to_life)});
  }
  size_t Ended() {
    size_t ended = 0;
    for (const auto& send : Pair().sends) ended += send.has_value() ? 1 : 0;
    return ended;
  }
  void ExpectStatuses(std::vector<absl::StatusCode> codes) {
    std::vector<absl::StatusCode> got;
    for (const auto& send : Pair().sends) {
      got.push_back(send.has_value() ? send->code() : absl::StatusCode::kUnknown);
    }
    EXPECT_EQ(got, codes);
    EXPECT_THAT(world_.violations, ::testing::IsEmpty());
  }

  // As many of the greatest messages as leave without an answer.
  void SendAFew() {
    for (int i = 0; i < 3; ++i) world_.Send(0, 1, kMaxMessageBytes);
  }

  MessageWorld world_;
};

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

TEST_F(MessageCoreTest, ASendEndsWhenItsMessageHasLeft) {
  world_.Send(0, 1, 100);
  ExpectStatuses({kOk});
  world_.Run(absl::Milliseconds(10));
  EXPECT_THAT(Pair().arrived, ElementsAre(0));
}

TEST_F(MessageCoreTest, WhatIsNotTakenHoldsTheNextOnesBack) {
  constexpr size_t kMost = 2 * kFewMessages;
  const size_t size = kMessageWindow / kMost - kMessageOverhead;
  for (size_t i = 0; i < kMost + 3; ++i) world_.Send(0, 1, size);
  world_.Run(absl::Seconds(10));
  EXPECT_EQ(Ended(), kMost);
  EXPECT_THAT(Pair().arrived, SizeIs(kMost));
  world_.Take(1, kCreditStep / (size + kMessageOverhead));
  world_.Run(absl::Seconds(1));
  EXPECT_EQ(Ended(), kMost + 2);
  world_.Take(1, 100);
  world_.Run(absl::Seconds(1));
  EXPECT_THAT(Pair().arrived, SizeIs(kMost + 3));
}

TEST_F(MessageCoreTest, AFewLongMessagesLeaveWithoutAnswers) {
  SendAFew();
  for (int i = 0; i < 2; ++i) world_.Send(0, 1, kMaxMessageBytes);
  EXPECT_EQ(Ended(), 3u);
  world_.Run(absl::Seconds(1));
  world_.Take(1, 1);
  world_.Run(absl::Seconds(1));
  EXPECT_EQ(Ended(), 4u);
  world_.Take(1, 100);
  world_.Run(absl::Seconds(1));
  EXPECT_THAT(Pair().arrived, ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(MessageCoreTest, OfMessagesThatAreNotShortNoMoreThanAFewLeaveWithoutAnswers) {
  const size_t size = kMessageWindow / 4;
  for (size_t i = 0; i < kFewMessages + 2; ++i) world_.Send(0, 1, size);
  EXPECT_EQ(Ended(), kFewMessages);
  world_.Run(absl::Seconds(1));
  world_.Take(1, 1);
  world_.Run(absl::Seconds(1));
  EXPECT_EQ(Ended(), kFewMessages + 1);
}

TEST_F(MessageCoreTest, TheGreatestMessageLeavesWhenFewBytesAreUnanswered) {
  // None of these is answered, and a few messages are exceeded.
  for (size_t i = 0; i < kFewMessages; ++i) world_.Send(0, 1, 1);
  world_.Send(0, 1, kMaxMessageBytes);
  world_.Send(0, 1, 1);
  EXPECT_EQ(Ended(), kFewMessages + 1);
  world_.Run(absl::Seconds(1));
  world_.Take(1, 100);
  world_.Run(absl::Seconds(1));
  EXPECT_EQ(Ended(), kFewMessages + 2);
}

TEST_F(MessageCoreTest, ASendThatWaitsFailsAtOnceWhenTheMemberDies) {
  SendAFew();
  world_.Send(0, 1, kMaxMessageBytes);
  world_.Stop(1);
  world_.Run(absl::Milliseconds(10));
  world_.Send(0, 1, 1);
  ExpectStatuses({kOk, kOk, kOk, kUnavailable, kUnavailable});
  EXPECT_THAT(*Pair().sends[4], StatusIs(kUnavailable, HasSubstr("rank 1, life 0")));
}

TEST_F(MessageCoreTest, AMessageForAnEarlierLifeDoesNotReachTheNextOne) {
  world_.Send(0, 1, 100);
  // Dies and comes again on its node, before the message arrives.
  world_.Start(1, 1);
  world_.Run(absl::Seconds(1));
  EXPECT_THAT(Pair().arrived, SizeIs(0));
  world_.Send(0, 1, 100);
  world_.Run(absl::Seconds(1));
  EXPECT_THAT(Pair(/*to_life=*/1).arrived, ElementsAre(0));
  EXPECT_THAT(world_.violations, ::testing::IsEmpty());
}

TEST_F(MessageCoreTest, ALostLinkIsToldToTheNextSend) {
  world_.Send(0, 1, 100);
  world_.LoseLink(0, 1);
  world_.Send(0, 1, 100);
  world_.Send(0, 1, 100);
  world_.Run(absl::Seconds(1));
  ExpectStatuses({kOk, absl::StatusCode::kDataLoss, kOk});
  EXPECT_THAT(Pair().arrived, ElementsAre(2));
}

TEST_F(MessageCoreTest, ADeadlineEndsASendThatWaits) {
  SendAFew();
  world_.Send(0, 1, kMaxMessageBytes, absl::Milliseconds(5));
  world_.Run(absl::Milliseconds(4));
  EXPECT_EQ(Ended(), 3u);
  world_.Run(absl::Milliseconds(1));
  ExpectStatuses({kOk, kOk, kOk, absl::StatusCode::kDeadlineExceeded});
}

TEST_F(MessageCoreTest, WhatWaitsIsBounded) {
  const size_t messages = kMaxWaitingBytes / (kMaxMessageBytes + kMessageOverhead);
  SendAFew();
  for (size_t i = 0; i < messages + 1; ++i) world_.Send(0, 1, kMaxMessageBytes);
  // The first ones have left; the last one does not fit.
  EXPECT_EQ(Ended(), 4u);
  EXPECT_THAT(*Pair().sends.back(), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(MessageCoreTest, MembersOfOneNodeSendToEachOther) {
  world_.Start(2, 0);
  world_.Run(absl::Milliseconds(10));
  for (int i = 0; i < 20; ++i) world_.Send(2, 0, 100'000);
  for (int i = 0; i < 20; ++i) world_.Take(0, 1);
  EXPECT_THAT(world_.pairs().at({MessageWorld::KeyFor(2, 0), MessageWorld::KeyFor(0, 0)}).arrived,
              SizeIs(20));
  EXPECT_THAT(world_.violations, ::testing::IsEmpty());
}

// Member 1 lives on node 1, which hears of member 0, on node 2, only when the test says so.
class EarlyMessagesTest : public ::testing::Test, private LifeLookup {
 protected:
  EarlyMessagesTest() { core_.Begin(kMember, Instant()); }

  absl::Status Arrive(uint64_t number, Instant now = Instant(), int from = 0, uint64_t stream = 7) {
    const MessageHeader header = {MessageKind::kMessage, MessageWorld::KeyFor(from, 0), kMember,
                                  stream, number};
    return core_.Arrived(kOther, header, std::make_shared<const std::string>(absl::StrCat(number)),
                         now);
  }
  void Learn(uint32_t rank) { table_[rank] = {0, true}; }
  // The contents of what was delivered, and "refused" for each refusal, in order.
  std::vector<std::string> Effects() {
    std::vector<std::string> effects;
    for (const MessageCore::Effect& effect : core_.TakeEffects()) {
      const auto* const deliver = std::get_if<MessageCore::Deliver>(&effect);
      const auto* const transmit = std::get_if<MessageCore::Transmit>(&effect);
      if (deliver != nullptr) effects.push_back(*deliver->bytes);
      if (transmit != nullptr && transmit->header.kind == MessageKind::kRefused) {
        effects.push_back("refused");
      }
    }
    return effects;
  }
  // Since the last call.
  uint64_t Lookups() { return std::exchange(lookups_, 0); }

  MessageCore& core() { return core_; }

 private:
  std::optional<KnownLife> Find(const GroupId&, uint32_t rank) const override {
    ++lookups_;
    const auto found = table_.find(rank);
    if (found == table_.end()) return std::nullopt;
    return found->second;
  }

  static constexpr NodeKey kOther = {2, 1};
  const LifeKey kMember = MessageWorld::KeyFor(1, 0);
  std::map<uint32_t, KnownLife> table_ = {{1, {0, true}}};
  mutable uint64_t lookups_ = 0;
  MessageCore core_ = MessageCore({1, 1}, *this);
};

TEST_F(EarlyMessagesTest, AMessageThatStaysParkedIsNotLookedAtAgain) {
  constexpr int kMessages = 1000;
  for (int i = 0; i < kMessages; ++i) {
    PHALANX_EXPECT_OK(Arrive(i));
    PHALANX_EXPECT_OK(Arrive(i, Instant(), /*from=*/2));
  }
  // A message costs one look at those before it, and one at itself.
  EXPECT_LE(Lookups(), 4u * kMessages);
  EXPECT_THAT(Effects(), SizeIs(0));
  Learn(0);
  core().LivesChanged();
  EXPECT_LE(Lookups(), kMessages + 10u);
  const std::vector<std::string> effects = Effects();
  ASSERT_THAT(effects, SizeIs(kMessages));
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(effects[i], absl::StrCat(i));
  EXPECT_EQ(core().parked_bytes(), kMessages * kMessageOverhead + 2890u);
}

TEST_F(EarlyMessagesTest, ParkedMessagesGoBeforeOneThatArrivesWhenTheirSenderIsKnown) {
  PHALANX_EXPECT_OK(Arrive(0));
  PHALANX_EXPECT_OK(Arrive(1));
  // The core hears of the change in a later turn.
  Learn(0);
  PHALANX_EXPECT_OK(Arrive(2));
  EXPECT_THAT(Effects(), ElementsAre("0", "1", "2"));
}

TEST_F(EarlyMessagesTest, WhatFollowsARefusedMessageIsRefusedAndTheLinkStays) {
  PHALANX_EXPECT_OK(Arrive(0));
  core().Tick(Instant() + kMaxParkedTime);
  EXPECT_THAT(Effects(), ElementsAre("refused"));
  Learn(0);
  // They have left before the sender has heard of the refusal.
  PHALANX_EXPECT_OK(Arrive(1));
  PHALANX_EXPECT_OK(Arrive(2));
  EXPECT_THAT(Effects(), ElementsAre("refused", "refused"));
  // The sender begins again.
  PHALANX_EXPECT_OK(Arrive(0, Instant(), 0, /*stream=*/8));
  EXPECT_THAT(Effects(), ElementsAre("0"));
  EXPECT_THAT(Arrive(0, Instant(), 0, /*stream=*/8),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("message 0 of a stream")));
}

TEST_F(MessageCoreTest, ASendThatWaitsForALostLinkIsUnavailableWhateverTheReasonIs) {
  SendAFew();
  world_.Send(0, 1, kMaxMessageBytes);
  world_.LoseLink(0, 1, absl::InvalidArgumentError("bytes of the peer: checksum mismatch"));
  ExpectStatuses({kOk, kOk, kOk, kUnavailable});
  EXPECT_THAT(*Pair().sends[3], StatusIs(kUnavailable, HasSubstr("checksum mismatch")));
}

TEST(MessageHeader, SurvivesEncodingAndRefusesOtherBytes) {
  MessageHeader header = {MessageKind::kCredit, MessageWorld::KeyFor(1, 2),
                          MessageWorld::KeyFor(3, 4), 5, 6};
  const std::string bytes = Encode(header);
  EXPECT_THAT(DecodeMessageHeader(bytes), IsOkAndHolds(header));
  EXPECT_THAT(DecodeMessageHeader(bytes + "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeMessageHeader(bytes.substr(1)), StatusIs(absl::StatusCode::kInvalidArgument));
  header.kind = MessageKind::kRefused;
  EXPECT_THAT(DecodeMessageHeader(Encode(header)), StatusIs(absl::StatusCode::kInvalidArgument));
  header.kind = static_cast<MessageKind>(4);
  EXPECT_THAT(DecodeMessageHeader(Encode(header)), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace phalanx::jobs
