#include "src/client/ps/object_reads.h"

#include <algorithm>
#include <limits>

#include "phalanx/client.h"
#include "src/client/buffer_state.h"
#include "src/client/gather.h"

namespace phalanx::ps::internal {

namespace local = phalanx::internal::local;
using phalanx::internal::GetCall;

// Without a connection nothing is answered: the owner ends with it.
void ObjectReads::Begin(uint64_t number, const ObjectId& id) {
  if (on_read_ == nullptr || !connection().CanSend()) return;
  const uint64_t request = connection().NewRequests(1);
  reading_[request] = {number, id};
  GetOptions options;
  // With its owner, which has died: another one is made by the owner's next life.
  options.on_lost = GetOptions::OnLost::kFail;
  connection().SendPart(
      shared_from_this(),
      phalanx::internal::GetMessage(request, id, options, options.timeout, ObjectName()), request);
}

// The connection gives back the pages of an answer that is on its way.
void ObjectReads::Drop(uint64_t number) {
  const auto found = std::find_if(reading_.begin(), reading_.end(), [number](const auto& reading) {
    return reading.second.number == number;
  });
  if (found == reading_.end()) return;
  const uint64_t request = found->first;
  reading_.erase(found);
  if (connection().CanSend()) connection().Send(local::Cancel{request});
  connection().EndPart(request);
}

void ObjectReads::OnAnswer(uint64_t request, const local::Answer& answer) {
  connection().EndPart(request);
  const auto found = reading_.find(request);
  if (found == reading_.end()) return;
  const Reading read = found->second;
  reading_.erase(found);
  // A call of its own, so that an error names the object.
  GetCall call(shared_connection(), "Get", read.id);
  absl::StatusOr<Buffer> bytes =
      phalanx::internal::BufferFrom(call, answer, 0, std::numeric_limits<uint64_t>::max());
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
