// Questions about kept results in single cases. The simulation has the rest.
#include "src/jobs/group/results/group_results.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs {
namespace {

using ::testing::HasSubstr;

constexpr CallSpec kSum{.kind = CallKind::kAllReduce, .bytes = 8, .retain = 10, .copies = 2};
constexpr uint64_t kLarge = 10 * kResultPieceBytes + 4;

// A member on each node, each on a host of its own, and a network without delay. Calls are those
// that the test says have ended.
class Results {
 public:
  explicit Results(int world) {
    view_ = LiveView(world);
    for (const Member& member : view_.members) {
      nodes_.push_back(std::make_unique<GroupResults>(member.node, 7, "train/worker", bytes_));
      status_.push_back({.running = true});
    }
    Show();
  }
  GroupResults& node(int rank) { return *nodes_[static_cast<size_t>(rank)]; }
  GroupStatus& status(int rank) { return status_[static_cast<size_t>(rank)]; }
  // The member's first call is the next one.
  void Enter(int rank) { node(rank).OnEntered({rank, 0, status(rank).next}); }
  // The call ends on all nodes; these keep it.
  void End(uint64_t number, uint64_t bytes, const std::set<int>& holders, CallSpec spec = kSum) {
    spec.bytes = bytes;
    for (int rank = 0; rank < view_.world; ++rank) {
      auto text = std::make_shared<std::string>(Expected(number, bytes));
      status(rank).next = number + 1;
      status(rank).ended = number;
      node(rank).OnEnded({.number = number,
                          .spec = spec,
                          .members = std::min(3, view_.world),
                          .holds = holders.contains(rank),
                          .result = *text,
                          .memory = MemoryOf(text)});
    }
  }
  // It fails on all nodes.
  void Fail(uint64_t number, const std::string& why) {
    for (int rank = 0; rank < view_.world; ++rank) {
      status(rank).next = number + 1;
      status(rank).ended = number;
      node(rank).OnEnded({.number = number, .spec = kSum, .failed = true, .why = why});
    }
  }
  static std::string Expected(uint64_t number, uint64_t bytes) {
    std::string text(bytes, '\0');
    for (uint64_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(number + i / 1000);
    return text;
  }
  GroupCallId Ask(int rank, uint64_t call, Instant deadline = Instant::Infinite()) {
    EXPECT_THAT(node(rank).Ask({next_id_, rank, 0, call, deadline}), testing::IsOk());
    Deliver();
    return next_id_++;
  }
  // Messages to or from these nodes wait.
  void Stop(int rank) { stopped_.insert(rank); }
  void Go(int rank) {
    stopped_.erase(rank);
    Deliver();
  }
  // The link is given up, with what is under way on it.
  void Lose(int one, int other) {
    std::erase_if(queue_, [&](const auto& message) {
      const int to = static_cast<int>(message.second.to.key.node) - 1;
      return (message.first == one && to == other) || (message.first == other && to == one);
    });
    node(one).OnLost({static_cast<uint64_t>(other + 1), 1});
    node(other).OnLost({static_cast<uint64_t>(one + 1), 1});
  }
  void Die(int rank) {
    view_.members[static_cast<size_t>(rank)].state = MemberState::kDied;
    ++view_.epoch.counter;
    nodes_[static_cast<size_t>(rank)].reset();
    Show();
    Deliver();
  }
  // The node has forgotten everything, also the members.
  void StartAgain(int rank) {
    const NodeKey& key = view_.members[static_cast<size_t>(rank)].node;
    nodes_[static_cast<size_t>(rank)] =
        std::make_unique<GroupResults>(key, 7, "train/worker", bytes_);
  }
  // A list with the same members, of which only these nodes know.
  void NewList(const std::set<int>& ranks) {
    ++view_.epoch.counter;
    LearnList(ranks);
  }
  void LearnList(const std::set<int>& ranks) {
    for (const int rank : ranks) Show(rank);
    Deliver();
  }
  // A message to rank 0 that the node of `from` has made up.
  void Forge(int from, GroupMessage kind, uint64_t call, std::string payload) {
    GroupHeader header{.kind = kind, .group = 7, .epoch = view_.epoch, .call = call};
    GroupSend send;
    send.to.key = {1, 1};
    send.header = EncodeHeader(header);
    send.copied = std::move(payload);
    Receive(from, 0, send);
    Deliver();
  }
  // Memory is granted only by Grant.
  void HoldMemory() { holds_memory_ = true; }
  const GroupAllocate& asked_memory() const { return asked_memory_.front().second; }
  size_t memory_asks() const { return asked_memory_.size(); }
  void Grant(absl::Status why = absl::OkStatus()) {
    const auto [rank, allocate] = asked_memory_.front();
    asked_memory_.erase(asked_memory_.begin());
    Grant(rank, allocate, why);
    Deliver();
  }
  // Until nothing is under way, or so many messages were carried.
  void Deliver(int most = 1 << 20) {
    for (bool any = true; any && most > 0;) {
      any = false;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i] == nullptr) continue;
        nodes_[i]->Advance(status_[i]);
        for (GroupEffect& effect : nodes_[i]->TakeEffects()) {
          any = true;
          Carry(static_cast<int>(i), effect);
        }
      }
      std::vector<std::pair<int, GroupSend>> later;
      for (auto& [from, send] : std::exchange(queue_, {})) {
        const int to = static_cast<int>(send.to.key.node) - 1;
        if (most <= 0 || stopped_.contains(from) || stopped_.contains(to)) {
          later.emplace_back(from, std::move(send));
        } else if (nodes_[static_cast<size_t>(to)] != nullptr) {
          any = true;
          --most;
          Receive(from, to, send);
        }
      }
      queue_.insert(queue_.begin(), std::make_move_iterator(later.begin()),
                    std::make_move_iterator(later.end()));
    }
  }
  const GroupDone& done(GroupCallId id) const { return done_.at(id); }
  bool ended(GroupCallId id) const { return done_.contains(id); }
  int pieces_from(int rank) const {
    const auto pieces = pieces_.find(rank);
    return pieces == pieces_.end() ? 0 : pieces->second;
  }
  int given_up() const { return given_up_; }
  KeptBytes& bytes() { return *bytes_; }

 private:
  void Show(int rank) {
    node(rank).OnList(ListOf(view_, view_.members[static_cast<size_t>(rank)].node));
  }
  // To all nodes that live.
  void Show() {
    for (int rank = 0; rank < view_.world; ++rank) {
      if (nodes_[static_cast<size_t>(rank)] != nullptr) Show(rank);
    }
  }
  void Carry(int from, GroupEffect& effect) {
    if (auto* done = std::get_if<GroupDone>(&effect)) done_[done->id] = *done;
    if (std::holds_alternative<GroupGiveUp>(effect)) ++given_up_;
    if (auto* send = std::get_if<GroupSend>(&effect)) queue_.emplace_back(from, std::move(*send));
    if (auto* allocate = std::get_if<GroupAllocate>(&effect)) {
      if (holds_memory_) {
        asked_memory_.emplace_back(from, *allocate);
        return;
      }
      Grant(from, *allocate, absl::OkStatus());
    }
  }
  void Grant(int rank, const GroupAllocate& allocate, const absl::Status& why) {
    if (!why.ok()) return node(rank).OnMemory(allocate.ticket, why);
    node(rank).OnMemory(allocate.ticket, NewMemory(allocate.work_bytes));
  }
  void Receive(int from, int to, const GroupSend& send) {
    const GroupHeader header = *DecodeHeader(send.header);
    const NodeKey key{static_cast<uint64_t>(from + 1), 1};
    absl::string_view payload = send.keep != nullptr ? send.payload : send.copied;
    if (header.kind == GroupMessage::kResultBytes && !payload.empty()) ++pieces_[from];
    const absl::Span<char> place = node(to).PlaceFor(key, header, payload.size());
    if (!place.empty()) {
      std::copy(payload.begin(), payload.end(), place.begin());
      payload = {place.data(), place.size()};
    }
    node(to).OnMessage(key, header, payload);
    if (send.keep != nullptr && nodes_[static_cast<size_t>(from)] != nullptr) {
      node(from).OnReleased(send.to.key, payload.size());
    }
  }

  GroupView view_;
  std::shared_ptr<KeptBytes> bytes_ = std::make_shared<KeptBytes>();
  std::vector<std::unique_ptr<GroupResults>> nodes_;
  std::vector<GroupStatus> status_;
  std::vector<std::pair<int, GroupSend>> queue_;
  std::set<int> stopped_;
  std::map<GroupCallId, GroupDone> done_;
  std::map<int, int> pieces_;  // by node that gave them
  GroupCallId next_id_ = 1;
  int given_up_ = 0;
  bool holds_memory_ = false;
  std::vector<std::pair<int, GroupAllocate>> asked_memory_;
};

TEST(GroupResults, AMemberIsGivenTheResultOfANodeThatKeepsIt) {
  for (const uint64_t size : {uint64_t{8}, kResultPieceBytes, kLarge, 100 * kResultPieceBytes}) {
    Results group(4);
    group.End(1, size, {1, 2});
    group.Enter(0);
    const GroupCallId id = group.Ask(0, 1);
    ASSERT_TRUE(group.ended(id));
    ASSERT_THAT(group.done(id).status, testing::IsOk());
    EXPECT_TRUE(group.done(id).result == Results::Expected(1, size));
    EXPECT_EQ(group.done(id).number, 1u);
    EXPECT_EQ(group.done(id).members, 3);
    // Of the two, one.
    EXPECT_EQ(group.pieces_from(1) + group.pieces_from(2),
              static_cast<int>((size + kResultPieceBytes - 1) / kResultPieceBytes));
    EXPECT_EQ(group.given_up(), 0);
  }
}

TEST(GroupResults, AResultWithoutBytesIsGivenWithoutAPiece) {
  Results group(3);
  group.End(1, 0, {1}, {.kind = CallKind::kBarrier, .retain = 10, .copies = 1});
  group.Enter(0);
  const GroupCallId id = group.Ask(0, 1);
  EXPECT_THAT(group.done(id).status, testing::IsOk());
  EXPECT_EQ(group.pieces_from(1), 0);
}

TEST(GroupResults, AHolderAnswersItsOwnMemberAtOnce) {
  Results group(3);
  group.End(1, kLarge, {0});
  group.Enter(0);
  group.Stop(1);
  group.Stop(2);
  const GroupCallId id = group.Ask(0, 1);
  EXPECT_TRUE(group.done(id).result == Results::Expected(1, kLarge));
}

TEST(GroupResults, TheNextHolderGivesTheRestIfTheFirstDies) {
  Results group(4);
  group.End(1, 100 * kResultPieceBytes, {1, 2});
  group.Enter(0);
  // Some pieces, of as many as are asked for at a time, arrive.
  ASSERT_THAT(group.node(0).Ask({1000, 0, 0, 1}), testing::IsOk());
  group.Deliver(50);
  const int before = group.pieces_from(1);
  EXPECT_GT(before, 0);
  EXPECT_FALSE(group.ended(1000));
  group.Die(1);
  ASSERT_TRUE(group.ended(1000));
  EXPECT_TRUE(group.done(1000).result == Results::Expected(1, 100 * kResultPieceBytes));
  EXPECT_EQ(group.pieces_from(2), 100 - before);
}

TEST(GroupResults, ARefusalSaysWhy) {
  Results group(3);
  const auto why = [&](uint64_t call) { return group.done(group.Ask(0, call)).status; };
  for (uint64_t number = 1; number <= 30; ++number) {
    CallSpec spec = kSum;
    if (number == 25) spec.kind = CallKind::kReduceScatter;
    group.End(number, 8, {1 + static_cast<int>(number % 2)}, spec);
  }
  group.Enter(0);
  EXPECT_THAT(why(20), testing::StatusIs(absl::StatusCode::kNotFound,
                                         HasSubstr("those of calls 21 to 30 are")));
  EXPECT_THAT(why(25),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ReduceScatter")));
  EXPECT_THAT(why(31), testing::StatusIs(absl::StatusCode::kOutOfRange,
                                         HasSubstr("the last one that has is 30")));
  EXPECT_THAT(why(0), testing::StatusIs(absl::StatusCode::kOutOfRange));
  group.Fail(31, "call 31 of train/worker: rank 2 has died");
  EXPECT_THAT(why(31), testing::StatusIs(absl::StatusCode::kAborted,
                                         HasSubstr("call 31 of train/worker has failed: rank 2")));
  group.Die(1);
  EXPECT_THAT(why(29), testing::IsOk());
  EXPECT_THAT(why(30), testing::StatusIs(absl::StatusCode::kNotFound,
                                         HasSubstr("was kept by nodes that have ended")));
}

TEST(GroupResults, WhatTheHolderHadNoRoomForIsRefusedByItsName) {
  Results group(3);
  group.bytes().limit = 150;
  group.End(1, 100, {1});
  group.End(2, 100, {1});
  group.Enter(0);
  EXPECT_THAT(
      group.done(group.Ask(0, 1)).status,
      testing::StatusIs(absl::StatusCode::kNotFound, HasSubstr("the node of rank 1 had no room")));
  EXPECT_THAT(group.done(group.Ask(0, 2)).status, testing::IsOk());
}

TEST(GroupResults, ANodeInWhichTheCallHasNotEndedDoesNotRefuse) {
  Results group(3);
  group.End(1, 8, {});
  group.status(2).next = 1;
  group.Enter(0);
  const GroupCallId id = group.Ask(0, 1);
  EXPECT_FALSE(group.ended(id));
  group.End(1, 8, {2});
  group.Deliver();
  EXPECT_EQ(group.done(id).result, Results::Expected(1, 8));
}

TEST(GroupResults, AQuestionWaitsUntilTheMemberTakesPart) {
  Results group(3);
  group.End(1, 8, {1});
  const GroupCallId id = group.Ask(0, 1);
  EXPECT_FALSE(group.ended(id));
  EXPECT_TRUE(group.node(0).waits());
  group.Enter(0);
  group.Deliver();
  EXPECT_THAT(group.done(id).status, testing::IsOk());
  EXPECT_FALSE(group.node(0).waits());
}

TEST(GroupResults, AMemberHearsWhereTheGroupWasWhenItEnteredIt) {
  Results group(3);
  group.End(1, 8, {1});
  GroupQuestion question{.id = 100, .rank = 0, .progress = true};
  ASSERT_THAT(group.node(0).Ask(question), testing::IsOk());
  group.Deliver();
  EXPECT_FALSE(group.ended(100));
  EXPECT_TRUE(group.node(0).waits());
  const KeepSpec keep{.boot = 1, .released = 3, .mark = 9};
  group.node(0).OnEntered({.rank = 0, .life = 0, .first = 5, .keep = keep});
  group.End(5, 8, {1});
  group.Deliver();
  ASSERT_TRUE(group.ended(100));
  EXPECT_THAT(group.done(100).status, testing::IsOk());
  EXPECT_EQ(group.done(100).number, 4u);
  EXPECT_EQ(group.done(100).progress, keep);
  // Later calls change nothing.
  question.id = 101;
  ASSERT_THAT(group.node(0).Ask(question), testing::IsOk());
  group.Deliver();
  EXPECT_EQ(group.done(101).number, 4u);
}

TEST(GroupResults, AQuestionAboutProgressEndsAtItsDeadline) {
  Results group(3);
  ASSERT_THAT(
      group.node(0).Ask(
          {.id = 100, .rank = 0, .deadline = Instant() + absl::Seconds(1), .progress = true}),
      testing::IsOk());
  group.node(0).Tick(Instant() + absl::Seconds(1));
  group.Deliver();
  EXPECT_THAT(group.done(100).status,
              testing::StatusIs(absl::StatusCode::kDeadlineExceeded,
                                HasSubstr("rank 0 has asked for the progress of train/worker")));
}

TEST(GroupResults, AQuestionEndsAtItsDeadlineAndNamesTheSilentNodes) {
  Results group(3);
  group.End(1, 8, {2});
  group.Enter(0);
  group.Stop(2);
  const Instant deadline = Instant() + absl::Seconds(3);
  const GroupCallId id = group.Ask(0, 1, deadline);
  EXPECT_EQ(group.node(0).NextTick(), deadline);
  group.node(0).Tick(deadline);
  group.Deliver();
  EXPECT_THAT(group.done(id).status,
              testing::StatusIs(absl::StatusCode::kDeadlineExceeded,
                                HasSubstr("waiting for the nodes of rank 2 (worker2)")));
}

TEST(GroupResults, TheQuestionsOfAMemberThatLeavesEnd) {
  Results group(3);
  const GroupCallId id = group.Ask(0, 1);
  group.node(0).EndMember(0);
  group.Deliver();
  EXPECT_THAT(group.done(id).status, testing::StatusIs(absl::StatusCode::kAborted));
}

TEST(GroupResults, ANodeIsAskedAgainWhenTheLinkToItWasLost) {
  Results group(2);
  group.End(1, 8, {1});
  group.Enter(0);
  group.Stop(1);
  const GroupCallId id = group.Ask(0, 1);
  group.Lose(0, 1);
  group.Go(1);
  EXPECT_EQ(group.done(id).result, Results::Expected(1, 8));
}

TEST(GroupResults, AQuestionThatIsCancelledMakesRoomForOthers) {
  Results group(3);
  for (size_t i = 0; i < kMaxWaitingResults; ++i) {
    ASSERT_THAT(group.node(0).Ask({.id = i, .call = 1, .request = i}), testing::IsOk());
  }
  const GroupQuestion another{.id = 2000, .rank = 1, .call = 1, .request = 7};
  EXPECT_FALSE(group.node(0).Ask(another).ok());
  group.node(0).Cancel(0, 0, 7);
  EXPECT_THAT(group.node(0).Ask(another), testing::IsOk());
  group.Deliver();
  EXPECT_THAT(group.done(7).status, testing::StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(group.ended(6));
  EXPECT_FALSE(group.ended(2000));
}

TEST(GroupResults, QuestionsBeyondTheLimitAreRefused) {
  Results group(3);
  for (size_t i = 0; i < kMaxWaitingResults; ++i) group.Ask(0, 1 + i);
  EXPECT_THAT(group.node(0).Ask({1, 0, 0, 1}),
              testing::StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(GroupResults, ManyQuestionsAreAnsweredSomeAtATime) {
  Results group(3);
  std::vector<GroupCallId> ids;
  for (uint64_t number = 1; number <= 500; ++number) {
    CallSpec spec = kSum;
    spec.retain = 1000;
    group.End(number, 8, {1 + static_cast<int>(number % 2)}, spec);
  }
  for (uint64_t number = 1; number <= 500; ++number) ids.push_back(group.Ask(0, number));
  group.Enter(0);
  group.Deliver();
  for (uint64_t number = 1; number <= 500; ++number) {
    EXPECT_EQ(group.done(ids[number - 1]).result, Results::Expected(number, 8));
  }
  EXPECT_EQ(group.given_up(), 0);
}

TEST(GroupResults, ManyQuestionsAreAnsweredAlsoIfThisNodeHasAllResults) {
  Results group(2);
  std::vector<GroupCallId> ids;
  for (uint64_t number = 1; number <= 200; ++number) {
    CallSpec spec = kSum;
    spec.retain = 1000;
    group.End(number, 8, {0}, spec);
    ids.push_back(group.Ask(0, number));
  }
  group.Enter(0);
  group.Deliver();
  for (const GroupCallId id : ids) EXPECT_TRUE(group.ended(id));
}

TEST(GroupResults, ANodeThatLagsIsAskedAboutAsManyCallsAsItAccepts) {
  Results group(3);
  const uint64_t calls = 2 * kMaxServedQuestions;
  for (uint64_t number = 1; number <= calls; ++number) {
    CallSpec spec = kSum;
    spec.retain = kMaxRetainedCalls;
    group.End(number, 8, {1}, spec);
  }
  group.Enter(0);
  group.status(2).running = false;
  const GroupCallId old = group.Ask(0, 1);
  for (uint64_t number = calls - 1000; number <= calls; ++number) {
    EXPECT_THAT(group.done(group.Ask(0, number)).status, testing::IsOk());
  }
  EXPECT_EQ(group.given_up(), 0);
  EXPECT_FALSE(group.ended(old));
  group.status(2).running = true;
  group.Deliver();
  EXPECT_THAT(group.done(old).status, testing::StatusIs(absl::StatusCode::kNotFound));
}

// An answer of a node that has the result of such a call.
std::string HasResult(uint64_t bytes, uint32_t members = 3) {
  ResultAnswer answer{.kept = Kept::kHere, .members = members, .spec = kSum};
  answer.spec.bytes = bytes;
  return EncodeAnswer(answer);
}

TEST(GroupResults, ANodeThatChangesItsAnswerDoesNotChangeTheSizeOfTheResult) {
  Results group(3);
  group.HoldMemory();
  group.End(1, kLarge, {});
  group.status(1).running = group.status(2).running = false;
  group.Enter(0);
  const GroupCallId id = group.Ask(0, 1);
  group.Forge(1, GroupMessage::kHasResult, 1, HasResult(kLarge));
  ASSERT_EQ(group.memory_asks(), 1u);
  group.Forge(1, GroupMessage::kResultBytes, 1, "");
  group.Forge(1, GroupMessage::kHasResult, 1, HasResult(kMaxGroupBytes));
  group.Grant();
  EXPECT_FALSE(group.ended(id));
  EXPECT_EQ(group.memory_asks(), 0u);
  // Another one has the result that was there first.
  group.End(1, kLarge, {2});
  group.status(2).running = true;
  group.Deliver();
  ASSERT_TRUE(group.ended(id));
  EXPECT_TRUE(group.done(id).result == Results::Expected(1, kLarge));
}

TEST(GroupResults, AResultOfNoMemberOrOfTooManyIsNotAccepted) {
  for (const uint32_t members : {0, 4}) {
    Results group(3);
    group.End(1, 8, {});
    group.status(1).running = false;
    group.Enter(0);
    const GroupCallId id = group.Ask(0, 1);
    group.Forge(1, GroupMessage::kHasResult, 1, HasResult(8, members));
    EXPECT_EQ(group.given_up(), 1);
    EXPECT_FALSE(group.ended(id));
  }
}

TEST(GroupResults, ALateAnswerIsDroppedAlsoByANodeThatDoesNotKnowTheMembersYet) {
  Results group(3);
  group.StartAgain(0);
  group.Forge(1, GroupMessage::kHasResult, 1, HasResult(8, 2));
  EXPECT_EQ(group.given_up(), 0);
}

TEST(GroupResults, ANewListVoidsTheRefusals) {
  Results group(3);
  group.End(1, 8, {});
  group.Enter(0);
  group.Stop(2);
  const GroupCallId id = group.Ask(0, 1);
  // The first node has refused; under the list that it learns later, it is a holder.
  group.NewList({0});
  group.Go(2);
  EXPECT_FALSE(group.ended(id));
  group.LearnList({2});
  EXPECT_FALSE(group.ended(id));
  group.End(1, 8, {1});
  group.LearnList({1});
  ASSERT_TRUE(group.ended(id));
  EXPECT_EQ(group.done(id).result, Results::Expected(1, 8));
}

TEST(GroupResults, MemoryIsAskedForAgainForAQuestionThatCanWaitLonger) {
  Results group(2);
  group.HoldMemory();
  group.End(1, kLarge, {1});
  group.Enter(0);
  const Instant soon = Instant() + absl::Seconds(3);
  const Instant late = Instant() + absl::Seconds(10);
  const GroupCallId first = group.Ask(0, 1, soon);
  const GroupCallId second = group.Ask(0, 1, late);
  EXPECT_EQ(group.asked_memory().deadline, soon);
  group.Grant(absl::ResourceExhaustedError("full"));
  EXPECT_THAT(group.done(first).status,
              testing::StatusIs(absl::StatusCode::kResourceExhausted,
                                "the result of call 1 of train/worker: full"));
  EXPECT_FALSE(group.ended(second));
  ASSERT_EQ(group.memory_asks(), 1u);
  EXPECT_EQ(group.asked_memory().deadline, late);
  group.Grant();
  EXPECT_TRUE(group.done(second).result == Results::Expected(1, kLarge));
}

TEST(GroupResults, ARefusedQuestionAboutMemoryEndsAllThatHaveAsked) {
  Results group(2);
  group.HoldMemory();
  group.End(1, kLarge, {1});
  group.Enter(0);
  const GroupCallId id = group.Ask(0, 1);
  group.Grant(absl::ResourceExhaustedError("full"));
  EXPECT_THAT(group.done(id).status, testing::StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(group.memory_asks(), 0u);
}

TEST(GroupResults, MemoryForTheCopyOfAResultIsNotAwaited) {
  Results group(2);
  group.HoldMemory();
  for (const uint64_t number : {1, 2}) {
    const auto input = std::make_shared<std::string>(Results::Expected(number, kLarge));
    CallSpec spec = kSum;
    spec.bytes = kLarge;
    group.node(0).OnEnded({.number = number,
                           .spec = spec,
                           .members = 2,
                           .holds = true,
                           .result = *input,
                           .input = input});
  }
  group.Deliver();
  ASSERT_EQ(group.memory_asks(), 1u);
  EXPECT_EQ(group.asked_memory().deadline, Instant());
  group.Grant(absl::ResourceExhaustedError("full"));
  EXPECT_EQ(group.bytes().used(), kLarge);
  ASSERT_EQ(group.memory_asks(), 1u);
  group.Grant();
  EXPECT_EQ(group.bytes().used(), kLarge);
  EXPECT_EQ(group.memory_asks(), 0u);
}

}  // namespace
}  // namespace phalanx::jobs
