// Reductions and barriers.

#include "phalanx/collectives.h"
#include "src/client/c/handles.h"

using phalanx::c::DurationOf;
using phalanx::c::Handle;
using phalanx::c::IdOf;
using phalanx::c::IdsOf;

namespace {

static_assert(PHX_U64 == static_cast<int>(phalanx::DType::kU64) &&
              PHX_F32 == static_cast<int>(phalanx::DType::kF32) &&
              phalanx::kAllDTypes.size() == PHX_U64 + 1);
static_assert(PHX_MEAN == static_cast<int>(phalanx::ReduceOp::kMean) &&
              PHX_MAX == static_cast<int>(phalanx::ReduceOp::kMax) &&
              phalanx::kAllReduceOps.size() == PHX_MEAN + 1);

phalanx::ReduceOptions OptionsOf(const phx_reduce_options* given) {
  phalanx::ReduceOptions to;
  if (given == nullptr) return to;
  const phx_reduce_options& options = *given;
  to.dtype = static_cast<phalanx::DType>(options.dtype);
  for (size_t i = 0; i < options.num_runs; ++i) {
    const phx_element_run& run = options.runs[i];
    to.runs.push_back({run.end, static_cast<phalanx::DType>(run.dtype)});
  }
  to.op = static_cast<phalanx::ReduceOp>(options.op);
  to.order = options.fixed_order != 0 ? phalanx::ReduceOptions::Order::kFixed
                                      : phalanx::ReduceOptions::Order::kArrival;
  to.num_objects = options.num_objects;
  to.open = options.open != 0;
  to.root = options.root_any != 0 ? phalanx::ReduceOptions::Root::kAny
                                  : phalanx::ReduceOptions::Root::kCaller;
  to.owned = options.owned != 0;
  to.timeout = DurationOf(options.timeout);
  to.offset = options.offset;
  to.length = options.length;
  if (options.source_metadata_size > 0) {
    to.source_metadata.assign(options.source_metadata, options.source_metadata_size);
  }
  return to;
}

}  // namespace

phx_call* phx_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                     const phx_reduce_options* options) {
  return Handle(client->client->Reduce(IdOf(target), IdsOf(sources, n), OptionsOf(options)));
}

phx_call* phx_all_reduce(phx_client* client, const char* target, const char* sources, size_t n,
                         const phx_reduce_options* options) {
  return Handle(client->client->AllReduce(IdOf(target), IdsOf(sources, n), OptionsOf(options)));
}

phx_call* phx_reduce_scatter(phx_client* client, const char* targets, const char* sources, size_t n,
                             size_t index, uint64_t bytes, const phx_reduce_options* options) {
  return Handle(phalanx::ReduceScatter(*client->client, IdsOf(targets, n), IdsOf(sources, n), index,
                                       bytes, OptionsOf(options)));
}

phx_call* phx_add_sources(phx_client* client, const char* target, const char* sources, size_t n,
                          int64_t timeout) {
  return Handle(client->client->AddSources(IdOf(target), IdsOf(sources, n), DurationOf(timeout)));
}

phx_call* phx_close_reduction(phx_client* client, const char* target, int64_t timeout) {
  return Handle(client->client->CloseReduction(IdOf(target), DurationOf(timeout)));
}

phx_call* phx_reduced_from(phx_client* client, const char* target, int64_t timeout) {
  return Handle(client->client->ReducedFrom(IdOf(target), DurationOf(timeout)));
}

phx_call* phx_fail(phx_client* client, const char* id, int code, const char* why, size_t why_size,
                   int64_t timeout) {
  return Handle(client->client->Fail(
      IdOf(id), absl::Status(static_cast<absl::StatusCode>(code), absl::string_view(why, why_size)),
      DurationOf(timeout)));
}

phx_call* phx_barrier(phx_client* client, const char* name, size_t name_size, size_t participants,
                      size_t index, int64_t timeout) {
  return Handle(phalanx::Barrier(*client->client, absl::string_view(name, name_size), participants,
                                 index, DurationOf(timeout)));
}
