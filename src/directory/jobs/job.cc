#include "src/directory/jobs/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {

// ---------------------------------------------------------------------------- joining and ending

absl::StatusOr<const JobMember*> Job::Join(const JoinSpec& spec, const MemberPlace& place,
                                           Instant now) {
  PHALANX_RETURN_IF_ERROR(CheckWorld(spec));
  // All that can fail comes before RoleOf and Add, so that a refused join changes nothing.
  PHALANX_ASSIGN_OR_RETURN(const int rank, ChooseRank(spec, FindRole(spec.role)));
  JobRole& role = RoleOf(spec.role, spec.world);
  const auto known = role.by_task.find(spec.task);
  JobMember& member = known != role.by_task.end() ? *known->second : Add(role, spec.task, rank);
  if (member.state != MemberState::kAbsent) {
    // The earlier life, if it is live, leaves the list of its node first.
    SetState(member, MemberState::kDied, now);
    ++member.life;
  }
  member.place = place;
  member.confirmed = true;
  SetState(member, MemberState::kLive, now);
  Changed(member);
  return &member;
}

absl::Status Job::CheckWorld(const JoinSpec& spec) const {
  const JobRole* role = FindRole(spec.role);
  if (role == nullptr && roles_.size() >= kMaxRolesPerJob) {
    return absl::ResourceExhaustedError(
        absl::StrCat("job ", name_, " has ", roles_.size(), " roles already"));
  }
  if (role == nullptr || role->world == spec.world) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Named(*role), " has a world of ", role->world,
                                                 ", but ", spec.task, " joins with a world of ",
                                                 spec.world));
}

absl::StatusOr<int> Job::ChooseRank(const JoinSpec& spec, JobRole* role) const {
  // A task whose name is its role and a number gets this number as its rank, if it is free.
  const int natural = RankInName(spec.role, spec.task);
  const int fixed = spec.rank.value_or(natural < spec.world ? natural : -1);
  if (role == nullptr) return std::max(fixed, 0);
  // A task that returns keeps its rank (rule 1).
  if (const auto known = role->by_task.find(spec.task); known != role->by_task.end()) {
    const int rank = known->second->rank;
    if (!spec.rank.has_value() || *spec.rank == rank) return rank;
    return absl::InvalidArgumentError(absl::StrCat("task ", spec.task, " of ", Named(*role),
                                                   " has rank ", rank, ", not ", *spec.rank));
  }
  const auto holder = role->by_rank.find(fixed);
  const bool taken = holder != role->by_rank.end() && !DefectActive(Defect::kRankGivenTwice);
  if (fixed >= 0 && !taken) return fixed;
  if (spec.rank.has_value()) {
    return absl::AlreadyExistsError(absl::StrCat("rank ", fixed, " of ", Named(*role),
                                                 " belongs to task ", holder->second->task));
  }
  // A rank is never free again, so the search goes on where the last one ended.
  while (role->by_rank.contains(role->next_free)) ++role->next_free;
  if (role->next_free < role->world) return role->next_free;
  return absl::ResourceExhaustedError(absl::StrCat("all ", role->world, " ranks of ", Named(*role),
                                                   " have tasks; ", spec.task, " is none of them"));
}

bool Job::End(absl::string_view role_name, absl::string_view task, uint64_t life, MemberState how,
              Instant now) {
  JobRole* role = FindRole(role_name);
  if (role == nullptr) return false;
  const auto found = role->by_task.find(task);
  if (found == role->by_task.end()) return false;
  JobMember& member = *found->second;
  // The message of a life that was replaced can come after the join of the next one.
  const bool current = member.life == life || DefectActive(Defect::kOldLifeEndsNewLife);
  if (member.state != MemberState::kLive || !current) return false;
  SetState(member, how, now);
  if (!DefectActive(Defect::kDeathNotTold)) Changed(member);
  return true;
}

int Job::EndAllOf(const NodeKey& node, bool only_unconfirmed, Instant now) {
  const auto watcher = watchers_.find(node);
  if (watcher == watchers_.end()) return 0;
  // Collected first, because SetState changes the list of the watcher.
  std::vector<JobMember*> ended;
  for (const auto& [key, member] : watcher->second.live) {
    if (!only_unconfirmed || !member->confirmed) ended.push_back(member);
  }
  for (JobMember* member : ended) {
    SetState(*member, MemberState::kDied, now);
    Changed(*member);
  }
  return static_cast<int>(ended.size());
}

void Job::SessionBegins(const NodeKey& node) {
  const auto watcher = watchers_.find(node);
  if (watcher == watchers_.end()) return;
  watcher->second.whole = true;
  for (const auto& [key, member] : watcher->second.live) member->confirmed = false;
}

// ---------------------------------------------------------------------------- registration

size_t Job::Merge(const RegisteredJob& registered, const NodeKey& from, Judge own, Judge others,
                  size_t room, Instant now) {
  // The shard knows nothing of the job yet, so it begins with the epoch of the first node.
  if (!adopted_ && !minted_here_ && last_change_ == 0) {
    epoch_ = registered.epoch;
    adopted_ = true;
  } else if (registered.epoch > epoch_) {
    AdoptEpoch(registered.epoch);
  }
  // What nodes that register this epoch know is sent to the others alone.
  const bool adopts = adopted_ && !reminted_ && registered.epoch == epoch_;
  Merging merging{from, own, others, adopts, room, /*refused=*/0, now};
  for (const RegisteredMember& member : registered.members) {
    const RegisteredJob::Role& described = registered.roles[member.role];
    JobRole* role = FindRole(described.name);
    if (role == nullptr && (merging.room == 0 || roles_.size() >= kMaxRolesPerJob)) {
      ++merging.refused;
      continue;
    }
    if (role == nullptr) role = &RoleOf(described.name, described.world);
    // Nodes that contradict each other: the first one counts.
    if (role->world != described.world) continue;
    MergeMember(*role, member, merging);
  }
  return merging.refused;
}

// An epoch that this shard does not know, and which can be of another state of the job than the one
// that it has: everything is sent again, under an epoch beyond it.
void Job::AdoptEpoch(const JobEpoch& epoch) {
  epoch_ = epoch;
  minted_here_ = false;
  adopted_ = true;
  reminted_ = true;
  for (auto& [node, watcher] : watchers_) watcher.whole = true;
}

void Job::MergeMember(JobRole& role, const RegisteredMember& found, Merging& merging) {
  const NodeKey& from = merging.from;
  const Instant now = merging.now;
  const auto known = role.by_task.find(found.task);
  const auto holder = role.by_rank.find(found.rank);
  const bool fits = known != role.by_task.end() ? known->second->rank == found.rank
                                                : holder == role.by_rank.end();
  // Nodes that contradict each other about a rank: the first one counts.
  if (!fits) return;
  const bool claimed = found.place.node == from && found.state == MemberState::kLive;
  // The node learns whether its member still is one.
  if (claimed) watchers_.try_emplace(from);
  if (known != role.by_task.end() && known->second->life >= found.life) {
    JobMember& member = *known->second;
    // The shard knows a later life.
    if (member.life != found.life) return;
    if (member.state != MemberState::kLive) {
      // An end is final: others act on it.
      if (!claimed || !DefectActive(Defect::kFencedMemberRevived)) return;
      SetState(member, MemberState::kLive, now);
      return Changed(member);
    }
    if (found.state != MemberState::kLive) {
      SetState(member, found.state, now);
      Changed(member);
    } else if (claimed && member.place.node == from) {
      member.confirmed = true;
    }
    return;
  }
  const bool added = known == role.by_task.end();
  // Only here: the shard has a place for what it knows already.
  if (added && merging.room == 0) {
    ++merging.refused;
    return;
  }
  if (added) --merging.room;
  JobMember& member = added ? Add(role, found.task, found.rank) : *known->second;
  // The earlier life leaves the counts, and the list of its node, before it is overwritten.
  if (!added) SetState(member, MemberState::kDied, now);
  const bool dead = (claimed ? merging.own : merging.others) == Judge::kDead;
  member.life = found.life;
  member.place = found.place;
  member.confirmed = claimed;
  SetState(member, found.state == MemberState::kLive && dead ? MemberState::kDied : found.state,
           now);
  if (!merging.adopts || !added || member.state != found.state) Changed(member);
}

void Job::EndMerge(const RegisteredJob& registered, const NodeKey& from) {
  const auto watcher = watchers_.find(from);
  if (watcher == watchers_.end()) return;
  const bool knows = adopted_ && !minted_here_ && !reminted_ && registered.epoch == epoch_;
  watcher->second.whole = !knows;
  // Changes are numbered in this life of the shard, so all of them are news to the node.
  watcher->second.last_sent = 0;
}

// ---------------------------------------------------------------------------- epochs

void Job::Mint(Random& random) {
  if (!unminted()) return;
  if (minted_here_) {
    ++epoch_.counter;
  } else {
    // Random, so that two lives of the shard that both know the last epoch, since the first of them
    // died while it sent its own, mint different ones.
    epoch_ = {epoch_.incarnation + 1 + (random.Next() & 0xffffffff), 1};
    minted_here_ = true;
  }
  minted_change_ = last_change_;
  reminted_ = false;
}

// ---------------------------------------------------------------------------- the table

JobRole* Job::FindRole(absl::string_view name) const {
  const auto found = roles_.find(name);
  return found == roles_.end() ? nullptr : found->second.get();
}

bool Job::Knows(absl::string_view role_name, absl::string_view task) const {
  const JobRole* role = FindRole(role_name);
  return role != nullptr && role->by_task.contains(task);
}

JobRole& Job::RoleOf(absl::string_view name, int world) {
  std::unique_ptr<JobRole>& role = roles_[std::string(name)];
  if (role == nullptr) {
    role = std::make_unique<JobRole>();
    role->name = std::string(name);
    role->world = world;
  }
  return *role;
}

JobMember& Job::Add(JobRole& role, absl::string_view task, int rank) {
  auto member = std::make_unique<JobMember>();
  member->role = &role;
  member->task = std::string(task);
  member->rank = rank;
  role.by_rank[rank] = member.get();
  ++members_;
  return *(role.by_task[member->task] = std::move(member));
}

void Job::SetState(JobMember& member, MemberState state, Instant now) {
  const std::pair<absl::string_view, absl::string_view> key(member.role->name, member.task);
  if (member.state == MemberState::kLive) {
    --live_;
    --member.role->live;
    watchers_.at(member.place.node).live.erase(key);
  } else if (member.state == MemberState::kDied) {
    --member.role->died;
  }
  member.state = state;
  member.since = now;
  if (state == MemberState::kLive) {
    ++live_;
    ++member.role->live;
    watchers_[member.place.node].live[key] = &member;
  } else if (state == MemberState::kDied) {
    ++member.role->died;
  }
}

void Job::Changed(JobMember& member) {
  // Only a member's last change is listed: nodes need its state, and not its history.
  if (member.changed != 0) changes_.erase(member.changed);
  member.changed = ++last_change_;
  changes_[member.changed] = &member;
}

std::string Job::Named(const JobRole& role) const {
  return absl::StrCat("role ", role.name, " of job ", name_);
}

void ToProto(const JobMember& member, uint32_t role, v1::JobMember* out) {
  out->set_role(role);
  out->set_rank(static_cast<uint32_t>(member.rank));
  out->set_task(member.task);
  out->set_life(member.life);
  out->set_state(ToProto(member.state));
  ToProto(member.place.node, out->mutable_node());
  out->set_address(member.place.address);
  out->set_host(member.place.host);
  out->set_node_name(member.place.node_name);
}

absl::Status Job::CheckInvariants() const {
  int live = 0;
  size_t members = 0;
  for (const auto& [name, role] : roles_) {
    if (role->by_rank.size() != role->by_task.size()) {
      return absl::InternalError(absl::StrCat(Named(*role), ": two tasks have one rank"));
    }
    for (const auto& [rank, member] : role->by_rank) {
      ++members;
      if (rank >= role->world || member->rank != rank) {
        return absl::InternalError(absl::StrCat(Named(*role), ": rank ", rank, " is misplaced"));
      }
      if (member->state != MemberState::kLive) continue;
      ++live;
      const auto watcher = watchers_.find(member->place.node);
      if (watcher == watchers_.end() || !watcher->second.live.contains({name, member->task})) {
        return absl::InternalError(
            absl::StrCat(Named(*role), ": the node of rank ", rank, " gets no changes"));
      }
    }
  }
  if (live != live_ || members != members_) {
    return absl::InternalError(absl::StrCat("job ", name_, ": its members are miscounted"));
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
