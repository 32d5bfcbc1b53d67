// Session::AllreduceAsync: calls that are under way together, in the order in which they were made.
#include <utility>

#include "phalanx/spmd.h"
#include "src/client/access.h"
#include "src/client/spmd/async_calls.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"

namespace phalanx::spmd {

Future<Done> Session::AllreduceAsync(DType dtype, void* inout, uint64_t bytes, ReduceOp op,
                                     const Prepare& prepare, absl::string_view name) {
  Future<Done> made;
  const absl::Status status = state_->Run("AllreduceAsync", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(CheckReducible(dtype, op));
    PHALANX_RETURN_IF_ERROR(CountElements(dtype, bytes).status());
    if (bytes > 0) {
      PHALANX_ASSIGN_OR_RETURN(
          made, state_->CallAsync(
                    "AllreduceAsync", {internal::kNeedsAll, name, &prepare}, inout, bytes,
                    [&](const Group& group) { return group.AllReduce(dtype, inout, bytes, op); }));
    } else {
      made = internal::AsyncCalls::EndedFuture(state_->client(), absl::OkStatus());
    }
    state_->CountCall();
    return absl::OkStatus();
  });
  if (!status.ok()) return internal::AsyncCalls::EndedFuture(state_->client(), status);
  return made;
}

namespace internal {
namespace {

// The group has as many kept results under way, and more calls.
constexpr size_t kMaxAsyncCalls = 256;

}  // namespace

absl::StatusOr<Future<Done>> SessionState::CallAsync(const char* verb, const CallInfo& info,
                                                     void* output, uint64_t bytes, Make make) {
  PHALANX_RETURN_IF_ERROR(BeginCall(info.name));
  // The program changes its model when it has the result, outside of calls.
  PHALANX_RETURN_IF_ERROR(SaveLazy());
  PHALANX_RETURN_IF_ERROR(EndAsync(kMaxAsyncCalls - 1));
  if (async_ == nullptr) {
    async_ = std::make_shared<AsyncCalls>(phalanx::internal::Access::ConnectionOf(*client_));
  }
  const std::string where(Explain(verb, absl::UnknownError("")).message());
  const MadeCall call = MakeCall(info, output, bytes, make);
  return async_->Add({call.number, call.losses}, call.future, where);
}

absl::Status SessionState::EndAsync(size_t left) {
  if (async_ == nullptr) return absl::OkStatus();
  while (async_->under_way() > left && async_->over().ok()) async_->AwaitOldest();
  for (const AsyncCalls::EndedCall& call : async_->TakeEnded()) OnCallEnded(call, kNeedsAll);
  return async_->over();
}

SessionState::~SessionState() {
  // The calls would keep the member in its job.
  if (async_ != nullptr && async_->under_way() > 0) member_.Fail().IgnoreError();
}

}  // namespace internal
}  // namespace phalanx::spmd
