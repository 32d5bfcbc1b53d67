// SessionWorld: the ranks of a session, each a SessionCore, beside a model of their group and of
// their checkpoints, with faults. Testonly.
//
// The ranks run a random program of calls and checkpoints. At each step, one rank goes on, or ends,
// or ends with its node; a next life begins on any node.
//
// The model of the group. A call in which every rank gives something ends after all ranks have made
// it; a Broadcast after its root has. It ends on each node by itself, and in some worlds on one
// alone for a while, in which faults are frequent. A node forgets the group when no rank lives
// there, and frees the results that an ended call releases. A life that joins learns the last call
// that has ended on any node, and what the newest of them has said that was no Broadcast; and its
// node gets all that is kept. The others can make Broadcasts that it has still to make. A rank sees
// at any time that a member has died or joined, at the latest when a call has ended that had not on
// this node before. (Where the copies of results are is not modelled: the nodes keep them on
// several hosts.)
//
// The model of checkpoints. An object is on the node of the life that has put it. A later life of
// the rank that puts it again gets a copy on its own node; when that life has ended, the node can
// drop the copy unless it is the last one. A node's copies end with it. What rank 0 needs no more
// is freed for all ranks, and is not put again. A lazy checkpoint is saved within a call of its
// version, and the model changes after the last one. A life for which there are only later ones
// than it may load ends, if a node has ended since it has joined.
//
// The model of local models, in some worlds. An object is copied to as many nodes as it is to be
// on, each a host, and again when one of them ends. A node does not end if it has the only copy of
// a local model that has had all of its copies.
//
// If no rank is left that has loaded what the others need, all end: the job begins anew, with other
// inputs, and what the earlier run has left is still there.
//
// Checked: results and states, also against a run without deaths; that a result which is repeated
// is still kept, and a checkpoint that is loaded still there, or still to be saved; that calls
// agree in what they say, and every run ends.
//
// Owned by a test. One thread.
#ifndef PHALANX_CLIENT_SPMD_TESTING_SESSION_WORLD_H_
#define PHALANX_CLIENT_SPMD_TESTING_SESSION_WORLD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/client/spmd/session_core.h"
#include "src/common/random.h"

namespace phalanx::spmd::testing {

class SessionWorld {
 public:
  struct Counts {
    uint64_t deaths = 0;       // of ranks
    uint64_t node_deaths = 0;  // with the ranks there
    uint64_t repeated = 0;     // calls
    uint64_t loads = 0;        // of checkpoints
    uint64_t of_others = 0;    // of them, those of another rank
    uint64_t of_later = 0;     // of them, those of a later version than it has learned
    uint64_t given_up = 0;     // Loads that have failed
    uint64_t locals = 0;       // local models loaded
    uint64_t of_before = 0;    // of them, those of the version before that which it has learned
    uint64_t lazy = 0;         // checkpoints
    uint64_t saved = 0;        // of them
    uint64_t runs = 0;         // that began anew
  };

  explicit SessionWorld(uint64_t seed);
  // Runs to the end of all ranks, and returns what was wrong.
  std::vector<std::string> Run();
  const Counts& counts() const { return counts_; }

 private:
  enum class Kind { kRun, kFold, kBroadcast, kLoad, kCheckpoint };
  struct Step {
    Kind kind;
    int root = 0;
  };
  // What is done next in the step.
  enum class Phase { kBegin, kInCall, kEnd };
  // A checkpoint that is read: whose it is, and what is in it.
  struct Found {
    int rank = 0;
    uint64_t version = 0;
    uint64_t base = 0;
    uint64_t state = 0;
    size_t step = 0;
    uint64_t local = 0;
  };
  struct Life {
    int node = 0;
    uint64_t number = 0;  // of all lives
    internal::SessionCore core;
    uint64_t next_call = 1;  // as the group counts
    size_t step = 0;
    Phase phase = Phase::kBegin;
    uint64_t run = 0;
    uint64_t state = 0;
    uint64_t local = 0;                    // its own state
    uint64_t model = 0;                    // what is saved of the state
    size_t model_step = 0;                 // that comes after its checkpoint
    size_t seen = 0;                       // of the changes of members
    uint64_t node_deaths = 0;              // before it
    std::vector<bool> live = {};           // by rank, as it has seen
    uint64_t seen_losses = 0;              // as it has made the call
    uint64_t input = 0;                    // of the call
    std::vector<uint64_t> to_delete = {};  // versions, at rank 0
    std::optional<Found> found = {};
    std::set<std::string> held = {};  // objects whose copies on this node it holds
  };
  struct EndedCall {
    Kind kind;
    internal::SessionKeep keep;
    uint64_t result = 0;
    bool kept = true;
    size_t changes = 0;  // of members, when it has ended on this node
  };
  struct Change {
    int rank = 0;
    bool live = false;
  };
  // The newest call that a life which joined has heard of, and what it says.
  struct Newest {
    uint64_t call = 0;
    internal::SessionKeep keep = {};
  };
  struct Object {
    uint64_t base = 0;
    uint64_t state = 0;
    size_t step = 0;  // that comes next
    int home = 0;     // the node where it was put
    std::set<int> nodes = {};
    bool is_local = false;
    bool copied = false;  // has had all of its copies
  };

  struct Chances {
    double fault = 0;  // before an action
    double lazy = 0;
    double see = 0;
    double slow_load = 0;
    double copy = 0;   // of a local model
    double adopt = 1;  // that a call which has ended on another node ends here
    double alone = 0;  // that a call which needs all ends on one node alone for a while
  };
  // It has ended there alone, and other nodes adopt no end in so many actions.
  struct Alone {
    int node = 0;
    int actions = 0;
  };

  void DrawProgram();
  // Of the run without deaths, before each step.
  struct States {
    std::vector<uint64_t> all;                  // by step
    std::vector<std::vector<uint64_t>> locals;  // by rank and step
  };
  const States& Expected();
  void CheckStates(int rank);

  void Act();
  // Of this node, or of any node or ranks.
  void Fault(std::optional<int> node);
  void EndRank(int rank);
  void EndNode(int node);
  // Ends all ranks if what they need has ended.
  void EndRunIfLost();
  void Join(int rank);
  uint64_t LastEnded() const;
  // The rank sees the changes of members up to this one.
  void See(int rank, size_t changes);

  void Advance(int rank);
  void BeginCall(int rank);
  void TryEndCall(int rank);
  std::optional<uint64_t> ResultOf(int rank, const Step& step);
  void EndCallAt(int node, uint64_t number, const EndedCall& call);
  void TakeResult(int rank, uint64_t result);
  void SaveIfNeeded(int rank);
  void Put(int rank, uint64_t version, const Object& object);
  // This rank's own model, beside that.
  void PutLocal(int rank, uint64_t version, const Object& object);
  void MakeCopy();
  bool HasCopies(const Object& object) const;
  void Load(int rank);
  bool AnySaves(int rank);
  // A rank whose global model of this version is there.
  std::optional<int> OwnerOf(uint64_t run, uint64_t version) const;
  void LoadLocal(int rank, uint64_t newest);
  void EndLoad(int rank);
  void Checkpoint(int rank);
  void EndCheckpoint(int rank, bool lazy);
  void NextStep(int rank);
  // Frees the checkpoints of all ranks, of this version and of those before it.
  void EndScope(uint64_t run, uint64_t version);
  static std::string NameOf(int rank, uint64_t run, uint64_t version);
  static std::string LocalNameOf(int rank, uint64_t run, uint64_t version);
  void Wrong(int rank, const std::string& what);

  Random random_;
  std::vector<Step> program_;
  int nodes_ = 0;
  Chances chances_;
  Alone alone_;
  bool local_ = false;                      // with local models
  int copies_ = 0;                          // of each
  std::vector<std::optional<Life>> lives_;  // by rank
  std::vector<Change> changes_;
  std::vector<std::map<uint64_t, EndedCall>> ended_;  // by node, then by number
  std::vector<Newest> newest_;                        // by node
  std::map<std::string, Object> objects_;             // by name
  std::map<uint64_t, uint64_t> ended_scopes_;         // by run, the version
  uint64_t next_life_ = 1;
  uint64_t run_ = 1;                     // how often the job has begun
  std::map<uint64_t, States> expected_;  // by run
  std::vector<std::string> wrong_;
  Counts counts_;
};

}  // namespace phalanx::spmd::testing

#endif  // PHALANX_CLIENT_SPMD_TESTING_SESSION_WORLD_H_
