// The client's verbs for holds.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "src/client/verb.h"
#include "src/common/ids/object_name.h"
#include "src/common/io/wire.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"

namespace phalanx {
namespace {

using internal::CheckId;
namespace local = object_store::local;

static_assert(kMaxObjectReferences == kMaxReferences);
static_assert(kMaxObjectCopies == kMaxCopies);

// Sends the ids in as many messages as they need.
template <typename Message>
absl::Status PostAll(internal::Connection& connection, absl::Span<const ObjectId> ids) {
  while (!ids.empty()) {
    const absl::Span<const ObjectId> some = ids.subspan(0, kMaxReferences);
    PHALANX_RETURN_IF_ERROR(connection.Post(Message{{some.begin(), some.end()}}));
    ids.remove_prefix(some.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Client::Hold(absl::Span<const ObjectId> ids) {
  // All ids are checked first, so that a bad one leaves no partial set of holds.
  for (const ObjectId& id : ids) PHALANX_RETURN_IF_ERROR(CheckId(*connection_, id));
  return PostAll<local::Hold>(*connection_, ids);
}

Future<Done> Client::EndScope(const Scope& scope, absl::Duration timeout) {
  absl::Status status = connection_->CheckProcess();
  if (scope.empty() || !CanBeKept(scope.name)) {
    status.Update(
        absl::InvalidArgumentError("the name of a scope is UTF-8 without control characters, of 1 "
                                   "to 255 bytes"));
  }
  if (!status.ok()) {
    return internal::Refused<Done>(connection_, "EndScope", ObjectId(), std::move(status));
  }
  return internal::StartOne<Done>(
      std::make_shared<internal::CountCall<Done>>(connection_, "EndScope", ObjectId()),
      MonotonicNow() + timeout, [&](uint64_t request) {
        return local::EndScope{request, scope, timeout};
      });
}

void Client::Release(absl::Span<const ObjectId> ids) {
  // A connection that has ended holds nothing, so the error has no meaning for the caller.
  PostAll<local::Unhold>(*connection_, ids).IgnoreError();
}

absl::StatusOr<std::string> Client::Transit(const ObjectId& id) {
  PHALANX_RETURN_IF_ERROR(CheckId(*connection_, id));
  // Random, so that tokens of several processes at one node cannot collide.
  const uint64_t number = SystemRandom64();
  PHALANX_RETURN_IF_ERROR(connection_->Post(local::Transit{id, number}));
  std::string token;
  ByteWriter out(token);
  out.U64(connection_->identity().node.node);
  out.U64(connection_->identity().node.incarnation);
  out.U64(number);
  return token;
}

absl::Status Client::Hold(const ObjectId& id, absl::string_view token) {
  PHALANX_RETURN_IF_ERROR(CheckId(*connection_, id));
  ByteReader in(token);
  local::Claim claim;
  // The token names the node that keeps the reference alive, so that any node's client can claim it
  // there.
  claim.id = id;
  claim.node.node = in.U64();
  claim.node.incarnation = in.U64();
  claim.number = in.U64();
  if (!in.Finish().ok() || !claim.node.valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hold of ", id.hex(), ": ", token.size(), " bytes are not a valid token"));
  }
  return connection_->Post(claim);
}

Future<Done> Client::Keep(const ObjectId& id, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return internal::Refused<Done>(connection_, "Keep", id, status);
  return internal::StartOne<Done>(
      std::make_shared<internal::CountCall<Done>>(connection_, "Keep", id),
      MonotonicNow() + timeout, [&](uint64_t request) {
        return local::Keep{request, id, timeout};
      });
}

}  // namespace phalanx
