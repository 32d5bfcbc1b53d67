#include "src/client/ps/object_reads.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "phalanx/client.h"
#include "src/client/buffer_state.h"
#include "src/client/gather.h"
#include "src/common/ids/ids.h"
#include "src/common/slice_layout.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {

namespace local = phalanx::internal::local;
using phalanx::internal::GetCall;

namespace {

// A read that has waited for memory for so long finds the node full.
constexpr absl::Duration kWatchFor = absl::Milliseconds(100);

}  // namespace

// Without a connection nothing is answered: the owner ends with it.
void ObjectReads::Begin(uint64_t number, const ObjectId& id, uint64_t bytes) {
  if (on_read_ == nullptr || !connection().CanSend()) return;
  const uint64_t request = connection().NewRequests(1);
  reading_[request] = Reading{.number = number, .id = id};
  Send(request, id, absl::InfiniteDuration(), bytes >= kShownBytes);
}

void ObjectReads::Send(uint64_t request, const ObjectId& id, absl::Duration timeout,
                       bool by_slice) {
  GetOptions options;
  // With its owner, which has died: another one is made by the owner's next life.
  options.on_lost = GetOptions::OnLost::kFail;
  local::Get get = phalanx::internal::GetMessage(request, id, options, timeout, ObjectName());
  get.streaming = get.by_slice = by_slice;
  connection().SendPart(shared_from_this(), get, request);
}

// The connection gives back the pages of an answer that is on its way.
void ObjectReads::Cancel(uint64_t request) {
  if (connection().CanSend()) connection().Send(local::Cancel{request});
  connection().EndPart(request);
}

void ObjectReads::Drop(uint64_t number) {
  const auto found = std::find_if(reading_.begin(), reading_.end(), [number](const auto& reading) {
    return reading.second.number == number;
  });
  if (found == reading_.end()) return;
  const uint64_t request = found->first;
  Reading reading = std::move(found->second);
  reading_.erase(found);
  // First: no answer brings another view then.
  Cancel(request);
  DropView(reading);
  if (reading.watch != 0) Cancel(reading.watch);
}

// A Get that has waited for memory ends otherwise than one whose object is on its way. Both are of
// one transfer, which the end of the second one leaves alone.
void ObjectReads::Watch(const std::function<void()>& on_full) {
  if (on_read_ == nullptr || !connection().CanSend()) return;
  on_full_ = on_full;
  for (auto& [request, reading] : reading_) {
    // One that has a view has memory.
    const bool waits = std::exchange(reading.seen, true) && !reading.view.has_value();
    if (!waits || reading.watch != 0) continue;
    reading.watch = connection().NewRequests(1);
    Send(reading.watch, reading.id, kWatchFor);
  }
}

void ObjectReads::OnWatched(Readings::iterator reading, const local::Answer& answer) {
  reading->second.watch = 0;
  absl::StatusOr<Buffer> bytes = BytesOf(reading->second.id, answer);
  // It has come: the other Get ends, too.
  if (bytes.ok()) return connection().Trash(std::make_shared<Buffer>(*std::move(bytes)));
  std::optional<Instant>& since = reading->second.full_since;
  if (!absl::IsResourceExhausted(bytes.status())) return since.reset();
  const Instant now = MonotonicNow();
  if (now - since.value_or(now) < patience_) {
    if (!since.has_value()) since = now;
    return on_full_();
  }
  const uint64_t number = reading->second.number;
  Drop(number);
  on_read_(number, bytes.status(), false);
}

// A call of its own, so that an error names the object.
absl::StatusOr<Buffer> ObjectReads::BytesOf(const ObjectId& id, const local::Answer& answer) {
  GetCall call(shared_connection(), "Get", id);
  return phalanx::internal::BufferFrom(call, answer, 0, std::numeric_limits<uint64_t>::max());
}

void ObjectReads::OnAnswer(uint64_t request, const local::Answer& answer) {
  const auto watched =
      std::find_if(reading_.begin(), reading_.end(),
                   [request](const auto& reading) { return reading.second.watch == request; });
  if (watched != reading_.end()) {
    connection().EndPart(request);
    return OnWatched(watched, answer);
  }
  const auto found = reading_.find(request);
  if (found == reading_.end()) return connection().EndPart(request);
  Reading& reading = found->second;
  if (const auto* progress = std::get_if<local::Progress>(&answer)) {
    if (OnProgress(reading, *progress)) return;
  } else if (std::holds_alternative<local::Void>(answer)) {
    // Another view follows, or an error.
    return DropView(reading);
  } else if (const auto* mapped = std::get_if<local::Mapped>(&answer);
             mapped != nullptr && !mapped->final) {
    const absl::Status viewed = OnView(reading, *mapped);
    if (viewed.ok()) return;
    const uint64_t number = reading.number;
    Drop(number);
    return on_read_(number, viewed, false);
  }
  connection().EndPart(request);
  Reading ended = std::move(reading);
  reading_.erase(found);
  if (ended.watch != 0) Cancel(ended.watch);
  if (ended.view.has_value() && std::holds_alternative<local::Progress>(answer)) return End(ended);
  DropView(ended);
  absl::StatusOr<Buffer> bytes = BytesOf(ended.id, answer);
  if (!bytes.ok()) return on_read_(ended.number, bytes.status(), false);
  on_read_(ended.number, bytes->view(), false);
  // Pages are given back without the lock.
  connection().Trash(std::make_shared<Buffer>(*std::move(bytes)));
}

// The view before it was void, if there was one: all is shown again.
absl::Status ObjectReads::OnView(Reading& reading, const local::Mapped& mapped) {
  DropView(reading);
  absl::StatusOr<phalanx::internal::MappedObject> taken = connection().Take(mapped);
  if (!taken.ok()) return taken.status();
  reading.view =
      View{std::make_shared<phalanx::internal::HeldPin>(std::move(taken->pin)), taken->bytes};
  return absl::OkStatus();
}

bool ObjectReads::OnProgress(Reading& reading, const local::Progress& progress) {
  // It crosses a Void.
  if (!reading.view.has_value()) return true;
  Show(reading, progress.slices);
  return !progress.final;
}

// Slices grow each by itself. A node that shows more than there is does not make this read beyond
// the mapping.
void ObjectReads::Show(Reading& reading, const std::vector<uint64_t>& slices) {
  View& view = *reading.view;
  if (slices.empty() || slices.size() > kMaxSlices) return;
  if (view.shown.size() != slices.size()) view.shown.assign(slices.size(), 0);
  const SliceLayout layout{view.bytes.size(), static_cast<int>(slices.size())};
  for (int slice = 0; slice < layout.slices; ++slice) {
    uint64_t& shown = view.shown[static_cast<size_t>(slice)];
    const uint64_t upto = std::min(slices[static_cast<size_t>(slice)], layout.Size(slice));
    if (upto <= shown) continue;
    const uint64_t place = layout.Begin(slice) + shown;
    on_part_(reading.number, place, view.bytes.substr(place, upto - shown));
    shown = upto;
  }
}

// Without a step before the end nothing was shown.
void ObjectReads::End(Reading& reading) {
  const bool shown = !reading.view->shown.empty();
  on_read_(reading.number, reading.view->bytes, shown);
  DropView(reading);
}

// The pin's destructor takes the lock of the connection, so it cannot run here.
void ObjectReads::DropView(Reading& reading) {
  if (!reading.view.has_value()) return;
  connection().Trash(std::move(reading.view->pin));
  reading.view.reset();
}

// The connection has ended, and the member with it.
void ObjectReads::OnFailure(const absl::Status&) {
  if (done()) return;
  Stop();
  connection().Finish(*this);
}

void ObjectReads::Stop() {
  on_read_ = nullptr;
  while (!reading_.empty()) Drop(reading_.begin()->second.number);
}

}  // namespace phalanx::ps::internal
