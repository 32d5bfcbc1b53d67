#include "src/jobs/group/service/held_answers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::jobs {

absl::Status HeldAnswers::Add(GroupDone done, int rank, uint64_t life, Instant deadline) {
  const auto of_rank = std::count_if(held_.begin(), held_.end(),
                                     [rank](const Held& each) { return each.rank == rank; });
  if (static_cast<size_t>(of_rank) >= kMaxHeldAnswers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("call ", done.number, " of ", name_, ": the node of rank ", rank,
                     " is out of touch with the directory, and ", kMaxHeldAnswers,
                     " of its answers wait for that already"));
  }
  next_tick_ = std::min(next_tick_, deadline);
  held_.push_back({std::move(done), rank, life, deadline});
  return absl::OkStatus();
}

// Nothing of the call's memory is kept for it any longer.
void HeldAnswers::End(Held& held) {
  if (std::exchange(held.over, true)) return;
  any_over_ = true;
  held.done = {
      .id = held.done.id,
      .status = absl::AbortedError(absl::StrCat("rank ", held.rank, " of ", name_, ", life ",
                                                held.life, ", has ended for the group"))};
}

void HeldAnswers::OnView(const GroupView& view) {
  for (Held& held : held_) {
    const auto at = static_cast<size_t>(held.rank);
    if (at >= view.members.size()) continue;
    const Member& member = view.members[at];
    const bool live = member.live() && member.life == held.life && member.node == self_;
    // A view from before it has joined says nothing about it.
    if (!live && member.life >= held.life) End(held);
  }
}

void HeldAnswers::EndMember(int rank) {
  for (Held& held : held_) {
    if (held.rank == rank) End(held);
  }
}

std::vector<GroupDone> HeldAnswers::Take(bool confirmed, Instant now) {
  if (!confirmed && !any_over_ && now < next_tick_) return {};
  std::vector<GroupDone> given;
  std::vector<Held> rest;
  any_over_ = false;
  next_tick_ = Instant::Infinite();
  for (Held& held : held_) {
    const bool late = held.deadline <= now;
    if (!confirmed && !held.over && !late) {
      next_tick_ = std::min(next_tick_, held.deadline);
      rest.push_back(std::move(held));
      continue;
    }
    if (!confirmed && !held.over && held.done.status.ok()) {
      held.done = {.id = held.done.id,
                   .status = absl::DeadlineExceededError(absl::StrCat(
                       "call ", held.done.number, " of ", name_, ": the node of rank ", held.rank,
                       " has been out of touch with the directory until the deadline, so it does "
                       "not know whether the call has this result for all members")),
                   .number = held.done.number};
    }
    given.push_back(std::move(held.done));
  }
  held_ = std::move(rest);
  return given;
}

}  // namespace phalanx::jobs
