#include "src/net/pull/transfer_buffer.h"

#include <algorithm>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/common/threads/mutex.h"
#include "src/net/loop/event_loop.h"
#include "src/net/testing/plane_objects.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::net {
namespace {

using ::phalanx::testing::StatusIs;
using testing::ByteAt;
using testing::EmptyBuffer;
using testing::FirstWrongByte;
using testing::Grow;

void ExpectCovers(const SliceLayout& layout) {
  uint64_t end = 0;
  for (int i = 0; i < layout.slices; ++i) {
    ASSERT_EQ(layout.Begin(i), end) << layout.object_bytes << "/" << layout.slices;
    end += layout.Size(i);
    if (i + 1 < layout.slices) {
      ASSERT_EQ(layout.Size(i), layout.Size(0));
    }
  }
  ASSERT_EQ(end, layout.object_bytes);
}

TEST(SliceLayout, SlicesCoverTheObjectWithoutGapOrOverlap) {
  for (int slices = 1; slices <= kMaxSlices; ++slices) {
    for (uint64_t bytes = 0; bytes < 10'000; bytes = bytes + bytes / 7 + 1) {
      ExpectCovers({bytes, slices});
    }
    for (const uint64_t bytes : {uint64_t{64} * 64, uint64_t{1} << 20, kMaxObjectBytes}) {
      for (uint64_t off = 0; off < 130; ++off) ExpectCovers({bytes - off, slices});
    }
  }
}

TEST(SliceLayout, AllButTheLastAreMultiplesOfACacheLineWhereTheSizeAllows) {
  for (int slices = 2; slices <= kMaxSlices; ++slices) {
    for (uint64_t bytes = 64 * static_cast<uint64_t>(slices); bytes < 20'000; bytes += 13) {
      const SliceLayout layout{bytes, slices};
      ASSERT_EQ(layout.Size(0) % 64, 0u) << bytes << "/" << slices;
      ASSERT_GT(layout.Size(slices - 1), 0u) << bytes << "/" << slices;
    }
  }
}

TEST(SliceLayout, LargeObjectsAreCutEvenly) {
  const SliceLayout layout{1'000'000, 7};
  EXPECT_EQ(layout.Size(0), 142'912u);
  EXPECT_EQ(layout.Size(6), 142'528u);
}

class TransferBufferTest : public ::testing::Test {
 protected:
  ~TransferBufferTest() override { process_.reset(); }

  Task Count(int& count) {
    return [&count] { ++count; };
  }
  void RunPending() { scheduler_.RunFor(absl::Milliseconds(1)); }

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_ = scheduler_.NewProcess("p");
  sim::SimExecutor& loop_ = process_->NewExecutor("loop");
};

TEST_F(TransferBufferTest, StartsEmptyAndFills) {
  auto buffer = EmptyBuffer(1000, 2);
  EXPECT_EQ(buffer->bytes_present(), 0u);
  EXPECT_FALSE(buffer->complete());
  Grow(*buffer, 1, 100);
  EXPECT_EQ(buffer->watermark(0), 0u);
  EXPECT_EQ(buffer->watermark(1), 100u);
  Grow(*buffer, 0, buffer->layout().Size(0));
  Grow(*buffer, 1, buffer->layout().Size(1));
  EXPECT_TRUE(buffer->complete());
  EXPECT_EQ(FirstWrongByte(*buffer), std::nullopt);
}

TEST_F(TransferBufferTest, AnEmptyObjectIsComplete) { EXPECT_TRUE(EmptyBuffer(0)->complete()); }

TEST_F(TransferBufferTest, TheMemoryLivesAsLongAsTheBuffer) {
  auto memory = std::make_shared<std::vector<char>>(10);
  std::weak_ptr<std::vector<char>> watch = memory;
  auto buffer =
      std::make_shared<TransferBuffer>(SliceLayout{10, 1}, absl::MakeSpan(*memory), memory);
  memory.reset();
  EXPECT_FALSE(watch.expired());
  buffer.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(TransferBufferTest, WakesASubscriberOnceAndInALaterTurn) {
  auto buffer = EmptyBuffer(100);
  int woken = 0;
  buffer->Subscribe(1, {0}, loop_, Count(woken));
  Grow(*buffer, 0, 1);
  EXPECT_EQ(woken, 0) << "not from within Publish";
  Grow(*buffer, 0, 2);
  RunPending();
  EXPECT_EQ(woken, 1);
  Grow(*buffer, 0, 3);
  RunPending();
  EXPECT_EQ(woken, 1);
}

TEST_F(TransferBufferTest, WakesSoonIfTheBytesAreAlreadyPresent) {
  auto buffer = EmptyBuffer(100);
  Grow(*buffer, 0, 50);
  int woken = 0;
  buffer->Subscribe(1, {49}, loop_, Count(woken));
  EXPECT_EQ(woken, 0);
  RunPending();
  EXPECT_EQ(woken, 1);
}

TEST_F(TransferBufferTest, WakesOnlyForTheSubscribedSlicesAndPastTheSeenWatermark) {
  auto buffer = EmptyBuffer(300, 3);
  int woken = 0;
  buffer->Subscribe(0b101, {0, 0, 40}, loop_, Count(woken));
  Grow(*buffer, 1, 50);
  Grow(*buffer, 2, 40);
  RunPending();
  EXPECT_EQ(woken, 0);
  Grow(*buffer, 2, 41);
  RunPending();
  EXPECT_EQ(woken, 1);
}

TEST_F(TransferBufferTest, CloseWakesEarlierAndLaterSubscribers) {
  auto buffer = EmptyBuffer(100, 2);
  int woken = 0;
  buffer->Subscribe(0b01, {100, 100}, loop_, Count(woken));
  buffer->Subscribe(0b10, {0, 0}, loop_, Count(woken));
  buffer->Close(absl::AbortedError("gone"));
  RunPending();
  EXPECT_EQ(woken, 2);
  buffer->Subscribe(0b01, {100, 100}, loop_, Count(woken));
  RunPending();
  EXPECT_EQ(woken, 3);
}

TEST_F(TransferBufferTest, TheFirstCloseCountsAndNothingIsPublishedAfterIt) {
  auto buffer = EmptyBuffer(100);
  PHALANX_EXPECT_OK(buffer->close_status());
  Grow(*buffer, 0, 10);
  buffer->Close(absl::AbortedError("first"));
  buffer->Close(absl::OkStatus());
  EXPECT_TRUE(buffer->closed());
  EXPECT_THAT(buffer->close_status(), StatusIs(absl::StatusCode::kAborted, "first"));
  buffer->Publish(0, 20);
  EXPECT_EQ(buffer->watermark(0), 10u);
}

TEST_F(TransferBufferTest, AnUnsubscribedTaskNeverRuns) {
  auto buffer = EmptyBuffer(100);
  int woken = 0;
  const auto before = buffer->Subscribe(1, {0}, loop_, Count(woken));
  const auto posted = buffer->Subscribe(1, {0}, loop_, Count(woken));
  buffer->Unsubscribe(before);
  Grow(*buffer, 0, 1);
  // Its wake-up is posted, and is cancelled before it runs.
  buffer->Unsubscribe(posted);
  buffer->Unsubscribe(4711);
  RunPending();
  EXPECT_EQ(woken, 0);
}

TEST_F(TransferBufferTest, UnsubscribeDestroysThePendingTask) {
  auto buffer = EmptyBuffer(100);
  auto owned = std::make_shared<int>(0);
  const auto id = buffer->Subscribe(1, {0}, loop_, [owned] {});
  EXPECT_EQ(owned.use_count(), 2);
  buffer->Unsubscribe(id);
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(TransferBufferTest, ADestroyedBufferDropsItsSubscriptions) {
  auto buffer = EmptyBuffer(100);
  int woken = 0;
  auto owned = std::make_shared<int>(0);
  buffer->Subscribe(1, {5}, loop_, [owned] {});
  buffer->Subscribe(1, {0}, loop_, Count(woken));
  Grow(*buffer, 0, 1);
  buffer.reset();
  EXPECT_EQ(owned.use_count(), 1);
  RunPending();
  EXPECT_EQ(woken, 1) << "what was under way arrives";
}

TEST_F(TransferBufferTest, WakingALoopThatHasShutDownIsHarmless) {
  auto buffer = EmptyBuffer(100);
  int woken = 0;
  buffer->Subscribe(1, {0}, loop_, Count(woken));
  process_->Kill();
  Grow(*buffer, 0, 1);
  buffer->Close(absl::OkStatus());
  EXPECT_EQ(woken, 0);
}

// A reader on its own loop that follows one slice to its end and checks every byte.
class Follower {
 public:
  Follower(std::shared_ptr<TransferBuffer> buffer, int slice, std::latch& finished)
      : buffer_(std::move(buffer)), slice_(slice), finished_(finished) {
    PHALANX_EXPECT_OK(loop_.Start("follower"));
    loop_.Post([this] { Follow(); });
  }
  ~Follower() { loop_.Stop(); }

  int wrong() const { return wrong_; }
  int wakes() const { return wakes_; }

 private:
  void Follow() {
    ++wakes_;
    const uint64_t end = buffer_->watermark(slice_);
    const uint64_t begin = buffer_->layout().Begin(slice_);
    for (; seen_ < end; ++seen_) {
      if (buffer_->slice(slice_)[seen_] != ByteAt(begin + seen_)) ++wrong_;
    }
    if (seen_ == buffer_->layout().Size(slice_)) {
      finished_.count_down();
      return;
    }
    std::vector<uint64_t> seen(static_cast<size_t>(buffer_->layout().slices), 0);
    seen[static_cast<size_t>(slice_)] = seen_;
    const auto id = buffer_->Subscribe(uint64_t{1} << slice_, seen, loop_, [this] { Follow(); });
    // Sometimes unsubscribes and subscribes again.
    if (wakes_ % 7 != 0) return;
    buffer_->Unsubscribe(id);
    loop_.Post([this] { Follow(); });
  }

  EventLoop loop_;
  const std::shared_ptr<TransferBuffer> buffer_;
  const int slice_;
  std::latch& finished_;
  uint64_t seen_ = 0;
  int wrong_ = 0;
  int wakes_ = 0;
};

TEST(TransferBufferThreads, ManyFollowersSeeEveryByteOfManyWritersAndMissNoWakeUp) {
  constexpr int kSlices = 3;
  constexpr int kFollowersPerSlice = 2;
  auto buffer = EmptyBuffer(600'000, kSlices);
  std::latch finished(kSlices * kFollowersPerSlice);
  std::vector<std::unique_ptr<Follower>> followers;
  for (int i = 0; i < kSlices * kFollowersPerSlice; ++i) {
    followers.push_back(std::make_unique<Follower>(buffer, i % kSlices, finished));
  }
  std::vector<std::thread> writers;
  for (int slice = 0; slice < kSlices; ++slice) {
    writers.emplace_back([buffer, slice] {
      const uint64_t size = buffer->layout().Size(slice);
      for (uint64_t at = 0; at < size;) {
        at = std::min(size, at + 1 + at % 97);
        Grow(*buffer, slice, at);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  // A lost wake-up would leave its follower waiting until the time limit of the test.
  finished.wait();
  for (auto& follower : followers) {
    EXPECT_EQ(follower->wrong(), 0);
    EXPECT_GT(follower->wakes(), 0);
  }
}

TEST(TransferBufferThreads, CloseRacesWithPublishAndSubscribe) {
  for (int round = 0; round < 200; ++round) {
    auto buffer = EmptyBuffer(1000);
    EventLoop loop;
    Mutex mu;
    CondVar changed;
    bool woken = false;
    PHALANX_EXPECT_OK(loop.Start("reader"));
    std::thread writer([&] {
      for (uint64_t i = 1; i <= 1000; ++i) buffer->Publish(0, i);
    });
    std::thread closer([&] { buffer->Close(absl::AbortedError("enough")); });
    loop.Post([&] {
      buffer->Subscribe(1, {1000}, loop, [&] {
        MutexLock lock(mu);
        woken = true;
        changed.Signal();
      });
    });
    {
      MutexLock lock(mu);
      while (!woken) changed.Wait(mu);
    }
    writer.join();
    closer.join();
    loop.Stop();
    EXPECT_TRUE(buffer->closed());
  }
}

}  // namespace
}  // namespace phalanx::net
