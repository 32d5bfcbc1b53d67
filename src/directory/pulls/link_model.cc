#include "src/directory/pulls/link_model.h"

#include <algorithm>
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
    previous = now - window_start > 2 * window ? absl::InfiniteDuration() : current;
    current = absl::InfiniteDuration();
    window_start = now;
  }
  current = std::min(current, sample);
}

std::optional<absl::Duration> LinkModel::LeastLatency::Get(absl::Duration window,
                                                           Instant now) const {
  const absl::Duration least = std::min(current, previous);
  // Both windows are too old if no sample has arrived for two of them.
  if (least == absl::InfiniteDuration() || now - window_start > 2 * window) return std::nullopt;
  return least;
}

template <typename T>
void LinkModel::Recent<T>::Add(T sample) {
  // Median() computes it again when a caller needs it.
  median_.reset();
  if (samples_.size() < kSamples) {
    samples_.push_back(sample);
    return;
  }
  samples_[next_] = sample;
  next_ = (next_ + 1) % kSamples;
}

template <typename T>
std::optional<T> LinkModel::Recent<T>::Median() const {
  if (!median_.has_value()) median_ = Quantile(2);
  return median_;
}

template <typename T>
std::optional<T> LinkModel::Recent<T>::Quantile(size_t parts) const {
  if (samples_.empty()) return std::nullopt;
  std::vector<T> sorted = samples_;
  const auto chosen = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / parts);
  std::nth_element(sorted.begin(), chosen, sorted.end());
  return *chosen;
}

LinkModel::Link& LinkModel::Touch(const Endpoint& sender, const Endpoint& receiver) {
  const PairKey key = KeyOf(sender, receiver);
  auto [at, added] = pairs_.try_emplace(key);
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
  LeastLatency& pair = Touch(sender, receiver).latency;
  pair.Add(latency, options_.forget_after, now);
  if (LabelLink* labels = ByLabels(sender, receiver)) {
    labels->latency.Add(latency, options_.forget_after, now);
  }
  // The pair's least, not the sample: one delayed sample must not raise the cluster's median.
  latencies_.Add(*pair.Get(options_.forget_after, now));
}

void LinkModel::RecordRate(const Endpoint& sender, const Endpoint& receiver,
                           double bytes_per_second, int sharing, Instant now) {
  if (!(bytes_per_second > 0)) return;
  // Without any unshared measurement, a share only bounds the link's rate.
  if (sharing > 1 && rates_.empty()) {
    assumed_rate_ = std::clamp(assumed_rate_, bytes_per_second, bytes_per_second * sharing);
    return;
  }
  Link& link = Touch(sender, receiver);
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
  rates_.Add(sample);
}

std::optional<absl::Duration> LinkModel::Latency(const Endpoint& sender, const Endpoint& receiver,
                                                 Instant now) const {
  if (const auto pair = pairs_.find(KeyOf(sender, receiver)); pair != pairs_.end()) {
    const auto least = pair->second.link.latency.Get(options_.forget_after, now);
    if (least.has_value()) return least;
  }
  const PairKey labels{LabelClass(sender.locality), LabelClass(receiver.locality)};
  if (const auto found = by_labels_.find(labels); found != by_labels_.end()) {
    const auto least = found->second.latency.Get(options_.forget_after, now);
    if (least.has_value()) return least;
  }
  return latencies_.Median();
}

std::optional<double> LinkModel::Rate(const Endpoint& sender, const Endpoint& receiver,
                                      Instant now) const {
  const std::optional<double> usual = UsualRate(sender, receiver, now);
  if (const auto pair = pairs_.find(KeyOf(sender, receiver)); pair != pairs_.end()) {
    const auto rate = Fresh(pair->second.link.rate, options_.forget_after, now);
    // A burst can make a pair look fast; the usual rate caps it.
    if (rate.has_value()) return std::min(*rate, kBelievedSpeedup * usual.value_or(*rate));
  }
  return usual;
}

std::optional<double> LinkModel::UsualRate(const Endpoint& sender, const Endpoint& receiver,
                                           Instant now) const {
  const PairKey labels{LabelClass(sender.locality), LabelClass(receiver.locality)};
  if (const auto found = by_labels_.find(labels); found != by_labels_.end()) {
    const auto rate = Fresh(found->second.rate, options_.forget_after, now);
    if (rate.has_value()) return rate;
  }
  return rates_.Median();
}

std::optional<absl::Duration> LinkModel::MedianLatency() const { return latencies_.Median(); }

std::optional<absl::Duration> LinkModel::LowLatency() const { return latencies_.Quantile(4); }

std::optional<double> LinkModel::MedianRate() const { return rates_.Median(); }

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

}  // namespace phalanx::directory
