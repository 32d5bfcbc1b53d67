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
  Keep({std::move(done), rank, life, deadline});
  return absl::OkStatus();
}

// An answer without a number waits for the shard.
void HeldAnswers::Keep(Held held) {
  next_tick_ = std::min(next_tick_, held.deadline);
  if (held.done.number != 0) first_ = std::min(first_, held.done.number);
  last_ = std::max(last_, held.done.number);
  held_.push_back(std::move(held));
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

std::vector<GroupDone> HeldAnswers::Take(bool confirmed, uint64_t vouched, Instant now) {
  if (!confirmed && !any_over_ && vouched < first_ && now < next_tick_) return {};
  std::vector<GroupDone> given;
  any_over_ = false;
  first_ = kNoCall;
  last_ = 0;
  next_tick_ = Instant::Infinite();
  for (Held& held : std::exchange(held_, {})) {
    const bool late = held.deadline <= now;
    const bool known =
        confirmed || held.over || (held.done.number != 0 && held.done.number <= vouched);
    if (!known && !late) {
      Keep(std::move(held));
      continue;
    }
    if (!known && held.done.status.ok()) {
      held.done = {.id = held.done.id,
                   .status = absl::DeadlineExceededError(absl::StrCat(
                       "call ", held.done.number, " of ", name_, ": the node of rank ", held.rank,
                       " has been out of touch with the directory until the deadline, and other "
                       "nodes have not vouched for the call, so it does not know whether the call "
                       "has this result for all members")),
                   .number = held.done.number};
    }
    given.push_back(std::move(held.done));
  }
  return given;
}

}  // namespace phalanx::jobs
