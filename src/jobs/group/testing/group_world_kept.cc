// GroupWorld: results that are kept. Next lives ask for them, and what they are given is checked.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs::testing {

uint32_t GroupWorld::RetainOf(uint64_t number) const {
  Random random(script_ ^ number);
  if (kept_.retain == 0 || random.Chance(0.05)) return 0;
  if (options_.until_released) return kUntilReleased;
  return random.Chance(0.1) ? 1 : kept_.retain;
}

void GroupWorld::Ask(Program& program) {
  const bool progress = std::exchange(program.asks_progress, false);
  const uint64_t number = progress ? 0 : program.missed.front();
  if (!progress) program.missed.pop_front();
  Node& node = nodes_[static_cast<size_t>(program.node)];
  kept_.asked[next_id_] = {&program, number};
  ++program.outstanding;
  ++program.asking;
  const absl::Status asked = node.results->Ask({.id = next_id_++,
                                                .rank = program.rank,
                                                .life = program.life,
                                                .call = number,
                                                .progress = progress});
  if (!asked.ok()) Violate(std::string(asked.message()));
  Drain(node);
}

void GroupWorld::TakeEnded(Node& node, const EndedCall& call) {
  node.results->OnEnded(call);
  counts_.most_kept = std::max(counts_.most_kept, node.results->kept());
  std::set<int> hosts;
  for (const Member& member : node.view.members) {
    const auto first = kept_.firsts.find(member.node);
    if (!member.live() || first == kept_.firsts.end() || first->second > call.number) continue;
    for (const Node& each : nodes_) {
      if (each.key.node == member.node.node) hosts.insert(each.host);
    }
  }
  const int count = static_cast<int>(hosts.size());
  const auto least = kept_.least_hosts.try_emplace(call.number, count).first;
  least->second = std::min(least->second, count);
}

bool GroupWorld::MayBeLost(uint64_t number) const {
  std::set<int> hosts;
  for (const auto& [step, host] : kept_.lost) {
    if (step >= kept_.begun.at(number)) hosts.insert(host);
  }
  const auto least = kept_.least_hosts.find(number);
  const int there = least == kept_.least_hosts.end() ? 0 : least->second;
  return static_cast<int>(hosts.size()) >= std::min(static_cast<int>(kept_.copies), there);
}

void GroupWorld::OnKept(const GroupDone& done) {
  const auto [program, number] = kept_.asked.at(done.id);
  if (program->alive || program->replaced) --program->outstanding;
  if (!program->alive) return;
  --program->asking;
  if (number == 0) return OnProgress(*program, done);
  const CallSpec spec = Spec(number, -1);
  const std::string title = absl::StrCat("the kept result of call ", number, " ", spec.ToString(),
                                         " at rank ", program->rank, ": ");
  uint64_t last = 0;
  for (const Node& node : nodes_) {
    if (node.core != nullptr) last = std::max(last, node.core->status().ended);
  }
  if (done.status.ok()) {
    ++counts_.given;
    if (!SameForAll(spec.kind)) Violate(title + "it has not the same for all");
    if (done.result.size() != ResultBytes(spec, world_, 0)) {
      return Violate(absl::StrCat(title, done.result.size(), " bytes"));
    }
    const uint64_t mask =
        done.result.empty() ? 0 : MaskOf(spec, number, 0, done.result, done.members);
    results_[number].push_back(
        {program->rank, program->life, done.status, mask, done.members, /*kept=*/true});
    results_[number].back().group = program->group;
  } else if (absl::IsNotFound(done.status) || absl::IsAborted(done.status)) {
    // Of a call that has failed, which the end of the run shows.
    if (absl::IsAborted(done.status)) {
      kept_.failed.try_emplace(number, title + done.status.ToString());
      return;
    }
    if (number + spec.retain <= last) return;
    // A member that has the result may have ended before it was counted.
    bool failed = results_[number].empty();
    for (const Result& each : results_[number]) failed |= !each.status.ok();
    const bool no_room = kept_.refused > 0 && absl::StrContains(done.status.message(), "no room");
    ++counts_.lost;
    if (!failed && !no_room && !MayBeLost(number)) Violate(title + done.status.ToString());
  } else if (absl::IsResourceExhausted(done.status) && kept_.refused > 0) {
    ++counts_.refused;
  } else if (!absl::IsInvalidArgument(done.status) || SameForAll(spec.kind)) {
    Violate(title + done.status.ToString());
  }
}

// A call of which a node said that it has failed must have failed for a member that made it: that
// one got an error, or had ended before its answer. What a call has released that all members have
// made is freed on all nodes on which it has ended with a result.
void GroupWorld::CheckKept() {
  for (const auto& [number, text] : kept_.failed) {
    std::set<std::pair<int, uint64_t>> worked;
    for (const Result& each : results_[number]) {
      if (each.status.ok() && !each.kept) worked.insert({each.rank, each.life});
    }
    bool failed = false;
    for (const auto& [id, made] : ids_) {
      const std::pair<int, uint64_t> life{made.program->rank, made.program->life};
      failed |= made.number == number && !worked.contains(life);
    }
    if (!failed) Violate(text);
  }
  for (const auto& [number, results] : results_) {
    const CallSpec spec = Spec(number, -1);
    if (!NeedsAll(spec.kind) || spec.retain != kUntilReleased) continue;
    for (const Result& result : results) {
      const Program* program = Live(result.rank);
      const bool live = program != nullptr && program->life == result.life;
      if (!live || result.kept || !result.status.ok()) continue;
      const Node& node = nodes_[static_cast<size_t>(program->node)];
      for (uint64_t call = spec.keep.boot + 1; call <= spec.keep.released; ++call) {
        if (!node.results->Has(call)) continue;
        return Violate(absl::StrCat("call ", number, " has ended, and that of call ", call,
                                    ", which it releases, is kept"));
      }
    }
  }
}

}  // namespace phalanx::jobs::testing
