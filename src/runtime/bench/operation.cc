#include "src/runtime/bench/operation.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/runtime/bench/pattern.h"
#include "src/runtime/bench/rendezvous.h"

namespace phalanx::runtime::bench {
namespace {

double SecondsSince(int64_t start_nanos) { return (MonotonicNanos() - start_nanos) * 1e-9; }

// What all operations share: the client, names, patterns.
class Base : public Operation {
 public:
  Base(const BenchOptions& options, std::shared_ptr<Client> client)
      : options_(options), client_(std::move(client)) {}

 protected:
  ObjectId Id(const Run& run, absl::string_view what, int index = 0) const {
    return ObjectId::FromName(options_.session, absl::StrCat("object/", what, "/", run.size, "/",
                                                             run.number, "/", index));
  }
  std::string Pattern(const Run& run, uint64_t salt = 0) const {
    std::string bytes(run.size, '\0');
    FillPattern(run.seed + salt, absl::MakeSpan(&bytes[0], bytes.size()));
    return bytes;
  }
  GetOptions Deadline() const {
    GetOptions options;
    options.timeout = options_.timeout;
    return options;
  }
  absl::Status PutNow(const ObjectId& id, absl::string_view bytes) {
    return client_->Put(id, bytes).Wait(options_.timeout).status();
  }
  // Deleting is told to the directory and not waited for by the next run; an object that is gone
  // already is as good.
  absl::Status DeleteNow(const ObjectId& id) {
    const absl::Status status = client_->Delete(id).Wait(options_.timeout).status();
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  const BenchOptions options_;
  const std::shared_ptr<Client> client_;
};

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
      // The request is in the daemon's hands once a later one on the same connection was answered.
      return client_->Contains(ObjectId::Random()).Wait(options_.timeout).status();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    if (options_.rank == 0) return Send(run, start_nanos);
    const int64_t own_start =
        start_nanos + (options_.rank - 1) * absl::ToInt64Nanoseconds(options_.stagger);
    // Who asked before waits already; to wake it at the start would only take time from the sender.
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
    if (!options_.with_put && !options_.waiting) return 0;
    PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "broadcast"), bytes_));
    return SecondsSince(start_nanos);
  }

  std::string bytes_;
  Buffer got_;
  Future<Buffer> waiting_;
};

class Gather : public Base {
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
    PHALANX_ASSIGN_OR_RETURN(got_, client_->GetMany(ids, Deadline()).Wait(options_.timeout));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    for (size_t i = 0; i < got_.size(); ++i) {
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

// Every rank is the source of one object, and gets those of all others at once. No link carries
// less than world - 1 objects, which is what the star of bare sockets takes its time for.
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
  // The ranks after this one, in turn.
  int Source(int i) const { return (options_.rank + i) % options_.world; }

  std::vector<Buffer> got_;
};

// Rank 0 puts to a Get that waits on rank 1, which answers in the same way: half of that.
class RoundTrip : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kNone; }
  uint64_t bytes_moved(const Run& run) const override { return 2 * run.size; }

  absl::Status Prepare(const Run& run) override {
    bytes_ = Pattern(run);
    if (options_.rank > 1) return absl::OkStatus();
    waiting_ = client_->Get(Id(run, options_.rank == 0 ? "pong" : "ping"), Deadline());
    return client_->Contains(ObjectId::Random()).Wait(options_.timeout).status();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    if (options_.rank > 1) return 0;
    SleepUntilNanos(start_nanos);
    if (options_.rank == 0) PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "ping"), bytes_));
    PHALANX_ASSIGN_OR_RETURN(got_, waiting_.Wait(options_.timeout));
    if (options_.rank == 1) {
      PHALANX_RETURN_IF_ERROR(PutNow(Id(run, "pong"), bytes_));
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
    return DeleteNow(Id(run, options_.rank == 0 ? "ping" : "pong"));
  }

 private:
  std::string bytes_;
  Buffer got_;
  Future<Buffer> waiting_;
};

// Every rank on its own node: Put of one object (op put; with put_turns one rank in each run, in
// turn), or Get of one that is there (op get).
class Local : public Base {
 public:
  Local(const BenchOptions& options, std::shared_ptr<Client> client, bool put)
      : Base(options, std::move(client)), put_(put) {}
  Shape shape() const override { return put_ ? Shape::kCopy : Shape::kNone; }
  uint64_t bytes_moved(const Run& run) const override { return run.size * options_.world; }
  uint64_t count(const Run&) const override { return options_.world; }

  absl::Status Prepare(const Run& run) override {
    if (!HasTurn(run)) return absl::OkStatus();
    bytes_ = Pattern(run, options_.rank);
    return put_ ? absl::OkStatus() : PutNow(Name(run), bytes_);
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    if (!HasTurn(run)) return 0;
    SleepUntilNanos(start_nanos);
    // Nobody else is waited for, so that how late this rank woke is no part of it.
    start_nanos = MonotonicNanos();
    if (put_) {
      PHALANX_RETURN_IF_ERROR(PutNow(Name(run), bytes_));
    } else {
      PHALANX_ASSIGN_OR_RETURN(got_, client_->Get(Name(run), Deadline()).Wait(options_.timeout));
    }
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    if (!HasTurn(run)) return true;
    if (put_) {
      PHALANX_ASSIGN_OR_RETURN(got_, client_->Get(Name(run), Deadline()).Wait(options_.timeout));
    }
    return got_.view() == absl::string_view(bytes_);
  }

  absl::Status Clean(const Run& run) override {
    got_ = Buffer();
    return HasTurn(run) ? DeleteNow(Name(run)) : absl::OkStatus();
  }

 private:
  bool HasTurn(const Run& run) const {
    return options_.op != "put_turns" || run.number % options_.world == options_.rank;
  }
  ObjectId Name(const Run& run) const { return Id(run, put_ ? "put" : "get", options_.rank); }

  const bool put_;
  std::string bytes_;
  Buffer got_;
};

// Put and then Get on the own node, one object after the other: the seconds of one such pair.
class PutGet : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kNone; }
  uint64_t bytes_moved(const Run& run) const override {
    return run.size * Pairs(run) * options_.world;
  }

  absl::Status Prepare(const Run& run) override {
    bytes_ = Pattern(run, options_.rank);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    for (int i = 0; i < Pairs(run); ++i) {
      PHALANX_RETURN_IF_ERROR(PutNow(Name(run, i), bytes_));
      PHALANX_ASSIGN_OR_RETURN(Buffer got,
                               client_->Get(Name(run, i), Deadline()).Wait(options_.timeout));
      got_.push_back(std::move(got));
    }
    return SecondsSince(start_nanos) / Pairs(run);
  }

  absl::StatusOr<bool> Verify(const Run&) override {
    return std::all_of(got_.begin(), got_.end(), [this](const Buffer& got) {
      return got.view() == absl::string_view(bytes_);
    });
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    for (int i = 0; i < Pairs(run); ++i) PHALANX_RETURN_IF_ERROR(DeleteNow(Name(run, i)));
    return absl::OkStatus();
  }

 private:
  static constexpr int kPairs = 200;
  // All of them stay until the end of the run: no more than a node has room for.
  static int Pairs(const Run& run) {
    constexpr uint64_t kBytes = 512 << 20;
    return static_cast<int>(
        std::clamp<uint64_t>(kBytes / std::max<uint64_t>(run.size, 1), 1, kPairs));
  }
  ObjectId Name(const Run& run, int i) const {
    return Id(run, "put_get", options_.rank * kPairs + i);
  }

  std::string bytes_;
  std::vector<Buffer> got_;
};

// Many small objects, pipelined: every rank puts its own, then gets its neighbour's. With ops puts
// and gets only that half is inside the clock.
class Directory : public Base {
 public:
  using Base::Base;
  Shape shape() const override { return Shape::kNone; }
  uint64_t bytes_moved(const Run& run) const override { return count(run) * run.size; }
  uint64_t count(const Run&) const override {
    return uint64_t{options_.op == "directory" ? 2u : 1u} * kObjects * options_.world;
  }

  absl::Status Prepare(const Run& run) override {
    bytes_ = Pattern(run);
    got_.clear();
    got_.reserve(kObjects);
    return options_.op == "gets" ? PutAll(run) : absl::OkStatus();
  }

  absl::StatusOr<double> Execute(const Run& run, int64_t start_nanos) override {
    SleepUntilNanos(start_nanos);
    if (options_.op != "gets") PHALANX_RETURN_IF_ERROR(PutAll(run));
    if (options_.op != "puts") PHALANX_RETURN_IF_ERROR(GetAll(run));
    return SecondsSince(start_nanos);
  }

  absl::StatusOr<bool> Verify(const Run& run) override {
    if (options_.op == "puts") PHALANX_RETURN_IF_ERROR(GetAll(run));
    return got_.size() == kObjects &&
           std::all_of(got_.begin(), got_.end(),
                       [this](const Buffer& b) { return b.view() == absl::string_view(bytes_); });
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    std::deque<Future<Done>> deletes;
    for (int i = 0; i < kObjects; ++i) {
      deletes.push_back(client_->Delete(Name(run, options_.rank, i)));
      if (deletes.size() >= kOutstanding) PHALANX_RETURN_IF_ERROR(TakeFront(deletes));
    }
    while (!deletes.empty()) PHALANX_RETURN_IF_ERROR(TakeFront(deletes));
    return absl::OkStatus();
  }

 private:
  static constexpr int kObjects = 5000;
  static constexpr size_t kOutstanding = 256;

  absl::Status PutAll(const Run& run) {
    std::deque<Future<PutResult>> puts;
    for (int i = 0; i < kObjects; ++i) {
      puts.push_back(client_->Put(Name(run, options_.rank, i), bytes_));
      if (puts.size() >= kOutstanding) PHALANX_RETURN_IF_ERROR(TakeFront(puts));
    }
    while (!puts.empty()) PHALANX_RETURN_IF_ERROR(TakeFront(puts));
    return absl::OkStatus();
  }
  absl::Status GetAll(const Run& run) {
    std::deque<Future<Buffer>> gets;
    const int neighbour = (options_.rank + 1) % options_.world;
    for (int i = 0; i < kObjects; ++i) {
      gets.push_back(client_->Get(Name(run, neighbour, i), Deadline()));
      if (gets.size() >= kOutstanding) PHALANX_RETURN_IF_ERROR(KeepFront(gets));
    }
    while (!gets.empty()) PHALANX_RETURN_IF_ERROR(KeepFront(gets));
    return absl::OkStatus();
  }
  ObjectId Name(const Run& run, int rank, int i) const {
    return Id(run, "directory", rank * kObjects + i);
  }
  template <typename T>
  absl::Status TakeFront(std::deque<Future<T>>& futures) {
    const absl::Status status = futures.front().Wait(options_.timeout).status();
    futures.pop_front();
    return status;
  }
  absl::Status KeepFront(std::deque<Future<Buffer>>& gets) {
    PHALANX_ASSIGN_OR_RETURN(Buffer buffer, gets.front().Wait(options_.timeout));
    got_.push_back(std::move(buffer));
    gets.pop_front();
    return absl::OkStatus();
  }

  std::string bytes_;
  std::vector<Buffer> got_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakeOperation(const BenchOptions& options,
                                                         std::shared_ptr<Client> client) {
  const bool needs_two = options.op == "broadcast" || options.op == "broadcast_all" ||
                         options.op == "gather" || options.op == "roundtrip";
  if (needs_two && options.world < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.op, " needs --world of 2 or more, not ", options.world));
  }
  std::unique_ptr<Operation> operation;
  if (options.op == "broadcast") operation = std::make_unique<Broadcast>(options, client);
  if (options.op == "broadcast_all") operation = std::make_unique<BroadcastAll>(options, client);
  if (options.op == "gather") operation = std::make_unique<Gather>(options, client);
  if (options.op == "roundtrip") operation = std::make_unique<RoundTrip>(options, client);
  if (options.op == "put" || options.op == "put_turns") {
    operation = std::make_unique<Local>(options, client, /*put=*/true);
  }
  if (options.op == "get") operation = std::make_unique<Local>(options, client, /*put=*/false);
  if (options.op == "put_get") operation = std::make_unique<PutGet>(options, client);
  if (options.op == "directory" || options.op == "puts" || options.op == "gets") {
    operation = std::make_unique<Directory>(options, client);
  }
  if (operation == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown operation '", options.op,
                     "'; there are broadcast, broadcast_all, gather, roundtrip, put, put_turns, "
                     "get, put_get, directory, puts, gets"));
  }
  return operation;
}

}  // namespace phalanx::runtime::bench
