#include "src/client/reduce_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/client/buffer_state.h"
#include "src/client/verb.h"
#include "src/common/ids/ids.h"
#include "src/common/reduce_spec.h"
#include "src/common/status_macros.h"

namespace phalanx::internal {
namespace {

static_assert(kMaxReductionSources == kMaxReduceSources);

// Rejects the nil id, a duplicate, or the target among the sources.
absl::Status CheckSources(const ObjectId& target, absl::Span<const ObjectId> sources) {
  if (sources.size() > kMaxReduceSources) {
    return absl::InvalidArgumentError(
        absl::StrCat(sources.size(), " sources exceed the limit of ", kMaxReduceSources));
  }
  // Sorted once, because a reduction can have tens of thousands of sources.
  std::vector<ObjectId> sorted(sources.begin(), sources.end());
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front().nil()) {
    return absl::InvalidArgumentError("the nil id is among the sources and names no object");
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return absl::InvalidArgumentError(absl::StrCat("source ", twice->hex(), " is given twice"));
  }
  if (std::binary_search(sorted.begin(), sorted.end(), target)) {
    return absl::InvalidArgumentError("the target is among its own sources");
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const ReduceOptions& options) {
  const ElementTypes elements(options.dtype, options.runs);
  if (options.length == 0 && options.offset != 0) {
    return absl::InvalidArgumentError(absl::StrCat("offset ", options.offset, " needs a length"));
  }
  // A length of 0 means the whole object, whose size this client does not know.
  const bool whole = options.length == 0 || CheckWhole(elements, options.length).ok();
  if (options.offset % elements.Grain() != 0 || !whole) {
    return absl::InvalidArgumentError(
        absl::StrCat("the range of ", options.length, " bytes at ", options.offset,
                     " does not consist of whole elements of ", elements.Name()));
  }
  // Checked without the sum of both, which could overflow.
  if (options.offset > kMaxObjectBytes || options.length > kMaxObjectBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the range of ", options.length, " bytes at ",
                                                   options.offset, " exceeds the largest object"));
  }
  return absl::OkStatus();
}

absl::Status CheckMetadata(const ReduceOptions& options) {
  if (options.source_metadata.size() <= kMaxMetadataBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(options.source_metadata.size(),
                                                 " bytes of metadata exceed the limit of ",
                                                 kMaxMetadataBytes));
}

absl::Status CheckArguments(const ObjectId& target, absl::Span<const ObjectId> sources,
                            const ReduceOptions& options) {
  PHALANX_RETURN_IF_ERROR(CheckReducible(ElementTypes(options.dtype, options.runs), options.op));
  PHALANX_RETURN_IF_ERROR(CheckSources(target, sources));
  PHALANX_RETURN_IF_ERROR(CheckRange(options));
  PHALANX_RETURN_IF_ERROR(CheckMetadata(options));
  // An open reduction gets its sources later, so their number cannot be checked here.
  if (options.open) return absl::OkStatus();
  if (sources.empty()) return absl::InvalidArgumentError("no source is given");
  if (options.num_objects > sources.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot reduce ", options.num_objects, " of ", sources.size(), " sources"));
  }
  return absl::OkStatus();
}

// Prefixes `status` with the object.
absl::Status About(const ObjectId& target, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("reduction ", target.hex(), ": ", status.message()));
}

}  // namespace

absl::Status CheckAdded(const ObjectId& target, absl::Span<const ObjectId> sources) {
  if (!sources.empty()) return About(target, CheckSources(target, sources));
  return About(target, absl::InvalidArgumentError("no source to add is given"));
}

absl::Status CheckReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                         const ReduceOptions& options) {
  return About(target, CheckArguments(target, sources, options));
}

local::Reduce ReduceMessage(Connection& connection, uint64_t request, const ObjectId& target,
                            absl::Span<const ObjectId> sources, const ReduceOptions& options) {
  local::Reduce message;
  message.request = request;
  message.target.id = target;
  // The node knows its own key, so the message only says whether the caller wants the result there.
  message.target.root_here = options.root == ReduceOptions::Root::kCaller;
  message.target.owned = options.owned;
  message.target.name = connection.names().Find(target);
  message.timeout = options.timeout;
  ReduceSpec& spec = message.spec;
  spec.elements = ElementTypes(options.dtype, options.runs);
  spec.op = options.op;
  spec.order = options.order == ReduceOptions::Order::kFixed ? ReduceSpec::Order::kFixed
                                                             : ReduceSpec::Order::kArrival;
  spec.num_objects = static_cast<uint32_t>(options.num_objects);
  spec.open = options.open;
  spec.sources.assign(sources.begin(), sources.end());
  spec.range_offset = options.offset;
  spec.range_bytes = options.length;
  spec.source_metadata = options.source_metadata;
  return message;
}

void MakeAndGetCall::SendGet(absl::Duration timeout) {
  // The reduction can have failed before the Get is sent.
  if (done()) return;
  const uint64_t number = first_ + 1;
  local::Get get{number, id(), false, timeout, 0, UINT64_MAX};
  get.name = connection().names().Find(id());
  connection().SendPart(shared_from_this(), get, number);
}

void MakeAndGetCall::Fail(absl::Status why) {
  // The other request would create or fetch an object that no caller waits for.
  connection().CancelRequests(*this);
  Set(std::move(why));
}

void MakeAndGetCall::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  if (request == first_) {
    const bool succeeded = std::holds_alternative<local::Counted>(answer) ||
                           std::holds_alternative<local::PutDone>(answer);
    if (!succeeded) return Fail(Refusal(answer));
    made_ = true;
  } else {
    absl::StatusOr<Buffer> buffer = BufferFrom(*this, answer, 0, UINT64_MAX);
    if (!buffer.ok()) return Fail(buffer.status());
    buffer_ = *std::move(buffer);
  }
  // Both answers are needed: the Get can return an object that existed before under this id, and
  // the reduction then fails.
  if (made_ && buffer_.has_value()) Set(*std::move(buffer_));
}

namespace {

// `change` changes the message.
template <typename Change>
Future<Buffer> Begin(std::shared_ptr<Connection> connection, const char* verb,
                     const ObjectId& target, absl::Span<const ObjectId> sources,
                     const ReduceOptions& options, Change change) {
  absl::Status status = CheckId(*connection, target);
  if (status.ok()) status = CheckReduce(target, sources, options);
  if (!status.ok()) return Refused<Buffer>(connection, verb, target, std::move(status));
  auto call = std::make_shared<MakeAndGetCall>(std::move(connection), verb, target);
  if (options.owned) call->HoldFirst();
  call->Begin(options.timeout, [&](uint64_t request) {
    local::Reduce message = ReduceMessage(call->connection(), request, target, sources, options);
    change(message);
    return message;
  });
  return Future<Buffer>(std::move(call));
}

}  // namespace

Future<Buffer> ReduceAndGet(std::shared_ptr<Connection> connection, const char* verb,
                            const ObjectId& target, absl::Span<const ObjectId> sources,
                            const ReduceOptions& options, bool everybody) {
  return Begin(std::move(connection), verb, target, sources, options,
               // All of them ask for it, which the shard takes for a reason to make a ring.
               [everybody](local::Reduce& message) { message.target.everybody = everybody; });
}

Future<Buffer> RingAndGet(std::shared_ptr<Connection> connection, const char* verb,
                          const ObjectId& target, absl::Span<const ObjectId> sources,
                          const ReduceOptions& options) {
  return Begin(std::move(connection), verb, target, sources, options, [](local::Reduce& message) {
    // All members of the ring have the result.
    message.target.root_here = false;
    message.spec.order = ReduceSpec::Order::kRing;
  });
}

}  // namespace phalanx::internal
