#include "src/client/spmd/testing/disk_world.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::spmd::testing {
namespace {

using internal::DiskChoice;
using internal::DiskFile;
using internal::DiskMarks;
using internal::DiskOffer;
using internal::DiskRun;

constexpr int kActionsWithFaults = 3000;
constexpr int kActionsToTheEnd = 20'000;
// A rank can be so many versions ahead of another one.
constexpr uint64_t kAhead = 2;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t mixed = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  return (mixed ^ (mixed >> 29)) * 0x94d049bb133111eb + 1;
}

uint64_t LocalOf(uint64_t model, size_t rank) { return Mix(model, rank); }

template <typename T>
bool All(const std::vector<T>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](const T& flag) { return bool{flag}; });
}

// The newest ones first, as on a disk.
template <typename M>
void Prune(std::vector<M>& marks) {
  std::sort(marks.begin(), marks.end(), [](const M& a, const M& b) { return a.name > b.name; });
  if (marks.size() > internal::kMaxMarks) marks.resize(internal::kMaxMarks);
}

}  // namespace

DiskWorld::DiskWorld(uint64_t seed) : random_(seed) {
  shared_ = random_.Chance(0.3);
  local_ = random_.Chance(0.5);
  disks_.resize(2 + random_.Below(3));
  lives_.resize(2 + random_.Below(3));
  fault_ = 0.01 * static_cast<double>(1 + random_.Below(4));
  moves_ = random_.Chance(0.5) ? 0.05 : 0.4;
  versions_ = 1 + random_.Below(6);
  for (size_t rank = 0; rank < world(); ++rank) {
    hosts_.push_back(static_cast<int>(random_.Below(disks_.size())));
  }
}

std::vector<std::string> DiskWorld::Run() {
  BeginRun();
  for (int i = 0; i < kActionsWithFaults + kActionsToTheEnd && wrong_.empty(); ++i) {
    const bool faults = i < kActionsWithFaults;
    if (faults && random_.Chance(fault_)) Fault();
    if (All(run().gone)) {
      if (!faults) return wrong_;
      ++counts_.ended;
      BeginRun();
    }
    const size_t rank = random_.Below(world());
    if (run().gone[rank]) continue;
    if (!lives_[rank].has_value()) {
      Join(rank);
    } else {
      Step(rank);
    }
  }
  if (wrong_.empty()) Wrong("stuck");
  return wrong_;
}

// ---------------------------------------------------------------------------- runs

DiskWorld::Key DiskWorld::KeyOf(size_t run) const {
  const JobRun& of = runs_[run];
  return {of.number, of.name.line, of.name.id};
}

// What all ranks have had when the last run has ended, if it is on the disks that they see now.
void DiskWorld::BeginRun() {
  for (size_t rank = 0; rank < world(); ++rank) {
    if (random_.Chance(moves_)) hosts_[rank] = static_cast<int>(random_.Below(disks_.size()));
  }
  if (!runs_.empty()) {
    const JobRun& last = run();
    bool left = false;
    for (const bool gone : last.gone) left |= gone;
    if (left) kept_.reset();
    if (!left && All(last.returned)) {
      uint64_t version = std::numeric_limits<uint64_t>::max();
      kept_.emplace();
      for (const std::optional<Returned>& each : last.returned) {
        version = std::min(version, each->version);
        kept_->disks.push_back(each->disk);
      }
      kept_->model = last.models.at(version);
      kept_->run = runs_.size() - 1;
      kept_->version = version;
    }
  }
  if (random_.Chance(0.1)) {
    Disk& disk = disks_[random_.Below(disks_.size())];
    if (!disk.files.empty()) disk.files[random_.Below(disk.files.size())].whole = false;
    kept_.reset();
  }
  for (size_t rank = 0; rank < world() && kept_.has_value(); ++rank) {
    if (kept_->disks[rank] != DiskOf(hosts_[rank]) || !HasKept(rank)) kept_.reset();
  }
  ++counts_.runs;
  JobRun begins;
  begins.loaded.resize(world());
  begins.passed.resize(world());
  begins.returned.resize(world());
  begins.came.resize(world());
  begins.gone.resize(world());
  begins.born.resize(world());
  runs_.push_back(std::move(begins));
}

// A next life that has loaded a version on another host has no earlier one there.
bool DiskWorld::HasKept(size_t rank) const {
  const std::vector<File>& files = disks_[DiskOf(hosts_[rank])].files;
  return !local_ || std::any_of(files.begin(), files.end(), [this, rank](const File& file) {
    return Reads(rank, file) && file.run == kept_->run && file.name.version == kept_->version;
  });
}

void DiskWorld::Fault() {
  const double kind = random_.Unit();
  if (kind < 0.2) return EndAll();
  if (kind < 0.5) {
    const auto host = static_cast<int>(random_.Below(disks_.size()));
    for (size_t rank = 0; rank < world(); ++rank) {
      if (lives_[rank].has_value() && lives_[rank]->host == host) EndRank(rank, /*host=*/true);
    }
  } else {
    const size_t rank = random_.Below(world());
    if (lives_[rank].has_value()) EndRank(rank, /*host=*/false);
  }
  // What the others need is in the memory of a rank that has loaded; before that, results are.
  bool any = false;
  for (const std::optional<Life>& life : lives_) {
    any |= life.has_value() && (!run().called || life->phase >= Phase::kWork);
  }
  if (!any && !All(run().gone)) EndAll();
}

void DiskWorld::EndRank(size_t rank, bool host) {
  Life& life = *lives_[rank];
  ++counts_.deaths;
  JobRun& of = run();
  if (host && life.written == 1 && random_.Chance(0.7)) {
    File& file = *FileOf(rank, life.writes);
    if (life.replaced.has_value()) {
      file = *life.replaced;
    } else {
      file.whole = false;
    }
  }
  if (life.call < of.calls.size() && !of.calls[life.call].ended) {
    of.calls[life.call].parts[rank].reset();
  }
  if (All(of.came)) {
    of.gone[rank] = true;
  } else {
    of.came[rank] = false;
  }
  lives_[rank].reset();
}

void DiskWorld::EndAll() {
  for (size_t rank = 0; rank < world(); ++rank) {
    if (lives_[rank].has_value()) EndRank(rank, random_.Chance(0.5));
  }
  if (!All(run().gone)) BeginRun();
}

// The user brings what is missing, or begins anew.
void DiskWorld::Fail() {
  ++counts_.missing;
  EndAll();
  if (random_.Chance(0.5)) return;
  for (Disk& disk : disks_) disk = {};
  kept_.reset();
}

void DiskWorld::Join(size_t rank) {
  JobRun& of = run();
  const bool again = of.born[rank];
  if (again && random_.Chance(moves_)) {
    const auto host = static_cast<int>(random_.Below(disks_.size()));
    if (DiskOf(host) != DiskOf(hosts_[rank])) {
      of.moved = true;
      kept_.reset();
    }
    hosts_[rank] = host;
  }
  of.lives |= again;
  of.born[rank] = true;
  Life& life = lives_[rank].emplace();
  life.host = hosts_[rank];
  if (!of.called) return;
  const uint64_t newest = *std::min_element(of.passed.begin(), of.passed.end());
  const uint64_t oldest = of.freed == 0 ? of.started : of.freed + 1;
  life.version = newest - std::min(random_.Below(kAhead), newest - std::min(newest, oldest));
  life.phase = Phase::kLoad;
}

void DiskWorld::Step(size_t rank) {
  Life& life = *lives_[rank];
  switch (life.phase) {
    case Phase::kJoin:
      if (!Ends(rank, [&] {
            DiskRun newest;
            for (const File& file : DiskAt(rank).files) newest = std::max(newest, file.name.run);
            for (const Mark& mark : DiskAt(rank).marks) newest = std::max(newest, mark.name);
            const bool ended = internal::HasEnded(newest, MarksAt(rank));
            return Part{
                {}, internal::ProposePlace(newest, ended, static_cast<uint32_t>(random_.Next()))};
          })) {
        return;
      }
      life.before = run().name;
      life.phase = Phase::kOffer;
      return;
    case Phase::kOffer:
      return Offer(rank);
    case Phase::kRead:
      return Read(rank);
    case Phase::kSend:
      return Send(rank);
    case Phase::kFirst:
      if (!Write(rank, life.choice->version, /*first=*/true)) return;
      if (!local_) return EndLoad(rank);
      life.phase = Phase::kWrote;
      return;
    case Phase::kWrote:
      if (Ends(rank, [] { return Part{}; })) EndLoad(rank);
      return;
    case Phase::kLoad:
      if (life.version > 0 && !Write(rank, life.version, /*first=*/false)) return;
      return EndLoad(rank);
    case Phase::kWork:
      return Work(rank);
    case Phase::kWrite:
      if (!Write(rank, life.version + 1, /*first=*/false)) return;
      ++life.version;
      run().passed[rank] = std::max(run().passed[rank], life.version);
      run().returned[rank] = Returned{life.version, DiskOf(life.host)};
      life.phase = Phase::kWork;
      return;
    case Phase::kLeave:
      return Leave(rank);
  }
}

bool DiskWorld::Ends(size_t rank, const std::function<Part()>& part) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  if (of.calls.size() <= life.call) of.calls.resize(life.call + 1);
  Call& call = of.calls[life.call];
  call.parts.resize(world());
  if (!call.ended && !call.parts[rank].has_value()) call.parts[rank] = part();
  if (!call.ended && All(call.parts)) {
    call.ended = true;
    if (life.call == 0) EndJoin();
    if (life.call == 1) Expect();
  }
  if (!call.ended) return false;
  ++life.call;
  return true;
}

// All live.
void DiskWorld::EndJoin() {
  JobRun& of = run();
  uint64_t place = 0;
  for (const std::optional<Part>& part : of.calls[0].parts) place = std::max(place, part->place);
  of.name = internal::RunAt(place, random_.Next());
  of.moved = false;
  for (size_t rank = 0; rank < world(); ++rank) {
    for (const File& file : DiskAt(rank).files)
      of.number = std::max(of.number, runs_[file.run].number);
    for (const Mark& mark : DiskAt(rank).true_marks) {
      of.number = std::max(of.number, runs_[mark.run].number);
    }
  }
  ++of.number;
}

// ---------------------------------------------------------------------------- Load

DiskMarks DiskWorld::MarksAt(size_t rank) {
  DiskMarks marks;
  const std::vector<Mark>& there = DiskAt(rank).marks;
  for (size_t i = 0; i < there.size(); ++i) marks[i] = there[i].name;
  return marks;
}

bool DiskWorld::Reads(size_t rank, const File& file) const {
  return file.whole && (!local_ || file.name.rank == static_cast<int>(rank));
}

// As CheckpointFiles::Newest.
DiskOffer DiskWorld::OfferOf(size_t rank) {
  Life& life = *lives_[rank];
  DiskOffer offer;
  offer.marks = MarksAt(rank);
  std::vector<DiskRun> marks = life.marks;
  for (const DiskRun& mark : offer.marks) {
    if (mark.number > 0) marks.push_back(mark);
  }
  life.file.reset();
  for (const File& file : DiskAt(rank).files) {
    const DiskRun& of = file.name.run;
    if (!Reads(rank, file) || of >= life.before || internal::HasEnded(of, marks)) continue;
    if (std::tie(of, file.name.version) <= std::tie(offer.run, offer.version)) continue;
    offer.run = of;
    offer.version = file.name.version;
    offer.first = file.first ? 1 : 0;
    life.file = file;
  }
  return offer;
}

void DiskWorld::Offer(size_t rank) {
  Life& life = *lives_[rank];
  const DiskOffer mine = OfferOf(rank);
  if (!Ends(rank, [&mine] { return Part{mine, 0}; })) return;
  std::vector<DiskOffer> offers;
  for (const std::optional<Part>& part : run().calls[life.call - 1].parts) {
    offers.push_back(part->offer);
  }
  DiskChoice choice = internal::ChooseFile(offers, local_);
  life.marks = internal::MarksOf(offers);
  if (choice.kind == DiskChoice::Kind::kAgain) return;
  if (choice.kind == DiskChoice::Kind::kOlder) {
    life.before = choice.run;
    life.passed_over = true;
    return;
  }
  if (choice.kind == DiskChoice::Kind::kNothing && life.passed_over) {
    choice.kind = DiskChoice::Kind::kMissing;
  }
  CheckChoice(choice);
  if (choice.kind != DiskChoice::Kind::kTake) CheckNothingKept();
  if (choice.kind == DiskChoice::Kind::kMissing) return Fail();
  std::erase_if(DiskAt(rank).files, [&life](const File& file) {
    return internal::HasEnded(file.name.run, life.marks);
  });
  life.choice = choice;
  if (choice.kind == DiskChoice::Kind::kNothing) {
    life.choice->version = 0;
    run().models.try_emplace(0, Mix(runs_.size(), 0));
    return EndLoad(rank);
  }
  life.phase = local_ ? Phase::kRead : Phase::kSend;
}

void DiskWorld::CheckChoice(const DiskChoice& choice) {
  const JobRun& of = run();
  if (of.moved || !of.expected.has_value()) return;
  const DiskChoice& expected = *of.expected;
  const bool take = choice.kind == DiskChoice::Kind::kTake;
  const bool same = choice.kind == expected.kind &&
                    (!take || (choice.run == expected.run && choice.version == expected.version));
  if (same) return;
  const auto text = [](const DiskChoice& each) {
    return absl::StrCat("kind ", static_cast<int>(each.kind), " run ", each.run.number, " version ",
                        each.version);
  };
  Wrong(absl::StrCat("chooses ", text(choice), " instead of ", text(expected)));
}

void DiskWorld::CheckNothingKept() {
  if (kept_.has_value()) Wrong("what all ranks have on their disks is not loaded");
}

bool DiskWorld::TrulyEnded(size_t run) {
  for (size_t rank = 0; rank < world(); ++rank) {
    for (const Mark& mark : DiskAt(rank).true_marks) {
      const JobRun& ended = runs_[mark.run];
      if (ended.name.line == runs_[run].name.line && ended.number >= runs_[run].number) return true;
    }
  }
  return false;
}

// All live, and have said what they have.
void DiskWorld::Expect() {
  JobRun& of = run();
  DiskChoice& expected = of.expected.emplace();
  std::set<std::pair<Key, size_t>> there;
  for (size_t rank = 0; rank < world(); ++rank) {
    for (const File& file : DiskAt(rank).files) {
      if (!Reads(rank, file)) continue;
      if (TrulyEnded(file.run)) {
        ++counts_.stale;
        continue;
      }
      there.insert({KeyOf(file.run), file.run});
    }
  }
  // The last run can have seen nothing of an earlier one, which then counts as newer, or as the end
  // of its line.
  if (kept_.has_value() && TrulyEnded(kept_->run)) kept_.reset();
  for (const auto& [key, index] : there) {
    if (kept_.has_value() && key > KeyOf(kept_->run) && index < kept_->run) kept_.reset();
  }
  for (auto at = there.rbegin(); at != there.rend(); ++at) {
    const size_t candidate = at->second;
    expected = {DiskChoice::Kind::kTake, runs_[candidate].name, 0, 0};
    uint64_t least = std::numeric_limits<uint64_t>::max();
    uint64_t greatest = 0;
    bool went_on = false;
    for (size_t rank = 0; rank < world(); ++rank) {
      const File* newest = nullptr;
      for (const File& file : DiskAt(rank).files) {
        if (!Reads(rank, file) || file.run != candidate) continue;
        if (newest == nullptr || file.name.version > newest->name.version) newest = &file;
      }
      least = std::min(least, newest == nullptr ? 0 : newest->name.version);
      if (newest == nullptr) continue;
      greatest = std::max(greatest, newest->name.version);
      went_on |= !newest->first;
    }
    expected.version = local_ ? least : greatest;
    if (expected.version > 0) break;
    expected.kind = DiskChoice::Kind::kMissing;
    if (went_on) break;
    ++counts_.passed_over;
  }
}

void DiskWorld::Read(size_t rank) {
  Life& life = *lives_[rank];
  const DiskChoice& choice = *life.choice;
  life.file.reset();
  for (const File& file : DiskAt(rank).files) {
    const bool its = file.name.run == choice.run && file.name.version == choice.version;
    if (Reads(rank, file) && its) life.file = file;
  }
  const bool lacks = !life.file.has_value();
  const bool ends = Ends(rank, [lacks] {
    Part part;
    part.offer.error = lacks ? 1 : 0;
    return part;
  });
  if (!ends) return;
  bool any = lacks;
  for (const std::optional<Part>& part : run().calls[life.call - 1].parts) {
    any |= part->offer.error != 0;
  }
  if (any) {
    CheckNothingKept();
    return Fail();
  }
  if (life.file->local != LocalOf(life.file->model, rank))
    Wrong("a local model of another version");
  std::erase_if(DiskAt(rank).files, [&](const File& file) {
    return file.name.rank == static_cast<int>(rank) &&
           internal::WasPassedOver(file.name, choice.run, run().name);
  });
  life.phase = Phase::kFirst;
}

// Rank 0 of the choice sends what it has, once.
void DiskWorld::Send(size_t rank) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  if (!of.sent.has_value() && life.choice->rank == static_cast<int>(rank)) {
    const bool has = life.file.has_value() && life.file->name.run == life.choice->run &&
                     life.file->name.version == life.choice->version;
    if (!has && !of.moved) return Wrong("the file that was chosen is not there");
    if (!has) return Fail();
    of.sent = life.file;
  }
  if (!of.sent.has_value()) return;
  life.file = of.sent;
  life.phase = Phase::kFirst;
}

bool DiskWorld::Write(size_t rank, uint64_t version, bool first) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  if (life.written == 1) {
    life.written = 0;
    return true;
  }
  if (first) {
    const auto [at, added] = of.models.try_emplace(version, life.file->model);
    if (at->second != life.file->model) Wrong("ranks load different models");
    of.started = version;
    of.restored = true;
  } else if (!of.models.contains(version)) {
    const uint64_t model = Mix(of.models.at(version - 1), runs_.size());
    parents_[model] = of.models.at(version - 1);
    of.models[version] = model;
  }
  File file;
  file.name = {of.name, static_cast<int>(rank), version};
  file.run = runs_.size() - 1;
  file.first = first;
  file.model = of.models.at(version);
  file.local = LocalOf(file.model, rank);
  File* const there = FileOf(rank, version);
  life.replaced.reset();
  if (there == nullptr) {
    DiskAt(rank).files.push_back(file);
  } else {
    life.replaced = std::exchange(*there, file);
  }
  life.written = 1;
  life.writes = version;
  return false;
}

DiskWorld::File* DiskWorld::FileOf(size_t rank, uint64_t version) {
  for (File& file : DiskAt(rank).files) {
    const DiskFile& name = file.name;
    const bool its = name.run == run().name && name.rank == static_cast<int>(rank);
    if (its && name.version == version) return &file;
  }
  return nullptr;
}

bool DiskWorld::ComesFrom(uint64_t model, uint64_t earlier) const {
  while (model != earlier) {
    const auto parent = parents_.find(model);
    if (parent == parents_.end()) return false;
    model = parent->second;
  }
  return true;
}

void DiskWorld::EndLoad(size_t rank) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  if (life.choice.has_value()) {
    life.version = life.choice->version;
    const uint64_t model = of.models.at(life.version);
    if (!of.loaded[rank] && life.version > 0) {
      if (kept_.has_value() && !ComesFrom(model, kept_->model)) {
        Wrong("what all ranks had on their disks is lost");
      }
      if (rank == 0) ++counts_.restored;
    }
  }
  of.loaded[rank] = true;
  of.passed[rank] = std::max(of.passed[rank], life.version);
  if (life.version > 0) of.returned[rank] = Returned{life.version, DiskOf(life.host)};
  life.phase = Phase::kWork;
}

// ---------------------------------------------------------------------------- later

void DiskWorld::Work(size_t rank) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  if (All(of.loaded) && random_.Chance(0.3)) of.called = true;
  if (random_.Chance(0.3)) return Free(rank);
  uint64_t least = of.passed[rank];
  for (size_t other = 0; other < world(); ++other) {
    least = std::min(least, of.loaded[other] ? of.passed[other] : of.started);
  }
  if (life.version == of.started + versions_) {
    life.phase = Phase::kLeave;
  } else if (life.version < least + kAhead) {
    life.phase = Phase::kWrite;
  }
}

void DiskWorld::Free(size_t rank) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const std::optional<Life>& each : lives_) {
    least = std::min(least, each.has_value() && each->phase >= Phase::kWork ? each->version : 0);
  }
  // Calls end in which all ranks give something.
  const uint64_t kept = local_ ? 2 : 1;
  if (of.called && least > kept && least - kept + 1 >= of.started) {
    of.freed = std::max(of.freed, least - kept);
  }
  if (of.freed == 0) return;
  const uint64_t version = of.freed;
  std::erase_if(DiskAt(rank).files, [&](const File& file) {
    if (!internal::IsFreed(file.name, of.name, version)) return false;
    return !life.freed.has_value() ||
           (file.name.run == of.name && file.name.rank == static_cast<int>(rank));
  });
  life.freed = version;
}

void DiskWorld::Leave(size_t rank) {
  Life& life = *lives_[rank];
  JobRun& of = run();
  of.came[rank] = true;
  if (!All(of.came)) return;
  Disk& disk = DiskAt(rank);
  const size_t index = runs_.size() - 1;
  if (life.written == 0) {
    life.written = 2;
    if (of.lives || of.restored) disk.true_marks.push_back({of.name, index});
    if (internal::NeedsMark(of.lives, of.restored)) disk.marks.push_back({of.name, index});
    for (std::vector<Mark>* marks : {&disk.true_marks, &disk.marks}) {
      std::sort(marks->begin(), marks->end(),
                [](const Mark& a, const Mark& b) { return a.name < b.name; });
      marks->erase(std::unique(marks->begin(), marks->end(),
                               [](const Mark& a, const Mark& b) { return a.name == b.name; }),
                   marks->end());
      Prune(*marks);
    }
    return;
  }
  std::erase_if(disk.files, [&](const File& file) {
    return file.name.rank == static_cast<int>(rank) ||
           internal::IsFreed(file.name, of.name, life.freed.value_or(0));
  });
  lives_[rank].reset();
  of.gone[rank] = true;
}

void DiskWorld::Wrong(const std::string& what) {
  wrong_.push_back(absl::StrCat("run ", runs_.size(), local_ ? ", local models" : "",
                                shared_ ? ", one disk: " : ": ", what));
}

}  // namespace phalanx::spmd::testing
