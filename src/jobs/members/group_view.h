// GroupView: the members of one role of a job, by rank, as this node knows them. GroupObserver: a
// component of this node that acts on each change, such as the collectives of groups.
//
//   shard ──JobUpdate──► Members ──OnView──► GroupObserver (groups, messages)
//                           ▲
//   clients ──Join──────────┘
//
// A rank keeps its task for as long as the job lives. What changes is the member's life:
//
//             Join                 socket closed, node fenced
//   kAbsent ────────► kLive ─────────────────────────────────► kDied
//                     │ ▲                                        │
//               Leave │ └──────────────── Join (life + 1) ───────┤
//                     ▼                                          │
//                   kLeft ───────────────────────────────────────┘
//
// A member that joins while its earlier life is live replaces it at once: live with the next life.
//
// Values, and an interface of the control loop.
#ifndef PHALANX_JOBS_MEMBERS_GROUP_VIEW_H_
#define PHALANX_JOBS_MEMBERS_GROUP_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/job_ids.h"
#include "src/net/stream/address.h"

namespace phalanx::jobs {

using phalanx::JobEpoch;
using phalanx::MemberState;

struct Member {
  int rank = 0;
  // Empty while the member is absent.
  std::string task;
  std::string role;
  uint64_t life = 0;
  MemberState state = MemberState::kAbsent;
  // Of the last life, also after its end; not valid while the member is absent.
  NodeKey node;
  // The data plane of that node, and the host on which the member runs (the node's label `host`,
  // or the host of its address).
  net::Address address;
  std::string host;
  std::string node_name;

  bool live() const { return state == MemberState::kLive; }
};

struct GroupView {
  std::string job;
  std::string role;
  JobEpoch epoch;
  int world = 0;
  // `world` members; member i has rank i.
  std::vector<Member> members;
};

class GroupObserver {
 public:
  virtual ~GroupObserver() = default;

  // The members of a group in which a client of this node is a member. First when that client has
  // joined, then after each change; the epoch increases. Valid during the call. Must not call back
  // into the caller.
  virtual void OnView(const GroupView& view) = 0;
  // No client of this node is a member of the group any more: no view follows until one joins.
  virtual void OnGroupLeft(absl::string_view job, absl::string_view role) = 0;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_MEMBERS_GROUP_VIEW_H_
