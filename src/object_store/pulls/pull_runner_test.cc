#include "src/object_store/pulls/pull_runner.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/fake_data_plane.h"
#include "src/object_store/testing/store_parts.h"

namespace phalanx::object_store {
namespace {

using testing::FakeDataPlane;
using testing::Kinds;
using testing::StoreParts;

// The decisions are those of a real PullManager; the data plane is a fake.
class PullRunnerTest : public StoreParts {
 protected:
  PullRunnerTest() {
    copies_.SetDataPlane(&plane_);
    runner_.SetDataPlane(&plane_);
  }
  ~PullRunnerTest() override {
    PHALANX_EXPECT_OK(runner_.CheckInvariants());
    // A pull that the test leaves running is cancelled, and its end does not outlive the plane.
    plane_.cancel_at_once = false;
  }

  void GiveMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) override {
    runner_.OnMemory(owner, std::move(block));
  }
  // Carries out what was decided, as at the end of a turn.
  void Apply() {
    Run([this] {
      while (runner_.ApplyEffects()) {
      }
    });
    Run([this] {
      while (runner_.ApplyEffects()) {
      }
      for (const ObjectId& id : turns_.TakeTouched()) gets_.Resolve(id);
      while (runner_.ApplyEffects()) {
      }
    });
    PHALANX_EXPECT_OK(runner_.CheckInvariants());
  }
  template <typename Message>
  static Message About(uint64_t sequence, uint64_t bytes) {
    Message m;
    directory::ToProto(Generation{kPeer, sequence}, m.mutable_generation());
    m.mutable_info()->set_size_bytes(bytes);
    m.mutable_info()->set_slices(1);
    return m;
  }
  void Assign(int i, PlanId plan, uint64_t sequence = 1, uint64_t bytes = 8) {
    auto m = About<v1::Assign>(sequence, bytes);
    m.set_plan_id(plan);
    m.set_slices(1);
    directory::ToProto(kPeer, m.mutable_sender());
    Run([&] { pulls_.OnAssign(Id(i), m, Instant()); });
    Apply();
  }
  // A Fetch of the shard, up to a running pull.
  void StartPull(int i = 1) {
    Run([&] { runner_.Fetch(Id(i), /*keep=*/false, /*order=*/1); });
    Apply();
    Assign(i, /*plan=*/1);
    ASSERT_EQ(plane_.size(), 1u);
    Sent();
  }
  std::string BytesOf(int i) {
    const Copy* copy = table_.Complete(Id(i));
    if (copy == nullptr) return "";
    return std::string(copy->block->bytes().data(), copy->size_bytes);
  }
  void ReportDue() {
    Run([this] { runner_.ReportDue(loop_.Now()); });
  }
  void ExpireFetches() {
    Run([this] { runner_.ExpireFetches(loop_.Now()); });
    Apply();
  }

  FakeDataPlane plane_{loop_};
  PullRunner runner_{options_, loop_, turns_,        table_, pulls_,
                     copies_,  gets_, memory_queue_, peers_, channel_};
};

TEST_F(PullRunnerTest, APullIntoItsMemoryEndsInACompleteCopy) {
  Run([&] { runner_.Fetch(Id(1), /*keep=*/true, /*order=*/1); });
  Apply();
  EXPECT_EQ(Sent(), Kinds{"want"});
  Assign(1, /*plan=*/1);
  ASSERT_EQ(plane_.size(), 1u);
  const Copy* copy = table_.First(Id(1));
  EXPECT_EQ(copy->pins, 1u);
  EXPECT_EQ(copy->standing, Standing::kAdopted);
  EXPECT_EQ(runner_.started(), 1u);
  Run([&] { plane_.Finish(0, "12345678"); });
  Apply();
  EXPECT_EQ(Sent(), Kinds{"pull_report"});
  EXPECT_EQ(BytesOf(1), "12345678");
  EXPECT_TRUE(copy->primary) << "the shard wants it kept";
  EXPECT_EQ(copy->pins, 0u);
  EXPECT_TRUE(runner_.running().empty());
  EXPECT_FALSE(pulls_.Fetches(Id(1)));
}

TEST_F(PullRunnerTest, AFailedPullIsReportedAndItsBytesAreKept) {
  StartPull();
  Run([&] {
    plane_.Feed(0, "12345678", 3);
    plane_.End(0, absl::UnavailableError("gone"));
  });
  Apply();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_FALSE(sent_[0].pull_report().complete());
  EXPECT_EQ(sent_[0].pull_report().watermarks(0), 3u);
  EXPECT_EQ(runner_.failed(), 1u);
  Assign(1, /*plan=*/2);
  ASSERT_EQ(plane_.size(), 1u);
  Run([&] { plane_.Finish(0, "12345678"); });
  Apply();
  EXPECT_EQ(BytesOf(1), "12345678");
}

TEST_F(PullRunnerTest, APullThatBroughtEveryByteIsCompleteHoweverItEnded) {
  StartPull();
  Run([&] {
    while (plane_.Feed(0, "12345678", 8)) {
    }
    plane_.End(0, absl::UnavailableError("the last frame was lost"));
  });
  Apply();
  EXPECT_EQ(BytesOf(1), "12345678");
}

TEST_F(PullRunnerTest, ACancelledPullsCopyIsDropped) {
  StartPull();
  Run([&] { pulls_.OnVoid(Id(1), Generation{kPeer, 1}, absl::AbortedError("void")); });
  Apply();
  EXPECT_EQ(plane_.size(), 0u) << "its end is awaited, and comes";
  EXPECT_EQ(table_.First(Id(1)), nullptr);
  EXPECT_EQ(table_.used_bytes(), 0u);
  EXPECT_TRUE(runner_.running().empty());
}

TEST_F(PullRunnerTest, DeliveredBytesAreWrittenIntoTheirMemory) {
  Run([&] { runner_.Fetch(Id(1), /*keep=*/false, /*order=*/1); });
  Apply();
  auto m = About<v1::Deliver>(1, 8);
  m.set_inline_bytes("12345678");
  Run([&] { pulls_.OnDeliver(Id(1), m, Instant()); });
  Apply();
  EXPECT_EQ(BytesOf(1), "12345678");
  EXPECT_EQ(plane_.started(), 0);
  EXPECT_FALSE(table_.First(Id(1))->primary);
}

TEST_F(PullRunnerTest, APullThatNoLongerNeedsMemoryLeavesTheQueue) {
  AddCopy(2, CopyState::kWriting, 995);
  Run([&] { runner_.Fetch(Id(1), /*keep=*/false, /*order=*/1); });
  Apply();
  Assign(1, /*plan=*/1);
  EXPECT_EQ(memory_queue_.waiting(), 1u);
  Run([&] { pulls_.EndFetch(Id(1)); });
  Apply();
  EXPECT_EQ(memory_queue_.waiting(), 0u);
}

TEST_F(PullRunnerTest, ProgressIsReportedWhileAPullRuns) {
  StartPull();
  EXPECT_EQ(runner_.NextDeadline(), Now() + PullWatch::kTick) << "looks at the pull";
  ReportDue();
  EXPECT_EQ(Sent(), Kinds{}) << "not yet";
  Pass(options_.progress_interval);
  Run([&] { plane_.Feed(0, "12345678", 5); });
  ReportDue();
  ASSERT_EQ(sent_.size(), 1u);
  const v1::Progress progress = sent_[0].progress();
  ASSERT_EQ(progress.pulls_size(), 1);
  EXPECT_EQ(progress.pulls(0).plan_id(), 1u);
  EXPECT_EQ(progress.pulls(0).watermarks(0), 5u);
  EXPECT_DOUBLE_EQ(progress.pulls(0).bytes_per_second(), 20);
  EXPECT_EQ(progress.used_bytes(), 8u);
  Run([&] { plane_.Finish(0, "12345678"); });
  Apply();
  EXPECT_TRUE(runner_.NextDeadline().infinite());
}

TEST_F(PullRunnerTest, TheRateIsReportedSoonAfterTheFirstBytes) {
  StartPull();
  Pass(PullWatch::kTick);
  Run([&] { plane_.Feed(0, "12345678", 1); });
  ReportDue();
  EXPECT_EQ(Sent(), Kinds{}) << "the first bytes";
  Pass(PullWatch::kTick);
  ReportDue();
  Run([&] { plane_.Feed(0, "12345678", 4); });
  Pass(PullWatch::kTick);
  ReportDue();
  ASSERT_EQ(sent_.size(), 1u);
  const v1::Progress::Pull& pull = sent_[0].progress().pulls(0);
  EXPECT_EQ(pull.watermarks(0), 5u);
  EXPECT_DOUBLE_EQ(pull.bytes_per_second(), 100);
  EXPECT_EQ(pull.window_ns(), 40'000'000u);
  EXPECT_EQ(pull.silent_ns(), 0u);
  sent_.clear();
  Pass(options_.progress_interval - 3 * PullWatch::kTick);
  ReportDue();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_DOUBLE_EQ(sent_[0].progress().pulls(0).bytes_per_second(), 20) << "since the start";
}

TEST_F(PullRunnerTest, UsedMemoryIsReportedSoonAfterItHasChanged) {
  AddCopy(1, CopyState::kComplete);
  Run([&] { runner_.Settle(); });
  Pass(absl::Milliseconds(20));
  ReportDue();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].progress().used_bytes(), 4u);
  sent_.clear();
  Run([&] {
    runner_.BeginSession();
    runner_.Settle();
  });
  Pass(absl::Seconds(1));
  ReportDue();
  EXPECT_EQ(Sent(), Kinds{"progress"}) << "the shard of a new session does not know it";
}

TEST_F(PullRunnerTest, AFetchThatNoNodeServesEnds) {
  Run([&] { runner_.Fetch(Id(1), /*keep=*/false, /*order=*/1); });
  Apply();
  Sent();
  EXPECT_EQ(runner_.NextDeadline(), Now() + options_.fetch_patience);
  Pass(options_.fetch_patience);
  ExpireFetches();
  EXPECT_FALSE(pulls_.Fetches(Id(1)));
  EXPECT_EQ(Sent(), Kinds{"unwant"});
}

TEST_F(PullRunnerTest, AFetchWhosePullRunsContinues) {
  StartPull();
  Pass(options_.fetch_patience);
  ExpireFetches();
  EXPECT_TRUE(pulls_.Fetches(Id(1)));
  EXPECT_EQ(plane_.size(), 1u);
}

TEST_F(PullRunnerTest, TheErrorOfTheShardEndsTheGets) {
  absl::Status status;
  GetEvents events;
  events.on_view = [&](absl::StatusOr<View> view) { status = view.status(); };
  Run([&] { gets_.Get(client_, GetOptions{.id = Id(1)}, std::move(events)); });
  Apply();
  Run([&] { pulls_.OnRefused(Id(1), /*want=*/0, absl::AbortedError("its producer failed")); });
  Apply();
  HandOut();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace phalanx::object_store
