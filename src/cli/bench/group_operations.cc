// Operations of groups: the ranks are the members of a job.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/group.h"
#include "src/cli/bench/calls_operation.h"
#include "src/cli/bench/element_pattern.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// The members meet in the first Prepare, and leave when the operation is destroyed.
class GroupOperation : public CallsOperation {
 public:
  using CallsOperation::CallsOperation;
  ~GroupOperation() override {
    if (member_.has_value()) member_->Leave().IgnoreError();
  }

 protected:
  virtual Future<Done> Call(const Run& run, int call) = 0;
  const Group& group() const { return *group_; }

 private:
  absl::Status MakeCall(const Run& run, int call) final {
    return Call(run, call).Wait(options_.timeout).status();
  }

  absl::Status Begin() final {
    if (group_.has_value()) return absl::OkStatus();
    JoinOptions join;
    join.world = options_.world;
    join.rank = options_.rank;
    join.timeout = options_.timeout;
    PHALANX_ASSIGN_OR_RETURN(member_, client_->Join(JobName(), TaskName(), join));
    PHALANX_RETURN_IF_ERROR(member_->WaitForWorld(options_.timeout));
    GroupOptions options;
    options.timeout = options_.timeout;
    if (options_.faults.kill_member > absl::ZeroDuration()) options.on_loss = LossPolicy::kExclude;
    group_.emplace(*member_, options);
    return absl::OkStatus();
  }

  std::optional<Membership> member_;
  std::optional<Group> group_;
};

// In place. With --kill-member the last rank's process ends at its instant, and the result is the
// time from then to the end of the first call without it.
class GroupAllReduce : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kRingTwice; }
  std::vector<int> killed_ranks(const Run& run) const override {
    return run.kill ? std::vector<int>{options_.world - 1} : std::vector<int>{};
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    members_.assign(static_cast<size_t>(calls(run)), options_.world);
    if (!run.kill) return GroupOperation::Execute(run, start_nanos);
    SleepUntilNanos(start_nanos);
    const int64_t death = start_nanos + absl::ToInt64Nanoseconds(options_.faults.kill_member);
    if (options_.rank + 1 == options_.world) {
      std::thread([death] {
        SleepUntilNanos(death);
        kill(getpid(), SIGKILL);
      }).detach();
    }
    for (int call = 0; call < calls(run); ++call) {
      PHALANX_RETURN_IF_ERROR(Call(run, call).Wait(options_.timeout).status());
      members_[static_cast<size_t>(call)] = group().members_of_last_call();
      if (members_[static_cast<size_t>(call)] == options_.world) continue;
      // The other survivors end the same call without the member.
      members_.resize(static_cast<size_t>(call) + 1);
      return SecondsSince(death);
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "all ", calls(run), " calls ended before the member was killed: more --calls"));
  }

  // A run with --kill-member ends with the first call without the member.
  int calls_ended(const Run& run) const override {
    return run.kill ? static_cast<int>(members_.size()) : calls(run);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t call = 0; call < members_.size(); ++call) {
      if (!IsRight(run, static_cast<int>(call))) return false;
    }
    return true;
  }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return 2 * run.size * (world() - 1); }
  void Fill(const Run& run, int call) override {
    FillElements(elements_, Seed(run, call), options_.rank, Input(run, call));
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().AllReduce(elements_.dtype, Input(run, call).data(), run.size, elements_.op);
  }
  bool IsRight(const Run& run, int call) const override {
    std::vector<int> ranks = AllRanks();
    // The killed rank is the last one.
    ranks.resize(static_cast<size_t>(members_[static_cast<size_t>(call)]));
    return MatchesReduction(elements_, Seed(run, call), ranks, 0, InputView(run, call));
  }

 private:
  // The number of members of each call that has ended.
  std::vector<int> members_;
};

// In place, at rank 0. The memory of the other ranks must stay as it was.
class GroupReduce : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kFoldingChain; }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return run.size * (world() - 1); }
  void Fill(const Run& run, int call) override {
    FillElements(elements_, Seed(run, call), options_.rank, Input(run, call));
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().Reduce(0, elements_.dtype, Input(run, call).data(), run.size, elements_.op);
  }
  bool IsRight(const Run& run, int call) const override {
    if (options_.rank == 0) {
      return MatchesReduction(elements_, Seed(run, call), AllRanks(), 0, InputView(run, call));
    }
    std::string source(run.size, '\0');
    FillElements(elements_, Seed(run, call), options_.rank, absl::MakeSpan(&source[0], run.size));
    return source == InputView(run, call);
  }
};

// From rank 0, in place.
class GroupBroadcast : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kChain; }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return run.size * (world() - 1); }
  void Fill(const Run& run, int call) override {
    const absl::Span<char> memory = Input(run, call);
    std::fill(memory.begin(), memory.end(), '\0');
    if (options_.rank == 0) FillPattern(Seed(run, call), memory);
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().Broadcast(0, Input(run, call).data(), run.size);
  }
  bool IsRight(const Run& run, int call) const override {
    return MatchesPattern(Seed(run, call), InputView(run, call));
  }
};

// The size is that of the result.
class GroupAllGather : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kRing; }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return run.size * (world() - 1); }
  uint64_t InputBytes(const Run& run) const override { return PartBytes(run, 1); }
  uint64_t OutputBytes(const Run& run) const override { return InputBytes(run) * world(); }
  void Fill(const Run& run, int call) override {
    FillPattern(SeedOf(run, call, options_.rank), Input(run, call));
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().AllGather(Input(run, call).data(), InputBytes(run), Output(run, call).data(),
                             OutputBytes(run));
  }
  bool IsRight(const Run& run, int call) const override {
    for (const int rank : AllRanks()) {
      const absl::string_view part = OutputView(run, call).substr(
          static_cast<uint64_t>(rank) * InputBytes(run), InputBytes(run));
      if (!MatchesPattern(SeedOf(run, call, rank), part)) return false;
    }
    return true;
  }

 private:
  uint64_t SeedOf(const Run& run, int call, int rank) const {
    return Seed(run, call) * world() + static_cast<uint64_t>(rank);
  }
};

// The size is that of each rank's input.
class GroupReduceScatter : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kFoldingRing; }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return run.size * (world() - 1); }
  uint64_t InputBytes(const Run& run) const override { return OutputBytes(run) * world(); }
  uint64_t OutputBytes(const Run& run) const override {
    return PartBytes(run, ElementSize(elements_.dtype));
  }
  void Fill(const Run& run, int call) override {
    FillElements(elements_, Seed(run, call), options_.rank, Input(run, call));
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().ReduceScatter(elements_.dtype, Input(run, call).data(), InputBytes(run),
                                 Output(run, call).data(), OutputBytes(run), elements_.op);
  }
  bool IsRight(const Run& run, int call) const override {
    const uint64_t first =
        static_cast<uint64_t>(options_.rank) * OutputBytes(run) / ElementSize(elements_.dtype);
    return MatchesReduction(elements_, Seed(run, call), AllRanks(), first, OutputView(run, call));
  }
};

// The size is that of all parts of a rank, including the one for itself, which is not sent.
class GroupAllToAll : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kRing; }

 protected:
  uint64_t bytes_of_call(const Run& run) const override { return run.size * (world() - 1); }
  uint64_t InputBytes(const Run& run) const override { return PartBytes(run, 1) * world(); }
  uint64_t OutputBytes(const Run& run) const override { return InputBytes(run); }
  void Fill(const Run& run, int call) override {
    for (const int to : AllRanks()) {
      FillPattern(SeedOf(run, call, options_.rank, to),
                  Input(run, call).subspan(static_cast<uint64_t>(to) * PartBytes(run, 1),
                                           PartBytes(run, 1)));
    }
  }
  Future<Done> Call(const Run& run, int call) override {
    return group().AllToAll(Input(run, call).data(), InputBytes(run), Output(run, call).data(),
                            OutputBytes(run));
  }
  bool IsRight(const Run& run, int call) const override {
    for (const int from : AllRanks()) {
      const absl::string_view part = OutputView(run, call).substr(
          static_cast<uint64_t>(from) * PartBytes(run, 1), PartBytes(run, 1));
      if (!MatchesPattern(SeedOf(run, call, from, options_.rank), part)) return false;
    }
    return true;
  }

 private:
  uint64_t SeedOf(const Run& run, int call, int from, int to) const {
    return (Seed(run, call) * world() + static_cast<uint64_t>(from)) * world() +
           static_cast<uint64_t>(to);
  }
};

// Right if no rank has left a barrier before all have come to it: the instants of all ranks are of
// one clock.
class GroupBarrier : public GroupOperation {
 public:
  using GroupOperation::GroupOperation;
  Shape shape() const override { return Shape::kRingTwice; }

  absl::Status Prepare(const Run& run) override {
    came_.assign(static_cast<size_t>(calls(run)), 0);
    left_.assign(static_cast<size_t>(calls(run)), 0);
    return GroupOperation::Prepare(run);
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    for (size_t call = 0; call < came_.size(); ++call) {
      came_[call] = MonotonicNanos();
      PHALANX_RETURN_IF_ERROR(group().Barrier().Wait(options_.timeout).status());
      left_[call] = MonotonicNanos();
    }
    return SecondsSince(start_nanos) / calls(run);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    std::vector<int64_t> last = came_;
    PHALANX_RETURN_IF_ERROR(
        group().AllReduce(absl::MakeSpan(last), ReduceOp::kMax).Wait(options_.timeout).status());
    came_ = last;
    return GroupOperation::Verify(run);
  }

 protected:
  uint64_t bytes_of_call(const Run&) const override { return 0; }
  uint64_t InputBytes(const Run&) const override { return 0; }
  void Fill(const Run&, int) override {}
  Future<Done> Call(const Run&, int) override { return group().Barrier(); }
  bool IsRight(const Run&, int call) const override {
    return came_[static_cast<size_t>(call)] <= left_[static_cast<size_t>(call)];
  }

 private:
  // This rank's instants in each call. Verify makes the first the maximum over ranks.
  std::vector<int64_t> came_;
  std::vector<int64_t> left_;
};

}  // namespace

std::unique_ptr<Operation> MakeGroupOperation(const BenchOptions& options,
                                              std::shared_ptr<Client> client) {
  if (options.op == "group_allreduce") return std::make_unique<GroupAllReduce>(options, client);
  if (options.op == "group_reduce") return std::make_unique<GroupReduce>(options, client);
  if (options.op == "group_broadcast") return std::make_unique<GroupBroadcast>(options, client);
  if (options.op == "group_allgather") return std::make_unique<GroupAllGather>(options, client);
  if (options.op == "group_reduce_scatter") {
    return std::make_unique<GroupReduceScatter>(options, client);
  }
  if (options.op == "group_all_to_all") return std::make_unique<GroupAllToAll>(options, client);
  if (options.op == "group_barrier") return std::make_unique<GroupBarrier>(options, client);
  return nullptr;
}

}  // namespace phalanx::runtime::bench
