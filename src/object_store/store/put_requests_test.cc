#include "src/object_store/store/put_requests.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/store_parts.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Kinds;
using testing::StoreParts;

class PutRequestsTest : public StoreParts {
 protected:
  ~PutRequestsTest() override { PHALANX_EXPECT_OK(puts_.CheckInvariants()); }

  void GiveMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) override {
    puts_.OnMemory(*requests_.Find(owner.request), std::move(block));
  }
  static PutOptions Options(int i) {
    PutOptions options;
    options.id = Id(i);
    return options;
  }
  PutDone Outcome() {
    return [this](absl::StatusOr<PutResult> result) { outcomes_.push_back(std::move(result)); };
  }
  RequestId Put(PutOptions options, const std::string& bytes) {
    RequestId id = 0;
    Run([&] { id = puts_.Put(client_, std::move(options), bytes, Outcome()); });
    return id;
  }
  RequestId Create(PutOptions options, uint64_t size) {
    RequestId id = 0;
    Run([&] {
      id = puts_.Create(client_, std::move(options), size,
                        [this](absl::StatusOr<WriteGrant> grant) { grants_.push_back(grant); });
    });
    HandOut();
    return id;
  }
  // The grant of a new object of 8 bytes.
  WriteGrant Grant(int i = 1) {
    Create(Options(i), 8);
    return *grants_.back();
  }
  void Seal(WriterId writer, bool wait_for_adoption = false) {
    Run([&] { puts_.Seal(client_, writer, wait_for_adoption, Outcome()); });
    HandOut();
  }
  absl::Status Publish(WriterId writer, uint64_t n) {
    absl::Status status;
    Run([&] { status = puts_.Publish(client_, writer, n); });
    return status;
  }
  bool Answer(Copy* copy, const absl::StatusOr<PutResult>& outcome) {
    bool answered = false;
    Run([&] { answered = puts_.AnswerCreator(copy, outcome); });
    HandOut();
    return answered;
  }
  Copy* TheCopy(int i = 1) { return table_.First(Id(i)); }

  std::vector<absl::StatusOr<PutResult>> outcomes_;
  std::vector<absl::StatusOr<WriteGrant>> grants_;
  PutRequests puts_{options_, loop_,     turns_,        requests_, table_,
                    copies_,  reporter_, memory_queue_, pulls_,    peers_};
};

// ------------------------------------------------------------------------------------------ Put

TEST_F(PutRequestsTest, APutIsACompletePrimaryCopyThatIsAnnouncedWithItsBytes) {
  Put(Options(1), "1234");
  HandOut();
  ASSERT_EQ(outcomes_.size(), 1u);
  PHALANX_ASSERT_OK(outcomes_[0]);
  EXPECT_FALSE(outcomes_[0]->already_existed);
  const Copy* copy = TheCopy();
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->generation, outcomes_[0]->generation);
  EXPECT_EQ(copy->state, CopyState::kComplete);
  EXPECT_EQ(copy->standing, Standing::kPending);
  EXPECT_TRUE(copy->primary);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].announce_create().complete());
  EXPECT_EQ(sent_[0].announce_create().inline_bytes(), "1234");
}

TEST_F(PutRequestsTest, EachPutHasAGenerationOfItsOwn) {
  Put(Options(1), "1234");
  Put(Options(2), "1234");
  HandOut();
  EXPECT_NE(outcomes_.at(0)->generation, outcomes_.at(1)->generation);
  EXPECT_EQ(outcomes_.at(1)->generation.creator, kSelf);
}

TEST_F(PutRequestsTest, APutThatWaitsForItsVerdictIsAnsweredWithIt) {
  PutOptions options = Options(1);
  options.wait_for_adoption = true;
  Put(options, "1234");
  HandOut();
  EXPECT_TRUE(outcomes_.empty());
  EXPECT_TRUE(Answer(TheCopy(), PutResult{true, Generation{kPeer, 5}}));
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]->already_existed);
  EXPECT_FALSE(Answer(TheCopy(), PutResult())) << "once";
}

TEST_F(PutRequestsTest, AnObjectThatIsHereIsNotPutAgain) {
  AddCopy(1, CopyState::kComplete, 4);
  Put(Options(1), "1234");
  Put(Options(1), "12345");
  HandOut();
  ASSERT_EQ(outcomes_.size(), 2u);
  EXPECT_TRUE(outcomes_[0]->already_existed);
  EXPECT_EQ(outcomes_[0]->generation.creator, kPeer);
  EXPECT_THAT(outcomes_[1], StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Sent(), Kinds{});
  EXPECT_EQ(table_.used_bytes(), 4u);
}

TEST_F(PutRequestsTest, AnObjectThatArrivesWhileThePutWaitsForMemoryEndsThePut) {
  Copy* full = AddCopy(2, CopyState::kWriting, 994);
  Put(Options(1), "12345678");
  AddCopy(1, CopyState::kComplete, 6);
  Run([&] { table_.Detach(full); });
  Run([&] { memory_queue_.HandOut(); });
  HandOut();
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(table_.used_bytes(), 6u) << "the memory is given back";
}

TEST_F(PutRequestsTest, ImpossibleArgumentsAreRefused) {
  PutOptions options = Options(1);
  options.slices = kMaxSlices + 1;
  Put(options, "1234");
  options = Options(1);
  options.metadata = std::string(kMaxMetadataBytes + 1, 'm');
  Put(options, "1234");
  options = Options(1);
  options.refers_to = "no id";
  Put(options, "1234");
  Put(Options(1), std::string(kOwnFileBytes + 1, 'x'));
  HandOut();
  ASSERT_EQ(outcomes_.size(), 4u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(outcomes_[i], StatusIs(absl::StatusCode::kInvalidArgument)) << i;
  }
  EXPECT_THAT(outcomes_[3], StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(TheCopy(), nullptr);
}

TEST_F(PutRequestsTest, APutOfAnObjectThatIsFetchedIsAStandby) {
  pulls_.Want(Id(1));
  v1::Assign assign;
  directory::ToProto(Generation{kPeer, 5}, assign.mutable_generation());
  directory::ToProto(kPeer, assign.mutable_sender());
  assign.mutable_info()->set_size_bytes(4);
  assign.mutable_info()->set_slices(1);
  assign.set_plan_id(1);
  assign.set_slices(1);
  pulls_.OnAssign(Id(1), assign, Instant());
  Put(Options(1), "1234");
  HandOut();
  EXPECT_EQ(TheCopy()->standing, Standing::kStandby);
  pulls_.Unwant(Id(1));
}

// ------------------------------------------------------------------------- Create, Publish, Seal

TEST_F(PutRequestsTest, ACreateGrantsAPinnedCopyThatIsAnnounced) {
  const WriteGrant grant = Grant();
  EXPECT_EQ(TheCopy()->state, CopyState::kWriting);
  EXPECT_EQ(TheCopy()->pins, 1u);
  EXPECT_EQ(grant.generation, TheCopy()->generation);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_FALSE(sent_[0].announce_create().complete());
  EXPECT_EQ(puts_.writers().size(), 1u);
}

TEST_F(PutRequestsTest, PublishedBytesOnlyGrow) {
  const WriteGrant grant = Grant();
  PHALANX_EXPECT_OK(Publish(grant.writer, 5));
  EXPECT_EQ(TheCopy()->buffer->watermark(0), 5u);
  EXPECT_THAT(Publish(grant.writer, 4), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Publish(grant.writer, 9), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Publish(grant.writer + 100, 6), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PutRequestsTest, ASealCompletesTheCopyAndEndsTheWriter) {
  const WriteGrant grant = Grant();
  Sent();
  Seal(grant.writer);
  PHALANX_EXPECT_OK(outcomes_.at(0));
  EXPECT_EQ(TheCopy()->state, CopyState::kComplete);
  EXPECT_EQ(TheCopy()->pins, 0u);
  EXPECT_EQ(Sent(), Kinds{"announce_seal"});
  Seal(grant.writer);
  EXPECT_THAT(outcomes_.at(1), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PutRequestsTest, ASealWaitsForTheTimeoutOfItsCreate) {
  PutOptions options = Options(1);
  options.deadline = Now() + absl::Seconds(3);
  Create(options, 8);
  Pass(absl::Seconds(1));
  Seal(grants_.at(0)->writer, /*wait_for_adoption=*/true);
  EXPECT_TRUE(outcomes_.empty());
  EXPECT_EQ(requests_.NextDeadline(), Now() + absl::Seconds(3));
}

TEST_F(PutRequestsTest, ASealOfAnAdoptedGenerationDoesNotWait) {
  const WriteGrant grant = Grant();
  TheCopy()->standing = Standing::kAdopted;
  Seal(grant.writer, /*wait_for_adoption=*/true);
  EXPECT_EQ(outcomes_.size(), 1u);
}

TEST_F(PutRequestsTest, AnAdoptedCompleteGenerationWinsOverTheWriter) {
  const WriteGrant grant = Grant();
  AddCopy(1, CopyState::kComplete, 8);
  Sent();
  Seal(grant.writer);
  EXPECT_TRUE(outcomes_.at(0)->already_existed);
  EXPECT_EQ(outcomes_.at(0)->generation.creator, kPeer);
  EXPECT_EQ(Sent(), Kinds{"withdraw"});
  EXPECT_EQ(table_.Find(Id(1), grant.generation), nullptr);
}

TEST_F(PutRequestsTest, AnOutcomeBeforeTheSealIsKeptForIt) {
  const WriteGrant grant = Grant();
  Copy* copy = TheCopy();
  EXPECT_TRUE(Answer(copy, absl::NotFoundError("deleted")));
  Run([&] { copies_.Drop(copy, absl::NotFoundError("deleted")); });
  Seal(grant.writer);
  EXPECT_THAT(outcomes_.at(0), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PutRequestsTest, AGenerationThatTheShardNamedIsCreatedOnce) {
  PutOptions options = Options(1);
  options.generation = Generation{kPeer, 7};
  Create(options, 8);
  PHALANX_ASSERT_OK(grants_.at(0));
  EXPECT_FALSE(TheCopy()->primary) << "several nodes make it";
  Create(options, 8);
  EXPECT_THAT(grants_.at(1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(table_.used_bytes(), 8u);
}

TEST_F(PutRequestsTest, ACreateTakesItsMemoryOutOfAReservation) {
  PutOptions options = Options(1);
  std::shared_ptr<Reservation> reservation;
  Run([&] {
    memory_queue_.Reserve(client_, Id(1), 10, Instant::Infinite(),
                          [&](auto result) { reservation = *std::move(result); });
  });
  HandOut();
  options.memory = reservation;
  Create(options, 8);
  PHALANX_EXPECT_OK(grants_.at(0));
  EXPECT_EQ(reservation->bytes(), 2u);
  options.id = Id(2);
  Create(options, 3);
  EXPECT_THAT(grants_.at(1), StatusIs(absl::StatusCode::kInvalidArgument)) << "two bytes are left";
  options.memory.reset();
  Run([&] { reservation.reset(); });
}

// ------------------------------------------------------------------------------------ the end

TEST_F(PutRequestsTest, AnAbortWithdrawsTheCopy) {
  const WriteGrant grant = Grant();
  Sent();
  Run([&] { PHALANX_EXPECT_OK(puts_.Abort(client_, grant.writer)); });
  EXPECT_EQ(TheCopy(), nullptr);
  EXPECT_EQ(table_.used_bytes(), 0u);
  EXPECT_EQ(Sent(), Kinds{"withdraw"});
  Run([&] {
    EXPECT_THAT(puts_.Abort(client_, grant.writer), StatusIs(absl::StatusCode::kNotFound));
  });
}

TEST_F(PutRequestsTest, ACancelledCreateAbortsAGrantThatWasNotHandedOut) {
  Run([&] { puts_.Create(client_, Options(1), 8, [](absl::StatusOr<WriteGrant>) { FAIL(); }); });
  ASSERT_EQ(puts_.writers().size(), 1u);
  Request& request = *requests_.Find(requests_.TakeAnswers().at(0));
  Run([&] {
    puts_.Cancel(request);
    requests_.Erase(request);
  });
  EXPECT_TRUE(puts_.writers().empty());
  EXPECT_EQ(TheCopy(), nullptr);
}

TEST_F(PutRequestsTest, ACancelledPutIsNotAnsweredWithTheVerdict) {
  PutOptions options = Options(1);
  options.wait_for_adoption = true;
  const RequestId put = Put(options, "1234");
  Run([&] {
    puts_.Cancel(*requests_.Find(put));
    requests_.Erase(*requests_.Find(put));
  });
  EXPECT_EQ(TheCopy()->waiting_put, 0u);
  EXPECT_FALSE(Answer(TheCopy(), PutResult()));
}

TEST_F(PutRequestsTest, TheWritersOfAClientThatEndsAreAborted) {
  Grant(1);
  Grant(2);
  Sent();
  Run([&] { puts_.CloseClient(*requests_.FindClient(client_), /*clean=*/false); });
  EXPECT_TRUE(puts_.writers().empty());
  EXPECT_EQ(Sent(), (Kinds{"withdraw", "withdraw"}));
  EXPECT_EQ(table_.used_bytes(), 0u);
}

TEST_F(PutRequestsTest, AReductionsResultIsAnnouncedAgain) {
  Put(Options(1), "1234");
  HandOut();
  sent_.clear();
  const Generation generation = TheCopy()->generation;
  const auto version = SlotVersion::FromGeneration({{9, 9}, 1});
  Run([&] {
    puts_.AnnounceAgain(Id(1), generation, version);
    puts_.AnnounceAgain(Id(2), generation, version);
  });
  ASSERT_EQ(sent_.size(), 1u) << "the other is not here";
  EXPECT_EQ(sent_[0].announce_create().inline_bytes(), "1234");
  EXPECT_EQ(sent_[0].announce_create().version().creator().node(), 9u);
}

}  // namespace
}  // namespace phalanx::object_store
