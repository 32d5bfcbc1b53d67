// GroupService: the groups of one node. It joins the cores of groups to the members of this node,
// to the links and to memory, and decides nothing.
//
//   Members ──OnView───────────► GroupService ──► GroupCore, GroupResults and VouchedCalls, one of
//   sessions ──Call, AskResult──►   │  ▲ OnMessage    each per group
//                                   ▼  │
//                       NodeLinks (kGroups)          GroupAllocator: memory of large calls
//
// A small call runs in the turns of the control loop that its messages wake: no thread is crossed,
// and callers are answered in the turn of the last message.
//
// Thread rule: everything, callbacks too, on the control loop. Owned by the node.
#ifndef PHALANX_JOBS_GROUP_SERVICE_GROUP_SERVICE_H_
#define PHALANX_JOBS_GROUP_SERVICE_GROUP_SERVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/time/executor.h"
#include "src/jobs/group/early_messages.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/results/group_results.h"
#include "src/jobs/group/results/kept_results.h"
#include "src/jobs/group/service/held_answers.h"
#include "src/jobs/group/service/vouched_calls.h"
#include "src/jobs/members/group_view.h"
#include "src/net/link/node_links.h"
#include "src/object_store/channel/shard_leases.h"

namespace phalanx::jobs {

// Messages of a group that this node does not know yet are kept so long: its member has joined, but
// the shard's answer is under way.
inline constexpr absl::Duration kUnknownGroupPatience = absl::Seconds(10);

// A message for which there is no link, and no room for one, is lost after this time.
inline constexpr absl::Duration kUnreachablePause = absl::Milliseconds(100);

// Memory of calls whose results are given to clients as files.
class GroupAllocator {
 public:
  virtual ~GroupAllocator() = default;
  using Allocated = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<GroupMemory>>)>;
  // Calls `done` once, never inside this call: ResourceExhausted if the node has no room by then.
  virtual void Allocate(uint64_t work_bytes, uint64_t scratch_bytes, Instant deadline,
                        Allocated done) = 0;
  // The memory of kept results, of all groups of the node together: sets its limit, and drops
  // results if other memory is needed.
  virtual void ShareKept(std::shared_ptr<KeptBytes> kept) = 0;
};

// The calls of this node's members.
struct GroupServiceStats {
  uint64_t under_way = 0;  // also questions for kept results
  uint64_t ended = 0;      // with a result
  uint64_t failed = 0;
};

class GroupService final : public GroupObserver, public net::LinkReceiver {
 public:
  // All of them outlive the service, which receives the messages of LinkService::kGroups.
  GroupService(const NodeKey& self, Executor& control, net::NodeLinks& links,
               GroupAllocator& allocator, int num_shards);
  ~GroupService() override;
  GroupService(const GroupService&) = delete;
  GroupService& operator=(const GroupService&) = delete;

  // A member of this node, which Members has shown in a view, makes its next call. `request.id` is
  // not used. `done` is called once, also inside this call; with Aborted if the group is left
  // before. `part`, if there is one, is called before, for parts of a large result. Errors, for
  // calls that are not counted: as GroupCore::Call.
  using CallDone = absl::AnyInvocable<void(const GroupDone& done)>;
  using CallPart = absl::AnyInvocable<void(const GroupPart& part)>;
  absl::Status Call(absl::string_view job, absl::string_view role, int rank, uint64_t life,
                    GroupCallRequest request, CallDone done, CallPart part = nullptr);

  // More of the input of a call is there: its `filled` has grown. Does nothing if the group is
  // gone.
  void InputFilled(absl::string_view job, absl::string_view role);

  // A member of this node asks for the kept result of a call that has ended, or for the group's
  // progress. Errors, and what
  // `done` gets: as GroupResults::Ask.
  absl::Status AskResult(absl::string_view job, absl::string_view role, GroupQuestion question,
                         CallDone done);
  // As GroupResults::Cancel.
  void CancelResult(absl::string_view job, absl::string_view role, int rank, uint64_t life,
                    uint64_t request);

  // A member of this node leaves the group, and makes no call any more: `leave` is called when no
  // other node needs what its calls have left here, in this call or a later one. If the group is
  // left before, it may not be called.
  void WhenSettled(absl::string_view job, absl::string_view role, int rank,
                   absl::AnyInvocable<void()> leave);

  const GroupServiceStats& stats() const { return stats_; }

  // ---- the shards of the directory, as for ShardLeases. While the node is not confirmed by the
  // job's shard, its members get answers of calls that have ended on all nodes (VouchedCalls), and
  // otherwise Aborted and, at their deadlines, errors.
  void OnShardSession(int shard);
  void OnShardHeard(int shard, Instant heard, absl::Duration lease);
  // After the ends of members that the shard has sent before.
  void OnShardRegistered(int shard);

  // ---- GroupObserver
  void OnView(const GroupView& view) override;
  void OnGroupLeft(absl::string_view job, absl::string_view role) override;

  // ---- net::LinkReceiver
  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, absl::string_view header,
                                            size_t payload_bytes) override;
  void OnMessage(const NodeKey& from, absl::string_view header, absl::Span<char> payload) override;
  void OnLost(const NodeKey& peer, const absl::Status& why) override;

 private:
  // Which of the two an effect is of.
  enum class Part { kCore, kResults };
  struct Caller {
    CallDone done;
    CallPart part;
    int rank = 0;
    uint64_t life = 0;
    Instant deadline;
    Part of = Part::kCore;
    // The input: a call that fails after its result was shown in part is restored from it.
    std::shared_ptr<const void> keep = nullptr;
  };
  struct Group {
    Group(const NodeKey& self, uint64_t number, const std::string& name, int shard,
          std::shared_ptr<KeptBytes> kept)
        : number(number),
          shard(shard),
          core(self, number, name),
          results(self, number, name, std::move(kept)),
          vouched(self, number),
          held(self, name) {}
    const uint64_t number;
    const int shard;  // of the job
    GroupCore core;
    GroupResults results;
    VouchedCalls vouched;
    HeldAnswers held;
    JobEpoch epoch;  // of the last view
    std::map<GroupCallId, Caller> calls;
    std::deque<absl::AnyInvocable<void()>> leavers;
    std::set<NodeKey> unreachable;  // whose OnLost is to be called here
    TimerId timer = 0;
    Instant timer_at = Instant::Infinite();
    bool continues = false;  // Advance is posted
  };
  // A group of which this node has no member any more.
  struct Left {
    JobEpoch epoch;  // of its last view
    Instant at;
  };
  // What the links have released since the last turn.
  using Released = std::map<std::tuple<uint64_t, Part, NodeKey>, uint64_t>;
  using Name = std::pair<std::string, std::string>;

  Group* Find(uint64_t number);
  void Deliver(Group& group, const NodeKey& from, const GroupHeader& header,
               absl::string_view payload);
  void KeepUnknown(const NodeKey& from, const GroupHeader& header, absl::string_view payload);
  void DropOld();
  void RunEffects(Group& group);
  // Returns false if a caller that was answered has left the group.
  bool RunEffectsOf(Group& group, Part part, std::vector<GroupEffect> effects);
  void RunEffect(Group& group, Part part, GroupEffect& effect);
  void SendTo(Group& group, Part part, GroupSend& send);
  bool Confirmed(const Group& group) const;
  // Ends the call, or holds its answer until the node is confirmed, or the others vouch for it.
  void Answer(Group& group, GroupDone done);
  void AskForVouches(Group& group);
  void EndCall(Group& group, const GroupDone& done);
  // Returns false if a caller that was answered has left the group.
  bool GiveHeld(Group& group);
  void GiveHeldOf(int shard);
  void AllocateFor(Group& group, Part part, const GroupAllocate& allocate);
  void ContinueLater(Group& group);
  // Once in the life of the node.
  void LogDropped(const Group& group);
  void Release(uint64_t group, Part part, const NodeKey& node, uint64_t bytes);
  void ArmTimer(Group& group);
  // Runs `task` in a later turn unless the service is gone.
  void Later(absl::AnyInvocable<void()> task);

  // Constant after construction.
  const NodeKey self_;
  Executor& control_;
  net::NodeLinks& links_;
  GroupAllocator& allocator_;
  const std::shared_ptr<KeptBytes> kept_;

  std::map<Name, std::unique_ptr<Group>> groups_;
  std::map<uint64_t, Group*> by_number_;
  object_store::ShardLeases leases_;
  std::set<uint64_t> holding_;  // groups that hold answers
  EarlyMessages unknown_;
  std::map<uint64_t, Left> left_;  // less than kUnknownGroupPatience ago
  Released released_;
  // Memory into which a link is writing a payload, also when its group is left.
  std::map<NodeKey, std::shared_ptr<const GroupMemory>> landings_;
  GroupCallId next_call_ = 1;
  GroupServiceStats stats_;
  bool logged_dropped_ = false;
  // Expired when the service is gone.
  std::shared_ptr<GroupService*> alive_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_SERVICE_GROUP_SERVICE_H_
