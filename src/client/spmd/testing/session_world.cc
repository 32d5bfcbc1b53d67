#include "src/client/spmd/testing/session_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::spmd::testing {
namespace {

// Actions with faults, and those within which all ranks must end after that.
constexpr int kActionsWithFaults = 3000;
constexpr int kActionsToTheEnd = 40'000;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t mixed = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  return (mixed ^ (mixed >> 29)) * 0x94d049bb133111eb + 1;
}

uint64_t FirstLocal(uint64_t run, int rank) { return Mix(run, static_cast<uint64_t>(rank)); }

uint64_t InputOf(uint64_t state, size_t step, int rank) {
  return Mix(Mix(state, step), static_cast<uint64_t>(rank));
}

}  // namespace

SessionWorld::SessionWorld(uint64_t seed) : random_(seed) {
  nodes_ = 2 + static_cast<int>(random_.Below(4));
  lives_.resize(2 + random_.Below(4));
  fault_chance_ = 0.004 * static_cast<double>(1 + random_.Below(10));
  slow_load_ = random_.Chance(0.5) ? 0.8 : 0.95;
  see_chance_ = random_.Chance(0.5) ? 0.03 : 0.3;
  local_ = random_.Chance(0.3);
  copies_ = 2 + static_cast<int>(random_.Below(2));
  copy_chance_ = random_.Chance(0.5) ? 0.005 : 0.05;
  lazy_chance_ = local_ ? 0 : 0.5 * static_cast<double>(random_.Below(3));
  ended_.resize(static_cast<size_t>(nodes_));
  newest_.resize(static_cast<size_t>(nodes_));
  DrawProgram();
}

void SessionWorld::DrawProgram() {
  // Versions without a call that needs all are rare if there are few Broadcasts.
  const double broadcasts = random_.Chance(0.5) ? 0.7 : 0.3;
  const auto draw_call = [this, broadcasts] {
    if (random_.Chance(broadcasts)) {
      program_.push_back({Kind::kBroadcast, static_cast<int>(random_.Below(lives_.size()))});
    } else {
      program_.push_back({Kind::kFold});
    }
  };
  program_.push_back({Kind::kRun});
  for (uint64_t calls = random_.Below(3); calls > 0; --calls) draw_call();
  program_.push_back({Kind::kLoad});
  for (uint64_t versions = 1 + random_.Below(20); versions > 0; --versions) {
    // A version can be empty.
    for (uint64_t calls = random_.Below(5); calls > 0; --calls) draw_call();
    program_.push_back({Kind::kCheckpoint});
  }
  // As Leave does.
  program_.push_back({Kind::kFold});
}

const SessionWorld::States& SessionWorld::Expected() {
  States& states = expected_[run_];
  if (!states.all.empty()) return states;
  const int world = static_cast<int>(lives_.size());
  states.all.push_back(run_);
  for (int rank = 0; rank < world; ++rank) states.locals.push_back({FirstLocal(run_, rank)});
  for (size_t step = 0; step < program_.size(); ++step) {
    const uint64_t state = states.all.back();
    const bool calls =
        program_[step].kind == Kind::kFold || program_[step].kind == Kind::kBroadcast;
    uint64_t result = 0;
    for (int rank = 0; rank < world; ++rank) {
      const bool gives = program_[step].kind == Kind::kFold || program_[step].root == rank;
      if (gives) result += InputOf(state, step, rank);
    }
    states.all.push_back(calls ? Mix(state, result) : state);
    for (std::vector<uint64_t>& locals : states.locals) {
      locals.push_back(calls ? Mix(locals.back(), result) : locals.back());
    }
  }
  return states;
}

void SessionWorld::CheckStates(int rank) {
  const Life& life = *lives_[static_cast<size_t>(rank)];
  const States& expected = Expected();
  if (life.state != expected.all[life.step]) Wrong(rank, "another state than without deaths");
  if (life.local == expected.locals[static_cast<size_t>(rank)][life.step]) return;
  Wrong(rank, "another local state than without deaths");
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
  copy_chance_ = 1;
  for (int i = 0; i < kActionsToTheEnd && wrong_.empty() && !over(); ++i) Act();
  for (size_t rank = 0; rank < lives_.size() && wrong_.empty(); ++rank) {
    if (!over()) {
      const bool lives = lives_[rank].has_value();
      Wrong(static_cast<int>(rank), absl::StrCat("stuck in step ", lives ? lives_[rank]->step : 0,
                                                 " of ", program_.size()));
    } else if (lives_[rank]->run != lives_[0]->run) {
      Wrong(static_cast<int>(rank), "another number of the run than rank 0");
    } else {
      CheckStates(static_cast<int>(rank));
    }
  }
  return wrong_;
}

void SessionWorld::Act() {
  if (random_.Chance(copy_chance_)) MakeCopy();
  const int rank = static_cast<int>(random_.Below(lives_.size()));
  const std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
  if (!life.has_value()) return Join(rank);
  // The others can go on, or end, meanwhile.
  const Kind kind = life->step < program_.size() ? program_[life->step].kind : Kind::kFold;
  if (kind == Kind::kLoad && random_.Chance(slow_load_)) return;
  if (kind == Kind::kCheckpoint && random_.Chance(0.85)) {
    if (random_.Chance(0.3)) See(rank, changes_.size());
    return;
  }
  Advance(rank);
}

// ---------------------------------------------------------------------------- lives

void SessionWorld::Fault() {
  // Ranks that have left make no call in which they could save a model.
  const bool leaves =
      std::any_of(lives_.begin(), lives_.end(), [this](const std::optional<Life>& life) {
        return life.has_value() && life->step == program_.size();
      });
  if (leaves && lazy_chance_ > 0) return;
  if (random_.Chance(0.3)) {
    EndNode(static_cast<int>(random_.Below(static_cast<uint64_t>(nodes_))));
  } else {
    do EndRank(static_cast<int>(random_.Below(lives_.size())));
    while (random_.Chance(0.3));
  }
  EndRunIfLost();
}

void SessionWorld::EndRank(int rank) {
  std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
  if (!life.has_value()) return;
  const int node = life->node;
  const std::set<std::string> held = std::move(life->held);
  life.reset();
  changes_.push_back({rank, false});
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
    if (at == objects_.end() || at->second.is_local) continue;
    if (at->second.home == node || still_held.contains(name)) continue;
    if (at->second.nodes.size() > 1 && random_.Chance(0.5)) at->second.nodes.erase(node);
  }
}

void SessionWorld::EndNode(int node) {
  for (const auto& [name, object] : objects_) {
    if (object.copied && object.nodes == std::set<int>{node}) return;
  }
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

void SessionWorld::See(int rank, size_t changes) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  for (; life.seen < changes; ++life.seen) {
    const Change& change = changes_[life.seen];
    life.live[static_cast<size_t>(change.rank)] = change.live;
    life.core.OnLoss();
  }
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
    }
  }
  progress.keep = learned.keep;
  changes_.push_back({rank, true});
  Life life{.node = node, .number = next_life_++, .core = internal::SessionCore(progress)};
  life.next_call = progress.ended + 1;
  life.state = run_;
  life.local = FirstLocal(run_, rank);
  life.seen = changes_.size();
  life.node_deaths = counts_.node_deaths;
  for (const std::optional<Life>& other : lives_) life.live.push_back(other.has_value());
  life.live[static_cast<size_t>(rank)] = true;
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
  if (random_.Chance(see_chance_)) {
    See(rank, life.seen + random_.Below(changes_.size() - life.seen + 1));
  }
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
  // The program changes its model after the last call before a checkpoint.
  if (life.step == program_.size() || program_[life.step].kind == Kind::kCheckpoint) {
    life.model = life.state;
  }
  const std::vector<uint64_t> freed = life.core.TakeFreed();
  if (rank == 0) life.to_delete.insert(life.to_delete.end(), freed.begin(), freed.end());
  CheckStates(rank);
}

void SessionWorld::BeginCall(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const uint64_t number = life.core.next_call();
  SaveIfNeeded(rank);
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
  const bool all_live =
      std::all_of(life.live.begin(), life.live.end(), [](bool live) { return live; });
  life.seen_losses = life.core.SeenLosses(all_live);
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
  if (random_.Chance(0.5)) SaveIfNeeded(rank);
  for (const auto& ended : ended_) {
    const auto at = ended.find(number);
    if (at == ended.end()) continue;
    if (at->second.keep != life.core.keep() || at->second.kind != program_[life.step].kind) {
      return Wrong(rank, absl::StrCat("call ", number, " differs from the one that has ended"));
    }
    const EndedCall call = at->second;
    EndCallAt(life.node, number, call);
    return TakeResult(rank, call.result);
  }
  const Step& step = program_[life.step];
  const std::optional<uint64_t> result = ResultOf(rank, step);
  if (!result.has_value()) return;
  EndCallAt(life.node, number, {step.kind, life.core.keep(), *result});
  TakeResult(rank, *result);
}

void SessionWorld::EndCallAt(int node, uint64_t number, const EndedCall& call) {
  std::map<uint64_t, EndedCall>& ended = ended_[static_cast<size_t>(node)];
  const auto [at, added] = ended.emplace(number, call);
  if (added) at->second.changes = changes_.size();
  if (!added || call.kind == Kind::kBroadcast) return;
  for (auto& [other, each] : ended) {
    if (other > call.keep.boot && other <= call.keep.released) each.kept = false;
  }
}

void SessionWorld::TakeResult(int rank, uint64_t result) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const Step& step = program_[life.step];
  const bool made = life.phase == Phase::kInCall;
  if (made) {
    ++life.next_call;
    See(rank, ended_[static_cast<size_t>(life.node)].at(life.core.next_call()).changes);
  }
  SaveIfNeeded(rank);
  if (step.kind == Kind::kRun) {
    life.run = result;
  } else {
    life.state = Mix(life.state, result);
    life.local = Mix(life.local, result);
  }
  life.core.OnCallEnded(step.kind != Kind::kBroadcast, made ? life.seen_losses : 0);
  NextStep(rank);
}

// ---------------------------------------------------------------------------- checkpoints

std::string SessionWorld::NameOf(int rank, uint64_t run, uint64_t version) {
  return internal::CheckpointName("job", "worker", run, rank, version);
}

std::string SessionWorld::LocalNameOf(int rank, uint64_t run, uint64_t version) {
  return internal::LocalName("job", "worker", run, rank, version);
}

void SessionWorld::EndScope(uint64_t run, uint64_t version) {
  uint64_t& freed = expected_[run].freed;
  for (; freed < version; ++freed) {
    for (int rank = 0; rank < static_cast<int>(lives_.size()); ++rank) {
      objects_.erase(NameOf(rank, run, freed + 1));
      objects_.erase(LocalNameOf(rank, run, freed + 1));
    }
  }
}

void SessionWorld::Put(int rank, uint64_t version, const Object& object) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  if (version <= expected_[life.run].freed) {
    return Wrong(rank, absl::StrCat("version ", version, " is put when its scope has ended"));
  }
  const std::string name = NameOf(rank, life.run, version);
  const auto [at, added] = objects_.try_emplace(name, object);
  if (added) at->second.home = life.node;
  at->second.nodes.insert(life.node);
  life.held.insert(name);
}

void SessionWorld::PutLocal(int rank, uint64_t version, const Object& object) {
  const Life& life = *lives_[static_cast<size_t>(rank)];
  Object& put = objects_.try_emplace(LocalNameOf(rank, life.run, version), object).first->second;
  put.is_local = true;
  put.nodes.insert(life.node);
  put.copied |= HasCopies(put);
}

bool SessionWorld::HasCopies(const Object& object) const {
  return static_cast<int>(object.nodes.size()) >= std::min(copies_, nodes_);
}

void SessionWorld::MakeCopy() {
  std::vector<Object*> few;
  for (auto& [name, object] : objects_) {
    if (object.is_local && !HasCopies(object)) few.push_back(&object);
  }
  if (few.empty()) return;
  Object& object = *few[random_.Below(few.size())];
  object.nodes.insert(static_cast<int>(random_.Below(static_cast<uint64_t>(nodes_))));
  object.copied |= HasCopies(object);
}

void SessionWorld::SaveIfNeeded(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const std::optional<uint64_t> version = life.core.ToSave();
  if (!version.has_value()) return;
  Put(rank, *version, {life.core.base(), life.model, life.model_step});
  life.core.OnSaved();
  ++counts_.saved;
}

void SessionWorld::Load(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const absl::StatusOr<uint64_t> first = life.core.VersionToLoad(local_);
  if (!first.ok()) return Wrong(rank, std::string(first.status().message()));
  if (*first == 0) {
    life.core.OnLoaded(0, 0, local_);
    return NextStep(rank);
  }
  if (local_) return LoadLocal(rank, *first);
  const int world = static_cast<int>(lives_.size());
  bool any = false;
  // Any that it may load will do.
  const bool newest_first = random_.Chance(0.5);
  for (uint64_t n = 0; n < internal::kLoadableVersions; ++n) {
    const uint64_t version = *first + (newest_first ? internal::kLoadableVersions - 1 - n : n);
    for (int i = 0; i < world; ++i) {
      const int owner = (rank + i) % world;
      const auto at = objects_.find(NameOf(owner, life.run, version));
      if (at == objects_.end()) continue;
      const Object& object = at->second;
      any = true;
      if (!life.core.CanLoad(version, object.base)) continue;
      life.found = Found{owner, version, object.base, object.state, object.step, 0};
      life.phase = Phase::kEnd;
      ++counts_.loads;
      if (owner != rank) ++counts_.of_others;
      if (version != *first) ++counts_.of_later;
      return;
    }
  }
  if (AnySaves(rank)) return;
  // The node of a rank that had an older one has ended since, and a later life has passed that.
  if (any && life.node_deaths < counts_.node_deaths) {
    ++counts_.given_up;
    EndRank(rank);
    return EndRunIfLost();
  }
  Wrong(rank, absl::StrCat("no rank has, or saves, a checkpoint for a life that has learned of ",
                           "version ", *first));
}

// Whether another rank can still save a checkpoint, or write one.
bool SessionWorld::AnySaves(int rank) {
  for (int other = 0; other < static_cast<int>(lives_.size()); ++other) {
    const std::optional<Life>& life = lives_[static_cast<size_t>(other)];
    if (other == rank || !life.has_value() || life->core.keep().boot == 0) continue;
    if (life->phase != Phase::kInCall || life->seen < changes_.size()) return true;
    if (life->core.ToSave().has_value()) return true;
    const uint64_t number = life->core.next_call();
    const bool ended = std::any_of(ended_.begin(), ended_.end(),
                                   [number](const auto& calls) { return calls.contains(number); });
    if (ended || ResultOf(other, program_[life->step]).has_value()) return true;
  }
  return false;
}

std::optional<int> SessionWorld::OwnerOf(uint64_t run, uint64_t version) const {
  for (int owner = 0; owner < static_cast<int>(lives_.size()); ++owner) {
    if (objects_.contains(NameOf(owner, run, version))) return owner;
  }
  return std::nullopt;
}

// Its own model of the version that it has learned of can be out of reach, and so can the others'
// global models of it, if all that have passed its checkpoint have died with their nodes.
void SessionWorld::LoadLocal(int rank, uint64_t newest) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  for (uint64_t version : {newest, newest - 1}) {
    if (version == 0) {
      life.core.OnLoaded(0, 0, local_);
      return NextStep(rank);
    }
    const auto local = objects_.find(LocalNameOf(rank, life.run, version));
    const std::optional<int> owner = OwnerOf(life.run, life.core.GlobalOf(version));
    const bool there = local != objects_.end() && owner.has_value() &&
                       life.core.CanLoad(version, local->second.base);
    if (!there) continue;
    const Object& mine = local->second;
    const Object& of_all = objects_.at(NameOf(*owner, life.run, life.core.GlobalOf(version)));
    life.found = Found{*owner, version, mine.base, of_all.state, mine.step, mine.state};
    life.phase = Phase::kEnd;
    ++counts_.locals;
    if (version < newest) ++counts_.of_before;
    return;
  }
  Wrong(rank, absl::StrCat("no models of version ", newest, ", or of the version before"));
}

void SessionWorld::EndLoad(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const Found found = *life.found;
  Put(rank, found.version, {found.base, found.state, found.step});
  // Else it can be lost with the node where it was.
  if (local_) PutLocal(rank, found.version, {found.base, found.local, found.step});
  // Other ranks can need the global model of the version before.
  const std::optional<int> before = OwnerOf(life.run, found.version - 1);
  if (local_ && before.has_value()) {
    const std::string name = NameOf(*before, life.run, found.version - 1);
    objects_.at(name).nodes.insert(life.node);
    life.held.insert(name);
  }
  life.core.OnLoaded(found.version, found.base, local_);
  life.state = found.state;
  if (local_) life.local = found.local;
  life.model = found.state;
  life.step = found.step;
  life.phase = Phase::kBegin;
  // Without local models no state of its own is restored.
  if (!local_) life.local = Expected().locals[static_cast<size_t>(rank)][life.step];
  CheckStates(rank);
}

void SessionWorld::Checkpoint(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  if (life.phase == Phase::kBegin) {
    const absl::Status can = life.core.CheckCheckpoint(local_);
    if (!can.ok()) return Wrong(rank, std::string(can.message()));
    if (const std::optional<uint64_t> version = life.core.LocalToAwait()) {
      const auto local = objects_.find(LocalNameOf(rank, life.run, *version));
      if (local != objects_.end() && !HasCopies(local->second)) return;
      if (local == objects_.end()) return Wrong(rank, "its local model is lost");
    }
    if (life.core.CanBeLazy() && random_.Chance(lazy_chance_)) {
      ++counts_.lazy;
      return EndCheckpoint(rank, /*lazy=*/true);
    }
    const uint64_t version = life.core.version() + 1;
    Put(rank, version, {life.core.next_base(), life.model, life.step + 1});
    if (local_) PutLocal(rank, version, {life.core.next_base(), life.local, life.step + 1});
    life.phase = Phase::kEnd;
    return;
  }
  EndCheckpoint(rank, /*lazy=*/false);
}

void SessionWorld::EndCheckpoint(int rank, bool lazy) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  life.core.OnCheckpoint(lazy);
  life.model_step = life.step + 1;
  NextStep(rank);
}

void SessionWorld::Wrong(int rank, const std::string& what) {
  wrong_.push_back(absl::StrCat("run ", run_, ", rank ", rank, ": ", what));
}

}  // namespace phalanx::spmd::testing
