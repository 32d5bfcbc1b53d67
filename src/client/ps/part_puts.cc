#include "src/client/ps/part_puts.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "src/client/access.h"
#include "src/client/ps/server_objects.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"
#include "src/ps/rows/object_parts.h"

namespace phalanx::ps::internal {
namespace {

using phalanx::internal::Access;
using phalanx::internal::WriterState;

template <typename Calls>
bool AllDone(const Calls& calls) {
  return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->done(); });
}

}  // namespace

// Owned: the next life of a worker that dies pushes again.
PartPuts::PartPuts(const std::shared_ptr<phalanx::internal::Connection>& connection,
                   const WorkerCore::DensePush& push, Instant until)
    : connection_(connection), push_(push) {
  for (const WorkerCore::DensePush::Part& part : push.parts) {
    PutOptions options;
    options.owned = true;
    options.timeout = std::max(absl::ZeroDuration(), until - MonotonicNow());
    creates_.push_back(WriterState::Begin(connection, IdOfHandle(part.name), part.bytes, options));
  }
}

// Memory that was granted and not taken would stay with the node as that of an unfinished object.
PartPuts::~PartPuts() {
  Cancel(creates_);
  Cancel(seals_);
  for (const std::shared_ptr<Create>& create : creates_) {
    if (create->result.has_value() && !create->taken) WriterState::Take(*create).IgnoreError();
  }
}

template <typename Calls>
void PartPuts::Cancel(const Calls& calls) const {
  for (const auto& call : calls) {
    if (!call->done()) connection_->Cancel(*call);
  }
}

bool PartPuts::AwaitMemory(Instant until, absl::FunctionRef<bool()> stop) const {
  return connection_->WaitInsideCall([&] { return stop() || AllDone(creates_); }, until);
}

template <typename Calls>
absl::Status PartPuts::Await(const Calls& calls, Instant until,
                             absl::FunctionRef<bool()> stop) const {
  const bool in_time = connection_->WaitInsideCall([&] { return stop() || AllDone(calls); }, until);
  if (AllDone(calls)) return absl::OkStatus();
  Cancel(calls);
  return in_time ? absl::CancelledError("the worker has ended")
                 : absl::DeadlineExceededError("the node does not answer");
}

// No callback of the program runs here, as within any other call.
absl::Status PartPuts::Put(const TableSpec& spec, const Splitter& splitter, const void* values,
                           Instant until, absl::FunctionRef<bool()> stop) {
  PHALANX_RETURN_IF_ERROR(Await(creates_, until, stop));
  std::vector<std::unique_ptr<WriterState>> writers;
  for (const std::shared_ptr<Create>& create : creates_) {
    PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<WriterState> writer, WriterState::Take(*create));
    writers.push_back(std::move(writer));
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    GatherPart(spec, splitter, push_.parts[i].server, values, writers[i]->data);
    seals_.push_back(Access::StateOf(writers[i]->Seal()));
  }
  PHALANX_RETURN_IF_ERROR(Await(seals_, until, stop));
  absl::Status status;
  for (const std::shared_ptr<Seal>& seal : seals_) {
    status.Update(seal->result->status());
    if (seal->result->ok() && (*seal->result)->already_existed) {
      status.Update(absl::AlreadyExistsError("another object has its name"));
    }
  }
  return status;
}

}  // namespace phalanx::ps::internal
