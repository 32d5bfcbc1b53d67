#include "src/directory/reductions/ring_plan/measured_costs.h"

namespace phalanx::directory {
namespace {

// Assumed as long as nothing was measured: 1 Gbit/s, and the one-way latency of a fast network.
constexpr double kAssumedRate = 125e6;
constexpr absl::Duration kAssumedReduceLatency = absl::Microseconds(200);
// One core folds at about the speed of its memory.
constexpr double kFoldRate = 4e9;
// A fold hands on what has arrived and does not wait for a whole segment of the wire.
constexpr uint64_t kSegmentBytes = 4 << 10;
// Of two children, measured in trees of 24 nodes at 250 Mbit/s.
constexpr double kUnevenness = 1.2;

}  // namespace

ReduceCosts MeasuredCosts(const LinkModel& links) {
  ReduceCosts costs;
  // The pulls of a tree are opened once: in a chain that flows, no node waits behind the requests
  // of other nodes. So the least latency counts, not the median.
  const auto round_trip = links.LowLatency();
  costs.latency = round_trip.has_value() ? *round_trip / 2 : kAssumedReduceLatency;
  costs.bytes_per_second = links.MedianRate().value_or(kAssumedRate);
  costs.fold_per_second = kFoldRate;
  costs.segment_bytes = kSegmentBytes;
  costs.unevenness = kUnevenness;
  return costs;
}

}  // namespace phalanx::directory
