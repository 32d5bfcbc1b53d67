// Operations of sessions: the ranks are those of one session.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "phalanx/spmd.h"
#include "src/cli/bench/calls_operation.h"
#include "src/cli/bench/element_pattern.h"
#include "src/cli/bench/pattern.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

constexpr int kLazyCalls = 100;

// A model that is one array.
struct ArrayModel {
  std::vector<char> values;

  std::string Save() const { return std::string(values.begin(), values.end()); }
  absl::Status Load(absl::string_view bytes) {
    values.assign(bytes.begin(), bytes.end());
    return absl::OkStatus();
  }
};

// The ranks meet in the first Prepare, and leave when the operation is destroyed.
class SessionOperation : public CallsOperation {
 public:
  using CallsOperation::CallsOperation;
  ~SessionOperation() override {
    if (session_.has_value()) session_->Leave().IgnoreError();
  }

 protected:
  bool joined() const { return session_.has_value(); }
  spmd::Session& session() { return *session_; }
  // A rank that has joined before begins its next life.
  absl::Status Join(ArrayModel& model) {
    PHALANX_RETURN_IF_ERROR(Join());
    return session_->Load(model).status();
  }
  // The same without Load.
  absl::Status Join() {
    session_.reset();
    spmd::Options options;
    options.job = JobName();
    options.task = TaskName();
    options.world = options_.world;
    options.peer_timeout = options_.timeout;
    PHALANX_ASSIGN_OR_RETURN(spmd::Session session, spmd::Session::Join(*client_, options));
    session_.emplace(std::move(session));
    return absl::OkStatus();
  }
  // When it has ended here, all ranks have ended the first of the two calls, also if this one dies
  // now: a next life learns of it, and that all have passed the checkpoint before it.
  absl::Status MeetTwice() {
    PHALANX_RETURN_IF_ERROR(session_->Barrier());
    return session_->Barrier();
  }
  // Whether this rank is the one that begins its next life after this run.
  bool HasNextLife(const Run& run) const { return run.number % options_.world == options_.rank; }

 private:
  std::optional<spmd::Session> session_;
};

// In place. The results of a run are kept until the next one, as those of a version are.
class JobAllreduce : public SessionOperation {
 public:
  using SessionOperation::SessionOperation;
  Shape shape() const override { return Shape::kRingTwice; }

 protected:
  absl::Status Begin() override {
    ArrayModel model;
    if (!joined()) return Join(model);
    model.values.push_back('m');
    return session().Checkpoint(model);
  }
  uint64_t bytes_of_call(const Run& run) const override { return 2 * run.size * (world() - 1); }
  void Fill(const Run& run, int call) override {
    FillElements(elements_, Seed(run, call), options_.rank, Input(run, call));
  }
  absl::Status MakeCall(const Run& run, int call) override {
    return session().Allreduce(elements_.dtype, Input(run, call).data(), run.size, elements_.op);
  }
  bool IsRight(const Run& run, int call) const override {
    return MatchesReduction(elements_, Seed(run, call), AllRanks(), 0, InputView(run, call));
  }
};

// All ranks write a checkpoint of this size at once. After each run one of them begins its next
// life, and reads its own.
class JobCheckpoint : public SessionOperation {
 public:
  using SessionOperation::SessionOperation;
  Shape shape() const override { return Shape::kSaveAndCopy; }
  // Only a call after a checkpoint frees the one before it.
  int calls(const Run&) const override { return 1; }

  absl::StatusOr<bool> Verify(const Run& run) override {
    PHALANX_RETURN_IF_ERROR(MeetTwice());
    if (!HasNextLife(run)) return true;
    const uint64_t version = session().version();
    ArrayModel found;
    PHALANX_RETURN_IF_ERROR(Join(found));
    PHALANX_RETURN_IF_ERROR(MeetTwice());
    return session().version() == version && session().stats().repeated > 0 &&
           MatchesPattern(Seed(run, 0), {found.values.data(), found.values.size()}) &&
           found.values.size() == run.size;
  }

 protected:
  absl::Status Begin() override { return joined() ? absl::OkStatus() : Join(model_); }
  uint64_t bytes_of_call(const Run& run) const override { return run.size; }
  uint64_t InputBytes(const Run&) const override { return 0; }
  void Fill(const Run& run, int) override {
    model_.values.resize(run.size);
    FillPattern(Seed(run, 0), absl::MakeSpan(model_.values));
  }
  absl::Status MakeCall(const Run&, int) override { return session().Checkpoint(model_); }
  bool IsRight(const Run&, int) const override { return true; }

 private:
  ArrayModel model_;
};

// Lazy checkpoints of all ranks at once: the time of the calls alone, without the barriers between
// them. After each run one rank begins its next life, for which the others save their model.
class JobLazyCheckpoint : public SessionOperation {
 public:
  using SessionOperation::SessionOperation;
  Shape shape() const override { return Shape::kNone; }
  int calls(const Run&) const override { return kLazyCalls; }
  uint64_t bytes_moved(const Run&) const override { return 0; }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    int64_t nanos = 0;
    for (int call = 0; call < calls(run); ++call) {
      const int64_t begin = MonotonicNanos();
      PHALANX_RETURN_IF_ERROR(MakeCall(run, call));
      nanos += MonotonicNanos() - begin;
      // A checkpoint is lazy only after a call since the one before it.
      PHALANX_RETURN_IF_ERROR(session().Barrier());
    }
    return static_cast<double>(nanos) * 1e-9 / calls(run);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    const bool wrote_nothing = session().stats().checkpoint_bytes == written_;
    // After the last checkpoint there was one call in Execute.
    PHALANX_RETURN_IF_ERROR(session().Barrier());
    if (!HasNextLife(run)) {
      // The next life waits for a model, which is saved within this call.
      PHALANX_RETURN_IF_ERROR(session().Barrier());
      written_ = session().stats().checkpoint_bytes;
      return wrote_nothing;
    }
    const uint64_t version = session().version();
    ArrayModel found;
    PHALANX_RETURN_IF_ERROR(Join(found));
    PHALANX_RETURN_IF_ERROR(session().Barrier());
    PHALANX_RETURN_IF_ERROR(MeetTwice());
    written_ = session().stats().checkpoint_bytes;
    return wrote_nothing && session().version() == version && found.values == model_.values;
  }

 protected:
  absl::Status Begin() override {
    if (!joined()) PHALANX_RETURN_IF_ERROR(Join(model_));
    return session().Barrier();
  }
  uint64_t bytes_of_call(const Run&) const override { return 0; }
  uint64_t InputBytes(const Run&) const override { return 0; }
  void Fill(const Run& run, int call) override {
    if (call > 0) return;
    model_.values.resize(run.size);
    FillPattern(Seed(run, 0), absl::MakeSpan(model_.values));
  }
  absl::Status MakeCall(const Run&, int) override { return session().LazyCheckpoint(model_); }
  bool IsRight(const Run&, int) const override { return true; }

 private:
  ArrayModel model_;
  uint64_t written_ = 0;  // before this run
};

// All ranks write a local model of this size at once, beside a global one of a byte. With
// `counted`, the time runs until the copies are on the other hosts, for which the next checkpoint
// waits. After each run one rank begins its next life, and reads its own.
class JobLocalCheckpoint : public SessionOperation {
 public:
  JobLocalCheckpoint(const BenchOptions& options, std::shared_ptr<Client> client, bool counted)
      : SessionOperation(options, std::move(client)), counted_(counted) {}
  Shape shape() const override { return counted_ ? Shape::kPairTwice : Shape::kSaveAndCopy; }
  int calls(const Run&) const override { return 1; }

  absl::StatusOr<bool> Verify(const Run& run) override {
    PHALANX_RETURN_IF_ERROR(MeetTwice());
    if (!HasNextLife(run)) return true;
    const uint64_t version = session().version();
    PHALANX_RETURN_IF_ERROR(Join());
    std::string global;
    std::string local;
    PHALANX_RETURN_IF_ERROR(session().Load(global, local).status());
    PHALANX_RETURN_IF_ERROR(MeetTwice());
    return session().version() == version && global == global_ &&
           local == (counted_ ? global_ : local_);
  }
  // The copies of one run are not made beside the next one.
  absl::Status Clean(const Run&) override { return counted_ ? absl::OkStatus() : AwaitCopies(); }

 protected:
  absl::Status Begin() override {
    if (joined()) return absl::OkStatus();
    PHALANX_RETURN_IF_ERROR(Join());
    return session().Load(global_, local_).status();
  }
  // On two other hosts.
  uint64_t bytes_of_call(const Run& run) const override { return 2 * run.size; }
  uint64_t InputBytes(const Run&) const override { return 0; }
  void Fill(const Run& run, int) override {
    global_ = "m";
    local_ = Pattern(run, static_cast<uint64_t>(options_.rank));
  }
  absl::Status MakeCall(const Run&, int) override {
    PHALANX_RETURN_IF_ERROR(session().Checkpoint(global_, local_));
    return counted_ ? AwaitCopies() : absl::OkStatus();
  }
  bool IsRight(const Run&, int) const override { return true; }

 private:
  absl::Status AwaitCopies() { return session().Checkpoint(global_, global_); }

  const bool counted_;
  std::string global_;
  std::string local_;
};

}  // namespace

std::unique_ptr<Operation> MakeSessionOperation(const BenchOptions& options,
                                                std::shared_ptr<Client> client) {
  if (options.op == "job_allreduce") return std::make_unique<JobAllreduce>(options, client);
  if (options.op == "job_checkpoint") return std::make_unique<JobCheckpoint>(options, client);
  if (options.op == "job_lazy_checkpoint") {
    return std::make_unique<JobLazyCheckpoint>(options, client);
  }
  if (options.op == "job_local_checkpoint" || options.op == "job_local_counted") {
    const bool counted = options.op == "job_local_counted";
    return std::make_unique<JobLocalCheckpoint>(options, client, counted);
  }
  return nullptr;
}

}  // namespace phalanx::runtime::bench
