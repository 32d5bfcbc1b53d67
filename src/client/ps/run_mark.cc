#include "src/client/ps/run_mark.h"

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {
namespace {

// Longer than a job is remembered.
constexpr absl::Duration kMarkTtl = absl::Minutes(10);
// The mark is missed only if the hosts of all of them are gone.
constexpr int kMarkCopies = 2;

}  // namespace

ObjectId RunMark::Id(uint64_t life) const {
  return client_->Id("phalanx.ps", absl::StrCat(server_, "/ended/", life));
}

absl::StatusOr<bool> RunMark::Begin(absl::Duration timeout) {
  // Lives begin at 0 again when the job was forgotten. A mark of then would be taken for this
  // life's.
  PHALANX_ASSIGN_OR_RETURN(const bool old, client_->Contains(Id(life_), timeout).Wait());
  if (old) PHALANX_RETURN_IF_ERROR(client_->Delete(Id(life_)).Wait(timeout).status());
  if (life_ == 0) return false;
  return client_->Contains(Id(life_ - 1), timeout).Wait();
}

absl::Status RunMark::End(absl::Duration timeout) {
  PutOptions options;
  options.copies = kMarkCopies;
  options.ttl = kMarkTtl;
  options.timeout = timeout;
  return client_->Put(Id(life_), "", options).Wait(timeout).status();
}

}  // namespace phalanx::ps::internal
