#include "src/client/spmd/testing/boot_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::spmd::testing {
namespace {

// Actions with deaths, and those within which all ranks must end after that.
constexpr int kActionsWithDeaths = 400;
constexpr int kActionsToTheEnd = 5000;

std::string PartOf(size_t step, size_t part) { return absl::StrCat("step ", step, ".", part); }

}  // namespace

BootWorld::BootWorld(uint64_t seed) : random_(seed) {
  lives_.resize(2 + random_.Below(3));
  death_chance_ = 0.01 * static_cast<double>(1 + random_.Below(6));
  const double named = 0.5 * static_cast<double>(random_.Below(3));
  const auto draw = [this](std::string name) {
    Step step{std::move(name), {}};
    for (uint64_t parts = 1 + random_.Below(3); parts > 0; --parts) {
      step.needs_all.push_back(random_.Chance(0.5));
    }
    steps_.push_back(std::move(step));
  };
  steps_.push_back({"", {true}});
  for (uint64_t calls = random_.Below(7); calls > 0; --calls) {
    draw(random_.Chance(named) ? absl::StrCat("name", calls) : "");
  }
  load_ = steps_.size();
  steps_.push_back({"", {}});
  for (uint64_t calls = 1 + random_.Below(3); calls > 0; --calls) draw("");
}

std::vector<std::string> BootWorld::Run() {
  const auto over = [this] {
    return std::all_of(lives_.begin(), lives_.end(), [](const std::optional<Life>& life) {
      return life.has_value() && life->to_do.empty();
    });
  };
  for (int i = 0; i < kActionsToTheEnd && wrong_.empty() && !over(); ++i) {
    const int rank = static_cast<int>(random_.Below(lives_.size()));
    if (!lives_[static_cast<size_t>(rank)].has_value()) {
      Join(rank);
    } else if (i < kActionsWithDeaths && random_.Chance(death_chance_)) {
      Die(rank);
    } else {
      Advance(rank);
    }
  }
  if (wrong_.empty() && !over()) wrong_.push_back("stuck");
  return wrong_;
}

void BootWorld::Die(int rank) {
  lives_[static_cast<size_t>(rank)].reset();
  ++counts_.deaths;
  const bool none =
      std::none_of(lives_.begin(), lives_.end(), [](const auto& life) { return life.has_value(); });
  if (!none) return;
  calls_.clear();
  ++counts_.runs;
}

void BootWorld::Join(int rank) {
  internal::SessionProgress progress;
  for (const auto& [number, call] : calls_) {
    if (!call.ended) continue;
    progress.ended = number;
    if (call.needs_all) progress.keep = call.keep;
  }
  // As the group does.
  const internal::SessionKeep& said = progress.keep;
  progress.keep = internal::SessionKeep::Of(said.boot, said.released, said.mark());
  Life life{.core = internal::SessionCore(progress)};
  const uint64_t last = life.core.boot_calls().last_record();
  for (uint64_t number = 2; number <= last; ++number) {
    const std::optional<internal::NameRecord>& record = calls_.at(number).record;
    if (record.has_value()) life.core.boot_calls().AddRecord(number, *record);
  }
  life.to_do = Order();
  lives_[static_cast<size_t>(rank)].emplace(std::move(life));
}

bool BootWorld::HasEnded(size_t step) const {
  const std::string last = PartOf(step, steps_[step].needs_all.size() - 1);
  return std::any_of(calls_.begin(), calls_.end(), [&last](const auto& call) {
    return call.second.what == last && call.second.ended;
  });
}

// Unnamed calls stay in their order.
std::deque<size_t> BootWorld::Order() {
  std::vector<size_t> ended, unnamed;
  std::deque<size_t> others;
  for (size_t step = 1; step < load_; ++step) {
    if (!HasEnded(step)) {
      others.push_back(step);
    } else if (steps_[step].name.empty()) {
      unnamed.push_back(step);
    } else if (random_.Chance(0.3)) {
      ++counts_.left_out;
    } else {
      ended.push_back(step);
    }
  }
  std::deque<size_t> order = {0};
  auto next_unnamed = unnamed.begin();
  while (!ended.empty() || next_unnamed != unnamed.end() || !others.empty()) {
    const uint64_t choice = random_.Below(3);
    if (choice == 0 && !ended.empty()) {
      const auto at = ended.begin() + static_cast<std::ptrdiff_t>(random_.Below(ended.size()));
      if (at != ended.begin()) ++counts_.early;
      order.push_back(*at);
      ended.erase(at);
    } else if (choice == 1 && next_unnamed != unnamed.end()) {
      order.push_back(*next_unnamed++);
    } else if (choice == 2 && !others.empty() &&
               (!steps_[others.front()].name.empty() || next_unnamed == unnamed.end())) {
      order.push_back(others.front());
      others.pop_front();
    }
  }
  for (size_t step = load_; step < steps_.size(); ++step) order.push_back(step);
  return order;
}

void BootWorld::Advance(int rank) {
  const Life& life = *lives_[static_cast<size_t>(rank)];
  if (life.in_call) return TryEnd(rank);
  if (!life.to_do.empty()) Begin(rank);
}

void BootWorld::Begin(int rank) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  const size_t at = life.to_do.front();
  const Step& step = steps_[at];
  if (!life.core.loaded() && life.part == 0 && !life.in_record) {
    const auto record =
        at == load_ ? life.core.boot_calls().BeginLoad() : life.core.boot_calls().Begin(step.name);
    if (!record.ok()) return Wrong(rank, record.status().message());
    life.in_record = record->has_value();
    if (life.in_record) {
      return Make(rank, {absl::StrCat("record ", step.name), true, 0, {}, **record});
    }
  }
  if (at == load_) {
    const absl::StatusOr<uint64_t> version = life.core.VersionToLoad(/*local=*/false);
    if (!version.ok()) return Wrong(rank, version.status().message());
    life.core.OnLoaded(0, 0, /*local=*/false);
    life.in_record = false;
    life.to_do.pop_front();
    return;
  }
  const int root = static_cast<int>(at % lives_.size());
  Make(rank, {PartOf(at, life.part), step.needs_all[life.part], root, {}, std::nullopt});
}

void BootWorld::Make(int rank, const Call& call) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  if (!life.core.loaded()) {
    const absl::Status right = life.core.boot_calls().CheckNext();
    if (!right.ok()) return Wrong(rank, right.message());
  }
  const uint64_t number = life.core.next_call();
  Call made = call;
  made.keep = life.core.keep();
  const auto [at, added] = calls_.try_emplace(number, made);
  if (life.core.repeats()) {
    if (added || at->second.what != call.what) {
      return Wrong(rank, absl::StrCat("takes the result of ", at->second.what, " for ", call.what));
    }
    ++counts_.repeated;
    return End(rank, at->second);
  }
  if (at->second.what != call.what || at->second.keep != made.keep) {
    const auto text = [](const Call& each) {
      return absl::StrCat(each.what, " (boot ", each.keep.boot, ", released ", each.keep.released,
                          ", names ", each.keep.names, ")");
    };
    return Wrong(rank, absl::StrCat("makes ", text(made), " as call ", number, ", which is ",
                                    text(at->second), " of the others"));
  }
  life.in_call = true;
}

bool BootWorld::MakesCall(int rank, uint64_t number) const {
  const std::optional<Life>& life = lives_[static_cast<size_t>(rank)];
  return life.has_value() && life->in_call && life->core.next_call() == number;
}

void BootWorld::TryEnd(int rank) {
  const uint64_t number = lives_[static_cast<size_t>(rank)]->core.next_call();
  Call& call = calls_.at(number);
  bool ends = true;
  for (int other = 0; other < static_cast<int>(lives_.size()); ++other) {
    if (call.needs_all || other == call.root) ends &= MakesCall(other, number);
  }
  call.ended |= ends;
  if (call.ended) End(rank, call);
}

void BootWorld::End(int rank, const Call& call) {
  Life& life = *lives_[static_cast<size_t>(rank)];
  life.in_call = false;
  life.core.OnCallEnded(call.needs_all, 0);
  // Load follows its record, and so does the first part.
  if (call.record.has_value()) return;
  life.in_record = false;
  if (++life.part < steps_[life.to_do.front()].needs_all.size()) return;
  life.part = 0;
  life.to_do.pop_front();
}

void BootWorld::Wrong(int rank, absl::string_view what) {
  wrong_.push_back(absl::StrCat("rank ", rank, ": ", what));
}

}  // namespace phalanx::spmd::testing
