#include "src/cli/bench/runner.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "src/cli/bench/operation.h"
#include "src/cli/bench/raw_links.h"
#include "src/cli/bench/rendezvous.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// The time from "all are ready" to the common start: enough for the announcement to reach all ranks
// over a slow link.
constexpr absl::Duration kStartDelay = absl::Milliseconds(40);
// A rank that has finished is silent for this long. Its next messages use the same links as the
// measured transfers, which can still run on other ranks.
constexpr absl::Duration kQuiet = absl::Milliseconds(10);
// The memory of a rank for the calls of one run.
constexpr uint64_t kMaxGroupBytes = uint64_t{4} << 30;

double CpuSeconds(const std::vector<int>& pids) {
  double total = 0;
  for (const int pid : pids) {
    clockid_t clock;
    timespec used{};
    // A daemon that was killed has no clock any more.
    if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0) {
      total += used.tv_sec + used.tv_nsec * 1e-9;
    }
  }
  return total;
}

// The median, because a disturbance makes single runs much slower.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The seconds of copying `bytes` into shared memory: with new pages, and again into warm pages.
absl::StatusOr<std::pair<double, double>> TimeCopies(uint64_t bytes) {
  const std::string source(bytes, 'x');
  void* memory = mmap(nullptr, std::max<uint64_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  // mmap rejects a length of 0.
  if (memory == MAP_FAILED) return absl::ResourceExhaustedError("no memory to copy into");
  const int64_t start = MonotonicNanos();
  std::memcpy(memory, source.data(), bytes);
  const int64_t middle = MonotonicNanos();
  std::memcpy(memory, source.data(), bytes);
  const int64_t end = MonotonicNanos();
  munmap(memory, std::max<uint64_t>(bytes, 1));
  return std::pair((middle - start) * 1e-9, (end - middle) * 1e-9);
}

class Runner {
 public:
  Runner(const BenchOptions& options, std::shared_ptr<Client> client, const DirectoryTools& tools)
      : options_(options),
        client_(std::move(client)),
        tools_(tools),
        rendezvous_(client_, options.session, options.rank, options.world, options.timeout),
        raw_(options.rank, options.world, options.timeout) {
    for (int rank = 0; rank < options.world; ++rank) living_.push_back(rank);
  }

  absl::StatusOr<std::vector<BenchRecord>> RunAll() {
    PHALANX_ASSIGN_OR_RETURN(operation_, MakeOperation(options_, client_));
    PHALANX_RETURN_IF_ERROR(Meet());
    std::vector<BenchRecord> records;
    for (const uint64_t size : options_.sizes) {
      PHALANX_ASSIGN_OR_RETURN(BenchRecord record, RunSize(size));
      if (options_.rank == 0) records.push_back(std::move(record));
    }
    return records;
  }

 private:
  bool faulty() const {
    return options_.faults.victims > 0 || options_.faults.kill_member > absl::ZeroDuration();
  }
  // A rank whose node is killed ends, so its bare links would break.
  bool measures_limit() const {
    const Operation::Shape shape = operation_->shape();
    return !options_.raw_host.empty() && options_.world > 1 && shape != Operation::Shape::kNone &&
           shape != Operation::Shape::kCopy && shape != Operation::Shape::kSaveAndCopy && !faulty();
  }

  // Every rank publishes the address of its bare socket and the name of its node.
  absl::Status Meet() {
    std::string address;
    if (measures_limit()) {
      PHALANX_ASSIGN_OR_RETURN(address, raw_.Listen(options_.raw_host));
    }
    PHALANX_ASSIGN_OR_RETURN(
        const std::vector<std::string> met,
        rendezvous_.Exchange("meet", absl::StrCat(client_->node_name(), "\n", address)));
    std::vector<std::string> addresses;
    for (const std::string& line : met) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('\n', 1));
      node_names_.push_back(parts[0]);
      addresses.push_back(parts.back());
    }
    return measures_limit() ? raw_.Connect(addresses) : absl::OkStatus();
  }

  absl::StatusOr<BenchRecord> RunSize(uint64_t size) {
    BenchRecord record;
    record.op = options_.op;
    record.size_bytes = size;
    record.world = options_.world;
    record.verified = true;
    std::vector<double> pair, shape;
    double cpu = 0;
    for (int i = 0; i < options_.warmup + options_.runs; ++i) {
      Run run;
      run.number = ++run_number_;
      run.size = size;
      // Different for every size and run, so that old bytes never pass the check.
      run.seed = size * 1000003 + run_number_;
      double pair_s = 0, shape_s = 0, run_cpu = 0;
      PHALANX_RETURN_IF_ERROR(MeasureLimit(run, &pair_s, &shape_s));
      // Warm-up runs do not kill: their nodes are needed later.
      run.counted = i >= options_.warmup;
      run.kill = faulty() && run.counted;
      run.kill_now = [this, &run, &record] { return Kill(run, &record); };
      PHALANX_ASSIGN_OR_RETURN(const double seconds, TimeOnce(run, &record, &run_cpu));
      if (!run.counted) continue;
      record.each_s.push_back(seconds);
      record.each_ranks_s.push_back(ranks_s_);
      // The limit of each run, because a shared machine changes from run to run.
      pair.push_back(pair_s);
      shape.push_back(shape_s);
      if (!run.kill) record.calls = operation_->calls(run);
      if (const uint64_t moved = operation_->bytes_moved(run); moved > 0) {
        cpu += run_cpu / static_cast<double>(moved) * 1e9;
      }
      if (operation_->count(run) > 0) record.operations_per_s = operation_->count(run);
    }
    Summarize(pair, shape, cpu, &record);
    return record;
  }

  // Warm-up runs are not in the lists, so every entry counts.
  void Summarize(const std::vector<double>& pair, const std::vector<double>& shape, double cpu,
                 BenchRecord* record) const {
    if (record->each_s.empty()) return;
    record->runs = record->each_s.size();
    record->median_s = Median(record->each_s);
    record->min_s = *std::min_element(record->each_s.begin(), record->each_s.end());
    record->max_s = *std::max_element(record->each_s.begin(), record->each_s.end());
    record->limit_s = Median(pair);
    record->shape_limit_s = Median(shape);
    record->cpu_s_per_gb = cpu / record->runs;
    if (record->median_s > 0) record->operations_per_s /= record->median_s;
  }

  // The same work over bare sockets: one pair of ranks, then the whole shape.
  absl::Status MeasureLimit(const Run& run, double* pair_s, double* shape_s) {
    if (operation_->shape() == Operation::Shape::kCopy && !options_.raw_host.empty()) {
      PHALANX_ASSIGN_OR_RETURN(std::tie(*pair_s, *shape_s), TimeCopies(run.size));
    }
    const std::string tag = absl::StrCat("raw/", run.number);
    if (operation_->shape() == Operation::Shape::kSaveAndCopy && !options_.raw_host.empty()) {
      return MeasureSaveAndCopy(tag, run.size, pair_s, shape_s);
    }
    if (!measures_limit()) return absl::OkStatus();
    PHALANX_ASSIGN_OR_RETURN(*pair_s,
                             TimeRaw(tag + "/pair", 1, [&] { return raw_.Pair(run.size); }));
    PHALANX_ASSIGN_OR_RETURN(*shape_s, TimeRaw(tag + "/shape", operation_->calls(run),
                                               [&] { return RunShape(run.size); }));
    return absl::OkStatus();
  }

  // The rank's own memory, which is warm from the second time on, stands for that of the node.
  absl::Status MeasureSaveAndCopy(const std::string& tag, uint64_t size, double* save_s,
                                  double* both_s) {
    const std::vector<char> model(size, 'm');
    copied_.resize(size);
    PHALANX_ASSIGN_OR_RETURN(*save_s, TimeRaw(tag + "/save", 1, [&] {
      saved_ = std::string(model.begin(), model.end());
      return absl::OkStatus();
    }));
    saved_ = std::string();
    PHALANX_ASSIGN_OR_RETURN(*both_s, TimeRaw(tag + "/both", 1, [&] {
      const std::string saved(model.begin(), model.end());
      std::memcpy(copied_.data(), saved.data(), size);
      return absl::OkStatus();
    }));
    return absl::OkStatus();
  }

  absl::Status RunShape(uint64_t size) {
    switch (operation_->shape()) {
      case Operation::Shape::kNone:
      case Operation::Shape::kCopy:
      case Operation::Shape::kSaveAndCopy:
        return absl::OkStatus();
      case Operation::Shape::kChain:
        return raw_.Chain(size);
      case Operation::Shape::kStar:
        return raw_.Star(size);
      case Operation::Shape::kFoldingChain:
        return raw_.FoldingChain(size);
      case Operation::Shape::kRing:
        return raw_.Ring(size, /*fold=*/false, /*copy=*/true);
      case Operation::Shape::kFoldingRing:
        return raw_.Ring(size, /*fold=*/true, /*copy=*/false);
      case Operation::Shape::kRingTwice:
        // A barrier has no bytes, but its ring needs some.
        return raw_.Ring(std::max<uint64_t>(size, 1), /*fold=*/true, /*copy=*/true);
      case Operation::Shape::kPairTwice:
        return raw_.Pair(2 * size);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> TimeRaw(const std::string& tag, int calls,
                                 const std::function<absl::Status()>& work) {
    PHALANX_ASSIGN_OR_RETURN(const int64_t start, rendezvous_.AgreeOnStart(tag, kStartDelay));
    SleepUntilNanos(start);
    for (int call = 0; call < calls; ++call) PHALANX_RETURN_IF_ERROR(work());
    return MaximumOverRanks(tag, (MonotonicNanos() - start) * 1e-9 / calls, nullptr);
  }

  // On rank 0, returns the maximum of all ranks' seconds. A false from any rank clears *verified.
  absl::StatusOr<double> MaximumOverRanks(const std::string& tag, double seconds, bool* verified) {
    ranks_s_.clear();
    const bool own = verified == nullptr || *verified;
    PHALANX_ASSIGN_OR_RETURN(
        const std::vector<std::string> values,
        rendezvous_.Collect(tag + "/result", absl::StrFormat("%.9f %d", seconds, own ? 1 : 0),
                            living_));
    double maximum = 0;
    for (const std::string& value : values) {
      double other = 0;
      const std::vector<std::string> parts = absl::StrSplit(value, ' ');
      if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &other)) {
        return absl::InternalError(absl::StrCat("a rank sent an invalid result: ", value));
      }
      maximum = std::max(maximum, other);
      ranks_s_.push_back(other);
      if (verified != nullptr && parts[1] != "1") *verified = false;
    }
    rendezvous_.Forget();
    return maximum;
  }

  absl::StatusOr<double> TimeOnce(const Run& run, BenchRecord* record, double* cpu) {
    const std::string tag = absl::StrCat("run/", run.number);
    // Outside the clock: the start is agreed on when every rank is prepared.
    PHALANX_RETURN_IF_ERROR(operation_->Prepare(run));
    PHALANX_ASSIGN_OR_RETURN(const int64_t start, rendezvous_.AgreeOnStart(tag, kStartDelay));
    // Read after the agreement, so that the rendezvous of the ranks is not counted.
    const double cpu_before = CpuSeconds(options_.cpu_pids);
    const absl::StatusOr<double> seconds = operation_->Execute(run, start);
    if (!seconds.ok()) return seconds;
    for (const int rank : operation_->killed_ranks(run)) {
      std::erase(living_, rank);
      ++record->killed;
    }
    // The quiet time is before Verify, whose traffic would disturb slower ranks.
    SleepUntilNanos(MonotonicNanos() + absl::ToInt64Nanoseconds(kQuiet));
    bool verified = true;
    PHALANX_ASSIGN_OR_RETURN(verified, operation_->Verify(run));
    PHALANX_ASSIGN_OR_RETURN(const double maximum, MaximumOverRanks(tag, *seconds, &verified));
    *cpu = CpuSeconds(options_.cpu_pids) - cpu_before;
    record->verified = record->verified && verified;
    if (run.kill && options_.rank == 0 && !operation_->broadcasts(run).empty()) {
      PHALANX_RETURN_IF_ERROR(CountBytesSentTwice(run, record));
    }
    if (options_.trace && run.counted && options_.rank == 0) {
      PHALANX_RETURN_IF_ERROR(TraceIfSlowest(run, maximum, record));
    }
    // No rank deletes an object that another rank can still be fetching.
    PHALANX_RETURN_IF_ERROR(rendezvous_.FollowRankZero(tag + "/over"));
    PHALANX_RETURN_IF_ERROR(operation_->Clean(run));
    return maximum;
  }

  ObjectId Target(const Run& run) const { return operation_->broadcasts(run).front(); }

  // REQUIRES: the objects are not deleted yet.
  absl::Status TraceIfSlowest(const Run& run, double seconds, BenchRecord* record) {
    if (seconds <= record->slowest_s) return absl::OkStatus();
    record->slowest_s = seconds;
    record->slowest_ranks_s = ranks_s_;
    record->slowest_tree.clear();
    for (const ObjectId& id : operation_->broadcasts(run)) {
      PHALANX_ASSIGN_OR_RETURN(const std::string tree, tools_.draw_tree(id));
      absl::StrAppend(&record->slowest_tree, tree);
    }
    return absl::OkStatus();
  }

  // Returns the ranks whose nodes were killed or stopped.
  absl::StatusOr<std::vector<int>> Kill(const Run& run, BenchRecord* record) {
    const bool reduces = !operation_->reductions(run).empty();
    PHALANX_ASSIGN_OR_RETURN(
        const KillReport report,
        reduces ? tools_.kill_reducer(operation_->reductions(run).front(), run.size)
                : tools_.kill(Target(run), run.size));
    std::vector<int> ranks;
    for (const std::string& name : report.nodes) {
      for (size_t rank = 0; rank < node_names_.size(); ++rank) {
        if (node_names_[rank] == name) ranks.push_back(static_cast<int>(rank));
      }
    }
    // These ranks report no results; waiting for them would end in a timeout.
    for (const int rank : ranks) std::erase(living_, rank);
    record->killed = report.nodes.size();
    return ranks;
  }

  absl::Status CountBytesSentTwice(const Run& run, BenchRecord* record) {
    PHALANX_ASSIGN_OR_RETURN(const uint64_t received, tools_.bytes_received(Target(run)));
    // Each survivor but the source needs one copy.
    const uint64_t needed = run.size * (living_.size() - 1);
    record->bytes_sent_twice = received > needed ? received - needed : 0;
    return absl::OkStatus();
  }

  const BenchOptions options_;
  const std::shared_ptr<Client> client_;
  const DirectoryTools& tools_;
  Rendezvous rendezvous_;
  RawLinks raw_;
  std::unique_ptr<Operation> operation_;
  std::vector<std::string> node_names_;
  std::vector<int> living_;
  // The seconds of each rank in the last MaximumOverRanks, on rank 0.
  std::vector<double> ranks_s_;
  int run_number_ = 0;
  // Of MeasureSaveAndCopy; members, so that no compiler leaves the copies out.
  std::string saved_;
  std::vector<char> copied_;
};

}  // namespace

namespace {

absl::Status CheckReduction(const BenchOptions& options) {
  const ReductionChoice& reduction = options.reduction;
  PHALANX_RETURN_IF_ERROR(CheckReducible(reduction.dtype, reduction.op));
  for (const uint64_t size : options.sizes) {
    const bool reduces = options.op == "reduce" || options.op == "allreduce" ||
                         options.op == "reduce_scatter" || options.op == "group_allreduce" ||
                         options.op == "group_reduce" || options.op == "job_allreduce";
    if (reduces) PHALANX_RETURN_IF_ERROR(CountElements(reduction.dtype, size).status());
  }
  const int present = options.world - reduction.absent;
  // With too few sources the reduction would wait until its deadline.
  if (reduction.absent < 0 || present < 1 || reduction.subset < 0 || reduction.subset > present ||
      (reduction.absent > 0 && reduction.subset == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("--subset ", reduction.subset, " and --absent ",
                                                   reduction.absent, " of ", options.world,
                                                   " ranks: too few sources will arrive"));
  }
  if (reduction.spare_copies && reduction.absent == 0) {
    return absl::InvalidArgumentError(
        "--spare-copies needs --absent: the copies are on the nodes of these ranks");
  }
  return absl::OkStatus();
}

absl::Status CheckGroup(const BenchOptions& options) {
  const bool of_group = absl::StartsWith(options.op, "group_") || options.op == "job_allreduce";
  for (const uint64_t size : options.sizes) {
    if (!of_group || options.op == "group_barrier") break;
    const uint64_t calls = static_cast<uint64_t>(std::max(options.calls, 1));
    // Every call of a run has its own memory.
    if (size == 0 || size > kMaxGroupBytes / calls) {
      return absl::InvalidArgumentError(absl::StrCat("--calls ", calls, " of ", size,
                                                     " bytes: they must be 1 byte to ",
                                                     kMaxGroupBytes, " together"));
    }
  }
  if (options.calls > 0 && !of_group) {
    return absl::InvalidArgumentError("--calls is for operations of groups, and job_allreduce");
  }
  if (options.faults.kill_member > absl::ZeroDuration() &&
      (options.op != "group_allreduce" || options.runs != 1 || options.faults.victims > 0)) {
    return absl::InvalidArgumentError(
        "--kill-member is for group_allreduce with --runs 1, without --kill and --stop: the member "
        "does not come back");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<BenchRecord>> RunBench(BenchOptions options,
                                                  std::shared_ptr<Client> client,
                                                  const DirectoryTools& tools) {
  if (options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank is ", options.rank, ", it must be 0..", options.world - 1));
  }
  // Other operations have no tree whose repair could be measured.
  const bool killable =
      options.op == "broadcast" || options.op == "reduce" || options.op == "allreduce";
  if (options.faults.victims > 0 && (!killable || options.runs != 1)) {
    return absl::InvalidArgumentError(
        "--kill and --stop are for broadcast, reduce and allreduce with --runs 1: killed nodes do "
        "not restart");
  }
  // Checked on every rank before they meet, so that no rank waits for one that failed.
  PHALANX_RETURN_IF_ERROR(CheckReduction(options));
  PHALANX_RETURN_IF_ERROR(CheckGroup(options));
  if (options.op == "group_barrier") options.sizes = {0};
  if (options.trace && options.op != "broadcast" && options.op != "broadcast_all") {
    return absl::InvalidArgumentError("--trace is for broadcasts: other operations build no tree");
  }
  return Runner(options, std::move(client), tools).RunAll();
}

std::string RecordsAsJson(const std::vector<BenchRecord>& records) {
  nlohmann::json list = nlohmann::json::array();
  for (const BenchRecord& r : records) {
    nlohmann::json record = {{"op", r.op},
                             {"size_bytes", r.size_bytes},
                             {"world", r.world},
                             {"runs", r.runs},
                             {"median_s", r.median_s},
                             {"min_s", r.min_s},
                             {"max_s", r.max_s},
                             {"limit_s", r.limit_s},
                             {"shape_limit_s", r.shape_limit_s},
                             {"verified", r.verified},
                             {"cpu_s_per_gb", r.cpu_s_per_gb},
                             {"each_s", r.each_s},
                             {"each_ranks_s", r.each_ranks_s}};
    if (r.operations_per_s > 0) record["operations_per_s"] = r.operations_per_s;
    if (r.calls > 1) record["calls"] = r.calls;
    if (r.killed > 0) {
      record["killed"] = r.killed;
      if (r.op == "broadcast") record["bytes_sent_twice"] = r.bytes_sent_twice;
    }
    if (!r.slowest_tree.empty()) {
      record["slowest_s"] = r.slowest_s;
      record["slowest_tree"] = r.slowest_tree;
      record["slowest_ranks_s"] = r.slowest_ranks_s;
    }
    list.push_back(std::move(record));
  }
  return list.dump(2);
}

std::string RecordsAsTable(const std::vector<BenchRecord>& records) {
  std::string table =
      absl::StrFormat("%-20s %12s %5s %12s %12s %12s %12s %8s %s\n", "op", "bytes", "world",
                      "median ms", "min ms", "max ms", "bare ms", "CPU s/GB", "verified");
  for (const BenchRecord& r : records) {
    absl::StrAppendFormat(&table, "%-20s %12d %5d %12.3f %12.3f %12.3f %12.3f %8.3f %s", r.op,
                          r.size_bytes, r.world, r.median_s * 1e3, r.min_s * 1e3, r.max_s * 1e3,
                          r.shape_limit_s * 1e3, r.cpu_s_per_gb, r.verified ? "yes" : "NO");
    if (r.operations_per_s > 0) absl::StrAppendFormat(&table, "  %.0f/s", r.operations_per_s);
    if (r.killed > 0) {
      absl::StrAppendFormat(&table, "  %d killed", r.killed);
      if (r.op == "broadcast") {
        absl::StrAppendFormat(&table, ", %d bytes sent twice", r.bytes_sent_twice);
      }
    }
    absl::StrAppend(&table, "\n");
    if (!r.slowest_tree.empty()) {
      absl::StrAppendFormat(&table, "the slowest run took %.3f ms:\n%s", r.slowest_s * 1e3,
                            r.slowest_tree);
    }
  }
  return table;
}

}  // namespace phalanx::runtime::bench
