// Snapshots of a server's part as objects of real nodes: the next life finds the newest one.
#include <memory>
#include <optional>
#include <string>

#include "src/client/ps/snapshot_store.h"
#include "src/common/time/clock.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::internal::SnapshotStore;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

class LocalSnapshotsTest : public PsFixture {
 protected:
  LocalSnapshotsTest() {
    Make(/*nodes=*/2, /*servers=*/1, /*workers=*/1);
    client_ = Connect(0);
  }

  SnapshotStore Store(uint64_t life) const {
    return SnapshotStore(client_, "job/server/w/0", life, 1);
  }
  // What Write has begun. Questions to the node take in its answers.
  absl::Status Written(SnapshotStore& store) const {
    const Instant until = MonotonicNow() + kDeadline;
    while (MonotonicNow() < until) {
      const std::optional<absl::Status> written = store.TakeWritten();
      if (written.has_value()) return *written;
      client_->Contains(client_->Id("other", "name")).Wait(kDeadline).IgnoreError();
    }
    return absl::DeadlineExceededError("not written");
  }
  // The attempt and the bytes that a life finds: "3 three", or nothing.
  std::string Found(uint64_t life) const {
    SnapshotStore store = Store(life);
    const auto found = store.Find(kDeadline);
    if (!found.ok()) return std::string(found.status().message());
    if (!found->has_value()) return "";
    return absl::StrCat((*found)->attempt, " ", (*found)->bytes.view());
  }

  std::shared_ptr<Client> client_;
};

TEST_F(LocalSnapshotsTest, TheNextLifeFindsTheNewest) {
  EXPECT_EQ(Found(0), "");
  uint64_t number = 0;
  for (uint64_t life = 0; life < 3; ++life) {
    SnapshotStore store = Store(life);
    ASSERT_THAT(store.Find(kDeadline), IsOk());
    for (int i = 0; i < 5; ++i) {
      ++number;
      store.Write(number, absl::StrCat("bytes", number));
      ASSERT_THAT(Written(store), IsOk());
      store.FreeOlder();
      EXPECT_EQ(Found(life + 1), absl::StrCat(number, " bytes", number));
    }
  }
}

// Names that a client keeps show in its errors.
TEST_F(LocalSnapshotsTest, ANameIsNotKeptInTheClient) {
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  store.Write(1, "bytes");
  ASSERT_THAT(Written(store), IsOk());
  const ObjectId id = ObjectId::FromName("phalanx.ps", "job/server/w/0/1/life0/attempt1");
  ASSERT_THAT(client_->Delete(id).Wait(kDeadline), IsOk());
  const absl::Status status =
      client_->Get(id, GetOptions{.timeout = absl::Milliseconds(100)}).Wait(kDeadline).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("attempt1")));
}

TEST_F(LocalSnapshotsTest, AnEndedJobBeginsAnew) {
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  store.Write(1, "one");
  ASSERT_THAT(Written(store), IsOk());
  ASSERT_THAT(store.End(kDeadline), IsOk());
  EXPECT_EQ(Found(0), "");
  SnapshotStore next = Store(0);
  ASSERT_THAT(next.Find(kDeadline), IsOk());
  next.Write(1, "two");
  ASSERT_THAT(Written(next), IsOk());
  EXPECT_EQ(Found(1), "1 two");
}

TEST_F(LocalSnapshotsTest, WhatAFailedAttemptHasLeftDoesNotCount) {
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  // The node has the bytes when the time for their copies is over.
  store.Write(1, "old", absl::ZeroDuration());
  ASSERT_THAT(Written(store), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Found(1), "");
  store.Write(2, "new");
  ASSERT_THAT(Written(store), IsOk());
  EXPECT_EQ(Found(1), "2 new");
}

// A server counts from its own first number in each run, and has to find it again.
TEST_F(LocalSnapshotsTest, AJobRunsAnyNumberOfTimes) {
  for (int run = 0; run < 50; ++run) {
    SnapshotStore first = Store(0);
    PHALANX_ASSERT_OK_AND_ASSIGN(const auto nothing, first.Find(kDeadline));
    ASSERT_FALSE(nothing.has_value()) << "run " << run;
    for (const uint64_t attempt : {1, 2, 3}) {
      first.Write(attempt, absl::StrCat("run ", run));
      ASSERT_THAT(Written(first), IsOk()) << "run " << run;
      first.FreeOlder();
    }
    SnapshotStore second = Store(1);
    PHALANX_ASSERT_OK_AND_ASSIGN(const auto found, second.Find(kDeadline));
    ASSERT_TRUE(found.has_value()) << "run " << run;
    EXPECT_EQ(found->attempt, 3u);
    EXPECT_EQ(found->bytes.view(), absl::StrCat("run ", run));
    ASSERT_THAT(second.End(kDeadline), IsOk());
  }
}

// The run can last longer than the number of the one before it stays.
TEST_F(LocalSnapshotsTest, ARunDoesNotNeedWhatTheOneBeforeHasLeft) {
  for (int run = 0; run < 3; ++run) {
    SnapshotStore store = Store(0);
    ASSERT_THAT(store.Find(kDeadline), IsOk());
    // The end of the run before goes, as it does after an hour.
    if (run > 0) {
      const ObjectId end = client_->Id("phalanx.ps", "job/server/w/0/base/1");
      ASSERT_THAT(client_->Delete(end).Wait(kDeadline), IsOk());
    }
    for (const uint64_t attempt : {1, 2, 3}) {
      store.Write(attempt, "bytes");
      ASSERT_THAT(Written(store), IsOk());
      EXPECT_EQ(Found(1), absl::StrCat(attempt, " bytes"));
    }
    ASSERT_THAT(store.End(kDeadline), IsOk());
  }
}

TEST_F(LocalSnapshotsTest, WhatAnEarlierRunHasLeftUnmarkedDoesNotCount) {
  SnapshotStore earlier = Store(0);
  ASSERT_THAT(earlier.Find(kDeadline), IsOk());
  earlier.Write(1, "old", absl::ZeroDuration());
  ASSERT_THAT(Written(earlier), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // Lives begin at 0 again.
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  store.Write(1, "new");
  ASSERT_THAT(Written(store), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Found(1), "");
  store.Write(2, "new");
  ASSERT_THAT(Written(store), IsOk());
  EXPECT_EQ(Found(1), "2 new");
}

}  // namespace
}  // namespace phalanx::runtime
