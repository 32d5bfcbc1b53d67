// GroupCore: one group (the members of one role of a job) at one node. It takes the calls of this
// node's members, views of the group and messages of the other nodes, and returns effects.
//
//   members ──Call──► GroupCore ──Send──► nodes of the group
//   Members ──OnView──►   │  ◄──OnMessage──
//                         └──Done──► members
//
// The list of members:
//
//              all ranks have joined      a call or a new member waits, or a node asks
//   kForming ────────────────────► kIdle ───────────────────────────────► kAgreeing
//       ▲                            ▲                                        │ ResumeOrder
//       └──── another list ──────────┴── another list, a lost link ─ kRunning ◄┘
//
// Calls have numbers from 1 on, the same on all nodes; a member's calls have consecutive numbers.
// A node takes the calls one after the other: a call begins when all its members on this node have
// made it. In kRunning:
//
//   waiting for members ──► waiting for memory ──► under way (CallRun) ──► ended ──► settled
//
// Invariants
//  1. Bytes of one list only: a message of another list is kept until the list is known here, or
//     dropped. A change of the list ends what is under way; the call keeps its inputs. So does a
//     lost link: its calls fail, and the nodes agree in the next round of the same list.
//  2. `ended_` is the last call that has ended on this node. Calls above `settled_` may not have
//     ended on other nodes: their inputs and results are kept. When a call that proves it
//     (GroupPlan::proves_all_began) ends, the call before it is settled.
//  3. The list's coordinator decides what becomes of the calls that have not ended on all nodes
//     (group_recovery.h). Then the nodes take these calls again, from the first one on: a node on
//     which such a call has ended takes part without telling its members.
//  4. An error of a call is sent to all nodes, so that the call fails on all nodes on which it has
//     not ended.
//  5. A member that leaves stays in the list until the calls that have ended on its node have ended
//     on all nodes (group_leaving.h).
//  6. A node sends another node more than kEagerBytes or kEagerMessages of a call only after its
//     kReady, that is, when memory for them is there.
//
// Pure: no thread, clock or socket; time comes with each call. Owned by the GroupService, or by a
// test. One thread at a time.
#ifndef PHALANX_JOBS_GROUP_GROUP_CORE_H_
#define PHALANX_JOBS_GROUP_GROUP_CORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/call_resources.h"
#include "src/jobs/group/call_run.h"
#include "src/jobs/group/early_messages.h"
#include "src/jobs/group/group_call.h"
#include "src/jobs/group/group_leaving.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_plan.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/group/results/kept_results.h"
#include "src/jobs/members/group_view.h"
#include "src/jobs/overlap/byte_ranges.h"
#include "src/jobs/overlap/result_parts.h"

namespace phalanx::jobs {

// Calls of one member that have not ended on its node, answered ones too; more are refused.
inline constexpr size_t kMaxOutstandingCalls = 1024;
// How far ahead of this node's call another node's errors can be; more break the protocol.
inline constexpr uint64_t kMaxErrorsAhead = 4 * kMaxOutstandingCalls;
// Bytes sent to one node of which the link still needs the memory.
inline constexpr uint64_t kMaxUnreleasedBytes = uint64_t{8} << 20;
// Payloads up to this size are copied by the link.
inline constexpr uint64_t kCopiedBytes = 4096;
// How long a call is under way before this node asks which ranks are missing.
inline constexpr absl::Duration kAskAfter = absl::Milliseconds(500);
// The least time between two questions.
inline constexpr absl::Duration kLeastAskPause = absl::Milliseconds(10);

// Chosen by the owner, unique in this core.
using GroupCallId = uint64_t;

struct GroupSend {
  GroupList::Node to = {};
  std::string header = {};
  // The payload is `copied`; or, with `keep`, which keeps it unchanged, `payload`. The owner calls
  // OnReleased when the link has dropped `keep`.
  std::string copied = {};
  absl::string_view payload = {};
  std::shared_ptr<const void> keep = {};
};
struct GroupDone {
  GroupCallId id = 0;
  absl::Status status = {};
  // Empty if there is none. With `in_input` it is this member's own input; otherwise it is in
  // `memory`, or is the input of an earlier life. `memory` and `input` keep it.
  absl::string_view result = {};
  bool in_input = false;
  uint64_t number = 0;
  int members = 0;  // that took part
  std::shared_ptr<const GroupMemory> memory = {};
  std::shared_ptr<const void> input = {};
  // Answers a GroupQuestion about progress: `number` is the last call before this member's first.
  std::optional<KeepSpec> progress = {};
};
// A part of the result of a call that is still under way. Without `memory` all parts before are
// void, since the call is taken again: then its parts are in other memory, and so is the result.
struct GroupPart {
  GroupCallId id = 0;
  absl::string_view result = {};  // all of it
  ByteRange part = {};
  std::shared_ptr<const GroupMemory> memory = {};
};
// A member takes part from now on: its first call has, or will have, this number. What the newest
// call has said about results that are kept, if this is not the member's first life.
struct GroupEntered {
  int rank = 0;
  uint64_t life = 0;
  uint64_t first = 0;
  KeepSpec keep = {};
};
// All members have made a call that says that the results of the calls after `boot` up to
// `released` are not needed any more.
struct GroupRelease {
  uint64_t boot = 0;
  uint64_t released = 0;
};
// OnMemory answers, in another call.
struct GroupAllocate {
  uint64_t ticket = 0;
  uint64_t work_bytes = 0;
  uint64_t scratch_bytes = 0;
  Instant deadline;
};
// The node has broken the protocol: the link is to be given up.
struct GroupGiveUp {
  NodeKey node;
  absl::Status why;
};
// Advance is to be called in a later turn.
struct GroupRunMore {};
// The first `members` of this node that leave can go: no other node needs what has ended here.
struct GroupSettled {
  size_t members = 0;
};
// An EndedCall comes before the GroupDones of the call; again under each new list of members until
// the call is settled, since other nodes can be its holders then.
using GroupEffect = std::variant<GroupSend, GroupDone, GroupPart, GroupEntered, GroupAllocate,
                                 GroupGiveUp, GroupRunMore, GroupSettled, EndedCall, GroupRelease>;

struct GroupCallRequest {
  GroupCallId id = 0;
  CallSpec spec = {};
  // InputBytes(spec) bytes, unchanged while `keep` is kept.
  absl::string_view input = {};
  // What is there of it; null: all. The owner adds to it, and calls Advance.
  std::shared_ptr<const ByteRanges> filled = {};
  std::shared_ptr<const void> keep = {};
  Instant deadline = Instant::Infinite();
  // Not OK: the member cannot make the call. It takes its number, and fails on all members.
  absl::Status refused = {};
};

struct GroupStatus {
  uint64_t next = 1;  // the call that the node takes next, or is in, if `running`
  uint64_t ended = 0;
  uint64_t settled = 0;
  size_t kept_calls = 0;
  size_t early_messages = 0;
  bool running = false;
  uint32_t round = 0;  // of the agreement on the list
};

class GroupCore {
 public:
  // `group`: a hash of the job and the role, in every header.
  GroupCore(const NodeKey& self, uint64_t group, std::string name);

  // A client of this node is a member. Calls of an earlier life of it end with Aborted, and so do
  // those of a member that has ended by OnView.
  void AddMember(int rank, uint64_t life);
  // Returns the group's list, of this view or of a newer one, for those that stand beside the core.
  [[nodiscard]] std::shared_ptr<const GroupList> OnView(const GroupView& view, Instant now);

  // Done follows, in this call or a later one. Fails, without counting the call, with NotFound if
  // there is no such member, or ResourceExhausted: too many calls of the member are under way, or
  // one was refused so and those before it are still under way. Calls that the member has sent
  // before it knows of a refusal would take numbers of others.
  absl::Status Call(int rank, uint64_t life, GroupCallRequest request, Instant now);

  // Where the payload of a message goes; empty: it is to be handed to OnMessage from elsewhere.
  absl::StatusOr<absl::Span<char>> PlaceFor(const NodeKey& from, const GroupHeader& header,
                                            size_t bytes);
  void OnMessage(const NodeKey& from, const GroupHeader& header, absl::string_view payload,
                 Instant now);
  // The memory of the last place for that node until OnMessage. An owner that drops the core in
  // between keeps it.
  std::shared_ptr<const GroupMemory> LandingFrom(const NodeKey& from) const {
    const auto link = links_.find(from);
    return link == links_.end() ? nullptr : link->second.landing;
  }
  // The link does not need `bytes` bytes of payloads to that node any more.
  void OnReleased(const NodeKey& node, uint64_t bytes);
  // The link to a node was given up: what was under way to it or from it is lost. `why` as for
  // LinkReceiver::OnLost.
  void OnLost(const NodeKey& node, const absl::Status& why);
  void OnMemory(uint64_t ticket, absl::StatusOr<std::shared_ptr<GroupMemory>> memory);
  // Goes on with the call under way: after a GroupRunMore, or when more of an input is there.
  void Advance();
  // A member of this node is about to leave, and makes no call any more: its calls under way end
  // with Aborted. GroupSettled follows, in this call or a later one, when the calls that have ended
  // here have ended on all nodes, also for the next lives of members that have died if the last one
  // waits for these; or after kLeavePatience.
  void SettleForLeave(int rank, Instant now);

  // The nodes agree on the calls that have ended, although no call may need it.
  void Agree();

  // Deadlines, and questions about calls that take long. NextTick may be earlier than needed.
  void Tick(Instant now);
  Instant NextTick() const { return std::min(agreement_.next_tick, leaving_.until()); }

  std::vector<GroupEffect> TakeEffects() { return std::exchange(effects_, {}); }
  GroupStatus status() const;

 private:
  enum class State { kForming, kIdle, kAgreeing, kRunning };
  // A member whose client is on this node.
  struct LocalMember {
    uint64_t life = 0;
    // Set when the member takes part: the number of its last call.
    std::optional<uint64_t> last = {};
    uint64_t first = 0;  // of its first call
    // Calls from before that; id 0: answered already.
    std::deque<GroupCallRequest> waiting = {};
    size_t unanswered = 0;
    bool refusing = false;  // a call was refused, and those before it are under way
  };
  // What one member gives to a call.
  struct Part {
    GroupCallRequest request;
    uint64_t life = 0;
    bool shown = false;  // parts of the result
    bool answered = false;
  };
  struct NodeCall {
    std::map<int, Part> parts;  // by rank
    CallEnd end = CallEnd::kNone;
    absl::Status error;
    CallSpec spec;  // once it has ended
    // The result, by rank, once it has ended with one.
    std::map<int, absl::string_view> results;
    std::shared_ptr<const GroupMemory> memory;
    std::shared_ptr<const void> input;  // of a result in an input
    int members = 0;

    // What is to be kept of the call; `holds` is false.
    EndedCall Kept() const;
    // The parts that its members know are void.
    std::vector<GroupPart> VoidParts();
  };
  // The call at `cursor_`, once it has begun.
  struct Current {
    CallSpec spec;
    std::shared_ptr<const GroupPlan> plan;
    std::vector<int> ranks;  // of this node
    uint64_t ticket = 0;
    std::shared_ptr<GroupMemory> memory;  // null: it was asked for
    std::unique_ptr<CallRun> run;
    ResultParts parts;
    std::vector<absl::string_view> inputs;
    std::vector<std::shared_ptr<const ByteRanges>> filled;  // of the inputs
    std::vector<std::shared_ptr<const void>> keeps;         // of the inputs
    std::shared_ptr<const void> keep;  // of the inputs and the memory, while links send from them
    bool adopts = false;
    int members = 0;
    // By node.
    std::vector<uint64_t> sent_bytes;
    std::vector<uint32_t> sent;
    std::vector<uint32_t> arrived;

    ResultPlace PlaceOf(const GroupList& list, size_t slot) const;
    // What is to be shown to members of this node that wait for the result.
    std::vector<GroupPart> TakeParts(const GroupList& list, NodeCall& call);
  };
  // Of one other node.
  struct Link {
    uint64_t ready = 0;  // the last call for which it has said kReady
    uint64_t unreleased = 0;
    // Memory into which a payload is being received.
    std::shared_ptr<const GroupMemory> landing;
  };
  struct Stuck {
    uint64_t call = 0;
    std::optional<CallSpec> spec;
    MissingRanks missing;
  };
  struct Agreement {
    uint32_t round = 0;  // of the list
    // Of calls that are not in `calls_` any more, and of orders of any list.
    NewestKeep newest;
    // The calls from one to the other have failed on all nodes that are past them.
    uint64_t failed_from = 1;
    uint64_t failed_to = 0;
    // Of the coordinator, by node.
    std::vector<std::optional<NodeReport>> reports;
    // By node, the first call in which it takes part.
    std::vector<uint64_t> firsts;
    std::map<int, Stuck> stuck;
    // The ranks that are missing in a call, from the coordinator.
    uint64_t missing_call = 0;
    MissingRanks missing;
    uint64_t ticked_at = 0;  // the cursor at the last Tick
    Instant next_tick = Instant::Infinite();
  };

  // ---- calls of members (group_core.cc)
  // Answers the calls of a life that is over.
  void EndLife(int rank, const LocalMember& member);
  void Enter(int rank, LocalMember& member, GroupCallRequest request);
  // With `error`, although the call may have a result for others.
  void Answer(uint64_t number, NodeCall& call, int rank, Part& part, const absl::Status& error);
  void AnswerAll(uint64_t number, NodeCall& call, const absl::Status& error);
  void FailCall(uint64_t number, const absl::Status& why);
  void TakeError(uint64_t number, const absl::Status& why);
  // Whether a plan can be made for the call, and takes this input.
  absl::Status CheckPart(uint64_t number, int rank, const Part& part) const;
  bool CheckAgreement(uint64_t number);
  std::string Title(uint64_t number) const;
  std::string Waiting(uint64_t number) const;

  // ---- the call at the cursor (group_core_calls.cc)
  bool AdvanceOne();
  bool Begin();
  bool BeginRun();
  bool BeginAdoption(const ResumeOrder::Call& order);
  // The ranks of this node whose calls the one at the cursor needs; `all` if they are there.
  std::vector<int> NeededRanks(bool& all) const;
  void Allocate();
  void StartRun();
  bool SendData(int peer, absl::string_view bytes, bool copy);
  void EndCurrent();
  void EndAt(CallEnd end, const absl::Status& error);
  void Keep(uint64_t number, const NodeCall& call, bool again);
  void Leave();
  void Settle(uint64_t number);
  void OnData(int peer, const GroupHeader& header, absl::string_view payload);

  // ---- lists of members (group_core_lists.cc)
  void EnterRound(uint32_t round);
  void EndMembers();
  bool HasWaiting() const;
  void Demand();
  void TakeReport(int node, NodeReport report);
  void Resume(const ResumeOrder& order);
  bool IsFresh() const;
  void Redeliver();
  bool IsForLater(const GroupHeader& header) const;
  void Handle(int peer, const GroupHeader& header, absl::string_view payload);
  absl::Status TryHandle(int peer, const GroupHeader& header, absl::string_view payload);
  void CompareEarly(int peer, const GroupHeader& header);
  void Ask();
  void OnStuck(int peer, const GroupHeader& header, const MissingRanks& missing);
  MissingRanks MissingHere(uint64_t number) const;
  void AskAgainAt(Instant now);

  void Send(int peer, GroupMessage kind, uint64_t call, absl::string_view payload = {});
  void SendToOthers(GroupMessage kind, uint64_t call, absl::string_view payload);
  GroupHeader HeaderOf(GroupMessage kind, uint64_t call) const;

  // Constant after construction.
  const NodeKey self_;
  const uint64_t group_;
  const std::string name_;

  State state_ = State::kForming;
  std::shared_ptr<const GroupList> list_ = std::make_shared<const GroupList>();
  std::map<int, LocalMember> members_;  // by rank
  // The first call in which this node takes part; 0: none yet.
  uint64_t first_ = 0;

  // By number: calls that are not settled, or that a member of this node has still to make.
  std::map<uint64_t, NodeCall> calls_;
  std::map<uint64_t, absl::Status> errors_;       // of calls from the cursor on
  std::map<uint64_t, ResumeOrder::Call> orders_;  // of calls from the cursor on
  uint64_t cursor_ = 1;
  uint64_t ended_ = 0;
  uint64_t settled_ = 0;
  std::optional<Current> current_;
  CallResources resources_;

  EarlyMessages early_;
  std::map<NodeKey, Link> links_;
  Agreement agreement_;
  GroupLeaving leaving_;
  std::vector<GroupEffect> effects_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_CORE_H_
