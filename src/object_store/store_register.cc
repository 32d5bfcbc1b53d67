// What the node tells a shard when a new session begins: its whole state, a part in each turn.
#include <algorithm>
#include <utility>

#include "src/common/defects.h"
#include "src/object_store/store_impl.h"
#include "src/object_store/subject.h"

namespace phalanx::object_store {

void Store::Impl::Describe(const Copy& copy, v1::ObjectInfo* out) {
  out->set_size_bytes(copy.size_bytes);
  out->set_slices(static_cast<uint32_t>(copy.buffer->layout().slices));
  out->set_metadata(copy.metadata);
  if (!copy.reduced_from.empty()) out->set_reduced_from(copy.reduced_from);
  if (!copy.refers_to.empty()) out->set_refers_to(copy.refers_to);
  if (copy.owned) out->set_owned(true);
  if (!copy.asked_for.empty()) out->set_asked_for(copy.asked_for);
}

void Store::Impl::FillBegin(int shard, v1::RegisterBegin* begin) {
  begin->set_sticky_stamp(last_stamps_[static_cast<size_t>(shard)]);
}

// What is listed here is told as it is when its turn comes: a copy that is gone by then is passed
// over, and what became of any meanwhile is said behind the registration.
std::vector<v1::NodeMessage> Store::Impl::BeginSession(int shard) {
  told_used_bytes_ = 0;  // as the node's description has it
  ++next_number_;
  Registration& registration = registrations_[shard] = Registration();
  const auto here = [this, shard](const ObjectId& id) { return channel_.ShardOf(id) == shard; };
  registration.holds = holds_.TellAgain(here);
  if (DefectActive(Defect::kHoldsForgottenAtRestart)) registration.holds.clear();
  absl::erase_if(lost_, [&here](const auto& lost) { return here(lost.first); });
  std::vector<const Copy*> asked;
  for (Copy* copy : table_.Sorted()) {
    if (channel_.ShardOf(copy->id) != shard) continue;
    registration.copies.emplace_back(copy->id, copy->generation);
    if (copy->eviction == Copy::Eviction::kAsked) asked.push_back(copy);
  }
  registration.wants = pulls_.Register(shard, channel_.num_shards());
  if (DefectActive(Defect::kTombstoneForgottenAtRestart)) tombstones_by_age_.clear();
  for (const auto& tombstone : tombstones_by_age_) {
    if (channel_.ShardOf(tombstone.first) == shard) registration.tombstones.push_back(tombstone);
  }
  // What the old session had not answered is asked again.
  for (const Copy* copy : asked) SendEvictRequest(*copy);
  AskAgain(shard);
  if (DefectActive(Defect::kPinDroppedOnReconnect)) DropPins(shard);
  return {};
}

void Store::Impl::AskAgain(int shard) {
  std::vector<RequestId> open;
  for (const auto& [id, request] : requests_) {
    if (request->stage != Request::Stage::kWaiting) continue;
    if (channel_.ShardOf(request->object) == shard && !request->object.nil()) open.push_back(id);
  }
  std::sort(open.begin(), open.end());
  for (const RequestId id : open) SendRequest(*requests_.at(id));
  if (drain_ != 0) SendDrain(shard);
}

bool Store::Impl::RegisterSome(int shard) {
  const auto found = registrations_.find(shard);
  if (found == registrations_.end()) return true;
  Registration& r = found->second;
  size_t left = options_.registered_per_turn;
  left -= RegisterHolds(shard, r, left);
  for (; left > 0 && r.copies_told < r.copies.size(); --left) {
    const auto& [id, generation] = r.copies[r.copies_told++];
    if (Copy* copy = table_.Find(id, generation)) RegisterCopy(shard, copy);
  }
  for (; left > 0 && r.wants_told < r.wants.size(); --left) {
    v1::NodeMessage message;
    *message.mutable_register_want() = std::move(r.wants[r.wants_told++]);
    channel_.Register(shard, std::move(message));
  }
  for (; left > 0 && r.tombstones_told < r.tombstones.size(); --left) {
    const auto& [id, generation] = r.tombstones[r.tombstones_told++];
    v1::NodeMessage message;
    SetSubject(id, generation, message.mutable_register_tombstone());
    channel_.Register(shard, std::move(message));
  }
  const bool done = r.holds_told == r.holds.size() && r.copies_told == r.copies.size() &&
                    r.wants_told == r.wants.size() && r.tombstones_told == r.tombstones.size();
  if (done) registrations_.erase(found);
  return done;
}

size_t Store::Impl::RegisterHolds(int shard, Registration& r, size_t most) {
  most = std::min({most, r.holds.size() - r.holds_told, kMaxReferences});
  if (most == 0) return 0;
  v1::NodeMessage message;
  std::string* ids = message.mutable_register_holds()->mutable_object_ids();
  for (size_t i = 0; i < most; ++i) {
    ids->append(r.holds[r.holds_told++].binary().data(), ObjectId::kSize);
  }
  channel_.Register(shard, std::move(message));
  return most;
}

void Store::Impl::RegisterCopy(int shard, Copy* copy) {
  if (DefectActive(Defect::kFencedDropsSoleCopy) && copy->state == CopyState::kComplete) {
    Touch(copy->id);
    DropCopy(copy, absl::AbortedError("fenced"));
    return;
  }
  v1::NodeMessage message;
  v1::RegisterCopy* out = message.mutable_register_copy();
  SetSubject(copy->id, copy->generation, out);
  Describe(*copy, out->mutable_info());
  out->set_primary(copy->primary);
  out->set_adopted(copy->standing == Standing::kAdopted);
  out->set_complete(copy->state == CopyState::kComplete);
  out->set_writing(copy->state == CopyState::kWriting);
  for (int slice = 0; !out->complete() && slice < copy->buffer->layout().slices; ++slice) {
    out->add_watermarks(copy->buffer->watermark(slice));
  }
  const auto sticky = stickies_.find({copy->id, copy->generation});
  if (sticky != stickies_.end() && !DefectActive(Defect::kStickyForgottenAtRestart)) {
    *out->mutable_sticky() = sticky->second;
  }
  const std::optional<NodeKey> sender = pulls_.RunningSender(copy->id, copy->generation);
  if (sender) directory::ToProto(*sender, out->mutable_sender());
  channel_.Register(shard, std::move(message));
}

void Store::Impl::DropPins(int shard) {
  for (auto& [id, client] : clients_) {
    for (auto it = client->pins.begin(); it != client->pins.end();) {
      const auto pin = it++;
      if (channel_.ShardOf(pin->second.copy->id) == shard && pin->second.streaming == 0) {
        Unpin(*client, pin->first, /*recycle=*/true);
      }
    }
  }
}

}  // namespace phalanx::object_store
