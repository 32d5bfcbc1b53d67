// Tasks that die, come again, and leave, and server 0 among them; messages that are lost, and
// reports of members that are late; workers that are waited for, dropped or fail the others. Many
// seeds: no task passes a barrier to which another one has not come, none ends with the arrival of
// a life that server 0 has seen die, and when nothing fails any more all programs end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/client/ps/barriers/barrier_keeper.h"
#include "src/client/ps/barriers/barrier_member.h"
#include "src/common/random.h"
#include "src/common/testing/seed.h"

namespace phalanx::ps::internal {
namespace {

constexpr BarrierTask kServer0 = {.worker = false, .rank = 0};

struct Counts {
  uint64_t passed = 0;
  uint64_t repeated = 0;  // passed by a next life at once
  uint64_t deaths = 0;
  uint64_t keeper_deaths = 0;
  uint64_t lost = 0;
  uint64_t failed = 0;  // calls, for a worker that has died
};

class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        servers_(1 + static_cast<int>(random_.Below(3))),
        workers_(1 + static_cast<int>(random_.Below(5))),
        on_loss_(random_.Chance(0.4)   ? OnLoss::kWait
                 : random_.Chance(0.5) ? OnLoss::kDrop
                                       : OnLoss::kFail) {
    const uint64_t steps = 3 + random_.Below(10);
    for (uint64_t i = 0; i < steps; ++i) {
      plan_.push_back(static_cast<BarrierGroup>(random_.Below(kBarrierGroups)));
    }
    for (int rank = 0; rank < servers_; ++rank) processes_[{false, rank}];
    for (int rank = 0; rank < workers_; ++rank) {
      // Some have shorter programs, and leave before the others.
      processes_[{true, rank}].length =
          random_.Chance(0.2) ? random_.Below(plan_.size() + 1) : plan_.size();
    }
    for (auto& [task, process] : processes_) {
      if (!task.worker) process.length = plan_.size();
    }
  }

  // What is wrong, or an empty text.
  std::string Run() {
    for (int step = 0; step < 600 && wrong_.empty(); ++step) Step(/*faults=*/true);
    for (int step = 0; step < 20'000 && wrong_.empty() && !Done(); ++step) Step(/*faults=*/false);
    if (wrong_.empty() && !Done()) wrong_ = absl::StrCat("some wait for ever: ", Waiting());
    return wrong_;
  }
  const Counts& counts() const { return counts_; }

 private:
  struct Process {
    MemberState state = MemberState::kAbsent;
    uint64_t life = 0;
    std::unique_ptr<BarrierMember> member;
    size_t length = 0;  // of its program
    size_t at = 0;
    std::optional<BarrierMember::Ticket> waits;
    std::map<BarrierGroup, uint64_t> come;    // the most stages of any life
    std::map<BarrierGroup, uint64_t> calls;   // of this life
    std::map<BarrierGroup, uint64_t> passed;  // stages, of any life
  };
  struct Letter {
    BarrierTask from;
    uint64_t from_life;
    uint64_t to_life;
    std::string bytes;
  };
  struct Report {
    BarrierTask task;
    MemberState state;
    uint64_t life;
  };
  // What server 0 has been shown of a task in its present life.
  struct Seen {
    MemberState state = MemberState::kAbsent;
    uint64_t life = 0;
    std::map<BarrierGroup, uint64_t> come;  // of this life
  };
  using Link = std::pair<BarrierTask, BarrierTask>;

  bool drops() const { return on_loss_ == OnLoss::kDrop; }
  bool Gone(const BarrierTask& task, MemberState state) const {
    return state == MemberState::kLeft || (drops() && task.worker && state == MemberState::kDied);
  }
  // Null: server 0 has to ignore what is of this life.
  Seen* See(const BarrierTask& task, uint64_t life) {
    Seen& seen = seen_[task];
    if (seen.state != MemberState::kAbsent) {
      const bool over = seen.state != MemberState::kLive;
      if (life < seen.life || (life == seen.life && over)) return nullptr;
    }
    if (seen.state == MemberState::kAbsent || life > seen.life) {
      seen = {.state = MemberState::kLive, .life = life, .come = {}};
    }
    return &seen;
  }
  bool Done() const {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const auto& each) { return each.second.state == MemberState::kLeft; });
  }
  std::string Waiting() const {
    std::string text;
    for (const auto& [task, process] : processes_) {
      absl::StrAppend(&text, task.worker ? "worker " : "server ", task.rank, " at ", process.at,
                      process.member != nullptr && process.waits.has_value()
                          ? process.member->WaitsFor(*process.waits)
                          : " gone",
                      "; ");
    }
    return text;
  }

  BarrierTask Any() {
    auto at = processes_.begin();
    std::advance(at, random_.Below(processes_.size()));
    return at->first;
  }

  // What server 0 knows when it runs.
  void ShowTables() {
    shown_ = true;
    keeper_->Resolve(/*other_run=*/false);
    keeper_->SetWorkers(workers_);
    keeper_->SetOnLoss(on_loss_);
  }

  void Step(bool faults) {
    if (keeper_.has_value() && !shown_ && random_.Chance(0.05)) {
      ShowTables();
      return Collect();
    }
    const uint64_t what = random_.Below(100);
    const BarrierTask task = Any();
    Process& process = processes_[task];
    if (what < 40) {
      Deliver(faults);
    } else if (what < 55) {
      ShowReport();
    } else if (what < 80) {
      Work(task, process);
    } else if (what < 90) {
      if (process.member != nullptr) process.member->Tick();
    } else if (what < 96) {
      if (process.state == MemberState::kAbsent || process.state == MemberState::kDied) {
        Begin(task, process);
      }
    } else if (faults && process.state == MemberState::kLive) {
      End(task, process, MemberState::kDied);
    }
    Collect();
  }

  void Begin(const BarrierTask& task, Process& process) {
    process.life += process.state == MemberState::kDied ? 1 : 0;
    process.state = MemberState::kLive;
    process.member = std::make_unique<BarrierMember>(task.worker ? workers_ : servers_);
    process.at = 0;
    process.waits.reset();
    process.calls.clear();
    if (task == kServer0) {
      keeper_.emplace(servers_, process.life);
      shown_ = false;
      if (random_.Chance(0.5)) ShowTables();
      seen_.clear();
      See(kServer0, process.life);
      process.member->OnKeeper(MemberState::kLive, process.life);
    }
    // It sees all the others as they are now, or later.
    reports_[task].clear();
    for (const auto& [other, state] : processes_) {
      if (state.state != MemberState::kAbsent) {
        reports_[task].push_back({other, state.state, state.life});
      }
      if (other != task) reports_[other].push_back({task, MemberState::kLive, process.life});
    }
  }

  void End(const BarrierTask& task, Process& process, MemberState state) {
    counts_.deaths += state == MemberState::kDied ? 1 : 0;
    process.state = state;
    process.member.reset();
    process.waits.reset();
    if (task == kServer0) {
      counts_.keeper_deaths += state == MemberState::kDied ? 1 : 0;
      keeper_.reset();
    }
    for (const auto& [other, ignored] : processes_) {
      if (other != task) reports_[other].push_back({task, state, process.life});
    }
  }

  // The next barrier of its group, or the end of the program. Servers stay until the workers have
  // left, and server 0 the longest.
  void Work(const BarrierTask& task, Process& process) {
    if (process.state != MemberState::kLive || process.waits.has_value()) return;
    while (process.at < process.length && !HasTask(plan_[process.at], task.worker)) ++process.at;
    if (process.at < process.length) {
      const BarrierGroup group = plan_[process.at];
      const uint64_t stage = ++process.calls[group];
      process.come[group] = std::max(process.come[group], stage);
      // By number, or by counting.
      process.waits = process.member->Begin(
          group, random_.Chance(0.5) ? std::optional<uint64_t>(stage - 1) : std::nullopt);
      return;
    }
    for (const auto& [other, each] : processes_) {
      if (task.worker || each.state == MemberState::kLeft) continue;
      if (other.worker || (task == kServer0 && other != kServer0)) return;
    }
    End(task, process, MemberState::kLeft);
  }

  void Collect() {
    for (auto& [task, process] : processes_) {
      if (process.member == nullptr) continue;
      for (BarrierMember::Send& send : process.member->TakeSends()) {
        letters_[{task, kServer0}].push_back(
            {task, process.life, send.life, std::move(send.bytes)});
      }
      for (const BarrierMember::Ended& ended : process.member->TakeEnded()) {
        if (ended.ticket == process.waits) Passed(task, process, ended.status);
      }
    }
    if (!keeper_.has_value()) return;
    const uint64_t life = processes_[kServer0].life;
    for (BarrierKeeper::Send& send : keeper_->TakeSends()) {
      if (const auto verdict = DecodeVerdict(send.bytes))
        CheckEnded(verdict->group, verdict->ended);
      letters_[{kServer0, send.to}].push_back({kServer0, life, send.life, std::move(send.bytes)});
    }
  }

  // A life of server 0 that is shown an end by a task shows no more than what has ended before.
  void CheckEnded(BarrierGroup group, uint64_t stage) {
    if (stage <= ended_[group]) return;
    ended_[group] = stage;
    for (const auto& [task, process] : processes_) {
      if (!HasTask(group, task.worker) || Gone(task, seen_[task].state)) continue;
      if (seen_[task].come[group] >= stage) continue;
      wrong_ = absl::StrCat("stage ", stage, " of ", BarrierGroupName(group), " has ended without ",
                            task.worker ? "worker " : "server ", task.rank);
    }
  }

  void Passed(const BarrierTask& task, Process& process, const absl::Status& status) {
    const BarrierGroup group = plan_[process.at];
    const uint64_t stage = process.calls[group];
    process.waits.reset();
    if (on_loss_ == OnLoss::kFail && absl::IsUnavailable(status)) {
      ++counts_.failed;
      --process.calls[group];
      return;
    }
    ++process.at;
    if (!status.ok()) {
      wrong_ = absl::StrCat("a call has failed: ", status.ToString());
      return;
    }
    ++counts_.passed;
    if (process.passed[group] >= stage) {
      ++counts_.repeated;
      return;
    }
    process.passed[group] = stage;
    for (auto& [other, each] : processes_) {
      if (!HasTask(group, other.worker) || Gone(other, each.state) || each.come[group] >= stage)
        continue;
      // It may have gone before, and have come back since.
      if (drops() && other.worker && each.life > 0) continue;
      wrong_ = absl::StrCat(task.worker ? "worker " : "server ", task.rank, " has passed stage ",
                            stage, " of ", BarrierGroupName(group), ", to which ",
                            other.worker ? "worker " : "server ", other.rank, " has not come");
    }
  }

  // The next message of a link, in order; or it is lost.
  void Deliver(bool faults) {
    if (letters_.empty()) return;
    auto link = letters_.begin();
    std::advance(link, random_.Below(letters_.size()));
    const BarrierTask to = link->first.second;
    const Letter letter = std::move(link->second.front());
    link->second.pop_front();
    if (link->second.empty()) letters_.erase(link);
    Process& process = processes_[to];
    if (process.state != MemberState::kLive || process.life != letter.to_life) return;
    if (faults && random_.Chance(0.1)) {
      ++counts_.lost;
      return;
    }
    const std::optional<Arrival> arrival = DecodeArrival(letter.bytes);
    if (to == kServer0 && arrival.has_value()) {
      if (Seen* const seen = See(letter.from, letter.from_life)) {
        uint64_t& come = seen->come[arrival->group];
        come = std::max(come, arrival->arrived);
      }
      keeper_->OnMessage(letter.from, letter.from_life, letter.bytes);
    } else {
      process.member->OnMessage(letter.from_life, letter.bytes);
    }
  }

  void ShowReport() {
    const BarrierTask to = Any();
    std::deque<Report>& reports = reports_[to];
    if (reports.empty()) return;
    const Report report = reports.front();
    reports.pop_front();
    Process& process = processes_[to];
    if (process.member == nullptr || report.task == to) return;
    if (to == kServer0) {
      Seen* const seen = See(report.task, report.life);
      if (seen != nullptr && report.state != MemberState::kLive) {
        *seen = {.state = report.state, .life = report.life, .come = {}};
      }
      keeper_->OnMember(report.task, report.state, report.life);
    } else if (report.task == kServer0) {
      process.member->OnKeeper(report.state, report.life);
    }
  }

  Random random_;
  const int servers_;
  const int workers_;
  const OnLoss on_loss_;
  std::vector<BarrierGroup> plan_;  // of all tasks; each makes the barriers of its groups
  std::map<BarrierTask, Process> processes_;
  std::optional<BarrierKeeper> keeper_;
  bool shown_ = false;  // ShowTables was called
  std::map<BarrierTask, Seen> seen_;
  std::map<BarrierGroup, uint64_t> ended_;  // stages, of any life of server 0
  std::map<Link, std::deque<Letter>> letters_;
  std::map<BarrierTask, std::deque<Report>> reports_;
  Counts counts_;
  std::string wrong_;
};

// PHALANX_TEST_SEEDS=100000 runs so many.
uint64_t Seeds() {
  uint64_t seeds = 1000;
  const char* text = std::getenv("PHALANX_TEST_SEEDS");
  if (text != nullptr && !absl::SimpleAtoi(text, &seeds)) return 0;
  return testing::SeedGiven() ? 1 : seeds;
}

TEST(BarriersSimulation, NobodyPassesEarlyAndAllEnd) {
  const uint64_t first = testing::TestSeed(1);
  Counts all;
  for (uint64_t seed = first; seed < first + Seeds(); ++seed) {
    PHALANX_TRACE_SEED(seed);
    World world(seed);
    ASSERT_EQ(world.Run(), "");
    const Counts& counts = world.counts();
    all.passed += counts.passed;
    all.repeated += counts.repeated;
    all.deaths += counts.deaths;
    all.keeper_deaths += counts.keeper_deaths;
    all.lost += counts.lost;
    all.failed += counts.failed;
  }
  std::cout << all.passed << " barriers passed, " << all.repeated << " of them again, "
            << all.deaths << " deaths, " << all.keeper_deaths << " of server 0, " << all.lost
            << " messages lost, " << all.failed << " calls failed\n";
  if (Seeds() == 1) return;
  for (const uint64_t count :
       {all.passed, all.repeated, all.deaths, all.keeper_deaths, all.lost, all.failed}) {
    EXPECT_GT(count, Seeds() / 10);
  }
}

}  // namespace
}  // namespace phalanx::ps::internal
