// The base of operations whose run is a number of calls, one after the other. Every call has memory
// of its own, so that every result of a run can be verified after its clock has stopped. One
// thread.
#ifndef PHALANX_CLI_BENCH_CALLS_OPERATION_H_
#define PHALANX_CLI_BENCH_CALLS_OPERATION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "src/cli/bench/element_pattern.h"
#include "src/cli/bench/operation_base.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {

// Small calls need many repetitions to average out the clock, and a large one is long enough alone.
inline constexpr uint64_t kBytesOfARun = 32 << 20;
inline constexpr uint64_t kMaxCalls = 1000;

class CallsOperation : public Base {
 public:
  CallsOperation(const BenchOptions& options, std::shared_ptr<Client> client)
      : Base(options, std::move(client)),
        elements_{options.reduction.dtype, options.reduction.op} {}

  int calls(const Run& run) const override {
    if (options_.calls > 0) return options_.calls;
    const uint64_t size = std::max<uint64_t>(run.size, 1);
    return static_cast<int>(std::clamp<uint64_t>(kBytesOfARun / size, 1, kMaxCalls));
  }
  uint64_t bytes_moved(const Run& run) const override {
    return static_cast<uint64_t>(calls_ended(run)) * bytes_of_call(run);
  }

  absl::Status Prepare(const Run& run) override {
    PHALANX_RETURN_IF_ERROR(Begin());
    input_.resize(InputBytes(run) * static_cast<uint64_t>(calls(run)));
    output_.assign(OutputBytes(run) * static_cast<uint64_t>(calls(run)), '\0');
    for (int call = 0; call < calls(run); ++call) Fill(run, call);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    for (int call = 0; call < calls(run); ++call) PHALANX_RETURN_IF_ERROR(MakeCall(run, call));
    return SecondsSince(start_nanos) / calls(run);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (int call = 0; call < calls(run); ++call) {
      if (!IsRight(run, call)) return false;
    }
    return true;
  }

  absl::Status Clean(const Run&) override { return absl::OkStatus(); }

 protected:
  // Before each run; the ranks join in the first one.
  virtual absl::Status Begin() = 0;
  virtual uint64_t bytes_of_call(const Run& run) const = 0;
  virtual int calls_ended(const Run& run) const { return calls(run); }
  // The sizes of this rank's memory in a call. Calls that work in place have no output.
  virtual uint64_t InputBytes(const Run& run) const { return run.size; }
  virtual uint64_t OutputBytes(const Run&) const { return 0; }
  virtual void Fill(const Run& run, int call) = 0;
  virtual absl::Status MakeCall(const Run& run, int call) = 0;
  virtual bool IsRight(const Run& run, int call) const = 0;

  uint64_t world() const { return static_cast<uint64_t>(options_.world); }
  static uint64_t Seed(const Run& run, int call) { return run.seed + static_cast<uint64_t>(call); }
  absl::Span<char> Input(const Run& run, int call) {
    return {input_.data() + static_cast<uint64_t>(call) * InputBytes(run), InputBytes(run)};
  }
  absl::string_view InputView(const Run& run, int call) const {
    return {input_.data() + static_cast<uint64_t>(call) * InputBytes(run), InputBytes(run)};
  }
  absl::Span<char> Output(const Run& run, int call) {
    return {output_.data() + static_cast<uint64_t>(call) * OutputBytes(run), OutputBytes(run)};
  }
  absl::string_view OutputView(const Run& run, int call) const {
    return {output_.data() + static_cast<uint64_t>(call) * OutputBytes(run), OutputBytes(run)};
  }
  // A rank's part of a call whose members have equal parts: a world-th of the size, rounded up to
  // whole elements.
  uint64_t PartBytes(const Run& run, uint64_t element) const {
    return (run.size + world() * element - 1) / (world() * element) * element;
  }
  std::vector<int> AllRanks() const {
    std::vector<int> ranks(world());
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  // A session of the benchmark can have a name that a job cannot have.
  std::string JobName() const {
    return absl::StrCat("bench-", ObjectId::FromName(options_.session, "job").hex().substr(0, 16));
  }
  std::string TaskName() const { return absl::StrCat("rank", options_.rank); }

  const Elements elements_;

 private:
  std::vector<char> input_;
  std::vector<char> output_;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_CALLS_OPERATION_H_
