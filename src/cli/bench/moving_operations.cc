// Operations that move objects between ranks.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/collectives.h"
#include "src/cli/bench/operation_base.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// Rank 0 has one object, and every other rank gets it.
class Broadcast : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kChain; }
  uint64_t bytes_moved(const Run& run) const override { return run.size * (options_.world - 1); }
  std::vector<ObjectId> broadcasts(const Run& run) const override { return {Id(run, "broadcast")}; }

  absl::Status Prepare(const Run& run) override {
    got_ = Buffer();
    waiting_ = Future<Buffer>();
    if (options_.rank == 0) {
      bytes_ = Pattern(run);
      if (!options_.with_put && !options_.waiting) return PutNow(Id(run, "broadcast"), bytes_);
    } else if (options_.waiting) {
      waiting_ = client_->Get(Id(run, "broadcast"), Deadline());
      // The node has the request once it has answered a later request on the same connection.
      return client_->Contains(ObjectId::Random()).Wait(options_.timeout).status();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    if (options_.rank == 0) {
      PHALANX_ASSIGN_OR_RETURN(const double seconds, Send(run, start_nanos));
      // The other ranks receive while rank 0 kills relays.
      if (run.kill) PHALANX_RETURN_IF_ERROR(run.kill_now().status());
      return seconds;
    }
    // Rank 1 starts with the others at the agreed instant; each later rank waits longer.
    const int64_t own_start =
        start_nanos + (options_.rank - 1) * absl::ToInt64Nanoseconds(options_.stagger);
    // A receiver that called Get before the start waits already. To wake it at the start would only
    // take CPU time from the sender.
    if (!options_.waiting) {
      SleepUntilNanos(own_start);
      waiting_ = client_->Get(Id(run, "broadcast"), Deadline());
    }
    PHALANX_ASSIGN_OR_RETURN(got_, waiting_.Wait(options_.timeout));
    return SecondsSince(own_start);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    return options_.rank == 0 || (got_.size() == run.size && MatchesPattern(run.seed, got_.view()));
  }

  absl::Status Clean(const Run& run) override {
    got_ = Buffer();
    waiting_ = Future<Buffer>();
    return options_.rank == 0 ? DeleteNow(Id(run, "broadcast")) : absl::OkStatus();
  }

 private:
  absl::StatusOr<double> Send(const Run& run, int64_t start_nanos) {
    SleepUntilNanos(start_nanos);
    // The object exists already, so only the receivers' times count.
    if (!options_.with_put && !options_.waiting) return 0;
    PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "broadcast"), bytes_));
    return SecondsSince(start_nanos);
  }

  std::string bytes_;
  Buffer got_;
  Future<Buffer> waiting_;
};

// Every rank but 0 has one object, and rank 0 gets all of them.
class GatherOperation : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kStar; }
  uint64_t bytes_moved(const Run& run) const override { return run.size * (options_.world - 1); }

  absl::Status Prepare(const Run& run) override {
    if (options_.rank == 0) return absl::OkStatus();
    return PutNow(Id(run, "gather", options_.rank), Pattern(run, options_.rank));
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    if (options_.rank != 0) return 0;
    std::vector<ObjectId> ids;
    for (int rank = 1; rank < options_.world; ++rank) ids.push_back(Id(run, "gather", rank));
    PHALANX_ASSIGN_OR_RETURN(got_, Gather(*client_, ids, Deadline()).Wait(options_.timeout));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t i = 0; i < got_.size(); ++i) {
      // Rank i + 1's object, because rank 0 has none.
      if (got_[i].size() != run.size || !MatchesPattern(run.seed + i + 1, got_[i].view()))
        return false;
    }
    return options_.rank != 0 || got_.size() + 1 == static_cast<size_t>(options_.world);
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    return options_.rank == 0 ? absl::OkStatus() : DeleteNow(Id(run, "gather", options_.rank));
  }

 private:
  std::vector<Buffer> got_;
};

// Every rank is the source of one object, and gets the objects of all other ranks at once. Every
// link carries at least world - 1 objects, as in the star of bare sockets.
class BroadcastAll : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kStar; }
  uint64_t bytes_moved(const Run& run) const override {
    return run.size * options_.world * (options_.world - 1);
  }
  std::vector<ObjectId> broadcasts(const Run& run) const override {
    std::vector<ObjectId> ids;
    for (int rank = 0; rank < options_.world; ++rank) ids.push_back(Id(run, "all", rank));
    return ids;
  }

  absl::Status Prepare(const Run& run) override {
    return PutNow(Id(run, "all", options_.rank), Pattern(run, options_.rank));
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    std::vector<ObjectId> ids;
    for (int i = 1; i < options_.world; ++i) ids.push_back(Id(run, "all", Source(i)));
    PHALANX_ASSIGN_OR_RETURN(got_, client_->GetMany(ids, Deadline()).Wait(options_.timeout));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t i = 0; i < got_.size(); ++i) {
      const uint64_t seed = run.seed + Source(i + 1);
      if (got_[i].size() != run.size || !MatchesPattern(seed, got_[i].view())) return false;
    }
    return got_.size() + 1 == static_cast<size_t>(options_.world);
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    return DeleteNow(Id(run, "all", options_.rank));
  }

 private:
  // The ranks after this one, in order. So no two ranks begin with the same source.
  int Source(int i) const { return (options_.rank + i) % options_.world; }

  std::vector<Buffer> got_;
};

// Every rank has put an equal share of a whole, and gets all shares. The size is the size of the
// whole.
class AllGatherOperation : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kRing; }
  uint64_t bytes_moved(const Run& run) const override { return run.size * (options_.world - 1); }

  absl::Status Prepare(const Run& run) override {
    return PutNow(Share(run, options_.rank), SharePattern(run, options_.rank));
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    std::vector<ObjectId> ids;
    for (int rank = 0; rank < options_.world; ++rank) ids.push_back(Share(run, rank));
    PHALANX_ASSIGN_OR_RETURN(
        got_, AllGather(*client_, ids, static_cast<size_t>(options_.rank), Deadline())
                  .Wait(options_.timeout));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t rank = 0; rank < got_.size(); ++rank) {
      if (got_[rank].view() != SharePattern(run, static_cast<int>(rank))) return false;
    }
    return got_.size() == static_cast<size_t>(options_.world);
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    return DeleteNow(Share(run, options_.rank));
  }

 private:
  ObjectId Share(const Run& run, int rank) const { return Id(run, "share", rank); }
  std::string SharePattern(const Run& run, int rank) const {
    return PatternOf(run.seed + static_cast<uint64_t>(rank), ShareBytes(run, rank));
  }

  std::vector<Buffer> got_;
};

// Every rank has a part for every other rank. The size is the size of all parts of a rank,
// including the part for itself, which is not sent. The Puts are inside the clock with --with-put.
class AllToAllOperation : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kRing; }
  uint64_t bytes_moved(const Run& run) const override { return run.size * (options_.world - 1); }

  absl::Status Prepare(const Run& run) override {
    bytes_.clear();
    incoming_.clear();
    for (int i = 1; i < options_.world; ++i) {
      const int other = (options_.rank + i) % options_.world;
      bytes_.push_back(PartPattern(run, options_.rank, other));
      // In turn after this rank, so that not all ranks read from the same one first.
      incoming_.push_back(PartId(run, other, options_.rank));
      if (!options_.with_put) {
        PHALANX_RETURN_IF_ERROR(PutNow(PartId(run, options_.rank, other), bytes_.back()));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    std::vector<Outgoing> outgoing;
    // Without --with-put the list stays empty, because Prepare has put the parts.
    for (size_t i = 0; options_.with_put && i < bytes_.size(); ++i) {
      const int other = (options_.rank + static_cast<int>(i) + 1) % options_.world;
      outgoing.push_back({PartId(run, options_.rank, other), bytes_[i]});
    }
    PHALANX_ASSIGN_OR_RETURN(
        got_, AllToAll(*client_, outgoing, incoming_, Deadline()).Wait(options_.timeout));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t i = 0; i < got_.size(); ++i) {
      const int other = (options_.rank + static_cast<int>(i) + 1) % options_.world;
      if (got_[i].view() != PartPattern(run, other, options_.rank)) return false;
    }
    return got_.size() + 1 == static_cast<size_t>(options_.world);
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    for (int i = 1; i < options_.world; ++i) {
      const int other = (options_.rank + i) % options_.world;
      PHALANX_RETURN_IF_ERROR(DeleteNow(PartId(run, options_.rank, other)));
    }
    return absl::OkStatus();
  }

 private:
  ObjectId PartId(const Run& run, int from, int to) const {
    return Id(run, "part", from * options_.world + to);
  }
  std::string PartPattern(const Run& run, int from, int to) const {
    const int pair = from * options_.world + to;
    return PatternOf(run.seed + static_cast<uint64_t>(pair), ShareBytes(run, to));
  }

  std::vector<std::string> bytes_;
  std::vector<ObjectId> incoming_;
  std::vector<Buffer> got_;
};

// Rank 0 puts an object for which rank 1 waits in a Get, and rank 1 answers in the same way. The
// result is half the time of both.
class RoundTrip : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kNone; }
  uint64_t bytes_moved(const Run& run) const override { return 2 * run.size; }

  absl::Status Prepare(const Run& run) override {
    bytes_ = Pattern(run);
    if (options_.rank > 1) return absl::OkStatus();
    waiting_ = client_->Get(Id(run, options_.rank == 0 ? "pong" : "ping"), Deadline());
    // As in Broadcast: after this answer the node has the Get.
    return client_->Contains(ObjectId::Random()).Wait(options_.timeout).status();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    if (options_.rank > 1) return 0;
    SleepUntilNanos(start_nanos);
    if (options_.rank == 0) PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "ping"), bytes_));
    PHALANX_ASSIGN_OR_RETURN(got_, waiting_.Wait(options_.timeout));
    if (options_.rank == 1) {
      PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "pong"), bytes_));
      // Only rank 0 measures: both directions lie between two readings of its clock.
      return 0;
    }
    return SecondsSince(start_nanos) / 2;
  }

  absl::StatusOr<bool> Verify(const Run&) override {
    return options_.rank > 1 || got_.view() == absl::string_view(bytes_);
  }

  absl::Status Clean(const Run& run) override {
    got_ = Buffer();
    if (options_.rank > 1) return absl::OkStatus();
    // Each of the two ranks deletes the object that it has put.
    return DeleteNow(Id(run, options_.rank == 0 ? "ping" : "pong"));
  }

 private:
  std::string bytes_;
  Buffer got_;
  Future<Buffer> waiting_;
};

}  // namespace

std::unique_ptr<Operation> MakeMovingOperation(const BenchOptions& options,
                                               std::shared_ptr<Client> client) {
  if (options.op == "broadcast") return std::make_unique<Broadcast>(options, client);
  if (options.op == "broadcast_all") return std::make_unique<BroadcastAll>(options, client);
  if (options.op == "gather") return std::make_unique<GatherOperation>(options, client);
  if (options.op == "allgather") return std::make_unique<AllGatherOperation>(options, client);
  if (options.op == "all_to_all") return std::make_unique<AllToAllOperation>(options, client);
  if (options.op == "roundtrip") return std::make_unique<RoundTrip>(options, client);
  return nullptr;
}

}  // namespace phalanx::runtime::bench
