#include "src/object_store/pulls/serve_waitlist.h"

#include <utility>

#include "src/common/check.h"

namespace phalanx::object_store {

void ServeWaitlist::Add(uint64_t serial, const net::ServeRequest& request,
                        net::DataPlane::ServeReply reply) {
  PHALANX_CHECK(!full(), "the owner refuses a receiver when the list is full");
  by_object_[request.object].push_back({serial, request, std::move(reply)});
  ++size_;
}

std::vector<ServeWaitlist::Waiting> ServeWaitlist::Take(
    const ObjectId& object, uint64_t expired,
    absl::FunctionRef<bool(const net::ServeRequest&)> ready) {
  std::vector<Waiting> taken;
  const auto found = by_object_.find(object);
  if (found == by_object_.end()) return taken;
  std::vector<Waiting> kept;
  // In the order of arrival, and the ones that are kept stay in it.
  for (Waiting& waiting : found->second) {
    const bool take = waiting.serial == expired || ready(waiting.request);
    (take ? taken : kept).push_back(std::move(waiting));
  }
  // The list is complete again before the caller answers: an answer can lead to a new request.
  if (kept.empty()) {
    by_object_.erase(found);
  } else {
    found->second = std::move(kept);
  }
  size_ -= taken.size();
  return taken;
}

absl::Status ServeWaitlist::CheckInvariants() const {
  size_t waiting = 0;
  for (const auto& [object, list] : by_object_) {
    if (list.empty()) return absl::InternalError("a list of waiting receivers is empty");
    waiting += list.size();
  }
  if (waiting != size_) return absl::InternalError("the number of waiting receivers is wrong");
  if (size_ > max_waiting_) return absl::InternalError("too many receivers wait");
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
