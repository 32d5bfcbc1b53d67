#include "src/object_store/pulls/push_manager.h"

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"

namespace phalanx::object_store {

absl::StatusOr<Copy*> PushManager::Begin(const net::ServeRequest& request) {
  const auto text = [&](absl::string_view what) {
    return absl::StrCat("node ", self_.ToString(), ": object ", request.object.ShortHex(),
                        ", generation ", request.generation.ToString(), ": ", what);
  };
  Copy* copy = table_.Find(request.object, request.generation);
  if (copy == nullptr) {
    copy = table_.First(request.object);
    // NotFound and Aborted tell the shard that the sender was reached: the pair is avoided for a
    // pause and not for a lease.
    if (copy == nullptr) return absl::NotFoundError(text("this node has no bytes of it"));
    if (!DefectActive(Defect::kNoGenerationCheck)) {
      return absl::AbortedError(
          text(absl::StrCat("this node holds generation ", copy->generation.ToString())));
    }
  }
  const int slices = copy->traits.slices;
  if (request.slices == 0 || (slices < kMaxSlices && request.slices >> slices != 0)) {
    return absl::InvalidArgumentError(text(absl::StrCat("it has ", slices, " slices")));
  }
  if (request.receiver == self_) {
    return absl::InvalidArgumentError(text("the receiver is the sender"));
  }
  // Refused and not queued: a queued push would wait for others, and a wait for another node's pull
  // could close a circle.
  if (active_ >= limits_.max_pushes) {
    return absl::ResourceExhaustedError(text(absl::StrCat(active_, " pushes already run")));
  }
  ++active_;
  table_.Pin(copy);
  return copy;
}

void PushManager::End(Copy* copy) {
  --active_;
  table_.Unpin(copy);
}

}  // namespace phalanx::object_store
