#include "src/client/ps/object_reads.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "phalanx/client.h"
#include "src/client/buffer_state.h"
#include "src/client/gather.h"
#include "src/common/time/clock.h"

namespace phalanx::ps::internal {

namespace local = phalanx::internal::local;
using phalanx::internal::GetCall;

namespace {

// A read that has waited for memory for so long finds the node full.
constexpr absl::Duration kWatchFor = absl::Milliseconds(100);

}  // namespace

// Without a connection nothing is answered: the owner ends with it.
void ObjectReads::Begin(uint64_t number, const ObjectId& id) {
  if (on_read_ == nullptr || !connection().CanSend()) return;
  const uint64_t request = connection().NewRequests(1);
  reading_[request] = {number, id};
  Send(request, id, absl::InfiniteDuration());
}

void ObjectReads::Send(uint64_t request, const ObjectId& id, absl::Duration timeout) {
  GetOptions options;
  // With its owner, which has died: another one is made by the owner's next life.
  options.on_lost = GetOptions::OnLost::kFail;
  connection().SendPart(shared_from_this(),
                        phalanx::internal::GetMessage(request, id, options, timeout, ObjectName()),
                        request);
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
  const auto [request, reading] = *found;
  reading_.erase(found);
  Cancel(request);
  if (reading.watch != 0) Cancel(reading.watch);
}

// A Get that has waited for memory ends otherwise than one whose object is on its way. Both are of
// one transfer, which the end of the second one leaves alone.
void ObjectReads::Watch(const std::function<void()>& on_full) {
  if (on_read_ == nullptr || !connection().CanSend()) return;
  on_full_ = on_full;
  for (auto& [request, reading] : reading_) {
    if (!std::exchange(reading.seen, true) || reading.watch != 0) continue;
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
  on_read_(number, bytes.status());
}

// A call of its own, so that an error names the object.
absl::StatusOr<Buffer> ObjectReads::BytesOf(const ObjectId& id, const local::Answer& answer) {
  GetCall call(shared_connection(), "Get", id);
  return phalanx::internal::BufferFrom(call, answer, 0, std::numeric_limits<uint64_t>::max());
}

void ObjectReads::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  const auto watched =
      std::find_if(reading_.begin(), reading_.end(),
                   [request](const auto& reading) { return reading.second.watch == request; });
  if (watched != reading_.end()) return OnWatched(watched, answer);
  const auto found = reading_.find(request);
  if (found == reading_.end()) return;
  const Reading read = found->second;
  reading_.erase(found);
  if (read.watch != 0) Cancel(read.watch);
  absl::StatusOr<Buffer> bytes = BytesOf(read.id, answer);
  if (!bytes.ok()) return on_read_(read.number, bytes.status());
  on_read_(read.number, bytes->view());
  // Pages are given back without the lock.
  connection().Trash(std::make_shared<Buffer>(*std::move(bytes)));
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
