// Chooses the sender of every pull, and so the shape of every relay tree.
//
// Order of preference for a receiver
//   1. a sender that has not just failed the receiver, then one that has (after a pause, so that a
//      pull does not fail in a busy loop);
//   2. a sender that stays, then a draining node, then a slow one, then one that delivered too
//      little; for a slow receiver another slow one, or a node without receivers, if that costs it
//      little;
//   3. a sender in the same host, rack or zone, if any node there holds or receives the object and
//      links across are not known to be as good: a slow link is crossed once. An edge across does
//      not count against the sender's one receiver inside;
//   4. the sender from which the receiver finishes first,
//        max(sender's own finish + L/2 + r * (receivers + 1) / B,
//            now + L + c + bytes missing * (receivers + 1) / B)
//      with L the round trip, of which a relay adds one way only, c what a new connection over a
//      long one costs (LinkModel::ColdStart), and r the bytes that a relay forwards at a time. This
//      gives one receiver per sender for large objects and several for small ones, and at least as
//      many as the waiting receivers need (ExpectReceivers). Among equals the least busy, then a
//      complete copy before a partial one, the shallowest, the earliest. Until the first
//      measurement L and B are assumed (LinkModel).
// A sender is never downstream of its receiver. If every other sender has failed the receiver, the
// scheduler takes the receiver's own receivers away: they may reach the sender that failed it.
//
// A pull that works is not moved to a slightly better sender. No node is fed through a slower one
// if another sender is much sooner: a node whose own link is slow gives its receivers away and goes
// below a node without receivers, and receivers leave a slow or silent sender, each at most
// kMaxMoves times. A pull that crawls is moved, too (OnProgress): its sender becomes a leaf, once;
// if the pull crawls at another sender too, the receiver itself is slow, and loses its own
// receivers.
//
// Several objects share a node's link. Later requests are not known when a sender is chosen, so
// some nodes come to serve more than others: a pull that is limited by its sender's link is moved
// to a node that has more of the object and serves at least two pulls fewer (OnProgress). Every
// such move makes the loads more equal, so the moves end.
//
// Which end limits the first pull of a sender cannot be known: the second receiver may come to
// share a sender's narrow link. It is moved below the first one when the reports of both show that
// it finishes much sooner there (OnProgress).
//
// Pure; replays from its inputs. Owned by PullScheduler, shared by all objects of the shard.
#ifndef PHALANX_DIRECTORY_PULLS_PULL_PLANNER_H_
#define PHALANX_DIRECTORY_PULLS_PULL_PLANNER_H_

#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/pulls/failed_pairs.h"
#include "src/directory/pulls/link_load.h"
#include "src/directory/pulls/link_model.h"
#include "src/directory/pulls/relay_tree.h"

namespace phalanx::directory {

class PullPlanner {
 public:
  using Member = RelayTree::Member;

  // A pair that failed is avoided for `lease`; a relay forwards `relay_bytes` at a time.
  PullPlanner(absl::Duration lease, uint64_t relay_bytes)
      : relay_bytes_(static_cast<double>(relay_bytes)), pairs_(lease) {}

  LinkModel& links() { return links_; }
  const LinkModel& links() const { return links_; }

  struct Choice {
    // nullptr if no node can send.
    Member* sender = nullptr;
    // When the receiver is expected to be complete; infinite without a sender.
    Instant finish = Instant::Infinite();
    // Without a sender: when a sender that failed can be tried again; infinite if there is none.
    Instant retry_at = Instant::Infinite();
    // Every candidate that is not downstream of the receiver has failed it.
    bool troubled = false;
  };
  // Returns the sender for `receiver`, which is a member without feeds or about to lose them.
  // `avoid` is not considered; `near` is chosen if it is in the first tier, however busy it is.
  Choice Choose(RelayTree& tree, Member* receiver, Instant now, const NodeKey& avoid = {},
                const NodeKey& near = {});

  // Senders are about to be chosen for `waiting` more receivers: sets the fan-out with which they,
  // and the receivers that are served already, finish first if all links are like the median. A
  // number that is known beforehand makes a bushy tree from the start; one receiver at a time, the
  // tree begins with a chain.
  void ExpectReceivers(RelayTree& tree, size_t waiting) const;
  // Returns true if `waiting` more receivers and those that are served, whose pulls have just
  // begun, would all be complete in at most `worth` of that time with two trees: each node relays
  // one half of the slices to kHalves others, and every link carries the object once.
  bool HalvesPay(const RelayTree& tree, size_t waiting, double worth, Instant now) const;
  static constexpr int kHalves = 2;

  // Counts the pulls of all objects: they share the links of their nodes.
  void PullBegan(const NodeKey& sender, const NodeKey& receiver);
  void PullEnded(const NodeKey& sender, const NodeKey& receiver, Instant now);
  int Pushes(const NodeKey& sender) const;
  int Pulls(const NodeKey& receiver) const;
  // Returns the factor by which the link can be faster than this pull, because other pulls shared
  // it at the sender and at the receiver since `since`; the shares need not have been equal.
  // REQUIRES: the pull has not ended.
  int SharedBy(const RelayTree::Feed& feed, Instant since) const;

  // The pairs that failed, which are avoided.
  FailedPairs& pairs() { return pairs_; }
  const FailedPairs& pairs() const { return pairs_; }

  // How often the pull of one receiver is moved for its link, or its sender's, while it works.
  static constexpr int kMaxMoves = 4;

  // As Progress.Pull; `window` is zero if the sample is of the time since the last report.
  struct Sample {
    uint64_t bytes = 0;
    double bytes_per_second = 0;
    uint64_t starved_ns = 0;
    absl::Duration window = absl::ZeroDuration();
    absl::Duration window_starved = absl::ZeroDuration();
    absl::Duration silent = absl::ZeroDuration();
  };
  // Records the progress of a receiver. Returns the receivers that should have another sender,
  // nearly always none.
  std::vector<Member*> OnProgress(RelayTree& tree, Member* receiver, const Sample& sample,
                                  Instant now);

  // Forgets failures that are older than a lease.
  void Tick(Instant now) { pairs_.Tick(now); }
  // Receivers that were not moved again because they had been moved kMaxMoves times.
  uint64_t moves_refused() const { return moves_refused_; }
  // Candidates examined since the start: measures the planner's work.
  uint64_t candidates_examined() const { return examined_; }
  // Members visited since the start on the way downstream of another: measures the work of all
  // trees, which count here.
  uint64_t members_visited() const { return visited_; }
  uint64_t* visited() { return &visited_; }

 private:
  struct Search;
  // How long a broadcast takes with one tree of the best fan-out, and with two of half the slices.
  struct Shape {
    int fan_out = 1;
    double seconds = std::numeric_limits<double>::infinity();
    double seconds_in_halves = 0;
  };
  Shape BestShape(const RelayTree& tree, size_t waiting) const;

  // Senders that failed the receiver are excluded in the first pass, and allowed after their pause
  // in the second.
  enum class Pass { kUntroubled, kFailedBefore };
  bool Eligible(Search& search, const Member& candidate, Pass pass);
  // Returns nullptr unless the node is an eligible sender of the first tier.
  Member* EligibleNear(Search& search, const NodeKey& node);
  // The best candidate at one level and tier; no sender if there is none.
  struct Best {
    Member* sender = nullptr;
    Instant finish = Instant::Infinite();
  };
  Best BestForSlow(Search& search, Pass pass);
  Best BestOfTier(Search& search, RelayTree::Tier tier, Pass pass);
  Best BestAt(Search& search, Nearness level, RelayTree::Tier tier, Pass pass);
  Best BestInClass(Search& search, const RelayTree::Index& index,
                   RelayTree::Index::const_iterator& at, Pass pass);
  Instant EstimateFinish(const RelayTree& tree, const Member& sender, const Member& receiver,
                         Instant now) const;
  // When a sender that is not complete has the last byte; `relay` is the delay of one hop.
  static Instant FinishOf(const RelayTree& tree, const Member& sender, absl::Duration relay,
                          double rate, Instant now);
  // What a receiver gets of the sender's link as one of `sharing` receivers.
  double ShareOf(const Member& sender, const Member& receiver, double rate, int sharing,
                 Instant now) const;
  // Marks the receiver as slow if earlier pulls have shown that it is.
  void NoteSlowReceiver(RelayTree& tree, Member* receiver, Instant now) const;
  // Returns true if a slow receiver loses next to nothing below that sender.
  static bool InTime(const RelayTree& tree, const Member& receiver, const Best& best, Instant now);
  static absl::Duration TransferTime(double bytes, double bytes_per_second) {
    return absl::Seconds(bytes / bytes_per_second);
  }
  // The delay that a relay adds for each of `receivers` receivers.
  absl::Duration RelayTime(absl::Duration round_trip, int receivers, double bytes_per_second) const;
  // The receivers and other objects' pulls that would share the link from sender to receiver.
  int Sharing(const Member& sender, const Member& receiver, Instant now) const;
  static bool Better(const Best& a, const Best& b, Instant now);

  // ---- moves (pull_moves.cc)
  // What a report is of.
  struct Report {
    bool early = false;         // of a short time
    double slow_below = 1;      // a rate of that time is less than another below this share of it
    bool silent_again = false;  // the second one in a row of a silent link
    Instant since;
    bool link_limited = false;  // the sender was hardly starved
  };
  // Records the sample in the member, and in the link model if it says something about the link.
  Report TakeReport(Member* receiver, const Sample& sample, Instant now);
  // Returns true if that rate is what the sender receives itself, and much less than others have:
  // it says nothing about the receiver.
  bool FollowsSlowSender(const Member& sender, double rate) const;
  // As SharedBy, and at most what all receivers of the sender get together; 1 if another of them
  // gets much more, so that the receiver's own end limits it.
  double Shared(const Member& receiver, Instant since) const;
  // Counts the refusal of a member's next move.
  bool MayMove(Member* member);
  // The receiver is moved away from that sender.
  static void Blame(Member* receiver, const Member* sender);
  // Each of the following returns the members to move, in this order.
  // A receiver that gets much less than fast ones do: it leaves a slow sender, or the members below
  // it pass it.
  std::vector<Member*> PassSlowNode(RelayTree& tree, Member* receiver, const Report& report,
                                    Instant now);
  // The receiver, if it is complete much sooner elsewhere.
  std::vector<Member*> LeaveIfSooner(RelayTree& tree, Member* receiver, Instant now);
  // A receiver that feeds no node has shown what it gets: a slow node above it goes below it.
  std::vector<Member*> MakeRoom(RelayTree& tree, const Member* leaf, Instant now);
  // A slow receiver below a sender of fast ones: goes where it is in no node's way.
  std::vector<Member*> LetFastOnesPass(RelayTree& tree, Member* slow, const Report& report,
                                       Instant now);
  // How long a relay that works can be silent because its bytes come from a far zone or rack;
  // infinite if the way from there was never measured.
  absl::Duration GapAbove(const Member& relay, Instant now) const;
  std::vector<Member*> LeaveSilentSender(RelayTree& tree, Member* receiver, Instant now);
  // The pace of a pull, and which end makes it crawl.
  enum class Pace { kFine, kSenderCrawls, kReceiverCrawls };
  Pace PaceOf(const RelayTree& tree, const Member& receiver, bool starved, Instant now) const;
  // Returns true if links between two such nodes are known to be like those inside.
  bool AlikeAcross(const Endpoint& a, const Endpoint& b, Instant now) const;
  // Returns true if the shard would choose another sender that stays, and LinkModel::Rate of it is
  // unknown or more than twice what the receiver gets.
  bool HasPromisingSender(RelayTree& tree, Member* receiver, Instant now);
  // Returns the receivers to move because this receiver's pull crawls.
  std::vector<Member*> ReplaceSlowLink(RelayTree& tree, Member* receiver, Pace pace, Instant now);
  std::vector<Member*> MakeLeaf(RelayTree& tree, Member* member);
  // The receivers that can be moved; they will avoid this sender.
  std::vector<Member*> Receivers(Member* sender);
  // Returns true if the sender's link, which serves other objects too, limits the receiver, and a
  // node that has more of the object than the receiver serves fewer pulls.
  bool SenderIsOverloaded(RelayTree& tree, Member* receiver, Instant now);
  // Returns true if the sender has more receivers than planned, and another of them has more of the
  // object, feeds no node, and at its present rate is complete much sooner than this receiver.
  bool SenderIsCrowded(RelayTree& tree, Member* receiver, Instant now);

  const double relay_bytes_;
  LinkModel links_;
  absl::flat_hash_map<NodeKey, LinkLoad> pushes_;
  absl::flat_hash_map<NodeKey, LinkLoad> pulls_;
  FailedPairs pairs_;
  uint64_t moves_refused_ = 0;
  uint64_t examined_ = 0;
  uint64_t visited_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_PULL_PLANNER_H_
