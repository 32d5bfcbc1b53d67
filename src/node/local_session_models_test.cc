// Sessions on real nodes: what ranks write for their next lives, and what these load.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

// Points of a program: before the first call and Load, in each iteration, and before Leave.
constexpr int kPointsBefore = 2;
constexpr int kPointsEach = 5;
constexpr int kPoints = kPointsBefore + kPointsEach * kIterations + 1;

enum class Kind {
  kEager,
  kLazy,
  kSome,   // lazy on some ranks in some versions
  kLocal,  // with local models
};

// A program whose versions end with a Broadcast, which its root passes alone.
class Program {
 public:
  Program(Kind kind, Points& points) : kind_(kind), points_(points) {}

  void Run(Session& session) {
    points_.Pass();
    std::string boot(session.rank() == 1 ? 100 : 0, 'b');
    EXPECT_THAT(session.Broadcast(&boot, 1), IsOk());
    points_.Pass();
    const absl::StatusOr<uint64_t> version =
        kind_ == Kind::kLocal ? session.Load(model_, local_) : session.Load(model_);
    EXPECT_THAT(version, IsOk());
    while (version.ok() && session.version() < kIterations) {
      // A life that begins behind a checkpoint has passed its points.
      points_.Skip(kPointsBefore + kPointsEach * static_cast<int>(session.version()));
      Iterate(session);
    }
    points_.Skip(kPoints - 1);
    points_.Pass();
    EXPECT_THAT(session.Leave(), IsOk());
  }
  const std::vector<float>& result() const { return model_.values; }
  const std::vector<float>& local() const { return local_.values; }
  int saved() const { return saved_; }

 private:
  void Iterate(Session& session) {
    const auto version = static_cast<size_t>(session.version());
    const auto rank = static_cast<size_t>(session.rank());
    points_.Pass();
    std::vector<float> sum(kCount);
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(sum), ReduceOp::kSum,
                                  [&] {
                                    for (size_t i = 0; i < kCount; ++i) {
                                      sum[i] = kValues[(i + rank + version) % 3] +
                                               model_.values[i] + local_.values[i];
                                    }
                                  }),
                IsOk());
    points_.Pass();
    const std::vector<float> mine(rank + 1, model_.values[rank]);
    const absl::StatusOr<std::vector<float>> all = session.Allgather(absl::MakeConstSpan(mine));
    EXPECT_THAT(all, IsOk());
    points_.Pass();
    EXPECT_THAT(session.Barrier(), IsOk());
    points_.Pass();
    float scale = 0;
    const int root = static_cast<int>(version + 1) % session.world();
    if (session.rank() == root) scale = 0.5f + sum[0];
    EXPECT_THAT(session.Broadcast(&scale, sizeof(scale), root), IsOk());
    // The model is as it was until here.
    for (size_t i = 0; i < kCount; ++i) {
      model_.values[i] = model_.values[i] * scale + sum[i] + (*all)[i % all->size()];
      if (kind_ != Kind::kLocal) continue;
      local_.values[i] = local_.values[i] * 0.5f + static_cast<float>(rank + 1) * sum[i];
    }
    points_.Pass();
    EXPECT_THAT(Checkpoint(session), IsOk());
    EXPECT_EQ(session.version(), version + 1);
    EXPECT_EQ(session.seq(), 0u);
  }

  absl::Status Checkpoint(Session& session) {
    if (kind_ == Kind::kLocal) return session.Checkpoint(model_, local_);
    const bool lazy =
        kind_ == Kind::kLazy || (kind_ == Kind::kSome && (session.version() + session.rank()) % 2);
    if (!lazy) return session.Checkpoint(model_);
    return session.LazyCheckpointBytes([this] {
      ++saved_;
      return model_.Save();
    });
  }

  const Kind kind_;
  Points& points_;
  Values model_;
  Values local_;
  int saved_ = 0;
};

class LocalSessionModelsTest : public SessionsFixture {
 protected:
  struct Outcome {
    std::vector<std::vector<float>> results;  // by rank
    std::vector<std::vector<float>> locals;   // by rank
    std::vector<int> saved;                   // by rank, lazy checkpoints of all lives
  };
  // Runs the program on all ranks. Each death ends one life of its rank, in this order.
  Outcome RunProgram(Kind kind, const std::vector<Death>& deaths = {}) {
    Outcome outcome;
    outcome.results.resize(static_cast<size_t>(world_));
    outcome.locals.resize(static_cast<size_t>(world_));
    outcome.saved.resize(static_cast<size_t>(world_));
    RunWithDeaths(deaths, [&](Session& session, Points& points) {
      const auto rank = static_cast<size_t>(session.rank());
      Program program(kind, points);
      const absl::Cleanup ended = [&] {
        outcome.results[rank] = program.result();
        outcome.locals[rank] = program.local();
        outcome.saved[rank] += program.saved();
        if (kind != Kind::kLazy) return;
        EXPECT_EQ(session.stats().checkpoint_bytes,
                  static_cast<uint64_t>(program.saved()) * kCount * sizeof(float));
      };
      program.Run(session);
    });
    return outcome;
  }
};

TEST_F(LocalSessionModelsTest, ALazyCheckpointIsNotWrittenWithoutADeath) {
  Make(2, 3);
  const Outcome eager = RunProgram(Kind::kEager);
  EXPECT_EQ(eager.results[1], eager.results[0]);
  EXPECT_EQ(eager.results[2], eager.results[0]);
  for (const Kind kind : {Kind::kLazy, Kind::kSome}) {
    job_ = absl::StrCat("lazy", static_cast<int>(kind));
    const Outcome lazy = RunProgram(kind);
    EXPECT_EQ(lazy.results, eager.results);
    EXPECT_EQ(lazy.saved, std::vector<int>(3, 0));
  }
}

TEST_F(LocalSessionModelsTest, ARankThatDiesAnywhereAmongLazyCheckpointsEndsWithTheSameBits) {
  Make(2, 3);
  const Outcome calm = RunProgram(Kind::kLazy);
  for (int point = 1; point <= kPoints; ++point) {
    for (const Kind kind : {Kind::kLazy, Kind::kSome}) {
      job_ = absl::StrCat("dies", point, "of", static_cast<int>(kind));
      const int victim = point % world_;
      const Outcome outcome = RunProgram(kind, {{victim, point}});
      EXPECT_EQ(outcome.results, calm.results) << point;
      // Version 0 needs no checkpoint. The last calls of a version do not show whether the next
      // life has taken part in them, so the next checkpoint can be saved as well.
      const bool needed = point >= kPointsBefore + kPointsEach;
      const bool unknown = !needed && point > kPointsBefore + 2;
      for (int rank = 0; rank < world_ && kind == Kind::kLazy; ++rank) {
        const int saved = outcome.saved[static_cast<size_t>(rank)];
        EXPECT_LE(saved, 2) << point;
        if (rank == victim || unknown) continue;
        EXPECT_EQ(saved > 0, needed) << point << ", rank " << rank;
      }
    }
  }
}

TEST_F(LocalSessionModelsTest, SeveralRanksDieAmongLazyCheckpoints) {
  Make(2, 4);
  const Outcome calm = RunProgram(Kind::kLazy);
  const auto in = [](int iteration, int point) {
    return kPointsBefore + kPointsEach * iteration + point;
  };
  const std::vector<std::vector<Death>> plans = {
      // All but one, in one call and in different ones.
      {{0, in(1, 2)}, {1, in(1, 2)}, {3, in(1, 2)}},
      {{0, in(1, 5)}, {1, in(1, 1)}, {2, in(2, 1)}},
      // The next life dies before it loads, and after that.
      {{2, in(2, 1)}, {2, 2}, {2, in(2, 1)}, {2, in(2, 3)}},
      {{0, in(2, 4)}, {1, in(2, 4)}, {0, 2}, {1, in(2, 1)}},
      // In the calls that it repeats, and in Leave.
      {{3, in(2, 3)}, {3, in(2, 2)}, {3, kPoints}, {1, kPoints}},
  };
  for (size_t i = 0; i < plans.size(); ++i) {
    job_ = absl::StrCat("several", i);
    EXPECT_EQ(RunProgram(Kind::kLazy, plans[i]).results, calm.results) << i;
  }
}

TEST_F(LocalSessionModelsTest, RanksWhoseNodesHaveEndedLoadTheLazyModelOfTheOneThatIsLeft) {
  Make(3, 3);
  std::latch dead(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      std::string model;
      ASSERT_THAT(session.Load(model), IsOkAndHolds(0u));
      int64_t sum = session.rank();
      ASSERT_THAT(session.Allreduce(absl::MakeSpan(&sum, 1)), IsOk());
      model = absl::StrCat("sum ", sum);
      ASSERT_THAT(session.LazyCheckpoint(model), IsOk());
      ASSERT_THAT(session.Barrier(), IsOk());
      if (session.rank() > 0) return Die(session);
      dead.wait();
      ASSERT_THAT(session.Barrier(), IsOk());
      // Once, although two have died.
      EXPECT_EQ(session.stats().checkpoint_bytes, 5u);
      EXPECT_THAT(session.Leave(), IsOk());
    });
  });
  for (const int rank : {1, 2}) {
    WaitForDeath(rank);
    cluster_->KillNode(rank);
  }
  dead.count_down();
  std::vector<std::thread> next;
  for (const int rank : {1, 2}) {
    next.emplace_back([&, rank] {
      absl::StatusOr<Session> session = Session::Join(*Connect(0), OptionsOf(rank));
      ASSERT_THAT(session, IsOk());
      std::string model;
      EXPECT_THAT(session->Load(model), IsOkAndHolds(1u));
      EXPECT_EQ(model, "sum 3");
      EXPECT_THAT(session->Barrier(), IsOk());
      EXPECT_THAT(session->Barrier(), IsOk());
      EXPECT_THAT(session->Leave(), IsOk());
    });
  }
  for (std::thread& rank : next) rank.join();
  ranks.join();
}

TEST_F(LocalSessionModelsTest, WithoutACallThatNeedsAllALazyCheckpointIsWrittenAtOnce) {
  Make(1, 2);
  ForAll([](Session& session) {
    int saved = 0;
    const auto save = [&saved] {
      ++saved;
      return std::string("model");
    };
    EXPECT_THAT(session.LazyCheckpointBytes(save), StatusIs(absl::StatusCode::kFailedPrecondition));
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session.LazyCheckpointBytes(nullptr), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(session.LazyCheckpointBytes(save), IsOk());
    EXPECT_EQ(saved, 1);
    EXPECT_THAT(session.Barrier(), IsOk());
    EXPECT_THAT(session.LazyCheckpointBytes(save), IsOk());
    EXPECT_EQ(saved, 1);
    EXPECT_THAT(session.Broadcast(&model, 0), IsOk());
    EXPECT_THAT(session.LazyCheckpointBytes(save), IsOk());
    EXPECT_EQ(saved, 2);
    EXPECT_EQ(session.version(), 3u);
    EXPECT_EQ(session.stats().checkpoint_bytes, 10u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

// A call looks often, and a large model takes long to save.
TEST_F(LocalSessionModelsTest, AModelForWhichThereIsNoRoomIsSavedOnce) {
  peer_timeout_ = absl::Seconds(5);
  Make(2, 2);
  std::latch dead(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      std::string model;
      ASSERT_THAT(session.Load(model), IsOkAndHolds(0u));
      ASSERT_THAT(session.Barrier(), IsOk());
      int saved = 0;
      ASSERT_THAT(session.LazyCheckpointBytes([&saved] {
        ++saved;
        return std::string(size_t{300} << 20, 'm');
      }),
                  IsOk());
      ASSERT_THAT(session.Barrier(), IsOk());
      if (session.rank() == 1) return Die(session);
      dead.wait();
      EXPECT_THAT(session.Barrier(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           HasSubstr("the model of version 1 could not be saved")));
      EXPECT_EQ(saved, 1);
      EXPECT_EQ(session.stats().checkpoint_bytes, 0u);
    });
  });
  WaitForDeath(1);
  dead.count_down();
  ranks.join();
}

TEST_F(LocalSessionModelsTest, ASessionIsOverIfTheFunctionThatSavesThrows) {
  Make(1, 2);
  std::latch dead(1);
  std::thread survivor([&] {
    absl::StatusOr<Session> session = Join(0);
    ASSERT_THAT(session, IsOk());
    std::string model;
    EXPECT_THAT(session->Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session->Barrier(), IsOk());
    EXPECT_THAT(session->LazyCheckpointBytes(
                    []() -> std::string { throw std::runtime_error("cannot save"); }),
                IsOk());
    std::vector<float> sum(kCount);
    EXPECT_THROW(session->Allreduce(absl::MakeSpan(sum)).IgnoreError(), std::runtime_error);
    dead.count_down();
    EXPECT_THAT(session->Barrier(),
                StatusIs(absl::StatusCode::kAborted,
                         AllOf(HasSubstr("job train/worker, rank 0, version 1, seq 0"),
                               HasSubstr("the function that saves the model has thrown"))));
  });
  {
    absl::StatusOr<Session> session = Join(1);
    ASSERT_THAT(session, IsOk());
    std::string model;
    EXPECT_THAT(session->Load(model), IsOkAndHolds(0u));
    EXPECT_THAT(session->Barrier(), IsOk());
  }
  dead.wait();
  survivor.join();
}

// ---------------------------------------------------------------------------- local models

TEST_F(LocalSessionModelsTest, ARankThatDiesAnywhereEndsWithItsLocalModel) {
  Make(3, 3);
  const Outcome calm = RunProgram(Kind::kLocal);
  EXPECT_EQ(calm.results[1], calm.results[0]);
  EXPECT_NE(calm.locals[1], calm.locals[0]);
  for (int point = 1; point <= kPoints; ++point) {
    job_ = absl::StrCat("dies", point);
    const Outcome outcome = RunProgram(Kind::kLocal, {{point % world_, point}});
    EXPECT_EQ(outcome.results, calm.results) << point;
    EXPECT_EQ(outcome.locals, calm.locals) << point;
  }
  job_ = "often";
  const int in_last = kPointsBefore + 2 * kPointsEach;
  const Outcome often =
      RunProgram(Kind::kLocal,
                 {{0, in_last + 1}, {1, in_last + 4}, {1, 2}, {0, in_last + 2}, {1, in_last + 5}});
  EXPECT_EQ(often.results, calm.results);
  EXPECT_EQ(often.locals, calm.locals);
}

constexpr size_t kSmall = 1 << 20;
constexpr size_t kLarge = 64 << 20;

class LocalSessionPairsTest : public SessionsFixture {
 protected:
  static std::string GlobalOf(uint64_t version) { return absl::StrCat("global ", version); }
  std::string LocalOf(int rank, uint64_t version) const {
    const bool large = rank == 1 && version >= large_from_;
    return std::string(large ? kLarge : kSmall, static_cast<char>('a' + rank + 3 * version));
  }
  absl::Status Checkpoint(Session& session) const {
    const uint64_t version = session.version() + 1;
    return session.Checkpoint(GlobalOf(version), LocalOf(session.rank(), version));
  }
  void ExpectLoads(Session& session, uint64_t version) const {
    std::string global, local;
    EXPECT_THAT(session.Load(global, local), IsOkAndHolds(version));
    EXPECT_EQ(global, version == 0 ? "" : GlobalOf(version));
    EXPECT_TRUE(local == (version == 0 ? "" : LocalOf(session.rank(), version)));
  }
  // An object that leaves less room on the node than the large model takes.
  void Fill(int node) {
    filler_ = Connect(node);
    EXPECT_THAT(filler_->Put(filler_->Id("filler"), std::string(size_t{200} << 20, 'f')).Wait(),
                IsOk());
  }

  // The first version in which the local model of rank 1 is large.
  uint64_t large_from_ = 1000;
  std::shared_ptr<Client> filler_;
};

TEST_F(LocalSessionPairsTest, ARankWhoseNodeHasEndedLoadsItsPairFromOtherHosts) {
  Make(3, 3);
  std::latch dead(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      ExpectLoads(session, 0);
      for (int version = 1; version <= 3; ++version) {
        EXPECT_THAT(session.Barrier(), IsOk());
        EXPECT_THAT(Checkpoint(session), IsOk());
      }
      if (session.rank() == 2) return Die(session);
      dead.wait();
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(session.Leave(), IsOk());
    });
  });
  WaitForDeath(2);
  cluster_->KillNode(2);
  dead.count_down();
  absl::StatusOr<Session> session = Session::Join(*Connect(0), OptionsOf(2));
  ASSERT_THAT(session, IsOk());
  // No call of version 3 has ended, and its checkpoint has waited for the copies of version 2.
  ExpectLoads(*session, 2);
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_THAT(Checkpoint(*session), IsOk());
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_EQ(session->stats().repeated, 2u);
  EXPECT_THAT(session->Leave(), IsOk());
  ranks.join();
}

TEST_F(LocalSessionPairsTest, ARankLoadsThePairBeforeIfTheNewestLocalModelHasNoCopy) {
  Make(2, 2);
  large_from_ = 2;
  std::latch filled(1), dead(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      ExpectLoads(session, 0);
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(Checkpoint(session), IsOk());
      filled.wait();
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(Checkpoint(session), IsOk());
      EXPECT_THAT(session.Barrier(), IsOk());
      if (session.rank() == 1) return Die(session);
      dead.wait();
      EXPECT_THAT(Checkpoint(session), IsOk());
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(session.Leave(), IsOk());
    });
  });
  Fill(0);
  filled.count_down();
  WaitForDeath(1);
  cluster_->KillNode(1);
  EXPECT_THAT(filler_->Delete(filler_->Id("filler")).Wait(), IsOk());
  dead.count_down();
  absl::StatusOr<Session> session = Session::Join(*Connect(0), OptionsOf(1));
  ASSERT_THAT(session, IsOk());
  ExpectLoads(*session, 1);
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_THAT(Checkpoint(*session), IsOk());
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_EQ(session->stats().repeated, 3u);
  EXPECT_THAT(Checkpoint(*session), IsOk());
  EXPECT_THAT(session->Barrier(), IsOk());
  EXPECT_THAT(session->Leave(), IsOk());
  ranks.join();
}

TEST_F(LocalSessionPairsTest, TheNextCheckpointWaitsForTheCopies) {
  Make(2, 2);
  large_from_ = 2;
  peer_timeout_ = absl::Seconds(5);
  Fill(0);
  std::latch over(2);
  ForAll([&](Session& session) {
    ExpectLoads(session, 0);
    EXPECT_THAT(Checkpoint(session), IsOk());
    EXPECT_THAT(Checkpoint(session), IsOk());
    if (session.rank() == 1) {
      const absl::Status waits = Checkpoint(session);
      EXPECT_FALSE(waits.ok());
      EXPECT_THAT(std::string(waits.message()),
                  AllOf(HasSubstr("rank 1, version 2, seq 0: Checkpoint"),
                        HasSubstr("the local model of version 2 is not on 3 hosts yet")));
      EXPECT_EQ(session.version(), 2u);
      EXPECT_THAT(filler_->Delete(filler_->Id("filler")).Wait(), IsOk());
      EXPECT_THAT(Checkpoint(session), IsOk());
      EXPECT_EQ(session.version(), 3u);
    }
    over.arrive_and_wait();
  });
}

// A node without ranks has the only room for a copy.
TEST_F(LocalSessionPairsTest, ARankWhoseCopiesHaveAllEndedGetsAnErrorThatNamesWhatIsMissing) {
  Make(3, 2);
  peer_timeout_ = absl::Seconds(5);
  large_from_ = 1;
  local_copies_ = 1;
  Fill(0);
  std::latch over(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      ExpectLoads(session, 0);
      for (int version = 1; version <= 2; ++version) {
        EXPECT_THAT(session.Barrier(), IsOk());
        EXPECT_THAT(Checkpoint(session), IsOk());
      }
      EXPECT_THAT(session.Barrier(), IsOk());
      session.rank() == 0 ? over.wait() : Die(session);
    });
  });
  WaitForDeath(1);
  cluster_->KillNode(1);
  cluster_->KillNode(2);
  absl::StatusOr<Session> session = Session::Join(*Connect(0), OptionsOf(1));
  ASSERT_THAT(session, IsOk());
  std::string global, local;
  EXPECT_THAT(session->Load(global, local),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("rank 1 has no local model of version 2"),
                             HasSubstr("and none of version 1"), HasSubstr("on 2 hosts"))));
  over.count_down();
  ranks.join();
}

TEST_F(LocalSessionPairsTest, OneHostIsEnoughIfThereIsNoOther) {
  Make(1, 2);
  ForAll([this](Session& session) {
    ExpectLoads(session, 0);
    // Together more than the node has room for.
    for (int version = 1; version <= 200; ++version) {
      ASSERT_THAT(Checkpoint(session), IsOk()) << version;
      ASSERT_THAT(session.Barrier(), IsOk()) << version;
    }
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionPairsTest, CheckpointsWithAndWithoutLocalModelsAreNotMixed) {
  Make(1, 2);
  ForAll([this](Session& session) {
    ExpectLoads(session, 0);
    for (const absl::Status& mixed : {session.Checkpoint(GlobalOf(1)),
                                      session.LazyCheckpointBytes([] { return GlobalOf(1); })}) {
      EXPECT_THAT(mixed,
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("version 0, seq 0"),
                                 HasSubstr("without a local model, and Load was with one"))));
    }
    EXPECT_THAT(Checkpoint(session), IsOk());
    EXPECT_EQ(session.version(), 1u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
  job_ = "differ";
  ForAll([](Session& session) {
    std::string global, local;
    if (session.rank() == 0) {
      EXPECT_THAT(session.Load(global, local), IsOk());
    } else {
      EXPECT_THAT(session.Load(global), IsOk());
      EXPECT_THAT(session.Checkpoint(global, local),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           HasSubstr("with a local model, and Load was without one")));
    }
    EXPECT_THAT(session.Barrier(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(session.rank() == 0
                                       ? "checkpoints of this rank are with local models"
                                       : "checkpoints of this rank are without local models")));
  });
}

TEST_F(LocalSessionPairsTest, ANextLifeThatLoadsAnotherKindIsRefused) {
  Make(1, 2);
  std::latch over(1);
  std::thread other([&] {
    absl::StatusOr<Session> session = Join(0);
    ASSERT_THAT(session, IsOk());
    ExpectLoads(*session, 0);
    EXPECT_THAT(session->Barrier(), IsOk());
    over.wait();
  });
  {
    absl::StatusOr<Session> session = Join(1);
    ASSERT_THAT(session, IsOk());
    ExpectLoads(*session, 0);
    EXPECT_THAT(session->Barrier(), IsOk());
  }
  absl::StatusOr<Session> session = Join(1);
  ASSERT_THAT(session, IsOk());
  std::string global;
  EXPECT_THAT(session->Load(global),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("without a local model, and in the life before it was with one")));
  over.count_down();
  other.join();
}

TEST_F(LocalSessionPairsTest, AnImpossibleNumberOfCopiesIsRefused) {
  Make(1, 1);
  for (const int copies : {0, 16}) {
    spmd::Options options = OptionsOf(0);
    options.local_copies = copies;
    EXPECT_THAT(Session::Join(*Connect(0), options).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it is 1 to 15")));
  }
}

}  // namespace
}  // namespace phalanx::runtime
