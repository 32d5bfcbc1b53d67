// GroupWorld: results that are kept until they are released. Members act as a program does that
// writes checkpoints between its calls; a next life asks where the group is, and goes on from
// there.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs::testing {

void GroupWorld::Checkpoints::Make(Random& random, uint64_t calls) {
  two_generations = random.Chance(0.5);
  for (uint64_t call = 0; call <= calls;) after.push_back(call += 1 + random.Below(4));
}

KeepSpec GroupWorld::Checkpoints::Before(uint64_t number) const {
  const auto next = std::lower_bound(after.begin(), after.end(), number);
  if (next == after.begin()) return {};
  const auto version = static_cast<size_t>(next - after.begin()) - 1;
  const size_t needed = two_generations && version > 0 ? version - 1 : version;
  return {.boot = after.front(), .released = after[needed], .mark = version};
}

void GroupWorld::OnProgress(Program& program, const GroupDone& done) {
  const std::string title = absl::StrCat("the progress at rank ", program.rank, ": ");
  if (!done.status.ok()) return Violate(title + done.status.ToString());
  ++counts_.progresses;
  const KeepSpec keep = *done.progress;
  const std::string text = absl::StrCat(title, done.number, " have ended, boot ", keep.boot,
                                        ", released ", keep.released, ", mark ", keep.mark);
  if (done.number + 1 != program.next) {
    Violate(absl::StrCat(text, ", but its first call is ", program.next));
  }
  const GroupDone& same = kept_.progress.try_emplace(program.agreement, done).first->second;
  if (same.number != done.number || *same.progress != keep) {
    Violate(absl::StrCat(text, "; another life of the same agreement heard of ", same.number,
                         ", released ", same.progress->released));
  }
  bool said = keep == KeepSpec{};
  for (const auto& [number, step] : kept_.begun) said |= kept_.checkpoints.Before(number) == keep;
  if (!said) Violate(text + ", as no call has said");
  for (uint64_t number = 1; number < program.next; ++number) {
    const bool says = Spec(number, -1).retain == kUntilReleased;
    if (!says || kept_.checkpoints.Before(number).mark <= keep.mark) continue;
    for (const Result& result : results_[number]) {
      const Program* got = Live(result.rank);
      const bool live = got != nullptr && got->life == result.life;
      if (!live || !result.status.ok() || result.kept) continue;
      return Violate(absl::StrCat(text, ", but rank ", result.rank, " has got call ", number));
    }
  }
  for (uint64_t number = 1; number < program.next; ++number) {
    if (number <= keep.boot || number > keep.released) program.missed.push_back(number);
  }
}

}  // namespace phalanx::jobs::testing
