#include "src/directory/core/recovery_gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace phalanx::directory {
namespace {

// A shard with very much to learn, or a node that never finishes its registration: from then on the
// requests that wait matter more than what a node may still register.
constexpr int kMaxLearningLeases = 30;

template <typename Names>
size_t BytesOf(const Names& names) {
  size_t bytes = 0;
  for (const std::string& name : names) bytes += sizeof(std::string) + name.size();
  return bytes;
}

size_t BytesOf(const v1::BroadcastRequest& request) {
  return BytesOf(request.nodes()) + BytesOf(request.mark().nodes());
}

// The one more is for the request itself, so that requests without sources are bounded, too.
size_t SizeOf(const v1::ExtendRequest& request) {
  return 1 + static_cast<size_t>(request.source_ids_size());
}

}  // namespace

RecoveryGate::RecoveryGate(const CoreContext& context)
    : context_(context),
      learning_(!context.options.first_life),
      // Either end gives up a silent stream after a lease, so a node can take that long to return.
      learn_until_(context.start + context.options.lease) {}

void RecoveryGate::ExtendTo(Instant until) { learn_until_ = std::max(learn_until_, until); }

bool RecoveryGate::Due(bool registering) const {
  if (!learning_ || context_.now < learn_until_) return false;
  // A generation that was adopted before may be in the part that has not arrived yet.
  return !registering || context_.now >= learn_until_ + kMaxLearningLeases * context_.options.lease;
}

Instant RecoveryGate::NextDeadline() const {
  // Checked often, so that a pause of the process within the lease is noticed and not counted as a
  // part of the lease.
  return learning_ ? context_.now + context_.options.lease / 4 : Instant::Infinite();
}

bool RecoveryGate::Defer(const ObjectId& id, DeferredRequest request) {
  if (num_requests_ >= context_.options.max_deferred) return false;
  const size_t bytes = BytesOf(request.names);
  // As a difference, which cannot wrap around: the bytes come from the network.
  if (bytes > context_.options.max_deferred_name_bytes - name_bytes_) return false;
  name_bytes_ += bytes;
  requests_[id].push_back(std::move(request));
  ++num_requests_;
  return true;
}

bool RecoveryGate::Defer(DeferredBroadcast broadcast) {
  const size_t bytes = BytesOf(broadcast.request);
  if (broadcasts_.size() >= context_.options.max_broadcasts) return false;
  if (bytes > context_.options.max_deferred_name_bytes - name_bytes_) return false;
  name_bytes_ += bytes;
  broadcasts_.push_back(std::move(broadcast));
  return true;
}

bool RecoveryGate::Defer(DeferredExtend extend) {
  const size_t size = SizeOf(extend.request);
  if (extend_sources_ + size > context_.options.max_deferred) return false;
  extend_sources_ += size;
  extends_.push_back(std::move(extend));
  return true;
}

std::string RecoveryGate::FullMessage(const ObjectId& id) const {
  return absl::StrCat("object ", id.hex(), ": ", num_requests_,
                      " requests wait for the end of the shard's first lease already");
}

void RecoveryGate::CancelBroadcast(const NodeKey& node, uint64_t request_id) {
  // Marked, not erased: a cancelled broadcast is carried out, and its policy stays.
  for (DeferredBroadcast& deferred : broadcasts_) {
    const bool same = deferred.node == node && deferred.request.request_id() == request_id;
    deferred.cancelled = deferred.cancelled || same;
  }
}

std::vector<DeferredRequest> RecoveryGate::TakeRequests(const ObjectId& id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  std::vector<DeferredRequest> taken = std::move(found->second);
  requests_.erase(found);
  num_requests_ -= taken.size();
  for (const DeferredRequest& request : taken) name_bytes_ -= BytesOf(request.names);
  return taken;
}

std::vector<DeferredBroadcast> RecoveryGate::TakeBroadcasts() {
  for (const DeferredBroadcast& deferred : broadcasts_) name_bytes_ -= BytesOf(deferred.request);
  return std::exchange(broadcasts_, {});
}

std::vector<DeferredExtend> RecoveryGate::TakeExtends() {
  extend_sources_ = 0;
  return std::exchange(extends_, {});
}

absl::Status RecoveryGate::CheckInvariants() const {
  if (requests_.empty() && broadcasts_.empty() && name_bytes_ != 0) {
    return absl::InternalError("the bytes of deferred node names are miscounted");
  }
  const bool empty = requests_.empty() && broadcasts_.empty() && extends_.empty();
  if (!learning_ && !empty) return absl::InternalError("requests wait at an open gate");
  return absl::OkStatus();
}

}  // namespace phalanx::directory
