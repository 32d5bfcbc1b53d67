#include "src/ps/sync_core.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {

SyncCore::SyncCore(const Options& options)
    : options_(options), clocks_(options.workers), last_(options.workers) {}

// What a worker says of a clock that it has not reached would count before its time: the channel is
// in order, so only a broken program or worker sends such.
absl::Status SyncCore::CheckReached(int worker, uint64_t clock, absl::string_view what) const {
  if (worker < 0 || worker >= clocks_.workers()) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", options_.table, "\": ", what,
                                                   " of worker ", worker, "; the table has ",
                                                   clocks_.workers(), " workers"));
  }
  if (!clocks_.counted(worker)) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", options_.table, "\": ", what, " of clock ", clock, " by worker ",
                     worker, ", which was dropped at clock ", clocks_.of(worker)));
  }
  // Messages of a channel have an order: a push ahead of its clock means that one was left out.
  if (clock > clocks_.of(worker)) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", options_.table, "\": ", what,
                                                   " of clock ", clock, " by worker ", worker,
                                                   ", which is at clock ", clocks_.of(worker)));
  }
  return absl::OkStatus();
}

// A position that is not behind the last one was there before: sent again after a loss, or made
// again by a next life.
absl::StatusOr<bool> SyncCore::Push(int worker, const Position& at, Token push) {
  PHALANX_RETURN_IF_ERROR(CheckReached(worker, at.clock, "a push"));
  if (at.push == 0) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", options_.table,
                                                   "\": push 0 of clock ", at.clock, " by worker ",
                                                   worker, "; pushes are numbered from 1"));
  }
  // The clock's end closes it, though its last position can be lower.
  const bool before = at.clock < clocks_.of(worker) || at <= last_[worker];
  if (before && !DefectActive(Defect::kPsPushCountedTwice)) return false;
  last_[worker] = at;
  // A mark has nothing to count; only that it has come is kept.
  if (at.push == kAllPushes) return false;
  if (options_.sync == Sync::kBsp && !DefectActive(Defect::kPsPushSeenEarly)) {
    kept_.emplace(Place{at.clock, worker, at}, push);
  } else {
    effects_.push_back(Apply{worker, push});
  }
  return true;
}

// The pushes of the clock are before its end on the same channel, so they are all here.
absl::StatusOr<bool> SyncCore::Clock(int worker, uint64_t clock) {
  PHALANX_RETURN_IF_ERROR(CheckReached(worker, clock, "the end"));
  // It has come before: a life, or a channel, sends again what may be lost.
  if (clock < clocks_.of(worker)) return false;
  if (clocks_.Advance(worker)) Risen();
  return true;
}

absl::Status SyncCore::Pull(int worker, uint64_t clock, Token pull) {
  PHALANX_RETURN_IF_ERROR(CheckReached(worker, clock, "a pull"));
  if (options_.sync == Sync::kAsp || clock <= Readable()) {
    effects_.push_back(Answer{pull});
  } else {
    parked_[clock].push_back(Waiting{worker, pull});
  }
  return absl::OkStatus();
}

// Pulls are asked again on the next channel. Answering them now would answer no ticket.
void SyncCore::Forget(int worker) {
  for (auto at = parked_.begin(); at != parked_.end();) {
    std::erase_if(at->second,
                  [worker](const Waiting& waiting) { return waiting.worker == worker; });
    at = at->second.empty() ? parked_.erase(at) : std::next(at);
  }
}

// With BSP a clock that was not ended does not count, or some servers would count a part of it.
// Ended ones count, though they have not turned.
void SyncCore::Remove(int worker) {
  Forget(worker);
  if (!clocks_.counted(worker)) return;
  if (options_.sync == Sync::kBsp) {
    const uint64_t clock = clocks_.of(worker);
    // Those of the clocks that it has ended stay: others may have seen their ends already.
    const auto end = kept_.lower_bound(Place{clock, worker + 1, {}});
    for (auto at = kept_.lower_bound(Place{clock, worker, {}}); at != end;) {
      effects_.push_back(Drop{at->second});
      at = kept_.erase(at);
    }
    last_[worker] = Position{clock, 0, 0};
  }
  if (clocks_.Remove(worker)) Risen();
}

// Counted again, at m or later. If it was the only one that is counted, m can be behind its clock.
uint64_t SyncCore::Rejoin(int worker) {
  const uint64_t before = clocks_.min();
  const uint64_t clock = clocks_.Rejoin(worker);
  if (clocks_.min() > before) Risen();
  return clock;
}

// The end of a clock is behind all of its pushes, whatever their numbers were.
Position SyncCore::PositionOf(int worker) const {
  return std::max(last_[worker], Position{clocks_.of(worker), 0, 0});
}

std::vector<SyncCore::Parked> SyncCore::parked() const {
  std::vector<Parked> all;
  for (const auto& [clock, waiting] : parked_) {
    for (const Waiting& one : waiting) {
      all.push_back(Parked{one.worker, clock, clocks_.slowest()});
    }
  }
  return all;
}

std::vector<SyncCore::Effect> SyncCore::TakeEffects() { return std::exchange(effects_, {}); }

// The greatest clock at which a pull is answered now.
uint64_t SyncCore::Readable() const {
  return clocks_.min() + (options_.sync == Sync::kSsp ? options_.staleness : 0);
}

// A pull waits for a clock that its worker has reached, so m can pass it only if the worker has
// gone on: with BSP the pulls that may not see a turn are answered before it. Only clocks with
// pushes are looked at: m can rise by any number when a worker is removed.
void SyncCore::Risen() {
  if (options_.sync != Sync::kBsp) return AnswerUpTo(Readable());
  while (!kept_.empty() && kept_.begin()->first.clock < clocks_.min()) {
    const uint64_t clock = kept_.begin()->first.clock;
    AnswerUpTo(clock);
    TakeTurn(clock);
  }
  AnswerUpTo(clocks_.min());
}

// In the order of workers and then of their pushes, which is that of the map: floating-point sums
// depend on it.
void SyncCore::TakeTurn(uint64_t clock) {
  Turn turn{clock, {}};
  const auto end = kept_.lower_bound(Place{clock + 1, 0, {}});
  for (auto at = kept_.begin(); at != end; ++at) turn.pushes.push_back(at->second);
  kept_.erase(kept_.begin(), end);
  // Tokens grow.
  if (DefectActive(Defect::kPsArrivalOrder)) std::sort(turn.pushes.begin(), turn.pushes.end());
  effects_.push_back(std::move(turn));
}

// In the order of clocks, and within one in that of arrival.
void SyncCore::AnswerUpTo(uint64_t clock) {
  const auto end = parked_.upper_bound(clock);
  for (auto at = parked_.begin(); at != end; ++at) {
    if (at->first < clock && DefectActive(Defect::kPsParkedPullLost)) continue;
    for (const Waiting& waiting : at->second) effects_.push_back(Answer{waiting.pull});
  }
  parked_.erase(parked_.begin(), end);
}

// Pulls that wait are not saved: workers ask them again.
SyncCore::Saved SyncCore::Save() const {
  Saved saved;
  saved.clocks = clocks_.Save();
  saved.min = clocks_.min();
  for (int worker = 0; worker < clocks_.workers(); ++worker) {
    saved.positions.push_back(DefectActive(Defect::kPsPositionsNotSaved)
                                  ? Position{clocks_.of(worker), 0, 0}
                                  : PositionOf(worker));
  }
  for (const auto& [place, push] : kept_) {
    saved.kept.push_back(Saved::Kept{place.worker, place.at, push});
  }
  std::sort(saved.kept.begin(), saved.kept.end(), [](const auto& a, const auto& b) {
    return std::tie(a.worker, a.at) < std::tie(b.worker, b.at);
  });
  return saved;
}

// A snapshot was written by another process, perhaps of another version: nothing that it says is
// taken for granted, since the invariants of this class rest on it.
absl::Status SyncCore::CheckSaved(const Saved& saved) const {
  const auto wrong = [this](auto... text) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", options_.table, "\": what was saved ", text...));
  };
  const auto workers = static_cast<size_t>(clocks_.workers());
  if (saved.clocks.size() != workers || saved.positions.size() != workers) {
    return wrong("is of ", saved.clocks.size(), " workers; the table has ", workers);
  }
  uint64_t min = saved.min;
  for (size_t worker = 0; worker < workers; ++worker) {
    const Clocks::Worker& clock = saved.clocks[worker];
    if (clock.counted && clock.clock < saved.min) {
      return wrong("has worker ", worker, " at clock ", clock.clock, ", before the least one, ",
                   saved.min);
    }
    // PositionOf is never in another clock than the worker.
    if (saved.positions[worker].clock != clock.clock) {
      return wrong("has a position in clock ", saved.positions[worker].clock, " of worker ", worker,
                   ", which is at clock ", clock.clock);
    }
    if (clock.clock > kMaxClock) {
      return wrong("has worker ", worker, " at clock ", clock.clock, ", which is none");
    }
  }
  if (saved.min > kMaxClock) return wrong("has the least clock ", saved.min, ", which is none");
  const bool any = std::any_of(saved.clocks.begin(), saved.clocks.end(),
                               [](const Clocks::Worker& worker) { return worker.counted; });
  // Without a worker that is counted, nothing but `min` says which clocks have turned.
  if (any) {
    Clocks clocks(clocks_.workers());
    clocks.Load(saved.clocks, saved.min);
    min = clocks.min();
  }
  if (options_.sync != Sync::kBsp && !saved.kept.empty()) return wrong("keeps pushes without bsp");
  const Saved::Kept* last = nullptr;
  for (const Saved::Kept& kept : saved.kept) {
    if (kept.worker < 0 || static_cast<size_t>(kept.worker) >= workers) {
      return wrong("keeps a push of worker ", kept.worker, "; the table has ", workers);
    }
    // A kept push has been counted by its position, and comes once: else it would be made twice, or
    // never, when its worker sends again.
    const bool known =
        kept.at.clock < saved.clocks[kept.worker].clock || kept.at <= saved.positions[kept.worker];
    const bool after =
        last == nullptr || std::tie(last->worker, last->at) < std::tie(kept.worker, kept.at);
    if (kept.at.clock < min || kept.at.push == 0 || kept.at.push == kAllPushes || !known ||
        !after) {
      return wrong("keeps push ", kept.at.push, " of clock ", kept.at.clock, " by worker ",
                   kept.worker, ", which cannot be");
    }
    last = &kept;
  }
  return absl::OkStatus();
}

// Nothing is changed unless all of it can be.
absl::Status SyncCore::Load(const Saved& saved) {
  PHALANX_RETURN_IF_ERROR(CheckSaved(saved));
  clocks_.Load(saved.clocks, saved.min);
  last_ = saved.positions;
  kept_.clear();
  for (const Saved::Kept& kept : saved.kept) {
    kept_.emplace(Place{kept.at.clock, kept.worker, kept.at}, kept.push);
  }
  parked_.clear();
  effects_.clear();
  return absl::OkStatus();
}

}  // namespace phalanx::ps::internal
