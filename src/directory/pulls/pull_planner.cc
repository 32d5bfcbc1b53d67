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
// A pull crawls if it is slower than this share of the usual rate in this many reports in a row,
// and needs at least this long to finish.
constexpr double kCrawlShare = 0.25;
constexpr int kCrawlReports = 2;
constexpr absl::Duration kWorthMoving = absl::Milliseconds(500);
// A pull that finishes sooner is not moved to balance the load of several objects.
constexpr absl::Duration kWorthBalancing = absl::Milliseconds(100);
// A pull that shares its sender by mistake is moved if it takes less than this share of the time
// elsewhere.
constexpr double kMuchSooner = 0.8;
constexpr int64_t kMostShares = 1 << 20;

uint64_t Missing(const RelayTree& tree, const RelayTree::Member& member) {
  return tree.size_bytes() - std::min(tree.size_bytes(), member.progress.bytes);
}

absl::Duration TransferTime(double bytes, double bytes_per_second) {
  return absl::Seconds(bytes / bytes_per_second);
}

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
};

PullPlanner::Choice PullPlanner::Choose(RelayTree& tree, Member* receiver, Instant now,
                                        const NodeKey& avoid, const NodeKey& near) {
  if (DefectActive(Defect::kCyclicSender)) {
    if (Member* wrong = DeepestDescendant(receiver)) return Choice{wrong};
  }
  tree.MarkRootedDownstream(receiver);
  Search search{tree, receiver, now, avoid};
  if (Member* near_member = near.valid() ? EligibleNear(search, near) : nullptr) {
    return Choice{.sender = near_member,
                  .finish = EstimateFinish(tree, *near_member, *receiver, now)};
  }
  // Passes before tiers before levels: a near sender that has just failed is worse than a far one,
  // and so is a near one that leaves.
  for (const Pass pass : {Pass::kUntroubled, Pass::kFailedBefore}) {
    for (const Tier tier : {Tier::kGood, Tier::kDraining, Tier::kLeaf}) {
      Best best;
      for (int level = 0; level < kNearnessLevels; ++level) {
        const Best here = BestAt(search, static_cast<Nearness>(level), tier, pass);
        if (here.sender == nullptr) continue;
        if (best.sender == nullptr || Better(here, best, now)) best = here;
        // Senders further out are compared only if links across are known to be as good.
        const auto boundary = links_.BoundaryAround(static_cast<Nearness>(level), now);
        if (boundary != LinkModel::Boundary::kAlike) break;
      }
      if (best.sender == nullptr) continue;
      return Choice{
          .sender = best.sender, .finish = best.finish, .troubled = pass == Pass::kFailedBefore};
    }
  }
  return Choice{.retry_at = search.retry_at, .troubled = !search.retry_at.infinite()};
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
    if (at == index->end() || at->tier != tier) break;
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
  const double rate = links_.ExpectedRate(sender.endpoint, receiver.endpoint, now);
  const int sharers = Sharing(sender, receiver, now) + 1;
  // The sender gets that many receivers soon: an estimate with the whole link would hold only until
  // the next one is planned.
  const int sharing = std::max(sharers, tree.fan_out());
  const absl::Duration relay = RelayTime(round_trip, sharing, rate);
  Instant sender_finish = now;
  if (!sender.complete()) {
    // An estimate that has passed, or was never made, is replaced by what the bytes still missing
    // take.
    const bool overdue = sender.finish.infinite() || sender.finish <= now;
    sender_finish = overdue ? now + sender.depth * relay +
                                  TransferTime(static_cast<double>(Missing(tree, sender)), rate)
                            : sender.finish;
    // What was expected before the pull began can be far too late: a first transfer is slow. A rate
    // that the sender reports is that of this pull.
    const double reported = sender.progress.bytes_per_second;
    if (!overdue && reported > 0) {
      const absl::Duration left =
          TransferTime(static_cast<double>(Missing(tree, sender)), reported);
      sender_finish = std::min(sender_finish, std::max(now, sender.progress.at + left));
    }
  }
  const double bytes = static_cast<double>(Missing(tree, receiver)) * sharing;
  const Instant finish =
      std::max(sender_finish + relay, now + round_trip + TransferTime(bytes, rate));
  // A receiver beyond the planned fan-out delays the other receivers and every member below them.
  const bool overloads = tree.fan_out() > 1 && sharers > tree.fan_out();
  return overloads ? finish + TransferTime(bytes / sharing, rate) : finish;
}

void PullPlanner::ExpectReceivers(RelayTree& tree, size_t waiting) const {
  tree.set_fan_out(1);
  const absl::Duration round_trip = links_.ExpectedLatency();
  const double rate = links_.ExpectedRate();
  const size_t served = tree.feeds();
  // Every member but the served receivers and the one that is served next.
  const size_t sources = tree.members() > served + 2 ? tree.members() - served - 1 : 1;
  const double receivers = std::ceil(static_cast<double>(waiting + served) / sources);
  const double once = static_cast<double>(tree.size_bytes()) / rate;
  double best = std::numeric_limits<double>::infinity();
  // fan_out * once alone exceeds the best time from some fan-out on: no larger one can be better.
  for (int fan_out = 1; fan_out <= kMaxLoads && fan_out * once < best; ++fan_out) {
    const absl::Duration relay = RelayTime(round_trip, fan_out, rate);
    const double time =
        fan_out * once + TreeDepth(receivers, fan_out) * absl::ToDoubleSeconds(relay);
    if (time >= (1 - kMargin) * best) continue;
    best = time;
    tree.set_fan_out(fan_out);
  }
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

std::vector<PullPlanner::Member*> PullPlanner::OnProgress(RelayTree& tree, Member* receiver,
                                                          const Sample& sample, Instant now) {
  RelayTree::Progress& progress = receiver->progress;
  const absl::Duration passed = now - progress.at;
  // Bounded: a smaller number from the node would wrap around.
  const uint64_t starved_before = std::min(progress.starved_ns, sample.starved_ns);
  const absl::Duration starved =
      absl::Nanoseconds(static_cast<int64_t>(sample.starved_ns - starved_before));
  // Starved for more than a tenth of the time, the receiver has the rate of the sender's own
  // sender.
  const bool link_limited = starved * 10 < passed;
  progress.bytes = sample.bytes;
  progress.bytes_per_second = sample.bytes_per_second;
  progress.starved_ns = sample.starved_ns;
  const Instant since = std::exchange(progress.at, now);
  Member* sender = receiver->sender();
  if (sender == nullptr) return {};
  if (link_limited) {
    links_.RecordRate(sender->endpoint, receiver->endpoint, sample.bytes_per_second,
                      SharedBy(*receiver->feeds.front(), since), now);
  }
  const Pace pace = PaceOf(tree, *receiver, !link_limited);
  if (pace == Pace::kFine && link_limited &&
      (SenderIsOverloaded(tree, receiver, now) || SenderIsCrowded(tree, receiver, now))) {
    return {receiver};
  }
  // Two reports in a row: one slow quarter of a second can be a pause of either process.
  progress.slow_reports = pace == Pace::kFine ? 0 : progress.slow_reports + 1;
  if (progress.slow_reports < kCrawlReports) return {};
  progress.slow_reports = 0;
  return ReplaceSlowLink(tree, receiver, pace, now);
}

// Compares the receiver's rate with the rate at which its sender receives, with the sender's other
// receivers, and with the cluster's median.
PullPlanner::Pace PullPlanner::PaceOf(const RelayTree& tree, const Member& receiver,
                                      bool starved) const {
  const double rate = receiver.progress.bytes_per_second;
  if (starved || receiver.slow_receiver || rate <= 0) return Pace::kFine;
  const Member& sender = *receiver.sender();
  const uint64_t offered = sender.complete() ? tree.size_bytes() : sender.progress.bytes;
  const uint64_t backlog = offered - std::min(offered, receiver.progress.bytes);
  // A receiver that is nearly level with its sender is not slow, it has little to receive.
  if (TransferTime(static_cast<double>(backlog), rate) < kWorthMoving) return Pace::kFine;
  double usual = links_.MedianRate().value_or(0);
  if (!sender.complete()) usual = std::max(usual, sender.progress.bytes_per_second);
  // Pulls of other objects have their shares of both links.
  const int pulls = pulls_.at(receiver.endpoint.node).count();
  usual *= static_cast<double>(sender.receivers) / std::max(Pushes(sender.endpoint.node), pulls);
  double delivered = 0;
  double best = 0;
  for (const auto* feed = sender.first_receiver; feed != nullptr; feed = feed->next) {
    delivered += feed->receiver->progress.bytes_per_second;
    best = std::max(best, feed->receiver->progress.bytes_per_second);
  }
  // All of the sender's receivers are slow together: the sender is. If only this one is slow beside
  // the others, its own end is.
  if (delivered < kCrawlShare * usual) return Pace::kSenderCrawls;
  return rate < kCrawlShare * best ? Pace::kReceiverCrawls : Pace::kFine;
}

bool PullPlanner::HasPromisingSender(RelayTree& tree, Member* receiver, Instant now) {
  const Choice other = Choose(tree, receiver, now, receiver->sender()->endpoint.node);
  if (other.sender == nullptr || other.sender->tier() != Tier::kGood) return false;
  const auto rate = links_.Rate(other.sender->endpoint, receiver->endpoint, now);
  return !rate.has_value() || *rate > 2 * receiver->progress.bytes_per_second;
}

bool PullPlanner::SenderIsOverloaded(RelayTree& tree, Member* receiver, Instant now) {
  const Member& sender = *receiver->sender();
  const int pushes = Pushes(sender.endpoint.node);
  // Only pulls of other objects make this an accident: the receivers of this one were planned.
  const bool others = pushes > sender.receivers && pushes > tree.fan_out();
  if (!others || pushes <= pulls_.at(receiver->endpoint.node).count()) return false;
  const absl::Duration left = TransferTime(static_cast<double>(Missing(tree, *receiver)),
                                           receiver->progress.bytes_per_second);
  if (left < kWorthBalancing) return false;
  // The same choice that the scheduler makes if this returns true.
  const Member* other = Choose(tree, receiver, now, receiver->blamed).sender;
  if (other == nullptr || other == &sender || other->tier() != Tier::kGood) return false;
  const bool ahead = other->complete() || other->progress.bytes > receiver->progress.bytes;
  // A difference of two, so that the move makes the loads more equal and cannot be undone by the
  // next one.
  return ahead && Pushes(other->endpoint.node) + 2 <= pushes;
}

bool PullPlanner::SenderIsCrowded(RelayTree& tree, Member* receiver, Instant now) {
  const Member& sender = *receiver->sender();
  if (sender.receivers <= tree.fan_out() || receiver->progress.bytes_per_second <= 0) return false;
  const absl::Duration left = TransferTime(static_cast<double>(Missing(tree, *receiver)),
                                           receiver->progress.bytes_per_second);
  if (left < kWorthMoving) return false;
  // The same choice that the scheduler makes if this returns true.
  const Member* other = Choose(tree, receiver, now, receiver->blamed).sender;
  const bool sibling = other != nullptr && other->sender() == &sender && other->receivers == 0;
  if (!sibling || other->tier() != Tier::kGood || other->progress.bytes_per_second <= 0) {
    return false;
  }
  // Its rate does not fall when a receiver leaves their sender, so this is the latest that it
  // finishes.
  const absl::Duration others =
      TransferTime(static_cast<double>(Missing(tree, *other)), other->progress.bytes_per_second);
  return other->progress.bytes > receiver->progress.bytes && others < kMuchSooner * left;
}

std::vector<PullPlanner::Member*> PullPlanner::ReplaceSlowLink(RelayTree& tree, Member* receiver,
                                                               Pace pace, Instant now) {
  if (!receiver->blamed.valid() && HasPromisingSender(tree, receiver, now)) {
    if (pace == Pace::kSenderCrawls) return MakeLeaf(tree, receiver->sender());
    // Only this link is known to be slow so far.
    receiver->blamed = receiver->sender()->endpoint.node;
    return {receiver};
  }
  // The sender that was blamed first is not a leaf after all.
  if (Member* sender = tree.Find(receiver->blamed)) {
    tree.SetLeaf(sender, false);
  } else if (receiver->receivers == 0) {
    return {};
  }
  // Slow at a second sender, too: the receiver itself is slow. Its receivers are moved, and it does
  // not occupy a sender.
  receiver->slow_receiver = true;
  for (const auto& feed : receiver->feeds) tree.SetOccupies(feed.get(), false);
  return MakeLeaf(tree, receiver);
}

std::vector<PullPlanner::Member*> PullPlanner::MakeLeaf(RelayTree& tree, Member* member) {
  tree.SetLeaf(member, true);
  std::vector<Member*> relieved;
  for (auto* feed = member->first_receiver; feed != nullptr; feed = feed->next) {
    feed->receiver->blamed = member->endpoint.node;
    relieved.push_back(feed->receiver);
  }
  return relieved;
}

}  // namespace phalanx::directory
