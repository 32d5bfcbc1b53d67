#include "src/collectives/fold/fold.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::collectives {

using object_store::PutOptions;
using object_store::PutResult;
using object_store::WriteGrant;

namespace {

// A failed pull is retried after this time, and after twice as long each time.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(10);
constexpr absl::Duration kRetryAtMost = absl::Milliseconds(500);

}  // namespace

Fold::Fold(FoldOrder order, const FoldOptions& options, Host& host, Executor& control)
    : order_(std::move(order)), options_(options), host_(host), control_(control) {}

// -------------------------------------------------------------------------------------- memory

PutOptions Fold::TargetOptions() const {
  PutOptions target;
  target.id = order_.target;
  target.version = order_.version;
  // The ids stand one after the other in the object's record.
  for (const ObjectId& source : order_.reduced_from) {
    target.reduced_from.append(source.binary().data(), ObjectId::kSize);
  }
  target.owned = order_.owned;
  target.metadata = order_.metadata;
  target.asked_for = order_.asked_for;
  target.name = order_.name;
  return target;
}

// With the records, which the target counts as well: a reservation that is too small is refused.
uint64_t Fold::TargetBytes() const {
  return host_.store().CountedBytes(order_.size_bytes, TargetOptions());
}

void Fold::ReserveMemory(uint64_t bytes) {
  stage_ = Stage::kMemory;
  request_ = host_.store().ReserveScratch(
      host_.client(), order_.target, bytes, control_.Now() + options_.memory_patience,
      Guarded([this](absl::StatusOr<std::shared_ptr<object_store::Reservation>> result) {
        request_ = 0;
        if (ending()) return;
        if (!result.ok()) return Refuse(v1::FoldReport::NO_MEMORY, result.status());
        reserved_ = *std::move(result);
        OnReserved();
      }));
}

void Fold::CreateTarget(PutOptions target) {
  // The target's bytes come out of the reservation, which no other object can take.
  target.memory = reserved_;
  request_ = host_.store().Create(host_.client(), std::move(target), order_.size_bytes,
                                  Guarded([this](const absl::StatusOr<WriteGrant>& result) {
                                    request_ = 0;
                                    if (ending()) {
                                      // The grant was on its way when the request was cancelled.
                                      if (result.ok())
                                        (void)host_.store().Abort(host_.client(), result->writer);
                                      return;
                                    }
                                    if (!result.ok()) return RefuseTarget(result.status());
                                    writer_ = result->writer;
                                    OnCreated(*result);
                                  }));
}

void Fold::RefuseTarget(const absl::Status& why) {
  Refuse(absl::IsResourceExhausted(why) ? v1::FoldReport::NO_MEMORY : v1::FoldReport::DROPPED, why);
}

void Fold::Seal() {
  stage_ = Stage::kSealed;
  host_.store().Seal(
      host_.client(), std::exchange(writer_, 0), /*wait_for_adoption=*/false,
      Guarded([this](const absl::StatusOr<PutResult>& result) { OnSealed(result); }));
}

// --------------------------------------------------------------------------------------- pulls

void Fold::StartPull(Pull& pull, size_t input, net::PullSpec spec, net::DataPlane::PullDone done) {
  pull.pulling = true;
  pull.sender = spec.sender;
  pull.progress = std::make_shared<net::PullProgress>();
  spec.progress = pull.progress;
  pull.handle = host_.data_plane().StartPull(std::move(spec), std::move(done));
  AwaitConnection(pull, input);
}

void Fold::EndPull(Pull& pull) {
  pull.pulling = false;
  if (pull.connecting != 0) control_.Cancel(std::exchange(pull.connecting, 0));
}

// The pull goes on: a connection can be slow, and the shard may know no way around the sender.
void Fold::AwaitConnection(Pull& pull, size_t input) {
  const absl::Duration patience = options_.connect_patience;
  if (patience == absl::InfiniteDuration()) return;
  // The I/O loop has not begun to dial yet, or is in a later step.
  const Instant due = std::min(pull.progress->ConnectionDue(patience), control_.Now() + patience);
  pull.connecting = control_.RunAt(due, Guarded([this, &pull, input] {
                                     pull.connecting = 0;
                                     OnConnectionDue(pull, input);
                                   }));
}

void Fold::OnConnectionDue(Pull& pull, size_t input) {
  if (!pull.pulling || pull.cancelling || ending()) return;
  const absl::Duration patience = options_.connect_patience;
  const Instant due = pull.progress->ConnectionDue(patience);
  if (due.infinite()) return;
  if (due > control_.Now()) return AwaitConnection(pull, input);
  if (DefectActive(Defect::kSlowConnectNotReported)) return;
  ReportPull(pull, input,
             absl::DeadlineExceededError(
                 absl::StrCat("no connection after ", absl::FormatDuration(patience))));
}

void Fold::ReportPull(const Pull& pull, size_t input, const absl::Status& why) {
  Report(v1::FoldReport::FAILED, why, input, pull.sender);
}

void Fold::RetryLater(Pull& pull, Task again) {
  // Sixteen doublings are beyond kRetryAtMost, and the shift stays within an int.
  const int doublings = std::min(pull.failures++, 16);
  const absl::Duration wait = std::min(kRetryAfter * (1 << doublings), kRetryAtMost);
  pull.retry =
      control_.RunAt(control_.Now() + wait, Guarded([&pull, again = std::move(again)]() mutable {
                       pull.retry = 0;
                       again();
                     }));
}

void Fold::CancelRetry(Pull& pull) {
  if (pull.retry != 0) control_.Cancel(std::exchange(pull.retry, 0));
}

void Fold::Stop(Pull& pull) {
  CancelRetry(pull);
  if (!pull.pulling || std::exchange(pull.cancelling, true)) return;
  host_.data_plane().CancelPull(pull.handle);
}

void Fold::Abandon(Pull& pull) {
  CancelRetry(pull);
  if (pull.connecting != 0) control_.Cancel(std::exchange(pull.connecting, 0));
  if (pull.pulling) host_.data_plane().CancelPull(pull.handle);
}

// ----------------------------------------------------------------------------------- directory

void Fold::Report(v1::FoldReport::Kind kind, const absl::Status& why, size_t input,
                  const NodeKey& sender) {
  v1::FoldReport report;
  report.set_kind(kind);
  report.set_input(static_cast<uint32_t>(input));
  report.set_code(static_cast<int>(why.code()));
  report.set_message(std::string(why.message()));
  report.set_watermark(kind == v1::FoldReport::FAILED ? ArrivedBytes(input) : FoldedBytes());
  if (sender.valid()) directory::ToProto(sender, report.mutable_sender());
  host_.Report(order_, std::move(report));
}

void Fold::Refuse(v1::FoldReport::Kind kind, const absl::Status& why) {
  Report(kind, why);
  Drop();
}

bool Fold::ReportProgress(Instant now) {
  // A fold that waits for memory will make progress, but has none to report yet.
  if (stage_ != Stage::kFolding) return stage_ == Stage::kMemory;
  if (FoldedBytes() == reported_ || now <= reported_at_) return true;
  v1::FoldReport report = Progress(now);
  reported_ = report.watermark();
  reported_at_ = now;
  host_.Report(order_, std::move(report));
  return true;
}

v1::FoldReport Fold::Progress(Instant now) const {
  v1::FoldReport report;
  report.set_kind(v1::FoldReport::PROGRESS);
  report.set_watermark(FoldedBytes());
  const double seconds = absl::ToDoubleSeconds(now - reported_at_);
  if (seconds > 0) {
    report.set_bytes_per_second(static_cast<double>(report.watermark() - reported_) / seconds);
  }
  return report;
}

// --------------------------------------------------------------------------------------- ending

void Fold::Drop() {
  if (ending()) return;
  const Stage was = std::exchange(stage_, Stage::kEnding);
  // First, so that the host does not find an ending fold under its target and version.
  host_.Leaving(*this);
  const absl::Status why = absl::AbortedError("the fold was dropped");
  // Peers that are being sent the output get the reason. Before the pulls end: then those pushes on
  // the same loops have given the output's memory back when the fold is gone.
  host_.data_plane().AbortPushes(order_.target, order_.version.AsGeneration(), why);
  // Before the memory goes: a grant that arrives later finds an ending fold and is given back.
  if (request_ != 0) host_.store().Cancel(host_.client(), std::exchange(request_, 0));
  StopWork();
  if (writer_ != 0) (void)host_.store().Abort(host_.client(), std::exchange(writer_, 0));
  CloseOutput(was, why);
  Settle();
}

}  // namespace phalanx::collectives
