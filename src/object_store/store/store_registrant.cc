#include "src/object_store/store/store_registrant.h"

#include <algorithm>
#include <optional>
#include <string>

#include "src/common/defects.h"
#include "src/directory/core/validate.h"
#include "src/object_store/objects/subject.h"

namespace phalanx::object_store {

StoreRegistrant::StoreRegistrant(size_t entries_per_turn, Executor& executor, Turns& turns,
                                 RequestTable& requests, ObjectTable& table, PullManager& pulls,
                                 GetRequests& gets, LocalCopies& copies, HoldReporter& holds,
                                 CopyReporter& reporter, ShardRequests& shard_requests,
                                 PullRunner& runner, DeletedGenerations& deleted,
                                 StickyMarks& stickies, ShardChannel& channel)
    : entries_per_turn_(entries_per_turn),
      executor_(executor),
      turns_(turns),
      requests_(requests),
      table_(table),
      pulls_(pulls),
      gets_(gets),
      copies_(copies),
      holds_(holds),
      reporter_(reporter),
      shard_requests_(shard_requests),
      runner_(runner),
      deleted_(deleted),
      stickies_(stickies),
      channel_(channel) {
  channel_.AddRegistrant(this);
}

StoreRegistrant::~StoreRegistrant() { channel_.RemoveRegistrant(this); }

void StoreRegistrant::FillBegin(int shard, v1::RegisterBegin* begin) {
  begin->set_sticky_stamp(stickies_.LastStamp(shard));
  begin->set_lease_ended(gets_.leases().BeginSession(shard, executor_.ReadClock()));
}

std::vector<v1::NodeMessage> StoreRegistrant::BeginSession(int shard) {
  // The new session knows nothing of the memory in use, so the next report must not be left out.
  runner_.BeginSession();
  requests_.NewNumber();
  // A registration that a broken session left unfinished begins again from the state of today.
  Registration& registration = registrations_[shard] = Registration();
  const auto here = [this, shard](const ObjectId& id) { return channel_.ShardOf(id) == shard; };
  // Before the copies, which the shard refuses by them.
  registration.scopes = copies_.scopes().Ended(executor_.Now());
  if (DefectActive(Defect::kScopeForgottenAtRestart)) registration.scopes.clear();
  // Holds first: an owned object must not be freed between its copy and its hold.
  registration.holds = holds_.table().ResendHeld(here);
  if (DefectActive(Defect::kHoldsForgottenAtRestart)) registration.holds.clear();
  // A loss that the old session reported may be none in this one: a holder can have returned.
  gets_.ForgetLostOf(here);
  std::vector<const Copy*> asked;
  for (Copy* copy : table_.Sorted()) {
    if (channel_.ShardOf(copy->id) != shard) continue;
    // By name, not by pointer: copies come and go before their turn in RegisterSome.
    registration.copies.emplace_back(copy->id, copy->generation);
    if (copy->eviction == Copy::Eviction::kAsked) asked.push_back(copy);
  }
  registration.wants = pulls_.Register(shard, channel_.num_shards());
  if (DefectActive(Defect::kTombstoneForgottenAtRestart)) deleted_.ForgetOrder();
  // The newest first: of an id that was deleted very often, the shard lists those that come first.
  const auto& deleted = deleted_.by_age();
  for (auto tombstone = deleted.rbegin(); tombstone != deleted.rend(); ++tombstone) {
    if (here(tombstone->first)) registration.tombstones.push_back(*tombstone);
  }
  // What the old session had not answered is asked again.
  for (const Copy* copy : asked) reporter_.RequestEviction(*copy);
  shard_requests_.SendAgain(shard);
  if (DefectActive(Defect::kPinDroppedOnReconnect)) DropPins(shard);
  return {};
}

bool StoreRegistrant::RegisterSome(int shard) {
  const auto found = registrations_.find(shard);
  if (found == registrations_.end()) return true;
  Registration& r = found->second;
  // A node with a million objects registers over many turns, so that its clients are served
  // meanwhile.
  size_t left = entries_per_turn_;
  for (; left > 0 && r.next_scope < r.scopes.size(); --left) {
    v1::NodeMessage message;
    const Scope& scope = r.scopes[r.next_scope++];
    directory::ToProto(scope, message.mutable_register_scope()->mutable_scope());
    channel_.Register(shard, std::move(message));
  }
  left -= RegisterHolds(shard, r, left);
  for (; left > 0 && r.next_copy < r.copies.size(); --left) {
    const auto& [id, generation] = r.copies[r.next_copy++];
    // A copy that is gone since then is not registered: the shard removes it at the end.
    if (Copy* copy = table_.Find(id, generation)) RegisterCopy(shard, copy);
  }
  for (; left > 0 && r.next_want < r.wants.size(); --left) {
    v1::NodeMessage message;
    *message.mutable_register_want() = std::move(r.wants[r.next_want++]);
    channel_.Register(shard, std::move(message));
  }
  for (; left > 0 && r.next_tombstone < r.tombstones.size(); --left) {
    const auto& [id, generation] = r.tombstones[r.next_tombstone++];
    v1::NodeMessage message;
    SetSubject(id, generation, message.mutable_register_tombstone());
    channel_.Register(shard, std::move(message));
  }
  const bool done = r.next_scope == r.scopes.size() && r.next_hold == r.holds.size() &&
                    r.next_copy == r.copies.size() && r.next_want == r.wants.size() &&
                    r.next_tombstone == r.tombstones.size();
  if (done) registrations_.erase(found);
  return done;
}

size_t StoreRegistrant::RegisterHolds(int shard, Registration& r, size_t most) {
  // A message has a greatest length, too.
  most = std::min({most, r.holds.size() - r.next_hold, kMaxReferences});
  if (most == 0) return 0;
  v1::NodeMessage message;
  std::string* ids = message.mutable_register_holds()->mutable_object_ids();
  for (size_t i = 0; i < most; ++i) {
    ids->append(r.holds[r.next_hold++].binary().data(), ObjectId::kSize);
  }
  channel_.Register(shard, std::move(message));
  return most;
}

void StoreRegistrant::RegisterCopy(int shard, Copy* copy) {
  if (DefectActive(Defect::kFencedDropsSoleCopy) && copy->state == CopyState::kComplete) {
    turns_.Touch(copy->id);
    copies_.Drop(copy, absl::AbortedError("fenced"));
    return;
  }
  v1::NodeMessage message;
  v1::RegisterCopy* out = message.mutable_register_copy();
  *out = reporter_.Registration(*copy);
  const v1::StickyMark* sticky = stickies_.Find(copy->id, copy->generation);
  if (sticky != nullptr && !DefectActive(Defect::kStickyForgottenAtRestart)) {
    *out->mutable_sticky() = *sticky;
  }
  if (DefectActive(Defect::kCopiesForgottenAtRestart)) out->mutable_sticky()->clear_copies();
  // The pull continues: with the sender's name the shard lists the pair and makes no new plan.
  const std::optional<NodeKey> sender = pulls_.RunningSender(copy->id, copy->generation);
  if (sender) directory::ToProto(*sender, out->mutable_sender());
  out->set_in_parts(sender && pulls_.PullsInParts(copy->id));
  channel_.Register(shard, std::move(message));
}

void StoreRegistrant::DropPins(int shard) {
  for (auto& [id, client] : requests_.clients()) {
    for (auto it = client->pins.begin(); it != client->pins.end();) {
      const auto pin = it++;
      if (channel_.ShardOf(pin->second.copy->id) == shard && pin->second.streaming == 0) {
        gets_.Unpin(*client, pin->first, /*recycle=*/true);
      }
    }
  }
}

}  // namespace phalanx::object_store
