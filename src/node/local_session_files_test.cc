// Sessions on real nodes whose checkpoints are on disks as well: all ranks die, and the job goes
// on.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/testing/sessions_fixture.h"

namespace phalanx::runtime {
namespace {

class LocalSessionFilesTest : public SessionsFixture {
 protected:
  // Rank r's files are in a directory of its own, as on hosts with their own disks.
  void SetUp() override {
    std::string name = absl::StrCat(::testing::TempDir(), "/disks-XXXXXX");
    root_ = mkdtemp(name.data());
  }
  // Calls `body` in a run of the job that ends with the deaths of all ranks, or as all leave.
  void RunOnce(const std::function<void(Session&)>& body, bool leaves = false) {
    std::latch all(world_);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_; ++rank) {
      ranks.emplace_back([&, rank] {
        spmd::Options options = OptionsOf(rank);
        options.checkpoint_dir = DiskOf(rank);
        absl::StatusOr<Session> session = Session::Join(*Connect(NodeOf(rank)), options);
        EXPECT_THAT(session, IsOk());
        if (session.ok()) body(*session);
        all.arrive_and_wait();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < world_ && !leaves; ++rank) WaitForDeath(rank);
  }
  std::string DiskOf(int rank) const {
    const std::string disk = absl::StrCat(root_, "/", rank);
    std::filesystem::create_directories(disk);
    return disk;
  }
  size_t FilesOf(int rank) const {
    const auto begin = std::filesystem::directory_iterator(DiskOf(rank));
    return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

  std::string root_;
};

TEST_F(LocalSessionFilesTest, AJobWhoseRanksHaveAllDiedGoesOnFromTheNewestVersionOnAnyDisk) {
  Make(2, 3);
  RunOnce([&](Session& session) {
    std::string model = "new";
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_EQ(model, "new");
    for (int version = 1; version <= 3; ++version) {
      EXPECT_THAT(session.Barrier(), IsOk());
      // One rank has not come to the last one. A lazy checkpoint is written, too.
      if (version == 3 && session.rank() != 1) break;
      const std::string saved = absl::StrCat("model ", version);
      EXPECT_THAT(session.LazyCheckpoint(saved), IsOk());
    }
  });
  for (int run = 1; run <= 2; ++run) {
    RunOnce([&](Session& session) {
      int64_t boot = 0;
      // The calls of Load follow those with names and without.
      EXPECT_THAT(session.Broadcast(&boot, sizeof(boot), 0, run == 1 ? "" : "boot"), IsOk());
      std::string model;
      EXPECT_THAT(session.Load(model), IsOkAndHolds(3u));
      EXPECT_EQ(model, "model 3");
      EXPECT_EQ(session.version(), 3u);
      // All have it: the files before it are removed.
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_EQ(FilesOf(session.rank()), 1u);
    });
  }
  RunOnce(
      [&](Session& session) {
        std::string model;
        EXPECT_THAT(session.Load(model), IsOkAndHolds(3u));
        EXPECT_THAT(session.Checkpoint(std::string("model 4")), IsOk());
        EXPECT_THAT(session.Barrier(), IsOk());
        EXPECT_THAT(session.Leave(), IsOk());
        // A mark stays, since files can be on other disks.
        EXPECT_EQ(FilesOf(session.rank()), 1u);
      },
      /*leaves=*/true);
}

// A rank moves to another host, and leaves a file on the disk of the first one.
TEST_F(LocalSessionFilesTest, WhatIsLeftOfARunThatHasEndedIsNotRead) {
  Make(2, 2);
  for (const bool local : {false, true}) {
    job_ = absl::StrCat("moved", local);
    const auto load = [local](Session& session) {
      std::string model, own;
      const absl::StatusOr<uint64_t> version =
          local ? session.Load(model, own) : session.Load(model);
      EXPECT_EQ(model, version.ok() && *version > 0 ? absl::StrCat("model ", *version) : "");
      return version;
    };
    const auto write = [local](Session& session) {
      const std::string model = absl::StrCat("model ", session.version() + 1);
      return local ? session.Checkpoint(model, std::string("local")) : session.Checkpoint(model);
    };
    std::latch dead(1);
    RunOnce(
        [&](Session& session) {
          EXPECT_THAT(load(session), IsOkAndHolds(0u));
          EXPECT_THAT(write(session), IsOk());
          EXPECT_THAT(session.Barrier(), IsOk());
          if (session.rank() == 0) {
            dead.wait();
            EXPECT_THAT(session.Barrier(), IsOk());
            EXPECT_THAT(session.Leave(), IsOk());
            return;
          }
          const auto client = Connect(1);
          { const Session ends = std::move(session); }
          spmd::Options options = OptionsOf(1);
          options.checkpoint_dir = DiskOf(2);
          absl::StatusOr<Session> next = Session::Join(*client, options);
          ASSERT_THAT(next, IsOk());
          dead.count_down();
          EXPECT_THAT(load(*next), IsOkAndHolds(1u));
          EXPECT_THAT(next->Barrier(), IsOk());
          EXPECT_THAT(next->Barrier(), IsOk());
          EXPECT_THAT(next->Leave(), IsOk());
        },
        /*leaves=*/true);
    EXPECT_EQ(FilesOf(0), 1u);
    EXPECT_EQ(FilesOf(1), 1u);
    EXPECT_EQ(FilesOf(2), 1u);
    // Rank 0 alone sees that the run has ended.
    RunOnce([&](Session& session) {
      EXPECT_THAT(load(session), IsOkAndHolds(0u));
      EXPECT_EQ(FilesOf(session.rank()), session.rank() == 0 ? 1u : 0u);
      EXPECT_THAT(write(session), IsOk());
    });
    RunOnce(
        [&](Session& session) {
          EXPECT_THAT(load(session), IsOkAndHolds(1u));
          EXPECT_THAT(session.Leave(), IsOk());
        },
        /*leaves=*/true);
    std::filesystem::remove_all(root_);
  }
}

// So has a run that could not see all disks, when it goes on.
TEST_F(LocalSessionFilesTest, ALaterRunCountsAlsoIfItHasFewerVersions) {
  Make(2, 2);
  const auto run = [&](uint64_t loads, int checkpoints, const std::string& text) {
    RunOnce([&](Session& session) {
      std::string model;
      EXPECT_THAT(session.Load(model), IsOkAndHolds(loads));
      EXPECT_EQ(model, loads == 0 ? "" : text);
      for (int i = 0; i < checkpoints; ++i) {
        EXPECT_THAT(session.Checkpoint(absl::StrCat(text, "+")), IsOk());
      }
      EXPECT_THAT(session.Barrier(), IsOk());
    });
  };
  run(0, 1, "a");
  std::filesystem::copy(DiskOf(1), root_ + "/kept", std::filesystem::copy_options::recursive);
  run(1, 5, "a+");
  // The disk of rank 0 is away, and that of rank 1 is as it was.
  std::filesystem::rename(DiskOf(0), root_ + "/away");
  std::filesystem::remove_all(DiskOf(1));
  std::filesystem::rename(root_ + "/kept", DiskOf(1));
  run(1, 0, "a+");
  run(1, 1, "a+");
  // It comes back, with version 6 of the run before: one with the same number as the first of those
  // since then.
  const std::string back = root_ + "/away";
  for (const auto& file : std::filesystem::directory_iterator(back)) {
    std::filesystem::copy(file.path(), DiskOf(0));
  }
  run(2, 0, "a++");
}

TEST_F(LocalSessionFilesTest, WhatARankHasNotEndedToWriteIsRemoved) {
  Make(1, 1);
  RunOnce([&](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), IsOk());
    EXPECT_THAT(session.Checkpoint(std::string("model")), IsOk());
  });
  ASSERT_EQ(FilesOf(0), 1u);
  const std::filesystem::path whole = std::filesystem::directory_iterator(DiskOf(0))->path();
  std::filesystem::copy(whole, absl::StrCat(whole.string(), ".0.writing"));
  std::filesystem::copy(whole, absl::StrCat(whole.string(), ".1.writing"));
  checkpoint_dir_ = DiskOf(0);
  absl::StatusOr<Session> session = Join(0);
  ASSERT_THAT(session, IsOk());
  // That of another rank stays.
  EXPECT_EQ(FilesOf(0), 2u);
  std::string model;
  EXPECT_THAT(session->Load(model), IsOkAndHolds(1u));
}

TEST_F(LocalSessionFilesTest, WithLocalModelsItGoesOnFromTheNewestVersionOnAllDisks) {
  Make(2, 3);
  const auto local_of = [](int rank, uint64_t version) {
    return absl::StrCat("rank ", rank, " version ", version);
  };
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local), IsOkAndHolds(0u));
    for (uint64_t version = 1; version <= 3; ++version) {
      EXPECT_THAT(session.Barrier(), IsOk());
      if (version == 3 && session.rank() == 1) break;
      EXPECT_THAT(
          session.Checkpoint(absl::StrCat("model ", version), local_of(session.rank(), version)),
          IsOk());
    }
  });
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local), IsOkAndHolds(2u));
    EXPECT_EQ(model, "model 2");
    EXPECT_EQ(local, local_of(session.rank(), 2));
    EXPECT_THAT(session.Barrier(), IsOk());
    // What the run before had written stays until this one frees a version, and is not this run's.
    for (uint64_t version = 3; version <= 5; ++version) {
      EXPECT_THAT(session.Checkpoint(model, local), IsOk());
      EXPECT_THAT(session.Barrier(), IsOk());
      EXPECT_THAT(session.Barrier(), IsOk());
    }
    EXPECT_LE(FilesOf(session.rank()), 3u);
  });
  RunOnce([&](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), StatusIs(absl::StatusCode::kInvalidArgument,
                                              HasSubstr("the files of rank 0 are with one")));
  });
}

TEST_F(LocalSessionFilesTest, ARankWithoutFilesIsNamedAndTheOthersKeepTheirs) {
  Make(2, 3);
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local), IsOkAndHolds(0u));
    EXPECT_THAT(session.Checkpoint(std::string("model"), std::string("local")), IsOk());
    EXPECT_THAT(session.Barrier(), IsOk());
  });
  std::filesystem::rename(DiskOf(1), root_ + "/away");
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("rank 1 has no whole file")));
  });
  EXPECT_EQ(FilesOf(0), 1u);
  std::filesystem::remove(DiskOf(1));
  std::filesystem::rename(root_ + "/away", root_ + "/1");
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local), IsOkAndHolds(1u));
    EXPECT_EQ(local, "local");
  });
}

// The calls of Load are no boot calls, so its next life says the same as the others.
TEST_F(LocalSessionFilesTest, ARankWithALocalModelThatDiesInVersionZeroGoesOnWithTheOthers) {
  Make(2, 2);
  std::latch dead(1);
  RunOnce([&](Session& session) {
    std::string model, local;
    EXPECT_THAT(session.Load(model, local), IsOkAndHolds(0u));
    EXPECT_THAT(session.Barrier(), IsOk());
    if (session.rank() == 0) {
      dead.wait();
      EXPECT_THAT(session.Barrier(), IsOk());
      return;
    }
    const auto client = Connect(1);
    spmd::Options options = OptionsOf(1);
    options.checkpoint_dir = DiskOf(1);
    { const Session ends = std::move(session); }
    absl::StatusOr<Session> next = Session::Join(*client, options);
    ASSERT_THAT(next, IsOk());
    dead.count_down();
    EXPECT_THAT(next->Load(model, local), IsOkAndHolds(0u));
    EXPECT_THAT(next->Barrier(), IsOk());
    EXPECT_THAT(next->Barrier(), IsOk());
  });
}

TEST_F(LocalSessionFilesTest, ARankThatDiesInARunFromDisksGoesOnWithTheOthers) {
  Make(2, 2);
  RunOnce([&](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), IsOk());
    EXPECT_THAT(session.Checkpoint(std::string("model 1")), IsOk());
    EXPECT_THAT(session.Barrier(), IsOk());
  });
  // It dies behind Load, and behind a call of version 1.
  for (const int calls : {0, 1}) {
    std::latch dead(1);
    RunOnce([&](Session& session) {
      std::string model;
      EXPECT_THAT(session.Load(model), IsOkAndHolds(1u));
      for (int i = 0; i < calls; ++i) EXPECT_THAT(session.Barrier(), IsOk());
      if (session.rank() == 0) {
        dead.wait();
        int64_t sum = 1;
        EXPECT_THAT(session.Allreduce(absl::MakeSpan(&sum, 1)), IsOk());
        EXPECT_EQ(sum, 3);
        return;
      }
      const auto client = Connect(1);
      spmd::Options options = OptionsOf(1);
      options.checkpoint_dir = DiskOf(1);
      { const Session ends = std::move(session); }
      absl::StatusOr<Session> next = Session::Join(*client, options);
      ASSERT_THAT(next, IsOk());
      dead.count_down();
      std::string again;
      EXPECT_THAT(next->Load(again), IsOkAndHolds(1u));
      EXPECT_EQ(again, "model 1");
      for (int i = 0; i < calls; ++i) EXPECT_THAT(next->Barrier(), IsOk());
      int64_t sum = 2;
      EXPECT_THAT(next->Allreduce(absl::MakeSpan(&sum, 1)), IsOk());
      EXPECT_EQ(sum, 3);
    });
  }
}

TEST_F(LocalSessionFilesTest, ErrorsOfTheDiskNameItAndChangeNothing) {
  Make(1, 1);
  checkpoint_dir_ = absl::StrCat(root_, "/absent");
  EXPECT_THAT(Join(0).status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(checkpoint_dir_)));
  checkpoint_dir_ = DiskOf(0);
  absl::StatusOr<Session> session = Join(0);
  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(session->life(), 0u);
  std::string model;
  EXPECT_THAT(session->Load(model), IsOkAndHolds(0u));
  std::filesystem::remove_all(checkpoint_dir_);
  EXPECT_THAT(session->Checkpoint(std::string("model")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(checkpoint_dir_)));
  EXPECT_EQ(session->version(), 0u);
  DiskOf(0);
  EXPECT_THAT(session->Checkpoint(std::string("model")), IsOk());
  EXPECT_EQ(session->version(), 1u);
  EXPECT_EQ(FilesOf(0), 1u);
}

}  // namespace
}  // namespace phalanx::runtime
