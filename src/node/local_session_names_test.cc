// Calls of sessions that have names, on real nodes.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/testing/sessions_fixture.h"

namespace phalanx::runtime {
namespace {

using LocalSessionNamesTest = SessionsFixture;

// What a program does before Load, with calls of all kinds.
class NamedCalls {
 public:
  explicit NamedCalls(Session& session) : session_(session) {}

  void Words() {
    std::string words = session_.rank() == 1 ? "words" : "";
    EXPECT_THAT(session_.Broadcast(&words, 1, "words"), IsOk());
    EXPECT_EQ(words, "words");
  }
  void Plain(int64_t factor) {
    int64_t sum = factor * (session_.rank() + 1);
    EXPECT_THAT(session_.Allreduce(absl::MakeSpan(&sum, 1)), IsOk());
    EXPECT_EQ(sum, 3 * factor);
  }
  void Lengths() {
    const std::vector<int> mine(static_cast<size_t>(session_.rank()) + 1, session_.rank());
    EXPECT_THAT(session_.Allgather(absl::MakeConstSpan(mine), nullptr, "lengths"),
                IsOkAndHolds(std::vector<int>{0, 1, 1}));
  }
  // Of two ranks; along a tree.
  void Texts() {
    const auto text_of = [](int rank) {
      return std::string(200'000, static_cast<char>('a' + rank));
    };
    std::string text;
    EXPECT_THAT(session_.AllreduceModel(
                    text, [](std::string& into, const std::string& from) { into += from; },
                    [&] { text = text_of(session_.rank()); }, "texts"),
                IsOk());
    EXPECT_EQ(text, text_of(0) + text_of(1));
  }
  void Later() {
    std::vector<double> sums(1000);
    const Future<Done> future = session_.AllreduceAsync(
        absl::MakeSpan(sums), ReduceOp::kSum, [&] { std::fill(sums.begin(), sums.end(), 0.5); },
        "later");
    EXPECT_THAT(future.Wait(), IsOk());
    EXPECT_EQ(sums, std::vector<double>(1000, 1));
  }

 private:
  Session& session_;
};

TEST_F(LocalSessionNamesTest, ACallWithANameWhoseInputThrowsCanBeMade) {
  Make(1, 2);
  ForAll([](Session& session) {
    std::string model;
    // Without a name the call follows a record as well, from the first name on.
    for (const char* const name : {"name", "", "another", ""}) {
      int64_t sum = 0;
      int calls = session.rank();
      const auto prepare = [&] {
        if (calls++ == 0) throw Death();
        sum = 5;
      };
      if (session.rank() == 0) {
        EXPECT_THROW(
            session.Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, prepare, name).IgnoreError(),
            Death);
      }
      EXPECT_THAT(session.Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, prepare, name),
                  IsOk());
      EXPECT_EQ(sum, 10);
    }
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionNamesTest, CallsWithNamesAreFoundInAnotherOrder) {
  Make(2, 2);
  const auto first = [](Session& session) {
    NamedCalls calls(session);
    calls.Plain(1);
    calls.Words();
    calls.Plain(2);
    calls.Texts();
    calls.Lengths();
    calls.Later();
  };
  const auto reversed = [](Session& session) {
    NamedCalls calls(session);
    calls.Later();
    calls.Lengths();
    calls.Texts();
    calls.Plain(1);
    calls.Words();
    calls.Plain(2);
  };
  const auto less = [](Session& session) {
    NamedCalls calls(session);
    calls.Texts();
    calls.Plain(1);
    calls.Plain(2);
  };
  const auto none = [](Session&) {};
  const std::vector<std::function<void(Session&)>> others = {reversed, less, none, first};
  // The lives of rank 1 end before Load, and behind checkpoints.
  for (const bool loads : {false, true}) {
    job_ = absl::StrCat("loads", loads);
    ForAllRanks([&](int rank) {
      const size_t lives = rank == 1 ? others.size() + 1 : 1;
      for (size_t life = 0; life < lives; ++life) {
        absl::StatusOr<Session> session = Join(rank);
        ASSERT_THAT(session, IsOk());
        life == 0 ? first(*session) : others[life - 1](*session);
        EXPECT_EQ(session->stats().prepared, life == 0 ? 2u : 0u);
        const bool last = life + 1 == lives;
        if (!loads && !last) continue;
        std::string model = "none";
        EXPECT_THAT(session->Load(model), IsOkAndHolds(loads && life > 0 ? 1u : 0u));
        if (session->version() == 0) {
          int64_t sum = rank;
          EXPECT_THAT(session->Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, nullptr, "words"),
                      IsOk());
          EXPECT_THAT(session->Checkpoint(absl::StrCat("sum ", sum)), IsOk());
        } else {
          EXPECT_EQ(model, "sum 1");
        }
        EXPECT_THAT(session->Barrier(), IsOk());
        if (last) {
          EXPECT_THAT(session->Leave(), IsOk());
        }
      }
    });
  }
}

TEST_F(LocalSessionNamesTest, ARankThatDiesBetweenCallsWithNamesGoesOn) {
  Make(2, 2);
  const auto program = [](Session& session, Points& points) {
    NamedCalls calls(session);
    const auto point = [&] {
      if (session.rank() == 1) points.Pass();
    };
    point();
    calls.Plain(1);
    point();
    calls.Words();
    point();
    calls.Texts();
    point();
    calls.Later();
    point();
    calls.Plain(2);
    point();
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    point();
    EXPECT_THAT(session.Leave(), IsOk());
  };
  job_ = "calm";
  const int points = RunWithDeaths(1, {}, program)[1];
  EXPECT_EQ(points, 7);
  for (int point = 1; point <= points; ++point) {
    job_ = absl::StrCat("dies", point);
    RunWithDeaths(1, {point, points - point + 1}, program);
  }
}

// Load has calls of its own then, which follow its name.
TEST_F(LocalSessionNamesTest, AJobWithNamesGoesOnFromItsDisk) {
  Make(2, 2);
  checkpoint_dir_ = absl::StrCat(::testing::TempDir(), "/names-", getpid());
  ASSERT_TRUE(std::filesystem::create_directories(checkpoint_dir_));
  const absl::Cleanup remove = [this] { std::filesystem::remove_all(checkpoint_dir_); };
  ForAll([](Session& session) {
    NamedCalls(session).Words();
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session.Barrier(), IsOk());
    EXPECT_THAT(session.Checkpoint(std::string("on disk")), IsOk());
    EXPECT_THAT(session.Barrier(), IsOk());
  });
  for (int rank = 0; rank < 2; ++rank) WaitForDeath(rank);
  ForAllRanks([&](int rank) {
    for (int life = rank == 1 ? 0 : 1; life < 2; ++life) {
      absl::StatusOr<Session> session = Join(rank);
      ASSERT_THAT(session, IsOk());
      // The next life leaves it out.
      if (rank == 0 || life == 0) NamedCalls(*session).Words();
      std::string model;
      EXPECT_THAT(session->Load(model), IsOkAndHolds(1u));
      EXPECT_EQ(model, "on disk");
      EXPECT_EQ(session->stats().repeated > 0, life == 1 && rank == 1);
      if (life == 0) continue;
      EXPECT_THAT(session->Barrier(), IsOk());
      EXPECT_THAT(session->Leave(), IsOk());
    }
  });
}

TEST_F(LocalSessionNamesTest, OtherNamesThanThoseOfTheOthersAreRefusedOnAllRanks) {
  Make(2, 2);
  int cases = 0;
  const auto differ = [&](const std::function<absl::Status(Session&)>& call) {
    job_ = absl::StrCat("differ", ++cases);
    ForAll([&](Session& session) {
      NamedCalls(session).Words();
      EXPECT_THAT(call(session),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("differs: rank ")));
    });
  };
  const auto sum = [](Session& session, absl::string_view name) {
    int64_t sum = 1;
    return session.Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, nullptr, name);
  };
  differ([&](Session& s) { return sum(s, s.rank() == 0 ? "a" : "b"); });
  differ([&](Session& s) { return sum(s, s.rank() == 0 ? "a" : ""); });
  differ([&](Session& s) {
    std::string model;
    return s.rank() == 0 ? sum(s, "a") : s.Load(model).status();
  });
}

// The others wait within another call.
TEST_F(LocalSessionNamesTest, ANewCallOfANextLifeIsRefusedOnAllRanks) {
  Make(2, 2);
  // A rank that dies at once can take the error with it.
  std::latch refused(2);
  ForAllRanks([&](int rank) {
    absl::StatusOr<Session> session = Join(rank);
    ASSERT_THAT(session, IsOk());
    NamedCalls(*session).Words();
    int64_t sum = 1;
    if (rank == 0) {
      // Its record has ended, but not the call.
      const absl::Status status =
          session->Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, nullptr, "sum");
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("differs: rank")));
      refused.arrive_and_wait();
      return;
    }
    try {
      session
          ->Allreduce(
              absl::MakeSpan(&sum, 1), ReduceOp::kSum, [] { throw Death(); }, "sum")
          .IgnoreError();
    } catch (const Death&) {
    }
    session = Join(rank);
    ASSERT_THAT(session, IsOk());
    EXPECT_THAT(
        session->Allreduce(absl::MakeSpan(&sum, 1), ReduceOp::kSum, nullptr, "new"),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("before the call named \"new\""), HasSubstr("differs: rank "))));
    refused.arrive_and_wait();
  });
}

TEST_F(LocalSessionNamesTest, NamesThatAreWrongAreRefusedAtOnce) {
  Make(1, 2);
  std::latch dead(1);
  ForAllRanks([&](int rank) {
    float number = 1;
    const auto sum = [&](Session& session, absl::string_view name) {
      return session.Allreduce(absl::MakeSpan(&number, 1), ReduceOp::kSum, nullptr, name);
    };
    std::string model;
    {
      absl::StatusOr<Session> session = Join(rank);
      ASSERT_THAT(session, IsOk());
      EXPECT_THAT(sum(*session, "twice"), IsOk());
      EXPECT_THAT(sum(*session, "twice"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                   HasSubstr("the name \"twice\" is used twice")));
      EXPECT_THAT(sum(*session, "once"), IsOk());
      EXPECT_THAT(session->Load(model), IsOk());
      EXPECT_THAT(sum(*session, "twice"), IsOk());
      if (rank == 0) {
        dead.wait();
        EXPECT_THAT(session->Leave(), IsOk());
        return;
      }
    }
    absl::StatusOr<Session> next = Join(rank);
    ASSERT_THAT(next, IsOk());
    EXPECT_THAT(sum(*next, "new"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("no life has made \"new\" before its Load")));
    EXPECT_THAT(sum(*next, "once"), IsOk());
    EXPECT_THAT(next->Load(model), IsOk());
    EXPECT_THAT(sum(*next, ""), IsOk());
    // Those of Join and Load, too.
    EXPECT_EQ(next->stats().repeated, 3u);
    dead.count_down();
    EXPECT_THAT(next->Leave(), IsOk());
  });
}

}  // namespace
}  // namespace phalanx::runtime
