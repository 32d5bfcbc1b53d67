// Groups: collectives of the members of a role.

#include "phalanx/group.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::Report;

namespace {

static_assert(PHX_UNTIL_RELEASED == phalanx::kUntilReleased);
static_assert(PHX_ON_LOSS_WAIT == static_cast<int>(phalanx::LossPolicy::kWait) &&
              PHX_ON_LOSS_EXCLUDE == static_cast<int>(phalanx::LossPolicy::kExclude) &&
              PHX_ON_LOSS_FAIL == static_cast<int>(phalanx::LossPolicy::kFail));

// A number without a name cannot be sent to the node, so no other member hears of the call.
bool Known(int dtype, int op) {
  const absl::Status known = phalanx::CheckReducible(static_cast<phalanx::DType>(dtype),
                                                     static_cast<phalanx::ReduceOp>(op));
  const bool named = dtype >= PHX_F16 && dtype <= PHX_U64 && op >= PHX_SUM && op <= PHX_MEAN;
  if (!named) Report(known);
  return named;
}

}  // namespace

phx_group* phx_group_of(const phx_member* member, const phx_group_options* options) {
  phalanx::GroupOptions to;
  if (options != nullptr) {
    if (options->on_loss < PHX_ON_LOSS_WAIT || options->on_loss > PHX_ON_LOSS_FAIL) {
      Report(absl::InvalidArgumentError("on_loss is neither wait nor exclude nor fail"));
      return nullptr;
    }
    to.on_loss = static_cast<phalanx::LossPolicy>(options->on_loss);
    to.timeout = DurationOf(options->timeout);
    to.retain = options->retain;
    if (options->retain_copies != 0) to.retain_copies = options->retain_copies;
  }
  return new phx_group{phalanx::Group(member->member, to)};
}

phx_call* phx_group_all_reduce(phx_group* group, int dtype, void* inout, uint64_t bytes, int op) {
  if (!Known(dtype, op)) return nullptr;
  return Handle(group->group.AllReduce(static_cast<phalanx::DType>(dtype), inout, bytes,
                                       static_cast<phalanx::ReduceOp>(op)));
}

phx_call* phx_group_reduce(phx_group* group, int root, int dtype, void* inout, uint64_t bytes,
                           int op) {
  if (!Known(dtype, op)) return nullptr;
  return Handle(group->group.Reduce(root, static_cast<phalanx::DType>(dtype), inout, bytes,
                                    static_cast<phalanx::ReduceOp>(op)));
}

phx_call* phx_group_reduce_scatter(phx_group* group, int dtype, const void* input,
                                   uint64_t input_bytes, void* output, uint64_t output_bytes,
                                   int op) {
  if (!Known(dtype, op)) return nullptr;
  return Handle(group->group.ReduceScatter(static_cast<phalanx::DType>(dtype), input, input_bytes,
                                           output, output_bytes,
                                           static_cast<phalanx::ReduceOp>(op)));
}

phx_call* phx_group_broadcast(phx_group* group, int root, void* inout, uint64_t bytes) {
  return Handle(group->group.Broadcast(root, inout, bytes));
}

phx_call* phx_group_all_gather(phx_group* group, const void* input, uint64_t input_bytes,
                               void* output, uint64_t output_bytes) {
  return Handle(group->group.AllGather(input, input_bytes, output, output_bytes));
}

phx_call* phx_group_all_to_all(phx_group* group, const void* input, uint64_t input_bytes,
                               void* output, uint64_t output_bytes) {
  return Handle(group->group.AllToAll(input, input_bytes, output, output_bytes));
}

phx_call* phx_group_barrier(phx_group* group) { return Handle(group->group.Barrier()); }

phx_call* phx_group_result(phx_group* group, uint64_t call, void* output, uint64_t bytes) {
  return Handle(group->group.Result(call, output, bytes));
}

void phx_group_set_keep(phx_group* group, const phx_group_keep* keep) {
  group->group.Keep({keep->boot, keep->released, keep->mark});
}

phx_call* phx_group_progress_of(phx_group* group) { return Handle(group->group.Progress()); }

uint64_t phx_group_calls(const phx_group* group) { return group->group.calls(); }

int phx_group_members_of_last_call(const phx_group* group) {
  return group->group.members_of_last_call();
}

void phx_group_free(phx_group* group) { delete group; }
