// A process of a job for ps-lite: scheduler, server or worker, as DMLC_ROLE says. The same source
// is linked with ps-lite and with libps of this tree, so that both do the same work.
//
//   ps_lite PLAN FOLDER
//
// PLAN has a step in each line, as those of trial.h. A worker appends a line for each step to
// FOLDER/worker<rank>: its name, its algorithm, its size, its calls, and for each run that counts
// the instants of its begin and its end, in ns of CLOCK_MONOTONIC. All values are verified, by
// servers and workers; a wrong one ends the process with an error.
//
//   ps_benchmark: BytePS' test_benchmark: pushes and pulls `calls` values of `size` bytes of each
//     server, all at a time
//   ps_float: pushes one float and waits, pulls it and waits; `calls` times
//   ps_small_pushes: `calls` pushes of `size` bytes, 64 outstanding
//   ps_sorted_push, ps_sorted_pull: size / 4 sorted keys over the whole range, a float each
//   ps_rows_push, ps_rows_pull: the same with 16 floats each
//   ps_dense_clock: all workers push `size` bytes in values of 1 MiB, and pull the sum of these
//   when
//     the servers have all of them. With the algorithm "keyed" a worker pulls each value at once,
//     otherwise when all of its pushes are answered.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/ps.h"

namespace {

using ps::Key;
using ps::KVMeta;
using ps::KVPairs;
using ps::KVServer;
using ps::KVWorker;
using ps::SArray;

// Servers and workers of one kind of work.
enum App { kBytes = 0, kFloats = 1, kClock = 2 };
// What the command of a push or pull of kFloats says in its lowest byte; above it is the width.
enum Command { kAdd = 1, kFormula = 2 };

constexpr size_t kOutstanding = 64;
constexpr size_t kRowWidth = 16;
constexpr size_t kClockFloats = (1 << 20) / sizeof(float);
constexpr size_t kPeriod = 1021;

struct Step {
  std::string op, algorithm;
  size_t size = 0;
  int calls = 1, warmup = 0, runs = 1;
};

std::vector<Step> ReadPlan(const char* path) {
  std::ifstream file(path);
  std::vector<Step> plan;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Step step;
    words >> step.op >> step.algorithm >> step.size >> step.calls >> step.warmup >> step.runs;
    CHECK(words) << "not a step: " << line;
    plan.push_back(step);
  }
  return plan;
}

int64_t NowNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

// An exact float that depends on the key.
float Formula(Key key) { return static_cast<float>((key * 0x9E3779B97F4A7C15u) >> 41); }

// Element i of what a worker pushes in a clock. Sums of these are exact.
float Pushed(int worker, size_t i, size_t clock) {
  return static_cast<float>((i * 7 + static_cast<size_t>(worker) * 13 + clock) % kPeriod);
}

// ---------------------------------------------------------------------------- servers

// A value of kBytes begins with the number of its push, and ends with it.
struct Stamp {
  uint64_t number;
};
constexpr size_t kStampBytes = sizeof(Stamp);

void PutStamp(char* value, size_t size, uint64_t number) {
  const Stamp stamp{number};
  std::memcpy(value, &stamp, kStampBytes);
  std::memcpy(value + size - kStampBytes, &stamp, kStampBytes);
}

bool HasStamp(const char* value, size_t size, uint64_t number) {
  const Stamp stamp{number};
  return std::memcmp(value, &stamp, kStampBytes) == 0 &&
         std::memcmp(value + size - kStampBytes, &stamp, kStampBytes) == 0;
}

// Keeps the first push of a key, and the stamps of the later ones, as the server of test_benchmark.
class BytesServer {
 public:
  void operator()(const KVMeta& meta, const KVPairs<char>& data, KVServer<char>* server) {
    CHECK_EQ(data.keys.size(), 1u);
    KVPairs<char>& stored = values_[data.keys[0]];
    if (!meta.push) return server->Response(meta, stored);
    const auto number = static_cast<uint64_t>(meta.cmd);
    CHECK(HasStamp(data.vals.data(), data.vals.size(), number)) << "push " << number << " is wrong";
    if (stored.keys.empty()) {
      stored.keys.CopyFrom(data.keys);
      stored.vals.CopyFrom(data.vals);
      stored.lens.CopyFrom(data.lens);
    }
    CHECK_EQ(stored.vals.size(), data.vals.size());
    PutStamp(stored.vals.data(), stored.vals.size(), number);
    server->Response(meta);
  }

 private:
  std::unordered_map<Key, KVPairs<char>> values_;
};

// Adds, or compares with the formula and answers with it.
class FloatsServer {
 public:
  void operator()(const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* server) {
    const size_t width = static_cast<size_t>(meta.cmd) >> 8;
    if (meta.push) CHECK_EQ(data.vals.size(), data.keys.size() * width);
    if ((meta.cmd & 255) == kAdd) return Add(meta, data, width, server);
    KVPairs<float> answer;
    if (!meta.push) {
      answer.keys = data.keys;
      answer.vals.resize(data.keys.size() * width);
    }
    float* const values = meta.push ? data.vals.data() : answer.vals.data();
    bool right = true;
    for (size_t i = 0; i < data.keys.size(); ++i) {
      const float first = Formula(data.keys[i]);
      for (size_t j = 0; j < width; ++j) {
        const float value = first + static_cast<float>(j);
        if (!meta.push) values[i * width + j] = value;
        right = right && values[i * width + j] == value;
      }
    }
    CHECK(right) << "pushed values are wrong";
    server->Response(meta, answer);
  }

 private:
  void Add(const KVMeta& meta, const KVPairs<float>& data, size_t width, KVServer<float>* server) {
    KVPairs<float> answer;
    if (!meta.push) answer.keys = data.keys;
    for (size_t i = 0; i < data.keys.size(); ++i) {
      std::vector<float>& row = rows_[data.keys[i]];
      row.resize(width);
      for (size_t j = 0; j < width && meta.push; ++j) row[j] += data.vals[i * width + j];
      for (size_t j = 0; j < width && !meta.push; ++j) answer.vals.push_back(row[j]);
    }
    server->Response(meta, answer);
  }

  std::unordered_map<Key, std::vector<float>> rows_;
};

// Adds the pushes of all workers to the model, in the order in which they come, and answers pulls
// of a clock when all of its pushes are there.
class ClockServer {
 public:
  explicit ClockServer(int workers) : workers_(workers) {}

  void operator()(const KVMeta& meta, const KVPairs<float>& data, KVServer<float>* server) {
    CHECK_EQ(data.keys.size(), 1u);
    Part& part = parts_[data.keys[0]];
    if (!meta.push) {
      part.keys = data.keys;
      // The command is the number of clocks that the pull waits for.
      part.parked.push_back(meta);
      return Answer(part, server);
    }
    const size_t count = data.vals.size();
    part.sum.resize(count);
    for (size_t i = 0; i < count; ++i) part.sum[i] += data.vals[i];
    server->Response(meta);
    if (++part.pushes < workers_) return;
    part.model.resize(count);
    for (size_t i = 0; i < count; ++i) part.model[i] += part.sum[i];
    std::fill(part.sum.begin(), part.sum.end(), 0.0f);
    part.pushes = 0;
    ++part.clock;
    Answer(part, server);
  }

 private:
  struct Part {
    SArray<Key> keys;
    // Not yet in the model: this is sent until all workers push again.
    std::vector<float> sum;
    std::vector<float> model;
    int pushes = 0;
    int clock = 0;
    std::vector<KVMeta> parked;
  };

  static void Answer(Part& part, KVServer<float>* server) {
    std::vector<KVMeta> parked;
    for (const KVMeta& pull : part.parked) {
      if (pull.cmd > part.clock) {
        parked.push_back(pull);
        continue;
      }
      KVPairs<float> answer;
      answer.keys = part.keys;
      answer.vals = SArray<float>(part.model.data(), part.model.size());
      server->Response(pull, answer);
    }
    part.parked = std::move(parked);
  }

  const int workers_;
  std::unordered_map<Key, Part> parts_;
};

struct Servers {
  Servers() : bytes(kBytes), floats(kFloats), clock(kClock) {
    bytes.set_request_handle(BytesServer());
    floats.set_request_handle(FloatsServer());
    clock.set_request_handle(ClockServer(ps::NumWorkers()));
  }
  KVServer<char> bytes;
  KVServer<float> floats;
  KVServer<float> clock;
};

// ---------------------------------------------------------------------------- workers

template <typename T>
SArray<T> Owned(size_t count) {
  SArray<T> array;
  array.resize(count);
  return array;
}

// A kind of work of one worker.
class Work {
 public:
  virtual ~Work() = default;
  // Outside the clock, before each run and after it.
  virtual void Prepare() {}
  virtual void Verify() {}
  virtual void Perform() = 0;
};

class Benchmark final : public Work {
 public:
  explicit Benchmark(const Step& step) : kv_(kBytes, 0), size_(step.size) {
    const std::vector<ps::Range>& ranges = ps::Postoffice::Get()->GetServerKeyRanges();
    const size_t count = ranges.size() * static_cast<size_t>(step.calls);
    for (size_t i = 0; i < count; ++i) {
      Value value{Owned<Key>(1), Owned<char>(size_), Owned<char>(size_), Owned<int>(1)};
      const size_t own = static_cast<size_t>(ps::MyRank()) * count + i;
      // Of no other step either, since the size can be another one.
      value.key[0] = ranges[i % ranges.size()].begin() + (size_ << 20) + own;
      value.length[0] = static_cast<int>(size_);
      for (size_t at = 0; at < size_; ++at) value.pushed[at] = static_cast<char>(at * 31 + i);
      values_.push_back(value);
    }
  }

  void Prepare() override {
    ++number_;
    for (Value& value : values_) {
      PutStamp(value.pushed.data(), size_, number_);
      PutStamp(value.pulled.data(), size_, 0);
    }
  }

  void Perform() override {
    std::vector<int> waits;
    for (Value& value : values_) {
      waits.push_back(kv_.ZPush(value.key, value.pushed, value.length, static_cast<int>(number_)));
      waits.push_back(kv_.ZPull(value.key, &value.pulled, &value.length));
    }
    for (const int each : waits) kv_.Wait(each);
  }

  void Verify() override {
    for (const Value& value : values_) {
      CHECK_EQ(value.length[0], static_cast<int>(size_));
      CHECK_EQ(std::memcmp(value.pulled.data(), value.pushed.data(), size_), 0) << "wrong bytes";
    }
  }

 private:
  struct Value {
    SArray<Key> key;
    SArray<char> pushed, pulled;
    SArray<int> length;
  };
  KVWorker<char> kv_;
  const size_t size_;
  std::vector<Value> values_;
  uint64_t number_ = 0;
};

class OneFloat final : public Work {
 public:
  explicit OneFloat(const Step& step)
      : kv_(kFloats, 0),
        calls_(step.calls),
        keys_{static_cast<Key>(ps::MyRank()) + 1},
        values_(Owned<float>(1)) {}

  void Perform() override {
    const int command = 1 << 8 | kAdd;
    for (int call = 0; call < calls_; ++call) {
      kv_.Wait(kv_.Push(keys_, {1.0f}, {}, command));
      // BytePS' Pull into a vector does not compile.
      kv_.Wait(kv_.ZPull(SArray<Key>(keys_), &values_, nullptr, command));
      CHECK_EQ(values_[0], ++expected_) << "wrong value";
    }
  }

 private:
  KVWorker<float> kv_;
  const int calls_;
  const std::vector<Key> keys_;
  SArray<float> values_;
  float expected_ = 0;
};

class SmallPushes final : public Work {
 public:
  explicit SmallPushes(const Step& step)
      : kv_(kFloats, 0),
        calls_(step.calls),
        command_(static_cast<int>(step.size / sizeof(float)) << 8 | kAdd),
        keys_{static_cast<Key>(ps::MyRank()) + 1000},
        values_(step.size / sizeof(float), 1.0f) {}

  void Perform() override {
    std::vector<int> waits;
    for (int call = 0; call < calls_; ++call) {
      if (waits.size() >= kOutstanding) kv_.Wait(waits[waits.size() - kOutstanding]);
      waits.push_back(kv_.Push(keys_, values_, {}, command_));
    }
    for (const int each : waits) kv_.Wait(each);
    expected_ += static_cast<float>(calls_);
  }

  void Verify() override {
    SArray<float> pulled = Owned<float>(values_.size());
    kv_.Wait(kv_.ZPull(SArray<Key>(keys_), &pulled, nullptr, command_));
    for (const float each : pulled) CHECK_EQ(each, expected_) << "wrong value";
  }

 private:
  KVWorker<float> kv_;
  const int calls_, command_;
  const std::vector<Key> keys_;
  const std::vector<float> values_;
  float expected_ = 0;
};

class SortedKeys final : public Work {
 public:
  SortedKeys(const Step& step, size_t width)
      : kv_(kFloats, 0),
        width_(width),
        pull_(step.op.find("_pull") != std::string::npos),
        command_(static_cast<int>(width) << 8 | kFormula),
        keys_(Owned<Key>(step.size / sizeof(float) / width)),
        values_(Owned<float>(keys_.size() * width)) {
    for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = ps::kMaxKey / keys_.size() * i;
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = Expected(i);
  }

  void Prepare() override {
    if (pull_) std::fill(values_.begin(), values_.end(), -1.0f);
  }
  void Perform() override {
    kv_.Wait(pull_ ? kv_.ZPull(keys_, &values_, nullptr, command_)
                   : kv_.ZPush(keys_, values_, {}, command_));
  }
  void Verify() override {
    bool right = true;
    for (size_t i = 0; i < values_.size(); ++i) right = right && values_[i] == Expected(i);
    CHECK(right) << "wrong values";
  }

 private:
  float Expected(size_t i) const {
    return Formula(keys_[i / width_]) + static_cast<float>(i % width_);
  }

  KVWorker<float> kv_;
  const size_t width_;
  const bool pull_;
  const int command_;
  SArray<Key> keys_;
  SArray<float> values_;
};

class DenseClock final : public Work {
 public:
  explicit DenseClock(const Step& step) : kv_(kClock, 0), keyed_(step.algorithm == "keyed") {
    const std::vector<ps::Range>& ranges = ps::Postoffice::Get()->GetServerKeyRanges();
    for (size_t i = 0; i * kClockFloats < step.size / sizeof(float); ++i) {
      Value value{Owned<Key>(1), Owned<float>(kClockFloats), Owned<float>(kClockFloats)};
      // Those of each step and algorithm have keys of their own.
      value.key[0] = ranges[i % ranges.size()].begin() + (step.size + (keyed_ ? 1 : 0)) * 4096 + i;
      values_.push_back(value);
    }
    totals_.resize(kPeriod);
  }

  void Prepare() override {
    for (size_t v = 0; v < values_.size(); ++v) {
      for (size_t i = 0; i < kClockFloats; ++i) {
        values_[v].pushed[i] = Pushed(ps::MyRank(), v * kClockFloats + i, clock_);
      }
      std::fill(values_[v].pulled.begin(), values_[v].pulled.end(), -1.0f);
    }
    for (size_t i = 0; i < kPeriod; ++i) {
      for (int rank = 0; rank < ps::NumWorkers(); ++rank) totals_[i] += Pushed(rank, i, clock_);
    }
    ++clock_;
  }

  void Perform() override {
    std::vector<int> waits;
    for (Value& value : values_) {
      waits.push_back(kv_.ZPush(value.key, value.pushed));
      if (keyed_) waits.push_back(Pull(value));
    }
    for (const int each : waits) kv_.Wait(each);
    if (keyed_) return;
    waits.clear();
    for (Value& value : values_) waits.push_back(Pull(value));
    for (const int each : waits) kv_.Wait(each);
  }

  void Verify() override {
    bool right = true;
    for (size_t v = 0; v < values_.size(); ++v) {
      for (size_t i = 0; i < kClockFloats; ++i) {
        right = right && values_[v].pulled[i] == totals_[(v * kClockFloats + i) % kPeriod];
      }
    }
    CHECK(right) << "the model is wrong after clock " << clock_;
  }

 private:
  struct Value {
    SArray<Key> key;
    SArray<float> pushed, pulled;
  };
  int Pull(Value& value) {
    return kv_.ZPull(value.key, &value.pulled, nullptr, static_cast<int>(clock_));
  }

  KVWorker<float> kv_;
  const bool keyed_;
  std::vector<Value> values_;
  // The model after the clocks so far; it has the same period as the pushes.
  std::vector<float> totals_;
  size_t clock_ = 0;
};

std::unique_ptr<Work> Make(const Step& step) {
  if (step.op == "ps_benchmark") return std::make_unique<Benchmark>(step);
  if (step.op == "ps_float") return std::make_unique<OneFloat>(step);
  if (step.op == "ps_small_pushes") return std::make_unique<SmallPushes>(step);
  if (step.op == "ps_dense_clock") return std::make_unique<DenseClock>(step);
  const bool rows = step.op == "ps_rows_push" || step.op == "ps_rows_pull";
  CHECK(rows || step.op == "ps_sorted_push" || step.op == "ps_sorted_pull") << step.op;
  return std::make_unique<SortedKeys>(step, rows ? kRowWidth : 1);
}

void RunWorker(const std::vector<Step>& plan, const std::string& folder) {
  std::ofstream output(folder + "/worker" + std::to_string(ps::MyRank()));
  for (const Step& step : plan) {
    const std::unique_ptr<Work> work = Make(step);
    output << step.op << ' ' << step.algorithm << ' ' << step.size << ' ' << step.calls;
    for (int run = 0; run < step.warmup + step.runs; ++run) {
      work->Prepare();
      ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
      const int64_t begin = NowNanos();
      work->Perform();
      const int64_t end = NowNanos();
      work->Verify();
      if (run >= step.warmup) output << ' ' << begin << ' ' << end;
    }
    output << std::endl;
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_EQ(argc, 3) << "ps_lite.cc describes the arguments; benchmarks/peers gives them";
  const std::vector<Step> plan = ReadPlan(argv[1]);
  ps::Start(0);
  std::unique_ptr<Servers> servers;
  if (ps::IsServer()) servers = std::make_unique<Servers>();
  if (ps::IsWorker()) RunWorker(plan, argv[2]);
  ps::Finalize(0);
  // The servers of ps-lite do not survive being destroyed after this.
  std::_Exit(0);
}
