// GroupWorld: results that are kept until they are released. Members act as a program does that
// writes checkpoints between its calls; a next life asks where the group is, and goes on from
// there.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs::testing {

KeepSpec GroupWorld::KeepOf(uint64_t number) const {
  const std::vector<uint64_t>& all = kept_.checkpoints;
  const auto next = std::lower_bound(all.begin(), all.end(), number);
  if (next == all.begin()) return {};
  const auto version = static_cast<size_t>(next - all.begin()) - 1;
  const size_t needed = kept_.two_generations && version > 0 ? version - 1 : version;
  return {.boot = all.front(), .released = all[needed], .mark = version};
}

void GroupWorld::AskProgress(Program& program) {
  program.asks_progress = false;
  Node& node = nodes_[static_cast<size_t>(program.node)];
  kept_.asked[next_id_] = {&program, 0};
  ++program.outstanding;
  ++program.asking;
  const absl::Status asked = node.results->Ask(
      {.id = next_id_++, .rank = program.rank, .life = program.life, .progress = true});
  if (!asked.ok()) Violate(std::string(asked.message()));
  Drain(node);
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
  for (const auto& [number, step] : kept_.begun) said |= KeepOf(number) == keep;
  if (!said) Violate(text + ", as no call has said");
  for (uint64_t number = 1; number < program.next; ++number) {
    const bool says = Spec(number, -1).retain == kUntilReleased;
    if (!says || KeepOf(number).mark <= keep.mark) continue;
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

// What the last call said that every member has made is freed on all nodes on which it has ended
// with a result.
void GroupWorld::CheckReleased() {
  for (const Program& program : programs_) {
    const Node& node = nodes_[static_cast<size_t>(program.node)];
    if (!program.alive || node.core == nullptr) continue;
    for (const auto& [number, results] : results_) {
      const CallSpec spec = Spec(number, -1);
      if (!NeedsAll(spec.kind) || spec.retain != kUntilReleased) continue;
      for (const Result& result : results) {
        const bool its = result.rank == program.rank && result.life == program.life;
        if (!its || !result.status.ok() || result.kept) continue;
        for (uint64_t call = spec.keep.boot + 1; call <= spec.keep.released; ++call) {
          if (!node.results->Has(call)) continue;
          return Violate(absl::StrCat("call ", number, " has ended, and that of call ", call,
                                      ", which it releases, is kept"));
        }
      }
    }
  }
}

}  // namespace phalanx::jobs::testing
