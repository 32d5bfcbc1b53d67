// The requests of clients to a simulated cluster and the answers: the record that checkers compare
// the cluster with.
//
// Each Put or writer is an attempt. Its number is in its metadata and determines its bytes
// (content.h). So every reader of a copy knows the attempt that the copy claims to be, and
// generations and attempts must map one to one.
//
// Invariants, checked at each call; a violation goes to the journal
//  1. A generation belongs to one attempt, and an attempt has one generation, created by the
//     attempt's node in that life.
//  2. A complete view shows an attempt at that object whose bytes were all handed over. It never
//     shows a Put that was answered as dropped.
//  3. A Put that waits for adoption is not answered as adopted while another generation is adopted.
//  4. A Get that starts on a node after the node got the answer to a Delete does not see the
//     deleted attempt, within one life of the shard.
//
// Testonly; on the test's thread. Owned by the simulation.
#ifndef PHALANX_SIM_CLUSTER_HISTORY_H_
#define PHALANX_SIM_CLUSTER_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/time/instant.h"
#include "src/sim/cluster/journal.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::sim {

enum class AttemptState {
  kOpen,          // no answer yet, or not sealed yet
  kAcknowledged,  // Put or Seal ended with OK
  kDropped,       // answered that another one exists: no reader sees its bytes from then on
  kFailed,        // failed, or aborted before the seal
  kUnknown,       // its client or node died, or its deadline passed
};

struct Attempt {
  uint64_t number = 0;
  ObjectId id;
  uint64_t size_bytes = 0;
  int slices = 1;
  std::string metadata;
  NodeKey creator;
  Instant begun;
  AttemptState state = AttemptState::kOpen;
  // All bytes were handed over, so complete views can show it.
  bool sealing = false;
  // `written`: by a writer, whose published bytes can be read before it is known whether they
  // count. `unsealed`: the writer has not sealed them, so they can still be dropped.
  bool written = false;
  bool unsealed = false;
  // It is known to have been the object's generation.
  bool adopted = false;
  std::optional<Generation> generation;
  // Nodes that confirmed its deletion: while one of them lives, it stays deleted.
  std::set<NodeKey> deletion_confirmed_by;
};

struct Deletion {
  uint64_t number = 0;
  ObjectId id;
  NodeKey by;
  Instant begun;
  // The last attempt that had started before the Delete.
  uint64_t last_attempt_before = 0;
  // The attempt that the Delete is known to have removed; 0 if that is not certain.
  uint64_t doomed = 0;
  // Infinite while the Delete can still take effect.
  Instant ended = Instant::Infinite();
  bool confirmed = false;
  // Within one life of the shard, so `doomed` is certain.
  bool undisturbed = false;
};

struct Operation {
  enum class State { kRunning, kEnded, kCancelled, kLost };
  uint64_t number = 0;
  std::string what;
  ObjectId id;
  NodeKey node;
  Instant begun;
  Instant deadline;  // in the world's time
  bool read = false;
  bool streaming = false;
  State state = State::kRunning;
  absl::Status status;
  // For an answered Get: the attempt that it saw.
  uint64_t attempt = 0;
  // For a Get that got no memory: the bytes that could not be evicted at that time.
  uint64_t pinned_bytes = 0;
};

// The true state of the cluster, for comparison with the answers to clients.
class Oracle {
 public:
  virtual ~Oracle() = default;
  // Returns the adopted generation of the object at its shard (invalid: none). Returns nullopt if
  // there was trouble between the shard and the node since then, because the node's answer can be
  // outdated.
  virtual std::optional<Generation> AdoptedNow(const ObjectId& id, const NodeKey& node,
                                               Instant since) = 0;
  // Returns the start of the shard's current life; infinite while the shard is down.
  virtual Instant ShardStarted(const ObjectId& id) = 0;
};

class History {
 public:
  // Both arguments must outlive this.
  History(const SimScheduler& scheduler, Journal& journal)
      : scheduler_(scheduler), journal_(journal) {}

  Journal& journal() { return journal_; }
  // Returns a short name for logs: "o3" is the third object of the world.
  std::string NameOf(const ObjectId& id);

  // Every Put and Get of an id that was derived from a name sends the name, so wherever the object
  // is, its name is known. Call it before the first use of the id.
  void SetObjectName(const ObjectId& id, const ObjectName& name) { object_names_[id] = name; }
  // Returns no name if none was set.
  ObjectName ObjectNameOf(const ObjectId& id) const;

  // ---- attempts
  Attempt& Begin(const ObjectId& id, uint64_t size_bytes, int slices, size_t metadata_bytes,
                 const NodeKey& creator);
  Attempt& attempt(uint64_t number) { return attempts_.at(number - 1); }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  // Returns the attempt that a copy claims to be, by generation and metadata. Returns 0 and reports
  // a violation if invariant 1 does not hold.
  uint64_t Identify(const ObjectId& id, const Generation& generation, absl::string_view metadata,
                    uint64_t size_bytes);
  // Returns 0 for an unknown generation.
  uint64_t AttemptOf(const Generation& generation) const;
  void Bind(Attempt& attempt, const Generation& generation);
  // Records that the shard has adopted the generation.
  void NoteAdopted(const Generation& generation);
  // Checks invariant 3 for a Put that was answered as adopted.
  void CheckAdoptedAnswer(Attempt& attempt);
  void SetOracle(Oracle* oracle) { oracle_ = oracle; }

  // ---- operations
  Operation& BeginOperation(absl::string_view what, const ObjectId& id, const NodeKey& node,
                            Instant deadline);
  Operation& operation(uint64_t number) { return operations_.at(number - 1); }
  const std::vector<Operation>& operations() const { return operations_; }
  void End(uint64_t operation, const absl::Status& status);
  void Drop(uint64_t operation, Operation::State state);
  // Records that the Get `operation` sees this attempt; `complete` unless the Get streams.
  void RecordView(uint64_t operation, uint64_t attempt, bool complete);

  // ---- deletions
  Deletion& BeginDeletion(const ObjectId& id, const NodeKey& by);
  Deletion& deletion(uint64_t number) { return deletions_.at(number - 1); }
  const std::vector<Deletion>& deletions() const { return deletions_; }
  void EndDeletion(uint64_t number, const absl::Status& status);
  // Ends all Deletes. Call it when the cluster is quiet, so that none can take effect later.
  void CloseDeletions();
  // Returns whether some Delete can have removed this attempt.
  bool PossiblyDeleted(const Attempt& attempt) const;

 private:
  const SimScheduler& scheduler_;
  Journal& journal_;
  std::map<ObjectId, int> names_;
  std::map<ObjectId, ObjectName> object_names_;
  std::vector<Attempt> attempts_;      // by number - 1
  std::vector<Operation> operations_;  // by number - 1
  std::vector<Deletion> deletions_;    // by number - 1
  std::map<Generation, uint64_t> attempt_of_;
  Oracle* oracle_ = nullptr;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_HISTORY_H_
