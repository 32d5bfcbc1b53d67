#include "src/ps_lite/barriers.h"

#include <utility>

namespace phalanx::ps_lite {

std::vector<Release> Barriers::Start(Peer from, int call, std::string* wrong) {
  int& missing = missing_[static_cast<int>(from.role)];
  if (missing == 0) {
    *wrong = std::string("more processes of role ") + NameOf(from.role) +
             " than the job has, or more customers that call Start: each of these counts as one";
    return {};
  }
  --missing;
  ++starts_[from];
  starting_.push_back({from, {call}});
  return started() ? std::exchange(starting_, {}) : std::vector<Release>();
}

std::vector<int> Barriers::Ranks(Role role) const {
  std::vector<int> ranks;
  for (const auto& [peer, starts] : starts_) {
    if (peer.role == role) ranks.push_back(peer.rank);
  }
  return ranks;
}

std::string Barriers::Missing() const {
  std::string text;
  for (const Role role : kRoles) {
    const int missing = missing_[static_cast<int>(role)];
    if (missing == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(missing) + " " + NameOf(role) +
            (missing == 1 ? "" : "s");
  }
  return text;
}

std::vector<Release> Barriers::Arrive(Peer from, int call, int group) {
  waiting_[group][from].insert(call);
  return ReleaseIfComplete(group);
}

std::vector<Release> Barriers::Leave(Peer peer) {
  if (starts_.erase(peer) == 0) return {};
  std::vector<int> groups;
  for (auto& [group, calls] : waiting_) {
    calls.erase(peer);
    groups.push_back(group);
  }
  std::vector<Release> released;
  for (const int group : groups) {
    for (Release& each : ReleaseIfComplete(group)) released.push_back(std::move(each));
  }
  return released;
}

std::vector<Release> Barriers::ReleaseIfComplete(int group) {
  std::map<Peer, std::set<int>>& calls = waiting_[group];
  for (const auto& [peer, starts] : starts_) {
    if ((peer.group() & group) == 0) continue;
    const auto found = calls.find(peer);
    if (found == calls.end() || static_cast<int>(found->second.size()) < starts) return {};
  }
  std::vector<Release> released;
  released.reserve(calls.size());
  for (const auto& [peer, numbers] : calls) {
    released.push_back({peer, std::vector<int>(numbers.begin(), numbers.end())});
  }
  waiting_.erase(group);
  return released;
}

}  // namespace phalanx::ps_lite
