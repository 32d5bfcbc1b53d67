// The pulls of one generation, or of a part of its slices: which nodes hold or receive it, which
// node pulls from which, and which nodes can send to the next receiver.
//
//   PullPlanner ── Attach / Detach / Complete ──► RelayTree
//          ◄── candidates, ordered ──────────────────┘
//
// Members are complete copies, the writer while it writes, and receivers. A pull is an edge (Feed);
// a receiver can have several with disjoint slices. RelayTree keeps the forest and the order of
// candidates; the planner chooses among the candidates. A member is rooted if it can expect every
// byte: a path of feeds leads to it from a root, which is a complete copy, the writer, or a
// receiver that pulls from outside, that is from a sender that has not registered at this shard.
//
// Invariants (CheckInvariants)
//  1. For each slice the feeds form a forest: no member is upstream of itself.
//  2. A member is rooted exactly when it is complete, the writer, fed from outside, or all its
//     feeds come from rooted members.
//  3. Exactly the usable, rooted members are in the index, once per level at which they have a
//     label, under their current key.
//  4. A member's load at a level is the number of its occupying feeds to receivers of that
//     nearness; its light is the sum of what its slow receivers take.
//
// Pure; order never depends on addresses or hashes. Owned by Object: one per object that is being
// pulled, or two, each of a half of the slices (pull_halves.cc).
#ifndef PHALANX_DIRECTORY_PULLS_RELAY_TREE_H_
#define PHALANX_DIRECTORY_PULLS_RELAY_TREE_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/pulls/link_model.h"

namespace phalanx::directory {

class RelayTree {
 public:
  // Why a member has bytes or will have them. kRelayOfOther: a receiver that relays the other half
  // of the slices, in the other tree of the object.
  enum class Role { kReceiver, kRelayOfOther, kWriter, kComplete };
  // A member of a later tier sends only if no member of an earlier tier can; a slow one also to
  // other slow ones.
  enum class Tier { kGood = 0, kRelayOfOther = 1, kDraining = 2, kSlow = 3, kLeaf = 4 };
  static constexpr int kUnrooted = std::numeric_limits<int>::max();

  struct Member;

  struct Feed {
    Member* sender = nullptr;
    Member* receiver = nullptr;
    PlanId plan = 0;
    uint64_t slices = 1;
    Nearness nearness = Nearness::kWorld;
    // Counts against the sender's one receiver. False while the receiver is disconnected, is slow
    // below a sender that is not, or has failed at this sender repeatedly.
    bool occupies = true;
    // What a slow receiver takes of a faster sender's link, in bytes per second.
    uint64_t light = 0;
    Instant since;
    // The sender's other feeds.
    Feed* next = nullptr;
    Feed* previous = nullptr;
  };

  // A receiver's pull as its node reported it last. Written by PullPlanner::OnProgress and
  // PullScheduler::MeasurePull; `bytes` begins with what the copy has. Assign and
  // LinkRegisteredPull begin a new measurement. Detach resets `slow_reports` only, since the
  // bytes stay at the node.
  struct Progress {
    uint64_t bytes = 0;  // received, over all slices
    double bytes_per_second = 0;
    Instant at;
    // Of the last report that was not early.
    uint64_t starved_ns = 0;
    Instant interval_began;
    int slow_reports = 0;  // in a row
    // The receiver has reported that its link is silent, and no byte since then, from whichever
    // sender: those below it wait for it.
    bool silent = false;
    // The sender from which it was moved because that sender delivered too little.
    NodeKey blamed;
    // How often the pull was moved for its link or its sender's although it worked; one more if it
    // was not moved again.
    int moves = 0;
  };

  struct Member {
    Endpoint endpoint;
    uint64_t order = 0;  // of joining
    Role role = Role::kReceiver;
    bool connected = true;
    bool draining = false;
    // Delivered much less than it was offered: has no receivers while any other member can send.
    bool leaf = false;
    // Receives slowly whichever node sends: does not count against a faster sender, and no sender
    // is blamed for it.
    bool slow_receiver = false;
    // What a slow receiver gets, in bytes per second; 0 if it was silent.
    uint64_t slow_rate = 0;
    // Pulls from a sender that has not registered at this shard.
    bool fed_from_outside = false;
    // An upper bound of the hops from a root; kUnrooted if no root is above.
    int depth = kUnrooted;
    // The boundaries of racks and zones that its bytes have crossed.
    int crossings = 0;
    // When the copy is expected to be complete; infinite if its pull was registered.
    Instant finish = Instant::Infinite();
    std::vector<std::unique_ptr<Feed>> feeds;  // from its senders
    Feed* first_receiver = nullptr;
    Feed* last_receiver = nullptr;
    int receivers = 0;
    std::array<int, kNearnessLevels> load = {};
    // The sum of its feeds' `light`.
    uint64_t light = 0;
    Progress progress;
    uint64_t mark = 0;  // scratch of MarkDownstream

    bool complete() const { return role == Role::kComplete; }
    bool rooted() const { return depth != kUnrooted; }
    Member* sender() const { return feeds.empty() ? nullptr : feeds.front()->sender; }
    Tier tier() const {
      if (leaf) return Tier::kLeaf;
      if (slow_receiver) return Tier::kSlow;
      if (draining) return Tier::kDraining;
      return role == Role::kRelayOfOther ? Tier::kRelayOfOther : Tier::kGood;
    }
  };

  // The order of candidates at one level: the least busy first, then the nearest to a root, then
  // the earliest.
  struct Key {
    Tier tier = Tier::kGood;
    int load = 0;
    int crossings = 0;
    int depth = 0;
    uint64_t order = 0;
    Member* member = nullptr;

    friend bool operator<(const Key& a, const Key& b) {
      return std::tie(a.tier, a.load, a.crossings, a.depth, a.order) <
             std::tie(b.tier, b.load, b.crossings, b.depth, b.order);
    }
  };
  using Index = std::set<Key>;

  // Adds 1 to `visited` for each member that is visited on the way downstream of another one.
  // `size_bytes`: of `slices`, which the pulls of this tree fetch.
  explicit RelayTree(uint64_t size_bytes, uint64_t* visited = nullptr,
                     uint64_t slices = ~uint64_t{0})
      : size_bytes_(size_bytes),
        slices_(slices),
        visited_(visited != nullptr ? visited : &own_visited_) {}
  RelayTree(const RelayTree&) = delete;
  RelayTree& operator=(const RelayTree&) = delete;

  uint64_t size_bytes() const { return size_bytes_; }
  uint64_t slices() const { return slices_; }
  // The number of receivers that the planner plans for each sender.
  int fan_out() const { return fan_out_; }
  void set_fan_out(int fan_out) { fan_out_ = fan_out; }
  size_t members() const { return members_.size(); }
  // What of these bytes, one number for each slice of the object, belongs to this tree.
  template <typename Watermarks>
  uint64_t BytesOf(const Watermarks& watermarks) const {
    uint64_t bytes = 0;
    uint64_t slices = slices_;
    for (const uint64_t watermark : watermarks) {
      if ((slices & 1) != 0) bytes += watermark;
      slices >>= 1;
    }
    return bytes;
  }
  // The bytes that the member lacks.
  uint64_t Missing(const Member& member) const {
    return size_bytes_ - std::min(size_bytes_, member.progress.bytes);
  }
  // Returns true at the first call only: one receiver of an object is moved on trial.
  bool TakeTrial() { return !std::exchange(trial_taken_, true); }
  // Feeds over all receivers.
  size_t feeds() const { return feeds_; }
  // When the first of them began, if at each moment since then there was one.
  Instant busy_since() const { return busy_since_; }
  // The object keeps this tree, of all its slices, while it is pulled.
  bool keeps_whole() const { return keeps_whole_; }
  void KeepWhole() { keeps_whole_ = true; }
  // The receivers in that domain of a level that relay the other half.
  int RelaysOfOther(Nearness level, uint64_t domain) const;
  // Returns nullptr if the node is not a member.
  Member* Find(const NodeKey& node) const;

  // REQUIRES: not a member yet.
  Member* Add(const Endpoint& endpoint, Role role, bool connected, bool draining);
  // Removes a member with all its feeds: its receivers have no sender then.
  void Remove(const NodeKey& node);

  // A pull begins. REQUIRES: `sender` is not downstream of `receiver` (unless a defect under test
  // disables the check), and none of `slices` has a feed.
  Feed* Attach(Member* receiver, Member* sender, PlanId plan, uint64_t slices, bool occupies,
               Instant now);
  // Ends all of a receiver's pulls.
  void Detach(Member* receiver);
  // The member has every byte: its pulls end, and it is a root from now on.
  void Complete(Member* member);
  void SetFedFromOutside(Member* member, bool fed);
  void SetConnected(Member* member, bool connected);
  void SetDraining(Member* member, bool draining);
  void SetLeaf(Member* member, bool leaf);
  // REQUIRES: a receiver.
  void SetRelayOfOther(Member* member);
  // `rate`: what it receives, in bytes per second, if it is slow.
  void SetSlow(Member* member, bool slow, uint64_t rate);
  void SetOccupies(Feed* feed, bool occupies);

  // Marks `member` and every member downstream of it for Downstream(). Costs O(marked members).
  void MarkDownstream(Member* member);
  // Marks the rooted ones only, which is enough for candidates: they are rooted. Below a member
  // without a root there are none, so a receiver that lost its sender costs nothing here.
  void MarkRootedDownstream(Member* member);
  // Returns true if the last Mark call marked `other`.
  bool Downstream(const Member& other) const { return other.mark == mark_; }

  // The candidates in one domain of a level; nullptr if there are none.
  const Index* Candidates(Nearness level, uint64_t domain) const;

  absl::Status CheckInvariants() const;

 private:
  Key KeyAt(const Member& member, Nearness level) const;
  // Called before and after every change of a field that is part of an index key.
  void Unlist(Member* member);
  void List(Member* member);
  // Sets depth and crossings of `member` from its feeds, and of every member downstream that this
  // changes.
  void Reroot(Member* member);
  std::pair<int, int> DepthAndCrossings(const Member& member) const;
  void Unlink(Feed* feed);
  // The member begins to relay the other half (1), or ends it (-1).
  void CountRelay(const Member& member, int change);
  // Counts a feed by the state of its two ends; `occupies`: nothing else speaks against it.
  void Count(Feed* feed, bool occupies);
  void SetLight(Feed* feed, uint64_t light);
  absl::Status CheckMember(const Member& member) const;
  absl::Status CheckAcyclic() const;

  const uint64_t size_bytes_;
  const uint64_t slices_;
  bool keeps_whole_ = false;
  int fan_out_ = 1;
  bool trial_taken_ = false;
  uint64_t own_visited_ = 0;
  uint64_t* const visited_;
  uint64_t next_order_ = 1;
  uint64_t mark_ = 0;
  size_t feeds_ = 0;
  Instant busy_since_;
  std::array<absl::flat_hash_map<uint64_t, int>, kNearnessLevels> relays_of_other_;
  // Lookups only; everything that is iterated is ordered by `order` or by key.
  absl::flat_hash_map<NodeKey, std::unique_ptr<Member>> members_;
  std::array<absl::flat_hash_map<uint64_t, Index>, kNearnessLevels> index_;
};

// The trees of one object: none, one of all slices, or two, each of half of them. With two, each
// copy is a member of both.
struct RelayTrees {
  absl::InlinedVector<RelayTree*, 2> all() const;
  // The tree in which the node pulls under this plan, or in which its pull was registered; nullptr
  // if there is none.
  RelayTree* Of(const NodeKey& receiver, PlanId plan) const;
  // Returns true if the node is fed in each. REQUIRES: it is a member.
  bool Feed(const NodeKey& receiver) const;
  // A member of both becomes a relay in one of them, if it is none: where there are fewer on its
  // host, else in its rack, and so on, so that each rack has relays of both. REQUIRES: two.
  void MakeRelay(const NodeKey& receiver);

  std::unique_ptr<RelayTree> first;
  std::unique_ptr<RelayTree> second;
  // With two: when the nodes that wait are placed, together.
  Instant placed_at;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_RELAY_TREE_H_
