// Sessions on real nodes: calls, and lives that go on from checkpoints.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"
#include "src/client/access.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/testing/sessions_fixture.h"

namespace phalanx::runtime {
namespace {

using spmd::Options;
using ::testing::AnyOf;

// A program with calls of every kind. Its points are numbered: before and after Load, and before
// every call and checkpoint.
class Program {
 public:
  explicit Program(Points& points) : points_(points) {}

  void Run(Session& session) {
    points_.Pass();
    std::string boot(session.rank() == 1 ? 100 : 0, 'b');
    EXPECT_THAT(session.Broadcast(&boot, 1), IsOk());
    EXPECT_EQ(boot, std::string(100, 'b'));
    points_.Pass();
    const absl::StatusOr<uint64_t> version = session.Load(model_);
    EXPECT_THAT(version, IsOk());
    // A life that begins behind a checkpoint has passed its points.
    while (version.ok() && session.version() < kIterations) Iterate(session);
    points_.Pass();
    EXPECT_THAT(session.Leave(), IsOk());
  }
  const std::vector<float>& result() const { return model_.values; }
  int prepared() const { return prepared_; }

 private:
  void Iterate(Session& session) {
    const auto version = static_cast<size_t>(session.version());
    const auto rank = static_cast<size_t>(session.rank());
    points_.Pass();
    std::vector<float> sum(kCount);
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(sum), ReduceOp::kSum,
                                  [&] {
                                    ++prepared_;
                                    for (size_t i = 0; i < kCount; ++i) {
                                      sum[i] = kValues[(i + rank + version) % 3] + model_.values[i];
                                    }
                                  }),
                IsOk());
    for (size_t i = 0; i < kCount; ++i) model_.values[i] += sum[i];
    points_.Pass();
    const int root = static_cast<int>(version) % session.world();
    std::vector<double> sent(static_cast<int>(rank) == root ? version + 5 : 0, 0.5);
    EXPECT_THAT(session.Broadcast(&sent, root), IsOk());
    EXPECT_EQ(sent, std::vector<double>(version + 5, 0.5));
    points_.Pass();
    const std::vector<int64_t> mine(rank + version % 2, static_cast<int64_t>(rank));
    std::vector<size_t> offsets;
    const absl::StatusOr<std::vector<int64_t>> all =
        session.Allgather(absl::MakeConstSpan(mine), &offsets);
    EXPECT_THAT(all, IsOk());
    EXPECT_EQ(offsets.size(), static_cast<size_t>(session.world()) + 1);
    EXPECT_EQ(offsets.back(), all->size());
    EXPECT_EQ(all->back(), session.world() - 1);
    points_.Pass();
    EXPECT_THAT(session.Barrier(), IsOk());
    EXPECT_EQ(session.seq(), 4u);
    points_.Pass();
    EXPECT_THAT(session.Checkpoint(model_), IsOk());
    EXPECT_EQ(session.seq(), 0u);
  }

  Points& points_;
  Values model_;
  int prepared_ = 0;
};

class LocalSessionsTest : public SessionsFixture {
 protected:
  // Runs the program on all ranks. The first lives of one rank die at these points, one each.
  // Returns what the ranks have at the end.
  std::vector<std::vector<float>> RunProgram(int victim, const std::vector<int>& fatal_points) {
    std::vector<std::vector<float>> results(static_cast<size_t>(world_));
    std::vector<int> prepared(static_cast<size_t>(world_));
    const auto body = [&](Session& session, Points& points) {
      const auto rank = static_cast<size_t>(session.rank());
      Program program(points);
      bool over = false;
      const absl::Cleanup ended = [&] {
        prepared[rank] += program.prepared();
        EXPECT_EQ(session.stats().prepared, static_cast<uint64_t>(program.prepared()));
        EXPECT_EQ(session.stats().repeated > 0, session.life() > 0);
        EXPECT_EQ(session.stats().recovery > absl::ZeroDuration(), session.life() > 0 && over);
        results[rank] = program.result();
      };
      program.Run(session);
      over = true;
    };
    points_ = RunWithDeaths(victim, fatal_points, body)[static_cast<size_t>(victim)];
    // No input was given twice, and none that was not needed.
    EXPECT_EQ(prepared, std::vector<int>(static_cast<size_t>(world_), kIterations));
    return results;
  }

  int points_ = 0;  // of the last life of the victim of a program
};

TEST_F(LocalSessionsTest, CallsOfEveryKindWork) {
  Make(2, 3);
  ForAll([](Session& session) {
    EXPECT_EQ(session.life(), 0u);
    std::string model = "as it was";
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_EQ(model, "as it was");
    std::vector<int64_t> sums(4, session.rank());
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(sums)), IsOk());
    EXPECT_EQ(sums, std::vector<int64_t>(4, 3));
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(sums), ReduceOp::kBitOr), IsOk());
    char text[6] = "-----";
    if (session.rank() == 2) std::copy_n("hello", 6, text);
    EXPECT_THAT(session.Broadcast(text, 6, 2), IsOk());
    EXPECT_STREQ(text, "hello");
    std::string empty = session.rank() == 0 ? "" : "not empty";
    EXPECT_THAT(session.Broadcast(&empty, 0), IsOk());
    EXPECT_EQ(empty, "");
    // Of the same size, of other sizes, and none at all.
    for (const auto& count :
         {+[](int) { return 2; }, +[](int rank) { return 2 * rank; }, +[](int) { return 0; }}) {
      std::vector<int32_t> mine(static_cast<size_t>(count(session.rank())), session.rank());
      std::vector<int32_t> expected;
      std::vector<size_t> begins = {0};
      for (int rank = 0; rank < 3; ++rank) {
        expected.insert(expected.end(), static_cast<size_t>(count(rank)), rank);
        begins.push_back(expected.size());
      }
      std::vector<size_t> offsets;
      EXPECT_THAT(session.Allgather(absl::MakeConstSpan(mine), &offsets), IsOkAndHolds(expected));
      EXPECT_EQ(offsets, begins);
    }
    EXPECT_EQ(session.seq(), 7u);
    EXPECT_THAT(session.Checkpoint(std::string("model")), IsOk());
    EXPECT_EQ(session.version(), 1u);
    EXPECT_EQ(session.stats().repeated, 0u);
    EXPECT_EQ(session.stats().checkpoint_bytes, 5u);
    EXPECT_EQ(session.stats().recovery, absl::ZeroDuration());
    EXPECT_THAT(session.Leave(), IsOk());
    EXPECT_THAT(session.Barrier(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the rank has left")));
  });
}

TEST_F(LocalSessionsTest, ARankThatDiesAnywhereEndsWithTheBitsOfARunWithoutDeaths) {
  Make(2, 3);
  job_ = "calm";
  const std::vector<std::vector<float>> calm = RunProgram(0, {});
  EXPECT_EQ(calm[1], calm[0]);
  EXPECT_EQ(calm[2], calm[0]);
  const int points = points_;
  ASSERT_EQ(points, 2 + 5 * kIterations + 1);
  for (int point = 1; point <= points; ++point) {
    job_ = absl::StrCat("dies", point);
    const std::vector<std::vector<float>> results = RunProgram(point % world_, {point});
    for (const std::vector<float>& result : results) EXPECT_EQ(result, calm[0]) << point;
  }
  // The second life dies where it begins, and the third one within the calls that it repeats.
  job_ = "often";
  for (const std::vector<float>& result : RunProgram(1, {11, 2, 4})) EXPECT_EQ(result, calm[0]);
}

TEST_F(LocalSessionsTest, ARankWhoseNodeHasEndedLoadsTheCheckpointOfAnotherOne) {
  Make(3, 3);
  std::latch dead(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      std::string model;
      ASSERT_THAT(session.Load(model), IsOkAndHolds(0u));
      int64_t sum = session.rank();
      ASSERT_THAT(session.Allreduce(absl::MakeSpan(&sum, 1)), IsOk());
      // They differ, so that the next life shows which one it has loaded.
      ASSERT_THAT(session.Checkpoint(absl::StrCat("sum ", sum, " of rank ", session.rank())),
                  IsOk());
      ASSERT_THAT(session.Barrier(), IsOk());
      if (session.rank() == 2) return Die(session);
      dead.wait();
      ASSERT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(session.Leave(), IsOk());
    });
  });
  // The first life of rank 2 ends with its session; the node with what it has put.
  WaitForDeath(2);
  cluster_->KillNode(2);
  absl::StatusOr<Session> session = Session::Join(*Connect(1), OptionsOf(2));
  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(session->life(), 1u);
  std::string model;
  EXPECT_THAT(session->Load(model), IsOkAndHolds(1u));
  // That of rank 0 would have to travel.
  EXPECT_EQ(model, "sum 3 of rank 1");
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_EQ(session->stats().repeated, 2u);
  dead.count_down();
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_THAT(session->Leave(), IsOk());
  ranks.join();
}

TEST_F(LocalSessionsTest, AJobThatBeginsAnewReadsNothingOfTheOneBefore) {
  Make(1, 1);
  for (int run = 0; run < 2; ++run) {
    Session session = Join(0).value();
    std::string model = "new";
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_EQ(model, "new");
    EXPECT_THAT(session.Checkpoint(absl::StrCat("of run ", run)), IsOk());
    EXPECT_THAT(session.Barrier(), IsOk());
    // A next life that takes its place while it lives would go on with the run.
    { const Session ends = std::move(session); }
    WaitForDeath(0);
  }
}

TEST_F(LocalSessionsTest, AnImpossibleNumberOfCopiesIsRefusedBeforeTheRankJoins) {
  Make(1, 1);
  for (const int copies : {0, 17}) {
    Options options = OptionsOf(0);
    options.result_copies = copies;
    EXPECT_THAT(Session::Join(*Connect(0), options).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it is 1 to 16")));
  }
  EXPECT_EQ(Join(0).value().life(), 0u);
}

TEST_F(LocalSessionsTest, OldCheckpointsAreFreed) {
  Make(1, 2);
  // Together more than the node has room for.
  ForAll([](Session& session) {
    std::string model(size_t{16} << 20, 'm');
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    for (int version = 1; version <= 20; ++version) {
      ASSERT_THAT(session.Checkpoint(model), IsOk()) << version;
      ASSERT_THAT(session.Barrier(), IsOk()) << version;
    }
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionsTest, ArgumentsThatAreWrongAreRefusedAtOnce) {
  Make(1, 2);
  ForAll([](Session& session) {
    EXPECT_THAT(session.Checkpoint(std::string("early")),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session.Load(model), StatusIs(absl::StatusCode::kFailedPrecondition));
    for (const int root : {-1, 2}) {
      EXPECT_THAT(session.Broadcast(&model, root),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr(absl::StrCat("root ", root, " is no rank of a world of 2"))));
      EXPECT_THAT(session.Broadcast(nullptr, 0, root),
                  StatusIs(absl::StatusCode::kInvalidArgument));
    }
    float number = 1;
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(&number, 1), ReduceOp::kBitOr),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(session.Allreduce(DType::kF32, &number, 3, ReduceOp::kSum),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(session.seq(), 0u);
    // Nothing is transferred, and prepared.
    bool prepared = false;
    EXPECT_THAT(session.Allreduce(absl::Span<float>(), ReduceOp::kSum, [&] { prepared = true; }),
                IsOk());
    EXPECT_FALSE(prepared);
    EXPECT_THAT(session.Broadcast(nullptr, 0, 1), IsOk());
    EXPECT_EQ(session.stats().made, 1u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionsTest, RanksThatDifferInACallGetAnErrorThatNamesItAndTheirSessionsAreOver) {
  Make(2, 2);
  ForAll([](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), IsOk());
    EXPECT_THAT(session.Checkpoint(model), IsOk());
    EXPECT_THAT(session.Barrier(), IsOk());
    std::vector<float> vector(session.rank() == 0 ? 2 : 3);
    const absl::Status differs = session.Allreduce(absl::MakeSpan(vector));
    EXPECT_THAT(differs,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("job train/worker, rank ", session.rank(),
                                                      ", version 1, seq 1: Allreduce")),
                               HasSubstr("8 bytes"), HasSubstr("12 bytes"))));
    EXPECT_EQ(session.Barrier(), differs);
    EXPECT_EQ(session.Checkpoint(model), differs);
    EXPECT_EQ(session.Leave(), differs);
  });
}

TEST_F(LocalSessionsTest, ElementsOfOtherSizesAreRefused) {
  Make(1, 2);
  ForAll([](Session& session) {
    std::vector<float> floats(3);
    std::vector<double> doubles(3);
    const absl::Status status = session.rank() == 0
                                    ? session.Allgather(absl::MakeConstSpan(floats)).status()
                                    : session.Allgather(absl::MakeConstSpan(doubles)).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("elements of "),
                                       HasSubstr(absl::StrCat("at rank ", 1 - session.rank())))));
  });
}

TEST_F(LocalSessionsTest, ARepeatedCallOfAnotherSizeIsRefused) {
  Make(1, 2);
  std::latch dead(1);
  std::thread other([&] {
    absl::StatusOr<Session> session = Join(0);
    ASSERT_THAT(session, IsOk());
    std::vector<float> four(4);
    EXPECT_THAT(session->Allreduce(absl::MakeSpan(four)), IsOk());
    dead.wait();
  });
  std::vector<float> four(4), five(5);
  {
    absl::StatusOr<Session> session = Join(1);
    ASSERT_THAT(session, IsOk());
    EXPECT_THAT(session->Allreduce(absl::MakeSpan(four)), IsOk());
  }
  absl::StatusOr<Session> session = Join(1);
  ASSERT_THAT(session, IsOk());
  EXPECT_THAT(session->Allreduce(absl::MakeSpan(five)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("version 0, seq 0"), HasSubstr("16 bytes, not 20"))));
  dead.count_down();
  other.join();
}

// Two calls of the group, of which the next life repeats the first one.
TEST_F(LocalSessionsTest, ACallOfWhichAPartIsRepeatedIsRefusedIfItHasAnotherSize) {
  Make(1, 2);
  const std::vector<float> mine(3);
  const auto gather = [&](Session& session) {
    return session.Allgather(absl::MakeConstSpan(mine)).status();
  };
  const auto send = [&](Session& session) {
    std::string text(12, 'a');
    return session.Broadcast(&text, 1);
  };
  const std::vector<std::function<absl::Status(Session&)>> calls = {gather, send};
  for (size_t i = 0; i < calls.size(); ++i) {
    job_ = absl::StrCat("of", i);
    // The first part, of 8 bytes: gathered and sent.
    const auto begin = [&](Session& session) {
      const auto rank = static_cast<size_t>(session.rank());
      std::vector<uint64_t> sizes(i == 0 ? 4 : 2);
      sizes[i == 0 ? 2 * rank : 0] = 8;
      sizes[i == 0 ? 2 * rank + 1 : 1] = i == 0 ? 4 : 1;
      return i == 0 ? session.Allreduce(absl::MakeSpan(sizes), ReduceOp::kBitOr)
                    : session.Broadcast(sizes.data(), 16, 1);
    };
    std::latch over(1);
    std::thread other([&] {
      Session session = Join(0).value();
      EXPECT_THAT(begin(session), IsOk());
      over.wait();
    });
    {
      Session session = Join(1).value();
      EXPECT_THAT(begin(session), IsOk());
    }
    WaitForDeath(1);
    Session session = Join(1).value();
    EXPECT_THAT(calls[i](session), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("12 bytes, and 8 in the life before")));
    over.count_down();
    other.join();
  }
}

TEST_F(LocalSessionsTest, ASessionIsForOneThreadAtATime) {
  Make(1, 1);
  Session session = Join(0).value();
  float number = 1;
  absl::Status inside, beside;
  EXPECT_THAT(session.Allreduce(absl::MakeSpan(&number, 1), ReduceOp::kSum,
                                [&] {
                                  inside = session.Barrier();
                                  std::thread([&] { beside = session.Barrier(); }).join();
                                }),
              IsOk());
  for (const absl::Status& status : {inside, beside}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("another call of the session is under way")));
  }
  EXPECT_THAT(session.Leave(), IsOk());
}

TEST_F(LocalSessionsTest, AChildOfForkCannotUseTheSession) {
  Make(1, 1);
  Session session = Join(0).value();
  std::string model = "model";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto fails = [](const absl::Status& status) {
      return absl::IsFailedPrecondition(status);
    };
    const bool all_fail = fails(session.Load(model).status()) &&
                          fails(session.Allreduce(absl::Span<float>())) &&
                          fails(session.Barrier()) && fails(session.Leave());
    _exit(all_fail ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_THAT(session.Load(model), IsOk());
  EXPECT_THAT(session.Leave(), IsOk());
}

// Another thread can hold a lock at the fork that nothing ends in the child.
TEST_F(LocalSessionsTest, AChildOfForkDoesNotWaitForCallsUnderWay) {
  Make(1, 1);
  const std::shared_ptr<Client> client = Connect(0);
  Session session = Session::Join(*client, OptionsOf(0)).value();
  float number = 1;
  EXPECT_THAT(session.AllreduceAsync(absl::MakeSpan(&number, 1)).Wait(), IsOk());
  std::atomic<bool> ends = false;
  std::thread other([&] {
    const Membership watcher =
        client->Join(job_, "watcher", {.world = 1, .role = "watcher"}).value();
    while (!ends) watcher.Members("worker");
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const auto fails = [](const absl::Status& status) {
        return absl::IsFailedPrecondition(status);
      };
      const bool all_fail =
          fails(session.Barrier()) &&
          fails(session.AllreduceAsync(absl::MakeSpan(&number, 1)).Wait().status()) &&
          fails(session.Leave());
      { const Session ended = std::move(session); }
      _exit(all_fail ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    if (HasFailure()) break;
  }
  ends = true;
  other.join();
  EXPECT_THAT(session.Leave(), IsOk());
}

// The program's memory can go with the session.
TEST_F(LocalSessionsTest, CallsUnderWayEndWithTheirSession) {
  Make(1, 2);
  std::latch ended(1);
  ForAll([&](Session& session) {
    if (session.rank() == 1) return ended.wait();
    for (const bool assigns : {false, true}) {
      std::vector<Future<Done>> futures;
      auto sums = std::make_unique<std::array<std::vector<float>, 2>>();
      Session ends = Join(0).value();
      for (std::vector<float>& sum : *sums) {
        sum.resize(100'000);
        futures.push_back(ends.AllreduceAsync(absl::MakeSpan(sum)));
      }
      if (assigns) {
        ends = Join(0).value();
      } else {
        const Session dropped = std::move(ends);
      }
      // A call that a next life has taken over has ended with that error.
      for (const Future<Done>& future : futures) EXPECT_TRUE(future.ready());
      sums.reset();
      for (const Future<Done>& future : futures) {
        EXPECT_THAT(future.Wait(), AnyOf(StatusIs(absl::StatusCode::kCancelled),
                                         StatusIs(absl::StatusCode::kAborted)));
      }
    }
    ended.count_down();
  });
}

TEST_F(LocalSessionsTest, ASessionThatIsDroppedDiesAlsoIfAFutureOfItIsKept) {
  Make(1, 2);
  std::latch dead(1);
  std::thread ranks([&] {
    ForAllRanks([&](int rank) {
      const std::shared_ptr<Client> client = Connect(0);
      std::vector<float> sum(10);
      Future<Done> kept;
      {
        Session session = Session::Join(*client, OptionsOf(rank)).value();
        kept = session.AllreduceAsync(absl::MakeSpan(sum));
        EXPECT_THAT(kept.Wait(), IsOk());
        if (rank == 0) dead.wait();
      }
      if (rank == 1) dead.wait();
    });
  });
  WaitForDeath(1);
  dead.count_down();
  ranks.join();
}

TEST_F(LocalSessionsTest, AClientForgetsTheNamesOfWhatIsFreed) {
  Make(1, 2);
  ForAllRanks([&](int rank) {
    const std::shared_ptr<Client> client = Connect(0);
    absl::StatusOr<Session> session = Session::Join(*client, OptionsOf(rank));
    ASSERT_THAT(session, IsOk());
    std::string model, local;
    ASSERT_THAT(session->Load(model, local), IsOkAndHolds(0u));
    std::vector<double> large(40'000);
    for (int version = 1; version <= 20; ++version) {
      ASSERT_THAT(session->AllreduceBy(absl::MakeSpan(large), [](double&, double) {}), IsOk());
      ASSERT_THAT(session->Checkpoint(model, local), IsOk());
      ASSERT_THAT(session->Barrier(), IsOk());
      ASSERT_THAT(session->Barrier(), IsOk());
    }
    // Those of two versions, and of the next one, each a global and a local model.
    const size_t names = phalanx::internal::Access::ConnectionOf(*client)->names().size();
    EXPECT_GT(names, 0u);
    EXPECT_LE(names, 6u);
    EXPECT_THAT(session->Leave(), IsOk());
  });
}

TEST_F(LocalSessionsTest, ACallNamesARankThatDoesNotCallInTime) {
  Make(1, 2);
  peer_timeout_ = absl::Seconds(5);
  absl::Notification over;
  ForAll([&](Session& session) {
    if (session.rank() == 1) {
      over.WaitForNotificationWithTimeout(kDeadline);
      return;
    }
    EXPECT_THAT(session.Barrier(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("waiting for rank 1 (worker1)")));
    over.Notify();
  });
}

TEST_F(LocalSessionsTest, AJoinNamesTheRanksThatDoNotComeInTime) {
  Make(1, 2);
  peer_timeout_ = absl::Seconds(5);
  EXPECT_THAT(Join(0).status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 1")));
}

}  // namespace
}  // namespace phalanx::runtime
