// Pairs of nodes between which a pull has failed, each remembered for a lease. Broadcasts and
// reductions share one table: a pair that one of them has found to be cut is avoided by both.
//
// A sender that was reached, but could not serve (it lacks the object, or serves too many), is
// avoided for a short pause, which doubles with every failure. A sender that was not reached is
// avoided for the lease.
//
// The pair is cut if its connections do not come up, or carry nothing: the last failure was a
// timeout, or the last two within the lease were broken or refused connections. One broken
// connection is not evidence that two nodes cannot reach each other. A cut is of one direction, in
// which the receiver connects to the sender; the other direction has an entry of its own.
//
// Pure; replays from its inputs. Owned by PullPlanner, shared by all objects of the shard.
#ifndef PHALANX_DIRECTORY_PULLS_FAILED_PAIRS_H_
#define PHALANX_DIRECTORY_PULLS_FAILED_PAIRS_H_

#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

class FailedPairs {
 public:
  explicit FailedPairs(absl::Duration lease) : lease_(lease) {}

  // Returns true if a pull that ended with `code` reached its sender, which could not serve it.
  static bool IsBusy(absl::StatusCode code);
  // Returns true if it did not reach its sender, or lost the connection.
  static bool IsUnreached(absl::StatusCode code);

  // The receiver's pull from the sender ended with `code`, or has not been connected for so long
  // that DeadlineExceeded is reported of it. If there are too many pairs, the oldest is forgotten.
  void Remember(const NodeKey& receiver, const NodeKey& sender, absl::StatusCode code, Instant now);
  void Forget(const NodeKey& receiver, const NodeKey& sender);
  // Frees the memory of failures that are older than a lease. They count for nothing before, too: a
  // shard without work does not tick.
  void Tick(Instant now);

  bool empty() const { return failures_.empty(); }
  // Returns nothing if the sender is not to be avoided; else when it can be tried again if no other
  // sender is there.
  struct Avoided {
    bool avoided = false;
    Instant retry_at;
  };
  Avoided Find(const NodeKey& receiver, const NodeKey& sender, Instant now) const;
  // Returns the failures in a row, the last of them within the lease.
  int Failures(const NodeKey& receiver, const NodeKey& sender, Instant now) const;
  bool Cut(const NodeKey& receiver, const NodeKey& sender, Instant now) const;

  using Pair = std::pair<NodeKey, NodeKey>;  // receiver, sender
  // Returns the pairs that were found to be cut since the last call.
  std::vector<Pair> TakeNewCuts() { return std::exchange(new_cuts_, {}); }

 private:
  struct Failure {
    int count = 0;
    int unreached = 0;  // of them, those in which the sender was not reached, at the end of the row
    bool cut = false;
    Instant avoid_until;
    Instant retry_at;
    Instant forget_at;
  };

  const absl::Duration lease_;
  absl::flat_hash_map<Pair, Failure> failures_;  // never iterated: its order is random
  std::set<std::pair<Instant, Pair>> by_age_;
  std::vector<Pair> new_cuts_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_FAILED_PAIRS_H_
