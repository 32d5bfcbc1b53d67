// Who on this node holds what, as the shards are told; and Gets of what is lost.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/object_store/store_impl.h"
#include "src/object_store/subject.h"

namespace phalanx::object_store {
namespace {

// How late the mistake is that Defect::kClaimBeforeHold makes.
constexpr absl::Duration kTooLate = absl::Seconds(1);

}  // namespace

// ------------------------------------------------------------------------- telling the shards

void Store::Impl::SendHolds(const std::vector<ObjectId>& ids, bool held) {
  std::map<int, v1::NodeMessage> by_shard;
  for (const ObjectId& id : ids) {
    const int shard = channel_.ShardOf(id);
    v1::NodeMessage& message = by_shard[shard];
    std::string* bytes = held ? message.mutable_hold()->mutable_object_ids()
                              : message.mutable_unhold()->mutable_object_ids();
    bytes->append(id.binary().data(), ObjectId::kSize);
    if (bytes->size() < kMaxReferences * ObjectId::kSize) continue;
    channel_.SendTo(shard, std::move(message));
    by_shard.erase(shard);
  }
  for (auto& [shard, message] : by_shard) channel_.SendTo(shard, std::move(message));
}

void Store::Impl::FlushHolds() {
  const HoldTable::Changes changes = holds_.TakeChanges();
  if (changes.empty()) return;
  SendHolds(changes.held, /*held=*/true);
  SendHolds(changes.unheld, /*held=*/false);
}

void Store::Impl::OnClaimed(const v1::Claimed& claimed) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(claimed.object_id());
  if (id.ok()) holds_.EndTransit(*id, claimed.number());
}

void Store::Impl::OnKept(const v1::Kept& kept) {
  const absl::StatusOr<ObjectId> id = directory::ParseObjectId(kept.object_id());
  if (!id.ok()) return;
  Copy* copy = table_.Find(*id, directory::FromProto(kept.generation()));
  if (copy != nullptr) copy->owned = false;
}

// ----------------------------------------------------------------------------- what copies hold

void Store::Impl::HoldReferences(const Copy& copy) {
  if (DefectActive(Defect::kReferencesNotHeld) && !copy.created_here) return;
  holds_.AddReferences(copy.refers_to);
}

// Another node may have told the object's shard that it has a copy, too, and the shards of what
// that refers to may not have heard of its holds yet: so ours last a little longer there. Within
// one shard's session they come in order.
void Store::Impl::LeaveReferences(const Copy& copy) {
  if (DefectActive(Defect::kReferencesNotHeld) && !copy.created_here) return;
  const Instant until = executor_.Now() + options_.reference_patience;
  absl::string_view ids = copy.refers_to;
  for (; !ids.empty(); ids.remove_prefix(ObjectId::kSize)) {
    const ObjectId id = *ObjectId::FromBinary(ids.substr(0, ObjectId::kSize));
    if (channel_.ShardOf(id) != channel_.ShardOf(copy.id)) holds_.Linger(id, until);
  }
  holds_.DropReferences(copy.refers_to);
}

absl::Status Store::Impl::CheckHolds() const {
  uint64_t references = 0;
  for (const Copy* copy : table_.Sorted()) references += copy->refers_to.size() / ObjectId::kSize;
  if (references != holds_.references() && !DefectActive(Defect::kReferencesNotHeld)) {
    return absl::InternalError(
        absl::StrCat("copies refer to ", references, " objects, and hold ", holds_.references()));
  }
  return holds_.CheckInvariants();
}

// -------------------------------------------------------------------------------- what is lost

void Store::Impl::OnLost(const ObjectId& id, absl::string_view reason) {
  if (!pulls_.Wants(id)) return;
  const absl::Status why =
      absl::DataLossError(absl::StrCat("object ", id.hex(), " is lost: ", reason));
  lost_[id] = why;
  Touch(id);
  EndAllGets(id, why, /*only_impatient=*/true);
}

// ------------------------------------------------------------------------------ public methods

absl::Status Store::Hold(ClientId client, absl::Span<const ObjectId> ids) {
  Impl::Turn turn(*impl_);
  if (impl_->FindClient(client) == nullptr) {
    return absl::InvalidArgumentError("the client is not open");
  }
  for (const ObjectId& id : ids) {
    if (id.nil()) return absl::InvalidArgumentError("the nil id names no object");
  }
  return impl_->holds_.Hold(client, ids);
}

void Store::Unhold(ClientId client, absl::Span<const ObjectId> ids) {
  Impl::Turn turn(*impl_);
  impl_->holds_.Release(client, ids);
}

void Store::UnholdAll(ClientId client) {
  Impl::Turn turn(*impl_);
  impl_->holds_.CloseClient(client);
}

bool Store::Holds(ClientId client, const ObjectId& id) const {
  return impl_->holds_.Holds(client, id);
}

void Store::Transit(const ObjectId& id, uint64_t number) {
  Impl::Turn turn(*impl_);
  if (id.nil()) return;
  impl_->holds_.Transit(id, number, impl_->executor_.Now() + impl_->options_.transit_patience);
}

absl::Status Store::Claim(ClientId client, const ObjectId& id, const TransitMark& from) {
  Impl::Turn turn(*impl_);
  const bool here = from.node == impl_->options_.self;
  if (!here && DefectActive(Defect::kClaimBeforeHold)) {
    impl_->executor_.RunAt(impl_->executor_.Now() + kTooLate, impl_->Guarded([this, client, id] {
      (void)Hold(client, {&id, 1});
    }));
  } else if (absl::Status held = Hold(client, {&id, 1}); !held.ok()) {
    return held;
  }
  if (here) {
    impl_->holds_.EndTransit(id, from.number);
    return absl::OkStatus();
  }
  impl_->FlushHolds();
  v1::NodeMessage message;
  v1::Claim* claim = message.mutable_claim();
  claim->set_object_id(IdBytes(id));
  directory::ToProto(from.node, claim->mutable_node());
  claim->set_number(from.number);
  impl_->channel_.Send(id, std::move(message));
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
