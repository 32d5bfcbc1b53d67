#include "src/directory/pulls/link_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/string_view.h"

namespace phalanx::directory {
namespace {

// FNV-1a: the same in every process, so that plans replay. Never 0, which means "no label".
uint64_t HashPath(uint64_t outer, absl::string_view label, absl::string_view value) {
  uint64_t hash = 14695981039346656037u ^ outer;
  const auto mix = [&hash](absl::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
    hash = (hash ^ 0xff) * 1099511628211u;
  };
  mix(label);
  mix(value);
  return hash | 1;
}

uint64_t LabelPath(const v1::NodeInfo& node, const char* label, uint64_t outer) {
  const auto found = node.labels().find(label);
  // An empty value is no label: such nodes have nothing in common.
  if (found == node.labels().end() || found->second.empty()) return 0;
  return HashPath(outer, label, found->second);
}

// A pair that was measured faster than others like it by more than this factor was, nearly always,
// measured in a burst. If the model believed it, a sender would get several receivers of a large
// object.
constexpr double kBelievedSpeedup = 1.5;

uint64_t HashPair(uint64_t a, uint64_t b) { return a * 1099511628211u ^ b; }

// The identity of a class of nodes: the innermost of rack and zone.
uint64_t LabelClass(const Locality& locality) {
  return locality.rack != 0 ? locality.rack : locality.zone;
}

}  // namespace

// Each level hashes the one around it: two racks that are both called "1", in different zones, are
// different racks.
Locality Locality::FromNode(const v1::NodeInfo& node) {
  Locality locality;
  locality.zone = LabelPath(node, "zone", 0);
  locality.rack = LabelPath(node, "rack", locality.zone);
  locality.host = LabelPath(node, "host", locality.rack != 0 ? locality.rack : locality.zone);
  return locality;
}

uint64_t HostOf(const v1::NodeInfo& node) {
  const uint64_t labelled = Locality::FromNode(node).host;
  if (labelled != 0) return labelled;
  const absl::string_view address = node.address();
  const absl::string_view host = address.substr(0, address.rfind(':'));
  return host.empty() ? node.key().node() : HashPath(0, "address", host);
}

uint64_t Locality::domain(Nearness level) const {
  switch (level) {
    case Nearness::kHost:
      return host;
    case Nearness::kRack:
      return rack;
    case Nearness::kZone:
      return zone;
    case Nearness::kWorld:
      break;
  }
  return 1;
}

Nearness NearnessOf(const Locality& a, const Locality& b) {
  if (a.host != 0 && a.host == b.host) return Nearness::kHost;
  if (a.rack != 0 && a.rack == b.rack) return Nearness::kRack;
  if (a.zone != 0 && a.zone == b.zone) return Nearness::kZone;
  return Nearness::kWorld;
}

// A missing label proves no boundary, so it does not count as one.
bool Crosses(const Locality& a, const Locality& b) {
  const auto differ = [](uint64_t x, uint64_t y) { return x != 0 && y != 0 && x != y; };
  return differ(a.zone, b.zone) || differ(a.rack, b.rack);
}

// Half of each new sample, so that a changed link is known after a few pulls.
void LinkModel::SmoothRate::Add(double sample, Instant now) {
  value = value == 0 ? sample : 0.5 * value + 0.5 * sample;
  at = now;
}

void LinkModel::MiddleRate::Add(double sample, Instant now) {
  last = {sample, last[0], last[1]};
  // A report that has not arrived yet is 0, less than any.
  std::array<double, 3> sorted = last;
  std::sort(sorted.begin(), sorted.end());
  const bool three = sorted.front() > 0;
  value = three ? sorted[1] : sorted[2];
  at = now;
}

void LinkModel::LeastLatency::Add(absl::Duration sample, absl::Duration window, Instant now) {
  if (current == absl::InfiniteDuration()) window_start = now;
  if (now - window_start > window) {
    // The least latency of two windows ago is out of date.
    const bool old = now - window_start > 2 * window;
    previous = old ? absl::InfiniteDuration() : current;
    current = absl::InfiniteDuration();
    if (old) samples = 0;
    window_start = now;
  }
  current = std::min(current, sample);
  samples = std::min(samples + 1, kSamplesOfPair);
}

std::optional<absl::Duration> LinkModel::LeastLatency::Get(absl::Duration window,
                                                           Instant now) const {
  const absl::Duration least = std::min(current, previous);
  // Both windows are too old if no sample has arrived for two of them.
  if (least == absl::InfiniteDuration() || now - window_start > 2 * window) return std::nullopt;
  return least;
}

template <typename T>
void LinkModel::Recent<T>::Add(T sample, uint64_t key) {
  // Quantile() sorts again when a caller needs it.
  sorted_.clear();
  const auto same = key == 0 ? keys_.end() : std::find(keys_.begin(), keys_.end(), key);
  if (same != keys_.end()) {
    samples_[static_cast<size_t>(same - keys_.begin())] = sample;
  } else if (samples_.size() < kSamples) {
    samples_.push_back(sample);
    keys_.push_back(key);
  } else {
    samples_[next_] = sample;
    keys_[next_] = key;
    next_ = (next_ + 1) % kSamples;
  }
}

template <typename T>
std::optional<T> LinkModel::Recent<T>::Quantile(double share) const {
  if (samples_.empty()) return std::nullopt;
  if (sorted_.empty()) {
    sorted_ = samples_;
    std::sort(sorted_.begin(), sorted_.end());
  }
  return sorted_[static_cast<size_t>(share * static_cast<double>(sorted_.size()))];
}

void LinkModel::NodeSpeed::Add(Sample sample, Instant since) {
  auto at = std::find_if(last.begin(), last.end(),
                         [&sample](const Sample& other) { return other.peer == sample.peer; });
  if (at == last.end()) {
    --at;
  } else if (at->at >= since) {
    // What was known before holds within the new bounds, and the new ones within the old.
    if (sample.rate <= at->most) sample.most = std::min(at->most, sample.most);
    sample.rate = std::clamp(at->rate, sample.rate, sample.most);
  }
  *at = sample;
  // The latest first: a new peer replaces the one that was measured least recently.
  std::rotate(last.begin(), at, at + 1);
}

double LinkModel::NodeSpeed::BestWithout(uint64_t peer, Instant since,
                                         std::optional<bool> sent) const {
  double best = 0;
  for (const Sample& sample : last) {
    const bool counts = sample.at >= since && sent.value_or(sample.sent) == sample.sent;
    if (counts && sample.peer != peer) best = std::max(best, sample.rate);
  }
  return best;
}

void LinkModel::RecordSpeeds(const Endpoint& sender, const Endpoint& receiver, double rate,
                             double most, Instant now) {
  // Between racks and zones neither node need be the limit.
  if (!(rate > 0) || Crosses(sender.locality, receiver.locality)) return;
  // Begins from nothing instead of keeping an order of age: pulls fill it again within minutes.
  if (speeds_.size() + 2 > options_.max_pairs) speeds_.clear();
  const Instant since = now - options_.forget_after;
  const std::optional<double> fast = FastRate();
  const auto add = [&](const Endpoint& node, const Endpoint& peer) {
    NodeSpeed& speed = speeds_[node.node.node];
    // That the node can do at least what it did before, or what slow ones do, is no news.
    const double known = std::max(speed.BestWithout(0, since), kSlowShare * fast.value_or(0));
    const bool news = !std::isinf(most) || rate > known;
    if (news) speed.Add({peer.node.node, &node == &sender, rate, most, now}, since);
    if (rate >= kSlowShare * fast.value_or(ExpectedRate())) speed.noted = 0;
    return speed.BestWithout(0, since);
  };
  add(sender, receiver);
  const double best = add(receiver, sender);
  // A small share, or a starved pull, says what fast nodes do only if it is more than was known.
  if (rate >= kSlowShare * most || (fast.has_value() && best > *fast))
    nodes_.Add(best, receiver.node.node);
}

double LinkModel::CanDo(uint64_t node, uint64_t without, Instant since,
                        std::optional<bool> sent) const {
  const auto found = speeds_.find(node);
  return found == speeds_.end() ? 0 : found->second.BestWithout(without, since, sent);
}

double LinkModel::CanDo(const Endpoint& node, Instant now) const {
  return CanDo(node.node.node, 0, now - options_.forget_after);
}

std::optional<double> LinkModel::SlowNode(const Endpoint& node, Instant now) const {
  const auto found = speeds_.find(node.node.node);
  const std::optional<double> fast = FastRate();
  if (found == speeds_.end()) return std::nullopt;
  const Instant since = now - options_.forget_after;
  const bool noted = found->second.noted > 0 && found->second.noted_at >= since;
  if (noted) return std::min(found->second.noted, kSlowShare * fast.value_or(ExpectedRate()));
  if (!fast.has_value()) return std::nullopt;
  double best = 0;
  int judged = 0;
  bool certain = false;
  for (const NodeSpeed::Sample& sample : found->second.last) {
    if (sample.peer == 0 || sample.at < since || judged == NodeSpeed::kJudged) continue;
    const double peer = CanDo(sample.peer, node.node.node, since);
    if (sample.rate >= kSlowShare * *fast) return std::nullopt;
    // Its share of a link that can be fast, or the link of a peer that is as slow, says nothing
    // about this node.
    const double most = peer > 0 ? std::min(peer, *fast) : *fast;
    if (sample.most >= kSlowShare * most) continue;
    ++judged;
    best = std::max(best, sample.rate);
    // That a relay receives fast is no proof that it can send so.
    const double as_much = CanDo(sample.peer, node.node.node, since, !sample.sent);
    certain |= sample.most < kSlowShare * as_much;
  }
  // What is common to two slow pulls is this node.
  const bool slow = certain || judged == NodeSpeed::kJudged;
  return slow ? std::optional<double>(best) : std::nullopt;
}

void LinkModel::NoteSlow(const Endpoint& node, double bytes_per_second, Instant now) {
  // Bounded like the pairs: a node that was never measured begins when it is.
  const auto found = speeds_.find(node.node.node);
  if (found == speeds_.end()) return;
  found->second.noted = bytes_per_second;
  found->second.noted_at = now;
}

std::optional<double> LinkModel::FastRate() const {
  return nodes_.size() < 2 ? std::nullopt : nodes_.Quantile(0.75);
}

LinkModel::Link& LinkModel::Touch(const Endpoint& sender, const Endpoint& receiver, Instant now) {
  const PairKey key = KeyOf(sender, receiver);
  auto [at, added] = pairs_.try_emplace(key);
  at->second.link.used = now;
  at->second.link.lives = {sender.node.incarnation, receiver.node.incarnation};
  if (!added) {
    by_age_.splice(by_age_.begin(), by_age_, at->second.age);
    return at->second.link;
  }
  // The new pair is at the front, so it is never the one that is dropped.
  by_age_.push_front(key);
  at->second.age = by_age_.begin();
  if (pairs_.size() > options_.max_pairs) {
    pairs_.erase(by_age_.back());
    by_age_.pop_back();
  }
  return pairs_.find(key)->second.link;
}

LinkModel::LabelLink* LinkModel::ByLabels(const Endpoint& sender, const Endpoint& receiver) {
  const PairKey key{LabelClass(sender.locality), LabelClass(receiver.locality)};
  if (key == PairKey{0, 0}) return nullptr;
  const auto found = by_labels_.find(key);
  if (found != by_labels_.end()) return &found->second;
  // Clusters where labels help have few of them. A cluster with more pairs of labels than this uses
  // its median.
  if (by_labels_.size() >= options_.max_pairs) return nullptr;
  return &by_labels_[key];
}

void LinkModel::RecordLatency(const Endpoint& sender, const Endpoint& receiver,
                              absl::Duration latency, Instant now) {
  if (latency <= absl::ZeroDuration()) return;
  LeastLatency& pair = Touch(sender, receiver, now).latency;
  pair.Add(latency, options_.forget_after, now);
  if (LabelLink* labels = ByLabels(sender, receiver)) {
    labels->latency.Add(latency, options_.forget_after, now);
  }
  // The pair's least, not the sample: one delayed sample must not raise the cluster's median.
  latencies_.Add(*pair.Get(options_.forget_after, now));
  latency_by_level_[static_cast<int>(NearnessOf(sender.locality, receiver.locality))].Add(
      latency, options_.forget_after, now);
}

void LinkModel::RecordRate(const Endpoint& sender, const Endpoint& receiver,
                           double bytes_per_second, double sharing, Instant now) {
  if (!(bytes_per_second > 0)) return;
  RecordSpeeds(sender, receiver, bytes_per_second, bytes_per_second * sharing, now);
  // Without any unshared measurement, a share only bounds the link's rate.
  if (sharing > 1 && rates_.empty()) {
    assumed_rate_ = std::clamp(assumed_rate_, bytes_per_second, bytes_per_second * sharing);
    return;
  }
  Link& link = Touch(sender, receiver, now);
  // Old reports do not count in the median of three.
  if (!Fresh(link.rate, options_.forget_after, now).has_value()) link.rate = MiddleRate();
  double sample = bytes_per_second;
  if (sharing > 1) {
    std::optional<double> known = Fresh(link.rate, options_.forget_after, now);
    if (!known.has_value()) known = UsualRate(sender, receiver, now);
    sample = std::clamp(*known, bytes_per_second, bytes_per_second * sharing);
    // Within the bounds: the report confirms the known rate and only refreshes its age.
    if (sample == *known) {
      if (link.rate.value > 0) link.rate.at = now;
      return;
    }
  }
  link.rate.Add(sample, now);
  // A bound limits the rate of this link only, not of others like it.
  if (sharing > 1) return;
  if (LabelLink* labels = ByLabels(sender, receiver)) labels->rate.Add(sample, now);
  by_level_[static_cast<int>(NearnessOf(sender.locality, receiver.locality))].Add(sample, now);
  rates_.Add(link.rate.value, HashPair(sender.node.node, receiver.node.node));
}

std::optional<absl::Duration> LinkModel::Latency(const Endpoint& sender, const Endpoint& receiver,
                                                 Instant now) const {
  std::optional<absl::Duration> usual = LatencyByLabels(sender, receiver, now);
  if (!usual.has_value()) usual = MedianLatency();
  const auto pair = pairs_.find(KeyOf(sender, receiver));
  if (pair == pairs_.end()) return usual;
  const LeastLatency& latency = pair->second.link.latency;
  const auto least = latency.Get(options_.forget_after, now);
  if (!least.has_value() || !usual.has_value()) return usual;
  return latency.samples >= kSamplesOfPair ? *least : std::min(*least, *usual);
}

std::optional<absl::Duration> LinkModel::LatencyByLabels(const Endpoint& sender,
                                                         const Endpoint& receiver,
                                                         Instant now) const {
  const auto found = by_labels_.find({LabelClass(sender.locality), LabelClass(receiver.locality)});
  if (found == by_labels_.end()) return std::nullopt;
  return found->second.latency.Get(options_.forget_after, now);
}

std::optional<double> LinkModel::Rate(const Endpoint& sender, const Endpoint& receiver,
                                      Instant now) const {
  const std::optional<double> usual = UsualRate(sender, receiver, now);
  if (const auto pair = pairs_.find(KeyOf(sender, receiver)); pair != pairs_.end()) {
    const auto rate = Fresh(pair->second.link.rate, options_.forget_after, now);
    // A burst can make a pair look fast; the usual rate of fast nodes caps it.
    double most = usual.value_or(0);
    if (!RateByLabels(sender, receiver, now).has_value()) {
      most = std::max(most, FastRate().value_or(0));
    }
    if (rate.has_value()) return most > 0 ? std::min(*rate, kBelievedSpeedup * most) : *rate;
  }
  if (!usual.has_value()) return std::nullopt;
  // A node whose own link is slow is slow with every other.
  return std::min(
      {*usual, SlowNode(sender, now).value_or(*usual), SlowNode(receiver, now).value_or(*usual)});
}

std::optional<double> LinkModel::RateByLabels(const Endpoint& sender, const Endpoint& receiver,
                                              Instant now) const {
  const auto found = by_labels_.find({LabelClass(sender.locality), LabelClass(receiver.locality)});
  if (found == by_labels_.end()) return std::nullopt;
  return Fresh(found->second.rate, options_.forget_after, now);
}

std::optional<double> LinkModel::UsualRate(const Endpoint& sender, const Endpoint& receiver,
                                           Instant now) const {
  const std::optional<double> rate = RateByLabels(sender, receiver, now);
  if (rate.has_value()) return rate;
  const std::optional<double> median = rates_.Quantile(0.5);
  // The pairs of a few slow nodes make the median slow; such nodes are known one by one.
  const bool crosses = Crosses(sender.locality, receiver.locality);
  return median.has_value() && !crosses ? std::max(*median, FastRate().value_or(0)) : median;
}

std::optional<absl::Duration> LinkModel::LatencyOfShare(double share) const {
  const std::optional<absl::Duration> latency = latencies_.Quantile(share);
  if (!latency.has_value() || latencies_.size() >= kSureLatencies) return latency;
  return std::min(*latency, kAssumedLatency);
}

std::optional<double> LinkModel::MedianRate() const { return rates_.Quantile(0.5); }

LinkModel::Boundary LinkModel::BoundaryAround(Nearness inner, Instant now) const {
  const int level = static_cast<int>(inner);
  const auto inside = Fresh(by_level_[level], options_.forget_after, now);
  if (!inside.has_value()) return Boundary::kUnknown;
  // The nearest measured level around decides: the ones in between had no pulls.
  for (int outer = level + 1; outer < kNearnessLevels; ++outer) {
    const auto across = Fresh(by_level_[outer], options_.forget_after, now);
    if (!across.has_value()) continue;
    return *across < 0.5 * *inside ? Boundary::kSlow : Boundary::kAlike;
  }
  return Boundary::kUnknown;
}

bool LinkModel::FarAcross(const Endpoint& a, const Endpoint& b, Nearness inner, Instant now) const {
  const int level = static_cast<int>(inner);
  const auto inside = latency_by_level_[level].Get(options_.forget_after, now);
  std::optional<absl::Duration> across = LatencyByLabels(a, b, now);
  if (!across.has_value()) across = LatencyByLabels(b, a, now);
  for (int outer = level + 1; outer < kNearnessLevels && !across.has_value(); ++outer) {
    across = latency_by_level_[outer].Get(options_.forget_after, now);
  }
  return inside.has_value() && across.has_value() && *across > kFarLatency &&
         *across > kFarTimes * *inside;
}

absl::Duration LinkModel::ColdStart(const Endpoint& sender, const Endpoint& receiver,
                                    Instant now) const {
  const absl::Duration round_trip = ExpectedLatency(sender, receiver, now);
  if (round_trip <= kFarLatency) return absl::ZeroDuration();
  const auto pair = pairs_.find(KeyOf(sender, receiver));
  // A restarted node is behind the same link, but has none of its earlier life's connections.
  const std::pair lives{sender.node.incarnation, receiver.node.incarnation};
  if (pair != pairs_.end() && pair->second.link.lives == lives &&
      now - pair->second.link.used <= kConnectionKept) {
    return absl::ZeroDuration();
  }
  const double in_flight = ExpectedRate(sender, receiver, now) * absl::ToDoubleSeconds(round_trip);
  const double doublings = std::max(0.0, std::log2(in_flight / kFirstWindowBytes));
  return (kHandshakeTrips + doublings) * round_trip;
}

}  // namespace phalanx::directory
