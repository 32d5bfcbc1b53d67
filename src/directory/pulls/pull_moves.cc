// The pulls that work and get another sender all the same: because they crawl, hold up others, or
// share a link by accident.
#include <algorithm>
#include <utility>

#include "src/common/defects.h"
#include "src/directory/pulls/pull_planner.h"

namespace phalanx::directory {
namespace {

using Tier = RelayTree::Tier;

// A pull crawls if it is slower than this share of the usual rate in this many reports in a row,
// and needs at least this long to finish.
constexpr double kCrawlShare = 0.25;
constexpr int kCrawlReports = 2;
constexpr absl::Duration kWorthMoving = absl::Milliseconds(500);
// A pull that finishes sooner is not moved to balance the load of several objects, nor passed by.
constexpr absl::Duration kWorthBalancing = absl::Milliseconds(100);
// A pull that shares its sender by mistake is moved if it takes less than this share of the time
// elsewhere.
constexpr double kMuchSooner = 0.8;
// Bytes arrive in bursts: a report can lack what the link carries in this time.
constexpr absl::Duration kBurst = absl::Milliseconds(12);
// A receiver with this share of the rate of its sender, by reports of different moments, keeps up.
constexpr double kKeepsUp = 0.7;
// A receiver with this share of what its sender receives is limited by it.
constexpr double kFollows = 0.9;
// A link that several pulls share is silent after so much time for each of them.
constexpr absl::Duration kSilencePerPull = absl::Milliseconds(25);
// A lost packet holds back those behind it for a round trip, and can be lost again.
constexpr int kFarGaps = 3;
// A slow receiver makes room for fast ones if this makes it later by at most this factor.
constexpr double kLittleLater = 1.25;

// A complete member reports nothing, so its last report says nothing about it.
bool Waits(const RelayTree::Member& member) { return !member.complete() && member.progress.silent; }

void NotSlow(RelayTree& tree, RelayTree::Member* member) {
  tree.SetSlow(member, false, 0);
  tree.SetLeaf(member, false);
}

int Load(const RelayTree::Member& member) {
  int load = 0;
  for (const int at_level : member.load) load += at_level;
  return load;
}

}  // namespace

std::vector<PullPlanner::Member*> PullPlanner::OnProgress(RelayTree& tree, Member* receiver,
                                                          const Sample& sample, Instant now) {
  const Report report = TakeReport(receiver, sample, now);
  Member* sender = receiver->sender();
  if (sender == nullptr) return {};
  if (DefectActive(Defect::kMoveBackAndForth)) {
    receiver->progress.blamed = sender->endpoint.node;
    return {receiver};
  }
  if (receiver->progress.silent) {
    // Pulls that share a link have gaps.
    const int shared = SharedBy(*receiver->feeds.front(), report.since);
    const absl::Duration gap = shared * kSilencePerPull + GapAbove(*sender, now);
    const bool certain = report.silent_again && sample.silent >= gap;
    return certain ? LeaveSilentSender(tree, receiver, now) : std::vector<Member*>();
  }
  if (report.link_limited && !receiver->slow_receiver) {
    std::vector<Member*> moved = PassSlowNode(tree, receiver, report, now);
    if (!moved.empty()) return moved;
  }
  if (receiver->slow_receiver) return LetFastOnesPass(tree, receiver, report, now);
  if (receiver->receivers == 0) {
    std::vector<Member*> moved = MakeRoom(tree, receiver, now);
    if (!moved.empty()) return moved;
  }
  if (report.early) return {};
  const Pace pace = PaceOf(tree, *receiver, !report.link_limited, now);
  if (pace == Pace::kFine && report.link_limited &&
      (SenderIsOverloaded(tree, receiver, now) || SenderIsCrowded(tree, receiver, now))) {
    return {receiver};
  }
  // Two reports in a row: one slow quarter of a second can be a pause of either process.
  RelayTree::Progress& progress = receiver->progress;
  progress.slow_reports = pace == Pace::kFine ? 0 : progress.slow_reports + 1;
  if (progress.slow_reports < kCrawlReports) return {};
  progress.slow_reports = 0;
  return ReplaceSlowLink(tree, receiver, pace, now);
}

PullPlanner::Report PullPlanner::TakeReport(Member* receiver, const Sample& sample, Instant now) {
  RelayTree::Progress& progress = receiver->progress;
  const bool early = sample.window > absl::ZeroDuration();
  const absl::Duration passed = early ? sample.window : now - progress.interval_began;
  // Bounded: a smaller number from the node would wrap around.
  const uint64_t starved_before = std::min(progress.starved_ns, sample.starved_ns);
  const absl::Duration starved =
      early ? sample.window_starved
            : absl::Nanoseconds(static_cast<int64_t>(sample.starved_ns - starved_before));
  // The first report of a silence can arrive before that of the sender, which is silent as well.
  const bool silent_again = progress.silent && sample.silent > absl::ZeroDuration();
  // Without new bytes, a silence that was reported continues.
  progress.silent =
      sample.silent > absl::ZeroDuration() || (progress.silent && sample.bytes <= progress.bytes);
  progress.bytes = sample.bytes;
  progress.bytes_per_second = sample.bytes_per_second;
  progress.at = now;
  const Instant since = early ? now - passed : progress.interval_began;
  // An early report is of a part of the interval, of which the next report says all.
  if (!early) {
    progress.interval_began = now;
    progress.starved_ns = sample.starved_ns;
  }
  Report report{.early = early, .silent_again = silent_again, .since = since};
  if (early) report.slow_below = std::max(0.0, 1 - absl::FDivDuration(kBurst, passed));
  const Member* sender = receiver->sender();
  if (sender == nullptr || progress.silent) return report;
  // Starved for more than a tenth of the time, the receiver has the rate of the sender's own
  // sender.
  report.link_limited = starved * 10 < passed;
  if (!report.link_limited || FollowsSlowSender(*sender, sample.bytes_per_second)) {
    links_.RecordLeast(sender->endpoint, receiver->endpoint, sample.bytes_per_second, now);
    return report;
  }
  // A short report of a link that does as usual teaches nothing, and its noise would count.
  const double rate = sample.bytes_per_second;
  const double known = links_.Rate(sender->endpoint, receiver->endpoint, now).value_or(0);
  const bool usual = rate >= LinkModel::kSlowShare * known && known >= LinkModel::kSlowShare * rate;
  if (early && usual) return report;
  links_.RecordRate(sender->endpoint, receiver->endpoint, rate, Shared(*receiver, report.since),
                    now);
  return report;
}

bool PullPlanner::FollowsSlowSender(const Member& sender, double rate) const {
  const double offered = sender.complete() ? 0 : sender.progress.bytes_per_second;
  const double fastest = links_.FastestRate().value_or(0);
  return offered > 0 && rate >= kFollows * offered && rate < LinkModel::kSlowShare * fastest;
}

double PullPlanner::Shared(const Member& receiver, Instant since) const {
  const RelayTree::Feed& feed = *receiver.feeds.front();
  const int most = SharedBy(feed, since);
  const double rate = receiver.progress.bytes_per_second;
  double sum = 0;
  int known = 0;
  for (auto* beside = feed.sender->first_receiver; beside != nullptr; beside = beside->next) {
    const RelayTree::Progress& other = beside->receiver->progress;
    // An older rate is of the time before the link was shared.
    if (other.at < since) continue;
    if (rate < LinkModel::kSlowShare * other.bytes_per_second) return 1;
    sum += other.bytes_per_second;
    ++known;
  }
  return known == most ? std::min<double>(most, sum / rate) : most;
}

bool PullPlanner::MayMove(Member* member) {
  int& moves = member->progress.moves;
  if (moves < kMaxMoves) return true;
  // Counted once, not with each report.
  if (moves == kMaxMoves) {
    ++moves;
    ++moves_refused_;
  }
  return false;
}

void PullPlanner::Blame(Member* receiver, const Member* sender) {
  receiver->progress.blamed = sender->endpoint.node;
  ++receiver->progress.moves;
}

// ---- a node whose link is slow

std::vector<PullPlanner::Member*> PullPlanner::PassSlowNode(RelayTree& tree, Member* receiver,
                                                            const Report& report, Instant now) {
  Member* sender = receiver->sender();
  const double rate = receiver->progress.bytes_per_second;
  // Links between racks and zones are slow whichever node is behind them.
  if (rate <= 0 || Crosses(sender->endpoint.locality, receiver->endpoint.locality)) return {};
  const absl::Duration left = TransferTime(tree.Missing(*receiver), rate);
  if (left < kWorthBalancing) return {};
  const std::optional<double> fast = links_.FastRate();
  if (!fast.has_value()) {
    // Nothing shows which end is slow. One trial for each object: the receiver changes places with
    // its own receivers, which costs little if the sender was the slow one.
    if (left < kWorthMoving || receiver->receivers == 0 || !tree.TakeTrial()) return {};
  } else {
    const double share = report.slow_below * LinkModel::kSlowShare;
    // Bytes arrive in pieces: the last one can be about to be complete.
    const double most = rate + relay_bytes_ / absl::ToDoubleSeconds(now - report.since);
    if (most * Shared(*receiver, report.since) >= share * *fast) return {};
    if (links_.SlowNode(sender->endpoint, now).has_value()) {
      if (!sender->complete()) tree.SetSlow(sender, true, static_cast<uint64_t>(rate));
      return LeaveIfSooner(tree, receiver, now);
    }
    // A receiver that keeps up with its sender is not the one that is slow.
    const bool keeps_up =
        !sender->complete() && rate >= kKeepsUp * sender->progress.bytes_per_second;
    if (keeps_up && sender->progress.bytes_per_second > 0) return {};
    // Alone there, it holds up no other node. If it crawls, it is tried elsewhere.
    const bool alone = receiver->receivers == 0 && sender->receivers == 1;
    if (alone && !links_.SlowNode(receiver->endpoint, now).has_value()) return {};
  }
  // If it was the sender that is slow, those below will show it.
  tree.SetSlow(receiver, true, static_cast<uint64_t>(rate));
  std::vector<Member*> moved = Receivers(receiver);
  // A receiver of it that reported first seemed to be the slow one.
  for (Member* below : moved) {
    const bool got_as_much = static_cast<double>(below->slow_rate) >= LinkModel::kSlowShare * rate;
    const bool seemed = below->slow_receiver && got_as_much;
    if (seemed && !links_.SlowNode(below->endpoint, now).has_value()) NotSlow(tree, below);
  }
  // On trial it goes below the last of them: a chain stays a chain.
  if (!fast.has_value() && MayMove(receiver)) {
    ++receiver->progress.moves;
    moved.push_back(receiver);
    return moved;
  }
  for (Member* out : LetFastOnesPass(tree, receiver, report, now)) moved.push_back(out);
  return moved;
}

std::vector<PullPlanner::Member*> PullPlanner::LeaveIfSooner(RelayTree& tree, Member* receiver,
                                                             Instant now) {
  const Member* sender = receiver->sender();
  if (!MayMove(receiver)) return {};
  const Choice other = Choose(tree, receiver, now, sender->endpoint.node);
  if (other.sender == nullptr || other.troubled || other.finish.infinite()) return {};
  // What a node that is behind will do is only expected.
  const bool ahead =
      other.sender->complete() || other.sender->progress.bytes > receiver->progress.bytes;
  if (!ahead) return {};
  const absl::Duration left =
      TransferTime(tree.Missing(*receiver), receiver->progress.bytes_per_second);
  // A slow receiver nearly level with its link has little to gain, and its rate is noise.
  const double much = receiver->slow_receiver ? LinkModel::kSlowShare : kMuchSooner;
  if (other.finish - now > much * left) return {};
  Blame(receiver, sender);
  return {receiver};
}

std::vector<PullPlanner::Member*> PullPlanner::LetFastOnesPass(RelayTree& tree, Member* slow,
                                                               const Report& report, Instant now) {
  const double rate = slow->progress.bytes_per_second;
  if (rate <= 0) return {};
  const Member* sender = slow->sender();
  const std::optional<double> fast = links_.FastRate();
  if (fast.has_value() && rate >= LinkModel::kSlowShare * *fast) {
    NotSlow(tree, slow);
    return {};
  }
  // It was the sender, this one or the one before, if the receiver is not known to be slow.
  const bool was_sender = rate * LinkModel::kSlowShare >= static_cast<double>(slow->slow_rate) ||
                          links_.SlowNode(sender->endpoint, now).has_value();
  if (was_sender && !links_.SlowNode(slow->endpoint, now).has_value()) {
    NotSlow(tree, slow);
    return LeaveIfSooner(tree, slow, now);
  }
  if (report.link_limited && !sender->slow_receiver) {
    tree.SetSlow(slow, true, static_cast<uint64_t>(rate));
  }
  const bool in_the_way = !sender->slow_receiver && Load(*sender) > 0;
  if (!in_the_way) return report.early ? std::vector<Member*>() : LeaveIfSooner(tree, slow, now);
  if (!MayMove(slow)) return {};
  const Choice other = Choose(tree, slow, now, sender->endpoint.node);
  if (other.sender == nullptr || other.troubled || other.sender->tier() == Tier::kLeaf) return {};
  const Member& below = *other.sender;
  if (!below.slow_receiver && Load(below) > 0) return {};
  // A node that was never measured can be behind a slower link than this one.
  const auto needed = static_cast<double>(slow->slow_rate);
  const bool proven = below.complete() || below.progress.bytes_per_second >= needed ||
                      links_.CanDo(below.endpoint, now) >= needed;
  const absl::Duration left = TransferTime(tree.Missing(*slow), std::min(rate, needed));
  const bool later = !other.finish.infinite() && other.finish - now > kLittleLater * left;
  if (!proven || later) return {};
  Blame(slow, sender);
  return {slow};
}

std::vector<PullPlanner::Member*> PullPlanner::MakeRoom(RelayTree& tree, const Member* leaf,
                                                        Instant now) {
  std::vector<Member*> moved;
  for (const Member* at = leaf->sender(); at != nullptr && moved.empty(); at = at->sender()) {
    if (at->light == 0) continue;
    for (auto* feed = at->first_receiver; feed != nullptr; feed = feed->next) {
      if (feed->light > 0) moved = LetFastOnesPass(tree, feed->receiver, Report(), now);
      if (!moved.empty()) break;
    }
  }
  return moved;
}

// ---- a sender that sends nothing

absl::Duration PullPlanner::GapAbove(const Member& relay, Instant now) const {
  absl::Duration gap;
  const Member* receiver = &relay;
  for (const Member* at = relay.sender(); at != nullptr && receiver->crossings > 0;
       receiver = at, at = at->sender()) {
    if (!Crosses(at->endpoint.locality, receiver->endpoint.locality)) continue;
    std::optional<absl::Duration> round_trip =
        links_.LatencyByLabels(at->endpoint, receiver->endpoint, now);
    if (!round_trip) round_trip = links_.LatencyByLabels(receiver->endpoint, at->endpoint, now);
    // Racks of one zone are near each other.
    const bool near = at->endpoint.locality.zone == receiver->endpoint.locality.zone;
    gap += kFarGaps * round_trip.value_or(near ? absl::ZeroDuration() : absl::InfiniteDuration());
  }
  return gap;
}

std::vector<PullPlanner::Member*> PullPlanner::LeaveSilentSender(RelayTree& tree, Member* receiver,
                                                                 Instant now) {
  Member* sender = receiver->sender();
  // A connection to a far region has gaps of a round trip until its window has grown; on a new one
  // it would grow from the start again.
  if (Crosses(sender->endpoint.locality, receiver->endpoint.locality)) return {};
  // A sender that has reported the same waits for bytes itself.
  if (Waits(*sender) || !MayMove(receiver)) return {};
  const Choice other = Choose(tree, receiver, now, sender->endpoint.node);
  if (other.sender == nullptr || other.troubled || Waits(*other.sender)) return {};
  Blame(receiver, sender);
  for (auto* feed = sender->first_receiver; feed != nullptr; feed = feed->next) {
    // The sender delivers to another node: only this link is silent.
    if (!feed->receiver->progress.silent) return {receiver};
  }
  // A complete one sends no report that would show the end of it.
  if (sender->complete()) return {receiver};
  tree.SetLeaf(sender, true);
  // It stays where it is, since only this link need be silent: it does not count against its own
  // sender until its next report.
  tree.SetSlow(sender, true, 0);
  return {receiver};
}

// ---- pulls that crawl, and shared links

bool PullPlanner::AlikeAcross(const Endpoint& a, const Endpoint& b, Instant now) const {
  if (!Crosses(a.locality, b.locality)) return true;
  // They cross the boundary around the level inside the one that they share.
  const auto inner =
      static_cast<Nearness>(static_cast<int>(NearnessOf(a.locality, b.locality)) - 1);
  return links_.BoundaryAround(inner, now) == LinkModel::Boundary::kAlike &&
         !links_.FarAcross(a, b, inner, now);
}

// Compares the receiver's rate with the rate at which its sender receives, with the sender's other
// receivers, and with the cluster's median.
PullPlanner::Pace PullPlanner::PaceOf(const RelayTree& tree, const Member& receiver, bool starved,
                                      Instant now) const {
  const double rate = receiver.progress.bytes_per_second;
  if (starved || receiver.slow_receiver || rate <= 0) return Pace::kFine;
  const Member& sender = *receiver.sender();
  // A far link is no measure for those inside, nor the reverse, and is slow to start.
  if (!AlikeAcross(sender.endpoint, receiver.endpoint, now)) return Pace::kFine;
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
  const absl::Duration left =
      TransferTime(tree.Missing(*receiver), receiver->progress.bytes_per_second);
  if (left < kWorthBalancing) return false;
  // The same choice that the scheduler makes if this returns true.
  const Member* other = Choose(tree, receiver, now, receiver->progress.blamed).sender;
  if (other == nullptr || other == &sender || other->tier() != Tier::kGood) return false;
  const bool ahead = other->complete() || other->progress.bytes > receiver->progress.bytes;
  // A difference of two, so that the move makes the loads more equal and cannot be undone by the
  // next one.
  return ahead && Pushes(other->endpoint.node) + 2 <= pushes;
}

bool PullPlanner::SenderIsCrowded(RelayTree& tree, Member* receiver, Instant now) {
  const Member& sender = *receiver->sender();
  if (sender.receivers <= tree.fan_out() || receiver->progress.bytes_per_second <= 0) return false;
  // A feed across does not count as a receiver, and a new connection to a far region starts slowly.
  if (Crosses(sender.endpoint.locality, receiver->endpoint.locality)) return false;
  const absl::Duration left =
      TransferTime(tree.Missing(*receiver), receiver->progress.bytes_per_second);
  if (left < kWorthMoving) return false;
  // The same choice that the scheduler makes if this returns true.
  const Member* other = Choose(tree, receiver, now, receiver->progress.blamed).sender;
  const bool sibling = other != nullptr && other->sender() == &sender && other->receivers == 0;
  if (!sibling || other->tier() != Tier::kGood || other->progress.bytes_per_second <= 0) {
    return false;
  }
  // Its rate does not fall when a receiver leaves their sender, so this is the latest that it
  // finishes.
  const absl::Duration others =
      TransferTime(tree.Missing(*other), other->progress.bytes_per_second);
  return other->progress.bytes > receiver->progress.bytes && others < kMuchSooner * left;
}

std::vector<PullPlanner::Member*> PullPlanner::ReplaceSlowLink(RelayTree& tree, Member* receiver,
                                                               Pace pace, Instant now) {
  if (!receiver->progress.blamed.valid() && HasPromisingSender(tree, receiver, now)) {
    if (pace == Pace::kSenderCrawls) return MakeLeaf(tree, receiver->sender());
    // Only this link is known to be slow so far.
    receiver->progress.blamed = receiver->sender()->endpoint.node;
    return {receiver};
  }
  // The sender that was blamed first is not a leaf after all.
  if (Member* sender = tree.Find(receiver->progress.blamed)) {
    tree.SetLeaf(sender, false);
  } else if (receiver->receivers == 0) {
    return {};
  }
  // Slow at a second sender, too: the receiver itself is slow. Its receivers are moved, and it does
  // not occupy a sender.
  tree.SetSlow(receiver, true, static_cast<uint64_t>(receiver->progress.bytes_per_second));
  return MakeLeaf(tree, receiver);
}

std::vector<PullPlanner::Member*> PullPlanner::MakeLeaf(RelayTree& tree, Member* member) {
  tree.SetLeaf(member, true);
  return Receivers(member);
}

std::vector<PullPlanner::Member*> PullPlanner::Receivers(Member* sender) {
  std::vector<Member*> receivers;
  for (auto* feed = sender->first_receiver; feed != nullptr; feed = feed->next) {
    if (!MayMove(feed->receiver)) continue;
    Blame(feed->receiver, sender);
    receivers.push_back(feed->receiver);
  }
  return receivers;
}

}  // namespace phalanx::directory
