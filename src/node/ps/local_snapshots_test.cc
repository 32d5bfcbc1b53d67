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
using testing::IsOk;
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
  // The number and the bytes that a life finds: "3 three", or nothing.
  std::string Found(uint64_t life) const {
    SnapshotStore store = Store(life);
    const auto found = store.Find(kDeadline);
    if (!found.ok()) return std::string(found.status().message());
    if (!found->has_value()) return "";
    return absl::StrCat((*found)->number, " ", (*found)->bytes.view());
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
      store.Write(absl::StrCat("bytes", ++number));
      ASSERT_THAT(Written(store), IsOk());
      store.FreeOlder();
      EXPECT_EQ(Found(life + 1), absl::StrCat(number, " bytes", number));
    }
  }
}

TEST_F(LocalSnapshotsTest, AnEndedJobBeginsAnew) {
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  store.Write("one");
  ASSERT_THAT(Written(store), IsOk());
  ASSERT_THAT(store.End(kDeadline), IsOk());
  EXPECT_EQ(Found(0), "");
  SnapshotStore next = Store(0);
  ASSERT_THAT(next.Find(kDeadline), IsOk());
  next.Write("two");
  ASSERT_THAT(Written(next), IsOk());
  EXPECT_EQ(Found(1), "3 two");
}

TEST_F(LocalSnapshotsTest, WhatAFailedAttemptHasLeftDoesNotCount) {
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  // The node has the bytes when the time for their copies is over.
  store.Write("old", absl::ZeroDuration());
  ASSERT_THAT(Written(store), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Found(1), "");
  store.Write("new");
  ASSERT_THAT(Written(store), IsOk());
  EXPECT_EQ(Found(1), "1 new");
}

TEST_F(LocalSnapshotsTest, WhatAnEarlierRunHasLeftUnmarkedDoesNotCount) {
  SnapshotStore earlier = Store(0);
  ASSERT_THAT(earlier.Find(kDeadline), IsOk());
  earlier.Write("old", absl::ZeroDuration());
  ASSERT_THAT(Written(earlier), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // Lives begin at 0 again.
  SnapshotStore store = Store(0);
  ASSERT_THAT(store.Find(kDeadline), IsOk());
  store.Write("new");
  ASSERT_THAT(Written(store), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Found(1), "");
  store.Write("new");
  ASSERT_THAT(Written(store), IsOk());
  EXPECT_EQ(Found(1), "1 new");
}

}  // namespace
}  // namespace phalanx::runtime
