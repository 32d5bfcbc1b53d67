// Operations of every rank on its own node, and operations of many small objects.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/bench/operation_base.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// Every rank on its own node: a Put of one object (op put; with put_turns one rank per run, in
// turn), or a Get of an existing object (op get).
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
    // No other rank takes part, so a late wake-up of this rank must not count.
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
    // A Put is verified by a Get outside the clock.
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

// A Put and a Get on the own node, one object after the other. The result is the time of one pair.
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
      // Kept, so that no Release is inside the clock.
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
  // All objects stay until the end of the run, so they are limited to what a node has room for.
  // Small sizes need many pairs to average out the clock; large ones fill the node.
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

// Many small objects, pipelined: every rank puts its own objects, and then gets its neighbour's.
// For the ops puts and gets only that half is inside the clock.
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
    // Reserved here, so that the vector does not grow inside the clock.
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
    // For puts the Gets only verify, so they are outside the clock.
    if (options_.op == "puts") PHALANX_RETURN_IF_ERROR(GetAll(run));
    return got_.size() == kObjects &&
           std::all_of(got_.begin(), got_.end(),
                       [this](const Buffer& b) { return b.view() == absl::string_view(bytes_); });
  }

  absl::Status Clean(const Run& run) override {
    got_.clear();
    std::deque<Future<Done>> deletes;
    for (int i = 0; i < kObjects; ++i) {
      // Pipelined too, or cleaning up would take longer than the run.
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
    // A neighbour's objects, so that every Get needs the directory.
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
  // The oldest call first, so that kOutstanding of them are under way all the time.
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

std::unique_ptr<Operation> MakeLocalOperation(const BenchOptions& options,
                                              std::shared_ptr<Client> client) {
  const bool put = options.op == "put" || options.op == "put_turns";
  if (put || options.op == "get") return std::make_unique<Local>(options, client, put);
  if (options.op == "put_get") return std::make_unique<PutGet>(options, client);
  if (options.op == "directory" || options.op == "puts" || options.op == "gets") {
    return std::make_unique<Directory>(options, client);
  }
  return nullptr;
}

}  // namespace phalanx::runtime::bench
