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
    session_.reset();
    spmd::Options options;
    options.job = JobName();
    options.task = TaskName();
    options.world = options_.world;
    options.peer_timeout = options_.timeout;
    PHALANX_ASSIGN_OR_RETURN(spmd::Session session, spmd::Session::Join(*client_, options));
    session_.emplace(std::move(session));
    return session_->Load(model).status();
  }

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
    // It shows that all ranks have written theirs.
    PHALANX_RETURN_IF_ERROR(session().Barrier());
    if (run.number % options_.world != options_.rank) return true;
    const uint64_t version = session().version();
    ArrayModel found;
    PHALANX_RETURN_IF_ERROR(Join(found));
    PHALANX_RETURN_IF_ERROR(session().Barrier());
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

}  // namespace

std::unique_ptr<Operation> MakeSessionOperation(const BenchOptions& options,
                                                std::shared_ptr<Client> client) {
  if (options.op == "job_allreduce") return std::make_unique<JobAllreduce>(options, client);
  if (options.op == "job_checkpoint") return std::make_unique<JobCheckpoint>(options, client);
  return nullptr;
}

}  // namespace phalanx::runtime::bench
