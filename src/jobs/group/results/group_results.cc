#include "src/jobs/group/results/group_results.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {

GroupResults::GroupResults(const NodeKey& self, uint64_t group, std::string name,
                           std::shared_ptr<KeptBytes> bytes)
    : self_(self), group_(group), name_(std::move(name)), kept_(std::move(bytes)) {}

void GroupResults::OnList(std::shared_ptr<const GroupList> list) {
  const bool newer = list_->epoch < list->epoch;
  const std::shared_ptr<const GroupList> old = std::exchange(list_, std::move(list));
  // Without a live member this node knows nothing of the group's calls any more: they may begin
  // anew with 1.
  if (list_->self < 0) {
    kept_.Clear();
    entered_.clear();
    std::erase_if(tickets_, [](const auto& ticket) { return ticket.second.second; });
  }
  EndQuestions(
      [this](const GroupQuestion& each) { return !IsLive(each.rank, each.life); },
      [this](const GroupQuestion& each) {
        return absl::AbortedError(absl::StrCat("rank ", each.rank, " of ", name_, ", life ",
                                               each.life, ", has ended for the group"));
      });
  // A node whose members have other lives may have forgotten what it was asked.
  for (const GroupList::Node& node : old->nodes) {
    const int before = old->IndexOf(node.key);
    const int after = list_->IndexOf(node.key);
    bool same = after >= 0 && old->shape.ranks[static_cast<size_t>(before)] ==
                                  list_->shape.ranks[static_cast<size_t>(after)];
    for (const int rank : old->shape.ranks[static_cast<size_t>(before)]) {
      same =
          same && old->lives[static_cast<size_t>(rank)] == list_->lives[static_cast<size_t>(rank)];
    }
    if (same) continue;
    Forget(node.key);
    // The others may have forgotten what this one has asked them.
    if (node.key == self_) {
      for (const GroupList::Node& other : old->nodes) Forget(other.key);
    }
  }
  if (newer) ForgetRefusals();
  all_touched_ = true;
  // A node that this list does not know may be in a later one.
  std::erase_if(peers_, [this](const auto& peer) {
    return list_->IndexOf(peer.first) < 0 && peer.second.epoch <= list_->epoch;
  });
}

bool GroupResults::IsLive(int rank, uint64_t life) const {
  const auto at = static_cast<size_t>(rank);
  return list_->self >= 0 && at < list_->lives.size() && list_->lives[at] == life &&
         list_->shape.NodeOf(rank) == list_->self;
}

void GroupResults::OnEnded(const EndedCall& call) {
  kept_.Add(call);
  touched_.insert(call.number);
}

void GroupResults::OnEntered(const GroupEntered& entered) {
  entered_[entered.rank] = {entered.life, entered.first, entered.keep};
}

bool GroupResults::Knows(const GroupStatus& core) const {
  return core.running == core_.running && core.next == core_.next && core.ended == core_.ended;
}

void GroupResults::Advance(const GroupStatus& core) {
  all_touched_ = all_touched_ || !Knows(core);
  core_ = core;
  kept_.Trim(core_.ended);
  bool crowded = false;
  do {
    crowded = BeginQuestions();
    ProceedAll();
  } while (crowded && missed_.size() < kMaxQuestions);
  for (auto& [node, peer] : peers_) {
    if (list_->IndexOf(node) < 0) continue;
    Answer(node, peer);
    Serve(node, peer);
  }
  if (const auto to_copy = kept_.TakeToCopy()) {
    tickets_[next_ticket_] = {to_copy->first, true};
    // Memory is not awaited: the result is in that of a client, which needs it for the next call.
    effects_.emplace_back(GroupAllocate{next_ticket_++, to_copy->second, 0, Instant()});
  }
  if (kept_.Copy(kBytesPerRun)) effects_.emplace_back(GroupRunMore{});
}

// Another node can wait for an answer from one that has begun a new round, of which the other does
// not know.
bool GroupResults::waits() const {
  return !missed_.empty() || !waiting_.empty() ||
         std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return !peer.second.questions.empty(); });
}

// ---------------------------------------------------------------------------- questions of members

absl::Status GroupResults::Ask(const GroupQuestion& question) {
  size_t under_way = waiting_.size();
  for (const auto& [call, missed] : missed_) under_way += missed.askers.size();
  if (under_way >= kMaxWaitingResults) {
    return absl::ResourceExhaustedError(absl::StrCat("members of ", name_, " here have asked for ",
                                                     under_way, " results that have not come"));
  }
  waiting_.push_back(question);
  return absl::OkStatus();
}

void GroupResults::Cancel(int rank, uint64_t life, uint64_t request) {
  EndQuestions(
      [&](const GroupQuestion& each) {
        return each.rank == rank && each.life == life && each.request == request;
      },
      [](const GroupQuestion&) { return absl::CancelledError("cancelled"); });
}

void GroupResults::EndMember(int rank) {
  EndQuestions(
      [rank](const GroupQuestion& each) { return each.rank == rank; },
      [this](const GroupQuestion& each) {
        return absl::AbortedError(absl::StrCat("rank ", each.rank, " of ", name_, " leaves"));
      });
}

// Only after the first agreement it is known which calls are those of earlier lives.
bool GroupResults::BeginQuestions() {
  // In nearly every call of a group.
  if (waiting_.empty()) return false;
  bool crowded = false;
  std::deque<GroupQuestion> left;
  for (const GroupQuestion& question : std::exchange(waiting_, {})) {
    const auto entered = entered_.find(question.rank);
    const bool known = entered != entered_.end() && entered->second.life == question.life;
    const bool room = missed_.contains(question.call) || missed_.size() < kMaxQuestions;
    if (!known) {
      left.push_back(question);
    } else if (question.progress) {
      effects_.emplace_back(GroupDone{.id = question.id,
                                      .number = entered->second.first - 1,
                                      .progress = entered->second.keep});
    } else if (const uint64_t last = std::max(entered->second.first - 1, core_.ended);
               question.call == 0 || question.call > last) {
      effects_.emplace_back(
          GroupDone{.id = question.id,
                    .status = absl::OutOfRangeError(absl::StrCat(
                        Title(question.call), " has not ended; the last one that has is ", last))});
    } else if (room) {
      missed_[question.call].askers.push_back(question);
      touched_.insert(question.call);
    } else {
      left.push_back(question);
      crowded = true;
    }
  }
  waiting_ = std::move(left);
  return crowded;
}

void GroupResults::ProceedAll() {
  const std::set<uint64_t> touched = std::exchange(touched_, {});
  if (std::exchange(all_touched_, false)) {
    for (auto at = missed_.begin(); at != missed_.end();) {
      at = Proceed(at->first, at->second) ? missed_.erase(at) : std::next(at);
    }
    return;
  }
  for (const uint64_t call : touched) {
    const auto found = missed_.find(call);
    if (found != missed_.end() && Proceed(call, found->second)) missed_.erase(found);
  }
}

bool GroupResults::Proceed(uint64_t call, Missed& missed) {
  const KeptResults::Result* own = kept_.Find(call);
  if (own != nullptr && own->kept == Kept::kHere) {
    Finish(missed, {.result = own->bytes,
                    .number = call,
                    .members = own->members,
                    .memory = own->memory,
                    .input = own->keep});
    return true;
  }
  AskNodes(call, missed);
  const bool all =
      (core_.running && core_.next > call && missed.answers.size() + 1 >= list_->nodes.size()) ||
      (!missed.answers.empty() && DefectActive(Defect::kResultRefusedEarly));
  if (!missed.holder.has_value()) ChooseHolder(missed);
  if (!missed.holder.has_value()) {
    if (all) Finish(missed, {.status = WhyNot(call, missed), .number = call});
    return all;
  }
  if (!HasMemory(call, missed)) return false;
  Fetch(call, missed);
  if (missed.arrived < missed.here.size()) return false;
  GroupDone done{.number = call, .members = static_cast<int>(missed.found.members)};
  if (missed.bytes > 0) done.result = {missed.memory->work.data(), missed.bytes};
  done.memory = missed.memory;
  // Instead of the copies that have ended with their nodes.
  if (missed.found.spec.retain == kUntilReleased) {
    kept_.Add({.number = call,
               .spec = missed.found.spec,
               .members = done.members,
               .holds = true,
               .result = done.result,
               .memory = done.memory});
  }
  Finish(missed, done);
  return true;
}

void GroupResults::AskNodes(uint64_t call, Missed& missed) {
  if (missed.asked.size() + 1 >= list_->nodes.size()) return;
  for (const GroupList::Node& node : list_->nodes) {
    if (node.key == self_ || missed.asked.contains(node.key)) continue;
    std::map<uint64_t, JobEpoch>& unanswered = peers_[node.key].unanswered;
    if (unanswered.size() >= kMaxQuestions && !unanswered.contains(call)) continue;
    unanswered[call] = list_->epoch;
    missed.asked.insert(node.key);
    effects_.emplace_back(Message(node.key, GroupMessage::kAskResult, call));
  }
}

// Memory is asked for by the size in the first holder's answer, and the pieces that have come from
// it stay. So a later one must have the same call.
void GroupResults::ChooseHolder(Missed& missed) {
  const bool bound = missed.ticket != 0 || missed.memory != nullptr;
  for (const NodeKey& node : missed.holders) {
    const ResultAnswer& answer = missed.answers.at(node);
    if (bound && !(answer.spec == missed.found.spec)) continue;
    missed.holder = node;
    missed.found = answer;
    if (!bound) missed.bytes = ResultBytes(missed.found.spec, list_->shape.world, 0);
    return;
  }
}

bool GroupResults::HasMemory(uint64_t call, Missed& missed) {
  if (missed.bytes == 0 || missed.memory != nullptr) return true;
  if (missed.ticket != 0) return false;
  if (missed.bytes > kPooledResultBytes) {
    // Those of questions that were cancelled still wait for their memory.
    if (tickets_.size() >= kMaxQuestions) return false;
    // The last one that waits for the result limits how late the memory can come.
    missed.memory_by = missed.askers.front().deadline;
    for (const GroupQuestion& each : missed.askers) {
      missed.memory_by = std::max(missed.memory_by, each.deadline);
    }
    missed.ticket = next_ticket_++;
    tickets_[missed.ticket] = {call, false};
    effects_.emplace_back(GroupAllocate{missed.ticket, missed.bytes, 0, missed.memory_by});
    return false;
  }
  auto bytes = std::make_shared<std::string>(missed.bytes, '\0');
  missed.memory = std::make_shared<GroupMemory>();
  missed.memory->work = absl::MakeSpan(bytes->data(), bytes->size());
  missed.memory->owner = std::move(bytes);
  return true;
}

void GroupResults::Fetch(uint64_t call, Missed& missed) {
  if (missed.bytes == 0) return;
  missed.here.resize((missed.bytes + kResultPieceBytes - 1) / kResultPieceBytes, false);
  Peer& peer = peers_[*missed.holder];
  for (; missed.next < missed.here.size() && peer.asked_pieces < kMaxFetches; ++missed.next) {
    if (missed.here[missed.next]) continue;
    ++peer.asked_pieces;
    effects_.emplace_back(Message(*missed.holder, GroupMessage::kFetchResult, call,
                                  static_cast<uint32_t>(missed.next)));
  }
}

void GroupResults::GiveUpHolder(Missed& missed) {
  missed.holder.reset();
  missed.next = 0;
}

void GroupResults::Finish(Missed& missed, const GroupDone& done) {
  for (const GroupQuestion& asker : missed.askers) {
    GroupDone each = done;
    each.id = asker.id;
    effects_.emplace_back(std::move(each));
  }
}

void GroupResults::EndQuestions(absl::FunctionRef<bool(const GroupQuestion&)> over,
                                absl::FunctionRef<absl::Status(const GroupQuestion&)> why) {
  const auto end = [&](const GroupQuestion& question) {
    if (!over(question)) return false;
    effects_.emplace_back(GroupDone{.id = question.id, .status = why(question)});
    return true;
  };
  std::erase_if(waiting_, end);
  for (auto& [call, missed] : missed_) std::erase_if(missed.askers, end);
  std::erase_if(missed_, [](const auto& missed) { return missed.second.askers.empty(); });
}

std::string GroupResults::Title(uint64_t call) const {
  return absl::StrCat("call ", call, " of ", name_);
}

// No node keeps it. The most that any node knows of the call is the reason.
absl::Status GroupResults::WhyNot(uint64_t call, const Missed& missed) const {
  ResultAnswer best = kept_.AnswerOf(call);
  uint64_t first = best.first, last = best.last;
  // Of kKepts, the least first.
  constexpr int kWeight[] = {0, 1, 1, 4, 3, 2};
  int node = list_->self;
  for (const auto& [key, answer] : missed.answers) {
    if (answer.last > 0) first = first == 0 ? answer.first : std::min(first, answer.first);
    last = std::max(last, answer.last);
    const bool better =
        kWeight[static_cast<size_t>(answer.kept)] > kWeight[static_cast<size_t>(best.kept)];
    if (!better) continue;
    best = answer;
    node = list_->IndexOf(key);
  }
  const std::string title = absl::StrCat("the result of ", Title(call));
  switch (best.kept) {
    case Kept::kParts:
      return absl::InvalidArgumentError(absl::StrCat(
          title, " is not kept: a ", CallKindName(best.spec.kind), " has not the same for all"));
    case Kept::kFailed: {
      absl::string_view why = best.why;
      absl::ConsumePrefix(&why, absl::StrCat(Title(call), ": "));
      return absl::AbortedError(
          absl::StrCat(Title(call), " has failed", why.empty() ? "" : ": ", why));
    }
    case Kept::kDropped:
      return absl::NotFoundError(absl::StrCat(
          title, " is not kept any more: the node of rank ",
          node < 0 ? -1 : list_->shape.ranks[static_cast<size_t>(node)].front(), " had no room"));
    case Kept::kHere:
    case Kept::kElsewhere:
      return absl::NotFoundError(absl::StrCat(title, " was kept by nodes that have ended"));
    case Kept::kUnknown:
      break;
  }
  if (call >= first || last == 0) {
    return absl::NotFoundError(absl::StrCat(title, " is not kept by any node"));
  }
  return absl::NotFoundError(
      absl::StrCat(title, " is not kept any more: those of calls ", first, " to ", last, " are"));
}

absl::Status GroupResults::WhyLate(const GroupQuestion& question) const {
  const std::string what = question.progress ? absl::StrCat("the progress of ", name_)
                                             : absl::StrCat("the result of ", Title(question.call));
  std::string text = absl::StrCat("rank ", question.rank, " has asked for ", what,
                                  ", which has not come by its deadline; ");
  const auto missed = missed_.find(question.call);
  std::vector<uint32_t> silent;
  for (size_t i = 0; missed != missed_.end() && i < list_->nodes.size(); ++i) {
    const NodeKey& node = list_->nodes[i].key;
    if (node == self_ || missed->second.answers.contains(node)) continue;
    silent.push_back(static_cast<uint32_t>(list_->shape.ranks[i].front()));
  }
  if (missed == missed_.end() || !core_.running) {
    absl::StrAppend(&text, "the nodes have not agreed yet which calls have ended");
  } else if (missed->second.holder.has_value()) {
    absl::StrAppend(&text, missed->second.arrived, " of ", missed->second.here.size(),
                    " pieces are here");
  } else if (silent.empty()) {
    absl::StrAppend(&text, "the call has not ended on this node");
  } else {
    absl::StrAppend(&text, "waiting for the nodes of ", list_->Name(silent));
  }
  return absl::DeadlineExceededError(text);
}

void GroupResults::Tick(Instant now) {
  EndQuestions([now](const GroupQuestion& each) { return each.deadline <= now; },
               [this](const GroupQuestion& each) { return WhyLate(each); });
}

Instant GroupResults::NextTick() const {
  Instant next = Instant::Infinite();
  for (const GroupQuestion& each : waiting_) next = std::min(next, each.deadline);
  for (const auto& [call, missed] : missed_) {
    for (const GroupQuestion& each : missed.askers) next = std::min(next, each.deadline);
  }
  return next;
}

void GroupResults::OnMemory(uint64_t ticket, absl::StatusOr<std::shared_ptr<GroupMemory>> memory) {
  const auto found = tickets_.extract(ticket);
  if (found.empty()) return;
  // A question may have waited for a ticket.
  all_touched_ = true;
  const auto [call, copies] = found.mapped();
  if (copies) return kept_.Place(call, memory.ok() ? *std::move(memory) : nullptr);
  const auto missed = missed_.find(call);
  // All that asked have their answers already, or others have asked anew.
  if (missed == missed_.end() || missed->second.ticket != ticket) return;
  touched_.insert(call);
  if (memory.ok() && (*memory)->work.size() < missed->second.bytes) {
    memory = absl::InternalError("the memory is smaller than the result");
  }
  if (memory.ok()) {
    missed->second.memory = *std::move(memory);
    return;
  }
  const absl::Status why(memory.status().code(), absl::StrCat("the result of ", Title(call), ": ",
                                                              memory.status().message()));
  // It was asked for until the last of the deadlines at that time. Memory is asked for again for
  // those that have asked since and can wait for longer.
  missed->second.ticket = 0;
  EndQuestions([call, by = missed->second.memory_by](
                   const GroupQuestion& each) { return each.call == call && each.deadline <= by; },
               [&why](const GroupQuestion&) { return why; });
}

// ---------------------------------------------------------------------------- other nodes

GroupSend GroupResults::Message(const NodeKey& to, GroupMessage kind, uint64_t call,
                                uint32_t index) const {
  const GroupHeader header{.kind = kind,
                           .group = group_,
                           .list = list_->digest,
                           .epoch = list_->epoch,
                           .call = call,
                           .index = index};
  return {.to = list_->nodes[static_cast<size_t>(list_->IndexOf(to))],
          .header = EncodeHeader(header)};
}

void GroupResults::Forget(const NodeKey& node) {
  const auto peer = peers_.find(node);
  if (peer != peers_.end()) {
    peer->second.asked_pieces = 0;
    peer->second.unanswered.clear();
  }
  for (auto& [call, missed] : missed_) {
    missed.asked.erase(node);
    missed.answers.erase(node);
    missed.holders.erase(node);
    if (missed.holder == node) GiveUpHolder(missed);
  }
  all_touched_ = true;
}

void GroupResults::ForgetRefusals() {
  for (auto& [call, missed] : missed_) {
    missed.asked = missed.holders;
    std::erase_if(missed.answers, [&missed = missed](const auto& answer) {
      return !missed.holders.contains(answer.first);
    });
  }
}

void GroupResults::OnLost(const NodeKey& node) {
  Forget(node);
  peers_.erase(node);
}

void GroupResults::OnReleased(const NodeKey& node, uint64_t bytes) {
  const auto peer = peers_.find(node);
  if (peer == peers_.end()) return;
  peer->second.unreleased -= std::min(peer->second.unreleased, bytes);
}

uint64_t GroupResults::PieceBytes(const Missed& missed, uint32_t index) const {
  return std::min(kResultPieceBytes, missed.bytes - index * kResultPieceBytes);
}

absl::Span<char> GroupResults::PlaceFor(const NodeKey& from, const GroupHeader& header,
                                        size_t bytes) {
  const auto found = missed_.find(header.call);
  if (header.kind != GroupMessage::kResultBytes || found == missed_.end()) return {};
  Missed& missed = found->second;
  if (missed.holder != from || missed.memory == nullptr || header.index >= missed.here.size() ||
      missed.here[header.index] || bytes != PieceBytes(missed, header.index)) {
    return {};
  }
  peers_[from].landing = missed.memory;
  return missed.memory->work.subspan(header.index * kResultPieceBytes, bytes);
}

std::shared_ptr<const GroupMemory> GroupResults::LandingFrom(const NodeKey& from) const {
  const auto peer = peers_.find(from);
  return peer == peers_.end() ? nullptr : peer->second.landing;
}

void GroupResults::OnMessage(const NodeKey& from, const GroupHeader& header,
                             absl::string_view payload) {
  Peer& peer = peers_[from];
  peer.epoch = std::max(peer.epoch, header.epoch);
  // Keeps the memory until the payload has been used.
  const std::shared_ptr<const GroupMemory> landing = std::exchange(peer.landing, nullptr);
  const absl::Status taken = TryMessage(from, header, payload);
  if (!taken.ok()) effects_.emplace_back(GroupGiveUp{from, taken});
}

absl::Status GroupResults::TryMessage(const NodeKey& from, const GroupHeader& header,
                                      absl::string_view payload) {
  Peer& peer = peers_[from];
  switch (header.kind) {
    case GroupMessage::kAskResult:
      peer.questions[header.call] = std::max(peer.questions[header.call], header.epoch);
      if (peer.questions.size() <= kMaxServedQuestions) return absl::OkStatus();
      return absl::ResourceExhaustedError(
          absl::StrCat("questions about more than ", kMaxServedQuestions, " calls of ", name_));
    case GroupMessage::kHasResult:
      return OnAnswer(from, header, payload);
    case GroupMessage::kFetchResult:
      peer.fetches.emplace_back(header.call, header.index);
      if (peer.fetches.size() <= kMaxServedFetches) return absl::OkStatus();
      return absl::ResourceExhaustedError(absl::StrCat(
          "more than ", kMaxServedFetches, " pieces of results of ", name_, " are awaited"));
    case GroupMessage::kResultBytes:
      return OnBytes(from, header, payload);
    default:
      return absl::InvalidArgumentError("no message about a result");
  }
}

// An answer to a question that was forgotten is late, and is dropped.
absl::Status GroupResults::OnAnswer(const NodeKey& from, const GroupHeader& header,
                                    absl::string_view payload) {
  PHALANX_ASSIGN_OR_RETURN(ResultAnswer answer, DecodeAnswer(payload));
  const bool here = answer.kept == Kept::kHere;
  const auto missed = missed_.find(header.call);
  const bool awaited = missed != missed_.end() && missed->second.asked.contains(from);
  // A node that has started again can get late answers before it knows the members.
  if (here && awaited) {
    PHALANX_RETURN_IF_ERROR(CheckCall(answer.spec, list_->shape.world));
    const auto world = static_cast<uint32_t>(list_->shape.world);
    if (answer.members < 1 || answer.members > world) {
      return absl::InvalidArgumentError(absl::StrCat(
          answer.members, " of ", world, " members have taken part in ", Title(header.call)));
    }
  }
  std::map<uint64_t, JobEpoch>& unanswered = peers_[from].unanswered;
  const auto question = unanswered.find(header.call);
  if (question != unanswered.end() && (here || header.epoch >= question->second)) {
    // Other calls wait for the place.
    all_touched_ = all_touched_ || unanswered.size() >= kMaxQuestions;
    unanswered.erase(question);
  }
  // A refusal under an older list: the node is asked again.
  if (!here && header.epoch < list_->epoch) return absl::OkStatus();
  if (!awaited) return absl::OkStatus();
  touched_.insert(header.call);
  if (here) {
    missed->second.holders.insert(from);
  } else if (missed->second.holders.contains(from)) {
    return absl::OkStatus();
  }
  missed->second.answers[from] = std::move(answer);
  return absl::OkStatus();
}

// A piece of a question that has its answer already, or was forgotten, is late, and is dropped.
absl::Status GroupResults::OnBytes(const NodeKey& from, const GroupHeader& header,
                                   absl::string_view payload) {
  Peer& peer = peers_[from];
  // Other calls wait for pieces, too.
  all_touched_ = all_touched_ || peer.asked_pieces >= kMaxFetches;
  if (peer.asked_pieces > 0) --peer.asked_pieces;
  touched_.insert(header.call);
  const auto found = missed_.find(header.call);
  if (found == missed_.end() || found->second.holder != from) return absl::OkStatus();
  Missed& missed = found->second;
  if (payload.empty()) {
    missed.answers[from].kept = Kept::kDropped;
    missed.holders.erase(from);
    GiveUpHolder(missed);
    return absl::OkStatus();
  }
  if (header.index >= missed.here.size() || missed.here[header.index]) return absl::OkStatus();
  if (payload.size() != PieceBytes(missed, header.index)) {
    return absl::InvalidArgumentError(absl::StrCat("piece ", header.index, " of the result of ",
                                                   Title(header.call), " has ", payload.size(),
                                                   " bytes"));
  }
  uint64_t at = header.index * kResultPieceBytes;
  if (DefectActive(Defect::kResultPieceMisplaced)) at = missed.arrived / 2 * kResultPieceBytes;
  char* const place = missed.memory->work.data() + at;
  // Most pieces are received into their place.
  if (place != payload.data()) std::memmove(place, payload.data(), payload.size());
  missed.here[header.index] = true;
  ++missed.arrived;
  return absl::OkStatus();
}

// Until the call has ended here under this list, this node may become a holder. A refusal is of use
// to another node only under the list that it knows, or a later one.
void GroupResults::Answer(const NodeKey& node, Peer& peer) {
  std::erase_if(peer.questions, [&](const auto& question) {
    const auto& [call, epoch] = question;
    const ResultAnswer answer = kept_.AnswerOf(call);
    const bool decided = core_.running && core_.next > call && epoch <= list_->epoch;
    if (answer.kept != Kept::kHere && !decided) return false;
    GroupSend send = Message(node, GroupMessage::kHasResult, call);
    send.copied = EncodeAnswer(answer);
    effects_.emplace_back(std::move(send));
    return true;
  });
}

void GroupResults::Serve(const NodeKey& node, Peer& peer) {
  while (!peer.fetches.empty()) {
    const auto [call, index] = peer.fetches.front();
    GroupSend send = Message(node, GroupMessage::kResultBytes, call, index);
    const KeptResults::Result* result = kept_.Find(call);
    const uint64_t at = index * kResultPieceBytes;
    if (result != nullptr && result->kept == Kept::kHere && at < result->bytes.size()) {
      const absl::string_view piece = result->bytes.substr(at, kResultPieceBytes);
      if (peer.unreleased > 0 && peer.unreleased + piece.size() > kMaxUnreleasedBytes) return;
      send.payload = piece;
      send.keep = result->keep;
      peer.unreleased += piece.size();
    }
    peer.fetches.pop_front();
    effects_.emplace_back(std::move(send));
  }
}

}  // namespace phalanx::jobs
