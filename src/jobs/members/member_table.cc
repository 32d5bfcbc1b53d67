#include "src/jobs/members/member_table.h"

#include "src/directory/core/validate.h"
#include "src/directory/jobs/job_messages.h"

namespace phalanx::jobs {

bool MemberTable::Apply(const v1::JobUpdate& update) {
  // Nothing of an update whose last piece did not come is left.
  if (update.whole()) pieces_.clear();
  pieces_.push_back(update);
  // The pieces count together: a view between them would not be the state of any epoch.
  if (update.more()) return false;
  Commit();
  return true;
}

void MemberTable::Commit() {
  const bool whole = pieces_.front().whole();
  const v1::JobEpoch epoch = pieces_.back().epoch();
  for (const v1::JobUpdate& piece : pieces_) Take(piece, whole);
  pieces_.clear();
  epoch_ = {epoch.incarnation(), epoch.counter()};
  for (auto& [name, role] : roles_) role.view.epoch = epoch_;
}

void MemberTable::Take(const v1::JobUpdate& update, bool whole) {
  for (const v1::JobRole& described : update.roles()) {
    // A correct shard keeps these limits. They bound what a faulty one can cost the node.
    const bool valid = described.world() >= 1 &&
                       described.world() <= static_cast<uint32_t>(kMaxWorld) &&
                       (roles_.size() < kMaxRolesPerJob || roles_.contains(described.name()));
    if (!valid) continue;
    Role& role = roles_[described.name()];
    const int world = static_cast<int>(described.world());
    if (role.view.world == world) continue;
    // Only a job that was forgotten and began anew has another world.
    if (role.view.world != 0 && !whole) continue;
    role.ranks.clear();
    for (const uint64_t change : role.changed) changes_.erase(change);
    for (const Member& member : role.view.members) Count(member, -1);
    role.changed.assign(static_cast<size_t>(world), 0);
    role.view = GroupView{job_, described.name(), epoch_, world, {}};
    role.view.members.resize(static_cast<size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      role.view.members[static_cast<size_t>(rank)].rank = rank;
    }
  }
  for (const v1::JobMember& member : update.members()) {
    if (member.role() >= static_cast<uint32_t>(update.roles_size())) continue;
    const auto role = roles_.find(update.roles(static_cast<int>(member.role())).name());
    if (role != roles_.end()) Set(role->second, member);
  }
}

void MemberTable::Set(Role& role, const v1::JobMember& message) {
  const MemberState state = directory::FromProto(message.state());
  if (message.rank() >= static_cast<uint32_t>(role.view.world) || state == MemberState::kAbsent) {
    return;
  }
  Member& member = role.view.members[message.rank()];
  const bool same_life = member.state != MemberState::kAbsent && member.task == message.task() &&
                         member.life == message.life();
  // A whole update repeats what did not change; and a life that has ended stays so.
  if (same_life && (member.state == state || state == MemberState::kLive)) return;
  // A rank has another task only in a job that was forgotten and began anew.
  if (member.task != message.task()) role.ranks.erase(member.task);
  Count(member, -1);
  role.ranks[message.task()] = static_cast<int>(message.rank());
  member.task = message.task();
  member.role = role.view.role;
  member.life = message.life();
  member.state = state;
  member.node = directory::FromProto(message.node());
  member.address = message.address();
  member.host = message.host();
  member.node_name = message.node_name();
  Count(member, 1);
  uint64_t& changed = role.changed[message.rank()];
  // A member is listed under its last change only, so a reader gets it once, in its newest state.
  changes_.erase(changed);
  changed = ++last_change_;
  changes_[changed] = {&role, member.rank};
}

void MemberTable::Count(const Member& member, int change) {
  if (!member.live()) return;
  const auto count = live_on_.try_emplace(member.node).first;
  count->second += change;
  if (count->second == 0) live_on_.erase(count);
}

const GroupView* MemberTable::view(absl::string_view role) const {
  const auto found = roles_.find(role);
  return found == roles_.end() ? nullptr : &found->second.view;
}

std::vector<std::string> MemberTable::roles() const {
  std::vector<std::string> names;
  for (const auto& [name, role] : roles_) names.push_back(name);
  return names;
}

const Member* MemberTable::Find(absl::string_view role_name, absl::string_view task) const {
  const auto role = roles_.find(role_name);
  if (role == roles_.end()) return nullptr;
  const auto rank = role->second.ranks.find(task);
  if (rank == role->second.ranks.end()) return nullptr;
  return &role->second.view.members[static_cast<size_t>(rank->second)];
}

std::vector<const Member*> MemberTable::ChangedAfter(uint64_t change) const {
  std::vector<const Member*> members;
  for (auto it = changes_.upper_bound(change); it != changes_.end(); ++it) {
    const auto& [role, rank] = it->second;
    members.push_back(&role->view.members[static_cast<size_t>(rank)]);
  }
  return members;
}

std::vector<v1::RegisterJob> MemberTable::Registration() const {
  std::vector<v1::RegisterJob> pieces;
  const std::vector<const Member*> members = ChangedAfter(0);
  size_t taken = 0;
  while (taken < members.size()) {
    v1::RegisterJob& piece = pieces.emplace_back();
    piece.set_job(job_);
    piece.mutable_epoch()->set_incarnation(epoch_.incarnation);
    piece.mutable_epoch()->set_counter(epoch_.counter);
    // Each piece repeats the roles, so that it can be read without the other pieces.
    std::map<absl::string_view, uint32_t> positions;
    for (const auto& [name, role] : roles_) {
      positions[name] = static_cast<uint32_t>(piece.roles_size());
      v1::JobRole* described = piece.add_roles();
      described->set_name(name);
      described->set_world(static_cast<uint32_t>(role.view.world));
    }
    for (; taken < members.size() && piece.members_size() < directory::kMaxMembersPerMessage;
         ++taken) {
      const Member& member = *members[taken];
      v1::JobMember* described = piece.add_members();
      described->set_role(positions.at(member.role));
      described->set_rank(static_cast<uint32_t>(member.rank));
      described->set_task(member.task);
      described->set_life(member.life);
      described->set_state(directory::ToProto(member.state));
      directory::ToProto(member.node, described->mutable_node());
      described->set_address(member.address);
      described->set_host(member.host);
      described->set_node_name(member.node_name);
    }
    piece.set_more(taken < members.size());
  }
  return pieces;
}

}  // namespace phalanx::jobs
