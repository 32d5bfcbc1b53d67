// Reductions of a LocalSession: its requests to the Reducer, and the sources of a result.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/utf8.h"
#include "src/common/status_macros.h"
#include "src/local/local_session.h"

namespace phalanx::object_store {
namespace {

// Returns the ids that `bytes` consist of, or none if there are more than a reduction can have.
std::vector<ObjectId> IdsFrom(absl::string_view bytes) {
  std::vector<ObjectId> ids;
  if (bytes.size() > kMaxReduceSources * ObjectId::kSize) return ids;
  for (; bytes.size() >= ObjectId::kSize; bytes.remove_prefix(ObjectId::kSize)) {
    ids.push_back(*ObjectId::FromBinary(bytes.substr(0, ObjectId::kSize)));
  }
  return ids;
}

local::Described DescribedFrom(uint64_t request, const ObjectStat& found) {
  return {request,
          found.known,
          found.deleted,
          found.complete,
          found.local_complete,
          found.size_bytes,
          found.complete_copies,
          found.partial_copies,
          found.waiting,
          found.conflicts,
          found.metadata,
          {},
          found.owned,
          found.holders,
          found.sticky,
          found.name,
          found.ttl,
          found.named,
          found.named_complete,
          found.named_without_room,
          found.named_bytes,
          found.copies_wanted,
          found.copies_there};
}

}  // namespace

bool LocalSession::AdmitReduce(uint64_t request, size_t ids) {
  const absl::Status admitted = reductions_.Admit(ids);
  if (!admitted.ok()) AnswerFailed(request, admitted);
  return admitted.ok();
}

collectives::ReduceDone LocalSession::AnswerReduce(uint64_t request, size_t ids) {
  return [weak = weak_from_this(), request, ids](const absl::Status& done) {
    const std::shared_ptr<LocalSession> self = weak.lock();
    // The reducer can answer after the session has ended.
    if (self == nullptr || self->state_ == State::kEnded) return;
    self->reductions_.Answered(ids);
    if (!done.ok()) return self->AnswerFailed(request, done);
    self->Answer(local::Counted{request, 0});
  };
}

absl::Status LocalSession::On(const local::Reduce& reduce) {
  if (requests_.contains(reduce.request) || reductions_.Contains(reduce.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", reduce.request, " is used twice"));
  }
  PHALANX_RETURN_IF_ERROR(CheckName(reduce.target.name, reduce.target.id));
  const size_t ids = reduce.spec.sources.size();
  if (!AdmitReduce(reduce.request, ids)) return absl::OkStatus();
  auto done = [weak = weak_from_this(), request = reduce.request,
               answer = AnswerReduce(reduce.request, ids)](absl::Status status) mutable {
    const std::shared_ptr<LocalSession> self = weak.lock();
    // A Reduce that was cancelled in the meantime is not counted any more.
    if (self == nullptr || !self->reductions_.Remove(request)) return;
    answer(std::move(status));
  };
  const RequestId id = reducer_.Reduce(client_, reduce.target, reduce.spec,
                                       Deadline(reduce.timeout), std::move(done));
  reductions_.Add(reduce.request, id, ids);
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Extend& extend) {
  const size_t ids = extend.sources.size();
  if (!AdmitReduce(extend.request, ids)) return absl::OkStatus();
  reducer_.Extend(client_, extend.target, extend.sources, extend.close, Deadline(extend.timeout),
                  AnswerReduce(extend.request, ids));
  return absl::OkStatus();
}

absl::Status LocalSession::On(const local::Fail& fail) {
  if (fail.code == absl::StatusCode::kOk) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", fail.id.hex(), " cannot fail with the code OK"));
  }
  if (!AdmitReduce(fail.request, 0)) return absl::OkStatus();
  // The text goes to the shard in a protobuf string, which must be UTF-8.
  const std::string why =
      IsUtf8(fail.message) ? std::string(fail.message) : absl::CHexEscape(fail.message);
  reducer_.Fail(client_, fail.id, absl::Status(fail.code, why), Deadline(fail.timeout),
                AnswerReduce(fail.request, 0));
  return absl::OkStatus();
}

void LocalSession::CancelReduce(uint64_t request) {
  const std::optional<RequestId> id = reductions_.Cancel(request);
  if (id.has_value()) reducer_.Cancel(client_, *id);
}

void LocalSession::AnswerStat(const local::Stat& stat, const ObjectStat& found) {
  if (!stat.reduced_from) return Answer(DescribedFrom(stat.request, found));
  if (state_ != State::kOpen) return;
  // Encoded when the socket has room: until then the answer holds its many ids only once.
  out_.Add([this, request = stat.request, found](LocalOutbox::Batch& batch) {
    local::Described described = DescribedFrom(request, found);
    described.reduced_from = IdsFrom(found.reduced_from);
    reductions_.SourcesAnswered();
    batch.Add(described);
    return true;
  });
  SendLater();
}

}  // namespace phalanx::object_store
