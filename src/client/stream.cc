#include <algorithm>
#include <utility>

#include "src/client/stream_state.h"
#include "src/common/status_macros.h"

namespace phalanx {

absl::StatusOr<absl::string_view> ObjectStream::Next(size_t max_bytes, absl::Duration timeout) {
  if (state_ == nullptr) return absl::FailedPreconditionError("an ObjectStream without an object");
  return state_->call->Next(max_bytes, timeout);
}

uint64_t ObjectStream::object_size() const { return state_ == nullptr ? 0 : state_->call->size(); }

absl::string_view ObjectStream::metadata() const {
  return state_ == nullptr ? absl::string_view() : state_->call->metadata();
}

namespace internal {

void StreamCall::OnAnswer(uint64_t, const local::Answer& answer) {
  if (const auto* progress = std::get_if<local::Progress>(&answer)) {
    View* view = newest();
    if (view == nullptr || progress->watermark > view->bytes.size()) return End(Unexpected());
    // Progress can arrive after the view that it belongs to was completed; the watermark never goes
    // back.
    view->watermark = std::max(view->watermark, progress->watermark);
    if (progress->final) BecomeFinal(*view);
    return;
  }
  if (const auto* voided = std::get_if<local::Void>(&answer)) {
    // The reader learns about the abort first, so the current view stays until Next has returned
    // it.
    Drop(upcoming_);
    if (current_.has_value()) void_reason_ = std::string(voided->reason);
    return;
  }
  absl::StatusOr<View> view = ViewFrom(answer);
  if (!view.ok()) return End(view.status());
  // While the reader has not seen that its view is void, the replacement waits.
  std::optional<View>& place = current_.has_value() ? upcoming_ : current_;
  place = *std::move(view);
  if (place->is_final) BecomeFinal(*place);
}

absl::StatusOr<StreamCall::View> StreamCall::ViewFrom(const local::Answer& answer) {
  View view;
  if (const auto* object = std::get_if<local::Object>(&answer)) {
    // The answer points into the receive buffer, so small objects are copied.
    view.own = std::make_shared<std::string>(object->bytes);
    view.bytes = *view.own;
    view.metadata = std::string(object->metadata);
    view.watermark = view.bytes.size();
    view.is_final = true;
    return view;
  }
  PHALANX_ASSIGN_OR_RETURN(const local::Mapped* mapped, Expect<local::Mapped>(answer));
  absl::StatusOr<MappedObject> taken = connection().Take(*mapped);
  if (!taken.ok()) return Explain(taken.status());
  view.bytes = taken->bytes;
  view.pin = std::make_shared<HeldPin>(std::move(taken->pin));
  view.metadata = std::string(mapped->metadata);
  view.watermark = std::min<uint64_t>(mapped->watermark, view.bytes.size());
  view.is_final = mapped->final;
  return view;
}

StreamCall::View* StreamCall::newest() {
  if (upcoming_.has_value()) return &*upcoming_;
  return current_.has_value() ? &*current_ : nullptr;
}

void StreamCall::BecomeFinal(View& view) {
  view.watermark = view.bytes.size();
  view.is_final = true;
  // A final view gets no more messages, so the request ends although the reader continues.
  connection().Finish(*this);
}

void StreamCall::End(absl::Status why) {
  failure_ = std::move(why);
  connection().Finish(*this);
}

void StreamCall::Drop(std::optional<View>& view) {
  if (!view.has_value()) return;
  // The pin's destructor takes the lock of the connection, so it cannot run here.
  connection().Trash(std::move(view->pin));
  view.reset();
}

bool StreamCall::HasNews() const {
  if (!failure_.ok() || void_reason_.has_value()) return true;
  return current_.has_value() && (current_->watermark > position_ || current_->is_final);
}

absl::Status StreamCall::WaitForView(Instant until) {
  const bool came =
      connection().WaitInsideCall([this] { return current_.has_value() || !failure_.ok(); }, until);
  if (came) return failure_;
  // Otherwise the node would keep a stream without a reader.
  connection().Cancel(*this);
  return Explain(absl::StatusCode::kDeadlineExceeded, "no bytes have arrived");
}

absl::StatusOr<absl::string_view> StreamCall::Next(size_t max_bytes, absl::Duration timeout) {
  const absl::Status process = connection().CheckProcess();
  if (!process.ok()) return process;
  if (!connection().WaitInsideCall([this] { return HasNews(); }, MonotonicNow() + timeout)) {
    return Explain(absl::StatusCode::kDeadlineExceeded, "no more bytes have arrived");
  }
  absl::StatusOr<absl::string_view> next = absl::string_view();
  connection().Update([this, max_bytes, &next] { next = Take(max_bytes); });
  return next;
}

absl::StatusOr<absl::string_view> StreamCall::Take(size_t max_bytes) {
  // Reported before the failure: the bytes that the reader has seen are void in either case.
  if (void_reason_.has_value()) {
    const absl::Status aborted =
        Explain(absl::StatusCode::kAborted,
                absl::StrCat("the bytes read are void, start again at 0: ", *void_reason_));
    void_reason_.reset();
    Drop(current_);
    current_ = std::exchange(upcoming_, std::nullopt);
    position_ = 0;
    return aborted;
  }
  if (!failure_.ok()) return failure_;
  const uint64_t length = std::min<uint64_t>(current_->watermark - position_, max_bytes);
  const absl::string_view bytes = current_->bytes.substr(position_, length);
  position_ += length;
  return bytes;
}

uint64_t StreamCall::size() {
  if (connection().forked()) return 0;
  uint64_t size = 0;
  // Under the lock, because an answer can replace the view at any time.
  connection().Update([this, &size] { size = current_.has_value() ? current_->bytes.size() : 0; });
  return size;
}

absl::string_view StreamCall::metadata() {
  if (connection().forked()) return {};
  absl::string_view metadata;
  connection().Update([this, &metadata] {
    if (current_.has_value()) metadata = current_->metadata;
  });
  return metadata;
}

void StreamCall::LetGo() {
  if (connection().forked()) return;
  // The Cancel goes first, so that no answer brings another view.
  connection().Cancel(*this);
  connection().Update([this] {
    Drop(current_);
    Drop(upcoming_);
  });
}

}  // namespace internal
}  // namespace phalanx
