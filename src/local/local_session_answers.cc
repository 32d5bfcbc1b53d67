// The answers of a LocalSession: grants, views, progress.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/local/local_session.h"

namespace phalanx::object_store {
namespace {

// With Get::by_slice a slice is shown as grown after such a part of the object, and not after fewer
// bytes: each step wakes the client.
constexpr uint64_t kSliceSteps = 256;
constexpr uint64_t kLeastSliceStep = 64 << 10;

// Returns how many bytes from the object's start on have arrived. Slices fill in parallel, so this
// ends in the first slice with a gap.
uint64_t Prefix(const net::TransferBuffer& buffer) {
  uint64_t prefix = 0;
  for (int slice = 0; slice < buffer.layout().slices; ++slice) {
    const uint64_t watermark = buffer.watermark(slice);
    prefix += watermark;
    if (watermark < buffer.layout().Size(slice)) break;
  }
  return prefix;
}

// Whether all bytes have arrived and will not change.
bool Final(const net::TransferBuffer& buffer) {
  return buffer.closed() && buffer.close_status().ok() && buffer.complete();
}

local::Failed NoDescriptor(uint64_t request) {
  return {
      request, absl::StatusCode::kResourceExhausted,
      "the node has no descriptor left for the object's memory: delete objects of 1 MiB and more, "
      "or raise the node's hard limit (ulimit -Hn)"};
}

}  // namespace

void LocalSession::AnswerPut(uint64_t request, const absl::StatusOr<PutResult>& result) {
  if (!result.ok()) return AnswerFailed(request, result.status());
  Answer(local::PutDone{request, result->already_existed});
}

void LocalSession::OnGrant(uint64_t request, uint64_t size, absl::StatusOr<WriteGrant> grant) {
  requests_.erase(request);
  if (!grant.ok()) return AnswerFailed(request, grant.status());
  const bool has_file = grant->block->writable_fd() >= 0;
  writes_.Open(grant->writer, grant->block, size);
  // Encoded when the socket has room: only then is it known whether the client has the file.
  out_.Add([this, request, grant = *std::move(grant), has_file](LocalOutbox::Batch& batch) {
    if (has_file) {
      switch (batch.Refer(grant.block, /*writable=*/true)) {
        case LocalOutbox::Batch::Reference::kLater:
          return false;
        case LocalOutbox::Batch::Reference::kNone:
          // A client that guesses the number can have aborted the writer before.
          writes_.Abort(grant.writer).IgnoreError();
          store_.Abort(client_, grant.writer).IgnoreError();
          batch.Add(NoDescriptor(request));
          return true;
        case LocalOutbox::Batch::Reference::kGiven:
          break;
      }
    }
    batch.Add(local::Granted{request, grant.writer, has_file, grant.block->file_id(),
                             grant.block->offset()});
    return true;
  });
  SendLater();
}

void LocalSession::OnView(const local::Get& get, absl::StatusOr<View> view) {
  if (!view.ok()) {
    requests_.erase(get.request);
    return AnswerFailed(get.request, view.status());
  }
  const uint64_t size = view->buffer->layout().object_bytes;
  // Held from here on, so that a Leave releases the pin although the answer was not sent.
  pins_.Add(view->pin);
  if (get.offset > size) {
    requests_.erase(get.request);
    ReleasePin(view->pin, true);
    return AnswerFailed(
        get.request, absl::OutOfRangeError(
                         absl::StrCat("offset ", get.offset, " of an object of ", size, " bytes")));
  }
  if (get.streaming) {
    // A later view replaces one that became void.
    EndStream(get.request);
    streams_[get.request] = Stream{view->pin, view->buffer, 0, get.by_slice};
  } else {
    requests_.erase(get.request);
  }
  out_.Add([this, get, view = *std::move(view)](LocalOutbox::Batch& batch) {
    return EncodeView(get, view, batch);
  });
  SendLater();
}

bool LocalSession::EncodeView(const local::Get& get, const View& view, LocalOutbox::Batch& batch) {
  const uint64_t size = view.buffer->layout().object_bytes;
  const uint64_t length = std::min(get.length, size - get.offset);
  const bool final = Final(*view.buffer);
  // Small objects travel in the answer, so the client needs neither a mapping nor a Release.
  if (final && length <= local::kMaxInlineAnswerBytes) {
    const absl::string_view object(view.buffer->slice(0).data(), size);
    EncodeInline(get, view, object.substr(get.offset, length), batch);
    return true;
  }
  switch (batch.Refer(view.block, /*writable=*/false)) {
    case LocalOutbox::Batch::Reference::kLater:
      return false;
    case LocalOutbox::Batch::Reference::kNone:
      EndStream(get.request);
      requests_.erase(get.request);
      ReleasePin(view.pin, true);
      batch.Add(NoDescriptor(get.request));
      return true;
    case LocalOutbox::Batch::Reference::kGiven:
      break;
  }
  const uint64_t watermark = final ? size : Prefix(*view.buffer);
  batch.Add(local::Mapped{get.request, view.pin, view.block->file_id(), view.block->offset(), size,
                          watermark, final, view.metadata});
  const auto stream = streams_.find(get.request);
  if (stream == streams_.end() || stream->second.pin != view.pin) return true;
  if (final) {
    EndStream(get.request);
    requests_.erase(get.request);
  } else {
    Subscribe(get.request, stream->second);
  }
  return true;
}

void LocalSession::EncodeInline(const local::Get& get, const View& view, absl::string_view bytes,
                                LocalOutbox::Batch& batch) {
  batch.Add(local::Object{get.request, view.buffer->layout().object_bytes, view.metadata, bytes});
  if (get.streaming) {
    EndStream(get.request);
    requests_.erase(get.request);
  }
  ReleasePin(view.pin, true);
}

void LocalSession::Subscribe(uint64_t request, Stream& stream) {
  if (stream.subscription != 0) stream.buffer->Unsubscribe(stream.subscription);
  const SliceLayout& layout = stream.buffer->layout();
  // Each of many slices takes its steps by itself. Its end is one of them.
  const uint64_t step =
      stream.by_slice ? std::max(layout.object_bytes / kSliceSteps, kLeastSliceStep) : 1;
  std::vector<uint64_t> seen;
  uint64_t slices = 0;
  for (int slice = 0; slice < layout.slices; ++slice) {
    const uint64_t watermark = stream.buffer->watermark(slice);
    const uint64_t size = layout.Size(slice);
    seen.push_back(watermark == size ? size : std::min(watermark + step, size) - 1);
    slices |= uint64_t{1} << slice;
  }
  // Each wake-up makes one answer, and the next wake-up is requested when that answer has been
  // encoded. So a client that reads slowly gets fewer and larger steps.
  auto wake = [weak = weak_from_this(), request, pin = stream.pin] {
    const std::shared_ptr<LocalSession> self = weak.lock();
    if (self != nullptr) self->StreamGrew(request, pin);
  };
  stream.subscription = stream.buffer->Subscribe(slices, seen, loop_, std::move(wake));
}

void LocalSession::StreamGrew(uint64_t request, PinId pin) {
  const auto it = streams_.find(request);
  if (it == streams_.end() || it->second.pin != pin) return;
  it->second.subscription = 0;
  out_.Add([this, request, pin](LocalOutbox::Batch& batch) {
    EncodeProgress(request, pin, batch);
    return true;
  });
  SendLater();
}

// `pin` names the view: the view can have become void in the meantime, and another one can have
// followed under the same number. The answers to both are then queued behind this one.
void LocalSession::EncodeProgress(uint64_t request, PinId pin, LocalOutbox::Batch& batch) {
  const auto it = streams_.find(request);
  if (it == streams_.end() || it->second.pin != pin || it->second.subscription != 0) return;
  const net::TransferBuffer& buffer = *it->second.buffer;
  const bool final = Final(buffer);
  local::Progress progress{request, Prefix(buffer), final};
  for (int slice = 0; it->second.by_slice && slice < buffer.layout().slices; ++slice) {
    progress.slices.push_back(buffer.watermark(slice));
  }
  batch.Add(progress);
  if (final) {
    EndStream(request);
    requests_.erase(request);
  } else if (!buffer.closed()) {
    Subscribe(request, it->second);
  }
  // A buffer that was closed for another reason is void, and the store reports that (on_void).
}

void LocalSession::EndStream(uint64_t request) {
  const auto it = streams_.find(request);
  if (it == streams_.end()) return;
  const Stream stream = std::move(it->second);
  streams_.erase(it);
  if (stream.subscription != 0) stream.buffer->Unsubscribe(stream.subscription);
}

void LocalSession::ReleasePin(PinId pin, bool recycle) {
  pins_.Remove(pin);
  // The store refuses the pin only if the client has been closed there.
  store_.Release(client_, pin, recycle).IgnoreError();
}

}  // namespace phalanx::object_store
