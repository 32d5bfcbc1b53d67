// Get: what is here, what is asked of the shard, streaming, pins, deletion.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Assign;
using testing::Content;
using testing::Deliver;
using testing::Gone;
using ::testing::HasSubstr;
using testing::Id;
using testing::kOther;
using testing::kPeer;
using testing::StoreWorld;

constexpr Generation kFirst{kPeer, 7};
constexpr Generation kSecond{kPeer, 8};

TEST(StoreGetTest, ManyClientsThatWantAnObjectAskOnceAndAreAllAnswered) {
  StoreWorld w;
  std::vector<std::shared_ptr<testing::Reading>> readings;
  for (int i = 0; i < 5000; ++i) readings.push_back(w.Get(Id(1)));
  EXPECT_EQ(w.Sent<v1::Want>().size(), 1u);
  EXPECT_EQ(w.store().stats().waiting_gets, 5000u);
  w.Shard(Deliver(Id(1), kFirst, "bytes"));
  for (const auto& reading : readings) ASSERT_EQ(reading->bytes(), "bytes");
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty());
  EXPECT_EQ(w.store().stats().pins, 5000u);
  for (const auto& reading : readings) ASSERT_THAT(w.Release(reading->view().pin), IsOk());
  EXPECT_EQ(w.store().stats().pinned_bytes, 0u);
}

TEST(StoreGetTest, HandOutAnswersCallsBackAtOnce) {
  StoreWorld w;
  ASSERT_THAT(w.Put(Id(1), "bytes"), IsOk());
  const ClientId client = w.OpenClient();
  int views = 0;
  w.Run([&] {
    GetEvents events;
    events.on_view = [&views](const absl::StatusOr<View>& view) {
      EXPECT_THAT(view, IsOk());
      ++views;
    };
    w.store().Get(client, GetOptions{Id(1), Instant::Infinite(), false}, std::move(events));
    EXPECT_EQ(views, 0) << "never inside the call";
    w.store().HandOutAnswers();
    EXPECT_EQ(views, 1);
  });
  EXPECT_EQ(views, 1);
}

TEST(StoreGetTest, AnAssignedObjectIsPulledOnceAndAnswered) {
  StoreWorld w;
  const std::string content = Content(100000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = content.size(), .plan = 4}));
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_EQ(w.pulls().pull(0).spec.sender, kPeer);
  EXPECT_EQ(w.pulls().pull(0).spec.generation, kFirst);
  EXPECT_FALSE(reading->answered());
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_EQ(reading->bytes(), content);
  const auto reports = w.Sent<v1::PullReport>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].complete());
  EXPECT_EQ(reports[0].plan_id(), 4u);
  EXPECT_EQ(reports[0].bytes_received(), content.size());
}

TEST(StoreGetTest, AFailedPullIsReportedAndResumedAtItsWatermark) {
  StoreWorld w;
  const std::string content = Content(100000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = content.size(), .plan = 4}));
  w.Run([&] {
    w.pulls().Feed(0, content, 777);
    w.pulls().End(0, absl::UnavailableError("the peer died"));
  });
  const auto reports = w.Sent<v1::PullReport>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_FALSE(reports[0].complete());
  EXPECT_EQ(reports[0].code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(reports[0].watermarks(0), 777u);
  w.Shard(Assign(Id(1), kFirst, {.size = content.size(), .plan = 5, .sender = kOther}));
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_EQ(w.pulls().pull(0).spec.into->watermark(0), 777u);
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_EQ(reading->bytes(), content);
}

TEST(StoreGetTest, ANewerPlanReplacesThePullAfterItsEndIsReported) {
  StoreWorld w;
  w.pulls().cancel_at_once = false;
  const std::string content = Content(1000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 6, .sender = kOther}));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 5}));  // late
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_TRUE(w.pulls().pull(0).cancelled);
  w.Run([&] { w.pulls().End(0, absl::CancelledError("")); });
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_EQ(w.pulls().pull(0).spec.sender, kOther);
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_EQ(reading->bytes(), content);
}

TEST(StoreGetTest, AnotherGenerationStartsAtZeroInOtherMemory) {
  StoreWorld w;
  const std::string old_content = Content(1000, 1);
  const std::string content = Content(1000, 2);
  const auto plain = w.Get(Id(1));
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  ASSERT_TRUE(stream->answered());
  const auto old_buffer = stream->view().buffer;
  w.Run([&] { w.pulls().Feed(0, old_content, 400); });
  w.Shard(Assign(Id(1), kSecond, {.size = 1000, .plan = 5}));
  ASSERT_EQ(w.pulls().size(), 1u);
  EXPECT_NE(w.pulls().pull(0).spec.into, old_buffer);
  EXPECT_EQ(w.pulls().pull(0).spec.into->watermark(0), 0u);
  EXPECT_TRUE(old_buffer->closed());
  ASSERT_EQ(stream->voids.size(), 1u);
  EXPECT_EQ(stream->voids[0].code(), absl::StatusCode::kAborted);
  ASSERT_EQ(stream->views.size(), 2u);
  EXPECT_EQ(stream->view().generation, kSecond);
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_EQ(plain->bytes(), content);
  EXPECT_EQ(stream->bytes(), content);
}

TEST(StoreGetTest, AVoidGenerationIsForgottenAndStillWanted) {
  StoreWorld w;
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Run([&] { w.pulls().Feed(0, Content(1000), 10); });
  w.Shard(Gone(Id(1), kFirst, v1::Gone::VOID));
  EXPECT_EQ(stream->voids.size(), 1u);
  EXPECT_EQ(w.pulls().size(), 0u);
  EXPECT_TRUE(w.store().Copies().empty());
  EXPECT_TRUE(w.Sent<v1::Unwant>().empty());
  w.Shard(Deliver(Id(1), kSecond, "new"));
  EXPECT_EQ(stream->bytes(), "new");
}

TEST(StoreGetTest, AReaderThatReleasedItsViewIsNotNotifiedThatItIsVoid) {
  StoreWorld w;
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Run([&] {
    w.channel().OnMessage(0, Gone(Id(1), kFirst, v1::Gone::VOID));
    EXPECT_THAT(w.store().Release(w.client(), stream->view().pin), IsOk());
  });
  EXPECT_TRUE(stream->voids.empty());
  EXPECT_EQ(w.store().stats().waiting_gets, 0u);
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreGetTest, LostKeepsTheBytesAndTheWant) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Run([&] {
    w.pulls().Feed(0, Content(1000), 10);
    w.pulls().End(0, absl::UnavailableError("died"));
  });
  w.Shard(Gone(Id(1), kFirst, v1::Gone::LOST));
  ASSERT_EQ(w.store().Copies().size(), 1u);
  EXPECT_EQ(w.store().Copies()[0].bytes_present, 10u);
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 5}));
  EXPECT_EQ(w.pulls().size(), 1u);
}

TEST(StoreGetTest, DeletedEndsTheGetsBoundToTheGenerationAndConfirms) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Shard(Gone(Id(1), kFirst, v1::Gone::DELETED));
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
  EXPECT_EQ(stream->voids.size(), 1u);
  EXPECT_THAT(stream->status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleted")));
  EXPECT_EQ(w.Sent<v1::DeleteConfirm>().size(), 1u);
  ASSERT_EQ(w.store().stats().waiting_gets, 0u);
  // What is said of the deleted generation afterwards is late.
  const auto again = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 5}));
  w.Shard(Deliver(Id(1), kFirst, "late"));
  EXPECT_FALSE(again->answered());
  w.Shard(Deliver(Id(1), kSecond, "new"));
  EXPECT_EQ(again->bytes(), "new");
}

TEST(StoreGetTest, ViewsOfADeletedObjectStayValid) {
  StoreWorld w;
  const Generation g = w.Put(Id(1), "bytes")->generation;
  const auto reading = w.Get(Id(1));
  w.Shard(Gone(Id(1), g, v1::Gone::DELETED));
  EXPECT_FALSE(w.store().ContainsLocally(Id(1)));
  EXPECT_EQ(reading->bytes(), "bytes");
  EXPECT_EQ(w.store().stats().used_bytes, 5u);
  EXPECT_THAT(w.Release(reading->view().pin), IsOk());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
  EXPECT_THAT(w.Release(reading->view().pin), StatusIs(absl::StatusCode::kNotFound));
}

TEST(StoreGetTest, DeadlinesPassInTheirOrder) {
  StoreWorld w;
  std::vector<std::shared_ptr<testing::Reading>> readings;
  const Instant now = w.now();
  for (int i = 0; i < 100; ++i) {
    readings.push_back(w.Get(Id(i), now + absl::Milliseconds(1 + i * 37 % 100)));
  }
  for (int t = 1; t <= 100; ++t) {
    w.Pass(absl::Milliseconds(1));
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(readings[static_cast<size_t>(i)]->answered(), 1 + i * 37 % 100 <= t);
    }
  }
  EXPECT_THAT(readings[0]->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(Id(0).hex())));
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 100u);
}

TEST(StoreGetTest, ALaterGetWithAShorterDeadlineEndsFirst) {
  StoreWorld w;
  const Instant now = w.now();
  const auto patient = w.Get(Id(1), now + absl::Seconds(10));
  const auto other = w.Get(Id(2), now + absl::Seconds(2));
  const auto same = w.Get(Id(1), now + absl::Seconds(1));
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(same->status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(other->answered());
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(other->status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(patient->answered());
  w.Pass(absl::Seconds(8));
  EXPECT_THAT(patient->status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(StoreGetTest, TheDeadlineNamesWhyThePullFailed) {
  StoreWorld w;
  const auto reading = w.Get(Id(1), w.now() + absl::Seconds(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 100, .plan = 4}));
  w.Run([&] { w.pulls().End(0, absl::UnavailableError("pull from node 2 at 10.0.0.2:7000")); });
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(reading->status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("10.0.0.2:7000")));
}

TEST(StoreGetTest, AGetWithAPastDeadlineReturnsOnlyALocalCopy) {
  StoreWorld w;
  EXPECT_THAT(w.Get(Id(1), w.now())->status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(w.Sent<v1::Want>().empty());
  ASSERT_THAT(w.Put(Id(1), "bytes"), IsOk());
  EXPECT_EQ(w.Get(Id(1), w.now())->bytes(), "bytes");
}

TEST(StoreGetTest, AnObjectLargerThanTheNodeEndsTheGet) {
  StoreWorld w(/*capacity=*/1000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1001, .plan = 4}));
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(w.Sent<v1::PullReport>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreGetTest, APullWaitsForItsMemoryBeforeItStarts) {
  StoreWorld w(/*capacity=*/1000);
  const Generation g = w.Put(Id(1), Content(600))->generation;
  const auto reading = w.Get(Id(2), w.now() + absl::Seconds(5));
  w.Shard(Assign(Id(2), kFirst, {.size = 600, .plan = 4}));
  EXPECT_EQ(w.pulls().started(), 0);
  w.Shard(Gone(Id(1), g, v1::Gone::DELETED));
  EXPECT_EQ(w.pulls().started(), 1);
  w.Run([&] { w.pulls().Finish(0, Content(600)); });
  EXPECT_EQ(reading->bytes(), Content(600));
}

TEST(StoreGetTest, AGetWhosePullGetsNoMemoryEndsAtItsDeadlineWithResourceExhausted) {
  StoreWorld w(/*capacity=*/1000);
  ASSERT_THAT(w.Put(Id(1), Content(600)), IsOk());
  const auto reading = w.Get(Id(2), w.now() + absl::Seconds(5));
  w.Shard(Assign(Id(2), kFirst, {.size = 600, .plan = 4}));
  w.Pass(absl::Seconds(5));
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(w.store().stats().waiting_for_memory, 0u);
}

TEST(StoreGetTest, CancelStopsThePullIfNoOtherGetWaits) {
  StoreWorld w;
  const auto one = w.Get(Id(1));
  const auto two = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  w.Cancel(one->request);
  EXPECT_EQ(w.pulls().size(), 1u);
  w.Cancel(two->request);
  EXPECT_EQ(w.pulls().size(), 0u);
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  EXPECT_FALSE(one->answered());
  // Its view is the reader's until it lets go.
  EXPECT_EQ(w.store().stats().used_bytes, 1000u);
  EXPECT_THAT(w.Release(two->view().pin), IsOk());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
}

TEST(StoreGetTest, AStreamingReaderThatReleasesItsViewEndsItsWant) {
  StoreWorld w;
  const auto stream = w.Stream(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 1000, .plan = 4}));
  EXPECT_THAT(w.Release(stream->view().pin), IsOk());
  EXPECT_EQ(w.pulls().size(), 0u);
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
}

TEST(StoreGetTest, AnEmptyObjectThatIsAssignedNeedsNoPull) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 0, .plan = 4}));
  ASSERT_THAT(reading->status(), IsOk());
  EXPECT_EQ(reading->bytes(), "");
  EXPECT_EQ(w.pulls().started(), 0);
}

TEST(StoreGetTest, SlicesFromSeveralSendersMakeOneObject) {
  StoreWorld w;
  const std::string content = Content(10000);
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 10000, .plan = 4, .slices = 4, .mask = 0b0101}));
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_FALSE(reading->answered());
  ASSERT_EQ(w.Sent<v1::PullReport>().size(), 1u);
  EXPECT_FALSE(w.Sent<v1::PullReport>()[0].complete());
  EXPECT_EQ(w.Sent<v1::PullReport>()[0].code(), 0);
  w.Shard(Assign(Id(1), kFirst,
                 {.size = 10000, .plan = 5, .sender = kOther, .slices = 4, .mask = 0b1010}));
  w.Run([&] { w.pulls().Finish(0, content); });
  EXPECT_EQ(reading->bytes(), content);
  EXPECT_TRUE(w.Sent<v1::PullReport>()[1].complete());
}

TEST(StoreGetTest, AnUnwantedAssignIsAnsweredByUnwant) {
  StoreWorld w;
  w.Shard(Assign(Id(1), kFirst, {.size = 100, .plan = 4}));
  EXPECT_EQ(w.pulls().started(), 0);
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreGetTest, AnUnwantedDeliveryIsWithdrawn) {
  StoreWorld w;
  w.Shard(Deliver(Id(1), kFirst, "bytes"));
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  EXPECT_TRUE(w.store().Copies().empty());
}

TEST(StoreGetTest, ADeliveryThatGetsNoMemoryInTimeIsWithdrawn) {
  StoreWorld w(/*capacity=*/100);
  ASSERT_THAT(w.Put(Id(1), Content(80)), IsOk());
  const auto reading = w.Get(Id(2), w.now() + absl::Seconds(1));
  w.Shard(Deliver(Id(2), kFirst, Content(60)));
  EXPECT_FALSE(reading->answered());
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(reading->status(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
}

TEST(StoreGetTest, APutHereAnswersGetsThatWaitedForOthers) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  ASSERT_THAT(w.Put(Id(1), "bytes"), IsOk());
  EXPECT_EQ(reading->bytes(), "bytes");
  EXPECT_EQ(w.Sent<v1::Unwant>().size(), 1u);
}

TEST(StoreGetTest, ProgressIsReportedFourTimesASecondWhileAPullRuns) {
  StoreWorld w;
  w.Pass(absl::Seconds(2));
  EXPECT_TRUE(w.Sent<v1::Progress>().empty());
  const auto reading = w.Get(Id(1));
  w.Shard(Assign(Id(1), kFirst, {.size = 100000, .plan = 4}));
  w.Run([&] { w.pulls().Feed(0, Content(100000), 1000); });
  w.Pass(absl::Seconds(1));
  auto progress = w.Sent<v1::Progress>();
  // The memory in use is reported alone as soon as the pull has it.
  std::erase_if(progress, [](const auto& m) { return m.pulls_size() == 0; });
  ASSERT_EQ(progress.size(), 4u);
  EXPECT_EQ(progress[0].pulls(0).watermarks(0), 1000u);
  EXPECT_EQ(progress[0].pulls(0).bytes_per_second(), 4000);
  EXPECT_EQ(progress[1].pulls(0).bytes_per_second(), 0);
  w.pulls().pull(0).spec.progress->starved_ns = 77;
  w.Pass(absl::Milliseconds(250));
  EXPECT_EQ(w.Sent<v1::Progress>().back().pulls(0).starved_ns(), 77u);
  w.Run([&] { w.pulls().Finish(0, Content(100000)); });
  w.ForgetSent();
  w.Pass(absl::Seconds(2));
  EXPECT_TRUE(w.Sent<v1::Progress>().empty());
}

TEST(StoreGetTest, TheShardLearnsSoonThatTheMemoryInUseHasChangedAndFourTimesASecondAtMost) {
  StoreWorld w;
  const auto reading = w.Get(Id(1));
  w.Shard(Deliver(Id(1), kFirst, "12345"));
  w.Pass(absl::Milliseconds(30));
  ASSERT_EQ(w.Sent<v1::Progress>().size(), 1u);
  EXPECT_EQ(w.Sent<v1::Progress>()[0].used_bytes(), 5u);
  const auto other = w.Get(Id(2));
  w.Shard(Deliver(Id(2), kFirst, "123"));
  w.Pass(absl::Milliseconds(150));
  EXPECT_EQ(w.Sent<v1::Progress>().size(), 1u);
  w.Pass(absl::Milliseconds(150));
  ASSERT_EQ(w.Sent<v1::Progress>().size(), 2u);
  EXPECT_EQ(w.Sent<v1::Progress>()[1].used_bytes(), 8u);
  w.Pass(absl::Seconds(5));
  EXPECT_EQ(w.Sent<v1::Progress>().size(), 2u);
}

}  // namespace
}  // namespace phalanx::object_store
