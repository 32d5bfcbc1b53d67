// Live members, their view, and memory of calls, for tests of groups. Testonly.
#ifndef PHALANX_JOBS_GROUP_TESTING_GROUP_PARTS_H_
#define PHALANX_JOBS_GROUP_TESTING_GROUP_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/jobs/group/call_resources.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/members/group_view.h"

namespace phalanx::jobs {

inline Member LiveMember(int rank, const NodeKey& node, uint64_t life = 0) {
  Member member;
  member.rank = rank;
  member.task = absl::StrCat("worker", rank);
  member.life = life;
  member.state = MemberState::kLive;
  member.node = node;
  return member;
}

inline GroupView ViewOf(std::vector<Member> members) {
  GroupView view;
  view.epoch = {1, 1};
  view.world = static_cast<int>(members.size());
  view.members = std::move(members);
  return view;
}

// Member i is on node {i % nodes + 1, 1}.
inline GroupView LiveView(int world, int nodes) {
  std::vector<Member> members;
  for (int rank = 0; rank < world; ++rank) {
    members.push_back(LiveMember(rank, {static_cast<uint64_t>(rank % nodes + 1), 1}));
  }
  return ViewOf(std::move(members));
}
// A member on each node.
inline GroupView LiveView(int world) { return LiveView(world, world); }

// The list of a view, at one of its nodes.
inline std::shared_ptr<const GroupList> ListOf(const GroupView& view, const NodeKey& self) {
  return std::make_shared<const GroupList>(MakeGroupList(view, self));
}

// The last bytes are scratch memory.
inline std::shared_ptr<GroupMemory> MemoryOf(std::shared_ptr<std::string> bytes,
                                             uint64_t scratch = 0) {
  auto memory = std::make_shared<GroupMemory>();
  memory->work = absl::MakeSpan(bytes->data(), bytes->size() - scratch);
  memory->scratch = absl::MakeSpan(bytes->data() + memory->work.size(), scratch);
  memory->owner = std::move(bytes);
  return memory;
}
inline std::shared_ptr<GroupMemory> NewMemory(uint64_t work, uint64_t scratch = 0) {
  return MemoryOf(std::make_shared<std::string>(work + scratch, '\0'), scratch);
}

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_TESTING_GROUP_PARTS_H_
