#include "phalanx/collectives.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/access.h"
#include "src/client/barrier_call.h"
#include "src/client/gather.h"
#include "src/client/join_call.h"
#include "src/client/reduce_call.h"
#include "src/client/verb.h"
#include "src/common/status_macros.h"

namespace phalanx {
namespace {

using internal::Access;
using internal::JoinCall;
using internal::Refused;

using Buffers = std::vector<Buffer>;

absl::Status CheckIndex(size_t index, size_t participants) {
  if (index < participants) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("index ", index, " is not below ", participants));
}

absl::Status CheckTargets(absl::Span<const ObjectId> targets) {
  if (targets.empty()) return absl::InvalidArgumentError("no target is given");
  // Two parts cannot share an id.
  std::vector<ObjectId> sorted(targets.begin(), targets.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("target ", twice->hex(), " is given twice"));
}

template <typename T>
Future<T> RefusedBy(const Client& client, const char* verb, absl::Status why) {
  // No single object is at fault, so the verb stands in for the id in the message.
  return Refused<T>(Access::ConnectionOf(client), verb, ObjectId(),
                    absl::Status(why.code(), absl::StrCat(verb, ": ", why.message())));
}

template <typename T>
std::shared_ptr<JoinCall<T>> Join(const Client& client, const char* verb) {
  return std::make_shared<JoinCall<T>>(Access::ConnectionOf(client), verb, ObjectId());
}

// Returns the parts of all targets, or an error.
absl::StatusOr<std::vector<Part>> PartsOf(uint64_t bytes, uint64_t unit,
                                          absl::Span<const ObjectId> targets) {
  PHALANX_RETURN_IF_ERROR(CheckTargets(targets));
  std::vector<Part> parts;
  for (size_t i = 0; i < targets.size(); ++i) {
    PHALANX_ASSIGN_OR_RETURN(const Part part, PartOf(bytes, unit, targets.size(), i));
    parts.push_back(part);
  }
  return parts;
}

absl::StatusOr<Part> ReducedPart(absl::Span<const ObjectId> targets, size_t index, uint64_t bytes,
                                 const ReduceOptions& options) {
  PHALANX_RETURN_IF_ERROR(CheckTargets(targets));
  PHALANX_RETURN_IF_ERROR(CheckIndex(index, targets.size()));
  // Runs of types have no common element size to cut at.
  if (!options.runs.empty()) {
    return absl::InvalidArgumentError("parts need elements of one type");
  }
  PHALANX_RETURN_IF_ERROR(CheckReducible(options.dtype, options.op));
  if (options.offset != 0 || options.length != 0) {
    return absl::InvalidArgumentError("the index determines the range, so it cannot be set");
  }
  return PartOf(bytes, ElementSize(options.dtype), targets.size(), index);
}

}  // namespace

absl::StatusOr<Part> PartOf(uint64_t bytes, uint64_t unit, size_t parts, size_t index) {
  PHALANX_RETURN_IF_ERROR(CheckIndex(index, parts));
  if (unit == 0 || bytes % unit != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes are not a whole number of units of ", unit));
  }
  // The first `longer` parts get one unit more, so that sizes differ by at most one unit.
  const uint64_t units = bytes / unit;
  const uint64_t least = units / parts;
  const uint64_t longer = units % parts;
  const uint64_t begin = least * index + std::min<uint64_t>(index, longer);
  return Part{begin * unit, (least + (index < longer ? 1 : 0)) * unit};
}

// Only the root calls this; the other participants have put their objects and need no call.
Future<Buffers> Gather(Client& client, absl::Span<const ObjectId> ids, GetOptions options) {
  return client.GetMany(ids, options);
}

Future<Buffers> AllGather(Client& client, absl::Span<const ObjectId> ids, size_t index,
                          GetOptions options) {
  absl::Status status = CheckIndex(index, ids.size());
  for (const ObjectId& id : ids) {
    if (status.ok()) status = internal::CheckId(*Access::ConnectionOf(client), id);
  }
  if (!status.ok()) return RefusedBy<Buffers>(client, "AllGather", status);
  std::vector<ObjectId> turned(ids.begin(), ids.end());
  const size_t first = (index + 1) % ids.size();
  std::rotate(turned.begin(), turned.begin() + static_cast<ptrdiff_t>(first), turned.end());
  // Each participant reads from its neighbour, which reads the same sequence one step ahead. So
  // every link carries each object once, and no sender serves two receivers.
  const Future<Buffers> got =
      internal::GetAllOf(Access::ConnectionOf(client), turned, options, ids[first]);
  auto call = Join<Buffers>(client, "AllGather");
  call->Add(got);
  call->Begin([state = Access::StateOf(got), first] {
    Buffers buffers = **state->result;
    // The result is in the order of `ids`, the same at every participant.
    std::rotate(buffers.begin(), buffers.end() - static_cast<ptrdiff_t>(first), buffers.end());
    return buffers;
  });
  return Future<Buffers>(std::move(call));
}

Future<Done> Scatter(Client& client, absl::Span<const ObjectId> targets, absl::string_view bytes,
                     uint64_t unit, PutOptions options) {
  const auto parts = PartsOf(bytes.size(), unit, targets);
  if (!parts.ok()) return RefusedBy<Done>(client, "Scatter", parts.status());
  // The first failure cancels the Puts that have not ended.
  auto call = Join<Done>(client, "Scatter");
  for (size_t i = 0; i < targets.size(); ++i) {
    const Part& part = (*parts)[i];
    call->Add(client.Put(targets[i], bytes.substr(part.offset, part.length), options));
  }
  call->Begin([] { return Done(); });
  return Future<Done>(std::move(call));
}

Future<Buffers> AllToAll(Client& client, absl::Span<const Outgoing> outgoing,
                         absl::Span<const ObjectId> incoming, GetOptions options) {
  // The Gets go first: they wait at the node while a large Put takes its time.
  const Future<Buffers> got = client.GetMany(incoming, options);
  PutOptions put;
  put.timeout = options.timeout;
  auto call = Join<Buffers>(client, "AllToAll");
  call->Add(got);
  for (const Outgoing& part : outgoing) call->Add(client.Put(part.id, part.bytes, put));
  call->Begin([state = Access::StateOf(got)] { return **state->result; });
  return Future<Buffers>(std::move(call));
}

Future<Buffer> ReduceScatter(Client& client, absl::Span<const ObjectId> targets,
                             absl::Span<const ObjectId> sources, size_t index, uint64_t bytes,
                             ReduceOptions options) {
  const absl::StatusOr<Part> part = ReducedPart(targets, index, bytes, options);
  if (!part.ok()) return RefusedBy<Buffer>(client, "ReduceScatter", part.status());
  const ObjectId& target = targets[index];
  options.offset = part->offset;
  options.length = part->length;
  if (part->length > 0) {
    return internal::ReduceAndGet(Access::ConnectionOf(client), "ReduceScatter", target, sources,
                                  options, /*everybody=*/false);
  }
  // No element is left for this index.
  GetOptions get;
  get.timeout = options.timeout;
  const Future<PutResult> put = client.Put(target, "");
  const Future<Buffer> got = client.Get(target, get);
  auto call = Join<Buffer>(client, "ReduceScatter");
  call->Add(put);
  call->Add(got);
  call->Begin([state = Access::StateOf(got)] { return **state->result; });
  return Future<Buffer>(std::move(call));
}

ObjectId BarrierObject(const Client& client, absl::string_view name) {
  return client.Id(absl::StrCat("barrier/0/", name));
}

Future<Done> Barrier(Client& client, absl::string_view name, size_t participants, size_t index,
                     absl::Duration timeout) {
  // Checked here, because BarrierCall starts its requests without further checks.
  absl::Status status = Access::ConnectionOf(client)->CheckProcess();
  if (status.ok()) status = CheckIndex(index, participants);
  if (!status.ok()) return RefusedBy<Done>(client, "Barrier", status);
  // "barrier/0/" is the release object's, so that of index 0 has another name.
  const auto id = [&client, name](size_t i) {
    return client.Id(i == 0 ? absl::StrCat("barrier/arrived/", name)
                            : absl::StrCat("barrier/", i, "/", name));
  };
  // Index i has the children i * fan-in + 1 up to (i + 1) * fan-in, so each participant computes
  // the tree by itself.
  std::vector<ObjectId> below;
  const size_t first = index * internal::kBarrierFanIn + 1;
  for (size_t i = first; i < std::min(participants, first + internal::kBarrierFanIn); ++i) {
    below.push_back(id(i));
  }
  auto call = std::make_shared<internal::BarrierCall>(Access::ConnectionOf(client), name,
                                                      BarrierObject(client, name), index == 0,
                                                      id(index), std::move(below));
  call->Begin(timeout);
  return Future<Done>(std::move(call));
}

}  // namespace phalanx
