// Operations that reduce one object of every rank.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/collectives.h"
#include "src/cli/bench/element_pattern.h"
#include "src/cli/bench/operation_base.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// The sources are put before the clock starts. With --stagger they are sealed one after the other,
// each at its instant, and the last one starts the clock.
class Reducing : public Base {
 public:
  Reducing(const BenchOptions& options, std::shared_ptr<Client> client)
      : Base(options, std::move(client)),
        elements_{options.reduction.dtype, options.reduction.op} {}

  absl::Status Prepare(const Run& run) override {
    writer_.reset();
    got_ = Buffer();
    if (!present()) return options_.reduction.spare_copies ? GetSources(run) : absl::OkStatus();
    if (options_.stagger == absl::ZeroDuration()) {
      return PutNow(Source(run, options_.rank), SourceBytes(run, options_.rank));
    }
    // Filled now, so that only the Seal is inside the clock.
    PHALANX_ASSIGN_OR_RETURN(writer_, client_->Create(Source(run, options_.rank), run.size));
    FillElements(elements_, run.seed, options_.rank, writer_->span());
    return absl::OkStatus();
  }

  absl::Status Clean(const Run& run) override {
    got_ = Buffer();
    writer_.reset();
    return present() ? DeleteNow(Source(run, options_.rank)) : absl::OkStatus();
  }

 protected:
  int sources() const { return options_.world - options_.reduction.absent; }
  bool present() const { return options_.rank < sources(); }
  int contributors() const {
    return options_.reduction.subset > 0 ? options_.reduction.subset : sources();
  }
  ObjectId Source(const Run& run, int rank) const { return Id(run, "source", rank); }
  // Includes the sources that are never put.
  std::vector<ObjectId> AllSources(const Run& run) const {
    std::vector<ObjectId> ids;
    for (int rank = 0; rank < options_.world; ++rank) ids.push_back(Source(run, rank));
    return ids;
  }
  std::string SourceBytes(const Run& run, int rank) const {
    std::string bytes(run.size, '\0');
    FillElements(elements_, run.seed, rank, absl::MakeSpan(&bytes[0], bytes.size()));
    return bytes;
  }

  ReduceOptions Arguments() const {
    ReduceOptions options;
    options.dtype = options_.reduction.dtype;
    options.op = options_.reduction.op;
    if (options_.reduction.fixed_order) options.order = ReduceOptions::Order::kFixed;
    options.num_objects = static_cast<size_t>(options_.reduction.subset);
    options.timeout = options_.timeout;
    return options;
  }

  // Gives this rank's node a copy of each source.
  absl::Status GetSources(const Run& run) {
    for (int rank = 0; rank < sources(); ++rank) {
      PHALANX_RETURN_IF_ERROR(
          client_->Get(Source(run, rank), Deadline()).Wait(options_.timeout).status());
    }
    return absl::OkStatus();
  }

  int64_t Arrival(int64_t start_nanos, int rank) const {
    return start_nanos + rank * absl::ToInt64Nanoseconds(options_.stagger);
  }
  // Seals this rank's source at its instant.
  absl::Status Arrive(int64_t start_nanos) {
    SleepUntilNanos(Arrival(start_nanos, present() ? options_.rank : 0));
    if (!writer_.has_value()) return absl::OkStatus();
    return writer_->Seal().Wait(options_.timeout).status();
  }
  double SinceLastArrival(int64_t start_nanos) const {
    return SecondsSince(Arrival(start_nanos, sources() - 1));
  }

  // Kills nodes, and puts their sources again at once unless there are spare copies.
  absl::Status KillAndPutAgain(const Run& run) {
    PHALANX_ASSIGN_OR_RETURN(const std::vector<int> ranks, run.kill_now());
    if (options_.reduction.spare_copies) return absl::OkStatus();
    for (const int rank : ranks) PHALANX_RETURN_IF_ERROR(PutAgain(run, rank));
    return absl::OkStatus();
  }

  // Until the directory knows that the node is dead, its copy is the object, and a Put drops its
  // bytes.
  absl::Status PutAgain(const Run& run, int rank) {
    PutOptions put;
    put.wait_for_adoption = true;
    PutResult result;
    do {
      PHALANX_ASSIGN_OR_RETURN(WritableBuffer again,
                               client_->Create(Source(run, rank), run.size, put));
      FillElements(elements_, run.seed, rank, again.span());
      PHALANX_ASSIGN_OR_RETURN(result, again.Seal().Wait(options_.timeout));
    } while (result.already_existed);
    return absl::OkStatus();
  }

  // Returns the ranks whose sources were reduced. Fails if their number is wrong or one occurs
  // twice.
  absl::StatusOr<std::vector<int>> ReducedRanks(const Run& run, const ObjectId& target) {
    PHALANX_ASSIGN_OR_RETURN(const std::vector<ObjectId> from,
                             client_->ReducedFrom(target).Wait(options_.timeout));
    const std::vector<ObjectId> all = AllSources(run);
    std::vector<int> ranks;
    for (int rank = 0; rank < options_.world; ++rank) {
      if (std::count(from.begin(), from.end(), all[static_cast<size_t>(rank)]) == 1) {
        ranks.push_back(rank);
      }
    }
    if (from.size() == ranks.size() && ranks.size() == static_cast<size_t>(contributors())) {
      return ranks;
    }
    return absl::InternalError(absl::StrCat(target.hex(), " was reduced from ", from.size(),
                                            " objects, not ", contributors(), " sources"));
  }

  absl::StatusOr<bool> VerifyResult(const Run& run, const ObjectId& target) {
    PHALANX_ASSIGN_OR_RETURN(const std::vector<int> ranks, ReducedRanks(run, target));
    return got_.size() == run.size && MatchesReduction(elements_, run.seed, ranks, 0, got_.view());
  }

  const Elements elements_;
  std::optional<WritableBuffer> writer_;
  Buffer got_;
};

// Rank 0 has the result on its node. The other ranks wait for an object that rank 0 puts at the
// end. They call its Get before the clock starts, so that their requests do not disturb the
// measurement.
class Reduce : public Reducing {
 public:
  using Reducing::Reducing;

  absl::Status Prepare(const Run& run) override {
    over_.reset();
    PHALANX_RETURN_IF_ERROR(Reducing::Prepare(run));
    // With a kill the other ranks do not wait, because their own node can be a victim.
    if (options_.rank != 0 && options_.faults.victims == 0)
      over_ = client_->Get(Over(run), Deadline());
    return absl::OkStatus();
  }

  Shape shape() const override { return Shape::kFoldingChain; }
  uint64_t bytes_moved(const Run& run) const override {
    return run.size * static_cast<uint64_t>(contributors() - 1);
  }
  std::vector<ObjectId> reductions(const Run& run) const override { return {Id(run, "reduced")}; }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    PHALANX_RETURN_IF_ERROR(Arrive(start_nanos));
    if (over_.has_value()) PHALANX_RETURN_IF_ERROR(over_->Wait(options_.timeout).status());
    if (options_.rank != 0) return 0;
    const ObjectId target = Id(run, "reduced");
    const Future<Done> reduced = client_->Reduce(target, AllSources(run), Arguments());
    // The Get is sent before the reduction ends, so the result is pulled while it is folded.
    const Future<Buffer> got = client_->Get(target, Deadline());
    if (run.kill) PHALANX_RETURN_IF_ERROR(KillAndPutAgain(run));
    PHALANX_RETURN_IF_ERROR(reduced.Wait(options_.timeout).status());
    PHALANX_ASSIGN_OR_RETURN(got_, got.Wait(options_.timeout));
    const double seconds = SinceLastArrival(start_nanos);
    PHALANX_RETURN_IF_ERROR(PutNow(Over(run), "over"));
    return seconds;
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    if (options_.rank != 0) return true;
    return VerifyResult(run, Id(run, "reduced"));
  }

  absl::Status Clean(const Run& run) override {
    over_.reset();
    PHALANX_RETURN_IF_ERROR(Reducing::Clean(run));
    if (options_.rank != 0) return absl::OkStatus();
    PHALANX_RETURN_IF_ERROR(DeleteNow(Over(run)));
    return DeleteNow(Id(run, "reduced"));
  }

 private:
  ObjectId Over(const Run& run) const { return Id(run, "over"); }

  std::optional<Future<Buffer>> over_;
};

// Every rank has the result on its node.
class AllReduce : public Reducing {
 public:
  using Reducing::Reducing;
  Shape shape() const override { return Shape::kRingTwice; }
  uint64_t bytes_moved(const Run& run) const override {
    return run.size * static_cast<uint64_t>(contributors() + options_.world - 2);
  }
  std::vector<ObjectId> reductions(const Run& run) const override { return {Id(run, "all")}; }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    PHALANX_RETURN_IF_ERROR(Arrive(start_nanos));
    const Future<Buffer> all = client_->AllReduce(Id(run, "all"), AllSources(run), Arguments());
    if (run.kill && options_.rank == 0) PHALANX_RETURN_IF_ERROR(KillAndPutAgain(run));
    PHALANX_ASSIGN_OR_RETURN(got_, all.Wait(options_.timeout));
    return SinceLastArrival(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override { return VerifyResult(run, Id(run, "all")); }

  absl::Status Clean(const Run& run) override {
    PHALANX_RETURN_IF_ERROR(Reducing::Clean(run));
    return options_.rank == 0 ? DeleteNow(Id(run, "all")) : absl::OkStatus();
  }
};

// Every rank has its part of the result on its node; the size is that of a source.
class ReduceScatterOperation : public Reducing {
 public:
  using Reducing::Reducing;
  Shape shape() const override { return Shape::kFoldingRing; }
  uint64_t bytes_moved(const Run& run) const override {
    return run.size * static_cast<uint64_t>(contributors() - 1);
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    PHALANX_RETURN_IF_ERROR(Arrive(start_nanos));
    std::vector<ObjectId> targets;
    for (int rank = 0; rank < options_.world; ++rank) targets.push_back(Target(run, rank));
    PHALANX_ASSIGN_OR_RETURN(
        got_, ReduceScatter(*client_, targets, AllSources(run), static_cast<size_t>(options_.rank),
                            run.size, Arguments())
                  .Wait(options_.timeout));
    return SinceLastArrival(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    const uint64_t element = ElementSize(options_.reduction.dtype);
    PHALANX_ASSIGN_OR_RETURN(const Part part,
                             PartOf(run.size, element, static_cast<size_t>(options_.world),
                                    static_cast<size_t>(options_.rank)));
    if (part.length == 0) return got_.size() == 0;
    PHALANX_ASSIGN_OR_RETURN(const std::vector<int> ranks,
                             ReducedRanks(run, Target(run, options_.rank)));
    return got_.size() == part.length &&
           MatchesReduction(elements_, run.seed, ranks, part.offset / element, got_.view());
  }

  absl::Status Clean(const Run& run) override {
    PHALANX_RETURN_IF_ERROR(Reducing::Clean(run));
    return DeleteNow(Target(run, options_.rank));
  }

 private:
  ObjectId Target(const Run& run, int rank) const { return Id(run, "scattered", rank); }
};

}  // namespace

std::unique_ptr<Operation> MakeReducingOperation(const BenchOptions& options,
                                                 std::shared_ptr<Client> client) {
  if (options.op == "reduce") return std::make_unique<Reduce>(options, client);
  if (options.op == "allreduce") return std::make_unique<AllReduce>(options, client);
  if (options.op == "reduce_scatter") {
    return std::make_unique<ReduceScatterOperation>(options, client);
  }
  return nullptr;
}

}  // namespace phalanx::runtime::bench
