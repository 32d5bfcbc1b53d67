// Two sessions that dial each other, with every order of their steps.
#include "src/net/link/link_session.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::net {
namespace {

using Phase = LinkSession::Phase;
using Answer = LinkSession::Answer;
using Outcome = LinkSession::Outcome;

constexpr NodeKey kSmall = {1, 1};
constexpr NodeKey kGreat = {2, 1};

// One side and the connection that it has dialed.
struct Side {
  explicit Side(NodeKey self, NodeKey peer, uint64_t session) : link(self, peer, session) {}

  LinkSession link;
  uint64_t attempts = 0;
  // On its way: the request of this side, and the answer to it.
  std::optional<LinkPayload> request;
  std::optional<WelcomeBody> welcome;
  // The side that dialed the connection in use, and its number.
  bool used_is_own = false;
  uint64_t used = 0;
};

// Both sides have something to send. A world takes one of the possible steps at a time.
class World {
 public:
  World() : sides_{Side(kSmall, kGreat, 11), Side(kGreat, kSmall, 22)} {}

  // The number of steps that are possible now.
  std::vector<std::function<void()>> Steps() {
    std::vector<std::function<void()>> steps;
    for (const int i : {0, 1}) {
      Side& side = sides_[i];
      const Phase phase = side.link.phase();
      if ((phase == Phase::kIdle || phase == Phase::kWaiting) && side.attempts < 2) {
        steps.push_back([&side] { side.link.Dial(++side.attempts); });
      }
      if (phase == Phase::kDialing) {
        steps.push_back([&side] { side.request = side.link.Ask(0); });
      }
      if (side.request.has_value()) steps.push_back([this, i] { Deliver(i); });
      if (side.welcome.has_value()) steps.push_back([this, i] { Answered(i); });
    }
    return steps;
  }

  // Both sides use one connection.
  bool Agree() const {
    return sides_[0].link.phase() == Phase::kConnected &&
           sides_[1].link.phase() == Phase::kConnected &&
           sides_[0].used_is_own != sides_[1].used_is_own && sides_[0].used == sides_[1].used;
  }

 private:
  // The request of side i arrives at the other side.
  void Deliver(int i) {
    Side& from = sides_[i];
    Side& to = sides_[1 - i];
    const LinkPayload request = *std::exchange(from.request, std::nullopt);
    const Answer answer = to.link.Requested(request);
    ASSERT_NE(answer, Answer::kRenew);
    ASSERT_NE(answer, Answer::kForgotten);
    if (answer == Answer::kAccept) {
      to.used_is_own = false;
      to.used = request.attempt;
      // Its own connection is closed: an answer to it finds no end.
      to.welcome.reset();
    }
    // The dialer has abandoned this connection.
    if (from.link.phase() != Phase::kAsked || from.attempts != request.attempt) return;
    from.welcome =
        to.link.Welcome(answer == Answer::kAccept ? LinkVerdict::kAccepted : LinkVerdict::kBusy);
  }

  void Answered(int i) {
    Side& side = sides_[i];
    const WelcomeBody welcome = *std::exchange(side.welcome, std::nullopt);
    const Outcome outcome = side.link.Welcomed(welcome);
    ASSERT_NE(outcome, Outcome::kLost);
    if (outcome == Outcome::kRetry) {
      side.link.Failed();
      return;
    }
    side.used_is_own = true;
    side.used = side.attempts;
  }

  Side sides_[2];
};

// Runs every order of steps; counts the ends in which nothing is possible any more.
void Explore(std::vector<int>& path, int& ends, int& agreements) {
  ASSERT_LT(path.size(), 40u);
  World world;
  std::vector<std::function<void()>> steps = world.Steps();
  for (const int step : path) {
    steps[step]();
    steps = world.Steps();
  }
  if (steps.empty()) {
    ++ends;
    agreements += world.Agree() ? 1 : 0;
    return;
  }
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    path.push_back(i);
    Explore(path, ends, agreements);
    path.pop_back();
  }
}

TEST(LinkSession, WhateverTheOrderBothSidesUseOneConnection) {
  std::vector<int> path;
  int ends = 0, agreements = 0;
  Explore(path, ends, agreements);
  EXPECT_GT(ends, 10);
  EXPECT_EQ(agreements, ends);
}

TEST(LinkSession, PausesAreDoubledUntilTheConnectionCarriesSomething) {
  LinkSession link(kSmall, kGreat, 1);
  std::vector<absl::Duration> pauses;
  for (uint64_t attempt = 1; attempt <= 10; ++attempt) {
    link.Dial(attempt);
    pauses.push_back(link.Failed());
  }
  EXPECT_EQ(pauses[0], absl::ZeroDuration());
  EXPECT_EQ(pauses[1], LinkSession::kFirstPause);
  EXPECT_EQ(pauses[2], 2 * LinkSession::kFirstPause);
  EXPECT_EQ(pauses[9], LinkSession::kGreatestPause);
  link.Dial(11);
  link.Ask(0);
  ASSERT_EQ(link.Welcomed({LinkVerdict::kAccepted, 5, 0}), Outcome::kConnected);
  link.Progress();
  EXPECT_EQ(link.Broken(), absl::ZeroDuration());
}

class ConnectedSession : public ::testing::Test {
 protected:
  ConnectedSession() {
    link_.Dial(1);
    link_.Ask(0);
    EXPECT_EQ(link_.Welcomed({LinkVerdict::kAccepted, 5, 7}), Outcome::kConnected);
  }
  LinkSession link_{kSmall, kGreat, 1};
};

TEST_F(ConnectedSession, ARequestThatThePeerHadAbandonedIsRefused) {
  EXPECT_EQ(link_.Requested({5, 0, 0, 7}), Answer::kBusy);
  EXPECT_EQ(link_.phase(), Phase::kConnected);
  // A later one replaces the connection, which is dead at the peer.
  EXPECT_EQ(link_.Requested({5, 1, 0, 8}), Answer::kAccept);
}

TEST_F(ConnectedSession, APeerThatHasGivenUpIsNoticed) {
  EXPECT_EQ(link_.Requested({6, 0, 0, 8}), Answer::kRenew);
  EXPECT_EQ(link_.Requested({5, 2, 0, 8}), Answer::kForgotten);
  link_.Broken();
  link_.Dial(2);
  EXPECT_EQ(link_.Ask(9), (LinkPayload{1, 5, 9, 2}));
  EXPECT_EQ(link_.Welcomed({LinkVerdict::kForgotten, 0, 0}), Outcome::kLost);
}

TEST(LinkSession, ARefusalIsTriedAgain) {
  for (const LinkVerdict verdict :
       {LinkVerdict::kBusy, LinkVerdict::kRefused, LinkVerdict::kForgotten}) {
    LinkSession link(kSmall, kGreat, 1);
    link.Dial(1);
    link.Ask(0);
    EXPECT_EQ(link.Welcomed({verdict, 0, 0}), Outcome::kRetry);
  }
}

}  // namespace
}  // namespace phalanx::net
