// Chooses who sends to whom: the one place where a broadcast's shape is decided.
//
// Order of preference for a receiver
//   1. somebody who has not just failed it, then somebody who has (not before a pause, so that
//      nobody fails in a busy loop);
//   2. somebody who is not about to leave, then a draining node, then one that delivered too
//      little;
//   3. somebody in the same host, rack or zone, as long as anyone there holds or receives the
//      object and links across are not known to be as good: a slow link is crossed once. An edge
//      across does not count against the sender's one receiver inside;
//   4. with links measured: whoever lets the receiver finish first,
//        max(sender's own finish + L/2 + r * (receivers + 1) / B,
//            now + L + bytes missing * (receivers + 1) / B)
//      with L the round trip, of which a relay adds one way only, and r the bytes that it hands on
//      at a time,
//      which is one receiver per sender for large objects and several for small ones, as many at
//      least as all who wait now call for (ExpectReceivers);
//      with nothing measured: the least busy, a complete copy before a partial one, the shallowest,
//      the earliest.
// Never anybody downstream of the receiver: when nobody else is left untried, the core takes its
// receivers from it, which may reach whom it cannot.
//
// A pull that works is not moved because another sender would be a bit better. One that crawls is
// (OnProgress): its sender becomes a leaf, once; if it crawls elsewhere too, the receiver itself is
// slow, and loses its own receivers.
//
// Several objects share a node's link. Who asks for what next is not known when a sender is chosen,
// so that some come to serve more than others: a pull whose sender's link is what limits it is
// moved to a node that has more of the object and serves at least two pulls fewer (OnProgress).
// Every such move makes the loads more equal, so that they end.
//
// Pure; replays from its inputs. Owned by the directory's core, shared by all objects of the shard.
#ifndef PHALANX_DIRECTORY_BROADCAST_PLANNER_H_
#define PHALANX_DIRECTORY_BROADCAST_PLANNER_H_

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "src/common/ids.h"
#include "src/common/instant.h"
#include "src/directory/broadcast_tree.h"
#include "src/directory/link_load.h"
#include "src/directory/link_model.h"

namespace phalanx::directory {

class BroadcastPlanner {
 public:
  using Member = BroadcastTree::Member;

  // A pair that failed is avoided for `lease`; a relay hands on `relay_bytes` at a time.
  BroadcastPlanner(absl::Duration lease, uint64_t relay_bytes)
      : lease_(lease), relay_bytes_(static_cast<double>(relay_bytes)) {}

  LinkModel& links() { return links_; }
  const LinkModel& links() const { return links_; }

  struct Choice {
    // Null when there is nobody.
    Member* sender = nullptr;
    // When the receiver is expected to be complete; infinite when nothing is measured.
    Instant finish = Instant::Infinite();
    // Without a sender: when somebody who failed may be asked again; infinite when there is no such
    // one.
    Instant retry_at = Instant::Infinite();
    // All who could send and are not downstream of the receiver have failed it.
    bool troubled = false;
  };
  // The sender for `receiver`, which is a member without feeds (or about to lose them). `avoid` is
  // not considered; `prefer` is taken if it can serve as well as anybody, however busy it is.
  Choice Choose(BroadcastTree& tree, Member* receiver, Instant now, const NodeKey& avoid = {},
                const NodeKey& prefer = {});

  // `waiting` more receivers are about to be chosen senders: sets the fan-out by which they, and
  // those that are being served, would be complete first, were all links like the median. Known
  // beforehand it makes a bushy tree from the start; found out one receiver at a time it comes
  // after a chain that is as long as it pays. 1 as long as nothing is measured.
  void ExpectReceivers(BroadcastTree& tree, size_t waiting) const;

  // Pulls of all objects are counted, which share the links of their nodes.
  void PullBegan(const NodeKey& sender, const NodeKey& receiver);
  void PullEnded(const NodeKey& sender, const NodeKey& receiver, Instant now);
  int Pushes(const NodeKey& sender) const;
  int Pulls(const NodeKey& receiver) const;
  // How many times faster than this pull the link may be, for all the pulls of others that shared
  // it at the sender and at the receiver since then: they need not have had like shares at either.
  // REQUIRES: the pull goes on.
  int SharedBy(const BroadcastTree::Feed& feed, Instant since) const;

  // Whether a pull that ended with `code` reached a sender that merely could not serve.
  static bool MerelyBusy(absl::StatusCode code);
  // The receiver's pull from the sender ended with `code`. Who could not be reached is avoided for
  // the lease; who merely could not serve (it lacks the object, or serves too many) only shortly,
  // and longer each time that it was asked after such a pause.
  void RememberFailure(const NodeKey& receiver, const NodeKey& sender, absl::StatusCode code,
                       Instant now);
  void ForgetFailure(const NodeKey& receiver, const NodeKey& sender);
  // How often in a row, within the lease.
  int Failures(const NodeKey& receiver, const NodeKey& sender) const;

  struct Sample {
    uint64_t bytes = 0;
    double bytes_per_second = 0;
    uint64_t starved_ns = 0;
  };
  // Notes how a receiver gets on. Returns receivers that had better be chosen another sender now
  // (empty, nearly always).
  std::vector<Member*> OnProgress(BroadcastTree& tree, Member* receiver, const Sample& sample,
                                  Instant now);

  // Forgets what is older than a lease.
  void Tick(Instant now);
  // Candidates looked at since the start: the measure of the planner's work.
  uint64_t candidates_examined() const { return examined_; }
  // Members visited since the start to see or change what is downstream of another: the measure of
  // the trees' work, which count here.
  uint64_t members_visited() const { return visited_; }
  uint64_t* visited() { return &visited_; }

 private:
  using Pair = std::pair<NodeKey, NodeKey>;  // receiver, sender
  struct Failure {
    int count = 0;
    Instant avoid_until;
    Instant retry_at;
    Instant forget_at;
  };
  struct Search;

  // Those who failed the receiver: excluded in the first pass, allowed after their pause in the
  // second.
  enum class Pass { kUntroubled, kFailedBefore };
  bool Eligible(Search& search, const Member& candidate, Pass pass);
  // Null unless it is a good sender now.
  Member* Preferred(Search& search, const NodeKey& node);
  // The best at one level and tier, if there is any.
  struct Best {
    Member* sender = nullptr;
    Instant finish = Instant::Infinite();
    bool known = false;
  };
  Best BestAt(Search& search, Nearness level, BroadcastTree::Tier tier, Pass pass);
  Best BestInClass(Search& search, const BroadcastTree::Index& index,
                   BroadcastTree::Index::const_iterator& at, Pass pass);
  std::optional<Instant> EstimateFinish(const BroadcastTree& tree, const Member& sender,
                                        const Member& receiver, Instant now) const;
  // What a relay adds to each of so many receivers.
  absl::Duration RelayTime(absl::Duration round_trip, int receivers, double bytes_per_second) const;
  // Receivers and other objects' pulls that would share the way from sender to receiver.
  int Sharing(const Member& sender, const Member& receiver, Instant now) const;
  static bool Better(const Best& a, const Best& b, Instant now);

  // How a pull gets on, and who is to blame if it crawls.
  enum class Pace { kFine, kSenderCrawls, kReceiverCrawls };
  Pace PaceOf(const BroadcastTree& tree, const Member& receiver, bool starved) const;
  // Somebody other than its sender could serve the receiver at twice the rate, as far as is known.
  bool HasPromisingSender(BroadcastTree& tree, Member* receiver, Instant now);
  // Those who are to get another sender because this one's pull crawls.
  std::vector<Member*> Relieve(BroadcastTree& tree, Member* receiver, Pace pace, Instant now);
  std::vector<Member*> MakeLeaf(BroadcastTree& tree, Member* member);
  // The sender's link, which serves other objects too, is what limits the receiver, and somebody
  // who has more than the receiver serves fewer.
  bool SenderIsOverloaded(BroadcastTree& tree, Member* receiver, Instant now);

  const absl::Duration lease_;
  const double relay_bytes_;
  LinkModel links_;
  absl::flat_hash_map<NodeKey, LinkLoad> pushes_;
  absl::flat_hash_map<NodeKey, LinkLoad> pulls_;
  absl::flat_hash_map<Pair, Failure> failures_;
  std::set<std::pair<Instant, Pair>> failures_by_age_;
  uint64_t examined_ = 0;
  uint64_t visited_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_BROADCAST_PLANNER_H_
