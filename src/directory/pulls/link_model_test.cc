#include "src/directory/pulls/link_model.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/net/plane/data_plane.h"

namespace phalanx::directory {
namespace {

constexpr double kFast = 1e9;
const Instant kStart = Instant::FromNanos(1);

v1::NodeInfo Node(uint64_t node, const char* zone = "", const char* rack = "",
                  const char* host = "") {
  v1::NodeInfo info;
  info.mutable_key()->set_node(node);
  (*info.mutable_labels())["zone"] = zone;
  (*info.mutable_labels())["rack"] = rack;
  (*info.mutable_labels())["host"] = host;
  return info;
}

Endpoint At(uint64_t node, const char* zone = "", const char* rack = "", const char* host = "") {
  return Endpoint{NodeKey{node, 1}, Locality::FromNode(Node(node, zone, rack, host))};
}

TEST(LinkModelTest, NothingIsKnownBeforeAnythingIsMeasured) {
  LinkModel model;
  EXPECT_FALSE(model.Rate(At(1), At(2), kStart).has_value());
  EXPECT_FALSE(model.Latency(At(1), At(2), kStart).has_value());
  EXPECT_FALSE(model.MedianRate().has_value());
  EXPECT_EQ(model.BoundaryAround(Nearness::kZone, kStart), LinkModel::Boundary::kUnknown);
}

TEST(LinkModelTest, BeforeAnythingIsMeasuredSomethingIsExpected) {
  LinkModel model;
  const double assumed = model.ExpectedRate();
  EXPECT_DOUBLE_EQ(model.ExpectedRate(At(1), At(2), kStart), assumed);
  EXPECT_GT(model.ExpectedLatency(), absl::ZeroDuration());
  EXPECT_EQ(model.ExpectedLatency(At(1), At(2), kStart), model.ExpectedLatency());
  model.RecordRate(At(1), At(2), 3 * assumed, 1, kStart);
  model.RecordLatency(At(1), At(2), absl::Microseconds(70), kStart);
  EXPECT_DOUBLE_EQ(model.ExpectedRate(At(3), At(4), kStart), 3 * assumed);
  EXPECT_EQ(model.ExpectedLatency(At(3), At(4), kStart), absl::Microseconds(70));
}

TEST(LinkModelTest, WithoutOtherMeasurementsSharesBoundWhatIsExpected) {
  LinkModel model;
  const double assumed = model.ExpectedRate();
  model.RecordRate(At(1), At(2), assumed / 2, 4, kStart);
  EXPECT_DOUBLE_EQ(model.ExpectedRate(), assumed) << "within the bounds";
  model.RecordRate(At(1), At(2), assumed / 20, 4, kStart);
  EXPECT_DOUBLE_EQ(model.ExpectedRate(), assumed / 5);
  model.RecordRate(At(1), At(3), assumed * 2, 4, kStart);
  EXPECT_DOUBLE_EQ(model.ExpectedRate(), assumed * 2);
  EXPECT_FALSE(model.MedianRate().has_value()) << "a bound is no measurement";
}

TEST(LinkModelTest, APairIsKnownByItsOwnMeasurements) {
  LinkModel model;
  model.RecordRate(At(1), At(2), kFast, 1, kStart);
  model.RecordRate(At(2), At(1), kFast / 10, 1, kStart);
  EXPECT_DOUBLE_EQ(*model.Rate(At(1), At(2), kStart), kFast);
  EXPECT_DOUBLE_EQ(*model.Rate(At(2), At(1), kStart), kFast / 10) << "pairs are ordered";
}

TEST(LinkModelTest, OneReportThatIsUnlikeTheOthersIsNotBelieved) {
  LinkModel model;
  for (const double rate : {kFast, kFast, kFast / 10, kFast, 10 * kFast, kFast}) {
    model.RecordRate(At(1), At(2), rate, 1, kStart);
    EXPECT_DOUBLE_EQ(*model.Rate(At(1), At(2), kStart), kFast);
  }
}

TEST(LinkModelTest, TheLatencyIsTheLeastMeasurement) {
  LinkModel model;
  model.RecordLatency(At(1), At(2), absl::Milliseconds(5), kStart);
  model.RecordLatency(At(1), At(2), absl::Milliseconds(1), kStart);
  model.RecordLatency(At(1), At(2), absl::Milliseconds(9), kStart);
  model.RecordLatency(At(1), At(2), absl::ZeroDuration(), kStart);
  EXPECT_EQ(*model.Latency(At(1), At(2), kStart), absl::Milliseconds(1));
}

TEST(LinkModelTest, TheClustersLowLatencyIsThatOfItsQuickestQuarter) {
  LinkModel model;
  EXPECT_FALSE(model.LowLatency().has_value());
  for (int i = 1; i <= 8; ++i) {
    model.RecordLatency(At(1), At(1 + static_cast<uint64_t>(i)), absl::Milliseconds(i), kStart);
  }
  EXPECT_EQ(*model.LowLatency(), absl::Milliseconds(3));
  EXPECT_EQ(*model.MedianLatency(), absl::Milliseconds(5));
}

TEST(LinkModelTest, AnUnmeasuredPairIsTakenForItsPairOfLabels) {
  LinkModel model;
  for (int i = 0; i < 9; ++i) model.RecordRate(At(1, "a"), At(2, "a"), kFast, 1, kStart);
  model.RecordRate(At(1, "a"), At(3, "b"), kFast / 100, 1, kStart);
  EXPECT_DOUBLE_EQ(*model.Rate(At(8, "a"), At(9, "b"), kStart), kFast / 100);
  EXPECT_DOUBLE_EQ(*model.Rate(At(8, "a"), At(9, "a"), kStart), kFast);
}

TEST(LinkModelTest, UnmeasuredLabelsAreTakenForTheClustersMedian) {
  LinkModel model;
  uint64_t receiver = 2;
  for (const double rate : {1e6, 2e6, 3e6, 4e6, 1e9}) {
    model.RecordRate(At(1), At(receiver++), rate, 1, kStart);
  }
  EXPECT_DOUBLE_EQ(*model.Rate(At(8, "c"), At(9, "d"), kStart), 3e6);
}

TEST(LinkModelTest, AReceiverCountsOnceHoweverOftenItReports) {
  LinkModel model;
  for (const uint64_t receiver : {3, 4}) model.RecordRate(At(1), At(receiver), kFast, 1, kStart);
  for (int i = 0; i < 20; ++i) model.RecordRate(At(1), At(2), kFast / 10, 1, kStart);
  EXPECT_DOUBLE_EQ(*model.MedianRate(), kFast);
  EXPECT_DOUBLE_EQ(*model.FastRate(), kFast);
}

TEST(LinkModelTest, TheEndOfASlowPullThatCanDoNoMoreIsTheSlowOne) {
  LinkModel model;
  model.RecordRate(At(1), At(2), kFast / 10, 1, kStart);
  EXPECT_FALSE(model.SlowNode(At(2), kStart).has_value()) << "the sender may be slow";
  model.RecordRate(At(1), At(3), kFast, 1, kStart);
  model.RecordRate(At(3), At(4), kFast, 1, kStart);
  for (int i = 0; i < 3; ++i) model.RecordRate(At(1), At(2), kFast / 10, 1, kStart);
  EXPECT_DOUBLE_EQ(*model.SlowNode(At(2), kStart), kFast / 10);
  EXPECT_DOUBLE_EQ(*model.Rate(At(4), At(2), kStart), kFast / 10) << "never measured";
  EXPECT_DOUBLE_EQ(*model.Rate(At(4), At(5), kStart), kFast);
  EXPECT_FALSE(model.SlowNode(At(1), kStart).has_value());
  EXPECT_FALSE(model.SlowNode(At(3), kStart).has_value());
}

TEST(LinkModelTest, ASlowSenderIsNotMistakenForSlowReceivers) {
  LinkModel model;
  for (const uint64_t receiver : {3, 4}) model.RecordRate(At(1), At(receiver), kFast, 1, kStart);
  for (int i = 0; i < 4; ++i) {
    for (const uint64_t receiver : {3, 4}) {
      model.RecordRate(At(9), At(receiver), kFast / 10, 1, kStart);
    }
  }
  EXPECT_DOUBLE_EQ(*model.SlowNode(At(9), kStart), kFast / 10);
  for (const uint64_t receiver : {3, 4}) {
    EXPECT_FALSE(model.SlowNode(At(receiver), kStart).has_value());
  }
}

TEST(LinkModelTest, ANodeThatBecameSlowIsFoundByASecondOne) {
  LinkModel model;
  const auto record = [&model](uint64_t from, uint64_t to, double rate) {
    for (int i = 0; i < 5; ++i) model.RecordRate(At(from), At(to), rate, 1, kStart);
  };
  record(1, 2, kFast);
  record(2, 3, kFast);
  record(3, 4, kFast);
  record(1, 2, kFast / 10);  // one end of two that did more
  EXPECT_FALSE(model.SlowNode(At(2), kStart).has_value());
  record(3, 2, kFast / 10);
  EXPECT_TRUE(model.SlowNode(At(2), kStart).has_value());
  EXPECT_FALSE(model.SlowNode(At(1), kStart).has_value());
  record(3, 2, kFast);
  EXPECT_FALSE(model.SlowNode(At(2), kStart).has_value()) << "it has recovered";
}

TEST(LinkModelTest, ANodeThatWasShownToBeSlowIsSlowUntilItIsSeenToBeFast) {
  LinkModel model;
  for (const uint64_t node : {1, 3, 5}) model.RecordRate(At(node), At(node + 1), kFast, 1, kStart);
  model.NoteSlow(At(2), kFast / 10, kStart);
  EXPECT_DOUBLE_EQ(*model.SlowNode(At(2), kStart), kFast / 10);
  EXPECT_FALSE(model.SlowNode(At(1), kStart).has_value());
  model.RecordLeast(At(2), At(3), kFast / 10, kStart);
  EXPECT_TRUE(model.SlowNode(At(2), kStart).has_value());
  EXPECT_FALSE(model.SlowNode(At(2), kStart + absl::Minutes(6)).has_value()) << "it is forgotten";
  model.RecordLeast(At(2), At(3), kFast, kStart);
  EXPECT_FALSE(model.SlowNode(At(2), kStart).has_value()) << "it can do that";
}

TEST(LinkModelTest, BoundsOfARateSayNothingAboutThePairOrWhatIsExpected) {
  LinkModel model;
  const double assumed = model.ExpectedRate();
  model.RecordBounds(At(1), At(2), kFast, 2 * kFast, kStart);
  EXPECT_FALSE(model.Rate(At(1), At(2), kStart).has_value());
  EXPECT_DOUBLE_EQ(model.ExpectedRate(), assumed);
  EXPECT_DOUBLE_EQ(model.CanDo(At(1), kStart), kFast);
  EXPECT_DOUBLE_EQ(model.CanDo(At(2), kStart), kFast);
}

TEST(LinkModelTest, AReceiverBelowASlowOneIsNotKnownToBeSlow) {
  LinkModel model;
  for (const uint64_t receiver : {3, 4}) model.RecordRate(At(1), At(receiver), kFast, 1, kStart);
  model.RecordRate(At(1), At(2), kFast / 10, 1, kStart);
  model.RecordLeast(At(2), At(5), kFast / 10, kStart);
  model.RecordRate(At(2), At(6), kFast / 10, 1, kStart);
  EXPECT_FALSE(model.SlowNode(At(5), kStart).has_value());
  EXPECT_FALSE(model.SlowNode(At(6), kStart).has_value());
  EXPECT_DOUBLE_EQ(*model.FastRate(), kFast);
  model.RecordRate(At(1), At(6), kFast / 10, 1, kStart);
  EXPECT_TRUE(model.SlowNode(At(6), kStart).has_value());
}

TEST(LinkModelTest, ASlowLinkBetweenZonesMakesNoNodeSlow) {
  LinkModel model;
  model.RecordRate(At(1, "a"), At(2, "a"), kFast, 1, kStart);
  model.RecordRate(At(4, "b"), At(5, "b"), kFast, 1, kStart);
  for (int i = 0; i < 5; ++i) model.RecordRate(At(1, "a"), At(3, "b"), kFast / 10, 1, kStart);
  EXPECT_FALSE(model.SlowNode(At(3, "b"), kStart).has_value());
  EXPECT_DOUBLE_EQ(*model.Rate(At(4, "b"), At(3, "b"), kStart), kFast);
}

TEST(LinkModelTest, ALinkThatSlowsTenfoldIsNoticedAfterAFewReports) {
  LinkModel model;
  for (int i = 0; i < 100; ++i) model.RecordRate(At(1), At(2), kFast, 1, kStart);
  for (int i = 0; i < 4; ++i) model.RecordRate(At(1), At(2), kFast / 10, 1, kStart);
  EXPECT_LT(*model.Rate(At(1), At(2), kStart), kFast / 5);
}

TEST(LinkModelTest, ASharedRateCountsOnlyOutsideTheKnownBounds) {
  LinkModel model;
  model.RecordRate(At(1), At(2), kFast, 1, kStart);
  model.RecordRate(At(1), At(2), kFast / 4, 4, kStart);
  EXPECT_DOUBLE_EQ(*model.Rate(At(1), At(2), kStart), kFast) << "a quarter each is all of it";
  for (int i = 0; i < 6; ++i) model.RecordRate(At(1), At(2), kFast / 40, 4, kStart);
  EXPECT_LT(*model.Rate(At(1), At(2), kStart), kFast / 5);
}

TEST(LinkModelTest, SharesOfALinkSayNothingOfLinksLikeIt) {
  LinkModel model;
  model.RecordRate(At(1, "a"), At(2, "a"), kFast, 1, kStart);
  // Eight pulls from one node over a slow link, eight at the receiver: a bound, not a rate.
  for (int i = 0; i < 6; ++i) model.RecordRate(At(1, "a"), At(3, "b"), kFast / 100, 64, kStart);
  EXPECT_EQ(model.BoundaryAround(Nearness::kZone, kStart), LinkModel::Boundary::kUnknown);
  EXPECT_DOUBLE_EQ(*model.MedianRate(), kFast);
  EXPECT_DOUBLE_EQ(*model.Rate(At(2, "a"), At(4, "b"), kStart), kFast) << "another pair, by median";
}

TEST(LinkModelTest, ASharedRateDoesNotReviveAForgottenLink) {
  LinkModel model({.forget_after = absl::Seconds(10)});
  model.RecordRate(At(1), At(2), kFast / 1000, 1, kStart);
  const Instant later = kStart + absl::Seconds(11);
  model.RecordRate(At(3), At(4), kFast, 1, later);
  model.RecordRate(At(5), At(6), kFast, 1, later);
  model.RecordRate(At(1), At(2), kFast / 4, 4, later);
  EXPECT_DOUBLE_EQ(*model.Rate(At(1), At(2), later), kFast);
}

TEST(LinkModelTest, AMeasurementThatIsNotRefreshedIsForgotten) {
  LinkModel model({.forget_after = absl::Seconds(10)});
  model.RecordRate(At(1), At(2), kFast / 100, 1, kStart);
  model.RecordLatency(At(1), At(2), absl::Seconds(1), kStart);
  const Instant later = kStart + absl::Seconds(30);
  for (int i = 0; i < 9; ++i) {
    model.RecordRate(At(3), At(4), kFast, 1, later);
    model.RecordLatency(At(3), At(4), absl::Milliseconds(1), later);
  }
  EXPECT_DOUBLE_EQ(*model.Rate(At(1), At(2), later), kFast) << "the median, not what it once was";
  EXPECT_EQ(*model.Latency(At(1), At(2), later), absl::Milliseconds(1));
}

TEST(LinkModelTest, ALatencyThatRoseIsNoticedInTime) {
  LinkModel model({.forget_after = absl::Seconds(10)});
  model.RecordLatency(At(1), At(2), absl::Milliseconds(1), kStart);
  Instant now = kStart;
  for (int i = 0; i < 30; ++i) {
    now = now + absl::Seconds(1);
    model.RecordLatency(At(1), At(2), absl::Milliseconds(50), now);
  }
  EXPECT_EQ(*model.Latency(At(1), At(2), now), absl::Milliseconds(50));
}

TEST(LinkModelTest, AtMostSoManyPairsAreKeptAndTheOldestGoFirst) {
  LinkModel model({.max_pairs = 10});
  for (uint64_t i = 1; i <= 100; ++i) model.RecordRate(At(i), At(1000), 1e6 * i, 1, kStart);
  EXPECT_EQ(model.pairs(), 10u);
  EXPECT_DOUBLE_EQ(*model.Rate(At(100), At(1000), kStart), 1e8);
  EXPECT_NE(*model.Rate(At(1), At(1000), kStart), 1e6);
}

TEST(LinkModelTest, ANodeThatStartsAgainIsBehindTheSameLink) {
  LinkModel model;
  model.RecordRate(At(1), At(2), kFast, 1, kStart);
  Endpoint next_life = At(1);
  next_life.node.incarnation = 2;
  EXPECT_DOUBLE_EQ(*model.Rate(next_life, At(2), kStart), kFast);
}

TEST(LinkModelTest, ABoundaryIsSlowWhenLinksAcrossCarryLessThanHalf) {
  LinkModel model;
  model.RecordRate(At(1, "a"), At(2, "a"), kFast, 1, kStart);
  EXPECT_EQ(model.BoundaryAround(Nearness::kZone, kStart), LinkModel::Boundary::kUnknown);
  model.RecordRate(At(1, "a"), At(3, "b"), kFast * 0.8, 1, kStart);
  EXPECT_EQ(model.BoundaryAround(Nearness::kZone, kStart), LinkModel::Boundary::kAlike);
  for (int i = 0; i < 5; ++i) model.RecordRate(At(1, "a"), At(3, "b"), kFast / 20, 1, kStart);
  EXPECT_EQ(model.BoundaryAround(Nearness::kZone, kStart), LinkModel::Boundary::kSlow);
}

TEST(LinkModelTest, OneLatencyFromABusyMomentDoesNotMakeAPairFar) {
  LinkModel model;
  for (uint64_t i = 3; i < 8; ++i) {
    model.RecordLatency(At(i), At(i + 1), absl::Microseconds(300), kStart);
  }
  for (int i = 0; i < 2; ++i) {
    model.RecordLatency(At(1), At(2), absl::Milliseconds(3), kStart);
    EXPECT_EQ(model.Latency(At(1), At(2), kStart), absl::Microseconds(300));
  }
  model.RecordLatency(At(1), At(2), absl::Milliseconds(3), kStart);
  EXPECT_EQ(model.Latency(At(1), At(2), kStart), absl::Milliseconds(3));
  model.RecordLatency(At(5), At(2), absl::Microseconds(100), kStart);
  EXPECT_EQ(model.Latency(At(5), At(2), kStart), absl::Microseconds(100));
}

TEST(LinkModelTest, TheFirstLatenciesOfABusyStartDoNotDecide) {
  LinkModel model;
  for (uint64_t i = 1; i < 8; ++i) {
    model.RecordLatency(At(i), At(i + 1), absl::Milliseconds(3), kStart);
    EXPECT_EQ(model.MedianLatency(), LinkModel().ExpectedLatency());
  }
  model.RecordLatency(At(8), At(9), absl::Milliseconds(3), kStart);
  EXPECT_EQ(model.MedianLatency(), absl::Milliseconds(3));
}

TEST(LinkModelTest, ANodeIsFarWhenRoundTripsAcrossAreMuchLonger) {
  LinkModel model;
  const auto far = [&](const Endpoint& to) {
    return model.FarAcross(At(1, "a"), to, Nearness::kZone, kStart);
  };
  model.RecordLatency(At(1, "a"), At(3, "b"), absl::Milliseconds(145), kStart);
  EXPECT_FALSE(far(At(3, "b"))) << "nothing is known of the inside";
  model.RecordLatency(At(1, "a"), At(2, "a"), absl::Milliseconds(30), kStart);
  EXPECT_TRUE(far(At(3, "b")));
  EXPECT_EQ(model.LatencyByLabels(At(4, "a"), At(5, "b"), kStart), absl::Milliseconds(145));
  EXPECT_FALSE(model.LatencyByLabels(At(4, "a"), At(5, "c"), kStart).has_value());
  EXPECT_TRUE(far(At(5, "c"))) << "as all that is known of other zones";
  model.RecordLatency(At(5, "c"), At(4, "a"), absl::Milliseconds(100), kStart);
  EXPECT_FALSE(far(At(5, "c"))) << "not four times as long";
  EXPECT_TRUE(far(At(3, "b"))) << "whatever another zone is";
}

TEST(LinkModelTest, ABoundaryWithinABuildingIsNotFar) {
  LinkModel model;
  model.RecordLatency(At(1, "a"), At(2, "a"), absl::Microseconds(50), kStart);
  model.RecordLatency(At(1, "a"), At(3, "b"), absl::Milliseconds(2), kStart);
  EXPECT_FALSE(model.FarAcross(At(1, "a"), At(3, "b"), Nearness::kZone, kStart));
}

// 100 MB/s and 146 ms: 14.6 MB in flight are 1,000 initial windows.
TEST(LinkModelTest, ANewConnectionOverALongRoundTripCostsItsStart) {
  LinkModel model;
  const Endpoint a = At(1, "a"), b = At(2, "b");
  const absl::Duration round_trip = absl::Milliseconds(146);
  for (int i = 0; i < 3; ++i) {
    model.RecordLatency(a, b, round_trip, kStart);
    model.RecordRate(a, b, 100e6, 1, kStart);
  }
  const double trips = 3 + std::log2(1000);
  EXPECT_EQ(model.ColdStart(a, b, kStart), absl::ZeroDuration()) << "the connection is there";
  EXPECT_EQ(model.ColdStart(a, At(3, "b"), kStart), trips * round_trip) << "as between the zones";
  EXPECT_EQ(model.ColdStart(b, a, kStart), absl::ZeroDuration()) << "nothing is known of that way";
  const Instant later = kStart + absl::Seconds(241);
  EXPECT_EQ(model.ColdStart(a, b, later), trips * round_trip) << "it was idle for too long";
  model.RecordLatency(a, b, 2 * round_trip, later);
  EXPECT_EQ(model.ColdStart(a, b, later), absl::ZeroDuration());
}

TEST(LinkModelTest, ARestartedNodeHasNoConnection) {
  LinkModel model;
  const Endpoint a = At(1, "a"), b = At(2, "b");
  for (int i = 0; i < 3; ++i) model.RecordLatency(a, b, absl::Milliseconds(100), kStart);
  EXPECT_EQ(model.ColdStart(a, b, kStart), absl::ZeroDuration());
  Endpoint again = b;
  ++again.node.incarnation;
  EXPECT_GT(model.ColdStart(a, again, kStart), absl::ZeroDuration());
  model.NoteUsed(a, again, kStart);
  EXPECT_EQ(model.ColdStart(a, again, kStart), absl::ZeroDuration());
  EXPECT_GT(model.ColdStart(a, b, kStart), absl::ZeroDuration()) << "that life has ended";
}

TEST(LinkModelTest, AUseWithoutAMeasurementKeepsTheConnection) {
  LinkModel model;
  const Endpoint a = At(1, "a"), b = At(2, "b");
  for (int i = 0; i < 3; ++i) model.RecordLatency(a, b, absl::Milliseconds(100), kStart);
  model.NoteUsed(a, b, kStart + absl::Seconds(200));
  EXPECT_EQ(model.ColdStart(a, b, kStart + absl::Seconds(250)), absl::ZeroDuration());
  EXPECT_FALSE(model.MedianRate().has_value());
}

// A connection that the model counts on is still there.
TEST(LinkModelTest, NodesKeepAConnectionLongerThanTheModelBelieves) {
  EXPECT_LT(LinkModel::kConnectionKept, 0.9 * net::DataPlaneOptions().idle_timeout);
}

TEST(LinkModelTest, ANewConnectionToANearNodeCostsNothing) {
  LinkModel model;
  for (uint64_t i = 1; i < 10; ++i) {
    model.RecordLatency(At(i, "a"), At(i + 1, "b"), absl::Milliseconds(4), kStart);
  }
  EXPECT_EQ(model.ColdStart(At(1, "a"), At(9, "b"), kStart), absl::ZeroDuration());
}

TEST(PlaceTest, NearnessIsTheInnermostSharedLabel) {
  const Locality here = At(1, "a", "1", "x").locality;
  EXPECT_EQ(NearnessOf(here, At(2, "a", "1", "x").locality), Nearness::kHost);
  EXPECT_EQ(NearnessOf(here, At(2, "a", "1", "y").locality), Nearness::kRack);
  EXPECT_EQ(NearnessOf(here, At(2, "a", "2", "y").locality), Nearness::kZone);
  EXPECT_EQ(NearnessOf(here, At(2, "b", "1", "x").locality), Nearness::kWorld)
      << "rack 1 of another zone is another rack";
  EXPECT_EQ(NearnessOf(At(1).locality, At(2).locality), Nearness::kWorld)
      << "no labels, nothing shared";
}

TEST(PlaceTest, OnlyLabelsThatDifferAreCrossed) {
  EXPECT_TRUE(Crosses(At(1, "a").locality, At(2, "b").locality));
  EXPECT_TRUE(Crosses(At(1, "a", "1").locality, At(2, "a", "2").locality));
  EXPECT_FALSE(Crosses(At(1, "a").locality, At(2, "a").locality));
  EXPECT_FALSE(Crosses(At(1).locality, At(2).locality));
  EXPECT_FALSE(Crosses(At(1, "a").locality, At(2).locality));
}

}  // namespace
}  // namespace phalanx::directory
