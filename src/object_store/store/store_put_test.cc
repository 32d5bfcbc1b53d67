// Put, Create, Publish, Seal and Abort, and what the shard's verdicts make of them.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Content;
using ::testing::HasSubstr;
using testing::Id;
using testing::kPeer;
using testing::StoreWorld;
using testing::Verdict;

constexpr Generation kForeign{kPeer, 7};

PutOptions Adopted(const ObjectId& id) {
  PutOptions options;
  options.id = id;
  options.wait_for_adoption = true;
  return options;
}

TEST(StorePutTest, OfTwoWithoutAVerdictTheShardChoosesNotTheNode) {
  StoreWorld w;
  const WriteGrant first = w.Create(Id(1), 3);
  ASSERT_THAT(w.Put(Id(1), "later"), IsOk());
  const StoreWorld::PutAnswer sealed = w.StartSeal(first.writer);
  ASSERT_TRUE(sealed->has_value());
  ASSERT_THAT(**sealed, IsOk());
  EXPECT_FALSE((**sealed)->already_existed);
  EXPECT_EQ(w.Sent<v1::AnnounceSeal>().size(), 1u);
}

TEST(StorePutTest, ObjectsOfEverySizeAroundTheLimitsComeBackAsTheyWere) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{65535}, uint64_t{65536},
                              uint64_t{65537}, (uint64_t{1} << 20) - 1, uint64_t{1} << 20}) {
    StoreWorld w;
    ASSERT_THAT(w.Put(Id(1), Content(size)), IsOk()) << size;
    const auto sent = w.Sent<v1::AnnounceCreate>();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_TRUE(sent[0].complete());
    EXPECT_EQ(sent[0].info().size_bytes(), size);
    EXPECT_EQ(sent[0].has_inline(), size <= kMaxInlineBytes);
    EXPECT_EQ(sent[0].inline_bytes(), size <= kMaxInlineBytes ? Content(size) : "");
    const auto reading = w.Get(Id(1));
    ASSERT_THAT(reading->status(), IsOk());
    EXPECT_EQ(reading->bytes(), Content(size));
    EXPECT_TRUE(reading->view().buffer->complete());
    EXPECT_EQ(w.store().stats().used_bytes, size);
  }
}

TEST(StorePutTest, PutsLargerThanOneMessageAreRefused) {
  StoreWorld w;
  EXPECT_THAT(w.Put(Id(1), Content((1 << 20) + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048577")));
}

TEST(StorePutTest, TheNilIdAndLongMetadataAreRefused) {
  StoreWorld w;
  EXPECT_THAT(w.Put(ObjectId(), "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  PutOptions options;
  options.id = Id(1);
  options.metadata = std::string(kMaxMetadataBytes + 1, 'm');
  EXPECT_THAT(**w.StartPut(options, "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  options.metadata.pop_back();
  EXPECT_THAT(**w.StartPut(options, "x"), IsOk());
}

TEST(StorePutTest, PutAgainOfTheSameSizeIsAnsweredHereWithoutTheShard) {
  StoreWorld w;
  const auto first = w.Put(Id(1), "first");
  w.ForgetSent();
  const auto second = w.Put(Id(1), "other");
  ASSERT_THAT(second, IsOk());
  EXPECT_TRUE(second->already_existed);
  EXPECT_EQ(second->generation, first->generation);
  EXPECT_TRUE(w.sent().empty());
  EXPECT_EQ(w.Get(Id(1))->bytes(), "first");
}

TEST(StorePutTest, PutAgainOfAnotherSizeIsAlreadyExists) {
  StoreWorld w;
  ASSERT_THAT(w.Put(Id(1), "first"), IsOk());
  EXPECT_THAT(w.Put(Id(1), "longer bytes"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("5 bytes")));
}

TEST(StorePutTest, PutIsAcknowledgedWhenSealedHereUnlessItWaitsForAdoption) {
  StoreWorld w;
  const auto waiting = w.StartPut(Adopted(Id(1)), "bytes");
  EXPECT_FALSE(waiting->has_value());
  const Generation g = w.store().Copies()[0].generation;
  w.Shard(Verdict(Id(1), g, v1::Verdict::STANDBY));
  EXPECT_FALSE(waiting->has_value());
  w.Shard(Verdict(Id(1), g, v1::Verdict::ADOPTED));
  ASSERT_TRUE(waiting->has_value());
  EXPECT_THAT(**waiting, IsOk());
  EXPECT_FALSE((**waiting)->already_existed);
}

TEST(StorePutTest, PutThatWaitsForAdoptionEndsAtItsDeadlineAndKeepsItsBytes) {
  StoreWorld w;
  PutOptions options = Adopted(Id(1));
  options.deadline = w.now() + absl::Seconds(1);
  const auto answer = w.StartPut(options, "bytes");
  w.Pass(absl::Milliseconds(999));
  EXPECT_FALSE(answer->has_value());
  w.Pass(absl::Milliseconds(1));
  EXPECT_THAT(**answer, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(w.store().ContainsLocally(Id(1)));
}

TEST(StorePutTest, ASealWaitsForAdoptionForTheTimeoutOfItsCreate) {
  StoreWorld w;
  PutOptions options = Adopted(Id(1));
  options.deadline = w.now() + absl::Seconds(5);
  const auto created = w.StartCreate(options, 5);
  ASSERT_TRUE(created->has_value() && (*created)->ok());
  const WriteGrant grant = ***created;
  w.Pass(absl::Seconds(6));
  const auto sealed = w.StartSeal(grant.writer, /*wait_for_adoption=*/true);
  w.Pass(absl::Milliseconds(4999));
  ASSERT_FALSE(sealed->has_value());
  w.Shard(Verdict(Id(1), grant.generation, v1::Verdict::ADOPTED));
  EXPECT_THAT(**sealed, IsOk());

  options.id = Id(2);
  options.deadline = w.now() + absl::Seconds(5);
  const WriteGrant other = ***w.StartCreate(options, 5);
  const auto waits = w.StartSeal(other.writer, /*wait_for_adoption=*/true);
  w.Pass(absl::Seconds(5));
  EXPECT_THAT(**waits, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(StorePutTest, AVerdictInTheTurnOfTheDeadlineDoesNotAnswerAgain) {
  StoreWorld w;
  PutOptions options = Adopted(Id(1));
  options.deadline = w.now() + absl::Seconds(1);
  w.RunAt(options.deadline, [&] {
    const Generation g = w.store().Copies()[0].generation;
    w.channel().OnMessage(0, Verdict(Id(1), g, v1::Verdict::ADOPTED));
  });
  const auto answer = w.StartPut(options, "bytes");
  w.Pass(absl::Seconds(1));
  EXPECT_THAT(**answer, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(StorePutTest, SupersededPutOfTheSameSizeExistedAlreadyAndItsBytesGo) {
  StoreWorld w;
  const auto answer = w.StartPut(Adopted(Id(1)), "bytes");
  const Generation g = w.store().Copies()[0].generation;
  w.Shard(Verdict(Id(1), g, v1::Verdict::SUPERSEDED, kForeign, 5));
  ASSERT_THAT(**answer, IsOk());
  EXPECT_TRUE((**answer)->already_existed);
  EXPECT_EQ((**answer)->generation, kForeign);
  EXPECT_TRUE(w.store().Copies().empty());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
}

TEST(StorePutTest, SupersededPutOfAnotherSizeIsAlreadyExistsOrAConflict) {
  StoreWorld w;
  const auto waiting = w.StartPut(Adopted(Id(1)), "bytes");
  w.Shard(Verdict(Id(1), w.store().Copies()[0].generation, v1::Verdict::SUPERSEDED, kForeign, 9));
  EXPECT_THAT(**waiting, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(w.store().stats().conflicts, 0u);

  // Acknowledged before: only counted.
  ASSERT_THAT(w.Put(Id(2), "bytes"), IsOk());
  w.Shard(Verdict(Id(2), w.store().Copies()[0].generation, v1::Verdict::SUPERSEDED, kForeign, 9));
  EXPECT_EQ(w.store().stats().conflicts, 1u);
  EXPECT_TRUE(w.store().Copies().empty());
}

TEST(StorePutTest, CreateIsAnnouncedAtOnceAndStreamsThePublishedBytes) {
  StoreWorld w;
  const std::string content = Content(3 << 20);
  const WriteGrant grant = w.Create(Id(1), content.size());
  ASSERT_EQ(w.Sent<v1::AnnounceCreate>().size(), 1u);
  EXPECT_FALSE(w.Sent<v1::AnnounceCreate>()[0].complete());
  const auto reader = w.Stream(Id(1));
  ASSERT_THAT(reader->status(), IsOk());
  const auto plain = w.Get(Id(1));
  std::copy(content.begin(), content.end(), grant.block->bytes().begin());
  ASSERT_THAT(w.Publish(grant.writer, 1000), IsOk());
  EXPECT_EQ(reader->view().buffer->bytes_present(), 1000u);
  EXPECT_FALSE(plain->answered());
  EXPECT_THAT(**w.StartSeal(grant.writer), IsOk());
  ASSERT_EQ(w.Sent<v1::AnnounceSeal>().size(), 1u);
  EXPECT_TRUE(plain->answered());
  EXPECT_EQ(plain->bytes(), content);
  EXPECT_TRUE(reader->voids.empty());
  // Nobody was asked for what is written here.
  EXPECT_TRUE(w.Sent<v1::Want>().empty());
}

TEST(StorePutTest, PublishRefusesToShrinkToExceedAndUnknownWriters) {
  StoreWorld w;
  PutOptions options;
  options.id = Id(1);
  options.slices = 3;
  const WriteGrant grant = ***w.StartCreate(options, 1000);
  EXPECT_THAT(w.Publish(grant.writer, 600), IsOk());
  EXPECT_THAT(w.Publish(grant.writer, 600), IsOk());
  EXPECT_THAT(w.Publish(grant.writer, 599), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(w.Publish(grant.writer, 1001), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(w.Publish(grant.writer + 1, 700), StatusIs(absl::StatusCode::kNotFound));
  const ClientId other = w.OpenClient();
  w.Run([&] {
    EXPECT_THAT(w.store().Publish(other, grant.writer, 700), StatusIs(absl::StatusCode::kNotFound));
  });
}

TEST(StorePutTest, AbortTakesTheGenerationBackAndVoidsItsReaders) {
  StoreWorld w;
  const WriteGrant grant = w.Create(Id(1), 2 << 20);
  const auto reader = w.Stream(Id(1));
  ASSERT_THAT(w.Publish(grant.writer, 10), IsOk());
  w.Run([&] { EXPECT_THAT(w.store().Abort(w.client(), grant.writer), IsOk()); });
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  ASSERT_EQ(reader->voids.size(), 1u);
  EXPECT_EQ(reader->voids[0].code(), absl::StatusCode::kAborted);
  EXPECT_EQ(w.pulls().aborted.size(), 1u);
  // The reader waits on: the shard is asked. What it holds is counted until it lets go.
  EXPECT_EQ(w.Sent<v1::Want>().size(), 1u);
  EXPECT_EQ(w.store().stats().used_bytes, uint64_t{2} << 20);
  EXPECT_THAT(w.Release(reader->view().pin), IsOk());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
}

TEST(StorePutTest, AWriterThatDiesTakesItsGenerationAndItsPagesWithIt) {
  StoreWorld w;
  const ClientId writer = w.OpenClient();
  const WriteGrant grant = w.Create(Id(1), 2 << 20, writer);
  w.CloseClient(writer, /*clean=*/false);
  EXPECT_EQ(w.Sent<v1::Withdraw>().size(), 1u);
  EXPECT_TRUE(w.store().Copies().empty());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
  EXPECT_GE(w.memory().stats().condemned_bytes, uint64_t{2} << 20);
}

TEST(StorePutTest, ASupersededWriterLearnsOfItWhenItSeals) {
  StoreWorld w;
  const WriteGrant grant = w.Create(Id(1), 100);
  w.Shard(Verdict(Id(1), grant.generation, v1::Verdict::SUPERSEDED, kForeign, 100));
  EXPECT_TRUE(w.store().Copies().empty());
  EXPECT_THAT(w.Publish(grant.writer, 50), IsOk());
  const auto answer = w.StartSeal(grant.writer);
  ASSERT_THAT(**answer, IsOk());
  EXPECT_TRUE((**answer)->already_existed);
  EXPECT_TRUE(w.Sent<v1::AnnounceSeal>().empty());
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
}

TEST(StorePutTest, PutBeyondTheCapacityFailsAtOnceAndPutWithoutRoomAtItsDeadline) {
  StoreWorld w(/*capacity=*/1000);
  EXPECT_THAT(w.Put(Id(1), Content(1001)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000")));
  ASSERT_THAT(w.Put(Id(1), Content(600)), IsOk());
  PutOptions options;
  options.id = Id(2);
  options.deadline = w.now() + absl::Seconds(3);
  const auto answer = w.StartPut(options, Content(600));
  w.Pass(absl::Milliseconds(2999));
  EXPECT_FALSE(answer->has_value());
  w.Pass(absl::Milliseconds(1));
  EXPECT_THAT(**answer, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("600 of 1000")));
}

TEST(StorePutTest, DeleteMakesRoomForAPutThatWaits) {
  StoreWorld w(/*capacity=*/1000);
  const Generation g = w.Put(Id(1), Content(600))->generation;
  PutOptions options;
  options.id = Id(2);
  const auto answer = w.StartPut(options, Content(600));
  EXPECT_FALSE(answer->has_value());
  w.Shard(testing::Gone(Id(1), g, v1::Gone::DELETED));
  ASSERT_TRUE(answer->has_value());
  EXPECT_THAT(**answer, IsOk());
  EXPECT_EQ(w.Sent<v1::DeleteConfirm>().size(), 1u);
}

TEST(StorePutTest, MetadataAndRecordsCountTowardTheCapacity) {
  StoreOptions store_options;
  store_options.record_bytes = 1000;
  StoreWorld w(/*capacity=*/10'000, store_options);
  PutOptions options;
  options.metadata = std::string(1500, 'm');
  for (int i = 1; i <= 4; ++i) {
    options.id = Id(i);
    const auto answer = w.StartPut(options, "");
    ASSERT_TRUE(answer->has_value());
    EXPECT_THAT(**answer, IsOk());
    EXPECT_EQ(w.store().stats().used_bytes, 2500u * i);
  }
  options.id = Id(5);
  options.deadline = w.now() + absl::Seconds(3);
  const auto full = w.StartPut(options, "");
  w.Pass(absl::Seconds(3));
  EXPECT_THAT(**full, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10000 of 10000")));
  options.metadata.clear();
  EXPECT_THAT(w.Put(Id(6), Content(9001)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10001")));
}

TEST(StorePutTest, MemoryThatTheSystemDoesNotHaveIsAStatus) {
  StoreWorld w;
  w.memory().FailNext(1);
  EXPECT_THAT(w.Put(Id(1), "bytes"), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(w.store().stats().used_bytes, 0u);
  EXPECT_THAT(w.Put(Id(1), "bytes"), IsOk());
}

TEST(StorePutTest, ACancelledCreateLeavesNothingWhateverStageItHadReached) {
  StoreWorld w;
  for (const bool granted : {false, true}) {
    RequestId request = 0;
    bool called = false;
    PutOptions options;
    options.id = Id(1);
    w.Run([&] {
      request = w.store().Create(w.client(), options, 100,
                                 [&](absl::StatusOr<WriteGrant>) { called = true; });
      if (!granted) w.store().Cancel(w.client(), request);
    });
    EXPECT_EQ(called, granted);
    if (granted) w.CloseClient(w.client(), true);
    EXPECT_EQ(w.store().stats().used_bytes, 0u);
    EXPECT_TRUE(w.store().Copies().empty());
  }
}

}  // namespace
}  // namespace phalanx::object_store
