// The pull manager alone: what it decides for each message, in order.
#include "src/object_store/pulls/pull_manager.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {
namespace {

using phalanx::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const NodeKey kPeer{0xB, 1};
const NodeKey kOther{0xC, 1};
const Generation kFirst{kPeer, 1};
const Generation kSecond{kPeer, 2};

ObjectId Id() { return ObjectId::FromName("test", "object"); }

v1::Assign Assign(const Generation& generation, PlanId plan, const NodeKey& sender = kPeer,
                  uint64_t size = 100) {
  v1::Assign assign;
  SetSubject(Id(), generation, &assign);
  assign.mutable_info()->set_size_bytes(size);
  assign.mutable_info()->set_slices(1);
  assign.set_plan_id(plan);
  directory::ToProto(sender, assign.mutable_sender());
  assign.set_slices(1);
  return assign;
}

v1::Deliver Deliver(const Generation& generation, const std::string& bytes) {
  v1::Deliver deliver;
  SetSubject(Id(), generation, &deliver);
  deliver.mutable_info()->set_size_bytes(bytes.size());
  deliver.mutable_info()->set_slices(1);
  deliver.set_inline_bytes(bytes);
  return deliver;
}

// Effects as words.
class Words {
 public:
  std::string operator()(const ReportToShard& e) {
    const v1::NodeMessage& m = e.message;
    if (m.has_want()) {
      want = m.want().number();
      if (m.want().has_no_room_for()) {
        return absl::StrCat("want, no room for #", m.want().no_room_for().sequence());
      }
      return m.want().keep() ? "want to keep" : "want";
    }
    if (m.has_unwant()) return "unwant";
    if (m.has_withdraw()) return absl::StrCat("withdraw #", m.withdraw().generation().sequence());
    const v1::PullReport& r = m.pull_report();
    return absl::StrCat("report plan ", r.plan_id(), r.complete() ? " complete" : " code ",
                        r.complete() ? "" : absl::StrCat(r.code()));
  }
  std::string operator()(const ReserveMemory& e) {
    token = e.token;
    return absl::StrCat("reserve ", e.target.size_bytes, " for #", e.target.generation.sequence);
  }
  std::string operator()(const ForgetMemory&) { return "forget memory"; }
  std::string operator()(const StartPull& e) {
    number = e.number;
    return absl::StrCat("start #", e.generation.sequence, " plan ", e.source.plan);
  }
  std::string operator()(const CancelPull&) { return "cancel"; }
  std::string operator()(const FillCopy& e) { return absl::StrCat("fill ", e.bytes); }
  std::string operator()(const DropPartial& e) {
    return absl::StrCat("drop #", e.generation.sequence);
  }
  std::string operator()(const CompleteCopy& e) {
    return absl::StrCat("complete #", e.generation.sequence, e.keep ? " kept" : "");
  }
  std::string operator()(const EndGets& e) {
    return absl::StrCat("end ", absl::StatusCodeToString(e.why.code()));
  }
  uint64_t token = 0;
  uint64_t want = 0;
  uint64_t number = 0;  // of the last pull that was started
};

class PullManagerTest : public ::testing::Test {
 protected:
  ~PullManagerTest() override { EXPECT_THAT(pulls_.CheckInvariants(), IsOk()); }

  std::vector<std::string> Did() {
    EXPECT_THAT(pulls_.CheckInvariants(), IsOk());
    std::vector<std::string> did;
    for (const PullEffect& effect : pulls_.TakeEffects()) did.push_back(std::visit(words_, effect));
    return did;
  }
  void Memory(absl::Status status = absl::OkStatus()) {
    pulls_.OnMemory(Id(), words_.token, status);
  }
  void Done(absl::Status status, bool complete = false) {
    Done(words_.number, std::move(status), complete);
  }
  void Done(uint64_t number, absl::Status status, bool complete = false) {
    PullEnd end;
    end.number = number;
    end.outcome.status = std::move(status);
    end.complete = complete;
    pulls_.OnPullDone(Id(), std::move(end));
  }
  // Up to a running pull of the first generation under plan 1.
  void Pulling() {
    pulls_.Want(Id());
    pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
    Did();
    Memory();
    ASSERT_THAT(Did(), ElementsAre("start #1 plan 1"));
  }

  static v1::Assign Half(PlanId plan, uint64_t slices, const NodeKey& sender) {
    v1::Assign assign = Assign(kFirst, plan, sender);
    assign.mutable_info()->set_slices(2);
    assign.set_slices(slices);
    return assign;
  }
  // Up to two running pulls, under plans 1 and 2; returns the number of the first.
  uint64_t PullingHalves() {
    pulls_.Want(Id());
    pulls_.OnAssign(Id(), Half(1, 1, kPeer), Instant());
    Did();
    Memory();
    Did();
    const uint64_t first = words_.number;
    pulls_.OnAssign(Id(), Half(2, 2, kOther), Instant());
    EXPECT_THAT(Did(), ElementsAre("start #1 plan 2"));
    return first;
  }

  PullManager pulls_;
  Words words_;
};

TEST_F(PullManagerTest, AnObjectIsWantedOnceReservedPulledAndReported) {
  pulls_.Want(Id());
  pulls_.Want(Id());
  EXPECT_THAT(Did(), ElementsAre("want"));
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  EXPECT_THAT(Did(), ElementsAre("reserve 100 for #1"));
  Memory();
  EXPECT_THAT(Did(), ElementsAre("start #1 plan 1"));
  Done(absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 1 complete", "complete #1"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, APlanThatComesWhileMemoryIsWaitedForTakesTheOthersPlace) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  pulls_.OnAssign(Id(), Assign(kFirst, 2, kOther), Instant());
  EXPECT_THAT(Did(), IsEmpty());
  Memory();
  EXPECT_THAT(Did(), ElementsAre("start #1 plan 2"));
}

TEST_F(PullManagerTest, AnotherGenerationForgetsTheMemoryThatWasWaitedFor) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  const uint64_t old_token = words_.token;
  pulls_.OnAssign(Id(), Assign(kSecond, 2), Instant());
  EXPECT_THAT(Did(), ElementsAre("forget memory", "reserve 100 for #2"));
  EXPECT_FALSE(pulls_.OnMemory(Id(), old_token, absl::OkStatus()));
  EXPECT_TRUE(pulls_.OnMemory(Id(), words_.token, absl::OkStatus()));
  EXPECT_THAT(Did(), ElementsAre("start #2 plan 2"));
}

TEST_F(PullManagerTest, TheNextPullStartsAfterTheEndOfTheCancelledOneIsReported) {
  Pulling();
  pulls_.OnAssign(Id(), Assign(kFirst, 2, kOther), Instant());
  EXPECT_THAT(Did(), ElementsAre("cancel"));
  pulls_.OnAssign(Id(), Assign(kFirst, 3, kOther), Instant());
  EXPECT_THAT(Did(), IsEmpty());
  Done(absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1", "start #1 plan 3"));
}

TEST_F(PullManagerTest, ACancelledPullThatWasCompleteAfterAllIsReportedUnderTheLatestPlan) {
  Pulling();
  pulls_.OnAssign(Id(), Assign(kFirst, 2, kOther), Instant());
  Did();
  Done(absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 0", "report plan 2 complete", "complete #1"));
}

// ---- pulls of disjoint slices

TEST_F(PullManagerTest, TwoPullsOfDisjointSlicesRunTogetherAndTheLastOneCompletesTheCopy) {
  const uint64_t first = PullingHalves();
  const uint64_t second = words_.number;
  Done(first, absl::OkStatus());
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 0"));
  Done(second, absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 2 complete", "complete #1"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, ACopyWithoutASenderOfSomeSlicesIsIdle) {
  const uint64_t first = PullingHalves();
  EXPECT_FALSE(pulls_.Idle(Id()));
  Done(first, absl::UnavailableError(""));
  EXPECT_TRUE(pulls_.Idle(Id()));
  pulls_.OnAssign(Id(), Half(3, 1, kPeer), Instant());
  EXPECT_FALSE(pulls_.Idle(Id()));
  Did();
  // These slices are here, and the others still come.
  Done(absl::OkStatus());
  EXPECT_FALSE(pulls_.Idle(Id()));
}

TEST_F(PullManagerTest, ACopyIsCompleteOnlyWhenItsLastPullHasEnded) {
  const uint64_t first = PullingHalves();
  const uint64_t second = words_.number;
  // The bytes of both are here, and the outcome of one.
  Done(first, absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 0"));
  Done(second, absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 2 complete", "complete #1"));
}

TEST_F(PullManagerTest, AnAssignReplacesThePullsOfItsSlicesOnly) {
  const uint64_t first = PullingHalves();
  pulls_.OnAssign(Id(), Half(3, 1, kOther), Instant());
  EXPECT_THAT(Did(), ElementsAre("cancel"));
  Done(first, absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1", "start #1 plan 3"));
}

TEST_F(PullManagerTest, APullOfAllSlicesStartsWhenEveryOtherHasEnded) {
  const uint64_t first = PullingHalves();
  const uint64_t second = words_.number;
  EXPECT_TRUE(pulls_.PullsInParts(Id()));
  pulls_.OnAssign(Id(), Half(3, 3, kOther), Instant());
  EXPECT_THAT(Did(), ElementsAre("cancel", "cancel"));
  Done(first, absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1"));
  Done(second, absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 2 code 1", "start #1 plan 3"));
  EXPECT_FALSE(pulls_.PullsInParts(Id()));
}

TEST_F(PullManagerTest, TheSameSenderUnderANewPlanContinues) {
  Pulling();
  pulls_.OnAssign(Id(), Assign(kFirst, 2), Instant());
  EXPECT_THAT(Did(), IsEmpty());
  Done(absl::UnavailableError("died"));
  EXPECT_THAT(Did(), ElementsAre("report plan 2 code 14"));
}

TEST_F(PullManagerTest, ALatePlanOfTheSameGenerationIsIgnored) {
  Pulling();
  pulls_.OnAssign(Id(), Assign(kFirst, 1, kOther), Instant());
  EXPECT_THAT(Did(), IsEmpty());
  pulls_.Register(0, 1);
  pulls_.OnAssign(Id(), Assign(kFirst, 1, kOther), Instant());
  EXPECT_THAT(Did(), ElementsAre("cancel"));
}

TEST_F(PullManagerTest, AnAssignThatAnswersAnEarlierWantIsIgnored) {
  pulls_.Want(Id());
  Did();
  v1::Assign crossing = Assign(kFirst, 1);
  crossing.set_want(words_.want);
  pulls_.Unwant(Id());
  pulls_.Want(Id());
  EXPECT_THAT(Did(), ElementsAre("unwant", "want"));
  pulls_.OnAssign(Id(), crossing, Instant());
  EXPECT_THAT(Did(), IsEmpty()) << "the shard has struck us from the copies of that generation";
  v1::Assign answer = Assign(kSecond, 2);
  answer.set_want(words_.want);
  pulls_.OnAssign(Id(), answer, Instant());
  EXPECT_THAT(Did(), ElementsAre("reserve 100 for #2"));
  // As is one from before a session in which the want was registered again.
  answer.set_want(pulls_.Register(0, 1).front().number() - 1);
  answer.set_plan_id(3);
  pulls_.OnAssign(Id(), answer, Instant());
  EXPECT_EQ(pulls_.Target(Id())->generation, kSecond);
  EXPECT_THAT(Did(), IsEmpty());
}

TEST_F(PullManagerTest, AnUnwantEndsThePullAtEachStage) {
  pulls_.Want(Id());
  pulls_.Unwant(Id());
  EXPECT_THAT(Did(), ElementsAre("want", "unwant"));
  EXPECT_EQ(pulls_.size(), 0u);

  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  pulls_.Unwant(Id());
  EXPECT_THAT(Did(), ElementsAre("unwant", "forget memory"));
  EXPECT_EQ(pulls_.size(), 0u);

  Pulling();
  pulls_.Unwant(Id());
  EXPECT_THAT(Did(), ElementsAre("unwant", "withdraw #1", "cancel", "drop #1"));
  EXPECT_EQ(pulls_.size(), 1u) << "until the end of the pull is reported";
  Done(absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, ANewWantWaitsForTheEndOfTheOldPull) {
  Pulling();
  pulls_.Unwant(Id());
  pulls_.Want(Id());
  Did();
  pulls_.OnAssign(Id(), Assign(kFirst, 2), Instant());
  EXPECT_THAT(Did(), ElementsAre("reserve 100 for #1"));
  Memory();
  EXPECT_THAT(Did(), IsEmpty());
  Done(absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1", "start #1 plan 2"));
}

TEST_F(PullManagerTest, ADeliveryEndsTheWant) {
  pulls_.Want(Id());
  Did();
  pulls_.OnDeliver(Id(), Deliver(kFirst, "bytes"), Instant());
  EXPECT_THAT(Did(), ElementsAre("reserve 5 for #1"));
  Memory();
  EXPECT_THAT(Did(), ElementsAre("fill bytes", "complete #1"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, ADeliveryThatIsUnwantedBeforeItsMemoryIsReservedIsWithdrawn) {
  pulls_.Want(Id());
  pulls_.OnDeliver(Id(), Deliver(kFirst, "bytes"), Instant());
  Did();
  pulls_.Unwant(Id());
  EXPECT_THAT(Did(), ElementsAre("withdraw #1", "forget memory"));
}

TEST_F(PullManagerTest, ADeliveryOverARunningPullOfTheSameGenerationFillsTheRest) {
  Pulling();
  v1::Deliver deliver = Deliver(kFirst, std::string(100, 'x'));
  pulls_.OnDeliver(Id(), deliver, Instant());
  EXPECT_THAT(Did(), ElementsAre("cancel"));
  Done(absl::CancelledError(""));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1",
                                 absl::StrCat("fill ", std::string(100, 'x')), "complete #1"));
}

TEST_F(PullManagerTest, AVoidGenerationIsDroppedAndTheWantStays) {
  Pulling();
  pulls_.OnVoid(Id(), kSecond, absl::AbortedError(""));
  EXPECT_THAT(Did(), IsEmpty());
  pulls_.OnVoid(Id(), kFirst, absl::AbortedError(""));
  EXPECT_THAT(Did(), ElementsAre("cancel", "drop #1"));
  Done(absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 1")) << "late: not a complete copy";
  EXPECT_TRUE(pulls_.Wants(Id()));
}

TEST_F(PullManagerTest, AVoidDeliveryIsRequestedAgain) {
  pulls_.Want(Id());
  pulls_.OnDeliver(Id(), Deliver(kFirst, "bytes"), Instant());
  Did();
  pulls_.OnVoid(Id(), kFirst, absl::AbortedError(""));
  EXPECT_THAT(Did(), ElementsAre("forget memory", "want"));
}

TEST_F(PullManagerTest, DeletionEndsTheGetsBoundToTheGenerationOnly) {
  Pulling();
  pulls_.OnDeleted(Id(), kSecond, absl::NotFoundError(""));
  EXPECT_THAT(Did(), IsEmpty());
  pulls_.OnDeleted(Id(), kFirst, absl::NotFoundError(""));
  EXPECT_THAT(Did(), ElementsAre("unwant", "cancel", "drop #1", "end NOT_FOUND"));
}

TEST_F(PullManagerTest, ARefusalOfAnEarlierWantIsIgnored) {
  pulls_.Want(Id());
  Did();
  const uint64_t earlier = words_.want;
  pulls_.Unwant(Id());
  pulls_.Want(Id());
  EXPECT_THAT(Did(), ElementsAre("unwant", "want"));
  pulls_.OnRefused(Id(), earlier, absl::CancelledError("its producer ended"));
  EXPECT_THAT(Did(), IsEmpty()) << "the shard has the later Want, and will answer it";
  pulls_.OnRefused(Id(), words_.want, absl::CancelledError("its producer ended"));
  EXPECT_THAT(Did(), ElementsAre("end CANCELLED"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, WithoutMemoryThePullIsReportedAndTheGetsEnd) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  Memory(absl::ResourceExhaustedError("none"));
  EXPECT_THAT(Did(), ElementsAre("report plan 1 code 8", "end RESOURCE_EXHAUSTED", "unwant"));
  EXPECT_EQ(pulls_.size(), 0u);
}

TEST_F(PullManagerTest, AParkedPullRequestsASenderWhenItHasMemory) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  EXPECT_THAT(Did(), ElementsAre("want", "reserve 100 for #1"));
  pulls_.OnNoRoom(Id(), words_.token);
  EXPECT_THAT(Did(), ElementsAre("want, no room for #1"));
  v1::Assign crossed = Assign(kFirst, 2);
  crossed.set_want(words_.want - 1);
  pulls_.OnAssign(Id(), crossed, Instant());
  EXPECT_THAT(Did(), IsEmpty());
  Memory();
  EXPECT_THAT(Did(), ElementsAre("want"));
  pulls_.OnAssign(Id(), Assign(kFirst, 3, kOther), Instant());
  EXPECT_THAT(Did(), ElementsAre("start #1 plan 3"));
  Done(absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 3 complete", "complete #1"));
}

TEST_F(PullManagerTest, ADeliveryWithoutMemoryIsWithdrawnAndRequestedWhenMemoryIsFree) {
  pulls_.Want(Id());
  pulls_.OnDeliver(Id(), Deliver(kFirst, "abc"), Instant());
  Did();
  pulls_.OnNoRoom(Id(), words_.token);
  EXPECT_THAT(Did(), ElementsAre("withdraw #1", "want, no room for #1"));
  pulls_.OnDeliver(Id(), Deliver(kFirst, "abc"), Instant());
  EXPECT_THAT(Did(), ElementsAre("withdraw #1", "want, no room for #1")) << "it had crossed";
  Memory();
  EXPECT_THAT(Did(), ElementsAre("want"));
  pulls_.OnDeliver(Id(), Deliver(kFirst, "abc"), Instant());
  EXPECT_THAT(Did(), ElementsAre("fill abc", "complete #1"));
}

TEST_F(PullManagerTest, AnAssignThatKnowsNothingOfTheLackIsAnsweredByIt) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  pulls_.OnNoRoom(Id(), words_.token);
  Did();
  pulls_.OnAssign(Id(), Assign(kFirst, 2), Instant());
  EXPECT_THAT(Did(), ElementsAre("want, no room for #1"));
}

TEST_F(PullManagerTest, AnotherGenerationEndsTheParkingOfTheFirst) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  pulls_.OnNoRoom(Id(), words_.token);
  Did();
  pulls_.OnAssign(Id(), Assign(kSecond, 2, kPeer, 7), Instant());
  EXPECT_THAT(Did(), ElementsAre("forget memory", "reserve 7 for #2"));
  pulls_.OnNoRoom(Id(), words_.token);
  EXPECT_THAT(Did(), ElementsAre("want, no room for #2"));
  pulls_.OnVoid(Id(), kSecond, absl::AbortedError("void"));
  EXPECT_THAT(Did(), ElementsAre("forget memory", "want"));
}

TEST_F(PullManagerTest, AParkedPullIsRegisteredInANewSessionAsAnOpenWant) {
  pulls_.Want(Id());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  pulls_.OnNoRoom(Id(), words_.token);
  Did();
  EXPECT_EQ(pulls_.Register(0, 1).size(), 1u);
  EXPECT_THAT(Did(), ElementsAre("forget memory"));
}

TEST_F(PullManagerTest, AFetchThatADeliveryAnswersIsConfirmedUnderItsPlan) {
  pulls_.Want(Id());
  pulls_.OnDeliver(Id(), Deliver(kFirst, "abc"), Instant());
  pulls_.Fetch(Id(), true, 9);
  pulls_.ConfirmDelivery(Id(), 9);
  EXPECT_THAT(Did(), ElementsAre("want", "reserve 3 for #1"));
  Memory();
  EXPECT_THAT(Did(), ElementsAre("fill abc", "report plan 9 complete", "complete #1 kept"));
}

TEST_F(PullManagerTest, MemoryIsYieldedOnlyWhileNothingFeedsIt) {
  Pulling();
  EXPECT_FALSE(pulls_.Yield(Id(), kFirst));
  pulls_.OnAssign(Id(), Assign(kFirst, 2, kOther), Instant());
  Did();
  Done(absl::CancelledError(""));
  Did();
  Done(absl::UnavailableError(""));
  Did();
  EXPECT_FALSE(pulls_.Yield(Id(), kSecond));
  EXPECT_TRUE(pulls_.Yield(Id(), kFirst));
  EXPECT_THAT(Did(), ElementsAre("withdraw #1", "drop #1"));
  EXPECT_FALSE(pulls_.Yield(Id(), kFirst));
  pulls_.OnAssign(Id(), Assign(kFirst, 3), Instant());
  EXPECT_THAT(Did(), ElementsAre("reserve 100 for #1"));
}

TEST_F(PullManagerTest, TheNodesOwnFetchOutlivesItsClientsAndKeepsTheCopy) {
  pulls_.Fetch(Id(), true, 9);
  EXPECT_THAT(Did(), ElementsAre("want to keep"));
  pulls_.Want(Id());
  pulls_.Unwant(Id());
  EXPECT_THAT(Did(), IsEmpty());
  pulls_.OnAssign(Id(), Assign(kFirst, 1), Instant());
  Did();
  Memory();
  Did();
  Done(absl::OkStatus(), true);
  EXPECT_THAT(Did(), ElementsAre("report plan 1 complete", "complete #1 kept"));
}

// Whatever became of the want meanwhile: the shard waits for one word or the other.
TEST_F(PullManagerTest, AFetchThatFailsIsReportedToTheShard) {
  pulls_.Fetch(Id(), false, 9);
  pulls_.OnDeliver(Id(), Deliver(kFirst, "abc"), Instant());
  for (const PullEffect& effect : pulls_.TakeEffects()) {
    if (const auto* reserve = std::get_if<ReserveMemory>(&effect)) words_.token = reserve->token;
  }
  pulls_.OnMemory(Id(), words_.token, absl::ResourceExhaustedError("it can never fit"));
  uint64_t unwanted = 0;
  for (const PullEffect& effect : pulls_.TakeEffects()) {
    const auto* report = std::get_if<ReportToShard>(&effect);
    if (report != nullptr && report->message.has_unwant())
      unwanted = report->message.unwant().fetch();
  }
  EXPECT_EQ(unwanted, 9u);
  pulls_.Want(Id());
  pulls_.Unwant(Id());
  for (const PullEffect& effect : pulls_.TakeEffects()) {
    const auto* report = std::get_if<ReportToShard>(&effect);
    if (report != nullptr && report->message.has_unwant()) {
      EXPECT_EQ(report->message.unwant().fetch(), 0u) << "a client's";
    }
  }
}

TEST_F(PullManagerTest, RegistrationListsTheWantsInOrderWithTheirSenders) {
  std::vector<std::string> ids;
  for (int i = 0; i < 10; ++i) {
    const ObjectId id = ObjectId::FromName("test", absl::StrCat(i));
    pulls_.Want(id);
    ids.push_back(IdBytes(id));
  }
  Pulling();
  ids.push_back(IdBytes(Id()));
  std::sort(ids.begin(), ids.end());
  std::vector<std::string> registered;
  for (const v1::RegisterWant& want : pulls_.Register(0, 1)) registered.push_back(want.object_id());
  EXPECT_EQ(registered, ids);
  EXPECT_EQ(pulls_.RunningSender(Id(), kFirst), kPeer);
  EXPECT_EQ(pulls_.RunningSender(Id(), kSecond), std::nullopt);
}

}  // namespace
}  // namespace phalanx::object_store
