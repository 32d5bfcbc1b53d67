// What a group does in single cases: errors and the ranks that they name, and memory. The
// simulation has the rest.
#include "src/jobs/group/group_core.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/jobs/group/group_recovery.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Members on some nodes, one on each unless said otherwise, and a network without delay.
class Group {
 public:
  explicit Group(int world) : Group(world, world) {}
  Group(int world, int nodes) {
    view_ = LiveView(world, nodes);
    for (const Member& member : view_.members) {
      if (member.rank < nodes) {
        cores_.push_back(std::make_unique<GroupCore>(member.node, 7, "train/worker"));
      }
      core(member.rank).AddMember(member.rank, 0);
    }
  }
  void Form() {
    for (auto& core : cores_) {
      if (core != nullptr) (void)core->OnView(view_, now_);
    }
    Deliver();
  }
  void Form(int rank) {
    (void)core(rank).OnView(view_, now_);
    Deliver();
  }
  // Before Form: no task has had this rank.
  void NeverJoins(int rank) {
    Member& member = view_.members[static_cast<size_t>(rank)];
    member.task.clear();
    member.state = MemberState::kAbsent;
    cores_[static_cast<size_t>(rank)].reset();
  }
  void Die(int rank) {
    view_.members[static_cast<size_t>(rank)].state = MemberState::kDied;
    ++view_.epoch.counter;
    cores_[static_cast<size_t>(rank)].reset();
    for (auto& core : cores_) {
      if (core != nullptr) (void)core->OnView(view_, now_);
    }
    Deliver();
  }
  // Returns the call's id.
  GroupCallId Call(int rank, CallSpec spec, absl::Duration timeout = absl::InfiniteDuration()) {
    EXPECT_THAT(TryCall(rank, spec, timeout), testing::IsOk());
    return next_id_ - 1;
  }
  absl::Status TryCall(int rank, CallSpec spec, absl::Duration timeout = absl::InfiniteDuration()) {
    GroupCallRequest request{.id = next_id_++, .spec = spec, .deadline = now_ + timeout};
    auto input = std::make_shared<std::string>(InputBytes(spec, view_.world, rank), '\1');
    request.input = *input;
    request.keep = input;
    const uint64_t life = view_.members[static_cast<size_t>(rank)].life;
    const absl::Status called = core(rank).Call(rank, life, std::move(request), now_);
    Deliver();
    return called;
  }
  void Pass(absl::Duration time) {
    const Instant until = now_ + time;
    while (now_ < until) {
      now_ = now_ + absl::Milliseconds(10);
      for (auto& core : cores_) {
        if (core != nullptr && core->NextTick() <= now_) core->Tick(now_);
      }
      Deliver();
    }
  }
  // The task's next life joins on the same node, which has started again.
  void Return(int rank) {
    Member& member = view_.members[static_cast<size_t>(rank)];
    member.state = MemberState::kLive;
    ++member.life;
    ++view_.epoch.counter;
    auto& core = cores_[static_cast<size_t>(rank)];
    core = std::make_unique<GroupCore>(member.node, 7, "train/worker");
    core->AddMember(rank, member.life);
    Form();
  }
  // Of the last member that has entered.
  const GroupEntered& entered() const { return entered_; }
  bool ended(GroupCallId id) const { return done_.contains(id); }
  const absl::Status& status(GroupCallId id) const { return done_.at(id).status; }
  const GroupDone& done(GroupCallId id) const { return done_.at(id); }
  GroupCore& core(int rank) {
    return *cores_[view_.members[static_cast<size_t>(rank)].node.node - 1];
  }
  uint64_t messages() const { return messages_; }
  uint64_t given_up() const { return given_up_; }
  // Returns true once the member can leave.
  bool Leave(int rank) {
    core(rank).SettleForLeave(rank, now_);
    Deliver();
    return settled(rank);
  }
  // The last call that each release of this member's node names.
  std::vector<uint64_t> released(int rank) const {
    const auto found = released_.find(view_.members[static_cast<size_t>(rank)].node.node);
    return found == released_.end() ? std::vector<uint64_t>() : found->second;
  }
  bool settled(int rank) const {
    return settled_.contains(view_.members[static_cast<size_t>(rank)].node.node);
  }

 private:
  void Deliver() {
    bool any = true;
    while (any) {
      any = false;
      for (size_t i = 0; i < cores_.size(); ++i) {
        if (cores_[i] == nullptr) continue;
        for (GroupEffect& effect : cores_[i]->TakeEffects()) {
          any = true;
          Carry({i + 1, 1}, effect);
        }
      }
    }
  }
  void Carry(NodeKey from, GroupEffect& effect) {
    GroupCore& sender = *cores_[from.node - 1];
    if (auto* done = std::get_if<GroupDone>(&effect)) done_[done->id] = *done;
    if (auto* allocate = std::get_if<GroupAllocate>(&effect)) {
      sender.OnMemory(allocate->ticket, NewMemory(allocate->work_bytes, allocate->scratch_bytes));
    }
    if (std::holds_alternative<GroupRunMore>(effect)) sender.Advance();
    if (std::holds_alternative<GroupGiveUp>(effect)) ++given_up_;
    if (std::holds_alternative<GroupSettled>(effect)) settled_.insert(from.node);
    if (const auto* release = std::get_if<GroupRelease>(&effect)) {
      released_[from.node].push_back(release->released);
    }
    if (const auto* entered = std::get_if<GroupEntered>(&effect)) entered_ = *entered;
    auto* send = std::get_if<GroupSend>(&effect);
    if (send == nullptr || cores_[send->to.key.node - 1] == nullptr) return;
    ++messages_;
    const absl::string_view payload = send->keep != nullptr ? send->payload : send->copied;
    cores_[send->to.key.node - 1]->OnMessage(from, *DecodeHeader(send->header), payload, now_);
    if (send->keep != nullptr) sender.OnReleased(send->to.key, payload.size());
  }

  Instant now_;
  GroupView view_;
  std::vector<std::unique_ptr<GroupCore>> cores_;
  std::map<GroupCallId, GroupDone> done_;
  GroupCallId next_id_ = 1;
  uint64_t messages_ = 0;
  uint64_t given_up_ = 0;
  std::set<uint64_t> settled_;                          // nodes
  std::map<uint64_t, std::vector<uint64_t>> released_;  // by node
  GroupEntered entered_;
};

constexpr CallSpec kSum{.kind = CallKind::kAllReduce, .dtype = DType::kU8, .bytes = 8};
constexpr CallSpec kBarrier{.kind = CallKind::kBarrier};

TEST(GroupCore, AllReduceSumsTheInputsOfAllMembers) {
  Group group(5);
  group.Form();
  std::vector<GroupCallId> ids;
  for (int rank = 0; rank < 5; ++rank) ids.push_back(group.Call(rank, kSum));
  for (const GroupCallId id : ids) {
    ASSERT_THAT(group.status(id), testing::IsOk());
    EXPECT_EQ(group.done(id).result, std::string(8, '\5'));
    EXPECT_EQ(group.done(id).members, 5);
    EXPECT_EQ(group.done(id).number, 1u);
  }
}

TEST(GroupCore, ASmallCallOfEightTakesFourteenMessages) {
  Group group(8);
  group.Form();
  for (int rank = 0; rank < 8; ++rank) group.Call(rank, kSum);
  const uint64_t before = group.messages();
  for (int rank = 0; rank < 8; ++rank) group.Call(rank, kSum);
  EXPECT_EQ(group.messages() - before, 14u);
}

TEST(GroupCore, ACallBeforeTheViewOutlivesThatTheMemberIsShownAgain) {
  Group group(2);
  const GroupCallId early = group.Call(0, kSum);
  group.core(0).AddMember(0, 0);
  group.Form();
  group.Call(1, kSum);
  EXPECT_THAT(group.status(early), testing::IsOk());
}

TEST(GroupCore, AMemberLeavesWhenItsLastCallHasEndedEverywhere) {
  Group group(3);
  group.Form();
  EXPECT_TRUE(group.Leave(2));
  const CallSpec broadcast{.kind = CallKind::kBroadcast, .bytes = 8};
  EXPECT_THAT(group.status(group.Call(0, broadcast)), testing::IsOk());
  const uint64_t before = group.messages();
  EXPECT_FALSE(group.Leave(0));
  EXPECT_EQ(group.messages() - before, 2u);
  group.Call(1, broadcast);
  EXPECT_FALSE(group.settled(0));
  group.Call(2, broadcast);
  EXPECT_TRUE(group.settled(0));
}

TEST(GroupCore, TheCallsOfAMemberThatLeavesEndAtOnce) {
  Group group(2);
  const GroupCallId early = group.Call(0, kSum);
  EXPECT_TRUE(group.Leave(0));
  EXPECT_THAT(group.status(early), testing::StatusIs(absl::StatusCode::kAborted));

  Group formed(2);
  formed.Form();
  const GroupCallId under_way = formed.Call(0, kSum);
  EXPECT_TRUE(formed.Leave(0));
  EXPECT_THAT(formed.status(under_way), testing::StatusIs(absl::StatusCode::kAborted));
}

TEST(GroupCore, AMemberStaysForTheNextLifeOfOneThatDiedIfCallsWaitForIt) {
  for (const OnLoss on_loss : {OnLoss::kWait, OnLoss::kExclude}) {
    Group group(2);
    group.Form();
    const CallSpec broadcast{.kind = CallKind::kBroadcast, .on_loss = on_loss, .bytes = 8};
    EXPECT_THAT(group.status(group.Call(0, broadcast)), testing::IsOk());
    group.Die(1);
    EXPECT_EQ(group.Leave(0), on_loss == OnLoss::kExclude);
    group.Pass(kLeavePatience);
    EXPECT_TRUE(group.settled(0));
  }
}

TEST(GroupCore, AWorldOfOneNeedsNoMessage) {
  Group group(1);
  group.Form();
  EXPECT_THAT(group.status(group.Call(0, kSum)), testing::IsOk());
  EXPECT_EQ(group.messages(), 0u);
}

TEST(GroupCore, MembersThatDifferGetAnErrorThatNamesBothSides) {
  Group group(3);
  group.Form();
  CallSpec other = kSum;
  other.bytes = 16;
  const GroupCallId ids[] = {group.Call(0, kSum), group.Call(1, other), group.Call(2, kSum)};
  for (const GroupCallId id : ids) {
    EXPECT_THAT(
        group.status(id),
        testing::StatusIs(absl::StatusCode::kInvalidArgument,
                          "call 1 of train/worker differs: rank 0 calls AllReduce(sum of "
                          "u8, 8 bytes, on_loss=fail), rank 1 calls AllReduce(sum of u8, 16 "
                          "bytes, on_loss=fail)"));
  }
  // The group goes on with the next call.
  std::vector<GroupCallId> next;
  for (int rank = 0; rank < 3; ++rank) next.push_back(group.Call(rank, kSum));
  for (const GroupCallId id : next) EXPECT_THAT(group.status(id), testing::IsOk());
}

// The call with this number, after a checkpoint.
CallSpec Says(CallSpec spec, KeepSpec keep) {
  spec.on_loss = OnLoss::kWait;
  spec.retain = kUntilReleased;
  spec.copies = 2;
  spec.keep = keep;
  return spec;
}

TEST(GroupCore, ResultsAreReleasedWhenACallHasEndedThatAllMembersHaveMade) {
  Group group(3);
  group.Form();
  for (int rank = 0; rank < 3; ++rank) group.Call(rank, Says(kSum, {}));
  EXPECT_EQ(group.released(0), std::vector<uint64_t>{0});
  // The root of a broadcast is ahead of the others.
  const CallSpec broadcast =
      Says({.kind = CallKind::kBroadcast, .bytes = 8}, {.released = 1, .mark = 1});
  EXPECT_THAT(group.status(group.Call(0, broadcast)), testing::IsOk());
  for (int rank = 1; rank < 3; ++rank) group.Call(rank, broadcast);
  EXPECT_EQ(group.released(0).size(), 1u);
  for (int rank = 0; rank < 2; ++rank) group.Call(rank, Says(kSum, {.released = 2, .mark = 2}));
  EXPECT_EQ(group.released(0).size(), 1u);
  group.Call(2, Says(kSum, {.released = 2, .mark = 2}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group.released(rank), (std::vector<uint64_t>{0, 2}));
  }
}

TEST(GroupCore, ANextLifeHearsWhatTheNewestCallHasSaidThatHasEndedSomewhere) {
  Group group(3);
  group.Form();
  for (int rank = 0; rank < 3; ++rank) group.Call(rank, Says(kSum, {.mark = 1}));
  const KeepSpec keep{.mark = 1};
  // It ends at its root alone: the checkpoint before it is the root's alone, too.
  EXPECT_THAT(group.status(group.Call(0, Says({.kind = CallKind::kBroadcast, .bytes = 8},
                                              {.boot = 1, .released = 1, .mark = 2}))),
              testing::IsOk());
  group.Die(2);
  group.Return(2);
  EXPECT_EQ(group.entered().rank, 2);
  EXPECT_EQ(group.entered().first, 3u);
  EXPECT_EQ(group.entered().keep, keep);
  // The node of the root ends. The others know what the calls before have carried.
  group.Die(0);
  group.Return(0);
  EXPECT_EQ(group.entered().rank, 0);
  EXPECT_EQ(group.entered().keep, keep);
}

TEST(GroupCore, WhatACallReleasesHoldsIfItNeedsAllMembers) {
  constexpr std::pair<CallKind, bool> kKinds[] = {
      {CallKind::kAllReduce, true}, {CallKind::kReduce, false},       {CallKind::kBroadcast, false},
      {CallKind::kAllGather, true}, {CallKind::kReduceScatter, true}, {CallKind::kAllToAll, true},
      {CallKind::kBarrier, true}};
  static_assert(std::size(kKinds) == kCallKinds);
  for (const auto& [kind, all] : kKinds) {
    CallSpec spec = Says({.kind = kind}, {.released = 4});
    EXPECT_EQ(Releases(5, spec), all) << CallKindName(kind);
    EXPECT_FALSE(Releases(4, spec));
    spec.retain = 10;
    EXPECT_FALSE(Releases(5, spec));
  }
}

// Call 8 has ended on one node alone, and is made again: that node has freed what it releases. Only
// its root has made call 9.
TEST(DecideResume, AMemberThatMakesACallAgainHearsWhatThatCallSays) {
  const CallSpec scatter = Says({.kind = CallKind::kReduceScatter, .bytes = 8}, {.released = 7});
  const CallSpec broadcast = Says({.kind = CallKind::kBroadcast, .bytes = 8}, {.released = 8});
  const NewestKeep seventh{7, {.released = 3}};
  NodeReport ahead{.fresh = false, .ended = 9, .first = 1, .calls = {}, .newest = seventh};
  ahead.calls.push_back({8, CallEnd::kResult, 2, scatter});
  ahead.calls.push_back({9, CallEnd::kResult, 2, broadcast});
  const NodeReport behind{.fresh = false, .ended = 7, .first = 1, .calls = {}, .newest = seventh};
  ResumeOrder order = DecideResume({ahead, behind, NodeReport()});
  EXPECT_EQ(order.base, 7u);
  EXPECT_EQ(order.newest.call, 8u);
  EXPECT_EQ(order.newest.keep, scatter.keep);
  // Without that node nothing is known of it.
  order = DecideResume({behind, NodeReport()});
  EXPECT_EQ(order.newest.call, 7u);
  EXPECT_EQ(DecideResume({NodeReport()}).newest.call, 0u);
}

TEST(GroupCore, MembersThatReleaseOtherResultsOrThoseOfTheCallItselfGetAnError) {
  for (const KeepSpec& wrong : {KeepSpec{.released = 1}, KeepSpec{.boot = 1}}) {
    Group group(2);
    group.Form();
    const GroupCallId ids[] = {group.Call(0, Says(kSum, wrong)), group.Call(1, Says(kSum, wrong))};
    for (const GroupCallId id : ids) {
      EXPECT_THAT(group.status(id), testing::StatusIs(absl::StatusCode::kInvalidArgument));
    }
  }
  Group group(2);
  group.Form();
  const GroupCallId ids[] = {group.Call(0, Says(kSum, {.mark = 1})),
                             group.Call(1, Says(kSum, {.mark = 2}))};
  for (const GroupCallId id : ids) {
    EXPECT_THAT(group.status(id),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("retain=until released (boot 0, released 0, mark 2)")));
  }
}

TEST(GroupCore, EveryWayToDifferIsAnErrorThatNamesBothSides) {
  const struct {
    CallSpec one, other;
    std::string text;
    bool rooted = false;  // one side can have ended before the other one is heard of
  } cases[] = {
      {kSum, {.kind = CallKind::kAllReduce, .dtype = DType::kI8, .bytes = 8}, "sum of i8"},
      {kSum,
       {.kind = CallKind::kAllReduce, .op = ReduceOp::kMax, .dtype = DType::kU8, .bytes = 8},
       "max of u8"},
      {kSum,
       {.kind = CallKind::kAllReduce, .dtype = DType::kU8, .on_loss = OnLoss::kWait, .bytes = 8},
       "on_loss=wait"},
      {{.kind = CallKind::kReduce, .dtype = DType::kU8, .bytes = 8, .root = 0},
       {.kind = CallKind::kReduce, .dtype = DType::kU8, .bytes = 8, .root = 1},
       "root 1",
       true},
      {{.kind = CallKind::kBroadcast, .bytes = 8, .root = 0},
       {.kind = CallKind::kBroadcast, .bytes = 8, .root = 1},
       "root 1",
       true},
      {kSum, kBarrier, "Barrier"},
      {{.kind = CallKind::kAllGather, .bytes = 8},
       {.kind = CallKind::kAllGather, .bytes = 16},
       "16 bytes"},
  };
  for (const auto& [one, other, text, rooted] : cases) {
    Group group(3);
    group.Form();
    const GroupCallId ids[] = {group.Call(0, one), group.Call(1, other), group.Call(2, one)};
    group.Pass(absl::Seconds(2));
    int failed = 0;
    for (const GroupCallId id : ids) {
      ASSERT_TRUE(group.ended(id)) << text;
      if (rooted && group.status(id).ok()) continue;
      ++failed;
      EXPECT_THAT(group.status(id),
                  testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr("call 1 of train/worker differs: rank "),
                                          HasSubstr(one.ToString()), HasSubstr(other.ToString()),
                                          HasSubstr(text))));
    }
    EXPECT_GE(failed, rooted ? 1 : 3) << text;
  }
}

TEST(GroupCore, ABroadcastAgainstAnAllReduceIsFoundByAsking) {
  Group group(2);
  group.Form();
  const GroupCallId sum = group.Call(0, kSum);
  const GroupCallId leaf = group.Call(1, {.kind = CallKind::kBroadcast, .bytes = 8});
  EXPECT_FALSE(group.ended(sum));
  group.Pass(absl::Seconds(2));
  EXPECT_EQ(group.status(sum).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group.status(leaf).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GroupCore, ACallThatNobodyElseMakesNamesTheMissingRanksAtItsDeadline) {
  Group group(4);
  group.Form();
  const GroupCallId waits[] = {group.Call(0, kBarrier, absl::Seconds(3)),
                               group.Call(2, kBarrier, absl::Seconds(3)),
                               group.Call(3, kBarrier, absl::Seconds(3))};
  group.Pass(absl::Seconds(4));
  for (const GroupCallId id : waits) {
    EXPECT_EQ(group.status(id).code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(absl::StrContains(group.status(id).message(), "waiting for rank 1 (worker1)"))
        << group.status(id);
  }
}

TEST(GroupCore, AMemberThatNeverJoinsIsNamedAtTheDeadlineOnAllOthers) {
  Group group(3);
  group.NeverJoins(1);
  group.Form();
  const GroupCallId ids[] = {group.Call(0, kBarrier, absl::Seconds(1)),
                             group.Call(2, kBarrier, absl::Seconds(1))};
  group.Pass(absl::Seconds(2));
  for (const GroupCallId id : ids) {
    EXPECT_THAT(group.status(id), testing::StatusIs(absl::StatusCode::kDeadlineExceeded,
                                                    AllOf(HasSubstr("a call of train/worker by"),
                                                          HasSubstr("waiting for rank 1"))));
  }
}

TEST(GroupCore, ACallFailsWhenAMemberDiesAndNamesIt) {
  Group group(3);
  group.Form();
  const GroupCallId id = group.Call(0, kSum);
  group.Call(1, kSum);
  group.Die(2);
  EXPECT_THAT(group.status(id),
              testing::StatusIs(absl::StatusCode::kUnavailable,
                                "call 1 of train/worker: rank 2 (worker2) has ended"));
}

TEST(GroupCore, ACallGoesOnWithoutAMemberThatDies) {
  Group group(3);
  group.Form();
  CallSpec spec = kSum;
  spec.on_loss = OnLoss::kExclude;
  const GroupCallId id = group.Call(0, spec);
  group.Call(1, spec);
  group.Die(2);
  ASSERT_THAT(group.status(id), testing::IsOk());
  EXPECT_EQ(group.done(id).result, std::string(8, '\2'));
  EXPECT_EQ(group.done(id).members, 2);
}

// What its node has sent is of the list before, and is of no use under the next one.
TEST(GroupCore, AMemberThatDiesWhenItsCallHasEndedTakesTheResultWithIt) {
  Group group(2);
  group.Form();
  const CallSpec broadcast{.kind = CallKind::kBroadcast, .on_loss = OnLoss::kWait, .bytes = 8};
  EXPECT_THAT(group.status(group.Call(0, broadcast)), testing::IsOk());
  group.Die(0);
  const GroupCallId waits = group.Call(1, broadcast);
  group.Pass(absl::Minutes(1));
  EXPECT_FALSE(group.ended(waits));
  group.Return(0);
  EXPECT_EQ(group.entered().first, 1u);
  EXPECT_THAT(group.status(group.Call(0, broadcast)), testing::IsOk());
  EXPECT_THAT(group.status(waits), testing::IsOk());
}

TEST(GroupCore, WrongArgumentsFailOnAllMembers) {
  Group group(2);
  group.Form();
  const GroupCallId right = group.Call(0, kSum);
  const GroupCallId wrong = group.Call(1, {.kind = CallKind::kAllReduce, .bytes = 0});
  EXPECT_EQ(group.status(right).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(group.status(wrong),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                "call 1 of train/worker: rank 1: AllReduce of 0 bytes"));
}

TEST(GroupCore, AMemberWhoseCallsFailAtOnceIsNotFurtherAheadThanTheLimit) {
  Group group(2);
  group.Form();
  const GroupCallId waits = group.Call(0, kBarrier);
  const CallSpec wrong{.kind = CallKind::kReduce, .bytes = 8, .root = 99};
  for (size_t i = 0; i < kMaxOutstandingCalls; ++i) {
    EXPECT_EQ(group.status(group.Call(0, wrong)).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(group.TryCall(0, wrong).code(), absl::StatusCode::kResourceExhausted);
  group.Call(1, kBarrier);
  EXPECT_THAT(group.status(waits), testing::IsOk());
  for (size_t i = 0; i < kMaxOutstandingCalls; ++i) {
    EXPECT_EQ(group.status(group.Call(1, wrong)).code(), absl::StatusCode::kInvalidArgument);
  }
  // The refused call is not counted, so both members are at the same one.
  const GroupCallId next = group.Call(0, kSum);
  group.Call(1, kSum);
  EXPECT_THAT(group.status(next), testing::IsOk());
}

TEST(GroupCore, AMemberThatWasRefusedACallMakesNoOtherUntilItHasNoneUnderWay) {
  Group group(2);
  group.Form();
  for (size_t i = 0; i < kMaxOutstandingCalls; ++i) group.Call(0, kBarrier);
  EXPECT_EQ(group.TryCall(0, kBarrier).code(), absl::StatusCode::kResourceExhausted);
  for (size_t i = 0; i + 1 < kMaxOutstandingCalls; ++i) group.Call(1, kBarrier);
  // It would be the call that was refused.
  EXPECT_EQ(group.TryCall(0, kSum).code(), absl::StatusCode::kResourceExhausted);
  group.Call(1, kBarrier);
  const GroupCallId next = group.Call(0, kSum);
  group.Call(1, kSum);
  EXPECT_THAT(group.status(next), testing::IsOk());
}

TEST(GroupCore, CallsThatFailAtOnceBeforeTheFirstViewAreLimitedToo) {
  Group group(2);
  for (size_t i = 0; i < kMaxOutstandingCalls; ++i) group.Call(0, kSum, absl::Milliseconds(5));
  group.Pass(absl::Seconds(1));
  EXPECT_EQ(group.TryCall(0, kSum).code(), absl::StatusCode::kResourceExhausted);
}

TEST(GroupCore, ACallOfManyMessagesWaitsUntilTheOtherNodeTakesPart) {
  // Each node has 1,600 messages of 8 bytes for the other one.
  Group group(80, 2);
  group.Form();
  const CallSpec spec{.kind = CallKind::kAllToAll, .bytes = 8};
  std::vector<GroupCallId> ids;
  for (int rank = 1; rank < 80; rank += 2) ids.push_back(group.Call(rank, spec));
  EXPECT_LE(group.core(0).status().early_messages, kEagerMessages);
  for (int rank = 0; rank < 80; rank += 2) ids.push_back(group.Call(rank, spec));
  for (const GroupCallId id : ids) ASSERT_THAT(group.status(id), testing::IsOk());
  EXPECT_EQ(group.given_up(), 0u);
}

TEST(GroupCore, AnOrderThatEndsVeryManyFailedCallsIsCarriedOutAtOnce) {
  const GroupView view = ViewOf({LiveMember(0, {1, 1}), LiveMember(1, {2, 1}, /*life=*/1)});
  GroupCore core({2, 1}, 7, "train/worker");
  core.AddMember(1, 1);
  (void)core.OnView(view, Instant());
  ASSERT_THAT(core.Call(1, 1, {.id = 1, .spec = kBarrier}, Instant()), testing::IsOk());
  const GroupHeader header{.kind = GroupMessage::kResume,
                           .group = 7,
                           .list = MakeGroupList(view, {2, 1}).digest,
                           .epoch = view.epoch};
  ResumeOrder order;
  order.last = kMaxCallNumber;
  order.firsts = {1, 1};
  core.OnMessage({1, 1}, header, EncodeOrder(order), Instant());
  EXPECT_EQ(core.status().ended, kMaxCallNumber);
  bool failed = false;
  for (const GroupEffect& effect : core.TakeEffects()) {
    const auto* done = std::get_if<GroupDone>(&effect);
    failed |= done != nullptr && absl::IsAborted(done->status);
  }
  EXPECT_TRUE(failed);
  ++order.last;
  EXPECT_EQ(DecodeOrder(EncodeOrder(order), 2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GroupCore, RememberedPlansHaveAtMostSoManySteps) {
  PlanCache plans;
  GroupShape shape{.world = 512, .ranks = {{}, {}}};
  for (int rank = 0; rank < 512; ++rank) shape.ranks[rank % 2].push_back(rank);
  for (uint64_t bytes = 8; bytes <= 64; bytes += 8) {
    plans.Get(shape, {.kind = CallKind::kAllToAll, .bytes = bytes}, 0, false);
    // One plan alone has more steps than all may have.
    EXPECT_EQ(plans.steps(), 3u * 256 * 256);
  }
}

TEST(GroupCore, KeepsTheResultsOfFewCalls) {
  Group group(4);
  group.Form();
  for (int call = 0; call < 1000; ++call) {
    const CallSpec broadcast{.kind = CallKind::kBroadcast, .bytes = 64};
    for (int rank = 0; rank < 4; ++rank) group.Call(rank, call % 2 == 0 ? kSum : broadcast);
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(group.core(rank).status().ended, 1000u);
    EXPECT_LE(group.core(rank).status().kept_calls, 2 * kAcknowledgeEvery);
    EXPECT_EQ(group.core(rank).status().early_messages, 0u);
  }
}

}  // namespace
}  // namespace phalanx::jobs
