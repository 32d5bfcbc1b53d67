#include "src/client/ps/barriers/barrier_member.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::ps::internal {

std::string BarrierMember::NameOf(const Call& call) {
  return absl::StrCat("barrier ", call.stage - 1, " of ", BarrierGroupName(call.group));
}

// A barrier that has ended needs no message.
BarrierMember::Ticket BarrierMember::Begin(BarrierGroup group, std::optional<uint64_t> epoch) {
  OfGroup& of = Of(group);
  const uint64_t stage = epoch.value_or(std::min(of.next, kMaxBarrierEpoch)) + 1;
  of.next = stage;
  const Ticket ticket = next_++;
  const auto call = calls_.emplace(ticket, Call{group, stage}).first;
  if (stage <= of.ended) {
    End(call, absl::OkStatus());
    return ticket;
  }
  of.arrived = std::max(of.arrived, stage);
  if (keeper_left_) {
    EndWithKeeper(call);
  } else {
    Show(group);
  }
  return ticket;
}

// The arrival cannot be taken back: others may have gone on because of it.
void BarrierMember::Forget(Ticket ticket) {
  const auto call = calls_.find(ticket);
  if (call == calls_.end()) return;
  OfGroup& of = Of(call->second.group);
  if (of.next == call->second.stage) --of.next;
  calls_.erase(call);
}

// The keeper keeps what it is shown: it is shown more in its next life, or for an answer.
void BarrierMember::Show(BarrierGroup group) {
  const OfGroup& of = Of(group);
  if (!keeper_live_ || (of.arrived == 0 && of.ended == 0)) return;
  sends_.push_back({*keeper_, Encode(Arrival{group, of.arrived, of.ended, world_})});
}

// A server 0 that has left is that of an earlier run of the job, unless it has lived in this one.
void BarrierMember::OnKeeper(MemberState state, uint64_t life) {
  if (state == MemberState::kAbsent || (keeper_.has_value() && life < *keeper_)) return;
  // An end is final.
  if (keeper_ == life && !keeper_live_) return;
  const bool began = keeper_ != life;
  keeper_ = life;
  keeper_live_ = state == MemberState::kLive;
  if (keeper_live_ && began) {
    keeper_lived_ = true;
    for (int group = 0; group < kBarrierGroups; ++group) {
      OfGroup& of = groups_[group];
      of.unanswered = of.arrived > 0 || of.ended > 0;
      Show(static_cast<BarrierGroup>(group));
    }
  }
  keeper_left_ = state == MemberState::kLeft && keeper_lived_;
  while (keeper_left_ && !calls_.empty()) EndWithKeeper(calls_.begin());
}

void BarrierMember::EndWithKeeper(std::map<Ticket, Call>::iterator call) {
  End(call, absl::FailedPreconditionError(
                absl::StrCat(NameOf(call->second), ": server 0 has left the job")));
}

// A verdict is about all barriers of its group. One of an older life of the keeper, that is still
// on its way, may say less than the task knows.
void BarrierMember::OnMessage(uint64_t life, absl::string_view bytes) {
  const std::optional<Verdict> verdict = DecodeVerdict(bytes);
  if (!verdict.has_value() || keeper_ != life || !keeper_live_) return;
  OfGroup& of = Of(verdict->group);
  of.ended = std::max(of.ended, verdict->ended);
  of.missing = verdict->missing;
  of.unanswered = false;
  for (auto call = calls_.begin(); call != calls_.end();) {
    const auto next = std::next(call);
    if (call->second.group == verdict->group) {
      if (call->second.stage <= of.ended) {
        End(call, absl::OkStatus());
      } else if (!verdict->why.ok()) {
        End(call, absl::Status(verdict->why.code(),
                               absl::StrCat(NameOf(call->second), ": ", verdict->why.message())));
      }
    }
    call = next;
  }
}

// The next call without a number is for the barrier that has failed.
void BarrierMember::End(std::map<Ticket, Call>::iterator call, const absl::Status& status) {
  ended_.push_back({call->first, status});
  if (!status.ok()) return Forget(call->first);
  calls_.erase(call);
}

// Also for others: what this task has seen end, server 0 can have forgotten.
void BarrierMember::Tick() {
  for (int group = 0; group < kBarrierGroups; ++group) {
    const bool waits = std::any_of(calls_.begin(), calls_.end(), [group](const auto& call) {
      return static_cast<int>(call.second.group) == group;
    });
    if (waits || groups_[group].unanswered) Show(static_cast<BarrierGroup>(group));
  }
}

// While server 0 is away nothing can be sent to it: its next life begins with OnKeeper.
bool BarrierMember::waiting() const {
  return !calls_.empty() ||
         (keeper_live_ && std::any_of(groups_.begin(), groups_.end(),
                                      [](const OfGroup& of) { return of.unanswered; }));
}

// The names are as of the last answer, half a second ago at most while the keeper lives.
std::string BarrierMember::WaitsFor(Ticket ticket) const {
  const Call& call = calls_.at(ticket);
  const std::string& missing = groups_[static_cast<size_t>(call.group)].missing;
  if (!keeper_live_) {
    return absl::StrCat(NameOf(call), " waits for server 0, which counts those that come");
  }
  return missing.empty() ? NameOf(call) : absl::StrCat(NameOf(call), " waits for ", missing);
}

}  // namespace phalanx::ps::internal
