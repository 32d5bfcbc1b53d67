// Measured latency and bandwidth between nodes, per ordered pair, from the receivers' reports of
// their pulls.
//
// For an unmeasured pair the answer comes from measurements between other nodes with the same pair
// of labels, else from the cluster's median, else there is none; Expected* assume something then.
//
// A single report is weak evidence. Of a pair's last three rates the middle one counts; of many
// pairs with the same labels, an average that fades. A latency is the least of the last minutes. A
// measurement that was not refreshed for `forget_after` no longer counts. The number of pairs is
// bounded; the model drops the least recently measured first.
//
// A node has one link, which its pulls share, so a rate also says something about each of the two
// nodes. Of each node the model keeps the rates with the last few peers, in either direction. A
// rate with a peer that is as slow, or a share of a link that can be fast, says nothing about the
// node. The node's own link is slow if the last two of the other rates are, or if there is one, and
// the peer did much more with another node in the same direction.
//
// Pure: no clock, thread or lock; `now` is passed in. Owned by PullPlanner, on the shard's
// control loop.
#ifndef PHALANX_DIRECTORY_PULLS_LINK_MODEL_H_
#define PHALANX_DIRECTORY_PULLS_LINK_MODEL_H_

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "phalanx/v1/types.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

// How close two nodes are: the innermost of the labels "host", "rack", "zone" that they share.
enum class Nearness { kHost = 0, kRack = 1, kZone = 2, kWorld = 3 };
inline constexpr int kNearnessLevels = 4;

// The location of a node: a number for each label together with all labels around it (so that rack
// 1 of zone a is not rack 1 of zone b); 0 if the node has no such label.
struct Locality {
  uint64_t host = 0;
  uint64_t rack = 0;
  uint64_t zone = 0;

  static Locality FromNode(const v1::NodeInfo& node);
  // The domain at a level; the same for all nodes at kWorld.
  uint64_t domain(Nearness level) const;
  friend bool operator==(const Locality&, const Locality&) = default;
};

// The host of a node: its label "host", together with the labels around it, or else the host part
// of its address. A node without an address is alone on its host.
uint64_t HostOf(const v1::NodeInfo& node);

Nearness NearnessOf(const Locality& a, const Locality& b);
// Different zones, or different racks: a link that can be slower than those inside. Nodes without
// labels never cross.
bool Crosses(const Locality& a, const Locality& b);

struct Endpoint {
  NodeKey node;
  Locality locality;
};

class LinkModel {
 public:
  struct Options {
    size_t max_pairs = 1 << 16;
    absl::Duration forget_after = absl::Minutes(5);
  };

  LinkModel() : LinkModel(Options()) {}
  explicit LinkModel(Options options) : options_(options) {}

  // Records a round trip, or the time from a request to the first frame of its answer. Ignored
  // unless positive.
  void RecordLatency(const Endpoint& sender, const Endpoint& receiver, absl::Duration latency,
                     Instant now);
  // Records a rate that was seen while the sender was not starved and served `sharing` (>= 1)
  // pulls. A shared link is at least as fast as one pull saw and at most `sharing` times that, so
  // only a rate outside these bounds changes the model. Until some link was measured by an unshared
  // pull, the bounds change the assumed rate only.
  void RecordRate(const Endpoint& sender, const Endpoint& receiver, double bytes_per_second,
                  double sharing, Instant now);
  // Records the rate of a pull whose sender was starved: both nodes can do at least this.
  void RecordLeast(const Endpoint& sender, const Endpoint& receiver, double bytes_per_second,
                   Instant now) {
    RecordSpeeds(sender, receiver, bytes_per_second, std::numeric_limits<double>::infinity(), now);
  }

  // Records the rate of a transfer beside which uncounted others can have run: both nodes
  // can do at least `bytes_per_second`, and at most `most` with each other. It says nothing about
  // the pair, and so nothing about its labels.
  void RecordBounds(const Endpoint& sender, const Endpoint& receiver, double bytes_per_second,
                    double most, Instant now) {
    RecordSpeeds(sender, receiver, bytes_per_second, most, now);
  }

  // A transfer has shown that the node's own link has this rate, with whatever peer. Counts until
  // the node is seen to be fast.
  void NoteSlow(const Endpoint& node, double bytes_per_second, Instant now);

  // Nothing if not even the cluster's median is known. A latency that was measured less than three
  // times is used only if it is below the usual one. A rate far above the usual one between such
  // nodes is capped.
  std::optional<absl::Duration> Latency(const Endpoint& sender, const Endpoint& receiver,
                                        Instant now) const;
  std::optional<double> Rate(const Endpoint& sender, const Endpoint& receiver, Instant now) const;
  // The least latency between nodes with these labels; nothing if it was not measured.
  std::optional<absl::Duration> LatencyByLabels(const Endpoint& sender, const Endpoint& receiver,
                                                Instant now) const;
  // The medians of the cluster's last measurements. A latency of less than kSureLatencies
  // measurements is at most the assumed one: the first pulls of a busy start can take many times as
  // long as later ones, and a plan by them can be one that measures no others.
  std::optional<absl::Duration> MedianLatency() const { return LatencyOfShare(0.5); }
  // The lower quartile of the latencies: less than the median if many were taken at once, each
  // behind the others' requests.
  std::optional<absl::Duration> LowLatency() const { return LatencyOfShare(0.25); }
  std::optional<double> MedianRate() const;

  // The same, and assumptions where nothing was measured. A plan needs some number: without one, it
  // could only be a chain, in which the thousandth receiver of a small object waits for 999 hops.
  absl::Duration ExpectedLatency(const Endpoint& sender, const Endpoint& receiver,
                                 Instant now) const {
    return Latency(sender, receiver, now).value_or(kAssumedLatency);
  }
  double ExpectedRate(const Endpoint& sender, const Endpoint& receiver, Instant now) const {
    return Rate(sender, receiver, now).value_or(assumed_rate_);
  }
  absl::Duration ExpectedLatency() const { return MedianLatency().value_or(kAssumedLatency); }
  double ExpectedRate() const { return MedianRate().value_or(assumed_rate_); }

  // ---- single nodes
  // The rate that one in four receivers reaches or exceeds; nothing with fewer than two.
  std::optional<double> FastRate() const;
  // The most that one of these receivers had.
  std::optional<double> FastestRate() const { return nodes_.Quantile(0.99); }
  // Returns the rate of a node whose own link is much slower than those of the fast nodes; nothing
  // for other nodes.
  std::optional<double> SlowNode(const Endpoint& node, Instant now) const;

  // The most that the node was seen to send or receive; 0 if it was never measured.
  double CanDo(const Endpoint& node, Instant now) const;

  // A rate below this share of another is much slower. Less than a half, with a margin: that is
  // what two pulls that share a link have, and the relays below them.
  static constexpr double kSlowShare = 0.4;

  // The cost of the boundary around the domains of `inner`: slow if links that cross it carry less
  // than half of what links inside carry, alike otherwise, unknown if either was not measured.
  enum class Boundary { kUnknown, kSlow, kAlike };
  Boundary BoundaryAround(Nearness inner, Instant now) const;
  // Returns true if round trips between the two, which are on different sides of that boundary,
  // were measured to be much longer than inside.
  bool FarAcross(const Endpoint& a, const Endpoint& b, Nearness inner, Instant now) const;
  // A transfer that is not measured has used the connection between the two.
  void NoteUsed(const Endpoint& sender, const Endpoint& receiver, Instant now) {
    Touch(sender, receiver, now);
  }
  // The time that a pull over a long round trip loses because it needs a new connection: the
  // handshake, and the round trips in which TCP finds the rate of the link. Zero if the two have
  // kept a connection since their last transfer, or are near each other.
  absl::Duration ColdStart(const Endpoint& sender, const Endpoint& receiver, Instant now) const;

  // Nodes keep an idle connection so long (DataPlaneOptions::idle_timeout), with a margin.
  static constexpr absl::Duration kConnectionKept = absl::Minutes(4);

  size_t pairs() const { return pairs_.size(); }

 private:
  // A smoothed rate: half of it is the last report.
  struct SmoothRate {
    double value = 0;
    Instant at;
    void Add(double sample, Instant now);
  };
  // The middle of the last three reports, the faster of two: a single disturbed pull, or a burst,
  // does not make a link slow or fast.
  struct MiddleRate {
    std::array<double, 3> last = {0, 0, 0};
    double value = 0;
    Instant at;
    void Add(double sample, Instant now);
  };
  // A pair has a latency of its own from so many samples on. The least of fewer can be that of a
  // busy moment, and the pair, once avoided, would not be measured again.
  static constexpr int kSamplesOfPair = 3;
  // The least value of this window and of the one before.
  struct LeastLatency {
    absl::Duration current = absl::InfiniteDuration();
    absl::Duration previous = absl::InfiniteDuration();
    Instant window_start;
    int samples = 0;  // kSamplesOfPair at most
    void Add(absl::Duration sample, absl::Duration window, Instant now);
    std::optional<absl::Duration> Get(absl::Duration window, Instant now) const;
  };
  struct Link {
    MiddleRate rate;
    LeastLatency latency;
    // The last transfer, and the lives of the sender and the receiver that it was between.
    Instant used;
    std::pair<uint64_t, uint64_t> lives;
  };
  struct LabelLink {
    SmoothRate rate;
    LeastLatency latency;
  };
  // Nodes without their incarnation: a restarted daemon is behind the same link.
  using PairKey = std::pair<uint64_t, uint64_t>;
  struct Pair {
    Link link;
    std::list<PairKey>::iterator age;
  };
  // What a node did with its last peers, the latest first.
  struct NodeSpeed {
    struct Sample {
      uint64_t peer = 0;
      bool sent = false;  // by this node
      // The node can do `rate` with this peer, and not more than `most`.
      double rate = 0;
      double most = 0;
      Instant at;
    };
    // The latest ones show whether the node is slow, all of them what it can do.
    static constexpr int kJudged = 2;
    std::array<Sample, 4> last;
    double noted = 0;  // by NoteSlow
    Instant noted_at;

    // A sample with the same peer from before `since` does not count.
    void Add(Sample sample, Instant since);
    // The best rate since then, but for that with `peer`; 0 if there is none. `sent`: only of what
    // the node sent, or received.
    double BestWithout(uint64_t peer, Instant since, std::optional<bool> sent = {}) const;
  };
  // The last measurements of all pairs, or the last one of every receiver, for a median.
  template <typename T>
  class Recent {
   public:
    // A sample with a key replaces the last one with this key; 0 is no key. A slow pull is reported
    // often: if it counted each time, the median would be a slow one.
    void Add(T sample, uint64_t key = 0);
    size_t size() const { return samples_.size(); }
    // The value that this share (< 1) of the samples does not exceed.
    std::optional<T> Quantile(double share) const;
    bool empty() const { return samples_.empty(); }

   private:
    static constexpr size_t kSamples = 63;
    std::vector<T> samples_;
    std::vector<uint64_t> keys_;
    size_t next_ = 0;
    mutable std::vector<T> sorted_;  // empty if it is out of date
  };

  template <typename Rate>
  static std::optional<double> Fresh(const Rate& rate, absl::Duration forget_after, Instant now) {
    if (rate.value == 0 || now - rate.at > forget_after) return std::nullopt;
    return rate.value;
  }
  std::optional<double> RateByLabels(const Endpoint& sender, const Endpoint& receiver,
                                     Instant now) const;
  // The rate between nodes with these labels, else the cluster's.
  std::optional<double> UsualRate(const Endpoint& sender, const Endpoint& receiver,
                                  Instant now) const;
  // The pull had this rate; alone on its links it would have had `most` at most.
  void RecordSpeeds(const Endpoint& sender, const Endpoint& receiver, double rate, double most,
                    Instant now);
  // The most that the node did since then without that peer; 0 if it is not known.
  double CanDo(uint64_t node, uint64_t without, Instant since, std::optional<bool> sent = {}) const;
  Link& Touch(const Endpoint& sender, const Endpoint& receiver, Instant now);
  LabelLink* ByLabels(const Endpoint& sender, const Endpoint& receiver);
  static PairKey KeyOf(const Endpoint& sender, const Endpoint& receiver) {
    return {sender.node.node, receiver.node.node};
  }

  // 1 Gbit/s, and the time in which a node opens a pull. What counts for the shape of a tree is
  // their product, 125 kB, which is also that of 10 Gbit/s and 100 us.
  static constexpr double kAssumedRate = 125e6;
  static constexpr absl::Duration kAssumedLatency = absl::Milliseconds(1);
  static constexpr size_t kSureLatencies = 8;
  // The latency that this share of the measurements does not exceed.
  std::optional<absl::Duration> LatencyOfShare(double share) const;

  // A round trip across a boundary is long above this, and above so many of those inside.
  static constexpr absl::Duration kFarLatency = absl::Milliseconds(5);
  static constexpr int kFarTimes = 4;

  // Dialing and the handshake of the data plane.
  static constexpr int kHandshakeTrips = 3;
  // TCP's initial window (RFC 6928), which doubles in every round trip.
  static constexpr double kFirstWindowBytes = 14600;

  const Options options_;
  absl::flat_hash_map<PairKey, Pair> pairs_;
  std::list<PairKey> by_age_;  // front: measured last
  // Keyed by (zone and rack of the sender, of the receiver); bounded like the pairs.
  absl::flat_hash_map<PairKey, LabelLink> by_labels_;
  std::array<SmoothRate, kNearnessLevels> by_level_;
  std::array<LeastLatency, kNearnessLevels> latency_by_level_;
  // Nodes without their incarnation; bounded like the pairs.
  absl::flat_hash_map<uint64_t, NodeSpeed> speeds_;
  Recent<double> rates_;
  Recent<double> nodes_;  // the best rate of each
  Recent<absl::Duration> latencies_;
  double assumed_rate_ = kAssumedRate;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PULLS_LINK_MODEL_H_
