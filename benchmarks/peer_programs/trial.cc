#include "benchmarks/peer_programs/trial.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace phalanx::benchmarks {
namespace {

// Inputs repeat with this period, and sums of 1,000 of them are still exact floats.
constexpr size_t kPeriod = 1021;
// The time from "all are ready" to the common start; all ranks must be asleep by then.
constexpr double kStartDelay = 0.02;
// The extra time that a first run can need to make its connections.
constexpr double kConnecting = 0.05;
// The time between two calls of Progress.
constexpr double kProgressInterval = 0.002;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}

double Seconds(clockid_t clock) {
  timespec at{};
  clock_gettime(clock, &at);
  return at.tv_sec + at.tv_nsec * 1e-9;
}

void WaitUntil(double when) {
  const auto whole = static_cast<time_t>(when);
  const timespec at{whole, static_cast<long>((when - whole) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0) {
  }
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Element i of the rank's input in run `seed`.
float Value(int rank, size_t i, size_t seed) { return (i * 7 + rank * 13 + seed) % kPeriod; }

class Meeting {
 public:
  struct Result {
    double seconds;
    double cpu;
    bool right;
  };

  Meeting(const TrialOptions& options, Peer& peer) : world_(options.world), peer_(peer) {
    const int file = open(options.meeting.c_str(), O_RDWR | O_CLOEXEC);
    void* mapped = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || mapped == MAP_FAILED) Fail("cannot map " + options.meeting);
    close(file);
    state_ = static_cast<State*>(mapped);
    if (options.rank == 0) {
      pthread_barrierattr_t shared;
      pthread_barrierattr_init(&shared);
      pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
      pthread_barrier_init(&state_->barrier, &shared, world_);
      state_->ready.store(1, std::memory_order_release);
    }
    while (state_->ready.load(std::memory_order_acquire) == 0) WaitAMoment();
  }

  // A rank whose library needs calls sleeps only when no other rank waits for its bytes.
  void Barrier() {
    state_->arrivals.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t all = ++barriers_ * world_;
    while (state_->arrivals.load(std::memory_order_acquire) < all && peer_.Progress()) {
      WaitAMoment();
    }
    pthread_barrier_wait(&state_->barrier);
  }

  double& start() { return state_->start; }
  Result& result(int rank) { return state_->results[rank]; }

 private:
  struct State {
    std::atomic<uint32_t> ready;
    std::atomic<uint64_t> arrivals;
    pthread_barrier_t barrier;
    double start;
    Result results[kMaxWorld];
  };
  static_assert(sizeof(State) <= kMeetingBytes);

  static void WaitAMoment() { WaitUntil(Seconds(CLOCK_MONOTONIC) + kProgressInterval); }

  const uint64_t world_;
  Peer& peer_;
  State* state_;
  uint64_t barriers_ = 0;
};

class Trial {
 public:
  Trial(const TrialOptions& options, Peer& peer)
      : options_(options), peer_(peer), meeting_(options, peer) {}

  int RunAll() {
    FILE* output = options_.rank == 0 ? std::fopen(options_.output.c_str(), "w") : nullptr;
    if (options_.rank == 0 && output == nullptr) Fail("cannot write " + options_.output);
    for (const Step& step : options_.plan) RunStep(step, output);
    if (output != nullptr) std::fclose(output);
    return right_ ? 0 : 1;
  }

 private:
  bool moves_from_root() const { return step_.op == "broadcast" || step_.op == "pair"; }
  bool collects() const {
    return step_.op == "allgather" || (step_.op == "gather" && options_.rank == 0);
  }

  void RunStep(const Step& step, FILE* output) {
    step_ = step;
    count_ = step.size / sizeof(float);
    in_.assign(count_, 0);
    out_.assign(collects() ? count_ * options_.world : count_, 0);
    peer_.Prepare(step_, in_.data(), out_.data());
    std::vector<double> times;
    double cpu = 0;
    bool right = true;
    for (int run = 0; run < step.warmup + step.runs; ++run) {
      const Meeting::Result all = RunOnce(run);
      right = right && all.right;
      const bool gives_up = GivesUp(all.seconds);
      if (run < step.warmup && !gives_up) continue;
      times.push_back(all.seconds);
      cpu += all.cpu;
      if (gives_up) break;
    }
    double& best = best_.try_emplace({step.name, step.size}, Median(times)).first->second;
    best = std::min(best, Median(times));
    right_ = right_ && right;
    if (output != nullptr) Write(output, times, cpu / times.size(), right);
  }

  // The result is the same on every rank, because the times are.
  bool GivesUp(double seconds) const {
    const auto best = best_.find({step_.name, step_.size});
    return step_.patience > 0 && best != best_.end() &&
           seconds > step_.patience * best->second + kConnecting;
  }

  // Returns, on every rank, the maximum of the seconds, the sum of the CPU seconds, and whether all
  // ranks were right.
  Meeting::Result RunOnce(size_t seed) {
    Fill(seed);
    meeting_.Barrier();
    if (options_.rank == 0) meeting_.start() = Seconds(CLOCK_MONOTONIC) + kStartDelay;
    meeting_.Barrier();
    const double start = meeting_.start();
    WaitUntil(start);
    const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int call = 0; call < step_.calls; ++call) peer_.Perform();
    Meeting::Result& own = meeting_.result(options_.rank);
    own.seconds = (Seconds(CLOCK_MONOTONIC) - start) / step_.calls;
    own.cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    meeting_.Barrier();  // no rank verifies while another one is measured
    own.right = Right(seed);
    meeting_.Barrier();
    Meeting::Result all{0, 0, true};
    for (int rank = 0; rank < options_.world; ++rank) {
      const Meeting::Result& each = meeting_.result(rank);
      all.seconds = std::max(all.seconds, each.seconds);
      all.cpu += each.cpu;
      all.right = all.right && each.right;
    }
    return all;
  }

  void Fill(size_t seed) {
    const bool root = moves_from_root() && options_.rank == 0;
    std::fill(out_.begin(), out_.end(), -1.0f);
    std::vector<float>& own = root ? out_ : in_;
    for (size_t i = 0; i < count_; ++i) own[i] = Value(options_.rank, i, seed);
  }

  bool Right(size_t seed) const {
    if (step_.op == "pair" && options_.rank > 1) return true;
    if (moves_from_root()) return Is(0, {0}, seed);
    if (collects()) {
      for (int rank = 0; rank < options_.world; ++rank) {
        if (!Is(rank * count_, {rank}, seed)) return false;
      }
      return true;
    }
    // That no rank leaves a barrier early is not checked here.
    const bool without_result = step_.op == "barrier" || step_.op == "gather";
    if (without_result || (step_.op == "reduce" && options_.rank != 0)) return true;
    std::vector<int> everybody;
    for (int rank = 0; rank < options_.world; ++rank) everybody.push_back(rank);
    return Is(0, everybody, seed);
  }

  // Returns whether out_, from `begin` on, has the sum of these ranks' inputs.
  bool Is(size_t begin, const std::vector<int>& ranks, size_t seed) const {
    std::vector<float> expected(kPeriod, 0);
    for (size_t i = 0; i < kPeriod; ++i) {
      for (const int rank : ranks) expected[i] += Value(rank, i, seed);
    }
    for (size_t i = 0; i < count_; ++i) {
      if (out_[begin + i] != expected[i % kPeriod]) return false;
    }
    return true;
  }

  // The minimum of bytes that cross the network in a run, over all ranks.
  double BytesMoved() const {
    const double size = static_cast<double>(step_.size) * step_.calls, others = options_.world - 1;
    if (step_.op == "pair") return size;
    if (step_.op == "allreduce") return 2 * others * size;
    if (step_.op == "allgather") return options_.world * others * size;
    return others * size;
  }

  void Write(FILE* output, const std::vector<double>& times, double cpu, bool right) const {
    const double cpu_per_gb = BytesMoved() > 0 ? cpu / BytesMoved() * 1e9 : 0;
    std::fprintf(output,
                 "{\"op\": \"%s\", \"algorithm\": \"%s\", \"size_bytes\": %zu, \"world\": %d, "
                 "\"verified\": %s, \"calls\": %d, \"cpu_s_per_gb\": %.6f, \"each_s\": [",
                 step_.name.c_str(), step_.algorithm.c_str(), step_.size, options_.world,
                 right ? "true" : "false", step_.calls, cpu_per_gb);
    for (size_t i = 0; i < times.size(); ++i) {
      std::fprintf(output, "%s%.9f", i == 0 ? "" : ", ", times[i]);
    }
    std::fprintf(output, "]}\n");
    std::fflush(output);
  }

  const TrialOptions& options_;
  Peer& peer_;
  Meeting meeting_;
  bool right_ = true;
  // The smallest medians so far, by op and size.
  std::map<std::pair<std::string, size_t>, double> best_;
  // The current step.
  Step step_;
  size_t count_ = 0;
  std::vector<float> in_, out_;
};

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::stringstream rest(list);
  for (std::string part; std::getline(rest, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<Step> ReadPlan(const std::string& path) {
  std::ifstream file(path);
  std::vector<Step> plan;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Step step;
    words >> step.name >> step.algorithm >> step.size >> step.calls >> step.warmup >> step.runs >>
        step.patience >> step.settings;
    const bool sound = words && step.size % sizeof(float) == 0 && step.calls >= 1 && step.runs >= 1;
    if (!sound) Fail("not a step: " + line);
    const std::string group = "group_";
    step.op = step.name.starts_with(group) ? step.name.substr(group.size()) : step.name;
    plan.push_back(step);
  }
  if (plan.empty()) Fail("no plan in " + path);
  return plan;
}

}  // namespace

TrialOptions ParseTrialOptions(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  TrialOptions options;
  options.world = std::atoi(flags["--world"].c_str());
  // mpirun passes the rank in the environment.
  const char* mpi_rank = std::getenv("OMPI_COMM_WORLD_RANK");
  options.rank = std::atoi(mpi_rank != nullptr ? mpi_rank : flags["--rank"].c_str());
  options.meeting = flags["--meeting"];
  options.store = flags["--store"];
  options.output = flags["--output"];
  options.hosts = Split(flags["--hosts"]);
  const bool ranks_are_sound = options.world >= 1 && options.rank >= 0 &&
                               options.rank < options.world &&
                               options.world <= static_cast<int>(kMaxWorld) &&
                               options.hosts.size() == static_cast<size_t>(options.world);
  if (argc % 2 == 0 || !ranks_are_sound) {
    Fail("see trial.h for the flags; benchmarks/peers gives them");
  }
  options.plan = ReadPlan(flags["--plan"]);
  return options;
}

int RunTrial(const TrialOptions& options, Peer& peer) { return Trial(options, peer).RunAll(); }

}  // namespace phalanx::benchmarks
