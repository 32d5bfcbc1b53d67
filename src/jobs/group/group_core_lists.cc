// GroupCore: changes of the list of members, what the nodes agree on after them, and messages.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/group_recovery.h"

namespace phalanx::jobs {

// A new list stops everything: what was under way is void, and calls keep what members gave.
std::shared_ptr<const GroupList> GroupCore::OnView(const GroupView& view, Instant now) {
  if (view.epoch < list_->epoch) return list_;
  auto list = std::make_shared<const GroupList>(MakeGroupList(view, self_));
  const bool same = list->digest == list_->digest && list_->shape.world > 0;
  list_ = std::move(list);
  // The digest covers which members are absent, too.
  if (same) return list_;
  EndMembers();
  resources_.plans.Clear();
  EnterRound(0);
  if (HasWaiting()) agreement_.next_tick = std::min(agreement_.next_tick, now + kAskAfter);
  Redeliver();
  Advance();
  return list_;
}

// What is under way is void. The nodes agree when a call needs it.
void GroupCore::EnterRound(uint32_t round) {
  // Members give back the memory of what they were shown, since the call needs as much again.
  const auto call = current_.has_value() ? calls_.find(cursor_) : calls_.end();
  if (call != calls_.end() && !DefectActive(Defect::kGroupPartNotVoid)) {
    for (GroupPart& part : call->second.VoidParts()) effects_.emplace_back(std::move(part));
  }
  current_.reset();
  orders_.clear();
  const NewestKeep newest = agreement_.newest;
  const Instant next_tick = agreement_.next_tick;
  agreement_ = Agreement();
  agreement_.round = round;
  agreement_.newest = newest;
  agreement_.next_tick = next_tick;
  agreement_.reports.resize(list_->nodes.size());
  for (auto& [node, link] : links_) link.ready = 0;
  state_ = list_->absent.empty() && list_->self >= 0 ? State::kIdle : State::kForming;
  early_.Take([&](const EarlyMessages::Message& message) {
    const GroupHeader& header = message.header;
    return header.list == list_->digest ? header.round < agreement_.round
                                        : header.epoch <= list_->epoch;
  });
}

// Members of this node that have ended, as the list says, although their clients are still there.
// Without a live member this node knows nothing of the group's calls any more.
void GroupCore::EndMembers() {
  for (auto at = members_.begin(); at != members_.end();) {
    const auto& [rank, member] = *at;
    const auto index = static_cast<size_t>(rank);
    const bool known = index < list_->lives.size() && list_->lives[index] >= member.life &&
                       !std::binary_search(list_->absent.begin(), list_->absent.end(),
                                           static_cast<uint32_t>(rank));
    const bool live = known && list_->lives[index] == member.life &&
                      list_->shape.NodeOf(rank) == list_->self && list_->self >= 0;
    const bool over = known && !live;
    if (over) EndLife(rank, member);
    at = over ? members_.erase(at) : std::next(at);
  }
  if (list_->self >= 0) return;
  first_ = 0;
  calls_.clear();
  errors_.clear();
  cursor_ = 1;
  ended_ = 0;
  settled_ = 0;
  agreement_.newest = {};
}

bool GroupCore::HasWaiting() const {
  for (const auto& [rank, member] : members_) {
    if (member.unanswered > 0 || !member.last.has_value()) return true;
  }
  return false;
}

bool GroupCore::IsFresh() const {
  if (first_ != 0) return false;
  for (const int rank : list_->shape.ranks[static_cast<size_t>(list_->self)]) {
    if (list_->lives[static_cast<size_t>(rank)] == 0) return false;
  }
  return true;
}

// A call is waiting, or another node asks: this node says what it knows. Calls that failed are left
// out: a number up to `ended` without an entry has failed.
void GroupCore::Demand() {
  state_ = State::kAgreeing;
  NodeReport report;
  report.fresh = IsFresh();
  if (!report.fresh) {
    report.ended = ended_;
    report.first = first_;
    report.newest = agreement_.newest;
    for (const auto& [number, call] : calls_) {
      if (number > ended_) continue;
      // A next life has made a call that failed before: its record is a new one.
      if (call.end != CallEnd::kResult && call.end != CallEnd::kSent) continue;
      if (number <= settled_) {
        report.newest.Take(number, call.spec);
        continue;
      }
      if (report.calls.size() >= kMaxKeptCalls) break;
      report.calls.push_back({number, call.end, static_cast<uint32_t>(call.members), call.spec});
    }
  }
  if (list_->self == 0) return TakeReport(0, std::move(report));
  Send(0, GroupMessage::kReport, 0, EncodeReport(report));
}

// The coordinator collects the reports of all nodes; the first one makes it ask for the others.
void GroupCore::TakeReport(int node, NodeReport report) {
  std::vector<std::optional<NodeReport>>& reports = agreement_.reports;
  const bool first = std::none_of(reports.begin(), reports.end(),
                                  [](const auto& each) { return each.has_value(); });
  reports[static_cast<size_t>(node)] = std::move(report);
  if (first) {
    for (int peer = 0; peer < list_->shape.nodes(); ++peer) {
      if (peer != node && peer != list_->self) Send(peer, GroupMessage::kReportRequest, 0);
    }
    if (node != list_->self) return Demand();
  }
  const bool all_here = std::all_of(reports.begin(), reports.end(),
                                    [](const auto& each) { return each.has_value(); });
  if (!all_here) return;
  std::vector<NodeReport> all;
  for (std::optional<NodeReport>& each : reports) all.push_back(*std::exchange(each, {}));
  const ResumeOrder order = DecideResume(all);
  SendToOthers(GroupMessage::kResume, 0, EncodeOrder(order));
  Resume(order);
}

// The nodes agree. The cursor goes back to the first call that has not ended everywhere.
void GroupCore::Resume(const ResumeOrder& order) {
  state_ = State::kRunning;
  agreement_.firsts = order.firsts;
  if (IsFresh()) {
    ended_ = order.base;
    cursor_ = order.base + 1;
  } else {
    cursor_ = order.ended + 1;
  }
  if (first_ == 0) first_ = cursor_;
  if (order.newest.call > agreement_.newest.call) agreement_.newest = order.newest;
  settled_ = std::max(settled_, std::min(order.ended, ended_));
  for (size_t i = 0; i < order.calls.size(); ++i) {
    const uint64_t number = order.ended + 1 + i;
    if (number >= cursor_) orders_[number] = order.calls[i];
  }
  // However many they are, they end in one step.
  agreement_.failed_from = order.ended + order.calls.size() + 1;
  agreement_.failed_to = order.last;
  for (const auto& [number, call] : orders_) {
    const auto self = static_cast<uint32_t>(list_->self);
    const bool adopts = call.fate == Fate::kAdopt;
    if (!adopts || number > ended_ || call.holder == self) continue;
    // It has this result: it neither gives nor takes it.
    orders_[number].fate = Fate::kEnd;
  }
  // Errors that this node found while the nodes did not agree.
  for (const auto& [number, why] : errors_) {
    if (number < cursor_ || DefectActive(Defect::kGroupErrorNotTold)) continue;
    SendToOthers(GroupMessage::kError, number, EncodeError(why));
  }
  // Members that made a call in place of earlier lives, when it was to run again: it has ended on
  // all nodes instead.
  for (auto& [number, call] : calls_) {
    // The holders of its result can be others under this list.
    if (number <= ended_) Keep(number, call, /*again=*/true);
    if (number < cursor_) AnswerAll(number, call, absl::OkStatus());
  }
  for (auto& [rank, member] : members_) {
    const bool live = static_cast<size_t>(rank) < list_->lives.size() &&
                      list_->lives[static_cast<size_t>(rank)] == member.life &&
                      list_->shape.NodeOf(rank) == list_->self;
    if (!live || member.last.has_value()) continue;
    member.last = member.life == 0 ? 0 : order.base;
    member.first = *member.last + 1;
    const KeepSpec keep = member.life == 0 ? KeepSpec{} : order.newest.keep;
    effects_.emplace_back(GroupEntered{rank, member.life, member.first, keep});
    std::deque<GroupCallRequest> waiting = std::exchange(member.waiting, {});
    for (GroupCallRequest& request : waiting) Enter(rank, member, std::move(request));
  }
  Redeliver();
  Advance();
}

void GroupCore::Redeliver() {
  if (early_.empty()) return;
  const auto wanted = [&](const EarlyMessages::Message& message) {
    return message.header.list == list_->digest && !IsForLater(message.header);
  };
  for (const EarlyMessages::Message& message : early_.Take(wanted)) {
    const int peer = list_->IndexOf(message.from);
    if (peer >= 0) Handle(peer, message.header, message.payload);
  }
}

// Of a list that this node will know, or of a call that it has not begun.
bool GroupCore::IsForLater(const GroupHeader& header) const {
  const bool moves = header.kind == GroupMessage::kData || header.kind == GroupMessage::kReady;
  if (header.list != list_->digest) {
    // A node hears of the end of its own client first, before the epoch rises. It asks the others
    // then, but moves no data before they know it, too.
    return moves ? list_->epoch < header.epoch : list_->epoch <= header.epoch;
  }
  if (header.round != agreement_.round) return false;
  const bool of_call = moves || header.kind == GroupMessage::kError;
  if (of_call && state_ != State::kRunning) return true;
  if (header.kind != GroupMessage::kData || header.call < cursor_) return false;
  return header.call > cursor_ || !current_.has_value() || current_->run == nullptr;
}

absl::StatusOr<absl::Span<char>> GroupCore::PlaceFor(const NodeKey& from, const GroupHeader& header,
                                                     size_t bytes) {
  if (bytes > kMaxPieceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes, " bytes for ", name_, ", more than ", kMaxPieceBytes));
  }
  const int peer = list_->IndexOf(from);
  const bool now = (header.list == list_->digest && header.round == agreement_.round) ||
                   DefectActive(Defect::kGroupListsMixed);
  if (header.kind != GroupMessage::kData || !now || peer < 0 || header.call != cursor_ ||
      state_ != State::kRunning || !current_.has_value() || current_->run == nullptr ||
      !(header.spec == current_->spec)) {
    return absl::Span<char>();
  }
  const auto landing = current_->run->Landing(peer, bytes);
  if (!landing.ok()) return absl::Span<char>();
  links_[from].landing = current_->memory;
  return *landing;
}

void GroupCore::OnMessage(const NodeKey& from, const GroupHeader& header, absl::string_view payload,
                          Instant now) {
  const auto link = links_.find(from);
  // Keeps the memory until the payload has been used.
  std::shared_ptr<const GroupMemory> landing;
  if (link != links_.end()) landing = std::exchange(link->second.landing, nullptr);
  const bool mixed = DefectActive(Defect::kGroupListsMixed) && state_ == State::kRunning &&
                     list_->IndexOf(from) >= 0 && header.kind == GroupMessage::kData;
  // These two do not depend on the list: a node that has ended a call has it.
  if (header.kind == GroupMessage::kAskEnded) leaving_.OnAsked(from, header.call);
  if (header.kind == GroupMessage::kHasEnded) leaving_.OnEnded(from, header.call);
  if (header.kind == GroupMessage::kAskEnded || header.kind == GroupMessage::kHasEnded) {
    return Advance();
  }
  if (header.list == list_->digest || mixed) Settle(header.settled);
  const int peer = list_->IndexOf(from);
  if (mixed ? header.call > cursor_ || !current_.has_value() || current_->run == nullptr
            : IsForLater(header)) {
    if (header.list == list_->digest && header.kind == GroupMessage::kData && peer >= 0) {
      CompareEarly(peer, header);
    }
    if (!early_.Add({from, header, std::string(payload)})) {
      effects_.emplace_back(
          GroupGiveUp{from, absl::ResourceExhaustedError(absl::StrCat(
                                "more than ", kMaxEarlyBytes, " bytes or ", kMaxEarlyMessages,
                                " messages arrived before ", name_, " could use them"))});
    }
  } else if ((header.list == list_->digest || mixed) && peer >= 0) {
    Handle(peer, header, payload);
  }
  if (agreement_.next_tick.infinite() && HasWaiting()) agreement_.next_tick = now + kAskAfter;
  Advance();
}

// A message of a call that this node's members have made, but not all of them.
void GroupCore::CompareEarly(int peer, const GroupHeader& header) {
  const auto call = calls_.find(header.call);
  if (call == calls_.end() || call->second.parts.empty()) return;
  const auto& [rank, part] = *call->second.parts.begin();
  if (part.request.spec == header.spec) return;
  if (DefectActive(Defect::kGroupMismatchIgnored)) return;
  FailCall(header.call,
           absl::InvalidArgumentError(absl::StrCat(
               Title(header.call), " differs: rank ", rank, " calls ", part.request.spec.ToString(),
               ", rank ", list_->shape.ranks[static_cast<size_t>(peer)].front(), " calls ",
               header.spec.ToString())));
}

void GroupCore::Handle(int peer, const GroupHeader& header, absl::string_view payload) {
  if (header.round != agreement_.round && !DefectActive(Defect::kGroupListsMixed)) {
    // The peer does not know of this round: without an agreement it would wait for ever.
    if (header.round < agreement_.round && state_ == State::kIdle) Demand();
    const bool asks = header.kind == GroupMessage::kReport
                          ? list_->self == 0
                          : header.kind == GroupMessage::kReportRequest && peer == 0;
    // Calls of a round move only when all nodes have reported in it.
    if (header.round < agreement_.round || !asks) return;
    EnterRound(header.round);
  }
  const absl::Status taken = TryHandle(peer, header, payload);
  if (taken.ok()) return;
  effects_.emplace_back(GroupGiveUp{list_->nodes[static_cast<size_t>(peer)].key, taken});
}

// Messages of this list. What does not fit to the state is late, and is dropped.
absl::Status GroupCore::TryHandle(int peer, const GroupHeader& header, absl::string_view payload) {
  switch (header.kind) {
    case GroupMessage::kData:
      if (header.call == cursor_ && current_.has_value()) OnData(peer, header, payload);
      return absl::OkStatus();
    case GroupMessage::kReady: {
      Link& link = links_[list_->nodes[static_cast<size_t>(peer)].key];
      link.ready = std::max(link.ready, header.call);
      return absl::OkStatus();
    }
    case GroupMessage::kError: {
      absl::Status why;
      PHALANX_RETURN_IF_ERROR(DecodeError(payload, why));
      if (header.call > cursor_ + kMaxErrorsAhead) {
        return absl::ResourceExhaustedError(
            absl::StrCat("an error of ", Title(header.call), ", but this node is at ", cursor_));
      }
      TakeError(header.call, why);
      return absl::OkStatus();
    }
    case GroupMessage::kReport: {
      PHALANX_ASSIGN_OR_RETURN(NodeReport report, DecodeReport(payload));
      const bool open = state_ == State::kIdle || state_ == State::kAgreeing;
      if (list_->self == 0 && open) TakeReport(peer, std::move(report));
      return absl::OkStatus();
    }
    case GroupMessage::kReportRequest:
      if (peer == 0 && state_ == State::kIdle) Demand();
      return absl::OkStatus();
    case GroupMessage::kResume: {
      PHALANX_ASSIGN_OR_RETURN(const ResumeOrder order,
                               DecodeOrder(payload, static_cast<uint32_t>(list_->shape.nodes())));
      if (peer != 0 || state_ != State::kAgreeing) return absl::OkStatus();
      if (!IsFresh() && (order.ended > ended_ || order.last < ended_)) {
        return absl::InvalidArgumentError(absl::StrCat("calls after ", order.ended, " up to ",
                                                       order.last, ", but ", ended_,
                                                       " have ended here"));
      }
      Resume(order);
      return absl::OkStatus();
    }
    case GroupMessage::kStuck: {
      PHALANX_ASSIGN_OR_RETURN(const MissingRanks missing, DecodeMissing(payload));
      if (list_->self == 0 && state_ == State::kRunning) OnStuck(peer, header, missing);
      return absl::OkStatus();
    }
    case GroupMessage::kMissing: {
      PHALANX_ASSIGN_OR_RETURN(agreement_.missing, DecodeMissing(payload));
      agreement_.missing_call = header.call;
      return absl::OkStatus();
    }
    case GroupMessage::kAskEnded:
    case GroupMessage::kHasEnded:
    case GroupMessage::kAskResult:
    case GroupMessage::kHasResult:
    case GroupMessage::kFetchResult:
    case GroupMessage::kResultBytes:
    case GroupMessage::kAskVouch:
    case GroupMessage::kVouch:
      // OnMessage, the GroupResults or the VouchedCalls have handled them.
      break;
  }
  return absl::InvalidArgumentError("no such message");
}

// ---------------------------------------------------------------------------- calls that take long

MissingRanks GroupCore::MissingHere(uint64_t number) const {
  std::vector<uint32_t> missing;
  if (list_->self < 0) return {};
  const auto call = calls_.find(number);
  for (const int rank : list_->shape.ranks[static_cast<size_t>(list_->self)]) {
    const bool called = call != calls_.end() && call->second.parts.contains(rank);
    // A member that is stopped while it copies its input is missing, too.
    const ByteRanges* filled = called ? call->second.parts.at(rank).request.filled.get() : nullptr;
    if (!called || (filled != nullptr && !filled->complete())) {
      missing.push_back(static_cast<uint32_t>(rank));
    }
  }
  return Bounded(missing);
}

// The call at the cursor has been there for a while: the coordinator finds out which ranks are
// missing.
void GroupCore::Ask() {
  const auto call = calls_.find(cursor_);
  if (state_ != State::kRunning || call == calls_.end() || call->second.parts.empty()) return;
  GroupHeader header = HeaderOf(GroupMessage::kStuck, cursor_);
  header.spec = call->second.parts.begin()->second.request.spec;
  const MissingRanks missing = MissingHere(cursor_);
  if (list_->self == 0) return OnStuck(0, header, missing);
  effects_.emplace_back(GroupSend{
      .to = list_->nodes[0], .header = EncodeHeader(header), .copied = EncodeMissing(missing)});
}

// The coordinator collects which node waits in which call. A node that has not asked has not
// called: its ranks are missing. Nodes that wait with different calls get an error that names both.
void GroupCore::OnStuck(int peer, const GroupHeader& header, const MissingRanks& missing) {
  agreement_.stuck[peer] = {header.call, header.spec, missing};
  std::vector<uint32_t> all;
  for (int node = 0; node < list_->shape.nodes(); ++node) {
    const std::vector<int>& ranks = list_->shape.ranks[static_cast<size_t>(node)];
    const auto stuck = agreement_.stuck.find(node);
    if (node == list_->self && node != peer) {
      const MissingRanks here = MissingHere(header.call);
      if (header.call >= cursor_) all.insert(all.end(), here.ranks.begin(), here.ranks.end());
      continue;
    }
    if (stuck == agreement_.stuck.end() || stuck->second.call < header.call) {
      all.insert(all.end(), ranks.begin(), ranks.end());
      continue;
    }
    if (stuck->second.call > header.call) continue;
    const MissingRanks& there = stuck->second.missing;
    all.insert(all.end(), there.ranks.begin(), there.ranks.end());
    if (*stuck->second.spec == header.spec) continue;
    if (DefectActive(Defect::kGroupMismatchIgnored)) continue;
    return FailCall(header.call, absl::InvalidArgumentError(absl::StrCat(
                                     Title(header.call), " differs: rank ", ranks.front(),
                                     " calls ", stuck->second.spec->ToString(), ", rank ",
                                     list_->shape.ranks[static_cast<size_t>(peer)].front(),
                                     " calls ", header.spec.ToString())));
  }
  std::sort(all.begin(), all.end());
  if (peer == list_->self) {
    agreement_.missing_call = header.call;
    agreement_.missing = Bounded(all);
    return;
  }
  CompareEarly(peer, header);
  Send(peer, GroupMessage::kMissing, header.call, EncodeMissing(Bounded(all)));
}

}  // namespace phalanx::jobs
