#include "src/jobs/group/service/group_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"

namespace phalanx::jobs {
namespace {

// FNV-1a of both names, with a byte between them that no name has.
uint64_t NumberOf(absl::string_view job, absl::string_view role) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char byte : job) add(static_cast<unsigned char>(byte));
  add(0);
  for (const char byte : role) add(static_cast<unsigned char>(byte));
  return hash;
}

}  // namespace

GroupService::GroupService(const NodeKey& self, Executor& control, net::NodeLinks& links,
                           GroupAllocator& allocator, int num_shards)
    : self_(self),
      control_(control),
      links_(links),
      allocator_(allocator),
      kept_(std::make_shared<KeptBytes>()),
      leases_(num_shards),
      alive_(std::make_shared<GroupService*>(this)) {
  allocator.ShareKept(kept_);
  links_.SetReceiver(net::LinkService::kGroups, this);
}

GroupService::~GroupService() {
  links_.SetReceiver(net::LinkService::kGroups, nullptr);
  // Callbacks of memory and posted tasks check `alive_`. Timers do not, so they are cancelled.
  for (const auto& [name, group] : groups_) control_.Cancel(group->timer);
}

GroupService::Group* GroupService::Find(uint64_t number) {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

absl::Status GroupService::Call(absl::string_view job, absl::string_view role, int rank,
                                uint64_t life, GroupCallRequest request, CallDone done,
                                CallPart part) {
  const auto found = groups_.find(Name(job, role));
  if (found == groups_.end()) {
    return absl::NotFoundError(absl::StrCat("no member of ", job, "/", role, " is on this node"));
  }
  Group& group = *found->second;
  request.id = next_call_++;
  // Before the call, because its Done can be among the effects that run below.
  group.calls[request.id] = {std::move(done),  std::move(part), rank,        life,
                             request.deadline, Part::kCore,     request.keep};
  ++stats_.under_way;
  const GroupCallId id = request.id;
  const absl::Status called = group.core.Call(rank, life, std::move(request), control_.Now());
  if (!called.ok()) stats_.under_way -= group.calls.erase(id);
  RunEffects(group);
  return called;
}

void GroupService::InputFilled(absl::string_view job, absl::string_view role) {
  const auto found = groups_.find(Name(job, role));
  if (found == groups_.end()) return;
  found->second->core.Advance();
  RunEffects(*found->second);
}

absl::Status GroupService::AskResult(absl::string_view job, absl::string_view role,
                                     GroupQuestion question, CallDone done) {
  const auto found = groups_.find(Name(job, role));
  if (found == groups_.end()) {
    return absl::NotFoundError(absl::StrCat("no member of ", job, "/", role, " is on this node"));
  }
  Group& group = *found->second;
  question.id = next_call_++;
  PHALANX_RETURN_IF_ERROR(group.results.Ask(question));
  group.calls[question.id] = {std::move(done), nullptr,           question.rank,
                              question.life,   question.deadline, Part::kResults};
  ++stats_.under_way;
  RunEffects(group);
  return absl::OkStatus();
}

void GroupService::CancelResult(absl::string_view job, absl::string_view role, int rank,
                                uint64_t life, uint64_t request) {
  const auto found = groups_.find(Name(job, role));
  if (found == groups_.end()) return;
  found->second->results.Cancel(rank, life, request);
  RunEffects(*found->second);
}

void GroupService::WhenSettled(absl::string_view job, absl::string_view role, int rank,
                               absl::AnyInvocable<void()> leave) {
  const auto found = groups_.find(Name(job, role));
  // No other node has heard of the member's calls.
  if (found == groups_.end()) return leave();
  Group& group = *found->second;
  group.leavers.push_back(std::move(leave));
  group.results.EndMember(rank);
  group.held.EndMember(rank);
  group.core.SettleForLeave(rank, control_.Now());
  RunEffects(group);
}

// The service learns from views which members are on this node: they are shown before their clients
// hear that they have joined, so a call always finds its member.
void GroupService::OnView(const GroupView& view) {
  const uint64_t number = NumberOf(view.job, view.role);
  std::unique_ptr<Group>& group = groups_[Name(view.job, view.role)];
  if (group == nullptr) {
    group = std::make_unique<Group>(self_, number, absl::StrCat(view.job, "/", view.role),
                                    ShardOfJob(view.job, leases_.shards()), kept_);
    by_number_[number] = group.get();
  }
  group->epoch = view.epoch;
  left_.erase(number);
  for (const Member& member : view.members) {
    if (member.live() && member.node == self_) group->core.AddMember(member.rank, member.life);
  }
  const std::shared_ptr<const GroupList> list = group->core.OnView(view, control_.Now());
  group->results.OnList(list);
  group->vouched.OnList(list);
  group->held.OnView(view);
  const auto its = [number](const EarlyMessages::Message& message) {
    return message.header.group == number;
  };
  // Other nodes heard of the group before this one, and have sent messages already.
  for (const EarlyMessages::Message& message : unknown_.Take(its)) {
    Deliver(*group, message.from, message.header, message.payload);
  }
  // The observer must not call back into its caller, as a session does that hears of a call's end.
  // And clients hear of the change before the ends of calls that follow it: programs rely on that
  // (client/spmd/session_core.h, 6).
  ContinueLater(*group);
}

void GroupService::OnGroupLeft(absl::string_view job, absl::string_view role) {
  const auto found = groups_.find(Name(job, role));
  if (found == groups_.end()) return;
  Group& group = *found->second;
  control_.Cancel(group.timer);
  DropOld();
  left_[group.number] = {group.epoch, control_.Now()};
  const absl::Status why = absl::AbortedError(
      absl::StrCat("the last member of ", job, "/", role, " on this node has ended"));
  stats_.under_way -= group.calls.size();
  for (const auto& [id, caller] : group.calls) stats_.failed += caller.of == Part::kCore ? 1 : 0;
  // The observer must not call back into its caller.
  Later([why, calls = std::move(group.calls)]() mutable {
    for (auto& [id, call] : calls) call.done(GroupDone{.id = id, .status = why});
  });
  holding_.erase(group.number);
  by_number_.erase(group.number);
  groups_.erase(found);
}

absl::StatusOr<absl::Span<char>> GroupService::PlaceFor(const NodeKey& from,
                                                        absl::string_view header,
                                                        size_t payload_bytes) {
  PHALANX_ASSIGN_OR_RETURN(const GroupHeader decoded, DecodeHeader(header));
  if (payload_bytes > kMaxPieceBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of a group has ", payload_bytes, " bytes"));
  }
  Group* group = Find(decoded.group);
  // The link keeps the payload, which is small enough, and OnMessage keeps the message.
  if (group == nullptr) return absl::Span<char>();
  if (GroupResults::Handles(decoded.kind)) {
    const absl::Span<char> piece = group->results.PlaceFor(from, decoded, payload_bytes);
    if (!piece.empty()) landings_[from] = group->results.LandingFrom(from);
    return piece;
  }
  const absl::StatusOr<absl::Span<char>> place = group->core.PlaceFor(from, decoded, payload_bytes);
  if (place.ok() && !place->empty()) landings_[from] = group->core.LandingFrom(from);
  return place;
}

void GroupService::OnMessage(const NodeKey& from, absl::string_view header,
                             absl::Span<char> payload) {
  const absl::StatusOr<GroupHeader> decoded = DecodeHeader(header);
  // PlaceFor is not called for an empty payload, so a bad header can come as far as this.
  if (!decoded.ok()) return links_.Forget(from);
  const absl::string_view bytes(payload.data(), payload.size());
  // Kept until the message has been handled.
  const auto landing = landings_.extract(from);
  Group* group = Find(decoded->group);
  if (group == nullptr) return KeepUnknown(from, *decoded, bytes);
  Deliver(*group, from, *decoded, bytes);
  RunEffects(*group);
}

void GroupService::Deliver(Group& group, const NodeKey& from, const GroupHeader& header,
                           absl::string_view payload) {
  if (VouchedCalls::Handles(header.kind)) return group.vouched.OnMessage(from, header);
  if (GroupResults::Handles(header.kind)) return group.results.OnMessage(from, header, payload);
  group.core.OnMessage(from, header, payload, control_.Now());
}

void GroupService::KeepUnknown(const NodeKey& from, const GroupHeader& header,
                               absl::string_view payload) {
  DropOld();
  const auto left = left_.find(header.group);
  // The sender has not heard yet that the members here have ended.
  if (left != left_.end() && header.epoch <= left->second.epoch) return;
  if (unknown_.Add({from, header, std::string(payload), control_.Now()})) return;
  // Something would be missing when the group is known. So the sender hears that its messages are
  // lost.
  links_.Forget(from);
}

void GroupService::DropOld() {
  const Instant now = control_.Now();
  const auto old = [now](Instant since) { return now - since > kUnknownGroupPatience; };
  std::erase_if(left_, [&](const auto& left) { return old(left.second.at); });
  if (unknown_.empty() || !old(unknown_.first().since)) return;
  const std::vector<EarlyMessages::Message> dropped =
      unknown_.Take([&](const EarlyMessages::Message& message) { return old(message.since); });
  // The sender knows a member here. What it has sent is missing if that member joins after all.
  PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
      << "dropped messages for a group without a member on this node"
      << LogField("messages", dropped.size()) << LogField("node", dropped.front().from.ToString())
      << LogField("group", dropped.front().header.group)
      << LogField("call", dropped.front().header.call);
}

void GroupService::OnLost(const NodeKey& peer, const absl::Status& why) {
  unknown_.Take([&](const EarlyMessages::Message& message) { return message.from == peer; });
  landings_.erase(peer);
  for (const auto& [name, group] : groups_) {
    group->core.OnLost(peer, why);
    group->results.OnLost(peer);
    group->vouched.OnLost(peer, why);
    // In a later turn: a caller that is answered can leave its group and change groups_.
    ContinueLater(*group);
  }
}

// What has ended in the core answers questions about results, and questions can make the core
// agree.
void GroupService::RunEffects(Group& group) {
  if (!GiveHeld(group)) return;
  std::vector<GroupEffect> effects = group.core.TakeEffects();
  do {
    if (!RunEffectsOf(group, Part::kCore, std::move(effects))) return;
    group.results.Advance(group.core.status());
    LogDropped(group);
    if (!RunEffectsOf(group, Part::kResults, group.results.TakeEffects())) return;
    AskForVouches(group);
    if (group.results.waits() || group.vouched.waits()) group.core.Agree();
    effects = group.core.TakeEffects();
    // With one node the core agrees without an effect.
  } while (!effects.empty() || !group.results.Knows(group.core.status()));
  if (GiveHeld(group)) ArmTimer(group);
}

void GroupService::AskForVouches(Group& group) {
  group.vouched.Advance(group.core.status(), group.held.last());
  for (GroupSend& send : group.vouched.TakeSends()) SendTo(group, Part::kCore, send);
}

bool GroupService::RunEffectsOf(Group& group, Part part, std::vector<GroupEffect> effects) {
  const uint64_t number = group.number;
  // A caller that is answered can make a call whose effects run at once. The results know of all
  // that the core's status counts by then.
  for (const GroupEffect& effect : effects) {
    if (const auto* ended = std::get_if<EndedCall>(&effect)) group.results.OnEnded(*ended);
    if (const auto* entered = std::get_if<GroupEntered>(&effect)) group.results.OnEntered(*entered);
    if (const auto* release = std::get_if<GroupRelease>(&effect)) group.results.OnRelease(*release);
  }
  // In the order in which they were made: messages of a pair stay in order.
  for (GroupEffect& effect : effects) {
    RunEffect(group, part, effect);
    if (Find(number) != &group) return false;
  }
  return true;
}

void GroupService::RunEffect(Group& group, Part part, GroupEffect& effect) {
  if (auto* send = std::get_if<GroupSend>(&effect)) {
    SendTo(group, part, *send);
  } else if (auto* done = std::get_if<GroupDone>(&effect)) {
    Answer(group, *done);
  } else if (const auto* shown = std::get_if<GroupPart>(&effect)) {
    // The member gets all of the result when it has ended. That parts are void it hears at once.
    if (shown->memory != nullptr && !Confirmed(group)) return;
    const auto call = group.calls.find(shown->id);
    if (call != group.calls.end() && call->second.part) call->second.part(*shown);
  } else if (auto* allocate = std::get_if<GroupAllocate>(&effect)) {
    AllocateFor(group, part, *allocate);
  } else if (auto* give_up = std::get_if<GroupGiveUp>(&effect)) {
    links_.Forget(give_up->node);
  } else if (std::holds_alternative<GroupRunMore>(effect)) {
    ContinueLater(group);
  } else if (const auto* settled = std::get_if<GroupSettled>(&effect)) {
    // In a later turn: the last one that leaves ends the group.
    for (size_t i = 0; i < settled->members && !group.leavers.empty(); ++i) {
      Later(std::move(group.leavers.front()));
      group.leavers.pop_front();
    }
  }
}

void GroupService::SendTo(Group& group, Part part, GroupSend& send) {
  const net::LinkPeer peer{send.to.key, send.to.address};
  absl::Status sent;
  if (send.keep == nullptr) {
    sent =
        links_.Send(peer, net::LinkService::kGroups, std::move(send.header), send.copied, nullptr);
  } else {
    const std::shared_ptr<const void> keep(
        send.keep.get(),
        [alive = std::weak_ptr(alive_), number = group.number, part, node = peer.key,
         bytes = send.payload.size(), kept = send.keep](const void*) {
          const std::shared_ptr<GroupService*> service = alive.lock();
          if (service != nullptr) (*service)->Release(number, part, node, bytes);
        });
    sent = links_.Send(peer, net::LinkService::kGroups, std::move(send.header), send.payload, keep);
  }
  // OnLost follows, or has to.
  if (sent.ok() || absl::IsUnavailable(sent)) return;
  if (links_.Contains(peer.key)) return links_.Forget(peer.key);
  // There is no link, and no room for one. Not at once, because a core that agrees anew sends to
  // the same node.
  if (!group.unreachable.insert(peer.key).second) return;
  control_.RunAt(control_.Now() + kUnreachablePause,
                 [alive = std::weak_ptr(alive_), number = group.number, node = peer.key, sent] {
                   const std::shared_ptr<GroupService*> service = alive.lock();
                   Group* found = service == nullptr ? nullptr : (*service)->Find(number);
                   if (found == nullptr || found->unreachable.erase(node) == 0) return;
                   found->core.OnLost(node, sent);
                   found->results.OnLost(node);
                   found->vouched.OnLost(node, sent);
                   (*service)->RunEffects(*found);
                 });
}

// Reads the clock: this process can have been stopped in this turn.
bool GroupService::Confirmed(const Group& group) const {
  return leases_.Confirmed(group.shard, control_.ReadClock());
}

void GroupService::Answer(Group& group, GroupDone done) {
  if (absl::IsDeadlineExceeded(done.status) && !Confirmed(group)) {
    done.status = absl::DeadlineExceededError(
        absl::StrCat(done.status.message(), "; this node is out of touch with shard ", group.shard,
                     " of the directory, without which no member can join"));
  }
  const auto found = group.calls.find(done.id);
  if (found == group.calls.end()) return;
  if (!HeldAnswers::Waits(done.status) || (group.held.empty() && Confirmed(group))) {
    return EndCall(group, done);
  }
  const Caller& caller = found->second;
  const absl::Status held = group.held.Add(done, caller.rank, caller.life, caller.deadline);
  if (!held.ok()) return EndCall(group, {.id = done.id, .status = held, .number = done.number});
  holding_.insert(group.number);
}

void GroupService::EndCall(Group& group, const GroupDone& done) {
  const auto found = group.calls.find(done.id);
  if (found == group.calls.end()) return;
  // Removed before the callback, which can make the next call.
  Caller call = std::move(found->second);
  group.calls.erase(found);
  --stats_.under_way;
  // A question for a kept result is no call.
  if (call.of == Part::kCore) ++(done.status.ok() ? stats_.ended : stats_.failed);
  call.done(done);
}

bool GroupService::GiveHeld(Group& group) {
  if (group.held.empty()) return true;
  const uint64_t number = group.number;
  for (const GroupDone& done :
       group.held.Take(Confirmed(group), group.vouched.upto(), control_.ReadClock())) {
    EndCall(group, done);
    if (Find(number) != &group) return false;
  }
  if (group.held.empty()) holding_.erase(number);
  return true;
}

// In later turns: a caller that is answered can leave its group.
void GroupService::GiveHeldOf(int shard) {
  for (const uint64_t number : holding_) {
    Group* group = Find(number);
    if (group != nullptr && group->shard == shard) ContinueLater(*group);
  }
}

void GroupService::OnShardSession(int shard) { leases_.BeginSession(shard, control_.ReadClock()); }

void GroupService::OnShardHeard(int shard, Instant heard, absl::Duration lease) {
  leases_.Heard(shard, heard, lease);
  GiveHeldOf(shard);
}

void GroupService::OnShardRegistered(int shard) {
  leases_.Registered(shard);
  GiveHeldOf(shard);
}

void GroupService::AllocateFor(Group& group, Part part, const GroupAllocate& allocate) {
  allocator_.Allocate(
      allocate.work_bytes, allocate.scratch_bytes, allocate.deadline,
      [alive = std::weak_ptr(alive_), number = group.number, part,
       ticket = allocate.ticket](absl::StatusOr<std::shared_ptr<GroupMemory>> memory) {
        const std::shared_ptr<GroupService*> service = alive.lock();
        Group* found = service == nullptr ? nullptr : (*service)->Find(number);
        // The group was left meanwhile. The memory goes back with its last reference.
        if (found == nullptr) return;
        if (part == Part::kCore) {
          found->core.OnMemory(ticket, std::move(memory));
        } else {
          found->results.OnMemory(ticket, std::move(memory));
        }
        (*service)->RunEffects(*found);
      });
}

void GroupService::LogDropped(const Group& group) {
  if (kept_->dropped() == 0 || std::exchange(logged_dropped_, true)) return;
  PHALANX_LOG(WARNING) << "dropped a kept result that was not released: no room for more"
                       << LogField("group", group.number) << LogField("limit_bytes", kept_->limit)
                       << LogField("limit_calls", kMaxUnreleasedCalls);
}

void GroupService::ContinueLater(Group& group) {
  // One task at a time, however often the core asks for a later turn.
  if (std::exchange(group.continues, true)) return;
  Later([this, number = group.number] {
    Group* found = Find(number);
    if (found == nullptr) return;
    found->continues = false;
    found->core.Advance();
    RunEffects(*found);
  });
}

// A link may release payloads inside its own calls, so the core hears of it in a later turn.
void GroupService::Release(uint64_t group, Part part, const NodeKey& node, uint64_t bytes) {
  const bool first = released_.empty();
  released_[{group, part, node}] += bytes;
  if (!first) return;
  Later([this] {
    const Released released = std::exchange(released_, {});
    for (const auto& [key, sum] : released) {
      const auto& [number, part, node] = key;
      Group* found = Find(number);
      if (found == nullptr) continue;
      if (part == Part::kCore) {
        found->core.OnReleased(node, sum);
      } else {
        found->results.OnReleased(node, sum);
      }
      RunEffects(*found);
    }
  });
}

void GroupService::ArmTimer(Group& group) {
  const Instant at =
      std::min({group.core.NextTick(), group.results.NextTick(), group.held.NextTick()});
  // A timer that fires too early is harmless: the Tick finds nothing to do, and sets the next one.
  if (at >= group.timer_at) return;
  control_.Cancel(group.timer);
  group.timer_at = at;
  group.timer = control_.RunAt(at, [this, number = group.number] {
    Group* found = Find(number);
    if (found == nullptr) return;
    found->timer = 0;
    found->timer_at = Instant::Infinite();
    found->core.Tick(control_.Now());
    found->results.Tick(control_.Now());
    RunEffects(*found);
  });
}

void GroupService::Later(absl::AnyInvocable<void()> task) {
  control_.Post([alive = std::weak_ptr(alive_), task = std::move(task)]() mutable {
    if (alive.lock() != nullptr) task();
  });
}

}  // namespace phalanx::jobs
