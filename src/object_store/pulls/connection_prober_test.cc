#include "src/object_store/pulls/connection_prober.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/fake_data_plane.h"
#include "src/object_store/testing/store_parts.h"

namespace phalanx::object_store {
namespace {

using ::testing::ElementsAre;
using testing::FakeDataPlane;
using ::testing::IsEmpty;
using testing::StoreParts;

constexpr absl::Duration kPatience = absl::Milliseconds(80);

class ConnectionProberTest : public StoreParts {
 protected:
  ConnectionProberTest() { prober_.SetDataPlane(&plane_); }
  ~ConnectionProberTest() override { plane_.cancel_at_once = false; }

  static NodeKey Peer(uint64_t i) { return {100 + i, 1}; }
  void Probe(int peers) {
    v1::Probe probe;
    for (int i = 0; i < peers; ++i) {
      v1::Probe::Peer& peer = *probe.add_peers();
      directory::ToProto(Peer(static_cast<uint64_t>(i)), peer.mutable_key());
      peer.set_address("peer:" + std::to_string(i));
    }
    Run([&] { prober_.OnProbe(0, probe); });
  }
  // The I/O loop begins a step of connecting.
  void BeginStep(size_t i) { plane_.pull(i).spec.progress->connecting_since = Now().nanos(); }
  void End(size_t i, const absl::Status& status) {
    Run([&] { plane_.End(i, status); });
  }
  void Expire(absl::Duration after) {
    Pass(after);
    Run([&] { prober_.Expire(loop_.Now()); });
  }
  // "peer code" of each unreached peer of the reports since the last call.
  std::vector<std::string> Reported() {
    std::vector<std::string> all;
    for (const v1::NodeMessage& message : sent_) {
      for (const auto& peer : message.probe_report().unreached()) {
        all.push_back(std::to_string(peer.key().node() - 100) + " " +
                      absl::StatusCodeToString(static_cast<absl::StatusCode>(peer.code())));
      }
    }
    sent_.clear();
    return all;
  }

  FakeDataPlane plane_{loop_};
  ConnectionProber prober_{kSelf, kPatience, loop_, turns_, channel_};
};

TEST_F(ConnectionProberTest, PeersThatFailAreReported) {
  Probe(3);
  ASSERT_EQ(plane_.size(), 3u);
  EXPECT_EQ(plane_.pull(1).spec.sender, Peer(1));
  EXPECT_EQ(plane_.pull(1).spec.address, "peer:1");
  EXPECT_EQ(plane_.pull(1).spec.into, nullptr) << "it only connects";
  End(1, absl::UnavailableError("refused"));
  EXPECT_THAT(Reported(), ElementsAre("1 UNAVAILABLE"));
  End(0, absl::OkStatus());
  // This node's own limit is no fault of the peer.
  End(0, absl::ResourceExhaustedError("too many connections"));
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_TRUE(prober_.NextDeadline().infinite());
}

TEST_F(ConnectionProberTest, PeersThatDoNotAnswerInTimeAreReported) {
  Probe(2);
  BeginStep(1);
  End(0, absl::OkStatus());
  EXPECT_LT(prober_.NextDeadline(), Now() + kPatience) << "before a pull would be reported";
  Expire(kPatience);
  EXPECT_THAT(Reported(), ElementsAre("1 DEADLINE_EXCEEDED"));
  EXPECT_EQ(plane_.size(), 0u) << "the dial is given up";
}

TEST_F(ConnectionProberTest, TheDialAndTheHandshakeHaveATimeEach) {
  Probe(1);
  Expire(kPatience);
  EXPECT_THAT(Reported(), IsEmpty()) << "the I/O loop has not begun";
  BeginStep(0);
  Pass(kPatience / 2);
  BeginStep(0);
  Expire(kPatience / 2);
  EXPECT_THAT(Reported(), IsEmpty());
  Expire(kPatience / 2);
  EXPECT_THAT(Reported(), ElementsAre("0 DEADLINE_EXCEEDED"));
}

TEST_F(ConnectionProberTest, TriesSoManyPeersAtATimeAndReportsNoMore) {
  Probe(40);
  for (size_t i = 0; i < 40; ++i) End(0, absl::OkStatus());
  Probe(100);
  EXPECT_EQ(plane_.size(), directory::kMaxProbedPeers);
  for (size_t i = 0; i < directory::kMaxProbedPeers; ++i) BeginStep(i);
  Expire(kPatience);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(static_cast<size_t>(sent_[0].probe_report().unreached_size()),
            directory::kMaxProbedPeers);
}

TEST_F(ConnectionProberTest, NothingIsReportedIfAllAreReached) {
  Probe(2);
  End(0, absl::OkStatus());
  End(0, absl::OkStatus());
  Expire(kPatience);
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(ConnectionProberTest, MalformedPeersAndThoseBeingTriedAreSkipped) {
  v1::Probe probe;
  probe.add_peers();
  directory::ToProto(kSelf, probe.add_peers()->mutable_key());
  Run([&] { prober_.OnProbe(0, probe); });
  EXPECT_EQ(plane_.size(), 0u);
  EXPECT_TRUE(prober_.NextDeadline().infinite());
  Probe(1);
  Probe(1);
  EXPECT_EQ(plane_.size(), 1u);
  // The late end of a probe that has expired does not count for the next one.
  plane_.cancel_at_once = false;
  BeginStep(0);
  Expire(kPatience);
  EXPECT_THAT(Reported(), ElementsAre("0 DEADLINE_EXCEEDED"));
  Probe(1);
  End(0, absl::UnavailableError("refused"));
  EXPECT_THAT(Reported(), IsEmpty());
  End(0, absl::OkStatus());
  EXPECT_THAT(sent_, IsEmpty());
}

}  // namespace
}  // namespace phalanx::object_store
