#include "src/jobs/group/group_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::jobs {
namespace {

// The finalizer of SplitMix64: every bit of the result depends on every bit of the input.
uint64_t Mixed(uint64_t digest, uint64_t value) {
  uint64_t z = digest + 0x9e3779b97f4a7c15 + value;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

int GroupList::IndexOf(const NodeKey& node) const {
  const auto found = index.find(node);
  return found == index.end() ? -1 : found->second;
}

std::string GroupList::Name(const MissingRanks& missing) const {
  std::string text = missing.ranks.size() == 1 && missing.count <= 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < missing.ranks.size(); ++i) {
    const uint32_t rank = missing.ranks[i];
    absl::StrAppend(&text, i == 0 ? "" : ", ", rank);
    if (rank < tasks.size() && !tasks[rank].empty()) {
      absl::StrAppend(&text, " (", tasks[rank], ")");
    }
  }
  if (missing.count > missing.ranks.size()) {
    absl::StrAppend(&text, " and ", missing.count - missing.ranks.size(), " more");
  }
  return text;
}

std::string GroupList::Name(const std::vector<uint32_t>& ranks) const {
  return Name(Bounded(ranks));
}

MissingRanks Bounded(const std::vector<uint32_t>& ranks) {
  const size_t named = std::min(ranks.size(), kMaxNamedRanks);
  return {{ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(named)},
          static_cast<uint32_t>(ranks.size())};
}

GroupList MakeGroupList(const GroupView& view, const NodeKey& self) {
  GroupList list;
  std::map<std::string, int> hosts;
  list.epoch = view.epoch;
  list.shape.world = view.world;
  // The digest names the list in messages, so it covers everything that a plan depends on.
  list.digest = Mixed(0, static_cast<uint64_t>(view.world));
  for (const Member& member : view.members) {
    const auto rank = static_cast<uint32_t>(member.rank);
    list.lives.push_back(member.life);
    list.tasks.push_back(member.task);
    if (member.state == MemberState::kAbsent) list.absent.push_back(rank);
    if (member.state == MemberState::kDied || member.state == MemberState::kLeft) {
      list.ended.push_back(rank);
    }
    list.some_died |= member.state == MemberState::kDied;
    // With the lives that have ended: a list must not return when a member has come and gone.
    if (member.state != MemberState::kAbsent) {
      for (const uint64_t value : {uint64_t{rank}, member.life, uint64_t{member.live()}}) {
        list.digest = Mixed(list.digest, value);
      }
    }
    if (!member.live()) continue;
    list.digest = Mixed(Mixed(list.digest, member.node.node), member.node.incarnation);
    // Members come in the order of their ranks, so node 0, the coordinator, has the least live
    // rank.
    const auto [at, added] =
        list.index.try_emplace(member.node, static_cast<int>(list.nodes.size()));
    if (added) {
      list.nodes.push_back({member.node, member.address});
      // A node without a known host counts as one.
      const std::string host =
          !member.host.empty() ? member.host : absl::StrCat("node ", member.node.node);
      const auto [known, is_new] = hosts.try_emplace(host, list.hosts);
      list.hosts += is_new ? 1 : 0;
      list.host_of.push_back(known->second);
      list.shape.ranks.emplace_back();
    }
    list.shape.ranks[static_cast<size_t>(at->second)].push_back(member.rank);
  }
  list.self = list.IndexOf(self);
  return list;
}

}  // namespace phalanx::jobs
