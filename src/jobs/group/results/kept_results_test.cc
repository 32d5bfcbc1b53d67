#include "src/jobs/group/results/kept_results.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs {
namespace {

constexpr CallSpec kSum{.kind = CallKind::kAllReduce, .bytes = 8, .retain = 10, .copies = 2};

// A member on each of `nodes` nodes; so many of these are on each host.
GroupList ListOf(int nodes, int each_host) {
  GroupView view = LiveView(nodes);
  for (Member& member : view.members) {
    member.host = absl::StrCat("host", member.rank / each_host);
  }
  return MakeGroupList(view, {1, 1});
}

std::vector<uint64_t> FromTheBeginning(int nodes) {
  return std::vector<uint64_t>(static_cast<size_t>(nodes), 0);
}

TEST(HoldersOf, AreOnAsManyHostsAsThereAreCopies) {
  const GroupList list = ListOf(6, 2);
  for (uint64_t number = 1; number <= 100; ++number) {
    const std::vector<int> holders = HoldersOf(list, FromTheBeginning(6), kSum, number);
    ASSERT_EQ(holders.size(), 2u);
    EXPECT_NE(holders[0] / 2, holders[1] / 2) << number;
  }
  CallSpec many = kSum;
  many.copies = 5;
  EXPECT_EQ(HoldersOf(list, FromTheBeginning(6), many, 1).size(), 3u);
}

// The number of calls that each of eight nodes keeps, of 960 with these distances.
std::vector<int> KeptByEach(int each_host, uint64_t step) {
  const GroupList list = ListOf(8, each_host);
  std::vector<int> kept(8, 0);
  for (uint64_t number = step; number <= 960 * step; number += step) {
    for (const int node : HoldersOf(list, FromTheBeginning(8), kSum, number)) {
      ++kept[static_cast<size_t>(node)];
    }
  }
  return kept;
}

TEST(HoldersOf, EachNodeKeepsAsMuchAsTheOthersAlsoOfEverySecondCall) {
  for (const int each_host : {1, 2}) {
    for (const uint64_t step : {1, 2, 3}) {
      // In two copies over eight nodes.
      for (const int each : KeptByEach(each_host, step)) {
        EXPECT_NEAR(each, 240, 60) << "of every call number " << step;
      }
    }
  }
}

TEST(HoldersOf, ANodeAloneOnItsHostKeepsTheCallsThatItsHostKeeps) {
  const GroupList alone = ListOf(4, 1);
  const GroupList pairs = ListOf(8, 2);
  for (uint64_t number = 1; number <= 100; ++number) {
    const std::vector<int> of_alone = HoldersOf(alone, FromTheBeginning(4), kSum, number);
    const std::vector<int> of_pairs = HoldersOf(pairs, FromTheBeginning(8), kSum, number);
    ASSERT_EQ(of_alone.size(), of_pairs.size());
    for (size_t i = 0; i < of_alone.size(); ++i) EXPECT_EQ(of_alone[i], of_pairs[i] / 2);
  }
}

TEST(HoldersOf, LeavesOutNodesThatHaveNotTakenPart) {
  const GroupList list = ListOf(3, 1);
  const std::vector<uint64_t> firsts = {0, 8, 0};
  for (uint64_t number = 1; number < 8; ++number) {
    std::vector<int> holders = HoldersOf(list, firsts, kSum, number);
    std::sort(holders.begin(), holders.end());
    EXPECT_EQ(holders, (std::vector<int>{0, 2}));
  }
}

TEST(HoldersOf, TheRootOfABroadcastKeepsItOnlyIfOthersDoNotSuffice) {
  const CallSpec spec{
      .kind = CallKind::kBroadcast, .bytes = 8, .root = 1, .retain = 10, .copies = 2};
  for (uint64_t number = 1; number < 20; ++number) {
    for (const int node : HoldersOf(ListOf(3, 1), FromTheBeginning(3), spec, number)) {
      EXPECT_NE(node, 1);
    }
    EXPECT_EQ(HoldersOf(ListOf(2, 1), FromTheBeginning(2), spec, number).size(), 2u);
  }
}

class KeptResultsTest : public ::testing::Test {
 protected:
  // A result of so many bytes, in memory of the call or in that of a client.
  EndedCall Ended(uint64_t number, uint64_t bytes, bool in_input = false) {
    EndedCall call{.number = number, .spec = kSum, .members = 3, .holds = true};
    call.spec.bytes = bytes;
    auto text = std::make_shared<std::string>(bytes, static_cast<char>('a' + number % 26));
    call.result = *text;
    if (in_input) {
      call.input = text;
    } else {
      call.memory = MemoryOf(text);
    }
    return call;
  }
  static std::string Expected(uint64_t number, uint64_t bytes) {
    return std::string(bytes, static_cast<char>('a' + number % 26));
  }

  std::shared_ptr<KeptBytes> bytes_ = std::make_shared<KeptBytes>();
  KeptResults results_{bytes_};
};

TEST_F(KeptResultsTest, TheLastResultsAreKept) {
  for (uint64_t number = 1; number <= 30; ++number) results_.Add(Ended(number, 100));
  EXPECT_EQ(results_.size(), 10u);
  EXPECT_EQ(results_.Find(20), nullptr);
  for (uint64_t number = 21; number <= 30; ++number) {
    EXPECT_EQ(results_.Find(number)->bytes, Expected(number, 100));
  }
  EXPECT_EQ(bytes_->used(), 1000u);
  const ResultAnswer answer = results_.AnswerOf(20);
  EXPECT_EQ(answer.kept, Kept::kUnknown);
  EXPECT_EQ(answer.first, 21u);
  EXPECT_EQ(answer.last, 30u);
}

TEST_F(KeptResultsTest, AResultIsKeptUntilItIsReleased) {
  EndedCall call = Ended(1, 100);
  call.spec.retain = kUntilReleased;
  for (call.number = 1; call.number <= 2000; ++call.number) results_.Add(call);
  EXPECT_EQ(results_.size(), 2000u);
  results_.Release(/*boot=*/3, /*released=*/1990);
  EXPECT_EQ(results_.size(), 3u + 10u);
  EXPECT_EQ(bytes_->used(), 1300u);
  EXPECT_NE(results_.Find(3), nullptr);
  EXPECT_EQ(results_.Find(4), nullptr);
  EXPECT_NE(results_.Find(1991), nullptr);
  EXPECT_EQ(bytes_->dropped(), 0u);
  // It is ended again under another list.
  call.number = 1990;
  results_.Add(call);
  EXPECT_EQ(results_.Find(1990), nullptr);
  // Those that say a number of calls are not released so.
  results_.Add(Ended(2001, 100));
  results_.Release(3, 2001);
  EXPECT_EQ(results_.size(), 4u);
  results_.Trim(2011);
  EXPECT_EQ(results_.size(), 3u);
}

TEST_F(KeptResultsTest, TheOldestGoIfTooManyAreNotReleased) {
  EndedCall call{.spec = {.kind = CallKind::kBarrier, .retain = kUntilReleased, .copies = 2},
                 .holds = true};
  for (call.number = 1; call.number <= kMaxUnreleasedCalls + 2; ++call.number) results_.Add(call);
  EXPECT_EQ(results_.size(), kMaxUnreleasedCalls);
  EXPECT_EQ(results_.Find(2), nullptr);
  EXPECT_NE(results_.Find(3), nullptr);
  EXPECT_EQ(bytes_->dropped(), 2u);
}

TEST_F(KeptResultsTest, ThoseThatAnyNextLifeNeedsAreDroppedLast) {
  bytes_->limit = 400;
  EndedCall call = Ended(1, 100);
  call.spec.retain = kUntilReleased;
  for (call.number = 1; call.number <= 3; ++call.number) results_.Add(call);
  results_.Release(/*boot=*/2, /*released=*/2);
  KeptResults others(bytes_);
  others.Add(Ended(1, 100));
  call.number = 4;
  results_.Add(call);
  EXPECT_EQ(others.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(bytes_->dropped(), 0u);
  for (call.number = 5; call.number <= 9; ++call.number) results_.Add(call);
  for (const uint64_t kept : {1, 2, 8, 9}) EXPECT_EQ(results_.AnswerOf(kept).kept, Kept::kHere);
  for (const uint64_t lost : {3, 4, 5, 6, 7}) {
    EXPECT_EQ(results_.AnswerOf(lost).kept, Kept::kDropped);
  }
  EXPECT_EQ(bytes_->dropped(), 5u);
  // Nothing that falls is released, or kept again.
  results_.Release(1, 1);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kHere);
}

TEST_F(KeptResultsTest, ThatResultsWereDroppedBeforeTheirReleaseIsCounted) {
  bytes_->limit = 250;
  EndedCall call = Ended(1, 100);
  for (call.number = 1; call.number <= 5; ++call.number) results_.Add(call);
  EXPECT_EQ(bytes_->dropped(), 0u);
  call.spec.retain = kUntilReleased;
  for (; call.number <= 8; ++call.number) results_.Add(call);
  EXPECT_EQ(bytes_->dropped(), 1u);
  EXPECT_EQ(results_.Find(6)->kept, Kept::kDropped);
  bytes_->awaited = 1;
  EndedCall large = Ended(9, kCopiedResultBytes + 1);
  large.spec.retain = kUntilReleased;
  results_.Add(large);
  EXPECT_EQ(bytes_->dropped(), 2u);
}

TEST_F(KeptResultsTest, ANodeThatIsNoHolderKnowsOfTheCallWithoutItsBytes) {
  EndedCall call = Ended(1, 100);
  call.holds = false;
  results_.Add(call);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kElsewhere);
  EXPECT_EQ(bytes_->used(), 0u);
  // Under a later list of members it is one.
  results_.Add(Ended(1, 100));
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
}

TEST_F(KeptResultsTest, CallsThatFailedOrGiveEachMemberItsOwnPartAreKnown) {
  EndedCall call = Ended(1, 100);
  call.failed = true;
  results_.Add(call);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kFailed);
  call = Ended(2, 100);
  call.spec.kind = CallKind::kAllToAll;
  results_.Add(call);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kParts);
  EXPECT_EQ(bytes_->used(), 0u);
}

TEST_F(KeptResultsTest, TheOldestResultsAreDroppedBeyondTheLimit) {
  bytes_->limit = 250;
  for (uint64_t number = 1; number <= 3; ++number) results_.Add(Ended(number, 100));
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kHere);
  EXPECT_EQ(results_.AnswerOf(3).kept, Kept::kHere);
  EXPECT_EQ(bytes_->used(), 200u);
  results_.Add(Ended(4, 300));
  for (uint64_t number = 1; number <= 4; ++number) {
    EXPECT_EQ(results_.AnswerOf(number).kept, Kept::kDropped);
  }
  EXPECT_EQ(bytes_->used(), 0u);
}

TEST_F(KeptResultsTest, TheOldestResultsOfAllGroupsGoFirst) {
  bytes_->limit = 250;
  KeptResults others(bytes_);
  others.Add(Ended(1, 200));
  results_.Add(Ended(1, 100));
  EXPECT_EQ(others.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
  others.Add(Ended(2, 100));
  others.Add(Ended(3, 100));
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(others.AnswerOf(2).kept, Kept::kHere);
  EXPECT_EQ(bytes_->used(), 200u);
  others.Clear();
  EXPECT_EQ(bytes_->used(), 0u);
}

TEST_F(KeptResultsTest, MemoryOfTheNodeIsThatOfTheOldestLargeResult) {
  KeptResults others(bytes_);
  results_.Add(Ended(1, 100));
  others.Add(Ended(1, kCopiedResultBytes + 1));
  results_.Add(Ended(2, kCopiedResultBytes + 1));
  EXPECT_EQ(bytes_->node_results(), 2u);
  EXPECT_TRUE(bytes_->DropOldestOfNode());
  EXPECT_EQ(others.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kHere);
  EXPECT_TRUE(bytes_->DropOldestOfNode());
  EXPECT_FALSE(bytes_->DropOldestOfNode());
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
  EXPECT_EQ(bytes_->used(), 100u);
}

TEST_F(KeptResultsTest, NoLargeResultIsKeptWhileMemoryIsAwaited) {
  bytes_->awaited = 1;
  results_.Add(Ended(1, 100));
  results_.Add(Ended(2, kCopiedResultBytes + 1));
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kDropped);
  EXPECT_EQ(bytes_->used(), 100u);
}

TEST_F(KeptResultsTest, EachResultIsKeptForAsLongAsItsCallSays) {
  EndedCall lasting = Ended(1, 100);
  lasting.spec.retain = 1000;
  results_.Add(lasting);
  EndedCall brief = Ended(2, 100);
  brief.spec.retain = 1;
  results_.Add(brief);
  results_.Trim(2);
  EXPECT_EQ(results_.AnswerOf(2).kept, Kept::kHere);
  // Calls that are not kept end, too.
  results_.Trim(3);
  EXPECT_EQ(results_.Find(2), nullptr);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
  results_.Trim(1000);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kHere);
  results_.Trim(1001);
  EXPECT_EQ(results_.size(), 0u);
  EXPECT_EQ(bytes_->used(), 0u);
}

TEST_F(KeptResultsTest, TheAnswerAboutACallThatFailedCanBeReadWhateverItWas) {
  EndedCall call = Ended(1, 100);
  call.failed = true;
  call.why = std::string(1000, 'x');
  call.spec = {.kind = CallKind::kAllReduce,
               .bytes = kMaxGroupBytes + 1,
               .retain = UINT32_MAX - 1,
               .copies = UINT32_MAX};
  results_.Add(call);
  const absl::StatusOr<ResultAnswer> answer = DecodeAnswer(EncodeAnswer(results_.AnswerOf(1)));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->kept, Kept::kFailed);
  EXPECT_EQ(answer->spec.retain, kMaxRetainedCalls);
  EXPECT_EQ(answer->why, std::string(kMaxKeptErrorBytes, 'x'));
}

TEST_F(KeptResultsTest, AResultInTheMemoryOfAClientIsCopiedPieceByPiece) {
  const uint64_t size = kCopiedResultBytes + 1000;
  std::weak_ptr<const void> input;
  {
    const EndedCall call = Ended(1, size, /*in_input=*/true);
    input = call.input;
    results_.Add(call);
  }
  const auto to_copy = results_.TakeToCopy();
  ASSERT_TRUE(to_copy.has_value());
  EXPECT_EQ(to_copy->first, 1u);
  EXPECT_EQ(to_copy->second, size);
  EXPECT_FALSE(results_.TakeToCopy().has_value());
  // It can be given meanwhile.
  EXPECT_EQ(results_.Find(1)->bytes, Expected(1, size));
  auto bytes = std::make_shared<std::string>(size, '\0');
  results_.Place(1, MemoryOf(bytes));
  EXPECT_TRUE(results_.Copy(size - 1));
  EXPECT_FALSE(input.expired());
  EXPECT_FALSE(results_.Copy(1000));
  EXPECT_TRUE(input.expired());
  EXPECT_EQ(results_.Find(1)->bytes.data(), bytes->data());
  EXPECT_EQ(results_.Find(1)->bytes, Expected(1, size));
}

TEST_F(KeptResultsTest, OneResultIsCopiedAtATime) {
  for (uint64_t number = 1; number <= 3; ++number) {
    results_.Add(Ended(number, kCopiedResultBytes + 1, /*in_input=*/true));
  }
  ASSERT_EQ(results_.TakeToCopy()->first, 1u);
  EXPECT_FALSE(results_.TakeToCopy().has_value());
  results_.Place(1, nullptr);
  EXPECT_TRUE(results_.Copy(1));
  // The second is forgotten before its turn, the third while its memory is on the way.
  results_.Trim(12);
  ASSERT_EQ(results_.TakeToCopy()->first, 3u);
  results_.Trim(13);
  auto bytes = std::make_shared<std::string>(kCopiedResultBytes, '\0');
  results_.Place(3, MemoryOf(bytes));
  EXPECT_FALSE(results_.Copy(1));
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST_F(KeptResultsTest, AResultForWhoseCopyThereIsNoMemoryIsDropped) {
  results_.Add(Ended(1, kCopiedResultBytes + 1, /*in_input=*/true));
  ASSERT_TRUE(results_.TakeToCopy().has_value());
  results_.Place(1, nullptr);
  EXPECT_EQ(results_.AnswerOf(1).kept, Kept::kDropped);
  EXPECT_EQ(bytes_->used(), 0u);
}

}  // namespace
}  // namespace phalanx::jobs
