// GroupWorld: nodes that sleep, as a stopped process does, or are cut off from the shard, a shard
// that is away, and what members get then.
#include "absl/strings/str_cat.h"
#include "src/jobs/group/testing/group_world.h"

namespace phalanx::jobs::testing {
namespace {

// Some hundred steps.
constexpr absl::Duration kLease = absl::Milliseconds(100);
constexpr double kLongestSleep = 4;  // leases
constexpr double kLongestAway = 10;

// From a tenth of a lease on.
absl::Duration Some(Random& random, double leases) {
  return kLease * (0.1 + static_cast<double>(random.Below(1000)) / 1000 * leases);
}

}  // namespace

// The node sends, and the shard answers at once. In its new session a node hears first that all its
// members have ended. A shard that has started says that the node is registered when the node knows
// the members.
void GroupWorld::Hear(Node& node) {
  if (!InTouch(node)) return;
  if (node.session.fenced) return LeaveIfEmpty(node);
  node.session.heard = now_;
  node.session.leases.Heard(0, now_, kLease);
  if (node.session.registering && node.views.empty()) {
    node.session.registering = false;
    node.session.leases.Registered(0);
  }
  Drain(node);
}

void GroupWorld::StepSleep() {
  Node& node = nodes_[random_.Below(nodes_.size())];
  if (node.core == nullptr || Sleeps(node) || !random_.Chance(0.01)) return;
  node.session.wakes = now_ + Some(random_, kLongestSleep);
}

void GroupWorld::StepCut() {
  Node& node = nodes_[random_.Below(nodes_.size())];
  if (node.core == nullptr || now_ < node.session.cut_until || !random_.Chance(0.01)) return;
  node.session.cut_until = now_ + Some(random_, kLongestSleep);
}

// If nothing ends a member, the shard can stay away for ever.
void GroupWorld::StepAway() {
  if (shard_.away || !random_.Chance(0.005)) return;
  bool waiting = false;
  for (const Node& node : nodes_) waiting |= !node.views.empty();
  const bool ends = options_.deaths || options_.sleeps || options_.cuts || options_.replaced;
  shard_.away = true;
  const bool ever = !ends && !waiting && random_.Chance(0.3);
  shard_.back = ever ? Instant::Infinite() : now_ + Some(random_, kLongestAway);
}

// Every node that the shard knew gets a whole lease. Sessions go on, or begin anew if it has
// started again.
void GroupWorld::Return() {
  shard_.away = false;
  shard_.back = now_;
  const bool restarted = random_.Chance(0.5);
  for (Node& node : nodes_) {
    if (node.core == nullptr || node.session.fenced) continue;
    node.session.heard = now_;
    if (!restarted) continue;
    node.session.leases.BeginSession(0, now_);
    node.session.registering = true;
  }
  if (shard_.changed) Publish();
}

// Members that the shard has declared dead, and that do not know, go on with their calls.
void GroupWorld::StepFenced() {
  Program& program = programs_[random_.Below(programs_.size())];
  if (program.fenced && !Sleeps(nodes_[static_cast<size_t>(program.node)])) StepProgram(program);
}

void GroupWorld::FenceSilent() {
  for (Node& node : nodes_) {
    if (node.core == nullptr || InTouch(node) || node.session.fenced) continue;
    if (now_ - node.session.heard > kLease) Fence(node);
  }
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
  }
  // Also one that has been replaced, by a life that could not join yet.
  for (Member& member : view_.members) {
    if (member.live() && member.node == node.key) member.state = MemberState::kDied;
  }
  Publish();
}

void GroupWorld::WakeAll() {
  if (shard_.away) Return();
  for (Node& node : nodes_) {
    node.session.wakes = now_;
    node.session.cut_until = now_;
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
  const bool confirmed = Confirmed(node);
  for (const GroupDone& done : node.held->Take(confirmed, node.vouched->upto(), now_)) {
    counts_.vouched += !confirmed && HeldAnswers::Waits(done.status) ? 1 : 0;
    GiveAnswer(done);
  }
}

void GroupWorld::GiveAnswer(const GroupDone& done) {
  ids_.contains(done.id) ? OnDone(done) : OnKept(done);
}

// A next life that begins with call 1, although no other one takes part, knows of no call of the
// lives before.
void GroupWorld::NoteGroup(Program& program, uint64_t first) {
  bool others = false;
  for (const Program& each : programs_) others |= each.alive && each.entered;
  if (!others && first == 1) ++shard_.groups;
  program.group = shard_.groups;
}

// Members whose node the shard has fenced.
void GroupWorld::CheckLate(uint64_t number, const std::vector<Result>& results) {
  for (const Result& late : results) {
    if (!late.late || !late.status.ok()) continue;
    for (const Result& result : results) {
      if (!result.status.ok() || result.group != late.group) continue;
      const Program* last = Last(result.rank);
      const bool lives = last != nullptr && last->life == result.life;
      if (!result.late && !lives) continue;
      // Those that have given to the root can have given to an earlier run, of other members.
      const CallSpec spec = Spec(number, -1);
      const bool given =
          spec.kind == CallKind::kReduce && !(Root(spec, late) && Root(spec, result));
      if ((given || late.members == result.members) &&
          (late.mask == 0 || result.mask == 0 || late.mask == result.mask)) {
        continue;
      }
      Violate(absl::StrCat("call ", number, ": rank ", late.rank, ".", late.life,
                           ", whose life was over, got a result of ", late.members, " members, ",
                           late.mask, ", rank ", result.rank, ".", result.life, " one of ",
                           result.members, ", ", result.mask));
    }
  }
}

}  // namespace phalanx::jobs::testing
