#include "src/directory/pulls/cut_prober.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kA;
using testing::kB;
using testing::kC;

class CutProberTest : public testing::ObjectFixture {
 protected:
  CutProberTest() {
    for (const NodeKey& key : {kA, kB, kC}) {
      node(key).info.set_address(absl::StrCat(node(key).info.name(), ":1"));
    }
  }
  void Fail(const NodeKey& receiver, const NodeKey& sender) {
    pairs_.Remember(receiver, sender, absl::StatusCode::kDeadlineExceeded, context_.now);
    prober_.RunPending();
  }
  // "node: addresses of the peers" of each probe since the last call.
  std::vector<std::string> Probes() {
    std::vector<std::string> probes;
    for (const Outgoing& out : outbox_.Take()) {
      std::string text = absl::StrCat(nodes_.NameOf(out.to), ":");
      for (const auto& peer : out.message.probe().peers()) {
        absl::StrAppend(&text, " ", peer.address());
      }
      if (out.message.has_probe()) probes.push_back(text);
    }
    return probes;
  }
  static v1::ProbeReport Unreached(const NodeKey& key, absl::StatusCode code) {
    v1::ProbeReport report;
    v1::ProbeReport::Unreached& peer = *report.add_unreached();
    ToProto(key, peer.mutable_key());
    peer.set_code(static_cast<int32_t>(code));
    return report;
  }

  FailedPairs pairs_{context_.options.lease};
  CutProber prober_{context_, nodes_, outbox_, pairs_};
};

TEST_F(CutProberTest, TheReceiverTriesSendersAndOthersTryTheSender) {
  Fail(kA, kB);
  EXPECT_THAT(Probes(), ElementsAre("a: c:1", "c: b:1"));
  EXPECT_EQ(context_.counters.probes, 2u);
}

TEST_F(CutProberTest, EachQuestionIsAskedOnceInALease) {
  Fail(kA, kB);
  Probes();
  Fail(kA, kC);
  EXPECT_THAT(Probes(), ElementsAre("b: c:1")) << "what a reaches was asked a moment ago";
  Fail(kC, kB);
  EXPECT_THAT(Probes(), ElementsAre("c: a:1")) << "who reaches b was asked a moment ago";
  Advance(context_.options.lease);
  pairs_.Tick(context_.now);
  Fail(kA, kB);
  EXPECT_THAT(Probes(), ElementsAre("a: c:1", "c: b:1"));
}

// A rack is cut off: every pair between it and the others.
TEST_F(CutProberTest, EachQuestionIsAskedOnceInOneTurnToo) {
  for (const NodeKey& receiver : {kA, kB}) {
    pairs_.Remember(receiver, kC, absl::StatusCode::kDeadlineExceeded, context_.now);
    pairs_.Remember(kC, receiver, absl::StatusCode::kDeadlineExceeded, context_.now);
  }
  prober_.RunPending();
  EXPECT_THAT(Probes(), ElementsAre("a: b:1", "b: c:1", "c: b:1", "b: a:1", "b: a:1", "a: b:1"));
}

TEST_F(CutProberTest, OneBrokenConnectionIsNoReason) {
  pairs_.Remember(kA, kB, absl::StatusCode::kUnavailable, context_.now);
  prober_.RunPending();
  EXPECT_THAT(Probes(), IsEmpty());
}

TEST_F(CutProberTest, NodesThatAreOutOfTouchHaveNoPart) {
  node(kC).connected = false;
  Fail(kA, kB);
  EXPECT_THAT(Probes(), IsEmpty());
  node(kC).connected = true;
  node(kB).connected = false;
  Fail(kC, kA);
  EXPECT_THAT(Probes(), IsEmpty());
}

TEST_F(CutProberTest, AQuestionNamesAtMostSoManyNodes) {
  for (uint64_t i = 0; i < 2 * kMaxProbedPeers; ++i) {
    const NodeKey key{100 + i, 1};
    nodes_.Open(key).node.info.set_address("more:1");
  }
  Fail(kA, kB);
  EXPECT_EQ(context_.counters.probes, 2 * kMaxProbedPeers);
}

// Each is asked once in a lease, and some at a time.
TEST_F(CutProberTest, OtherNodesTryTheSenderIfMoreReceiversDoNotReachIt) {
  constexpr uint64_t kMore = 3 * kMaxProbedPeers;
  for (uint64_t i = 0; i < kMore; ++i) {
    const NodeKey key{100 + i, 1};
    nodes_.Open(key).node.info.set_address("more:1");
  }
  std::set<NodeKey> asked;
  for (uint64_t i = 0; i < 8; ++i) {
    Fail(NodeKey{100 + i, 1}, kB);
    const size_t before = asked.size();
    for (const Outgoing& out : outbox_.Take()) {
      for (const auto& peer : out.message.probe().peers()) {
        const bool about_b = peer.address() == "b:1";
        EXPECT_TRUE(!about_b || asked.insert(out.to).second) << i;
      }
    }
    EXPECT_LE(asked.size() - before, kMaxProbedPeers);
    // Another receiver, before those have answered.
    Fail(NodeKey{200 + i, 1}, kB);
    for (const Outgoing& out : outbox_.Take()) {
      for (const auto& peer : out.message.probe().peers()) EXPECT_NE(peer.address(), "b:1");
    }
    Advance(context_.options.lease / 8);
  }
  EXPECT_GE(asked.size(), kMore);
}

TEST_F(CutProberTest, WhatWasNotReachedIsCutAndAsksForNothingMore) {
  EXPECT_EQ(prober_.OnReport(node(kA), Unreached(kC, absl::StatusCode::kDeadlineExceeded)),
            absl::OkStatus());
  EXPECT_TRUE(pairs_.Cut(kA, kC, context_.now));
  EXPECT_FALSE(pairs_.Cut(kC, kA, context_.now));
  prober_.RunPending();
  EXPECT_THAT(Probes(), IsEmpty());
}

TEST_F(CutProberTest, AMalformedReportIsRefused) {
  const auto refused = [this](const v1::ProbeReport& report) {
    return prober_.OnReport(node(kA), report).code() == absl::StatusCode::kInvalidArgument &&
           pairs_.empty();
  };
  EXPECT_TRUE(refused(Unreached(NodeKey(), absl::StatusCode::kUnavailable)));
  EXPECT_TRUE(refused(Unreached(kB, absl::StatusCode::kOk)));
  EXPECT_TRUE(refused(Unreached(kB, absl::StatusCode::kNotFound)));
  v1::ProbeReport many;
  for (int i = 0; i <= static_cast<int>(kMaxProbedPeers); ++i) {
    many.MergeFrom(Unreached(kB, absl::StatusCode::kUnavailable));
  }
  EXPECT_TRUE(refused(many));
}

}  // namespace
}  // namespace phalanx::directory
