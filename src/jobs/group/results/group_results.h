// GroupResults: the kept results of one group at one node, beside its GroupCore. It keeps the
// results of which this node is a holder, gives them to other nodes, and gets those for which a
// member of this node asks, such as a next life that repeats its calls.
//
//   GroupCore ──EndedCall──► GroupResults ◄──Ask── member
//                               │ ▲
//                               ▼ │ kAskResult, kHasResult, kFetchResult, kResultBytes
//                            other nodes
//
// A question, at the node of the member:
//
//   waits until the ──► asks all nodes ──► gets the pieces from ──► has the bytes
//   member takes part        │             the first that has it          │
//                            └─ none has it: error                        └──► Done
//
// A node says that it does not keep a result only after the call has ended there under the list of
// members that it knows, since it can be a holder until then; a newer list makes that void, and the
// node is asked again. If the node that gives the pieces is
// lost, the next one gives the rest: all results of a call have the same bits.
//
// Pure: no thread, clock or socket; time comes with each call. Owned by the GroupService, or by a
// test. One thread at a time.
#ifndef PHALANX_JOBS_GROUP_RESULTS_GROUP_RESULTS_H_
#define PHALANX_JOBS_GROUP_RESULTS_GROUP_RESULTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_wire.h"
#include "src/jobs/group/results/kept_results.h"

namespace phalanx::jobs {

// Questions of members of this node that have no answer; more are refused.
inline constexpr size_t kMaxWaitingResults = 1024;
// Calls about which a node asks another one at a time, and whose results it gets at a time.
inline constexpr size_t kMaxQuestions = 64;
// A result travels in pieces of this size; a node asks another one for so many at a time.
inline constexpr uint64_t kResultPieceBytes = kMaxPieceBytes;
inline constexpr size_t kMaxFetches = 32;
// Another node can wait here for so many answers, and for so many pieces. It forgets those that it
// has asked for when it believes that this node has forgotten them.
inline constexpr size_t kMaxServedQuestions = 1024;
inline constexpr size_t kMaxServedFetches = 1024;

struct GroupQuestion {
  GroupCallId id = 0;
  int rank = 0;
  uint64_t life = 0;
  uint64_t call = 0;
  Instant deadline = Instant::Infinite();
  uint64_t request = 0;  // by which the member names it in Cancel
  // It asks where the group was when the member entered it, and about no call.
  bool progress = false;
};

class GroupResults {
 public:
  // `group`: as that of the core.
  GroupResults(const NodeKey& self, uint64_t group, std::string name,
               std::shared_ptr<KeptBytes> bytes);

  // ---- beside the core
  // The core's, after each view.
  void OnList(std::shared_ptr<const GroupList> list);
  void OnEnded(const EndedCall& call);
  void OnEntered(const GroupEntered& entered);
  void OnRelease(const GroupRelease& release) { kept_.Release(release.boot, release.released); }
  // After each turn of the core, when its effects were given to this.
  void Advance(const GroupStatus& core);
  // Whether the status is that of the last Advance.
  bool Knows(const GroupStatus& core) const;
  // Whether the core is to agree with the other nodes, so that questions can be answered.
  bool waits() const;

  // ---- members of this node
  // A GroupDone follows, in a later call: OK with the result, or the progress; OutOfRange if the
  // call has not ended; NotFound if the result is not kept any more, InvalidArgument if calls of
  // this kind never are, Aborted if the call has failed or this life of the member ends;
  // DeadlineExceeded. Fails with ResourceExhausted beyond kMaxWaitingResults.
  absl::Status Ask(const GroupQuestion& question);
  // The member does not want the answer any more: the question ends with Cancelled. Ignores unknown
  // ones.
  void Cancel(int rank, uint64_t life, uint64_t request);
  // The member leaves: its questions end with Aborted.
  void EndMember(int rank);

  // ---- other nodes
  static bool Handles(GroupMessage kind) {
    return kind >= GroupMessage::kAskResult && kind <= GroupMessage::kResultBytes;
  }
  // As GroupCore.
  absl::Span<char> PlaceFor(const NodeKey& from, const GroupHeader& header, size_t bytes);
  std::shared_ptr<const GroupMemory> LandingFrom(const NodeKey& from) const;
  // REQUIRES: Handles.
  void OnMessage(const NodeKey& from, const GroupHeader& header, absl::string_view payload);
  void OnReleased(const NodeKey& node, uint64_t bytes);
  void OnLost(const NodeKey& node);
  void OnMemory(uint64_t ticket, absl::StatusOr<std::shared_ptr<GroupMemory>> memory);

  void Tick(Instant now);
  Instant NextTick() const;

  std::vector<GroupEffect> TakeEffects() { return std::exchange(effects_, {}); }
  size_t kept() const { return kept_.size(); }
  bool Has(uint64_t call) const { return kept_.Find(call) != nullptr; }

 private:
  // A call whose result members of this node miss.
  struct Missed {
    std::vector<GroupQuestion> askers;
    // Other nodes of the list, and those of them that have answered, or have it.
    std::set<NodeKey> asked;
    std::map<NodeKey, ResultAnswer> answers;
    std::set<NodeKey> holders;
    // The node that gives the pieces, and what it has.
    std::optional<NodeKey> holder;
    ResultAnswer found;
    uint64_t bytes = 0;
    uint64_t ticket = 0;
    Instant memory_by;  // of the ticket
    std::shared_ptr<GroupMemory> memory;
    // By piece: it has arrived. Pieces before `next` have, or were asked for.
    std::vector<bool> here;
    size_t arrived = 0;
    size_t next = 0;
  };
  // Another node.
  struct Peer {
    JobEpoch epoch;  // of its last message
    // Calls about which it asks, and under which list.
    std::map<uint64_t, JobEpoch> questions;
    std::deque<std::pair<uint64_t, uint32_t>> fetches;  // calls and pieces for which it asks
    uint64_t unreleased = 0;
    // What this node has asked it, and it has not answered: calls, under which list; and so many
    // pieces.
    std::map<uint64_t, JobEpoch> unanswered;
    size_t asked_pieces = 0;
    // Memory into which a piece is being received.
    std::shared_ptr<const GroupMemory> landing;
  };
  struct Entered {
    uint64_t life = 0;
    uint64_t first = 0;
    KeepSpec keep;
  };

  // ---- questions of members
  // Returns true if some wait because others are under way.
  bool BeginQuestions();
  // Those that something has happened to.
  void ProceedAll();
  // Returns true if the question has its answer.
  bool Proceed(uint64_t call, Missed& missed);
  void AskNodes(uint64_t call, Missed& missed);
  void ChooseHolder(Missed& missed);
  // Returns true if the memory is there, or none is needed.
  bool HasMemory(uint64_t call, Missed& missed);
  void Fetch(uint64_t call, Missed& missed);
  void GiveUpHolder(Missed& missed);
  void Finish(Missed& missed, const GroupDone& done);
  absl::Status WhyNot(uint64_t call, const Missed& missed) const;
  absl::Status WhyLate(const GroupQuestion& question) const;
  std::string Title(uint64_t call) const;
  bool IsLive(int rank, uint64_t life) const;
  // Ends the questions for which `over` is true.
  void EndQuestions(absl::FunctionRef<bool(const GroupQuestion&)> over,
                    absl::FunctionRef<absl::Status(const GroupQuestion&)> why);

  // ---- other nodes
  absl::Status TryMessage(const NodeKey& from, const GroupHeader& header,
                          absl::string_view payload);
  absl::Status OnAnswer(const NodeKey& from, const GroupHeader& header, absl::string_view payload);
  absl::Status OnBytes(const NodeKey& from, const GroupHeader& header, absl::string_view payload);
  void Answer(const NodeKey& node, Peer& peer);
  void Serve(const NodeKey& node, Peer& peer);
  // What the node was asked, and has answered, is void: it is asked anew.
  void Forget(const NodeKey& node);
  // There is a newer list, under which nodes that have refused can be holders.
  void ForgetRefusals();
  uint64_t PieceBytes(const Missed& missed, uint32_t index) const;
  GroupSend Message(const NodeKey& to, GroupMessage kind, uint64_t call, uint32_t index = 0) const;

  // Constant after construction.
  const NodeKey self_;
  const uint64_t group_;
  const std::string name_;

  std::shared_ptr<const GroupList> list_ = std::make_shared<const GroupList>();
  GroupStatus core_;
  std::map<int, Entered> entered_;  // by rank
  KeptResults kept_;

  std::deque<GroupQuestion> waiting_;
  std::map<uint64_t, Missed> missed_;  // by call
  // Calls to which something has happened since the last Advance; or it concerns all.
  std::set<uint64_t> touched_;
  bool all_touched_ = false;
  std::map<NodeKey, Peer> peers_;
  // What memory was asked for: the call, and whether to copy a kept result into it.
  std::map<uint64_t, std::pair<uint64_t, bool>> tickets_;
  uint64_t next_ticket_ = 1;
  std::vector<GroupEffect> effects_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_RESULTS_GROUP_RESULTS_H_
