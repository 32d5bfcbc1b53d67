// GroupCore: the call at the cursor, from its beginning to its end.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/jobs/group/group_core.h"

namespace phalanx::jobs {
namespace {

// Every node finds the same error by itself, as the list and the call are the same.
absl::Status CheckLosses(const GroupList& list, const CallSpec& spec, absl::string_view title) {
  if (list.ended.empty()) return absl::OkStatus();
  if (spec.on_loss == OnLoss::kExclude) {
    // Without its root a Reduce has no receiver, and a Broadcast has no bytes.
    if (!HasRoot(spec.kind) || list.shape.NodeOf(static_cast<int>(spec.root)) >= 0) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat(title, ": the root, ", list.Name({spec.root}), ", has ended"));
  }
  return absl::UnavailableError(absl::StrCat(title, ": ", list.Name(list.ended), " has ended"));
}

// Whether what the call says holds for all members once it has ended: one in which every member
// gives something ends only after all have made it. A member can make others long before the rest.
bool Releases(uint64_t number, const CallSpec& spec) {
  return spec.retain == kUntilReleased && spec.keep.released < number &&
         (NeedsAll(spec.kind) || DefectActive(Defect::kResultsReleasedByBroadcast));
}

}  // namespace

void GroupCore::Advance() {
  while (state_ == State::kRunning && AdvanceOne()) {
  }
  // The nodes agree only when a call needs it, so an idle group sends nothing after a change of its
  // list.
  if (state_ == State::kIdle && HasWaiting()) Demand();
  if (leaving_.idle()) return;
  // A node whose members are in their next lives, and take part in no call yet, may have to be
  // given the result of one that has ended elsewhere.
  if (list_->self >= 0 && !IsFresh()) {
    for (const auto& [peer, call] : leaving_.TakeAnswers(*list_, ended_)) {
      Send(peer, GroupMessage::kHasEnded, call);
    }
  }
  if (const size_t members = leaving_.TakeOver(*list_, ended_, settled_); members > 0) {
    effects_.emplace_back(GroupSettled{members});
  }
  const auto [peers, last] = leaving_.TakeQuestions(*list_);
  for (const int peer : peers) Send(peer, GroupMessage::kAskEnded, last);
}

void GroupCore::Agree() {
  if (state_ != State::kIdle) return;
  Demand();
  Advance();
}

// Returns whether another step can follow.
bool GroupCore::AdvanceOne() {
  // An error ends the call even in the midst of its run, because the other nodes end it so, too.
  const auto error = errors_.find(cursor_);
  if (error != errors_.end()) {
    EndAt(CallEnd::kError, absl::Status(error->second));
    return true;
  }
  if (!current_.has_value()) return Begin();
  // OnMemory goes on with the call.
  if (current_->run == nullptr) return false;
  // Takes the steps that can be taken in this turn.
  const CallRun::State state = current_->run->Run(
      [this](int peer, absl::string_view bytes, bool copy) { return SendData(peer, bytes, copy); });
  // The rest follows in a later turn, so that other groups and links get theirs.
  if (state == CallRun::State::kMore) effects_.emplace_back(GroupRunMore{});
  if (state != CallRun::State::kDone) {
    // Members copy what is final while the rest comes.
    for (GroupPart& part : current_->TakeParts(*list_, calls_[cursor_])) {
      effects_.emplace_back(std::move(part));
    }
    return false;
  }
  EndCurrent();
  return true;
}

// An adopted result is the whole memory, and the same for all.
ResultPlace GroupCore::Current::PlaceOf(const GroupList& list, size_t slot) const {
  if (adopts) return {.bytes = ResultBytes(spec, list.shape.world, 0)};
  return ResultOf(*plan, list.shape, spec, list.self, slot);
}

std::vector<GroupPart> GroupCore::Current::TakeParts(const GroupList& list, NodeCall& call) {
  std::vector<GroupPart> shown;
  parts.Add(run->TakeFinal());
  for (const ByteRange& range : parts.Take()) {
    for (size_t slot = 0; slot < ranks.size(); ++slot) {
      const auto part = call.parts.find(ranks[slot]);
      if (part == call.parts.end() || part->second.answered) continue;
      // It has the bytes. If the call is taken again, its result can be its input.
      const bool gives =
          spec.kind == CallKind::kBroadcast && ranks[slot] == static_cast<int>(spec.root);
      if (gives) continue;
      const ResultPlace place = PlaceOf(list, slot);
      const uint64_t from = std::max(range.from, place.from);
      const uint64_t end = std::min(range.end(), place.from + place.bytes);
      if (place.memory != StepMemory::kWork || from >= end) continue;
      part->second.shown = true;
      shown.push_back({.id = part->second.request.id,
                       .result = run->Bytes(place),
                       .part = {from - place.from, end - from},
                       .memory = memory});
    }
  }
  return shown;
}

std::vector<GroupPart> GroupCore::NodeCall::VoidParts() {
  std::vector<GroupPart> voids;
  for (auto& [rank, part] : parts) {
    const bool shown = std::exchange(part.shown, false);
    if (shown && !part.answered) voids.push_back({.id = part.request.id});
  }
  return voids;
}

// Begins the call at the cursor, or ends it if that is its fate. Returns false if it has to wait.
bool GroupCore::Begin() {
  if (cursor_ >= agreement_.failed_from && cursor_ <= agreement_.failed_to) {
    // Other nodes have kept nothing of the calls up to `failed_to`, so they end in one step.
    for (auto at = calls_.lower_bound(cursor_);
         at != calls_.end() && at->first <= agreement_.failed_to; ++at) {
      NodeCall& call = at->second;
      if (call.end == CallEnd::kNone) {
        call.end = CallEnd::kError;
        call.error =
            absl::AbortedError(absl::StrCat(Title(at->first), ": the call failed on another node"));
        Keep(at->first, call, /*again=*/false);
      }
      AnswerAll(at->first, call, absl::OkStatus());
    }
    errors_.erase(errors_.begin(), errors_.upper_bound(agreement_.failed_to));
    ended_ = std::max(ended_, agreement_.failed_to);
    cursor_ = agreement_.failed_to + 1;
    Settle(settled_);
    return true;
  }
  const auto found = orders_.find(cursor_);
  if (found == orders_.end() || found->second.fate == Fate::kRun) return BeginRun();
  const ResumeOrder::Call& order = found->second;
  if (order.fate == Fate::kAdopt) return BeginAdoption(order);
  if (order.fate == Fate::kFail) {
    EndAt(CallEnd::kError, absl::AbortedError(absl::StrCat(Title(cursor_), ": ", order.why)));
    return true;
  }
  // kEnd: the call has ended on another node, and the members here need no bytes of it.
  if (cursor_ > ended_) {
    calls_[cursor_].spec = order.spec;
    calls_[cursor_].members = static_cast<int>(order.members);
  }
  // A Reduce has ended at its root, so the members here have only given to it. A Barrier is over
  // for all members.
  const bool barrier = order.spec.kind == CallKind::kBarrier;
  EndAt(barrier ? CallEnd::kResult : CallEnd::kSent, absl::OkStatus());
  return true;
}

// A part that an earlier life gave does not count: the next life gives its own.
std::vector<int> GroupCore::NeededRanks(bool& all) const {
  all = true;
  std::vector<int> ranks;
  const auto call = calls_.find(cursor_);
  for (const int rank : list_->shape.ranks[static_cast<size_t>(list_->self)]) {
    ranks.push_back(rank);
    if (call == calls_.end()) {
      all = false;
      continue;
    }
    const auto part = call->second.parts.find(rank);
    // The input of an earlier life does not count: the next life makes the call again.
    const bool old = part != call->second.parts.end() &&
                     part->second.life != list_->lives[static_cast<size_t>(rank)] &&
                     !DefectActive(Defect::kGroupOlderLifeUsed);
    if (part == call->second.parts.end() || old) all = false;
  }
  return ranks;
}

bool GroupCore::BeginRun() {
  bool all = false;
  const std::vector<int> ranks = NeededRanks(all);
  if (!all) {
    // A member that has entered after this call takes no part in it: its result was to be adopted,
    // and was lost with the nodes that had it.
    const bool lost = std::any_of(ranks.begin(), ranks.end(), [this](int rank) {
      const auto member = members_.find(rank);
      return member != members_.end() && member->second.last.has_value() &&
             member->second.first > cursor_;
    });
    if (!lost) return false;
    FailCall(cursor_, absl::AbortedError(absl::StrCat(
                          Title(cursor_), ": the nodes that had its result have ended")));
    return true;
  }
  NodeCall& call = calls_[cursor_];
  // CheckAgreement has compared the members of this node, so the first spec is that of all.
  const CallSpec spec = call.parts.at(ranks.front()).request.spec;
  // What Enter has found wrong has failed already. A plan never depends on that.
  for (const int rank : ranks) {
    const absl::Status checked = CheckPart(cursor_, rank, call.parts.at(rank));
    if (checked.ok()) continue;
    FailCall(cursor_, checked);
    return true;
  }
  // The member's next life changes the list, and the call begins then.
  if (!list_->ended.empty() && spec.on_loss == OnLoss::kWait) return false;
  if (const absl::Status lost = CheckLosses(*list_, spec, Title(cursor_)); !lost.ok()) {
    EndAt(CallEnd::kError, lost);
    return true;
  }
  if (DefectActive(Defect::kGroupEndedTakesNoPart) && cursor_ <= ended_) {
    Leave();
    return true;
  }
  // clang 14 does not compile emplace(): it knows no default constructor of a nested class.
  current_ = Current();
  current_->spec = spec;
  current_->members = list_->shape.members();
  current_->ranks = ranks;
  // From the number and the size alone, so that all nodes make plans that fit together.
  const bool acknowledged =
      cursor_ % kAcknowledgeEvery == 0 || spec.bytes > kAlwaysAcknowledgedBytes;
  current_->plan = resources_.plans.Get(list_->shape, spec, list_->self, acknowledged);
  for (const int rank : ranks) {
    const GroupCallRequest& request = call.parts.at(rank).request;
    current_->inputs.push_back(request.input);
    current_->filled.push_back(request.filled);
    current_->keeps.push_back(request.keep);
  }
  if (DefectActive(Defect::kResultsReleasedWhenCalled) && Releases(cursor_, spec)) {
    effects_.emplace_back(GroupRelease{spec.keep.boot, spec.keep.released});
  }
  Allocate();
  return current_.has_value() && current_->run != nullptr;
}

// A result that another node has: the holder sends it like data of a call, by a plan of its own.
bool GroupCore::BeginAdoption(const ResumeOrder::Call& order) {
  const auto self = static_cast<uint32_t>(list_->self);
  const bool takes = std::binary_search(order.takers.begin(), order.takers.end(), self);
  // Resume has turned the orders of nodes that have the result into kEnd, so an order that is left
  // must name this node.
  if (order.holder != self && !(takes && cursor_ > ended_)) {
    EndAt(CallEnd::kError, absl::InternalError("the result of another node was not ordered"));
    return true;
  }
  const absl::Status checked = CheckCall(order.spec, list_->shape.world);
  const bool holds = order.holder == self && cursor_ <= ended_ && !calls_[cursor_].results.empty();
  // The order comes over the network. If the result is not here, the call fails on all nodes, and
  // the takers do not wait for it.
  if (!checked.ok() || (order.holder == self && !holds)) {
    FailCall(cursor_, absl::InternalError(absl::StrCat(Title(cursor_), ": no result to adopt")));
    return true;
  }
  current_ = Current();
  current_->spec = order.spec;
  current_->adopts = true;
  current_->members = static_cast<int>(order.members);
  current_->ranks = list_->shape.ranks[self];
  // Only results that are the same for all are adopted, so rank 0 stands for any rank.
  const uint64_t bytes = ResultBytes(order.spec, list_->shape.world, 0);
  current_->plan = std::make_shared<GroupPlan>(
      MakeAdoptionPlan(list_->shape.nodes(), list_->self, order.holder, order.takers, bytes));
  if (holds) {
    NodeCall& call = calls_[cursor_];
    current_->inputs.push_back(call.results.begin()->second);
    // The result is in one of the two, and must outlive the payloads that links send from it.
    current_->keeps = {call.memory, call.input};
  }
  Allocate();
  return current_.has_value() && current_->run != nullptr;
}

// Memory for the call. All of it is there before kReady lets other nodes send.
void GroupCore::Allocate() {
  const uint64_t work = current_->plan->work_bytes;
  const uint64_t scratch = current_->plan->scratch_bytes;
  current_->memory = resources_.pool.Take(work, scratch);
  if (current_->memory != nullptr) return StartRun();
  current_->ticket = resources_.pool.NewTicket();
  // Memory that comes after the first deadline of a member here comes too late for the call.
  Instant deadline = Instant::Infinite();
  for (const auto& [rank, part] : calls_[cursor_].parts) {
    if (!part.answered) deadline = std::min(deadline, part.request.deadline);
  }
  effects_.emplace_back(GroupAllocate{current_->ticket, work, scratch, deadline});
}

void GroupCore::OnMemory(uint64_t ticket, absl::StatusOr<std::shared_ptr<GroupMemory>> memory) {
  // The call can have ended since the request. Memory for another call goes back with its last
  // reference.
  if (!current_.has_value() || current_->ticket != ticket || current_->run != nullptr) return;
  if (!memory.ok()) {
    FailCall(cursor_,
             absl::Status(memory.status().code(),
                          absl::StrCat(Title(cursor_), ": the node of rank ",
                                       current_->ranks.front(), ": ", memory.status().message())));
  } else {
    current_->memory = *std::move(memory);
    StartRun();
  }
  Advance();
}

void GroupCore::StartRun() {
  Current& current = *current_;
  const auto nodes = static_cast<size_t>(list_->shape.nodes());
  current.sent_bytes.assign(nodes, 0);
  current.sent.assign(nodes, 0);
  current.arrived.assign(nodes, 0);
  const bool counts_lost = DefectActive(Defect::kGroupLostMemberCounted);
  // One reference for inputs and memory, which the links hold: neither goes away while a payload is
  // sent from it.
  current.keep = std::make_shared<
      std::pair<std::vector<std::shared_ptr<const void>>, std::shared_ptr<const GroupMemory>>>(
      current.keeps, current.memory);
  // Memory of the pool can be used again before its bytes are copied.
  if (current.ticket != 0) current.parts = ResultParts(current.plan->work_bytes);
  const int planned = counts_lost ? list_->shape.world : list_->shape.members();
  current.run = std::make_unique<CallRun>(
      current.plan, current.spec,
      CallMemory{current.inputs, current.memory->work, current.memory->scratch, current.filled},
      planned);
  for (int peer = 0; peer < list_->shape.nodes(); ++peer) {
    // A peer sends less without asking. For more it waits for this message (invariant 5).
    if (current.plan->ReceivedBytes(peer) > kEagerBytes ||
        current.plan->receives[static_cast<size_t>(peer)].size() > kEagerMessages) {
      Send(peer, GroupMessage::kReady, cursor_);
    }
  }
  // These arrived before the memory was there. They are used in the order of their arrival.
  const auto wanted = [&](const EarlyMessages::Message& message) {
    return message.header.call == cursor_ && message.header.list == list_->digest &&
           message.header.kind == GroupMessage::kData;
  };
  if (early_.empty()) return;
  for (const EarlyMessages::Message& message : early_.Take(wanted)) {
    const int peer = list_->IndexOf(message.from);
    if (peer >= 0) OnData(peer, message.header, message.payload);
  }
}

bool GroupCore::SendData(int peer, absl::string_view bytes, bool copy) {
  Current& current = *current_;
  const auto at = static_cast<size_t>(peer);
  Link& link = links_[list_->nodes[at].key];
  // The receiver keeps so much of a call that it has not begun (EarlyMessages).
  const bool eager =
      current.sent_bytes[at] + bytes.size() <= kEagerBytes && current.sent[at] < kEagerMessages;
  const bool ready = link.ready >= cursor_ || DefectActive(Defect::kGroupReadyNotAwaited);
  if (!eager && !ready) return false;
  const bool copied = copy || bytes.size() <= kCopiedBytes;
  // OnReleased goes on. A piece always leaves if nothing is unreleased, so no piece is too large
  // for the limit.
  if (!copied && link.unreleased > 0 && link.unreleased + bytes.size() > kMaxUnreleasedBytes) {
    return false;
  }
  GroupHeader header = HeaderOf(GroupMessage::kData, cursor_);
  header.index = current.sent[at];
  header.spec = current.spec;
  GroupSend send{.to = list_->nodes[at], .header = EncodeHeader(header)};
  if (copied) {
    send.copied = std::string(bytes);
  } else {
    send.payload = bytes;
    send.keep = current.keep;
    link.unreleased += bytes.size();
  }
  current.sent_bytes[at] += bytes.size();
  ++current.sent[at];
  effects_.emplace_back(std::move(send));
  return true;
}

// All steps are taken. A call that had ended here before has new results now, which only members
// that made it in place of earlier lives get: the others have theirs.
void GroupCore::EndCurrent() {
  Current& current = *current_;
  const bool proves = current.plan->proves_all_began && !current.adopts;
  NodeCall& call = calls_[cursor_];
  // The holder has its result already, and has only given it to the others.
  if (current.adopts && cursor_ <= ended_) return EndAt(call.end, absl::OkStatus());
  call.spec = current.spec;
  call.memory = current.memory;
  call.members = current.members;
  // If the call was taken again for other nodes, its results are in the new memory now.
  call.results.clear();
  // A Barrier has a result without bytes, and a Reduce has one at its root only.
  bool any = SameForAll(current.spec.kind);
  for (size_t slot = 0; slot < current.ranks.size(); ++slot) {
    const ResultPlace place = current.PlaceOf(*list_, slot);
    // The root of a Broadcast has its own input as the result, so the call keeps that.
    if (place.memory == StepMemory::kInput) call.input = current.keeps[place.slot];
    if (place.bytes == 0) continue;
    any = true;
    call.results[current.ranks[slot]] = current.run->Bytes(place);
  }
  call.end = any ? CallEnd::kResult : CallEnd::kSent;
  // EndAt moves the cursor.
  const uint64_t number = cursor_;
  EndAt(call.end, absl::OkStatus());
  // Every node has begun this call, and takes its calls one after the other. So the call before it
  // has ended on all nodes (invariant 2).
  if (proves) Settle(number - 1);
}

// The call at the cursor ends on this node. If it has ended here before, this is the end for
// members that have made it in place of earlier lives.
void GroupCore::EndAt(CallEnd end, const absl::Status& error) {
  const bool again = cursor_ <= ended_;
  if (!again) {
    NodeCall& call = calls_[cursor_];
    call.end = end;
    call.error = error;
    ended_ = cursor_;
  }
  const auto call = calls_.find(cursor_);
  if (call != calls_.end()) {
    Keep(cursor_, call->second, again);
    AnswerAll(cursor_, call->second, error);
  }
  Leave();
}

// Of a call that has failed, what the members agreed on is only in their own calls, unchecked.
EndedCall GroupCore::NodeCall::Kept() const {
  EndedCall ended{.spec = spec, .members = members, .failed = end == CallEnd::kError};
  if (ended.failed) {
    ended.why = std::string(error.message());
    if (!parts.empty()) ended.spec = parts.begin()->second.request.spec;
  }
  if (ended.failed || !SameForAll(spec.kind) || results.empty()) return ended;
  ended.result = results.begin()->second;
  ended.memory = memory;
  ended.input = input;
  return ended;
}

// `again`: under another list, of which other nodes can be the holders.
void GroupCore::Keep(uint64_t number, const NodeCall& call, bool again) {
  if (call.end == CallEnd::kNone || (again && DefectActive(Defect::kResultsNotKeptAnew))) return;
  // Most groups keep nothing. Of a call that has failed, only the members' own calls say so.
  if (call.end != CallEnd::kError && call.spec.retain == 0) return;
  EndedCall ended = call.Kept();
  if (ended.spec.retain == 0) return;
  ended.number = number;
  const std::vector<int> holders = HoldersOf(*list_, agreement_.firsts, ended.spec, number);
  ended.holds = std::find(holders.begin(), holders.end(), list_->self) != holders.end();
  const bool releases = !again && !ended.failed && Releases(number, ended.spec);
  const GroupRelease release{ended.spec.keep.boot, ended.spec.keep.released};
  effects_.emplace_back(std::move(ended));
  if (releases) effects_.emplace_back(release);
}

void GroupCore::Leave() {
  current_.reset();
  orders_.erase(cursor_);
  errors_.erase(cursor_);
  ++cursor_;
  Settle(settled_);
}

// The calls up to `number` have ended on all nodes. Forgets calls that no one needs.
void GroupCore::Settle(uint64_t number) {
  settled_ = std::max(settled_, std::min(number, ended_));
  const uint64_t needless = DefectActive(Defect::kGroupResultFreedEarly) ? ended_ : settled_;
  for (auto at = calls_.begin(); at != calls_.end() && at->first < cursor_;) {
    // One that failed elsewhere has no end here.
    const CallEnd end = at->second.end;
    const bool kept = at->first > needless && (end == CallEnd::kResult || end == CallEnd::kSent);
    // A member of this node that has still to make the call finds its end in the record.
    bool due = false;
    for (const auto& [rank, member] : members_) {
      due |= member.last.has_value() && *member.last < at->first && member.first <= at->first;
    }
    if (kept || due) {
      ++at;
      continue;
    }
    if (end == CallEnd::kResult || end == CallEnd::kSent) {
      agreement_.newest.Take(at->first, at->second.spec);
    }
    at = calls_.erase(at);
  }
}

// The messages of a pair of nodes come in order, so one that is out of order is a broken peer.
void GroupCore::OnData(int peer, const GroupHeader& header, absl::string_view payload) {
  const auto at = static_cast<size_t>(peer);
  const NodeKey& node = list_->nodes[at].key;
  if (!(header.spec == current_->spec) && !DefectActive(Defect::kGroupMismatchIgnored)) {
    return FailCall(cursor_,
                    absl::InvalidArgumentError(absl::StrCat(
                        Title(cursor_), " differs: rank ", current_->ranks.front(), " calls ",
                        current_->spec.ToString(), ", rank ", list_->shape.ranks[at].front(),
                        " calls ", header.spec.ToString())));
  }
  absl::Status taken = absl::FailedPreconditionError(
      absl::StrCat("message ", header.index, " came instead of ", current_->arrived[at]));
  // Links keep the order of messages, so another index means that one was lost or sent twice.
  if (header.index == current_->arrived[at]) taken = current_->run->Arrived(peer, payload);
  ++current_->arrived[at];
  if (taken.ok()) return;
  const absl::Status why(taken.code(), absl::StrCat(Title(cursor_), ": ", taken.message()));
  // The peer has broken the protocol: neither its link nor this call can go on.
  effects_.emplace_back(GroupGiveUp{node, why});
  FailCall(cursor_, why);
}

}  // namespace phalanx::jobs
