// GroupWorld: nodes that sleep, as a stopped process does, and what their members get then.
#include "absl/strings/str_cat.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs::testing {
namespace {

// Some hundred steps.
constexpr absl::Duration kLease = absl::Milliseconds(100);
constexpr double kLongestSleep = 4;  // leases

}  // namespace

// The node sends, and the shard answers at once. In its new session a node hears first that all its
// members have ended.
void GroupWorld::Hear(Node& node) {
  if (node.session.fenced) return LeaveIfEmpty(node);
  node.session.heard = now_;
  node.session.leases.Heard(0, now_, kLease);
  Drain(node);
}

void GroupWorld::StepSleep() {
  for (Node& node : nodes_) {
    if (node.core == nullptr || !Sleeps(node) || node.session.fenced) continue;
    if (now_ - node.session.heard > kLease) Fence(node);
  }
  Node& node = nodes_[random_.Below(nodes_.size())];
  if (node.core == nullptr || Sleeps(node) || !random_.Chance(0.01)) return;
  const double share = 0.1 + static_cast<double>(random_.Below(1000)) / 1000 * kLongestSleep;
  node.session.wakes = now_ + kLease * share;
}

// The others hear that the members have died, and the node does not.
void GroupWorld::Fence(Node& node) {
  ++counts_.fenced;
  node.session.fenced = true;
  kept_.lost.emplace_back(kept_.steps, node.host);
  for (Program& program : programs_) {
    if (!program.alive || &nodes_[static_cast<size_t>(program.node)] != &node) continue;
    program.alive = false;
    program.fenced = true;
    ended_lives_.insert({program.rank, program.life});
    view_.members[static_cast<size_t>(program.rank)].state = MemberState::kDied;
  }
  Publish();
}

void GroupWorld::WakeAll() {
  for (Node& node : nodes_) {
    node.session.wakes = now_;
    if (node.core != nullptr && node.session.fenced) Hear(node);
  }
}

bool GroupWorld::Confirmed(const Node& node) const {
  return node.session.leases.Confirmed(0, now_);
}

// As the GroupService.
void GroupWorld::Answer(Node& node, const GroupDone& done) {
  const bool free = node.held->empty() && Confirmed(node);
  if (free || !HeldAnswers::Waits(done.status)) return GiveAnswer(done);
  const auto made = ids_.find(done.id);
  const Program& program =
      made != ids_.end() ? *made->second.program : *kept_.asked.at(done.id).first;
  ++counts_.held;
  const absl::Status held = node.held->Add(done, program.rank, program.life, Instant::Infinite());
  if (!held.ok()) Violate(std::string(held.message()));
}

void GroupWorld::GiveHeld(Node& node) {
  if (node.held->empty()) return;
  for (const GroupDone& done : node.held->Take(Confirmed(node), now_)) GiveAnswer(done);
}

void GroupWorld::GiveAnswer(const GroupDone& done) {
  ids_.contains(done.id) ? OnDone(done) : OnKept(done);
}

// The members of a node that the shard has fenced.
void GroupWorld::CheckLate(uint64_t number, const std::vector<Result>& results) {
  for (const Result& late : results) {
    if (!late.late || !late.status.ok()) continue;
    for (const Result& result : results) {
      if (result.late || !result.status.ok()) continue;
      const Program* last = Last(result.rank);
      if (last == nullptr || last->life != result.life) continue;
      if (late.members == result.members &&
          (late.mask == 0 || result.mask == 0 || late.mask == result.mask)) {
        continue;
      }
      Violate(absl::StrCat("call ", number, ": rank ", late.rank, ".", late.life,
                           ", whose life was over, got a result of ", late.members, " members, ",
                           late.mask, ", rank ", result.rank, " one of ", result.members, ", ",
                           result.mask));
    }
  }
}

}  // namespace phalanx::jobs::testing
