#include "src/object_store/store/get_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/object_store/testing/store_parts.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::StatusIs;
using ::testing::HasSubstr;
using testing::StoreParts;

class GetRequestsTest : public StoreParts {
 protected:
  // What one Get was answered, in order.
  struct Reading {
    RequestId request = 0;
    std::vector<absl::StatusOr<View>> views;
    std::vector<absl::Status> voids;
  };
  void Get(Reading& reading, GetOptions options) {
    Run([&] {
      GetEvents events;
      events.on_view = [&](absl::StatusOr<View> view) { reading.views.push_back(std::move(view)); };
      events.on_void = [&](const absl::Status& why) { reading.voids.push_back(why); };
      reading.request = gets_.Get(client_, std::move(options), std::move(events));
    });
  }
  void Get(Reading& reading, int i) { Get(reading, GetOptions{.id = Id(i)}); }
  void Stream(Reading& reading, int i) { Get(reading, GetOptions{.id = Id(i), .streaming = true}); }
  absl::Status Release(PinId pin) {
    absl::Status status;
    Run([&] { status = gets_.Release(client_, pin, /*recycle=*/true); });
    return status;
  }
  const Pin& PinOf(PinId pin) const { return requests_.FindClient(client_)->pins.at(pin); }
  void Void(Copy* copy) {
    Run([&] { gets_.VoidReaders(copy, absl::AbortedError("it died")); });
  }

  Reading reading_;
};

// ------------------------------------------------------------------------------------- waiting

TEST_F(GetRequestsTest, ACompleteCopyIsPinnedUntilItsViewIsReleased) {
  Copy* copy = AddCopy(1, CopyState::kComplete);
  Get(reading_, 1);
  EXPECT_TRUE(reading_.views.empty()) << "callers are called in a later turn";
  HandOut();
  ASSERT_EQ(reading_.views.size(), 1u);
  EXPECT_EQ(reading_.views[0]->generation, copy->generation);
  EXPECT_EQ(copy->pins, 1u);
  EXPECT_EQ(gets_.open(), 0u);
  PHALANX_EXPECT_OK(Release(reading_.views[0]->pin));
  EXPECT_EQ(copy->pins, 0u);
  EXPECT_THAT(Release(reading_.views[0]->pin), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(GetRequestsTest, AGetWantsTheObjectUntilItIsAnswered) {
  Reading other;
  Get(reading_, 1);
  Get(other, 1);
  EXPECT_TRUE(pulls_.Wants(Id(1)));
  EXPECT_EQ(gets_.open(), 2u);
  AddCopy(1, CopyState::kComplete);
  HandOut();
  EXPECT_EQ(reading_.views.size(), 1u);
  EXPECT_EQ(other.views.size(), 1u);
  EXPECT_FALSE(pulls_.Wants(Id(1)));
}

TEST_F(GetRequestsTest, AnObjectThatIsWrittenHereIsNotWantedFromItsShard) {
  AddCopy(1, CopyState::kWriting);
  Get(reading_, 1);
  EXPECT_FALSE(pulls_.Wants(Id(1)));
  EXPECT_EQ(gets_.open(), 1u);
}

TEST_F(GetRequestsTest, AStandbyAnswersNoGet) {
  Copy* copy = AddCopy(1, CopyState::kComplete);
  copy->standing = Standing::kStandby;
  Get(reading_, 1);
  HandOut();
  EXPECT_TRUE(reading_.views.empty());
  EXPECT_TRUE(pulls_.Wants(Id(1)));
}

TEST_F(GetRequestsTest, WithADeadlineNowOnlyAnObjectThatIsHereIsRead) {
  Get(reading_, GetOptions{.id = Id(1), .deadline = Now()});
  HandOut();
  EXPECT_THAT(reading_.views.at(0), StatusIs(absl::StatusCode::kDeadlineExceeded));
  AddCopy(1, CopyState::kComplete);
  Reading again;
  Get(again, GetOptions{.id = Id(1), .deadline = Now()});
  HandOut();
  PHALANX_EXPECT_OK(again.views.at(0));
}

TEST_F(GetRequestsTest, ADeadlineIsWatchedWhileTheGetWaits) {
  const Instant deadline = Now() + absl::Seconds(1);
  Get(reading_, GetOptions{.id = Id(1), .deadline = deadline});
  EXPECT_EQ(requests_.NextDeadline(), deadline);
  EXPECT_THAT(gets_.DeadlineStatus(*requests_.Find(reading_.request)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("was not put")));
}

TEST_F(GetRequestsTest, ADeadlineThatPassesWithoutMemoryIsResourceExhausted) {
  Request& put = requests_.New(client_, Id(1), Instant::Infinite(), PutPart());
  put.ticket = 1;
  EXPECT_THAT(gets_.DeadlineStatus(put), StatusIs(absl::StatusCode::kResourceExhausted));
  requests_.Erase(put);
}

TEST_F(GetRequestsTest, AGetThatCannotBeginIsAnsweredWithTheReason) {
  Get(reading_, GetOptions());
  HandOut();
  EXPECT_THAT(reading_.views.at(0), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(GetRequestsTest, ACancelledGetIsNotCalledBack) {
  Get(reading_, 1);
  Run([&] { gets_.Cancel(*requests_.Find(reading_.request)); });
  Settle();
  AddCopy(1, CopyState::kComplete);
  HandOut();
  EXPECT_TRUE(reading_.views.empty());
  EXPECT_FALSE(pulls_.Wants(Id(1)));
}

TEST_F(GetRequestsTest, ACancelledGetReleasesAViewThatWasNotHandedOut) {
  Copy* copy = AddCopy(1, CopyState::kComplete);
  Get(reading_, 1);
  EXPECT_EQ(copy->pins, 1u);
  Run([&] { gets_.Cancel(*requests_.Find(reading_.request)); });
  EXPECT_EQ(copy->pins, 0u);
}

TEST_F(GetRequestsTest, AnErrorEndsAllGetsThatWait) {
  Get(reading_, 1);
  Run([&] { gets_.EndAll(Id(1), absl::NotFoundError("deleted")); });
  turns_.Touch(Id(1));
  Settle();
  HandOut();
  EXPECT_THAT(reading_.views.at(0), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(gets_.open(), 0u);
}

// ----------------------------------------------------------------------------------- streaming

TEST_F(GetRequestsTest, AStreamingGetReadsAPartialCopyAndOthersWait) {
  Reading waiting;
  Get(waiting, 1);
  Stream(reading_, 1);
  Copy* copy = AddCopy(1, CopyState::kPulling);
  turns_.Touch(Id(1));
  Settle();
  HandOut();
  EXPECT_EQ(reading_.views.size(), 1u);
  EXPECT_TRUE(waiting.views.empty());
  EXPECT_EQ(copy->reads.streaming, 1u);
  Complete(copy);
  EXPECT_EQ(copy->reads.streaming, 0u);
  EXPECT_EQ(requests_.Find(reading_.request), nullptr) << "the Get has ended";
  EXPECT_EQ(copy->pins, 2u) << "the reader's view, and the other's";
  HandOut();
  EXPECT_EQ(waiting.views.size(), 1u);
}

TEST_F(GetRequestsTest, AnAttachedGetHasNoDeadline) {
  AddCopy(1, CopyState::kPulling);
  Get(reading_, GetOptions{.id = Id(1), .deadline = Now() + absl::Seconds(1), .streaming = true});
  EXPECT_TRUE(requests_.NextDeadline().infinite());
}

TEST_F(GetRequestsTest, AReaderOfAGenerationThatDiedIsCalledAndGetsTheNextView) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Stream(reading_, 1);
  HandOut();
  const PinId first = reading_.views.at(0)->pin;
  Void(copy);
  HandOut();
  EXPECT_EQ(reading_.voids.size(), 1u);
  EXPECT_EQ(copy->pins, 1u) << "the reader still has to release it";
  EXPECT_EQ(gets_.open(), 1u);
  PHALANX_EXPECT_OK(Release(first));
  EXPECT_EQ(gets_.open(), 1u) << "the old view's Release does not end the Get";
  Run([&] { table_.Detach(copy); });
  AddCopy(1, CopyState::kComplete, 4, /*sequence=*/2);
  HandOut();
  ASSERT_EQ(reading_.views.size(), 2u);
  EXPECT_EQ(reading_.views[1]->generation.sequence, 2u);
}

TEST_F(GetRequestsTest, AVoidViewThatWasNotHandedOutCausesNoCall) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Stream(reading_, 1);
  Void(copy);
  HandOut();
  EXPECT_TRUE(reading_.views.empty());
  EXPECT_TRUE(reading_.voids.empty());
  EXPECT_EQ(copy->pins, 0u);
  EXPECT_EQ(gets_.open(), 1u);
  turns_.Touch(Id(1));
}

TEST_F(GetRequestsTest, AReaderThatReleasesAPartialViewEndsItsGet) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Stream(reading_, 1);
  HandOut();
  PHALANX_EXPECT_OK(Release(reading_.views.at(0)->pin));
  EXPECT_EQ(requests_.Find(reading_.request), nullptr);
  EXPECT_EQ(copy->reads.streaming, 0u);
  EXPECT_EQ(copy->pins, 0u);
}

TEST_F(GetRequestsTest, TheViewOfACancelledReaderIsAPlainPin) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Stream(reading_, 1);
  HandOut();
  const PinId pin = reading_.views.at(0)->pin;
  ASSERT_EQ(PinOf(pin).streaming, reading_.request);
  Run([&] { gets_.Cancel(*requests_.Find(reading_.request)); });
  Settle();
  EXPECT_EQ(PinOf(pin).streaming, 0u);
  EXPECT_EQ(copy->pins, 1u) << "the reader still has to release it";
  PHALANX_EXPECT_OK(Release(pin));
  EXPECT_EQ(copy->pins, 0u);
}

TEST_F(GetRequestsTest, AVoidViewOfACancelledReaderIsAPlainPin) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Stream(reading_, 1);
  HandOut();
  const PinId pin = reading_.views.at(0)->pin;
  Void(copy);
  // Before the reader has heard that the view is void.
  Run([&] { gets_.Cancel(*requests_.Find(reading_.request)); });
  Settle();
  EXPECT_EQ(PinOf(pin).streaming, 0u);
  HandOut();
  EXPECT_TRUE(reading_.voids.empty());
  PHALANX_EXPECT_OK(Release(pin));
}

// ---------------------------------------------------------------------------------- lost objects

TEST_F(GetRequestsTest, ALostObjectEndsTheGetsWithFailWhenLost) {
  Reading patient;
  Get(patient, 1);
  Get(reading_, GetOptions{.id = Id(1), .fail_when_lost = true});
  Run([&] { gets_.OnLost(Id(1), "node b is gone"); });
  HandOut();
  EXPECT_THAT(reading_.views.at(0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(patient.views.empty());
  Reading later;
  Get(later, GetOptions{.id = Id(1), .fail_when_lost = true});
  HandOut();
  EXPECT_THAT(later.views.at(0), StatusIs(absl::StatusCode::kDataLoss));
  gets_.ForgetLost(Id(1));
  Reading last;
  Get(last, GetOptions{.id = Id(1), .fail_when_lost = true});
  HandOut();
  EXPECT_TRUE(last.views.empty());
}

TEST_F(GetRequestsTest, ALossIsForgottenWhenNoGetWaits) {
  Get(reading_, 1);
  Run([&] { gets_.OnLost(Id(1), "node b is gone"); });
  Run([&] { gets_.Cancel(*requests_.Find(reading_.request)); });
  Settle();
  Reading later;
  Get(later, GetOptions{.id = Id(1), .fail_when_lost = true});
  HandOut();
  EXPECT_TRUE(later.views.empty());
}

// ----------------------------------------------------------------------------------------- pins

TEST_F(GetRequestsTest, AnyGenerationThatIsHereCanBePinned) {
  Copy* copy = AddCopy(1, CopyState::kPulling);
  Run([&] {
    PHALANX_EXPECT_OK(gets_.PinCopy(client_, Id(1), copy->generation));
    EXPECT_THAT(gets_.PinCopy(client_, Id(1), Generation{kPeer, 9}),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(gets_.PinCopy(client_ + 100, Id(1), copy->generation),
                StatusIs(absl::StatusCode::kInvalidArgument));
  });
  EXPECT_EQ(copy->pins, 1u);
}

TEST_F(GetRequestsTest, AClientThatDiesCondemnsTheBlocksThatItHasMapped) {
  Copy* copy = AddCopy(1, CopyState::kComplete);
  Get(reading_, 1);
  HandOut();
  Run([&] { gets_.CloseClient(*requests_.FindClient(client_), /*clean=*/false); });
  EXPECT_EQ(copy->pins, 0u);
  EXPECT_GE(memory_.stats().condemned_bytes, 4u);
}

}  // namespace
}  // namespace phalanx::object_store
