// GroupWorld: the cores of all nodes of one group, with a job's shard, members that make a script
// of calls, and a network, all driven by a seed. Testonly; one thread.
//
// Element j of the input of rank r to call n is 2^r * (1000 n + j + 1), as u64. So a sum shows
// which members are in it, and a result that mixes calls or lists is no multiple.
//
// Faults: members die, with or without their nodes, and return with the next life, on the same node
// or on another one; links are given up; a next life joins while the last one still calls; views
// come late, to each node at its own time; members leave after their last call; messages are
// delayed, a payload lands in two parts with other events between them; memory is granted late;
// inputs are copied while their calls are under way, and not to the end if the member dies; nodes
// sleep for less and for more than a lease, which ends their members, and go on with what has
// arrived before they hear of that; they are cut off from the shard, and their members call on; the
// shard is away for up to ten leases, or until all calls have ended (group_world_sleeps.cc).
//
// Checks, in Violations:
//  - all live members get the same result of a call, of the same members;
//  - a result has each member's input once, and leaves out no member that has lived throughout;
//  - a call ends with an error only where the policy allows that;
//  - a result that is said to be in the member's input is there;
//  - a member that copies parts of a result before the call has ended has the result in the end;
//  - after the faults every call of every member ends, also those of a life that was replaced;
//  - members that leave need no patience (kLeavePatience): the other nodes answer them;
//  - what a member gets when the shard has declared it dead is no other result than that of the
//    members that live, or of others that the shard has declared dead; unless it had declared all
//    dead, so that a new group has begun with call 1;
//  - calls end while the shard is away, if nothing else happens but that links are lost;
//  - a kept result is the one that the members got, and is there unless it is too old or as many
//    hosts as there are copies have ended since;
//  - with `until_released` a next life gets the results of all calls that its progress names, which
//    is that of all lives of one agreement, and not behind a call that a live member has got; what
//    all members have released is freed (group_world_released.cc).
#ifndef PHALANX_JOBS_GROUP_TESTING_GROUP_WORLD_H_
#define PHALANX_JOBS_GROUP_TESTING_GROUP_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/common/random.h"
#include "src/jobs/group/group_core.h"
#include "src/jobs/group/results/group_results.h"
#include "src/jobs/group/service/held_answers.h"
#include "src/jobs/group/service/vouched_calls.h"
#include "src/jobs/overlap/byte_ranges.h"
#include "src/object_store/channel/shard_leases.h"

namespace phalanx::jobs::testing {

struct GroupWorldOptions {
  OnLoss on_loss = OnLoss::kWait;
  bool deaths = true;
  // Members also join again while they live.
  bool replaced = false;
  // Links are given up: what was under way on them is lost.
  bool losses = false;
  // Nodes that die start again at once: others hear of that from them before the list says so.
  bool restarts = false;
  // One member makes another call than the others at a random number.
  bool differs = false;
  // Members make calls before their inputs are complete.
  bool fills_late = false;
  // After the faults, members leave once their calls have ended. With `losses`, links are lost
  // then, too.
  bool leaves = false;
  // Results are kept. A next life asks for those of calls that it has missed, and of some before.
  // Hosts, of two nodes each, die. Some memory for results is refused. A call that differs has too
  // many bytes.
  bool retained = false;
  // Only whole hosts die, and more often. There are two or three, results have two copies, and next
  // lives ask for all of them.
  bool whole_hosts = false;
  // With `retained`: results are kept until they are released. Members act as if they wrote
  // checkpoints between calls; next lives ask for their progress, and for all that it names.
  bool until_released = false;
  // Nodes sleep, also for longer than a lease.
  bool sleeps = false;
  // Nodes are cut off from the shard, also for longer than a lease.
  bool cuts = false;
  // The shard is away.
  bool away = false;
  int calls = 12;
};

class GroupWorld {
 public:
  GroupWorld(uint64_t seed, GroupWorldOptions options);
  // Runs to the end. Returns what was violated; empty: nothing.
  std::vector<std::string> Run();
  struct Counts {
    uint64_t answers = 0;  // calls that have ended for a live member
    uint64_t deaths = 0;
    uint64_t parts = 0;  // of results, that members have copied early
    uint64_t voids = 0;  // results whose parts were void
    // Kept results that members were given, and that were lost with their holders.
    uint64_t given = 0;
    uint64_t lost = 0;
    uint64_t fenced = 0;   // nodes that slept for too long
    uint64_t held = 0;     // answers that their members got later
    uint64_t vouched = 0;  // of these, without the shard
    uint64_t refused = 0;  // for lack of memory here
    uint64_t progresses = 0;
    size_t most_kept = 0;  // calls, at one node
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Message {
    GroupSend send;
    bool of_results = false;  // its sender is a GroupResults
    bool landing = false;
    absl::Span<char> place;
    std::shared_ptr<const GroupMemory> keep;  // of the place
  };
  struct Unreleased {
    std::shared_ptr<const void> keep;
    uint64_t bytes = 0;
    bool of_results = false;
  };
  struct Link {
    std::deque<Message> queue;
    std::vector<Unreleased> unreleased;
  };
  // An input that is copied into its buffer while the call is under way.
  struct Fill {
    std::shared_ptr<std::string> input;
    std::shared_ptr<std::string> buffer;
    std::shared_ptr<ByteRanges> there;
  };
  struct Program {
    int rank = 0;
    uint64_t life = 0;
    int node = 0;
    bool alive = true;
    bool replaced = false;  // by its next life, while it was alive
    bool fenced = false;    // its node was out of touch for too long, and does not know
    uint64_t group = 0;     // begun anew so often
    bool leaving = false;
    Instant leaves_by = {};  // its patience ends then
    bool left = false;
    bool entered = false;
    uint64_t next = 1;
    size_t outstanding = 0;
    std::map<uint64_t, uint64_t> called;  // id to number
    std::deque<Fill> fills = {};
    std::deque<uint64_t> missed = {};  // calls for whose results it asks
    size_t asking = 0;                 // for so many
    bool asks_progress = false;
    std::pair<uint64_t, uint32_t> agreement = {};  // in which it entered: the list, and the round
  };
  // What a node and the job's shard know of each other.
  struct Session {
    object_store::ShardLeases leases{1};
    Instant wakes;
    Instant cut_until;
    Instant heard;  // by the shard
    bool fenced = false;
    bool registering = false;
  };
  struct Node {
    NodeKey key;
    std::unique_ptr<GroupCore> core;
    std::deque<GroupView> views;
    int host = 0;
    std::unique_ptr<GroupResults> results = nullptr;
    std::unique_ptr<VouchedCalls> vouched = nullptr;
    std::unique_ptr<HeldAnswers> held = nullptr;
    Session session = {};
    GroupView view = {};  // the last one
    uint64_t list = 0;    // its digest
    // Peers of which it has still to hear that the link was lost; nothing is sent to them before.
    std::set<NodeKey> lost = {};
    // Peers of which it has still to hear that they have started again.
    std::set<NodeKey> restarted = {};
    struct Grant {
      uint64_t ticket = 0;
      bool of_results = false;
      std::shared_ptr<GroupMemory> memory;  // null: there is none
    };
    std::vector<Grant> grants;
    bool run_more = false;
    std::deque<Program*> leavers = {};
    size_t settled = 0;  // leavers that can go
  };
  struct Made {
    Program* program = nullptr;
    uint64_t number = 0;
    const char* input = nullptr;
    // What the member has copied of a result in this memory.
    std::shared_ptr<const GroupMemory> memory = {};
    std::string copy = {};
    ByteRanges copied{0};
  };
  struct Result {
    int rank = 0;
    uint64_t life = 0;
    absl::Status status;
    uint64_t mask = 0;
    int members = 0;
    bool kept = false;  // of a call that it has not made
    bool late = false;  // its life was over
    uint64_t group = 0;
  };

  // Each is written after this call; the first one after the boot calls.
  struct Checkpoints {
    std::vector<uint64_t> after;
    bool two_generations = false;  // the one before the last one is needed, too

    void Make(Random& random, uint64_t calls);
    // What the members say in this call.
    KeepSpec Before(uint64_t number) const;
  };

  CallSpec Spec(uint64_t number, int rank) const;
  uint32_t RetainOf(uint64_t number) const;
  std::shared_ptr<std::string> Input(const CallSpec& spec, uint64_t number, int rank) const;
  // The members in a result; 0 and a violation if it is none.
  uint64_t MaskOf(const CallSpec& spec, uint64_t number, int rank, absl::string_view bytes,
                  int members);

  void Publish();
  void StepOnce(bool faults);
  void StepNode(Node& node);
  bool StepLink(const std::pair<NodeKey, NodeKey>& key, Link& link);
  void StepProgram(Program& program);
  void StepFill(Program& program);
  void Ask(Program& program);
  void OnProgress(Program& program, const GroupDone& done);
  void OnKept(const GroupDone& done);
  void CheckKept();
  // Whether the holders of a call's result may have ended.
  bool MayBeLost(uint64_t number) const;
  void Forget(Node& node);
  void OnEffect(Node& node, GroupEffect& effect, bool of_results);
  void TakeEnded(Node& node, const EndedCall& call);
  void LoseLink(const NodeKey& one, const NodeKey& other);
  void Leave(Program& program);
  void OnSettled(Node& node);
  void Kill(Program& program);
  void KillNode(Node& node);
  void Replace(Program& program);
  void LeaveIfEmpty(Node& node);
  // Does nothing if no node is in touch with the shard.
  void Revive(int rank);
  void Join(int rank, Node& node);
  void Drain(Node& node);
  // Whether the node may answer its members.
  bool Confirmed(const Node& node) const;
  bool Sleeps(const Node& node) const { return now_ < node.session.wakes; }
  bool InTouch(const Node& node) const {
    return !Sleeps(node) && now_ >= node.session.cut_until && !shard_.away;
  }
  void Hear(Node& node);
  void StepSleep();
  void StepCut();
  void StepAway();
  void Return();
  void StepFenced();
  void FenceSilent();
  void Fence(Node& node);
  void WakeAll();
  void Answer(Node& node, const GroupDone& done);
  void GiveHeld(Node& node);
  void GiveAnswer(const GroupDone& done);
  void CheckLate(uint64_t number, const std::vector<Result>& results);
  void NoteGroup(Program& program, uint64_t first);
  void OnPart(const GroupPart& part);
  void OnDone(const GroupDone& done);
  // The result as the member has it.
  std::string ResultOf(Made& made, const GroupDone& done);
  void CheckCall(uint64_t number, const std::vector<Result>& results);
  // REQUIRES: the call has a root.
  static bool Root(const CallSpec& spec, const Result& result);
  void Violate(std::string text);
  Node* NodeOf(const NodeKey& key);
  Program* Live(int rank);
  // Also one that has left.
  Program* Last(int rank);
  bool MayLeave();
  bool Finished();
  std::string Describe();

  Random random_;
  const GroupWorldOptions options_;
  int world_ = 0;
  Instant now_;
  JobEpoch epoch_{1, 0};
  GroupView view_;
  std::vector<Node> nodes_;
  std::deque<Program> programs_;
  std::map<std::pair<NodeKey, NodeKey>, Link> links_;
  std::map<uint64_t, Made> ids_;
  std::map<uint64_t, std::vector<Result>> results_;
  std::set<std::pair<int, uint64_t>> ended_lives_;
  uint64_t next_id_ = 1;
  uint64_t script_ = 0;
  struct {
    uint64_t at = 0;
    int rank = -1;
  } differs_;
  uint64_t leaving_steps_ = 0;  // since members may leave; 0: they may not yet
  struct {
    bool away = false;
    Instant back;          // infinite: until all calls have ended
    bool changed = false;  // the list, since the nodes have heard of it
    uint64_t groups = 0;   // that have begun anew
  } shard_;
  // What is known of kept results.
  struct KeptWorld {
    uint32_t retain = 0;  // of most calls
    uint32_t copies = 0;
    uint64_t refused = 0;                        // requests for memory
    std::map<uint64_t, std::string> failed;      // by call, what a question for its result got
    std::map<uint64_t, uint64_t> begun;          // by call, the step in which it was first made
    std::map<uint64_t, int> least_hosts;         // by call, of those that can hold it
    std::map<NodeKey, uint64_t> firsts;          // by node, the first call of its members
    std::vector<std::pair<uint64_t, int>> lost;  // steps in which a node of a host was lost
    // By id, who asked, and for which call.
    std::map<uint64_t, std::pair<Program*, uint64_t>> asked;  // call 0: for the progress
    Checkpoints checkpoints;
    std::map<std::pair<uint64_t, uint32_t>, GroupDone> progress;  // by agreement
    uint64_t steps = 0;
  } kept_;
  Counts counts_;
  std::vector<std::string> violations_;
};

}  // namespace phalanx::jobs::testing

#endif  // PHALANX_JOBS_GROUP_TESTING_GROUP_WORLD_H_
