#include "src/client/spmd/testing/session_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::spmd::testing {
namespace {

// Actions with faults, and those within which all ranks must end after that.
constexpr int kActionsWithFaults = 400;
constexpr int kActionsToTheEnd = 20'000;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t mixed = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  return (mixed ^ (mixed >> 29)) * 0x94d049bb133111eb + 1;
}

uint64_t InputOf(uint64_t state, size_t step, int rank) {
  return Mix(Mix(state, step), static_cast<uint64_t>(rank));
}

}  // namespace

SessionWorld::SessionWorld(uint64_t seed) : random_(seed) {
  nodes_ = 2 + static_cast<int>(random_.Below(3));
  lives_.resize(2 + random_.Below(3));
  fault_chance_ = 0.01 * static_cast<double>(1 + random_.Below(4));
  ended_.resize(static_cast<size_t>(nodes_));
  newest_.resize(static_cast<size_t>(nodes_));
  DrawProgram();
}

void SessionWorld::DrawProgram() {
  const auto draw_call = [this] {
    if (random_.Chance(0.7)) {
      program_.push_back({Kind::kBroadcast, static_cast<int>(random_.Below(lives_.size()))});
    } else {
      program_.push_back({Kind::kFold});
    }
  };
  program_.push_back({Kind::kRun});
  for (uint64_t calls = random_.Below(3); calls > 0; --calls) draw_call();
  program_.push_back({Kind::kLoad});
  for (uint64_t versions = 1 + random_.Below(5); versions > 0; --versions) {
    // A version can be empty.
    for (uint64_t calls = random_.Below(5); calls > 0; --calls) draw_call();
    program_.push_back({Kind::kCheckpoint});
  }
  // As Leave does.
  program_.push_back({Kind::kFold});
}

const std::vector<uint64_t>& SessionWorld::Expected() {
  std::vector<uint64_t>& states = expected_[run_];
  if (!states.empty()) return states;
  states.push_back(run_);
  for (size_t step = 0; step < program_.size(); ++step) {
    const uint64_t state = states.back();
    uint64_t sum = 0;
    for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) {
      sum += InputOf(state, step, rank);
    }
    const int root = program_[step].root;
    switch (program_[step].kind) {
      case Kind::kFold:
        states.push_back(Mix(state, sum));
        break;
      case Kind::kBroadcast:
        states.push_back(Mix(state, InputOf(state, step, root)));
        break;
      default:
        states.push_back(state);
    }
  }
  return states;
}

std::vector<std::string> SessionWorld::Run() {
  for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) Join(rank);
  for (int i = 0; i < kActionsWithFaults && wrong_.empty(); ++i) {
    if (random_.Chance(fault_chance_)) Fault();
    Act();
  }
  const auto over = [this] {
    return std::all_of(lives_.begin(), lives_.end(), [this](const std::optional<Life>& life) {
      return life.has_value() && life->step == program_.size();
    });
  };
  for (int i = 0; i < kActionsToTheEnd && wrong_.empty() && !over(); ++i) Act();
  for (size_t rank = 0; rank < lives_.size() && wrong_.empty(); ++rank) {
    if (!over()) {
      const bool lives = lives_[rank].has_value();
      Wrong(static_cast<int>(rank), absl::StrCat("stuck in step ", lives ? lives_[rank]->step : 0,
                                                 " of ", program_.size()));
    } else if (lives_[rank]->run != lives_[0]->run) {
      Wrong(static_cast<int>(rank), "another number of the run than rank 0");
    } else if (lives_[rank]->state != Expected().back()) {
      Wrong(static_cast<int>(rank), "another state than in a run without deaths");
    }
  }
  return wrong_;
}

void SessionWorld::Act() {
  const int rank = static_cast<int>(random_.Below(lives_.size()));
  const std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
  if (!life.has_value()) return Join(rank);
  // The others can go on meanwhile.
  const bool loads = life->step < program_.size() && program_[life->step].kind == Kind::kLoad;
  if (loads && random_.Chance(0.8)) return;
  Advance(rank);
}

// ---------------------------------------------------------------------------- lives

void SessionWorld::Fault() {
  if (random_.Chance(0.3)) {
    EndNode(static_cast<int>(random_.Below(static_cast<uint64_t>(nodes_))));
  } else {
    EndRank(static_cast<int>(random_.Below(lives_.size())));
  }
  EndRunIfLost();
}

void SessionWorld::EndRank(int rank) {
  std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
  if (!life.has_value()) return;
  const int node = life->node;
  const std::set<std::string> held = std::move(life->held);
  life.reset();
  ++counts_.deaths;
  std::set<std::string> still_held;
  bool left = false;
  for (const std::optional<Life>& other : lives_) {
    if (!other.has_value() || other->node != node) continue;
    left = true;
    still_held.insert(other->held.begin(), other->held.end());
  }
  if (!left) {
    ended_[static_cast<size_t>(node)].clear();
    newest_[static_cast<size_t>(node)] = {};
  }
  for (const std::string& name : held) {
    const auto at = objects_.find(name);
    if (at == objects_.end() || at->second.home == node || still_held.contains(name)) continue;
    if (at->second.nodes.size() > 1 && random_.Chance(0.5)) at->second.nodes.erase(node);
  }
}

void SessionWorld::EndNode(int node) {
  ++counts_.node_deaths;
  for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) {
    const std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
    if (life.has_value() && life->node == node) EndRank(rank);
  }
  for (auto at = objects_.begin(); at != objects_.end();) {
    at->second.nodes.erase(node);
    at = at->second.nodes.empty() ? objects_.erase(at) : std::next(at);
  }
}

// A rank that has loaded has a checkpoint on its node, and all results since.
void SessionWorld::EndRunIfLost() {
  bool needs_checkpoint = false;
  for (size_t node = 0; node < ended_.size(); ++node) {
    needs_checkpoint |= newest_[node].keep.version > 0;
    for (const auto& [number, call] : ended_[node]) needs_checkpoint |= call.keep.version > 0;
  }
  bool has_loaded = false;
  for (const std::optional<Life>& life : lives_) {
    has_loaded |= life.has_value() && life->core.keep().boot > 0;
  }
  if (!needs_checkpoint || has_loaded) return;
  for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) EndRank(rank);
}

uint64_t SessionWorld::LastEnded() const {
  uint64_t last = 0;
  for (const auto& ended : ended_) {
    if (!ended.empty()) last = std::max(last, ended.rbegin()->first);
  }
  return last;
}

// Receivers can be behind their root by several calls.
bool SessionWorld::OnlySent(uint64_t call) const {
  bool sent = false;
  for (const auto& ended : ended_) {
    const auto at = ended.find(call);
    if (at == ended.end()) continue;
    if (!at->second.sent) return false;
    sent = true;
  }
  return sent;
}

void SessionWorld::Join(int rank) {
  const bool alone =
      std::none_of(lives_.begin(), lives_.end(), [](const auto& life) { return life.has_value(); });
  if (alone && next_life_ > 1) {
    ++run_;
    ++counts_.runs;
  }
  internal::SessionProgress progress;
  progress.ended = LastEnded();
  while (OnlySent(progress.ended) && random_.Chance(0.5)) {
    --progress.ended;
    ++counts_.behind;
  }
  const int node = static_cast<int>(random_.Below(static_cast<uint64_t>(nodes_)));
  std::map<uint64_t, EndedCall>& here = ended_[static_cast<size_t>(node)];
  Newest& learned = newest_[static_cast<size_t>(node)];
  for (size_t other = 0; other < ended_.size(); ++other) {
    if (newest_[other].call > learned.call) learned = newest_[other];
    for (const auto& [number, call] : ended_[other]) {
      if (call.kind != Kind::kBroadcast && number > learned.call) learned = {number, call.keep};
      if (number > progress.ended) continue;
      const auto [at, added] = here.try_emplace(number, call);
      at->second.kept |= call.kept;
      at->second.sent = false;
    }
  }
  progress.keep = learned.keep;
  Life life{.node = node, .number = next_life_++, .core = internal::SessionCore(progress)};
  life.next_call = progress.ended + 1;
  life.state = run_;
  lives_[static_cast<size_t>(rank)].emplace(std::move(life));
}

// ---------------------------------------------------------------------------- steps

void SessionWorld::Advance(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  // The end of a scope is not awaited: a life can end before it.
  if (!life.to_delete.empty() && random_.Chance(0.5)) {
    EndScope(life.run, life.to_delete.back());
    life.to_delete.pop_back();
    return;
  }
  if (life.step == program_.size()) return;
  if (life.phase == Phase::kInCall) return TryEndCall(rank);
  switch (program_[life.step].kind) {
    case Kind::kLoad:
      return life.phase == Phase::kBegin ? Load(rank) : EndLoad(rank);
    case Kind::kCheckpoint:
      return Checkpoint(rank);
    default:
      return BeginCall(rank);
  }
}

void SessionWorld::NextStep(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  ++life.step;
  life.phase = Phase::kBegin;
  const std::vector<uint64_t> freed = life.core.TakeFreed();
  if (rank == 0) life.to_delete.insert(life.to_delete.end(), freed.begin(), freed.end());
  if (life.state != Expected()[life.step]) Wrong(rank, "another state than without deaths");
}

void SessionWorld::BeginCall(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const uint64_t number = life.core.next_call();
  if (life.core.repeats()) {
    for (const auto& ended : ended_) {
      const auto at = ended.find(number);
      if (at == ended.end() || !at->second.kept) continue;
      ++counts_.repeated;
      return TakeResult(rank, at->second.result);
    }
    return Wrong(rank, absl::StrCat("the result of call ", number, " is not kept"));
  }
  if (number != life.next_call) {
    return Wrong(rank, absl::StrCat("makes call ", life.next_call, " as call ", number));
  }
  life.input =
      program_[life.step].kind == Kind::kRun ? life.number : InputOf(life.state, life.step, rank);
  life.phase = Phase::kInCall;
}

// The result here, if it can be there by now.
std::optional<uint64_t> SessionWorld::ResultOf(int rank, const Step& step) {
  const Life& life = *lives_[static_cast<size_t>(rank)];
  uint64_t result = 0;
  for (int other = 0; other < static_cast<int>(lives_.size()); ++other) {
    if (step.kind == Kind::kBroadcast && other != step.root) continue;
    const std::optional<Life>& peer = lives_[static_cast<size_t>(other)];
    if (!peer.has_value() || peer->phase != Phase::kInCall ||
        peer->core.next_call() != life.core.next_call()) {
      return std::nullopt;
    }
    if (peer->core.keep() != life.core.keep()) {
      Wrong(rank, absl::StrCat("and rank ", other, " say different things in a call"));
    }
    result = step.kind == Kind::kRun ? std::max(result, peer->input) : result + peer->input;
  }
  return result;
}

void SessionWorld::TryEndCall(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const uint64_t number = life.core.next_call();
  for (const auto& ended : ended_) {
    const auto at = ended.find(number);
    if (at == ended.end()) continue;
    if (at->second.keep != life.core.keep() || at->second.kind != program_[life.step].kind) {
      return Wrong(rank, absl::StrCat("call ", number, " differs from the one that has ended"));
    }
    EndedCall call = at->second;
    call.sent = false;
    EndCallAt(life.node, number, call);
    return TakeResult(rank, call.result);
  }
  const Step& step = program_[life.step];
  const std::optional<uint64_t> result = ResultOf(rank, step);
  if (!result.has_value()) return;
  EndedCall call{step.kind, life.core.keep(), *result};
  call.sent = step.kind == Kind::kBroadcast && step.root == rank;
  EndCallAt(life.node, number, call);
  TakeResult(rank, *result);
}

void SessionWorld::EndCallAt(int node, uint64_t number, const EndedCall& call) {
  std::map<uint64_t, EndedCall>& ended = ended_[static_cast<size_t>(node)];
  const auto [at, added] = ended.emplace(number, call);
  at->second.sent &= call.sent;
  if (!added || call.kind == Kind::kBroadcast) return;
  for (auto& [other, each] : ended) {
    if (other > call.keep.boot && other <= call.keep.released) each.kept = false;
  }
}

void SessionWorld::TakeResult(int rank, uint64_t result) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const Step& step = program_[life.step];
  if (life.phase == Phase::kInCall) ++life.next_call;
  if (step.kind == Kind::kRun) {
    life.run = result;
  } else {
    life.state = Mix(life.state, result);
  }
  life.core.OnCallEnded(step.kind != Kind::kBroadcast);
  NextStep(rank);
}

// ---------------------------------------------------------------------------- checkpoints

std::string SessionWorld::NameOf(int rank, uint64_t run, uint64_t version) {
  return internal::CheckpointName("job", "worker", run, rank, version);
}

void SessionWorld::EndScope(uint64_t run, uint64_t version) {
  uint64_t& ended = ended_scopes_[run];
  for (; ended < version; ++ended) {
    for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) {
      objects_.erase(NameOf(rank, run, ended + 1));
    }
  }
}

void SessionWorld::Put(int rank, uint64_t version, uint64_t state, size_t step) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  if (version <= ended_scopes_[life.run]) {
    return Wrong(rank, absl::StrCat("version ", version, " is put when its scope has ended"));
  }
  const std::string name = NameOf(rank, life.run, version);
  Object& object = objects_.try_emplace(name, Object{state, step, life.node, {}}).first->second;
  object.nodes.insert(life.node);
  life.held.insert(name);
}

void SessionWorld::Load(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const absl::StatusOr<uint64_t> version = life.core.VersionToLoad();
  if (!version.ok()) return Wrong(rank, std::string(version.status().message()));
  const int world = static_cast<int>(lives_.size());
  const int asked = *version > 0 ? world : 0;
  for (int i = 0; i < asked && !life.found.has_value(); ++i) {
    const int other = (rank + i) % world;
    const auto at = objects_.find(NameOf(other, life.run, *version));
    if (at == objects_.end()) continue;
    life.found = {other, at->second.state, at->second.step};
  }
  if (asked > 0 && !life.found.has_value()) {
    return Wrong(rank, absl::StrCat("no rank has its checkpoint of version ", *version));
  }
  life.phase = Phase::kEnd;
}

void SessionWorld::EndLoad(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  life.core.OnLoaded();
  if (life.found.has_value()) {
    const Found found = *std::exchange(life.found, std::nullopt);
    ++counts_.loads;
    if (found.rank != rank) ++counts_.of_others;
    Put(rank, life.core.version(), found.state, found.step);
    life.state = found.state;
    // NextStep adds one.
    life.step = found.step - 1;
  }
  NextStep(rank);
}

void SessionWorld::Checkpoint(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  if (life.phase == Phase::kBegin) {
    const absl::Status can = life.core.CheckCheckpoint();
    if (!can.ok()) return Wrong(rank, std::string(can.message()));
    Put(rank, life.core.version() + 1, life.state, life.step + 1);
    life.phase = Phase::kEnd;
    return;
  }
  life.core.OnCheckpoint();
  NextStep(rank);
}

void SessionWorld::Wrong(int rank, const std::string& what) {
  wrong_.push_back(absl::StrCat("run ", run_, ", rank ", rank, ": ", what));
}

}  // namespace phalanx::spmd::testing
