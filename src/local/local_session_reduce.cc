// Reductions of a LocalSession: its requests to the Reducer, and what a result was made of.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/io/utf8.h"
#include "src/local/local_session.h"

namespace phalanx::object_store {
namespace {

// The ids that `bytes` are, one after the other; none if they are no whole number of them.
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
          found.named,
          found.named_complete,
          found.named_without_room,
          found.named_bytes};
}

}  // namespace

bool LocalSession::AdmitReduce(uint64_t request, size_t ids) {
  if (reduce_ids_ > 0 && reduce_ids_ + ids + 1 > kMaxReduceIds) {
    AnswerFailed(request, absl::ResourceExhaustedError(absl::StrCat(
                              "this client's reductions under way name ", reduce_ids_, " objects; ",
                              ids, " more are over the limit of ", kMaxReduceIds)));
    return false;
  }
  reduce_ids_ += ids + 1;
  return true;
}

collectives::ReduceDone LocalSession::AnswerReduce(uint64_t request, size_t ids) {
  return [weak = weak_from_this(), request, ids](const absl::Status& done) {
    const std::shared_ptr<LocalSession> self = weak.lock();
    if (self == nullptr || self->state_ == State::kEnded) return;
    self->reduce_ids_ -= ids + 1;
    if (!done.ok()) return self->AnswerFailed(request, done);
    self->Answer(local::Counted{request, 0});
  };
}

absl::Status LocalSession::On(const local::Reduce& reduce) {
  if (requests_.contains(reduce.request) || reductions_.contains(reduce.request)) {
    return absl::InvalidArgumentError(absl::StrCat("request ", reduce.request, " is used twice"));
  }
  const size_t ids = reduce.spec.sources.size();
  if (!AdmitReduce(reduce.request, ids)) return absl::OkStatus();
  auto done = [weak = weak_from_this(), request = reduce.request,
               answer = AnswerReduce(reduce.request, ids)](absl::Status status) mutable {
    const std::shared_ptr<LocalSession> self = weak.lock();
    // One that was cancelled meanwhile has been accounted for.
    if (self == nullptr || self->reductions_.erase(request) == 0) return;
    answer(std::move(status));
  };
  reductions_[reduce.request] =
      Reduction{reducer_.Reduce(client_, reduce.target, reduce.spec, Deadline(reduce.timeout),
                                std::move(done)),
                ids};
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
        absl::StrCat("object ", fail.id.hex(), " was said to fail with OK"));
  }
  if (!AdmitReduce(fail.request, 0)) return absl::OkStatus();
  // The shard reads text alone.
  const std::string why =
      IsUtf8(fail.message) ? std::string(fail.message) : absl::CHexEscape(fail.message);
  reducer_.Fail(client_, fail.id, absl::Status(fail.code, why), Deadline(fail.timeout),
                AnswerReduce(fail.request, 0));
  return absl::OkStatus();
}

void LocalSession::CancelReduce(uint64_t request) {
  const auto it = reductions_.find(request);
  if (it == reductions_.end()) return;
  reducer_.Cancel(client_, it->second.id);
  reduce_ids_ -= it->second.ids + 1;
  reductions_.erase(it);
}

void LocalSession::CancelAllReduces() {
  std::vector<uint64_t> requests;
  for (const auto& [request, reduction] : reductions_) requests.push_back(request);
  std::sort(requests.begin(), requests.end());
  for (const uint64_t request : requests) CancelReduce(request);
}

void LocalSession::AnswerStat(const local::Stat& stat, const ObjectStat& found) {
  if (!stat.reduced_from) return Answer(DescribedFrom(stat.request, found));
  if (state_ != State::kOpen) return;
  out_.Add([this, request = stat.request, found](LocalOutbox::Batch& batch) {
    local::Described described = DescribedFrom(request, found);
    described.reduced_from = IdsFrom(found.reduced_from);
    --reduced_from_answers_;
    batch.Add(described);
    return true;
  });
  SendLater();
}

}  // namespace phalanx::object_store
