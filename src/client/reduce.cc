// The client's verbs for reductions.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/client.h"
#include "src/client/reduce_call.h"
#include "src/client/verb.h"

namespace phalanx {
namespace {

using internal::CheckId;
using internal::CountCall;
using internal::Refused;
using internal::StartOne;
namespace local = object_store::local;

using Ids = std::vector<ObjectId>;

struct ReducedFromCall final : public internal::FutureState<Ids> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto expected = Expect<local::Described>(answer);
    if (!expected.ok()) return Set(expected.status());
    const local::Described& described = **expected;
    // Deleted is checked first: a deleted object is not known either.
    if (described.deleted) {
      return Set(Explain(absl::StatusCode::kNotFound, "it was deleted"));
    }
    if (!described.known) {
      return Set(Explain(absl::StatusCode::kNotFound, "it does not exist"));
    }
    // The sources are final only when the target is complete: a failed node can still change them.
    if (!described.complete) {
      return Set(Explain(absl::StatusCode::kFailedPrecondition, "it is not complete"));
    }
    Set(described.reduced_from);
  }
};

}  // namespace

Future<Done> Client::Reduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                            ReduceOptions options) {
  absl::Status status = CheckId(*connection_, target);
  if (status.ok()) status = internal::CheckReduce(target, sources, options);
  if (!status.ok()) return Refused<Done>(connection_, "Reduce", target, std::move(status));
  auto call = std::make_shared<CountCall<Done>>(connection_, "Reduce", target);
  // Before the request, so that the target cannot be deleted before the client holds it.
  if (options.owned) call->HoldFirst();
  return StartOne<Done>(call, MonotonicNow() + options.timeout, [&](uint64_t request) {
    return internal::ReduceMessage(*connection_, request, target, sources, options);
  });
}

Future<Buffer> Client::AllReduce(const ObjectId& target, absl::Span<const ObjectId> sources,
                                 ReduceOptions options) {
  // With any root the target can be folded wherever it is fastest, because every participant gets a
  // copy.
  options.root = ReduceOptions::Root::kAny;
  return internal::ReduceAndGet(connection_, "AllReduce", target, sources, options,
                                /*everybody=*/true);
}

Future<Done> Client::AddSources(const ObjectId& target, absl::Span<const ObjectId> sources,
                                absl::Duration timeout) {
  absl::Status status = CheckId(*connection_, target);
  if (status.ok()) status = internal::CheckAdded(target, sources);
  if (!status.ok()) return Refused<Done>(connection_, "AddSources", target, std::move(status));
  return StartOne<Done>(
      std::make_shared<CountCall<Done>>(connection_, "AddSources", target),
      MonotonicNow() + timeout, [&](uint64_t request) {
        return local::Extend{request, target, false, timeout, Ids(sources.begin(), sources.end())};
      });
}

Future<Done> Client::CloseReduction(const ObjectId& target, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, target);
  if (!status.ok()) return Refused<Done>(connection_, "CloseReduction", target, status);
  return StartOne<Done>(std::make_shared<CountCall<Done>>(connection_, "CloseReduction", target),
                        MonotonicNow() + timeout, [&](uint64_t request) {
                          return local::Extend{request, target, true, timeout, {}};
                        });
}

Future<Ids> Client::ReducedFrom(const ObjectId& target, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, target);
  if (!status.ok()) return Refused<Ids>(connection_, "ReducedFrom", target, status);
  return StartOne<Ids>(std::make_shared<ReducedFromCall>(connection_, "ReducedFrom", target),
                       MonotonicNow() + timeout, [&](uint64_t request) {
                         return local::Stat{request, target, false, true, timeout};
                       });
}

Future<Done> Client::Fail(const ObjectId& id, const absl::Status& why, absl::Duration timeout) {
  absl::Status status = CheckId(*connection_, id);
  // OK is not an error, and consumers could not tell it from success.
  if (status.ok() && why.ok()) {
    status = absl::InvalidArgumentError(
        absl::StrCat("object ", id.hex(), " cannot fail with the code OK"));
  }
  if (!status.ok()) return Refused<Done>(connection_, "Fail", id, std::move(status));
  return StartOne<Done>(std::make_shared<CountCall<Done>>(connection_, "Fail", id),
                        MonotonicNow() + timeout, [&](uint64_t request) {
                          return local::Fail{request, id, why.code(), why.message(), timeout};
                        });
}

}  // namespace phalanx
