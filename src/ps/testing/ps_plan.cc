#include "src/ps/testing/ps_plan.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "phalanx/elements.h"
#include "src/ps/rows/object_parts.h"
#include "src/ps/rows/ring_sums.h"
#include "src/ps/split.h"

namespace phalanx::ps::testing {
namespace {

constexpr uint32_t kMostPushes = 7;  // in a clock

float FloatOf(uint64_t seed, int worker, uint64_t clock, uint32_t push, Key key) {
  Random random(seed ^ (static_cast<uint64_t>(worker) << 48) ^ (clock << 32) ^
                (uint64_t{push} << 24) ^ key);
  constexpr float kValues[] = {1e8f, 1.0f, -1e8f, 0.75f, 3.0f};
  return kValues[random.Below(5)];
}

}  // namespace

// FNV-1a: any change of a bit is to change what is pushed.
uint64_t BasisOf(absl::string_view rows) {
  uint64_t hash = 14'695'981'039'346'656'037u;
  for (const char byte : rows) hash = (hash ^ static_cast<uint8_t>(byte)) * 1'099'511'628'211u;
  return hash;
}

uint64_t BasisOf(const std::vector<uint64_t>& tables) {
  return BasisOf(absl::string_view(reinterpret_cast<const char*>(tables.data()),
                                   tables.size() * sizeof(uint64_t)));
}

PsPlan::PsPlan(uint64_t seed, bool exact_only) : seed(seed) {
  Random random(seed);
  exact = random.Chance(0.35) || exact_only;
  servers = exact ? 2 + static_cast<int>(random.Below(2)) : 1 + static_cast<int>(random.Below(3));
  workers = 2 + static_cast<int>(random.Below(3));
  clocks = 2 + random.Below(5);
  // Plans without objects are what they would be if there were none.
  objects = Random(seed * 31 + 13).Chance(0.4);
  awaits = Random(seed * 23 + 7).Chance(0.5);
  rings = objects && Random(seed * 29 + 3).Chance(0.4);
  const uint64_t count = 1 + random.Below(3);
  for (uint64_t i = 0; i < count; ++i) DrawTable(random);
  const bool leaves = random.Chance(0.4);
  const double pushes = random.Chance(0.2) ? 0.8 : 0;
  steps.resize(static_cast<size_t>(workers));
  for (int worker = 0; worker < workers; ++worker) {
    clocks_of.push_back(worker > 0 && leaves ? 1 + random.Below(clocks) : clocks);
    for (uint64_t clock = 0; clock < clocks; ++clock) {
      steps[static_cast<size_t>(worker)].push_back(DrawSteps(random, pushes));
    }
  }
  chances.faults = random.Chance(0.1) ? 0 : 2 + static_cast<int>(random.Below(16));
  if (Random(seed * 17 + 5).Chance(0.15)) chances.faults += 25;
  chances.worker_dies = random.Chance(0.3) ? 0 : 0.4 * random.Unit();
  chances.server_dies = random.Chance(0.2) ? 0 : 0.6 * random.Unit();
  chances.store_fails = random.Chance(0.5) ? 0 : 0.3;
  // The end of a clock can have come to some servers alone.
  if (chances.worker_dies > 0) chances.dies_at_clock = 0.1;
  if (exact) {
    const bool workers_die = random.Chance(0.8);
    chances.worker_dies = workers_die ? 0.1 + 0.4 * random.Unit() : 0;
    chances.dies_at_clock = workers_die ? 0.6 * random.Unit() : 0;
    if (workers_die) chances.server_dies = 0;
    if (exact_only) chances = {};
  }
  if (chances.server_dies > 0) return;
  // Servers that do not die need no snapshots.
  for (TableSpec& spec : tables) {
    if (random.Chance(0.3)) spec.snapshot_every = 0;
  }
}

void PsPlan::DrawTable(Random& random) {
  TableSpec spec;
  spec.name = absl::StrCat("t", tables.size());
  const bool one_of_floats = exact && objects;
  const bool floats = one_of_floats
                          ? tables.empty()
                          : random.Chance(0.2) || (exact && (tables.empty() || random.Chance(0.5)));
  spec.dtype = spec.wire = floats ? DType::kF32 : DType::kI64;
  spec.width = floats ? 1 : static_cast<uint32_t>(static_cast<uint64_t>(workers) * clocks);
  spec.sync = floats || random.Chance(0.3) ? Sync::kBsp
              : random.Chance(0.6)         ? Sync::kSsp
                                           : Sync::kAsp;
  spec.staleness = spec.sync == Sync::kSsp ? static_cast<uint32_t>(random.Below(4)) : 0;
  spec.keys = random.Chance(objects ? 0.1 : 0.5) ? 0 : 4 + random.Below(40);
  spec.split = static_cast<Split>(random.Below(3));
  if (objects && spec.split == Split::kHash && random.Chance(0.8)) spec.split = Split::kRange;
  spec.block = spec.split == Split::kBlocks ? 1 + random.Below(4) : 0;
  // Of the seed, not drawn: what the other tables get stays.
  if (spec.keys == 0 && internal::MixKey(seed + tables.size()) % 3 == 0) {
    spec.split = Split::kOwn;
    spec.block = 0;
  }
  spec.lengths = spec.keys == 0 && internal::MixKey(seed * 5 + tables.size()) % 2 == 0;
  spec.on_loss = random.Chance(0.4) && !(exact && floats) ? OnLoss::kDrop : OnLoss::kWait;
  spec.snapshot_every = 1 + static_cast<uint32_t>(random.Below(4));
  if (random.Chance(0.3)) spec.snapshot_bytes = 500 + random.Below(20'000);
  if (rings) {
    if (spec.keys == 0) spec.keys = 20;
    spec.lengths = false;
    if (spec.split == Split::kHash || spec.split == Split::kOwn) spec.split = Split::kRange;
    if (floats) spec.keys *= 16;
    spec.on_loss = OnLoss::kWait;
  }
  tables.push_back(spec);
}

std::vector<Key> PsPlan::AllKeys(uint32_t table) const {
  const TableSpec& spec = tables[table];
  std::vector<Key> keys;
  const uint64_t count = spec.keys > 0 ? spec.keys : 30;
  // Those of a sparse table are far apart; the last one is the greatest that there is.
  for (uint64_t i = 0; i < count; ++i) keys.push_back(spec.keys > 0 ? i : ~uint64_t{0} / 29 * i);
  return keys;
}

std::vector<int32_t> PsPlan::ServersOf(uint32_t table, const std::vector<Key>& keys) const {
  std::vector<int32_t> of;
  if (tables[table].split != Split::kOwn) return of;
  for (const Key key : keys) {
    of.push_back(
        static_cast<int32_t>(internal::MixKey(key + seed) % static_cast<uint64_t>(servers)));
  }
  return of;
}

std::vector<Key> PsPlan::DrawKeys(Random& random, uint32_t table) const {
  const std::vector<Key> all = AllKeys(table);
  const double part = random.Chance(0.3) ? 1 : random.Unit();
  std::vector<Key> keys;
  for (const Key key : all) {
    if (random.Chance(part)) keys.push_back(key);
  }
  if (keys.empty()) keys.push_back(all[random.Below(all.size())]);
  return keys;
}

std::vector<PsPlan::Step> PsPlan::DrawSteps(Random& random, double more_pushes) {
  std::vector<Step> drawn;
  std::vector<uint32_t> pushes(tables.size(), 0);
  for (uint32_t table = 0; exact && table < tables.size(); ++table) {
    if (IsCounts(table)) continue;
    drawn.push_back({.kind = Kind::kPull,
                     .table = table,
                     .keys = AllKeys(table),
                     .basis = true,
                     .dense = true});
  }
  if (exact) drawn.push_back({});
  const uint64_t count = 1 + random.Below(6);
  for (uint64_t i = 0; i < count; ++i) {
    Step step;
    step.kind = random.Chance(more_pushes) ? Kind::kPush : static_cast<Kind>(random.Below(5));
    step.table = static_cast<uint32_t>(random.Below(tables.size()));
    step.server = static_cast<int>(random.Below(static_cast<uint64_t>(servers)));
    step.cancel = random.Chance(0.05);
    if (step.kind == Kind::kRequest && random.Chance(0.6)) step.kind = Kind::kPush;
    const bool has_push = step.kind == Kind::kPush || step.kind == Kind::kPushPull;
    if (has_push && pushes[step.table] == kMostPushes) continue;
    if (has_push) step.push = ++pushes[step.table];
    step.dense = objects && step.kind != Kind::kPushPull && random.Chance(0.6);
    if (rings && tables[step.table].sync == Sync::kBsp && step.push % 8 != 7) {
      if (step.kind == Kind::kPushPull) step.kind = Kind::kPush;
      step.dense = true;
    }
    if (has_push || step.kind == Kind::kPull) {
      step.keys = step.dense ? AllKeys(step.table) : DrawKeys(random, step.table);
    }
    drawn.push_back(std::move(step));
  }
  if (random.Chance(0.8)) drawn.push_back({});
  return drawn;
}

bool PsPlan::PushesObject(const Step& step) const {
  const TableSpec& spec = tables[step.table];
  return step.dense && step.kind == Kind::kPush &&
         internal::PushesObjects(spec, internal::Splitter(spec, servers), workers, object_bytes());
}

size_t PsPlan::RowBytes(uint32_t table) const {
  return tables[table].width * ElementSize(tables[table].dtype);
}

// A push of counts has its element; those of floats have one.
uint32_t PsPlan::LengthOf(uint32_t table, int worker, uint64_t clock, uint32_t push,
                          Key key) const {
  if (!IsCounts(table)) return 1;
  const uint64_t element = static_cast<uint64_t>(worker) * clocks + clock;
  return std::min(tables[table].width, static_cast<uint32_t>(element + 1 + (key + push) % 3));
}

std::vector<uint32_t> PsPlan::LengthsOf(int worker, uint64_t clock, const Step& step) const {
  std::vector<uint32_t> lengths;
  if (!tables[step.table].lengths) return lengths;
  for (const Key key : step.keys) {
    lengths.push_back(LengthOf(step.table, worker, clock, step.push, key));
  }
  return lengths;
}

std::string PsPlan::ValuesOf(int worker, uint64_t clock, const Step& step, uint64_t basis) const {
  const size_t row = RowBytes(step.table);
  std::string values(step.keys.size() * row, '\0');
  for (size_t i = 0; i < step.keys.size(); ++i) {
    char* const at = values.data() + i * row;
    if (IsCounts(step.table)) {
      const size_t element = static_cast<size_t>(worker) * clocks + clock;
      at[element * sizeof(int64_t) + step.push - 1] = 1;
    } else {
      const float value = FloatOf(seed ^ basis, worker, clock, step.push, step.keys[i]);
      std::memcpy(at, &value, sizeof(value));
    }
  }
  const std::vector<uint32_t> lengths = LengthsOf(worker, clock, step);
  if (lengths.empty()) return values;
  std::string cut;
  for (size_t i = 0; i < lengths.size(); ++i) {
    cut += values.substr(i * row, lengths[i] * ElementSize(tables[step.table].dtype));
  }
  return cut;
}

std::string PsPlan::Filled(uint32_t table, const internal::RowData& pulled) const {
  const size_t element = ElementSize(tables[table].dtype);
  std::string rows;
  size_t at = 0;
  for (const uint32_t length : pulled.lengths) {
    std::string row(pulled.bytes.data() + at, length * element);
    at += row.size();
    row.resize(RowBytes(table), '\0');
    rows += row;
  }
  return rows;
}

PsOracle::PsOracle(const PsPlan& plan) : plan_(plan) {
  for (int worker = 0; worker < plan.workers; ++worker) {
    const auto& clocks = plan.steps[static_cast<size_t>(worker)];
    for (uint64_t clock = 0; clock < plan.clocks_of[static_cast<size_t>(worker)]; ++clock) {
      for (const PsPlan::Step& step : clocks[clock]) {
        if (step.push == 0) continue;
        const bool object = plan.PushesObject(step);
        if (object) objects_.insert({step.table, worker, clock, step.push});
        const internal::Splitter splitter(plan.tables[step.table], plan.servers);
        const bool with_keys = !object && plan.tables[step.table].keys > 0;
        for (const Key key : step.keys) {
          if (with_keys) with_keys_.insert({step.table, splitter.PartOf(key), clock});
          pushes_[{step.table, key}].insert({worker, clock, step.push});
        }
      }
    }
  }
  for (uint32_t table = 0; table < plan.tables.size(); ++table) {
    if (plan.IsCounts(table)) continue;
    for (const Key key : plan.AllKeys(table)) floats_[{table, key}].push_back(0);
  }
  for (uint64_t clock = 0; clock < plan.clocks; ++clock) Replay(clock);
}

void PsOracle::Replay(uint64_t clock) {
  uint64_t basis = 0;
  if (plan_.exact) {
    std::vector<std::string> rows(plan_.tables.size());
    for (const auto& [place, values] : floats_) {
      rows[place.first].append(reinterpret_cast<const char*>(&values.back()), sizeof(float));
    }
    std::vector<uint64_t> tables;
    for (const std::string& of : rows) tables.push_back(of.empty() ? 0 : BasisOf(of));
    basis = BasisOf(tables);
  }
  for (auto& [place, values] : floats_) {
    const auto& [table, key] = place;
    std::optional<float> sum;
    bool with_value = false;
    for (const auto& addend : AddendsOf(table, key, clock)) {
      with_value = with_value || !addend.has_value();
      const float value = addend.has_value() ? FloatOf(plan_.seed ^ basis, addend->first, clock,
                                                       addend->second, key)
                                             : values.back();
      sum = sum.has_value() ? *sum + value : value;
    }
    values.push_back(with_value ? *sum : values.back() + sum.value_or(0));
  }
}

std::vector<std::pair<int, uint32_t>> PsOracle::ObjectsOf(uint32_t table, uint64_t clock) const {
  std::vector<std::pair<int, uint32_t>> pushes;
  for (const auto& [of, worker, at, push] : objects_) {
    if (of == table && at == clock) pushes.emplace_back(worker, push);
  }
  return pushes;
}

bool PsOracle::HasKeys(uint32_t table, int server, uint64_t clock) const {
  return with_keys_.contains({table, server, clock});
}

PsOracle::Addends PsOracle::AddendsOf(uint32_t table, Key key, uint64_t clock) const {
  const TableSpec& spec = plan_.tables[table];
  const internal::Splitter splitter(spec, plan_.servers);
  // Sparse tables have no objects, and the split of some is their program's.
  const int server = spec.keys > 0 ? splitter.PartOf(key) : 0;
  const std::vector<std::pair<int, uint32_t>> objects = ObjectsOf(table, clock);
  Addends addends;
  const uint64_t part =
      spec.keys > 0 ? internal::ObjectPartBytes(spec, splitter, server) : uint64_t{0};
  const size_t sources = objects.size() + 1;
  if (!objects.empty() && internal::SumsInRing(spec, part, plan_.workers, plan_.ring_bytes()) &&
      internal::IsRingSum(part, sources) && !HasKeys(table, server, clock)) {
    const uint64_t place = splitter.PlaceOf(key) * plan_.RowBytes(table);
    for (const internal::RingSlice& slice : internal::RingSlices(part, sources)) {
      if (place < slice.begin || place >= slice.begin + slice.bytes) continue;
      for (const size_t source : slice.sources) {
        addends.push_back(source == 0 ? std::nullopt : std::optional(objects[source - 1]));
      }
    }
    return addends;
  }
  // Objects are summed before the pushes with keys.
  for (const auto& push : objects) addends.emplace_back(push);
  const auto of_key = pushes_.find({table, key});
  if (of_key == pushes_.end()) return addends;
  for (const auto& [worker, of, push] : of_key->second) {
    const bool object = objects_.contains({table, worker, of, push});
    if (of == clock && !object) addends.emplace_back(std::pair(worker, push));
  }
  return addends;
}

void PsOracle::Made(uint32_t table, int worker, uint64_t clock, uint32_t push) {
  made_.insert({table, worker, clock, push});
}

void PsOracle::Done(uint32_t table, int worker, uint64_t clock, uint32_t push) {
  done_.emplace(std::make_tuple(table, worker, clock, push), done_.size() + 1);
}

// A push of a worker that dies can be lost with a server that dies as well, until its next life has
// made it again.
bool PsOracle::MustHave(const Read& read, int worker, uint64_t clock, uint32_t push) const {
  if (!plan_.awaits || plan_.tables[read.table].snapshot_every == 0) return false;
  const auto done = done_.find({read.table, worker, clock, push});
  return done != done_.end() && done->second <= read.done && !died_.contains(worker);
}

bool PsOracle::Drops(uint32_t table, int worker) const {
  return plan_.tables[table].on_loss == OnLoss::kDrop && died_.contains(worker);
}

std::string PsOracle::Check(const Read& read, const std::string& bytes,
                            const std::vector<uint32_t>& lengths) const {
  const size_t row = plan_.RowBytes(read.table);
  for (size_t i = 0; i < read.keys.size(); ++i) {
    const char* const at = bytes.data() + i * row;
    std::string wrong = plan_.IsCounts(read.table) ? CheckCounts(read, read.keys[i], at)
                                                   : CheckFloats(read, read.keys[i], at);
    if (wrong.empty() && !lengths.empty() && plan_.IsCounts(read.table)) {
      wrong = CheckLength(read, read.keys[i], at, lengths[i]);
    }
    if (wrong.empty()) continue;
    return absl::StrCat("table ", read.table, " (", SyncName(plan_.tables[read.table].sync),
                        "), key ", read.keys[i], ", pulled by worker ", read.worker, " at clock ",
                        read.clock, ": ", wrong);
  }
  return "";
}

// That of the longest push that the row shows.
std::string PsOracle::CheckLength(const Read& read, Key key, const char* row,
                                  uint32_t length) const {
  uint32_t expected = 0;
  const auto found = pushes_.find({read.table, key});
  if (found != pushes_.end()) {
    for (const auto& [worker, clock, push] : found->second) {
      const size_t element = static_cast<size_t>(worker) * plan_.clocks + clock;
      if (row[element * sizeof(int64_t) + push - 1] == 0) continue;
      expected = std::max(expected, plan_.LengthOf(read.table, worker, clock, push, key));
    }
  }
  if (length == expected) return "";
  return absl::StrCat("has the length ", length, ", its pushes ", expected);
}

std::string PsOracle::CheckFloats(const Read& read, Key key, const char* row) const {
  for (int worker = 0; worker < plan_.workers; ++worker) {
    if (Drops(read.table, worker)) return "";
  }
  float value = 0;
  std::memcpy(&value, row, sizeof(value));
  const std::vector<float>& values = floats_.at({read.table, key});
  for (uint64_t clock = read.clock; clock <= read.latest_clock && clock < values.size(); ++clock) {
    if (std::memcmp(&values[clock], &value, sizeof(value)) == 0) return "";
  }
  return absl::StrCat("has ", value, ", a replay ", values[read.clock]);
}

std::string PsOracle::CheckCounts(const Read& read, Key key, const char* row) const {
  const TableSpec& spec = plan_.tables[read.table];
  const auto found = pushes_.find({read.table, key});
  std::optional<uint64_t> bsp_clock;  // the first clock of which nothing is there
  uint64_t least_bsp = 0;             // at least so many are there
  for (int worker = 0; worker < plan_.workers; ++worker) {
    for (uint64_t clock = 0; clock < plan_.clocks; ++clock) {
      for (uint32_t push = 1; push <= 8; ++push) {
        const size_t element = static_cast<size_t>(worker) * plan_.clocks + clock;
        const int count = row[element * sizeof(int64_t) + push - 1];
        const bool planned =
            found != pushes_.end() && found->second.contains({worker, clock, push});
        const auto name = [&] {
          return absl::StrCat("push ", push, " of clock ", clock, " of worker ", worker);
        };
        if (count != 0 && !planned) return absl::StrCat("has a foreign ", name());
        if (!planned) continue;
        if (count != 0 && count != 1) return absl::StrCat("has ", count, " times ", name());
        if (count == 1 && !made_.contains({read.table, worker, clock, push})) {
          return absl::StrCat("has ", name(), ", which was not made");
        }
        const bool own = worker == read.worker && clock >= read.begun &&
                         (clock < read.clock || (clock == read.clock && push <= read.own));
        // A server at which a worker was dropped can be ahead of the others when it comes again.
        if (Drops(read.table, worker)) continue;
        if (own && spec.sync != Sync::kBsp && count == 0) {
          return absl::StrCat("is without its own ", name());
        }
        if (spec.sync != Sync::kBsp && count == 0 && MustHave(read, worker, clock, push)) {
          return absl::StrCat("is without ", name(), ", whose call had ended");
        }
        if (read.last && count == 0) return absl::StrCat("is without ", name(), " at the end");
        if (spec.sync == Sync::kSsp && count == 0 && clock + spec.staleness < read.clock) {
          return absl::StrCat("is without ", name());
        }
        if (spec.sync != Sync::kBsp) continue;
        if (count == 0) bsp_clock = std::min(bsp_clock.value_or(clock), clock);
        if (count == 1) least_bsp = std::max(least_bsp, clock + 1);
      }
    }
  }
  if (spec.sync != Sync::kBsp) return "";
  if (bsp_clock.has_value() && least_bsp > *bsp_clock) return "mixes clocks";
  if (bsp_clock.has_value() && *bsp_clock < read.clock) {
    return absl::StrCat("is without pushes of clock ", *bsp_clock);
  }
  if (least_bsp > std::max(read.latest_clock, read.clock)) {
    return absl::StrCat("has pushes of clock ", least_bsp - 1);
  }
  return "";
}

}  // namespace phalanx::ps::testing
