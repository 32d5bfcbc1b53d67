// Questions and vouches from any node, with any number and any list, beside answers that wait for
// them. A member that the shard does not confirm gets an answer only when every other node of the
// current list has vouched for its call under that list, or the core says that all have ended it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "src/common/check.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/group/service/held_answers.h"
#include "src/jobs/group/service/vouched_calls.h"
#include "src/jobs/group/testing/group_parts.h"

namespace phalanx::jobs {
namespace {

constexpr int kRanks = 5;
const NodeKey kSelf{1, 1};

// Node 7 never has a member, and node 2 has two incarnations.
NodeKey NodeOf(uint8_t byte) {
  const uint64_t node = byte % 7 + 1;
  return {node, node == 2 && (byte & 64) != 0 ? 2u : 1u};
}

class Node {
 public:
  Node() : view_(LiveView(kRanks)) { Show(); }

  // Each command is four bytes.
  void Run(const uint8_t* command) {
    switch (command[0] % 4) {
      case 0:
        Change(command[1], command[2]);
        break;
      case 1:
        Receive(command[0] >> 2, command[1], command[2], command[3]);
        break;
      case 2:
        Lose(NodeOf(command[1]), command[1] & 128);
        break;
      default:
        if (list_->self >= 0) End(command[1], command[2]);
    }
    Advance();
  }

 private:
  // A member dies, or its next life joins.
  void Change(uint8_t which, uint8_t where) {
    Member& member = view_.members[which % kRanks];
    if (member.live()) {
      member.state = MemberState::kDied;
    } else {
      ++member.life;
      member.state = MemberState::kLive;
      member.node = NodeOf(where).node == 7 ? kSelf : NodeOf(where);
    }
    ++view_.epoch.counter;
    Show();
  }

  // As the core and the GroupService.
  void Show() {
    const auto list = ListOf(view_, kSelf);
    if (list->digest != std::exchange(list_, list)->digest) {
      vouched_for_.clear();
      asked_for_.clear();
    }
    vouched_.OnList(list_);
    held_.OnView(view_);
    if (list_->self >= 0) return;
    core_ = {};
    justified_ = 0;
  }

  void Receive(uint8_t list, uint8_t node, uint8_t call, uint8_t epoch) {
    const bool asks = node & 128;
    GroupHeader header{.kind = asks ? GroupMessage::kAskVouch : GroupMessage::kVouch,
                       .group = 7,
                       .list = list % 4 == 0 ? list : list_->digest,
                       .epoch = {1, epoch % 8 < 6 ? list_->epoch.counter : epoch},
                       .call = list % 4 == 1 ? kMaxCallNumber - call : call % 16};
    const NodeKey from = NodeOf(node);
    vouched_.OnMessage(from, header);
    if (asks) askers_.insert(from);
    if (header.list != list_->digest) return;
    const auto count = [&](std::map<NodeKey, uint64_t>& calls) {
      calls[from] = std::max(calls[from], header.call);
    };
    if (asks) count(asked_for_);
    // A vouch without a question counts nothing.
    if (asks || asked_.contains(from) || askers_.contains(from)) count(vouched_for_);
  }

  void Lose(const NodeKey& node, bool restarted) {
    vouched_.OnLost(
        node, restarted ? absl::AbortedError("has restarted") : absl::UnavailableError("given up"));
  }

  // Calls end here, or on all nodes, and an answer waits; also one of a call that has failed before
  // it ends.
  void End(uint8_t calls, uint8_t settled) {
    core_.ended += calls % 4;
    core_.settled = std::min(core_.ended, core_.settled + settled % 8 / 5);
    core_.next = core_.ended + 1;
    GroupDone done{.id = next_id_++, .number = core_.ended};
    if (settled & 128) {
      done.status = absl::UnavailableError("the link was lost");
      ++done.number;
    }
    const int rank = list_->shape.ranks[static_cast<size_t>(list_->self)].front();
    const uint64_t life = list_->lives[static_cast<size_t>(rank)];
    if (done.number > 0) (void)held_.Add(done, rank, life, Instant::Infinite());
  }

  // The last call up to which all other nodes of the list are in `calls`.
  uint64_t Least(const std::map<NodeKey, uint64_t>& calls) const {
    uint64_t least = core_.ended;
    for (const GroupList::Node& node : list_->nodes) {
      const auto found = calls.find(node.key);
      if (node.key != kSelf) least = std::min(least, found == calls.end() ? 0 : found->second);
    }
    return least;
  }

  void Advance() {
    const uint64_t wanted = held_.last();
    vouched_.Advance(core_, wanted);
    CheckSends();
    if (list_->self >= 0) justified_ = std::max({justified_, core_.settled, Least(vouched_for_)});
    PHALANX_CHECK(vouched_.upto() <= justified_, "calls were not vouched for");
    const bool asks = std::min(wanted, core_.ended) > core_.settled && list_->self >= 0;
    PHALANX_CHECK(!asks || vouched_.upto() >= Least(asked_for_), "vouches were not counted");
    for (const GroupDone& done : held_.Take(/*confirmed=*/false, vouched_.upto(), Instant())) {
      const bool waited = HeldAnswers::Waits(done.status);
      PHALANX_CHECK(!waited || done.number <= justified_, "an answer was given too early");
    }
  }

  // To other nodes of this list, at most one question and one vouch in a turn.
  void CheckSends() {
    std::set<std::pair<NodeKey, GroupMessage>> sent;
    for (const GroupSend& send : vouched_.TakeSends()) {
      const absl::StatusOr<GroupHeader> header = DecodeHeader(send.header);
      PHALANX_CHECK(header.ok(), "a header that cannot be decoded");
      const NodeKey& to = send.to.key;
      PHALANX_CHECK(list_->IndexOf(to) >= 0 && to != kSelf, "a message to no node of the list");
      PHALANX_CHECK(header->list == list_->digest && header->call <= core_.ended,
                    "another list or call");
      PHALANX_CHECK(sent.insert({to, header->kind}).second, "the same message twice");
      if (header->kind == GroupMessage::kAskVouch) asked_.insert(to);
    }
  }

  GroupView view_;
  std::shared_ptr<const GroupList> list_ = std::make_shared<const GroupList>();
  VouchedCalls vouched_{kSelf, 7};
  HeldAnswers held_{kSelf, "job/role"};
  GroupStatus core_;
  GroupCallId next_id_ = 1;
  // What the other nodes have vouched for under this list, in any message and in questions.
  std::map<NodeKey, uint64_t> vouched_for_;
  std::map<NodeKey, uint64_t> asked_for_;
  // Under any list.
  std::set<NodeKey> asked_;
  std::set<NodeKey> askers_;
  // The greatest call whose answers members may have.
  uint64_t justified_ = 0;
};

}  // namespace
}  // namespace phalanx::jobs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::jobs::Node node;
  for (; size >= 4; size -= 4, data += 4) node.Run(data);
  return 0;
}
