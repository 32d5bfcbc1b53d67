#include "src/client/ps/run_mark.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {
namespace {

// Longer than a job is remembered.
constexpr absl::Duration kMarkTtl = absl::Minutes(10);
// The mark is missed only if the hosts of all of them are gone.
constexpr int kMarkCopies = 2;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ObjectId RunMark::Id(uint64_t life) const {
  return client_->Id("phalanx.ps", absl::StrCat(server_, "/ended/", life));
}

absl::StatusOr<RunMark::Before> RunMark::Begin(absl::Duration timeout) {
  const Instant until = MonotonicNow() + timeout;
  const MutexLock lock(mutex_);
  if (!before_.has_value()) {
    PHALANX_ASSIGN_OR_RETURN(before_, Ask(until));
  }
  return *before_;
}

// Lives begin at 0 again when the job was forgotten. A mark of then would be taken for this life's.
// Its time can pass between the two calls.
absl::StatusOr<RunMark::Before> RunMark::Ask(Instant until) const {
  const auto left = [until] { return until - MonotonicNow(); };
  PHALANX_ASSIGN_OR_RETURN(const bool old, client_->Contains(Id(life_), left()).Wait());
  if (old) {
    const absl::Status deleted = client_->Delete(Id(life_)).Wait(left()).status();
    if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  }
  if (life_ == 0) return Before::kNone;
  PHALANX_ASSIGN_OR_RETURN(const bool ended, client_->Contains(Id(life_ - 1), left()).Wait());
  if (!ended) return Before::kNone;
  const std::string launch = Variable("PHALANX_LAUNCH");
  const std::string life = Variable("PHALANX_LIFE");
  if (launch.empty() || life.empty() || life == "0") return Before::kEnded;
  const absl::StatusOr<Buffer> mark = client_->Get(Id(life_ - 1), {.timeout = left()}).Wait();
  // Its time can have passed meanwhile.
  return mark.ok() && mark->view() == launch ? Before::kSpare : Before::kEnded;
}

absl::Status RunMark::End(absl::Duration timeout) {
  PutOptions options;
  options.copies = kMarkCopies;
  options.ttl = kMarkTtl;
  options.timeout = timeout;
  const std::string launch = Variable("PHALANX_SPARES").empty() ? "" : Variable("PHALANX_LAUNCH");
  return client_->Put(Id(life_), launch, options).Wait(timeout).status();
}

}  // namespace phalanx::ps::internal
