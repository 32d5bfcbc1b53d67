#include "src/object_store/channel/hold_reporter.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store {
namespace {

// How late the mistakes are that defects make.
constexpr absl::Duration kFlushTooLate = absl::Milliseconds(100);
constexpr absl::Duration kHoldTooLate = absl::Seconds(1);

}  // namespace

HoldReporter::HoldReporter(const StoreOptions& options, Executor& executor, ShardChannel& channel,
                           Turns& turns, const RequestTable& clients)
    : options_(options),
      executor_(executor),
      channel_(channel),
      turns_(turns),
      clients_(clients),
      table_({options.max_holds_per_client, options.max_transits}) {}

// ------------------------------------------------------------------------------- the shards

void HoldReporter::Send(const std::vector<ObjectId>& ids, bool held) {
  std::map<int, v1::NodeMessage> by_shard;
  for (const ObjectId& id : ids) {
    const int shard = channel_.ShardOf(id);
    v1::NodeMessage& message = by_shard[shard];
    std::string* bytes = held ? message.mutable_hold()->mutable_object_ids()
                              : message.mutable_unhold()->mutable_object_ids();
    bytes->append(id.binary().data(), ObjectId::kSize);
    // A shard refuses longer lists.
    if (bytes->size() < kMaxReferences * ObjectId::kSize) continue;
    channel_.SendTo(shard, std::move(message));
    by_shard.erase(shard);
  }
  for (auto& [shard, message] : by_shard) channel_.SendTo(shard, std::move(message));
}

void HoldReporter::Flush() {
  // Most turns change no hold.
  if (!table_.changed() && claims_.empty()) return;
  const HoldTable::Changes changes = table_.TakeChanges();
  // Holds before releases: an object that is held now can be one that a released object refers to.
  Send(changes.held, /*held=*/true);
  // A claim ends the reference in transit: our own hold must be known before.
  SendClaims();
  Send(changes.unheld, /*held=*/false);
}

void HoldReporter::SendClaims() {
  // By shard and by the node that the references come from.
  std::map<std::pair<int, NodeKey>, v1::NodeMessage> messages;
  for (const PendingClaim& pending : std::exchange(claims_, {})) {
    const int shard = channel_.ShardOf(pending.id);
    const auto message = messages.try_emplace({shard, pending.from.node}).first;
    v1::Claim& claim = *message->second.mutable_claim();
    claim.mutable_object_ids()->append(pending.id.binary().data(), ObjectId::kSize);
    claim.add_numbers(pending.from.number);
    if (claim.numbers_size() == 1) directory::ToProto(pending.from.node, claim.mutable_node());
    // A shard refuses longer lists.
    if (claim.object_ids().size() < kMaxReferences * ObjectId::kSize) continue;
    channel_.SendTo(shard, std::move(message->second));
    messages.erase(message);
  }
  for (auto& [to, message] : messages) channel_.SendTo(to.first, std::move(message));
}

void HoldReporter::OnClaimed(const v1::Claimed& claimed) {
  const auto ids = directory::ParseObjectIds("object_ids", claimed.object_ids());
  if (!ids.ok() || ids->size() != static_cast<size_t>(claimed.numbers_size())) return;
  for (size_t i = 0; i < ids->size(); ++i) {
    table_.EndTransit((*ids)[i], claimed.numbers(static_cast<int>(i)));
  }
}

void HoldReporter::Settle() {
  if (!DefectActive(Defect::kHoldAfterAnnouncement)) {
    Flush();
  } else if (table_.changed() || !claims_.empty()) {
    executor_.RunAt(executor_.Now() + kFlushTooLate, turns_.Guarded([this] { Flush(); }));
  }
}

// ----------------------------------------------------------------------------- what copies hold

void HoldReporter::HoldReferences(const Copy& copy) {
  if (DefectActive(Defect::kReferencesNotHeld) && !copy.created_here) return;
  table_.AddReferences(copy.traits.refers_to);
}

// Another node can have a copy of the object whose holds have not reached the shards of the
// references yet, so the holds of this node linger there. Within one shard's session the messages
// come in order, so references of the object's own shard do not need that.
void HoldReporter::DropReferences(const Copy& copy) {
  if (DefectActive(Defect::kReferencesNotHeld) && !copy.created_here) return;
  const Instant until = executor_.Now() + options_.reference_patience;
  absl::string_view ids = copy.traits.refers_to;
  for (; !ids.empty(); ids.remove_prefix(ObjectId::kSize)) {
    const ObjectId id = *ObjectId::FromBinary(ids.substr(0, ObjectId::kSize));
    if (channel_.ShardOf(id) != channel_.ShardOf(copy.id)) table_.Linger(id, until);
  }
  // After Linger, so that the count of an id does not fall to 0 in between.
  table_.DropReferences(copy.traits.refers_to);
}

absl::Status HoldReporter::CheckInvariants(const std::vector<Copy*>& copies) const {
  uint64_t references = 0;
  for (const Copy* copy : copies) references += copy->traits.refers_to.size() / ObjectId::kSize;
  if (references != table_.references() && !DefectActive(Defect::kReferencesNotHeld)) {
    return absl::InternalError(
        absl::StrCat("copies refer to ", references, " objects, and hold ", table_.references()));
  }
  return table_.CheckInvariants();
}

// ----------------------------------------------------------------------------------- clients

absl::Status HoldReporter::Hold(ClientId client, absl::Span<const ObjectId> ids) {
  if (clients_.FindClient(client) == nullptr) {
    return absl::InvalidArgumentError("the client is not open");
  }
  for (const ObjectId& id : ids) {
    if (id.nil()) return absl::InvalidArgumentError("the nil id names no object");
  }
  return table_.Hold(client, ids);
}

void HoldReporter::Transit(const ObjectId& id, uint64_t number) {
  if (!id.nil()) table_.Transit(id, number, executor_.Now() + options_.transit_patience);
}

absl::Status HoldReporter::Claim(ClientId client, const ObjectId& id, const TransitMark& from) {
  const bool here = from.node == options_.self;
  if (!here && DefectActive(Defect::kClaimBeforeHold)) {
    executor_.RunAt(executor_.Now() + kHoldTooLate, turns_.Guarded([this, client, id] {
      (void)Hold(client, {&id, 1});
    }));
  } else if (absl::Status held = Hold(client, {&id, 1}); !held.ok()) {
    return held;
  }
  if (here) {
    // After the client's own hold: here, too, the object is held at every moment.
    table_.EndTransit(id, from.number);
    return absl::OkStatus();
  }
  claims_.push_back({id, from});
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
