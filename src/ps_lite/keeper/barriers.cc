#include "src/ps_lite/keeper/barriers.h"

#include <algorithm>

namespace phalanx::ps_lite {

bool Barriers::Hear(Peer peer, uint64_t life) {
  const auto [found, first] = processes_.try_emplace(peer);
  Process& process = found->second;
  if (first) process.life = life;
  if (life < process.life) return false;
  if (life == process.life) return true;
  Forget(peer, process);
  process.life = life;
  process.restarts = process.starts;
  process.passed.clear();
  return true;
}

void Barriers::Die(Peer peer, uint64_t life) {
  const auto found = processes_.find(peer);
  if (found != processes_.end() && found->second.life == life) Forget(peer, found->second);
}

void Barriers::Forget(Peer peer, Process& process) {
  for (auto& [group, calls] : waiting_) calls.erase(peer);
  if (started()) return;
  // All wait for its next life.
  missing_[static_cast<int>(peer.role)] += process.starts;
  process.starts = 0;
  starting_.erase(std::remove_if(starting_.begin(), starting_.end(),
                                 [peer](const Release& each) { return each.to == peer; }),
                  starting_.end());
}

std::vector<Release> Barriers::Start(Peer from, int call, std::string* wrong) {
  Process& process = processes_[from];
  const Release release{from, process.life, {call}};
  if (process.restarts > 0) {
    --process.restarts;
    return {release};
  }
  int& missing = missing_[static_cast<int>(from.role)];
  if (missing == 0) {
    *wrong = std::string("more processes of role ") + NameOf(from.role) +
             " than the job has, or more customers that call Start: each of these counts as one";
    return {};
  }
  --missing;
  ++process.starts;
  starting_.push_back(release);
  return started() ? std::exchange(starting_, {}) : std::vector<Release>();
}

std::vector<int> Barriers::Ranks(Role role) const {
  std::vector<int> ranks;
  for (const auto& [peer, process] : processes_) {
    if (peer.role == role && process.starts > 0) ranks.push_back(peer.rank);
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

// A next life does again what the one before has done: what had ended for that one ends at once.
std::vector<Release> Barriers::Arrive(Peer from, int call, int group, bool last) {
  Process& process = processes_[from];
  int& passed = process.passed[{group, last}];
  if (passed < process.ended[{group, last}] * process.starts) {
    ++passed;
    return {{from, process.life, {call}}};
  }
  Waiting& waiting = waiting_[group][from];
  waiting.calls.insert(call);
  waiting.last = last;
  return ReleaseIfComplete(group);
}

std::vector<Release> Barriers::Leave(Peer peer) {
  const auto process = processes_.find(peer);
  if (process == processes_.end() || !Counts(process->second)) return {};
  process->second.left = true;
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
  std::map<Peer, Waiting>& calls = waiting_[group];
  for (const auto& [peer, process] : processes_) {
    if (!Counts(process) || (peer.group() & group) == 0) continue;
    const auto found = calls.find(peer);
    if (found == calls.end() || static_cast<int>(found->second.calls.size()) < process.starts)
      return {};
  }
  std::vector<Release> released;
  released.reserve(calls.size());
  for (const auto& [peer, waiting] : calls) {
    Process& process = processes_[peer];
    const Call call{group, waiting.last};
    process.passed[call] = ++process.ended[call] * process.starts;
    released.push_back({peer, process.life, {waiting.calls.begin(), waiting.calls.end()}});
  }
  waiting_.erase(group);
  return released;
}

}  // namespace phalanx::ps_lite
