// Calls of members: their numbers, answers and errors. group_core_calls.cc has the call under way,
// group_core_lists.cc the changes of the list of members.
#include "src/jobs/group/group_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {

GroupCore::GroupCore(const NodeKey& self, uint64_t group, std::string name)
    : self_(self), group_(group), name_(std::move(name)) {}

void GroupCore::AddMember(int rank, uint64_t life) {
  const auto [at, added] = members_.try_emplace(rank, LocalMember{.life = life});
  // Every view shows the member again, also while its calls wait for the first agreement.
  if (added || life <= at->second.life) return;
  EndLife(rank, at->second);
  at->second = LocalMember{.life = life};
}

// What the member has given stays: a call under way can need it, and links may send from it.
void GroupCore::EndLife(int rank, const LocalMember& member) {
  const absl::Status why = absl::AbortedError(absl::StrCat(
      "rank ", rank, " of ", name_, ", life ", member.life, ", has ended for the group"));
  for (const GroupCallRequest& request : member.waiting) {
    if (request.id == 0) continue;
    effects_.emplace_back(GroupDone{.id = request.id, .status = why});
  }
  for (auto& [number, call] : calls_) {
    const auto part = call.parts.find(rank);
    if (part == call.parts.end() || part->second.life != member.life) continue;
    if (std::exchange(part->second.answered, true)) continue;
    effects_.emplace_back(GroupDone{.id = part->second.request.id, .status = why});
  }
}

// A call of a member that does not take part yet has no number: it waits for the first agreement.
absl::Status GroupCore::Call(int rank, uint64_t life, GroupCallRequest request, Instant now) {
  const auto found = members_.find(rank);
  if (found == members_.end() || found->second.life != life) {
    return absl::NotFoundError(
        absl::StrCat("rank ", rank, ", life ", life, ", is no member of ", name_, " here"));
  }
  LocalMember& member = found->second;
  // Calls that were answered with an error count too until the call at the cursor is past them:
  // their errors are kept.
  const bool idle = member.unanswered == 0 && member.waiting.empty() &&
                    (!member.last.has_value() || *member.last < cursor_);
  member.refusing &= !idle;
  const bool behind = member.last.has_value() ? *member.last >= cursor_ + kMaxOutstandingCalls
                                              : member.waiting.size() >= kMaxOutstandingCalls;
  if (member.refusing || behind || member.unanswered >= kMaxOutstandingCalls) {
    member.refusing = true;
    return absl::ResourceExhaustedError(absl::StrCat("rank ", rank, " of ", name_, " has ",
                                                     kMaxOutstandingCalls, " calls under way"));
  }
  ++member.unanswered;
  agreement_.next_tick = std::min({agreement_.next_tick, request.deadline, now + kAskAfter});
  if (member.last.has_value()) {
    Enter(rank, member, std::move(request));
  } else {
    member.waiting.push_back(std::move(request));
  }
  Advance();
  return absl::OkStatus();
}

// Gives the call its number. From here on, whatever is wrong with it is an error of the call on all
// nodes: the other members made it, and would wait for this one.
void GroupCore::Enter(int rank, LocalMember& member, GroupCallRequest request) {
  const uint64_t number = ++*member.last;
  NodeCall& call = calls_[number];
  const bool given_up = request.id == 0;
  Part& part = call.parts[rank];
  part = {std::move(request), member.life, given_up};
  // The call has ended here before this member made it: by an error, or by another list's result.
  const auto error = errors_.find(number);
  if (number < cursor_ || error != errors_.end()) {
    Answer(number, call, rank, part, error == errors_.end() ? part.request.refused : error->second);
    return Settle(settled_);
  }
  const absl::Status checked = CheckPart(number, rank, part);
  if (!checked.ok()) return FailCall(number, checked);
  if (given_up) {
    return FailCall(number, absl::DeadlineExceededError(absl::StrCat(
                                Title(number), ": rank ", rank, " waited until its deadline")));
  }
  CheckAgreement(number);
}

absl::Status GroupCore::CheckPart(uint64_t number, int rank, const Part& part) const {
  const CallSpec& spec = part.request.spec;
  absl::Status checked = part.request.refused;
  if (checked.ok()) checked = CheckCall(spec, list_->shape.world);
  if (checked.ok() && spec.keep.released >= number) {
    checked = absl::InvalidArgumentError(
        absl::StrCat("it releases the results up to call ", spec.keep.released));
  }
  if (checked.ok()) {
    const uint64_t bytes = InputBytes(spec, list_->shape.world, rank);
    if (part.request.input.size() == bytes) return absl::OkStatus();
    checked = absl::InvalidArgumentError(
        absl::StrCat("the input has ", part.request.input.size(), " bytes, not ", bytes));
  }
  return absl::Status(checked.code(),
                      absl::StrCat(Title(number), ": rank ", rank, ": ", checked.message()));
}

// Returns false if the members of this node, or early messages, differ. The call has failed then.
bool GroupCore::CheckAgreement(uint64_t number) {
  if (DefectActive(Defect::kGroupMismatchIgnored)) return true;
  const NodeCall& call = calls_[number];
  const auto& [first_rank, first] = *call.parts.begin();
  for (const auto& [rank, part] : call.parts) {
    if (part.life != first.life && part.answered) continue;
    if (part.request.spec == first.request.spec) continue;
    FailCall(number, absl::InvalidArgumentError(
                         absl::StrCat(Title(number), " differs: rank ", first_rank, " calls ",
                                      first.request.spec.ToString(), ", rank ", rank, " calls ",
                                      part.request.spec.ToString())));
    return false;
  }
  return true;
}

std::string GroupCore::Title(uint64_t number) const {
  return absl::StrCat("call ", number, " of ", name_);
}

void GroupCore::Answer(uint64_t number, NodeCall& call, int rank, Part& part,
                       const absl::Status& error) {
  if (part.answered) return;
  part.answered = true;
  const auto member = members_.find(rank);
  if (member != members_.end() && member->second.life == part.life) --member->second.unanswered;
  GroupDone done{.id = part.request.id, .number = number, .members = call.members};
  if (!error.ok() || call.end == CallEnd::kError) {
    done.status = error.ok() ? call.error : error;
  } else if (call.end == CallEnd::kNone) {
    // It is not known here any more: only calls that failed are forgotten so early.
    done.status =
        absl::AbortedError(absl::StrCat(Title(number), ": the call failed on another node"));
  } else if (!(part.request.spec == call.spec)) {
    done.status = absl::InvalidArgumentError(
        absl::StrCat(Title(number), " differs: rank ", rank, " calls ",
                     part.request.spec.ToString(), ", others called ", call.spec.ToString()));
  } else {
    auto result = call.results.find(rank);
    // Adopted, or from before this member's life: any member's result is its result.
    if (result == call.results.end() && SameForAll(call.spec.kind)) result = call.results.begin();
    if (result != call.results.end()) {
      done.result = result->second;
    } else if (ResultBytes(call.spec, list_->shape.world, rank) > 0) {
      done.status = absl::AbortedError(absl::StrCat(
          Title(number), " has ended on all nodes, and its result for an earlier life of rank ",
          rank, " is lost"));
    }
    // It can also be the input of an earlier life, or of another member that was alone here.
    done.in_input = !done.result.empty() && done.result.data() == part.request.input.data();
    done.memory = call.memory;
    done.input = call.input;
  }
  effects_.emplace_back(std::move(done));
}

void GroupCore::AnswerAll(uint64_t number, NodeCall& call, const absl::Status& error) {
  for (auto& [rank, part] : call.parts) Answer(number, call, rank, part, error);
}

// The call fails here unless it has ended, and the other nodes hear of it. They may have ended it:
// their members have the result.
void GroupCore::FailCall(uint64_t number, const absl::Status& why) {
  if (errors_.contains(number)) return;
  TakeError(number, why);
  if (state_ == State::kRunning && !DefectActive(Defect::kGroupErrorNotTold)) {
    SendToOthers(GroupMessage::kError, number, EncodeError(why));
  }
}

void GroupCore::TakeError(uint64_t number, const absl::Status& why) {
  if (number < cursor_) return;
  if (!errors_.emplace(number, why).second) return;
  const auto call = calls_.find(number);
  if (call != calls_.end()) AnswerAll(number, call->second, why);
}

void GroupCore::SettleForLeave(int rank, Instant now) {
  const auto member = members_.find(rank);
  if (member != members_.end()) {
    // No result of these reaches the member, so the others can have another one without it.
    EndLife(rank, member->second);
    member->second.waiting.clear();
  }
  // A call that has failed has left nothing that the others could need.
  const auto call = calls_.find(ended_);
  const bool waits = call != calls_.end() && call->second.spec.on_loss == OnLoss::kWait;
  leaving_.Begin(ended_, waits, now);
  Advance();
}

// Room for a Send that the link had too much for.
void GroupCore::OnReleased(const NodeKey& node, uint64_t bytes) {
  Link& link = links_[node];
  link.unreleased -= std::min(link.unreleased, bytes);
  Advance();
}

// The messages that are lost can be of every call that this node has begun to hear of, so all of
// them fail. Errors, reports and orders can be lost, too: the nodes agree anew. The list of members
// is still the same: the next message dials anew.
void GroupCore::OnLost(const NodeKey& node, const absl::Status& why) {
  links_.erase(node);
  leaving_.Forget(node);
  early_.Take([&](const EarlyMessages::Message& message) { return message.from == node; });
  const int peer = list_->IndexOf(node);
  if (peer < 0 || state_ == State::kForming) return;
  const bool agreeing = state_ == State::kAgreeing;
  // A list without that process follows, and says what becomes of the calls.
  const bool restarted = absl::IsAborted(why);
  std::vector<uint64_t> numbers;
  for (const auto& [number, call] : calls_) {
    if (!agreeing && !restarted && number >= cursor_ && number > ended_) numbers.push_back(number);
  }
  for (const uint64_t number : numbers) {
    FailCall(number, absl::UnavailableError(
                         absl::StrCat(Title(number), ": the link to the node of rank ",
                                      list_->shape.ranks[static_cast<size_t>(peer)].front(),
                                      " was lost: ", why.message())));
  }
  EnterRound(agreement_.round + 1);
  // Others wait for the agreement, even if no member here does.
  if (agreeing) Demand();
  Advance();
}

void GroupCore::Tick(Instant now) {
  std::vector<std::pair<uint64_t, int>> late;
  for (auto& [number, call] : calls_) {
    for (auto& [rank, part] : call.parts) {
      if (!part.answered && part.request.deadline <= now) late.emplace_back(number, rank);
    }
  }
  for (const auto& [number, rank] : late) {
    FailCall(number, absl::DeadlineExceededError(
                         absl::StrCat(Title(number), ": rank ", rank, " calls ",
                                      calls_[number].parts[rank].request.spec.ToString(),
                                      ", which has not ended by its deadline; ", Waiting(number))));
  }
  for (auto& [rank, member] : members_) {
    for (GroupCallRequest& request : member.waiting) {
      if (request.id == 0 || request.deadline > now) continue;
      effects_.emplace_back(GroupDone{.id = std::exchange(request.id, 0),
                                      .status = absl::DeadlineExceededError(absl::StrCat(
                                          "a call of ", name_, " by rank ", rank,
                                          " has not begun by its deadline; ", Waiting(0)))});
      --member.unanswered;
    }
  }
  if (const size_t late = leaving_.TakeLate(now); late > 0) {
    effects_.emplace_back(GroupSettled{late});
  }
  Advance();
  if (agreement_.ticked_at == cursor_) Ask();
  agreement_.ticked_at = cursor_;
  AskAgainAt(now);
}

// Says what the call waits for, as far as this node knows: the coordinator knows more, and is asked
// before the deadline.
std::string GroupCore::Waiting(uint64_t number) const {
  if (!list_->absent.empty()) return absl::StrCat("waiting for ", list_->Name(list_->absent));
  if (state_ != State::kRunning) {
    return "the nodes have not agreed yet after a change of the members";
  }
  if (!list_->ended.empty()) {
    return absl::StrCat(list_->Name(list_->ended), " has ended");
  }
  if (agreement_.missing_call == number && agreement_.missing.count > 0) {
    return absl::StrCat("waiting for ", list_->Name(agreement_.missing));
  }
  const MissingRanks here = MissingHere(number);
  if (here.count > 0) return absl::StrCat("waiting for ", list_->Name(here));
  if (number > cursor_) return absl::StrCat("call ", cursor_, " is still under way");
  const int peer =
      current_.has_value() && current_->run != nullptr ? current_->run->WaitsFor() : -1;
  if (peer < 0) return "memory for it is missing";
  return absl::StrCat("waiting for the node of rank ",
                      list_->shape.ranks[static_cast<size_t>(peer)].front());
}

// The timer may fire earlier than anything is due, so that calls that end soon never move it.
void GroupCore::AskAgainAt(Instant now) {
  agreement_.next_tick = Instant::Infinite();
  Instant deadline = Instant::Infinite();
  bool pending = false;
  for (const auto& [number, call] : calls_) {
    for (const auto& [rank, part] : call.parts) {
      if (part.answered) continue;
      pending = true;
      deadline = std::min(deadline, part.request.deadline);
    }
  }
  for (const auto& [rank, member] : members_) {
    for (const GroupCallRequest& request : member.waiting) {
      if (request.id == 0) continue;
      pending = true;
      deadline = std::min(deadline, request.deadline);
    }
  }
  if (!pending) return;
  // Asks in time before a deadline, so that the error can name the missing ranks.
  Instant ask = now + kAskAfter;
  if (deadline < ask + kAskAfter) ask = now + std::max((deadline - now) / 2, kLeastAskPause);
  agreement_.next_tick = std::min(deadline, ask);
}

GroupStatus GroupCore::status() const {
  return {cursor_,         ended_,        settled_,
          calls_.size(),   early_.size(), state_ == State::kRunning,
          agreement_.round};
}

GroupHeader GroupCore::HeaderOf(GroupMessage kind, uint64_t call) const {
  return {.kind = kind,
          .group = group_,
          .list = list_->digest,
          .epoch = list_->epoch,
          .round = agreement_.round,
          .call = call,
          .settled = settled_};
}

void GroupCore::Send(int peer, GroupMessage kind, uint64_t call, absl::string_view payload) {
  effects_.emplace_back(GroupSend{.to = list_->nodes[static_cast<size_t>(peer)],
                                  .header = EncodeHeader(HeaderOf(kind, call)),
                                  .copied = std::string(payload)});
}

void GroupCore::SendToOthers(GroupMessage kind, uint64_t call, absl::string_view payload) {
  for (int peer = 0; peer < list_->shape.nodes(); ++peer) {
    if (peer != list_->self) Send(peer, kind, call, payload);
  }
}

}  // namespace phalanx::jobs
