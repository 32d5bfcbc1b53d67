#include "src/cli/bench/rendezvous.h"

#include <errno.h>
#include <time.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// The number of a rank's newest objects that ranks one step behind can still need.
constexpr size_t kKeptObjects = 16;

}  // namespace

void SleepUntilNanos(int64_t instant) {
  timespec until{};
  until.tv_sec = instant / 1'000'000'000;
  until.tv_nsec = instant % 1'000'000'000;
  // An absolute instant, so that a signal does not lengthen the sleep.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

Rendezvous::Rendezvous(std::shared_ptr<Client> client, std::string session, int rank, int world,
                       absl::Duration timeout)
    : client_(std::move(client)),
      session_(std::move(session)),
      rank_(rank),
      world_(world),
      timeout_(timeout) {}

// Names contain the session, so ranks of two benchmarks never meet.
ObjectId Rendezvous::Id(const std::string& tag, int rank) const {
  return ObjectId::FromName(session_, absl::StrCat(tag, "/", rank));
}

absl::Status Rendezvous::Give(const std::string& tag, const std::string& value) {
  const ObjectId id = Id(tag, rank_);
  // One byte in front: the put object is never empty, even if the value is.
  PHALANX_RETURN_IF_ERROR(client_->Put(id, absl::StrCat("=", value)).Wait(timeout_).status());
  // Deleted later by Forget, when no rank can need it.
  given_.push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Rendezvous::Collect(const std::string& tag,
                                                             const std::string& value,
                                                             const std::vector<int>& from) {
  PHALANX_RETURN_IF_ERROR(Give(tag, value));
  std::vector<std::string> values;
  // Only rank 0 reads, so that the other ranks are silent.
  if (rank_ != 0) return values;
  std::vector<ObjectId> ids;
  for (const int rank : from) ids.push_back(Id(tag, rank));
  GetOptions options;
  options.timeout = timeout_;
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Buffer> buffers,
                           client_->GetMany(ids, options).Wait(timeout_));
  for (const Buffer& buffer : buffers) values.emplace_back(buffer.view().substr(1));
  return values;
}

absl::StatusOr<std::vector<std::string>> Rendezvous::Exchange(const std::string& tag,
                                                              const std::string& value) {
  PHALANX_RETURN_IF_ERROR(Give(tag, value));
  std::vector<ObjectId> ids;
  for (int rank = 0; rank < world_; ++rank) ids.push_back(Id(tag, rank));
  GetOptions options;
  options.timeout = timeout_;
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Buffer> buffers,
                           client_->GetMany(ids, options).Wait(timeout_));
  std::vector<std::string> values;
  for (const Buffer& buffer : buffers) values.emplace_back(buffer.view().substr(1));
  Forget();
  return values;
}

absl::StatusOr<int64_t> Rendezvous::AgreeOnStart(const std::string& tag, absl::Duration delay) {
  std::vector<int> everybody;
  for (int rank = 0; rank < world_; ++rank) everybody.push_back(rank);
  PHALANX_RETURN_IF_ERROR(Collect(absl::StrCat(tag, "/ready"), "", everybody).status());
  const ObjectId start_id = Id(absl::StrCat(tag, "/start"), 0);
  if (rank_ == 0) {
    // Rank 0 has seen every rank ready, so the instant lies in the future for all of them.
    const int64_t start = MonotonicNanos() + absl::ToInt64Nanoseconds(delay);
    PHALANX_RETURN_IF_ERROR(client_->Put(start_id, absl::StrCat(start)).Wait(timeout_).status());
    given_.push_back(start_id);
  }
  GetOptions options;
  options.timeout = timeout_;
  PHALANX_ASSIGN_OR_RETURN(const Buffer buffer, client_->Get(start_id, options).Wait(timeout_));
  int64_t start = 0;
  if (!absl::SimpleAtoi(buffer.view(), &start)) {
    return absl::InternalError("the agreed start is not a number");
  }
  return start;
}

// One object for all ranks: the store broadcasts it.
absl::Status Rendezvous::FollowRankZero(const std::string& tag) {
  if (rank_ == 0) return Give(tag, "");
  GetOptions options;
  options.timeout = timeout_;
  return client_->Get(Id(tag, 0), options).Wait(timeout_).status();
}

void Rendezvous::Forget() {
  while (given_.size() > kKeptObjects) {
    // A callback instead of a wait, because the next run must not wait for a Delete.
    client_->Delete(given_.front()).OnReady([](const absl::StatusOr<Done>&) {});
    given_.erase(given_.begin());
  }
}

}  // namespace phalanx::runtime::bench
