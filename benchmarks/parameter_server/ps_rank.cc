// A server or a worker of a parameter server that benchmarks/run starts, kills or watches.
//
//   ps_rank server|worker EVENTS NAME=VALUE...
//
// Appends lines to the file EVENTS: a word, an instant in ns of CLOCK_MONOTONIC, and a number.
// "up" at its start, "joined" with its life, "left" at its end. Its place in the job is in the
// environment. Ends with 0; with 2 after an error or wrong values.
//
// The table, in servers and workers: keys (0: sparse), width, sync (bsp, ssp, asp), staleness,
// update (sum, assign, own: a function that adds), split (range, hash), snapshot_every. What a
// worker does, until it leaves:
//
//   work=dense runs=N: pushes all values, ends the clock and pulls all values, N times, beginning
//     when all workers are ready; "begin" and "end" with the number of the run
//   work=push, work=pull: `rows` rows with keys `stride` apart, of `runs` runs; with other=1 each
//   run
//     has other keys than those before it; events as of dense
//   work=paced: `clocks` clocks, each of which pulls `rows` rows, lasts `ms` milliseconds, or
//   `slow_ms`
//     of them with probability `slow`, by a draw that depends on the worker and the clock, and
//     pushes a 1 to each value; "answered" and "clock" with the number of the clock
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/ps.h"

namespace {

namespace ps = phalanx::ps;
using ps::Key;

constexpr char kTable[] = "model";
// Pushes repeat with this period. Their sums are exact floats.
constexpr uint64_t kPeriod = 1021;
constexpr int64_t kNanosOfMilli = 1'000'000;

int64_t NowNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

void WaitUntil(int64_t nanos) {
  const timespec at{nanos / 1000000000, nanos % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) {
  }
}

// An even distribution of 64-bit numbers.
uint64_t Mixed(uint64_t number) {
  number += 0x9E3779B97F4A7C15u;
  number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9u;
  number = (number ^ (number >> 27)) * 0x94D049BB133111EBu;
  return number ^ (number >> 31);
}

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 3; i < argc; ++i) {
      const std::vector<std::string> parts = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
      values_[parts[0]] = parts.size() == 2 ? parts[1] : "";
    }
  }
  std::string Text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  uint64_t Number(const std::string& name, uint64_t otherwise) const {
    uint64_t number = 0;
    return absl::SimpleAtoi(Text(name, ""), &number) ? number : otherwise;
  }
  double Fraction(const std::string& name) const {
    double fraction = 0;
    return absl::SimpleAtod(Text(name, "0"), &fraction) ? fraction : 0;
  }

 private:
  std::map<std::string, std::string> values_;
};

class Events {
 public:
  explicit Events(const std::string& path) : file_(path, std::ios::app) { Note("up"); }
  // One write for each line, so that a kill leaves no part of one.
  void Note(absl::string_view what, uint64_t number = 0) { NoteAt(what, NowNanos(), number); }
  void NoteAt(absl::string_view what, int64_t nanos, uint64_t number) {
    file_ << absl::StrCat(what, " ", nanos, " ", number, "\n") << std::flush;
  }

 private:
  std::ofstream file_;
};

absl::StatusOr<ps::TableSpec> SpecOf(const Arguments& arguments) {
  ps::TableSpec spec;
  spec.name = kTable;
  spec.keys = arguments.Number("keys", 0);
  spec.width = static_cast<uint32_t>(arguments.Number("width", 1));
  const std::map<std::string, ps::Sync> syncs = {
      {"bsp", ps::Sync::kBsp}, {"ssp", ps::Sync::kSsp}, {"asp", ps::Sync::kAsp}};
  const auto sync = syncs.find(arguments.Text("sync", "bsp"));
  if (sync == syncs.end()) return absl::InvalidArgumentError("sync is bsp, ssp or asp");
  spec.sync = sync->second;
  spec.staleness = static_cast<uint32_t>(arguments.Number("staleness", 0));
  const bool assigns = arguments.Text("update", "sum") == "assign";
  spec.update = assigns ? ps::Update::kAssign : ps::Update::kSum;
  const bool hashes = arguments.Text("split", "range") == "hash";
  spec.split = hashes ? ps::Split::kHash : ps::Split::kRange;
  spec.snapshot_every = static_cast<uint32_t>(arguments.Number("snapshot_every", 0));
  return spec;
}

absl::Status AddOwn(const ps::Pusher&, absl::Span<const Key> keys, absl::Span<const float> values,
                    const ps::Rows<float>& rows) {
  const size_t width = rows.width();
  const absl::Span<float> run = rows.Run(keys);
  for (size_t i = 0; i < run.size(); ++i) run[i] += values[i];
  for (size_t i = 0; run.empty() && i < keys.size(); ++i) {
    const absl::Span<float> row = rows[keys[i]];
    if (row.size() != width) return absl::InternalError("a row is missing");
    for (size_t j = 0; j < width; ++j) row[j] += values[i * width + j];
  }
  return absl::OkStatus();
}

absl::Status Serve(phalanx::Client& client, const Arguments& arguments, Events& events) {
  absl::StatusOr<ps::Server> server = ps::Server::Join(client);
  if (!server.ok()) return server.status();
  events.Note("joined", server->life());
  const absl::StatusOr<ps::TableSpec> spec = SpecOf(arguments);
  if (!spec.ok()) return spec.status();
  const bool own = arguments.Text("update", "sum") == "own";
  const absl::Status added = own ? server->AddTable<float>(*spec, AddOwn) : server->AddTable(*spec);
  if (!added.ok()) return added;
  return server->Run();
}

class Work {
 public:
  Work(const Arguments& arguments, Events& events, ps::Worker& worker, ps::Table<float>& table)
      : arguments_(arguments), events_(events), worker_(worker), table_(table) {}
  absl::Status Run() {
    const std::string work = arguments_.Text("work", "");
    if (work == "dense") return Dense();
    if (work == "push" || work == "pull") return Keys(work == "push");
    if (work == "paced") return Paced();
    return absl::InvalidArgumentError("work is dense, push, pull or paced");
  }

 private:
  size_t width() const { return table_.spec().width; }

  // Runs `timed` when all workers are ready, and notes its begin and its end.
  template <typename F>
  absl::Status Timed(uint64_t run, F timed) {
    if (absl::Status status = worker_.Barrier(); !status.ok()) return status;
    const int64_t begin = NowNanos();
    if (absl::Status status = timed(); !status.ok()) return status;
    events_.NoteAt("begin", begin, run);
    events_.Note("end", run);
    return absl::OkStatus();
  }

  absl::Status Dense() {
    const uint64_t runs = arguments_.Number("runs", 1);
    const size_t count = table_.spec().keys * width();
    std::vector<float> pushed(count), pulled(count), totals(kPeriod);
    for (uint64_t run = 0; run < runs; ++run) {
      const auto rank = static_cast<uint64_t>(worker_.rank());
      for (size_t i = 0; i < count; ++i) pushed[i] = Pushed(rank, i, run);
      for (size_t i = 0; i < kPeriod; ++i) {
        for (int each = 0; each < worker_.workers(); ++each) {
          totals[i] += Pushed(static_cast<uint64_t>(each), i, run);
        }
      }
      const absl::Status status = Timed(run, [&]() -> absl::Status {
        // Clock returns its error.
        table_.PushDense(absl::MakeConstSpan(pushed));
        if (absl::Status ended = table_.Clock(); !ended.ok()) return ended;
        return table_.PullDense(absl::MakeSpan(pulled)).Wait().status();
      });
      if (!status.ok()) return status;
      for (size_t i = 0; i < count; ++i) {
        if (pulled[i] != totals[i % kPeriod]) return Wrong(run, i, pulled[i], totals[i % kPeriod]);
      }
    }
    return absl::OkStatus();
  }

  static float Pushed(uint64_t rank, uint64_t i, uint64_t run) {
    return static_cast<float>((i * 7 + rank * 13 + run) % kPeriod);
  }

  absl::Status Keys(bool push) {
    const uint64_t runs = arguments_.Number("runs", 1);
    std::vector<Key> keys(arguments_.Number("rows", 1));
    std::vector<float> values(keys.size() * width());
    const uint64_t stride = arguments_.Number("stride", 1);
    for (uint64_t run = 0; run < runs; ++run) {
      // With other keys: the lists of the runs before are not those of this one.
      const uint64_t first = arguments_.Number("other", 0) * run;
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = first + i * stride;
      Fill(keys, values);
      if (!push) {
        const bool made = run > 0 && first == 0;
        if (absl::Status pushed = made ? absl::OkStatus() : PushHalves(keys, values);
            !pushed.ok()) {
          return pushed;
        }
        std::fill(values.begin(), values.end(), -1.0f);
      }
      const absl::Status status = Timed(run, [&] {
        return push ? table_.Push(keys, absl::MakeConstSpan(values)).Wait().status()
                    : table_.Pull(keys, absl::MakeSpan(values)).Wait().status();
      });
      if (!status.ok()) return status;
      if (push) {
        std::fill(values.begin(), values.end(), -1.0f);
        const absl::Status pulled = table_.Pull(keys, absl::MakeSpan(values)).Wait().status();
        if (!pulled.ok()) return pulled;
      }
      std::vector<float> expected(values.size());
      Fill(keys, expected);
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] != expected[i]) return Wrong(run, i, values[i], expected[i]);
      }
    }
    return absl::OkStatus();
  }

  // So that there are these rows. The servers do not know the list of all keys then.
  absl::Status PushHalves(absl::Span<const Key> keys, absl::Span<const float> values) {
    const size_t half = keys.size() / 2;
    for (const bool second : {false, true}) {
      const absl::Status status =
          table_
              .Push(second ? keys.subspan(half) : keys.first(half),
                    second ? values.subspan(half * width()) : values.first(half * width()))
              .Wait()
              .status();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void Fill(const std::vector<Key>& keys, std::vector<float>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          static_cast<float>(Mixed(keys[i / width()]) >> 41) + static_cast<float>(i % width());
    }
  }

  absl::Status Paced() {
    const uint64_t clocks = arguments_.Number("clocks", 1);
    std::vector<Key> keys(arguments_.Number("rows", 1));
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    const std::vector<float> ones(keys.size() * width(), 1.0f);
    std::vector<float> pulled(ones.size());
    while (table_.clock() < clocks) {
      const uint64_t clock = table_.clock();
      const absl::Status status = table_.Pull(keys, absl::MakeSpan(pulled)).Wait().status();
      if (!status.ok()) return status;
      events_.Note("answered", clock);
      if (absl::Status right = Check(clock, pulled); !right.ok()) return right;
      const int64_t lasts = static_cast<int64_t>(Draw(clock)) * kNanosOfMilli;
      if (lasts > 0) WaitUntil(NowNanos() + lasts);
      table_.Push(keys, absl::MakeConstSpan(ones));
      if (absl::Status ended = table_.Clock(); !ended.ok()) return ended;
      events_.Note("clock", clock + 1);
    }
    return absl::OkStatus();
  }

  // Each push adds 1 to each value.
  absl::Status Check(uint64_t clock, const std::vector<float>& pulled) const {
    const auto workers = static_cast<uint64_t>(worker_.workers());
    const bool bsp = table_.spec().sync == ps::Sync::kBsp;
    const auto least = static_cast<float>(bsp ? clock * workers : clock);
    for (size_t i = 0; i < pulled.size(); ++i) {
      const bool right = bsp ? pulled[i] == least : pulled[i] >= least;
      if (!right) return Wrong(clock, i, pulled[i], least);
    }
    return absl::OkStatus();
  }

  uint64_t Draw(uint64_t clock) const {
    const auto rank = static_cast<uint64_t>(worker_.rank());
    const double drawn = static_cast<double>(Mixed(rank << 32 | clock) >> 11) * 0x1p-53;
    const bool slow = drawn < arguments_.Fraction("slow");
    return arguments_.Number(slow ? "slow_ms" : "ms", 0);
  }

  static absl::Status Wrong(uint64_t run, size_t at, float value, float expected) {
    return absl::DataLossError(
        absl::StrCat("value ", at, " of run ", run, " is ", value, ", not ", expected));
  }

  const Arguments& arguments_;
  Events& events_;
  ps::Worker& worker_;
  ps::Table<float>& table_;
};

absl::Status DoWork(phalanx::Client& client, const Arguments& arguments, Events& events) {
  absl::StatusOr<ps::Worker> worker = ps::Worker::Join(client);
  if (!worker.ok()) return worker.status();
  events.Note("joined", worker->life());
  absl::StatusOr<ps::Table<float>> table = worker->Open<float>(kTable);
  if (!table.ok()) return table.status();
  const absl::Status status = Work(arguments, events, *worker, *table).Run();
  return status.ok() ? worker->Leave() : status;
}

absl::Status Run(const std::string& role, const Arguments& arguments, Events& events) {
  absl::StatusOr<std::shared_ptr<phalanx::Client>> client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  return role == "server" ? Serve(**client, arguments, events)
                          : DoWork(**client, arguments, events);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc < 3 ? "" : argv[1];
  if (role != "server" && role != "worker") {
    std::cerr << "ps_rank.cc describes the arguments; benchmarks/run gives them\n";
    return 2;
  }
  Events events(argv[2]);
  const absl::Status status = Run(role, Arguments(argc, argv), events);
  if (status.ok()) events.Note("left");
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 2;
}
