// Peer: a process of the job by its role and rank, and its node id in the interface of ps-lite. A
// value.
#ifndef PHALANX_PS_LITE_PEER_H_
#define PHALANX_PS_LITE_PEER_H_

#include <compare>
#include <string>

namespace phalanx::ps_lite {

enum class Role { kScheduler, kServer, kWorker };
inline constexpr Role kRoles[] = {Role::kScheduler, Role::kServer, Role::kWorker};

// Also the role of a member of the job.
inline const char* NameOf(Role role) {
  constexpr const char* kNames[] = {"scheduler", "server", "worker"};
  return kNames[static_cast<int>(role)];
}

struct Peer {
  Role role = Role::kScheduler;
  int rank = 0;

  auto operator<=>(const Peer&) const = default;
  int id() const {
    constexpr int kFirst[] = {1, 8, 9};
    return kFirst[static_cast<int>(role)] + 2 * rank;
  }
  // The bit of its group: 1, 2 or 4.
  int group() const { return 1 << static_cast<int>(role); }
};

// REQUIRES: `id` is 1, or at least 8.
inline Peer PeerOf(int id) {
  if (id < 8) return Peer{};
  return Peer{id % 2 == 0 ? Role::kServer : Role::kWorker, (id - 8) / 2};
}

// "server 8 (rank 0)", for errors.
inline std::string TextOf(Peer peer) {
  const std::string name = std::string(NameOf(peer.role)) + " " + std::to_string(peer.id());
  return peer.role == Role::kScheduler ? name : name + " (rank " + std::to_string(peer.rank) + ")";
}

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_PEER_H_
