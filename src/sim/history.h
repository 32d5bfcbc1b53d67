// What clients asked of a simulated cluster and what they were told: the record that checkers hold
// the cluster against.
//
// Each Put or writer is an attempt, with a number that stands in its metadata and decides its bytes
// (content.h). So everybody who sees a copy knows which attempt it claims to be, and generations
// and attempts must map to each other one to one.
//
// Invariants, checked as things are noted; a breach goes to the journal
//  1. A generation belongs to one attempt, an attempt has one generation, created by the attempt's
//     node in that life.
//  2. Whoever sees a complete view sees an attempt at that object all bytes of which were handed
//     over, and no Put that was told that its bytes are dropped.
//  3. A Put that waits for adoption is not told that it was adopted while another generation is.
//  4. A Get that began on a node after that node was told of a Delete does not see what that hit,
//     in one life of the shard.
//
// Testonly; on the test's thread. Owned by the simulation.
#ifndef PHALANX_SIM_HISTORY_H_
#define PHALANX_SIM_HISTORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/sim/journal.h"
#include "src/sim/sim_executor.h"

namespace phalanx::sim {

enum class AttemptState {
  kOpen,          // nothing was answered, or not yet sealed
  kAcknowledged,  // Put or Seal ended with OK
  kDropped,       // told that another one existed: its bytes are shown to nobody from then on
  kFailed,        // an error, or aborted before it was sealed
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
  // All bytes were handed over: complete views may show it.
  bool sealing = false;
  // By a writer, who publishes bytes before anybody knows whether they will count; and who has not
  // sealed them, so that they may still come to nothing.
  bool written = false;
  bool unsealed = false;
  // Known to have been the object's generation.
  bool adopted = false;
  std::optional<Generation> generation;
  // Nodes that confirmed that it was deleted: as long as one lives, it stays deleted.
  std::set<NodeKey> told_of_deletion;
};

struct Deletion {
  uint64_t number = 0;
  ObjectId id;
  NodeKey by;
  Instant begun;
  // Attempts up to this number had begun.
  uint64_t last_attempt_before = 0;
  // The attempt that it is known to have hit; 0 if that is not so certain.
  uint64_t doomed = 0;
  // Infinite while it may still take effect.
  Instant ended = Instant::Infinite();
  bool confirmed = false;
  // In one life of the shard: `doomed` is what was deleted.
  bool undisturbed = false;
};

struct Operation {
  enum class State { kRunning, kEnded, kCancelled, kLost };
  uint64_t number = 0;
  std::string what;
  ObjectId id;
  NodeKey node;
  Instant begun;
  Instant deadline;  // the world's time
  bool read = false;
  bool streaming = false;
  State state = State::kRunning;
  absl::Status status;
  // Of a Get that was answered: what it saw.
  uint64_t attempt = 0;
  // Of a Get that got no memory: what could not be evicted just then.
  uint64_t pinned_bytes = 0;
};

// What is so in truth, whatever clients were told.
class Oracle {
 public:
  virtual ~Oracle() = default;
  // What the object's shard has as its generation (invalid: none); nothing when something has come
  // between the shard and the node since then, so that what the node was told may be old news.
  virtual std::optional<Generation> AdoptedNow(const ObjectId& id, const NodeKey& node,
                                               Instant since) = 0;
  // When the object's shard began its life; infinite while it is down.
  virtual Instant ShardStarted(const ObjectId& id) = 0;
};

class History {
 public:
  // Both outlive this.
  History(const SimScheduler& scheduler, Journal& journal)
      : scheduler_(scheduler), journal_(journal) {}

  Journal& journal() { return journal_; }
  // Short names for logs: "o3" is the third object of the world.
  std::string NameOf(const ObjectId& id);

  // ---- attempts
  Attempt& Begin(const ObjectId& id, uint64_t size_bytes, int slices, size_t metadata_bytes,
                 const NodeKey& creator);
  Attempt& attempt(uint64_t number) { return attempts_.at(number - 1); }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  // The attempt that a copy claims to be, by generation and metadata; a breach of invariant 1 is
  // noted, and 0 returned.
  uint64_t Identify(const ObjectId& id, const Generation& generation, absl::string_view metadata,
                    uint64_t size_bytes);
  // 0 for a generation that nobody has seen.
  uint64_t AttemptOf(const Generation& generation) const;
  void Bind(Attempt& attempt, const Generation& generation);
  // The shard has it as the object's generation.
  void NoteAdopted(const Generation& generation);
  // A Put that began at `begun` was told that its generation has been adopted.
  void ToldAdopted(Attempt& attempt);
  void SetOracle(Oracle* oracle) { oracle_ = oracle; }

  // ---- operations
  Operation& BeginOperation(absl::string_view what, const ObjectId& id, const NodeKey& node,
                            Instant deadline);
  Operation& operation(uint64_t number) { return operations_.at(number - 1); }
  const std::vector<Operation>& operations() const { return operations_; }
  void End(uint64_t operation, const absl::Status& status);
  void Drop(uint64_t operation, Operation::State state);
  // A Get that began as `operation` is shown this attempt; `complete` unless it streams.
  void Saw(uint64_t operation, uint64_t attempt, bool complete);

  // ---- deletions
  Deletion& BeginDeletion(const ObjectId& id, const NodeKey& by);
  Deletion& deletion(uint64_t number) { return deletions_.at(number - 1); }
  const std::vector<Deletion>& deletions() const { return deletions_; }
  void EndDeletion(uint64_t number, const absl::Status& status);
  // Everything that could still take effect has: called when the cluster is quiet.
  void CloseDeletions();
  // Somebody asked for a Delete that may have hit this attempt.
  bool MayBeDeleted(const Attempt& attempt) const;

 private:
  const SimScheduler& scheduler_;
  Journal& journal_;
  std::map<ObjectId, int> names_;
  std::vector<Attempt> attempts_;      // by number - 1
  std::vector<Operation> operations_;  // by number - 1
  std::vector<Deletion> deletions_;    // by number - 1
  std::map<Generation, uint64_t> attempt_of_;
  Oracle* oracle_ = nullptr;
};

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_HISTORY_H_
