// Which calls all nodes of a list have ended, as a node learns from the others.
#include "src/jobs/group/service/vouched_calls.h"

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {
namespace {

const NodeKey kFirst{1, 1};
const NodeKey kSecond{2, 1};
const NodeKey kThird{3, 1};

GroupView ViewOf(uint64_t epoch, std::vector<NodeKey> nodes) {
  GroupView view;
  view.epoch = {1, epoch};
  view.world = static_cast<int>(nodes.size());
  for (const NodeKey& node : nodes) {
    Member& member = view.members.emplace_back();
    member.rank = static_cast<int>(view.members.size()) - 1;
    member.state = MemberState::kLive;
    member.node = node;
  }
  return view;
}

// What a node sends: to whom, which message, the call.
using Sent = std::vector<std::tuple<NodeKey, GroupMessage, uint64_t>>;

// Some nodes, between which the test passes messages.
class VouchedCallsTest : public ::testing::Test {
 protected:
  struct Node {
    explicit Node(const NodeKey& key) : key(key), calls(key, 7) {}
    void Show(const GroupView& view) {
      calls.OnList(std::make_shared<const GroupList>(MakeGroupList(view, key)));
    }
    NodeKey key;
    VouchedCalls calls;
    std::vector<GroupSend> sends;
  };
  void ShowAll(const GroupView& view) {
    for (Node* node : {&first_, &second_, &third_}) node->Show(view);
  }
  static void Advance(Node& node, uint64_t ended, uint64_t wanted) {
    node.calls.Advance({.next = ended + 1, .ended = ended}, wanted);
  }
  // What the node has sent since the last time, which stays in `sends`.
  static Sent Take(Node& node) {
    node.sends = node.calls.TakeSends();
    Sent sent;
    for (const GroupSend& send : node.sends) {
      const GroupHeader header = *DecodeHeader(send.header);
      sent.emplace_back(send.to.key, header.kind, header.call);
    }
    return sent;
  }
  static void Pass(const Node& from, Node& to) {
    for (const GroupSend& send : from.sends) {
      if (send.to.key == to.key) to.calls.OnMessage(from.key, *DecodeHeader(send.header));
    }
  }

  Node first_{kFirst};
  Node second_{kSecond};
  Node third_{kThird};
};

constexpr GroupMessage kAsk = GroupMessage::kAskVouch;
constexpr GroupMessage kVouch = GroupMessage::kVouch;

TEST_F(VouchedCallsTest, ACallIsVouchedForWhenAllOtherNodesHaveEndedIt) {
  ShowAll(ViewOf(1, {kFirst, kSecond, kThird}));
  Advance(first_, 5, /*wanted=*/5);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 5}, {kThird, kAsk, 5}}));
  Pass(first_, second_);
  Pass(first_, third_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kVouch, 5}}));
  Pass(second_, first_);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 0u);
  // The third node has not ended it yet, and says so when it has.
  Advance(third_, 4, 0);
  EXPECT_EQ(Take(third_), Sent({{kFirst, kVouch, 4}}));
  Pass(third_, first_);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 4u);
  Advance(third_, 6, 0);
  EXPECT_EQ(Take(third_), Sent({{kFirst, kVouch, 6}}));
  Pass(third_, first_);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 5u);
  Advance(third_, 7, 0);
  EXPECT_EQ(Take(third_), Sent());
  EXPECT_EQ(Take(first_), Sent());
}

TEST_F(VouchedCallsTest, NodesThatAskEachOtherNeedNoAnswers) {
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  // The first questions are answered, since the other node may have sent its own under another
  // list.
  Advance(first_, 1, 1);
  Advance(second_, 1, 1);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 1}}));
  EXPECT_EQ(Take(second_), Sent({{kFirst, kAsk, 1}}));
  Pass(first_, second_);
  Pass(second_, first_);
  Advance(first_, 1, 1);
  Advance(second_, 1, 1);
  EXPECT_EQ(first_.calls.upto(), 1u);
  EXPECT_EQ(second_.calls.upto(), 1u);
  Take(first_);
  Take(second_);
  Pass(first_, second_);
  Pass(second_, first_);
  Advance(first_, 2, 2);
  Advance(second_, 2, 2);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 2}}));
  EXPECT_EQ(Take(second_), Sent({{kFirst, kAsk, 2}}));
  Pass(first_, second_);
  Pass(second_, first_);
  Advance(first_, 2, 2);
  Advance(second_, 2, 2);
  EXPECT_EQ(first_.calls.upto(), 2u);
  EXPECT_EQ(second_.calls.upto(), 2u);
  EXPECT_EQ(Take(first_), Sent());
  EXPECT_EQ(Take(second_), Sent());
}

TEST_F(VouchedCallsTest, ANodeThatKnowsANewerListDoesNotVouch) {
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  second_.Show(ViewOf(2, {kThird, kSecond}));
  Advance(first_, 5, 5);
  Take(first_);
  Pass(first_, second_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent());
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 0u);
}

TEST_F(VouchedCallsTest, AVouchOfAnotherListDoesNotCount) {
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  Advance(first_, 5, 5);
  Take(first_);
  Pass(first_, second_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kVouch, 5}}));
  first_.Show(ViewOf(2, {kFirst, kSecond, kThird}));
  Pass(second_, first_);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 0u);
}

TEST_F(VouchedCallsTest, AQuestionUnderANewerListWaitsForTheList) {
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  const GroupView next = ViewOf(2, {kFirst, kSecond, kThird});
  first_.Show(next);
  Advance(first_, 5, 5);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 5}, {kThird, kAsk, 5}}));
  Pass(first_, second_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent());
  second_.Show(next);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kVouch, 5}}));
}

TEST_F(VouchedCallsTest, AsksAgainWhenALinkIsLostButNoProcessThatHasEnded) {
  ShowAll(ViewOf(1, {kFirst, kSecond, kThird}));
  Advance(first_, 5, 5);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 5}, {kThird, kAsk, 5}}));
  first_.calls.OnLost(kSecond, absl::UnavailableError("given up"));
  first_.calls.OnLost(kThird, absl::AbortedError("has restarted"));
  Advance(first_, 5, 5);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 5}}));
  Advance(first_, 6, 6);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 6}}));
  // Nor under a list that is made before the shard knows.
  first_.Show(ViewOf(2, {kFirst, kSecond, kThird, kFirst}));
  Advance(first_, 6, 6);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 6}}));
}

TEST_F(VouchedCallsTest, VouchesAgainUnderANewList) {
  for (const GroupView& view : {ViewOf(1, {kFirst, kSecond}), ViewOf(2, {kSecond, kFirst})}) {
    ShowAll(view);
    Advance(second_, 5, 5);
    EXPECT_EQ(Take(second_), Sent({{kFirst, kAsk, 5}}));
    Pass(second_, first_);
    Advance(first_, 5, 0);
    EXPECT_EQ(Take(first_), Sent({{kSecond, kVouch, 5}}));
  }
}

TEST_F(VouchedCallsTest, AQuestionUnderAnOlderListIsNoVouchUnderANewerOne) {
  const GroupView next = ViewOf(2, {kSecond, kFirst});
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  second_.Show(next);
  Advance(second_, 5, 5);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kAsk, 5}}));
  Pass(second_, first_);
  Advance(first_, 5, 5);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kAsk, 5}}));
  Pass(first_, second_);
  first_.Show(next);
  Advance(first_, 5, 0);
  EXPECT_EQ(Take(first_), Sent({{kSecond, kVouch, 5}}));
  Advance(second_, 5, 5);
  EXPECT_EQ(second_.calls.upto(), 0u);
  Pass(first_, second_);
  Advance(second_, 5, 5);
  EXPECT_EQ(second_.calls.upto(), 5u);
}

TEST_F(VouchedCallsTest, AnswersAgainOverANewLink) {
  ShowAll(ViewOf(1, {kFirst, kSecond}));
  Advance(first_, 5, 5);
  Take(first_);
  Pass(first_, second_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kVouch, 5}}));
  second_.calls.OnLost(kFirst, absl::UnavailableError("given up"));
  Pass(first_, second_);
  Advance(second_, 5, 0);
  EXPECT_EQ(Take(second_), Sent({{kFirst, kVouch, 5}}));
}

TEST_F(VouchedCallsTest, TheOnlyNodeAndSettledCallsNeedNoVouch) {
  first_.Show(ViewOf(1, {kFirst}));
  Advance(first_, 5, 7);
  EXPECT_EQ(first_.calls.upto(), 5u);
  second_.Show(ViewOf(1, {kFirst, kSecond}));
  second_.calls.Advance({.next = 6, .ended = 5, .settled = 4}, 4);
  EXPECT_EQ(second_.calls.upto(), 4u);
  EXPECT_EQ(Take(second_), Sent());
}

TEST_F(VouchedCallsTest, WithoutALiveMemberTheNodeForgetsWhatWasVouchedFor) {
  first_.Show(ViewOf(1, {kFirst}));
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 5u);
  first_.Show(ViewOf(2, {kSecond}));
  EXPECT_EQ(first_.calls.upto(), 0u);
}

TEST_F(VouchedCallsTest, AVouchOfANodeThatHasNoMemberDoesNotCount) {
  const GroupView view = ViewOf(1, {kFirst, kSecond});
  ShowAll(view);
  GroupHeader header{.kind = kAsk, .group = 7, .epoch = view.epoch, .call = 5};
  header.list = MakeGroupList(view, kFirst).digest;
  for (const NodeKey& node : {kFirst, kThird}) first_.calls.OnMessage(node, header);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 0u);
  first_.calls.OnMessage(kSecond, header);
  Advance(first_, 5, 5);
  EXPECT_EQ(first_.calls.upto(), 5u);
}

}  // namespace
}  // namespace phalanx::jobs
