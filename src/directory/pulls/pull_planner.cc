#include "src/directory/pulls/pull_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::directory {
namespace {

using Tier = RelayTree::Tier;

// Candidates of one load that are compared: the index has the likely best in front.
constexpr int kCompared = 8;
// Loads that are compared: a sender with more receivers is never the best.
constexpr int kMaxLoads = 32;
// A candidate replaces the one in front if it is better by this share.
constexpr double kMargin = 0.02;
// A slow receiver is fed by another slow one if this makes it later by at most this factor.
constexpr double kInTime = 1.05;
// However much slow receivers take of a link, another one gets at least this share of it.
constexpr double kLeastShare = 0.25;
constexpr int64_t kMostShares = 1 << 20;
// The pulls of an object have just begun for this share of the time that its bytes take, and of
// what two trees are worth.
constexpr double kBegun = 0.3;

// The depth of a tree with `receivers` members in which each feeds `fan_out` others.
double TreeDepth(double receivers, int fan_out) {
  if (fan_out == 1) return receivers;
  int depth = 0;
  double level = 1;
  for (double reached = 0; reached < receivers; ++depth) reached += level *= fan_out;
  return depth;
}

// The deepest descendant of a receiver: a wrong sender, chosen by a defect under test.
RelayTree::Member* DeepestDescendant(RelayTree::Member* receiver) {
  RelayTree::Member* at = receiver;
  while (at->first_receiver != nullptr) at = at->first_receiver->receiver;
  return at == receiver ? nullptr : at;
}

}  // namespace

struct PullPlanner::Search {
  RelayTree& tree;
  Member* receiver;
  Instant now;
  NodeKey avoid;
  Instant retry_at = Instant::Infinite();
  // Only senders that serve no receiver that counts.
  bool idle_only = false;
};

PullPlanner::Choice PullPlanner::Choose(RelayTree& tree, Member* receiver, Instant now,
                                        const NodeKey& avoid, const NodeKey& near) {
  if (DefectActive(Defect::kCyclicSender)) {
    if (Member* wrong = DeepestDescendant(receiver)) return Choice{wrong};
  }
  NoteSlowReceiver(tree, receiver, now);
  tree.MarkRootedDownstream(receiver);
  Search search{tree, receiver, now, avoid};
  if (Member* near_member = near.valid() ? EligibleNear(search, near) : nullptr) {
    return Choice{.sender = near_member,
                  .finish = EstimateFinish(tree, *near_member, *receiver, now)};
  }
  // Passes before tiers before levels: a near sender that has just failed is worse than a far one,
  // and so is a near one that leaves.
  for (const Pass pass : {Pass::kUntroubled, Pass::kFailedBefore}) {
    Best best;
    if (receiver->slow_receiver) best = BestForSlow(search, pass);
    for (const Tier tier :
         {Tier::kGood, Tier::kRelayOfOther, Tier::kDraining, Tier::kSlow, Tier::kLeaf}) {
      if (best.sender == nullptr) best = BestOfTier(search, tier, pass);
    }
    if (best.sender == nullptr) continue;
    return Choice{
        .sender = best.sender, .finish = best.finish, .troubled = pass == Pass::kFailedBefore};
  }
  return Choice{.retry_at = search.retry_at, .troubled = !search.retry_at.infinite()};
}

// Below another slow node it costs the fast ones nothing, and below one without receivers little.
PullPlanner::Best PullPlanner::BestForSlow(Search& search, Pass pass) {
  Best best = BestOfTier(search, Tier::kSlow, pass);
  if (InTime(search.tree, *search.receiver, best, search.now)) return best;
  search.idle_only = true;
  best = BestOfTier(search, Tier::kGood, pass);
  search.idle_only = false;
  return best;
}

PullPlanner::Best PullPlanner::BestOfTier(Search& search, Tier tier, Pass pass) {
  Best best;
  auto nearest = Nearness::kHost;  // that has a sender
  for (int level = 0; level < kNearnessLevels; ++level) {
    const auto nearness = static_cast<Nearness>(level);
    const Best here = BestAt(search, nearness, tier, pass);
    if (here.sender == nullptr) continue;
    const Endpoint& receiver = search.receiver->endpoint;
    if (best.sender == nullptr) {
      best = here;
      nearest = nearness;
    } else if (!links_.FarAcross(here.sender->endpoint, receiver, nearest, search.now) &&
               Better(here, best, search.now)) {
      best = here;
    }
    // Senders further out are compared only if links across are known to be as good.
    if (links_.BoundaryAround(nearness, search.now) != LinkModel::Boundary::kAlike) break;
  }
  return best;
}

void PullPlanner::NoteSlowReceiver(RelayTree& tree, Member* receiver, Instant now) const {
  if (receiver->slow_receiver || receiver->complete()) return;
  const std::optional<double> rate = links_.SlowNode(receiver->endpoint, now);
  if (rate.has_value()) tree.SetSlow(receiver, true, static_cast<uint64_t>(*rate));
}

bool PullPlanner::InTime(const RelayTree& tree, const Member& receiver, const Best& best,
                         Instant now) {
  if (best.sender == nullptr || receiver.slow_rate == 0) return false;
  const auto own = TransferTime(tree.Missing(receiver), static_cast<double>(receiver.slow_rate));
  return best.finish - now <= kInTime * own;
}

bool PullPlanner::Eligible(Search& search, const Member& candidate, Pass pass) {
  ++examined_;
  if (search.tree.Downstream(candidate) || candidate.endpoint.node == search.avoid) return false;
  // Nearly always: the lookup of the pair is the costly part of the check.
  if (pairs_.empty()) return pass == Pass::kUntroubled;
  const auto [avoided, retry_at] =
      pairs_.Find(search.receiver->endpoint.node, candidate.endpoint.node, search.now);
  if (pass == Pass::kUntroubled) return !avoided;
  // The first pass has judged it.
  if (!avoided) return false;
  if (retry_at <= search.now) return true;
  search.retry_at = std::min(search.retry_at, retry_at);
  return false;
}

PullPlanner::Member* PullPlanner::EligibleNear(Search& search, const NodeKey& node) {
  Member* const member = search.tree.Find(node);
  if (member == nullptr || member == search.receiver) return nullptr;
  const bool good = member->rooted() && member->connected && member->tier() == Tier::kGood;
  return good && Eligible(search, *member, Pass::kUntroubled) ? member : nullptr;
}

PullPlanner::Best PullPlanner::BestAt(Search& search, Nearness level, Tier tier, Pass pass) {
  if (pass == Pass::kFailedBefore && pairs_.empty()) return {};
  const uint64_t domain = search.receiver->endpoint.locality.domain(level);
  const RelayTree::Index* index = search.tree.Candidates(level, domain);
  if (index == nullptr) return {};
  Best best;
  auto at = index->lower_bound({.tier = tier, .load = std::numeric_limits<int>::min()});
  // A sender with fewer receivers is nearly always sooner. kMaxLoads and kCompared bound the cost
  // of a choice in a tree of any size.
  for (int loads = 0; loads < kMaxLoads; ++loads) {
    if (at == index->end() || at->tier != tier || (search.idle_only && at->load > 0)) break;
    const Best here = BestInClass(search, *index, at, pass);
    if (here.sender == nullptr) continue;
    if (best.sender == nullptr || Better(here, best, search.now)) best = here;
  }
  return best;
}

// Compares the first eligible candidates of the load at `at`; leaves `at` at the next load.
PullPlanner::Best PullPlanner::BestInClass(Search& search, const RelayTree::Index& index,
                                           RelayTree::Index::const_iterator& at, Pass pass) {
  const RelayTree::Key first = *at;
  Best best;
  int compared = 0;
  for (; at != index.end() && at->tier == first.tier && at->load == first.load; ++at) {
    if (compared == kCompared) break;
    if (!Eligible(search, *at->member, pass)) continue;
    ++compared;
    const Best here{at->member,
                    EstimateFinish(search.tree, *at->member, *search.receiver, search.now)};
    if (best.sender == nullptr || Better(here, best, search.now)) best = here;
  }
  // Skips what was not compared of this load: the loop above may have stopped early.
  at = index.lower_bound(
      {.tier = first.tier, .load = first.load + 1, .crossings = std::numeric_limits<int>::min()});
  return best;
}

// The margin keeps the order of the index where estimates differ by noise only.
bool PullPlanner::Better(const Best& a, const Best& b, Instant now) {
  return (a.finish - now) < (1 - kMargin) * (b.finish - now);
}

// Half a round trip: the bytes cross the link once, since the pull is open by then.
absl::Duration PullPlanner::RelayTime(absl::Duration round_trip, int receivers,
                                      double bytes_per_second) const {
  return round_trip / 2 + TransferTime(receivers * relay_bytes_, bytes_per_second);
}

int PullPlanner::Sharing(const Member& sender, const Member& receiver, Instant now) const {
  const Nearness nearness = NearnessOf(sender.endpoint.locality, receiver.endpoint.locality);
  // Pulls of other objects use the sender's link whatever their nearness.
  int sharing = Pushes(sender.endpoint.node) - sender.receivers;
  for (int level = 0; level < kNearnessLevels; ++level) {
    if (sender.load[level] == 0) continue;
    const auto other = static_cast<Nearness>(level);
    const bool same = other == nearness || links_.BoundaryAround(std::min(other, nearness), now) ==
                                               LinkModel::Boundary::kAlike;
    if (same) sharing += sender.load[level];
  }
  // The receiver's current pull from this sender ends when a sender is chosen.
  for (const auto& feed : receiver.feeds) {
    if (feed->sender == &sender && feed->occupies) --sharing;
  }
  return std::max(0, sharing);
}

Instant PullPlanner::EstimateFinish(const RelayTree& tree, const Member& sender,
                                    const Member& receiver, Instant now) const {
  const absl::Duration round_trip = links_.ExpectedLatency(sender.endpoint, receiver.endpoint, now);
  double rate = links_.ExpectedRate(sender.endpoint, receiver.endpoint, now);
  // Its own link is the limit, whatever a short pull over a shared one has shown.
  const bool own_limit = receiver.slow_receiver && !sender.slow_receiver && receiver.slow_rate > 0;
  if (own_limit) rate = static_cast<double>(receiver.slow_rate);
  const int sharers = Sharing(sender, receiver, now) + 1;
  // The sender gets that many receivers soon: an estimate with the whole link would hold only until
  // the next one is planned. A slow receiver is not one of them.
  const int sharing = receiver.slow_receiver ? sharers : std::max(sharers, tree.fan_out());
  const absl::Duration relay = RelayTime(round_trip, sharing, rate);
  const Instant sender_finish = sender.complete() ? now : FinishOf(tree, sender, relay, rate, now);
  const double bytes = tree.Missing(receiver);
  const double share = ShareOf(sender, receiver, rate, sharing, now);
  const absl::Duration begins =
      round_trip + links_.ColdStart(sender.endpoint, receiver.endpoint, now);
  const Instant finish = std::max(sender_finish + relay, now + begins + TransferTime(bytes, share));
  // A receiver beyond the planned fan-out delays the other receivers and every member below them.
  const bool overloads = tree.fan_out() > 1 && sharers > tree.fan_out() && !receiver.slow_receiver;
  return overloads ? finish + TransferTime(bytes, rate) : finish;
}

double PullPlanner::ShareOf(const Member& sender, const Member& receiver, double rate, int sharing,
                            Instant now) const {
  const double fast = std::max(rate, links_.FastRate().value_or(0));
  const double whole = links_.SlowNode(sender.endpoint, now).value_or(fast);
  uint64_t light = sender.light;
  for (const auto& feed : receiver.feeds) {
    if (feed->sender == &sender) light -= feed->light;
  }
  // Links alike: a share of what the receiver would get alone.
  if (light == 0 && rate >= LinkModel::kSlowShare * whole) return rate / sharing;
  const double left = std::max(whole - static_cast<double>(light), kLeastShare * whole);
  return std::min(rate, left / sharing);
}

Instant PullPlanner::FinishOf(const RelayTree& tree, const Member& sender, absl::Duration relay,
                              double rate, Instant now) {
  // What was expected of a node that turned out to be slow, or silent, does not count.
  if (sender.slow_receiver) {
    if (sender.slow_rate == 0) return Instant::Infinite();
    return now + TransferTime(tree.Missing(sender),
                              std::min(rate, static_cast<double>(sender.slow_rate)));
  }
  // An estimate that has passed, or was never made, is replaced by what the bytes still missing
  // take.
  const bool overdue = sender.finish.infinite() || sender.finish <= now;
  if (overdue) return now + sender.depth * relay + TransferTime(tree.Missing(sender), rate);
  // What was expected before the pull began can be far too late: a first transfer is slow. A rate
  // that the sender reports is that of this pull.
  const double reported = sender.progress.bytes_per_second;
  if (reported <= 0) return sender.finish;
  const absl::Duration left = TransferTime(tree.Missing(sender), reported);
  return std::min(sender.finish, std::max(now, sender.progress.at + left));
}

PullPlanner::Shape PullPlanner::BestShape(const RelayTree& tree, size_t waiting) const {
  Shape shape;
  const absl::Duration round_trip = links_.ExpectedLatency();
  const double rate = links_.ExpectedRate();
  const size_t served = tree.feeds();
  // Every member but the served receivers and the one that is served next.
  const size_t sources = tree.members() > served + 2 ? tree.members() - served - 1 : 1;
  const double receivers = std::ceil(static_cast<double>(waiting + served) / sources);
  const double once = static_cast<double>(tree.size_bytes()) / rate;
  // fan_out * once alone exceeds the best time from some fan-out on: no larger one can be better.
  for (int fan_out = 1; fan_out <= kMaxLoads && fan_out * once < shape.seconds; ++fan_out) {
    const absl::Duration relay = RelayTime(round_trip, fan_out, rate);
    const double time =
        fan_out * once + TreeDepth(receivers, fan_out) * absl::ToDoubleSeconds(relay);
    if (time >= (1 - kMargin) * shape.seconds) continue;
    shape.seconds = time;
    shape.fan_out = fan_out;
  }
  const absl::Duration relay = RelayTime(round_trip, kHalves, rate);
  // A relay of one half is a leaf of the other tree, one hop below a relay of that.
  const double depth = TreeDepth(receivers, kHalves) + 1;
  shape.seconds_in_halves = once + depth * absl::ToDoubleSeconds(relay);
  return shape;
}

void PullPlanner::ExpectReceivers(RelayTree& tree, size_t waiting) const {
  tree.set_fan_out(BestShape(tree, waiting).fan_out);
}

bool PullPlanner::HalvesPay(const RelayTree& tree, size_t waiting, double worth,
                            Instant now) const {
  const Shape shape = BestShape(tree, waiting);
  if (shape.seconds_in_halves > worth * shape.seconds) return false;
  // Receivers that have a large part already would be moved for little.
  const double once = static_cast<double>(tree.size_bytes()) / links_.ExpectedRate();
  return tree.feeds() == 0 || now - tree.busy_since() <= absl::Seconds(kBegun * worth * once);
}

void PullPlanner::PullBegan(const NodeKey& sender, const NodeKey& receiver) {
  pushes_[sender].Begin();
  pulls_[receiver].Begin();
}

void PullPlanner::PullEnded(const NodeKey& sender, const NodeKey& receiver, Instant now) {
  // Idle nodes are erased: the maps hold the nodes with pulls, not every node that ever had one.
  const auto end = [now](absl::flat_hash_map<NodeKey, LinkLoad>& loads, const NodeKey& node) {
    const auto load = loads.find(node);
    PHALANX_CHECK(load != loads.end(), "a pull ends that began");
    load->second.End(now);
    if (load->second.idle()) loads.erase(load);
  };
  end(pushes_, sender);
  end(pulls_, receiver);
}

int PullPlanner::Pushes(const NodeKey& sender) const {
  const auto found = pushes_.find(sender);
  return found == pushes_.end() ? 0 : found->second.count();
}

int PullPlanner::Pulls(const NodeKey& receiver) const {
  const auto found = pulls_.find(receiver);
  return found == pulls_.end() ? 0 : found->second.count();
}

int PullPlanner::SharedBy(const RelayTree::Feed& feed, Instant since) const {
  // The pull may have had a share at the receiver of its share at the sender: hence the product.
  // With tens of thousands of pulls at both ends it would overflow an int.
  const int64_t shares = int64_t{pushes_.at(feed.sender->endpoint.node).PeakSince(since)} *
                         pulls_.at(feed.receiver->endpoint.node).PeakSince(since);
  return static_cast<int>(std::min(shares, kMostShares));
}

}  // namespace phalanx::directory
