#include "src/client/ps/barriers/barrier_keeper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/common/ids/job_ids.h"

namespace phalanx::ps::internal {
namespace {

// A text does not grow with the job.
constexpr size_t kNamed = 8;

constexpr BarrierGroup kGroups[] = {BarrierGroup::kWorkers, BarrierGroup::kServers,
                                    BarrierGroup::kAll};

size_t At(BarrierGroup group) { return static_cast<size_t>(group); }

std::string NameOf(BarrierTask task) {
  return absl::StrCat(task.worker ? "worker " : "server ", task.rank);
}

}  // namespace

bool HasTask(BarrierGroup group, bool worker) {
  return group == BarrierGroup::kAll || (group == BarrierGroup::kWorkers) == worker;
}

// No member reports the keeper's own server before its messages come.
BarrierKeeper::BarrierKeeper(int servers, uint64_t life) : servers_(servers) {
  servers_[0].life = life;
  servers_[0].state = MemberState::kLive;
}

// A worker that has more than these behind it would be one too many: it is ignored from now on.
void BarrierKeeper::SetWorkers(int workers) {
  workers_known_ = true;
  if (workers_.size() < static_cast<size_t>(workers)) workers_.resize(workers);
  Update();
}

void BarrierKeeper::SetOnLoss(OnLoss on_loss) {
  on_loss_ = on_loss;
  Update();
}

// The life is kept, so that messages of it are none of the next one.
void BarrierKeeper::Resolve(bool other_run) {
  if (resolved_) return;
  resolved_ = true;
  for (std::vector<Peer>* peers : {&servers_, &workers_}) {
    for (Peer& peer : *peers) {
      if (peer.old && other_run) peer.state = MemberState::kAbsent;
      peer.old = false;
    }
  }
  Update();
}

// Workers can be reported before it is known how many there are.
BarrierKeeper::Peer* BarrierKeeper::Find(BarrierTask task) {
  std::vector<Peer>& peers = task.worker ? workers_ : servers_;
  const auto rank = static_cast<size_t>(task.rank);
  if (task.rank < 0 || task.rank >= kMaxWorld) return nullptr;
  if (rank >= peers.size()) {
    if (!task.worker || workers_known_) return nullptr;
    peers.resize(rank + 1);
  }
  return &peers[rank];
}

// Whether a task had ended before this keeper began shows in that it was never seen to live.
void BarrierKeeper::OnMember(BarrierTask task, MemberState state, uint64_t life) {
  Peer* const peer = Find(task);
  if (peer == nullptr || state == MemberState::kAbsent) return;
  if (peer->life.has_value() && life < *peer->life) return;
  const bool ends = state != MemberState::kLive;
  // An end is final: what is reported later of this life is older.
  if (peer->life == life && !peer->live() && !ends) return;
  const bool lived = peer->life.has_value() && !peer->old && peer->state != MemberState::kAbsent;
  // What another life has come to is void.
  if (peer->life != life || ends) peer->arrived = {};
  peer->life = life;
  peer->state = state;
  peer->old = ends && !lived && !resolved_;
  Update();
}

// A message can come before its life is reported. Most say again what is known, twice a second for
// each task that waits, so those do not walk all tasks.
void BarrierKeeper::OnMessage(BarrierTask task, uint64_t life, absl::string_view bytes) {
  const std::optional<Arrival> arrival = DecodeArrival(bytes);
  if (!arrival.has_value() || !HasTask(arrival->group, task.worker)) return;
  Peer* const peer = Find(task);
  if (peer == nullptr || (peer->life.has_value() && life < *peer->life)) return;
  if (peer->life == life && !peer->live()) return;
  const bool new_life = peer->life != life;
  if (new_life) *peer = {.life = life, .state = MemberState::kLive};
  uint64_t& arrived = peer->arrived[At(arrival->group)];
  const bool has_come = arrival->arrived > arrived;
  arrived = std::max(arrived, arrival->arrived);
  uint64_t& ended = ended_[At(arrival->group)];
  const bool has_seen_more = arrival->ended > ended;
  ended = std::max(ended, arrival->ended);
  if (task.worker && !workers_known_ && arrival->world > static_cast<uint32_t>(task.rank) &&
      arrival->world <= static_cast<uint32_t>(kMaxWorld)) {
    // May move the peers.
    SetWorkers(static_cast<int>(arrival->world));
  } else if (new_life) {
    Update();
  } else if (has_come || has_seen_more) {
    Update(arrival->group);
  }
  if (!has_seen_more) return Answer(task, *Find(task), arrival->group);
  // The last life of the keeper had not answered all of them.
  ForEach(arrival->group, [&](BarrierTask of, const Peer& each) {
    if (each.live()) Answer(of, each, arrival->group);
  });
}

template <typename Visit>
void BarrierKeeper::ForEach(BarrierGroup group, Visit visit) const {
  ++walks_;
  for (const bool worker : {false, true}) {
    if (!HasTask(group, worker)) continue;
    const std::vector<Peer>& peers = worker ? workers_ : servers_;
    for (size_t rank = 0; rank < peers.size(); ++rank) {
      visit(BarrierTask{worker, static_cast<int>(rank)}, peers[rank]);
    }
  }
}

// A server that has died comes back, or a spare takes its part: tables go on with all servers or
// not at all, whatever they do about workers.
bool BarrierKeeper::WaitsFor(bool worker, const Peer& peer) const {
  if (peer.state == MemberState::kLive || peer.state == MemberState::kAbsent || peer.old) {
    return true;
  }
  if (peer.state == MemberState::kLeft) return false;
  return !worker || on_loss_ != OnLoss::kDrop;
}

// Nothing, and not 0, if all have left: a barrier in which none can wait has not ended.
std::optional<uint64_t> BarrierKeeper::Least(BarrierGroup group) const {
  if (HasTask(group, /*worker=*/true) && !workers_known_) return 0;
  std::optional<uint64_t> least;
  ForEach(group, [&](BarrierTask task, const Peer& peer) {
    if (!WaitsFor(task.worker, peer)) return;
    least = std::min(least.value_or(peer.arrived[At(group)]), peer.arrived[At(group)]);
  });
  return least;
}

// One name is enough: the caller cannot go on with any of them dead.
std::string BarrierKeeper::Failure(BarrierGroup group) const {
  std::string failure;
  if (on_loss_ != OnLoss::kFail) return failure;
  ForEach(group, [&](BarrierTask task, const Peer& peer) {
    if (!failure.empty() || !task.worker || peer.old || peer.state != MemberState::kDied) return;
    failure = absl::StrCat(NameOf(task), " has died in life ", *peer.life);
  });
  return failure;
}

// All groups: a task is in two of them, and an end of it changes both.
void BarrierKeeper::Update() {
  for (const BarrierGroup group : kGroups) Update(group);
}

// A next life of a worker that has died ends the failure: a task that calls again waits for it.
void BarrierKeeper::Update(BarrierGroup group) {
  missing_[At(group)].clear();
  uint64_t& ended = ended_[At(group)];
  const uint64_t before = ended;
  ended = std::max(ended, Least(group).value_or(0));
  std::string failure = Failure(group);
  const bool fails = !failure.empty() && failure != failures_[At(group)];
  failures_[At(group)] = std::move(failure);
  if (ended == before && !fails) return;
  ForEach(group, [&](BarrierTask task, const Peer& peer) {
    if (peer.live() && peer.arrived[At(group)] > before) Answer(task, peer, group);
  });
}

// As of the stage that is asked for: a task of an earlier barrier can be missing in a later one.
std::string BarrierKeeper::Missing(BarrierGroup group, uint64_t stage) const {
  if (HasTask(group, /*worker=*/true) && !workers_known_) return "workers, none of which has come";
  std::vector<std::string> missing;
  size_t more = 0;
  ForEach(group, [&](BarrierTask task, const Peer& peer) {
    if (!WaitsFor(task.worker, peer) || peer.arrived[At(group)] >= stage) return;
    if (missing.size() == kNamed) {
      ++more;
    } else if (peer.live()) {
      missing.push_back(NameOf(task));
    } else if (peer.state == MemberState::kAbsent || peer.old) {
      missing.push_back(absl::StrCat(NameOf(task), " (has not joined)"));
    } else {
      missing.push_back(absl::StrCat(NameOf(task), " (died in life ", *peer.life, ")"));
    }
  });
  std::string text = absl::StrJoin(missing, ", ");
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return text;
}

// An answer has all of the group, so that a later one makes up for one that is lost.
void BarrierKeeper::Answer(BarrierTask task, const Peer& peer, BarrierGroup group) {
  Verdict verdict{.group = group, .ended = ended_[At(group)]};
  const uint64_t arrived = peer.arrived[At(group)];
  if (arrived > verdict.ended) {
    if (failures_[At(group)].empty()) {
      const auto [missing, added] = missing_[At(group)].try_emplace(arrived);
      if (added) missing->second = Missing(group, arrived);
      verdict.missing = missing->second;
    } else {
      verdict.why = absl::UnavailableError(failures_[At(group)]);
    }
  }
  sends_.push_back({task, *peer.life, Encode(verdict)});
}

// The first barrier of each group in which a task waits: those behind it wait for the same tasks
// and perhaps for more.
std::string BarrierKeeper::Describe() const {
  std::string text;
  for (const BarrierGroup group : kGroups) {
    std::vector<std::string> waiting;
    uint64_t first = 0;
    ForEach(group, [&](BarrierTask task, const Peer& peer) {
      const uint64_t stage = peer.arrived[At(group)];
      if (!peer.live() || stage <= ended_[At(group)]) return;
      first = waiting.empty() ? stage : std::min(first, stage);
      if (waiting.size() < kNamed) waiting.push_back(NameOf(task));
    });
    if (waiting.empty()) continue;
    absl::StrAppend(&text, "barrier ", first - 1, " of ", BarrierGroupName(group), ": in it ",
                    absl::StrJoin(waiting, ", "), "; waits for ", Missing(group, first), "\n");
  }
  return text;
}

}  // namespace phalanx::ps::internal
