// Servers of a parameter server that sum and publish objects, on real nodes: lost pushes, and nodes
// without room.
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "src/common/time/clock.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Table;
using ps::TableSpec;
using ps::Worker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalPsSumsTest : public PsFixture {
 protected:
  static constexpr size_t kSize = 250'000;  // 1 MB

  // Server 0, on node 0.
  void Serve(const std::vector<TableSpec>& tables) {
    server_ = JoinServer(0, 0).value();
    for (const TableSpec& spec : tables) ASSERT_THAT(server_->AddTable(spec), IsOk());
    serves_ = std::thread([this] { EXPECT_THAT(server_->Run(), IsOk()); });
  }
  void TearDown() override {
    if (serves_.joinable()) serves_.join();
  }
  // All of node 0's memory but for so much.
  ObjectId FillNode(uint64_t capacity, uint64_t left) const {
    const ObjectId id = ObjectId::Random();
    EXPECT_THAT(Connect(0)->Put(id, std::string(capacity - left, 'x')).Wait(kDeadline), IsOk());
    return id;
  }
  // Objects that clients of the node hold, and parts of reductions.
  uint64_t LeftOn(int node) const {
    uint64_t left = 0;
    cluster_->OnNode(node, [&left](Node& each) {
      const auto stats = each.reducer().stats();
      left = each.store().stats().held + stats.folds + stats.waiting;
    });
    return left;
  }

  std::optional<ps::Server> server_;
  std::thread serves_;
};

TEST_F(LocalPsSumsTest, AClockWaitsForAPushThatIsLostWithItsNodeAndNothingElseDoes) {
  Make(/*nodes=*/3, /*servers=*/1, /*workers=*/2);
  Serve({{.name = "w", .keys = kSize, .snapshot_every = 0},
         {.name = "other", .keys = 1, .sync = ps::Sync::kAsp, .snapshot_every = 0}});
  const std::vector<float> one = {1.0f};
  std::optional<Worker> first, second;
  std::thread joins([&] { second = JoinWorker(1, 2).value(); });
  first = JoinWorker(0, 1).value();
  joins.join();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, first->Open<float>("w"));
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> other, first->Open<float>("other"));
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> of_second, second->Open<float>("w"));
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> behind, second->Open<float>("other"));
    ASSERT_THAT(of_second.PushDense(PushOf(1, 0, kSize)).Wait(kDeadline), IsOk());
    ASSERT_THAT(of_second.Clock(), IsOk());
    // The server has the end of the clock when it has this.
    ASSERT_THAT(behind.Push(std::vector<ps::Key>{0}, one).Wait(kDeadline), IsOk());
  }
  cluster_->KillNode(2);
  ASSERT_THAT(table.PushDense(PushOf(0, 0, kSize)).Wait(kDeadline), IsOk());
  ASSERT_THAT(table.Clock(), IsOk());
  std::vector<float> values(kSize);
  const Future<Done> pull = table.PullDense(absl::MakeSpan(values));
  // Two attempts are made in this time.
  const Instant until = MonotonicNow() + absl::Milliseconds(700);
  while (MonotonicNow() < until) {
    ASSERT_THAT(other.Push(std::vector<ps::Key>{0}, one).Wait(kDeadline), IsOk());
    ASSERT_FALSE(pull.ready());
  }
  second.reset();
  second = JoinWorker(1, 1).value();
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> again, second->Open<float>("w"));
  EXPECT_EQ(again.clock(), 0u);
  ASSERT_THAT(again.PushDense(PushOf(1, 0, kSize)).Wait(kDeadline), IsOk());
  ASSERT_THAT(again.Clock(), IsOk());
  ASSERT_THAT(pull.Wait(kDeadline), IsOk());
  EXPECT_TRUE(SameBits(values, SerialSum(2, 1, kSize)));
  EXPECT_THAT(first->Leave(), IsOk());
  EXPECT_THAT(second->Leave(), IsOk());
  serves_.join();
  // The server has ended its attempts, and the clients are still there.
  const Instant end = MonotonicNow() + kDeadline;
  while (LeftOn(0) + LeftOn(1) > 0 && MonotonicNow() < end) std::this_thread::yield();
  EXPECT_EQ(LeftOn(0) + LeftOn(1), 0u);
}

TEST_F(LocalPsSumsTest, ASumWaitsForRoom) {
  constexpr uint64_t kCapacity = uint64_t{8} << 20;
  MakeWithASmallNode(/*small=*/0, kCapacity, /*workers=*/2);
  const ObjectId filler = FillNode(kCapacity, uint64_t{128} << 10);
  Serve({{.name = "w", .keys = kSize, .snapshot_every = 0}});
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      absl::StatusOr<Worker> worker = JoinWorker(rank, 1);
      ASSERT_THAT(worker, IsOk());
      PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
      ASSERT_THAT(table.PushDense(PushOf(rank, 0, kSize)).Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
      std::vector<float> values(kSize);
      const Future<Done> pull = table.PullDense(absl::MakeSpan(values));
      if (rank == 0) {
        EXPECT_THAT(pull.Wait(absl::Milliseconds(500)),
                    StatusIs(absl::StatusCode::kDeadlineExceeded));
        EXPECT_THAT(Connect(0)->Delete(filler).Wait(kDeadline), IsOk());
      }
      ASSERT_THAT(pull.Wait(kDeadline), IsOk());
      EXPECT_TRUE(SameBits(values, SerialSum(2, 1, kSize)));
      EXPECT_THAT(worker->Leave(), IsOk());
    });
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_F(LocalPsSumsTest, APullOfAStateForWhichTheServerHasNoRoomIsRefused) {
  constexpr uint64_t kCapacity = uint64_t{8} << 20;
  MakeWithASmallNode(/*small=*/0, kCapacity, /*workers=*/1);
  const ObjectId filler = FillNode(kCapacity, uint64_t{128} << 10);
  Serve({{.name = "w", .keys = kSize, .sync = ps::Sync::kAsp, .snapshot_every = 0}});
  absl::StatusOr<Worker> worker = JoinWorker(0, 1);
  ASSERT_THAT(worker, IsOk());
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
  ASSERT_THAT(table.PushDense(PushOf(0, 0, kSize)).Wait(kDeadline), IsOk());
  std::vector<float> values(kSize);
  const absl::Status refused = table.PullDense(absl::MakeSpan(values)).Wait(kDeadline).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                ::testing::AllOf(HasSubstr("\"w\""), HasSubstr("be stored"))));
  EXPECT_THAT(Connect(0)->Delete(filler).Wait(kDeadline), IsOk());
  ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk());
  EXPECT_TRUE(SameBits(values, PushOf(0, 0, kSize)));
  EXPECT_THAT(worker->Leave(), IsOk());
}

TEST_F(LocalPsSumsTest, AStateThatWaitsForRoomHoldsUpNothingElse) {
  constexpr uint64_t kCapacity = uint64_t{8} << 20;
  MakeWithASmallNode(/*small=*/0, kCapacity, /*workers=*/1);
  const ObjectId filler = FillNode(kCapacity, uint64_t{512} << 10);
  Serve({{.name = "w", .keys = 2 * kSize, .sync = ps::Sync::kAsp, .snapshot_every = 0},
         {.name = "other", .keys = 10, .sync = ps::Sync::kAsp, .snapshot_every = 0}});
  absl::StatusOr<Worker> worker = JoinWorker(0, 1);
  ASSERT_THAT(worker, IsOk());
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker->Open<float>("w"));
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> other, worker->Open<float>("other"));
  const std::vector<float> pushed = PushOf(0, 0, 2 * kSize);
  ASSERT_THAT(table.PushDense(pushed).Wait(kDeadline), IsOk());
  std::vector<float> values(2 * kSize);
  const Future<Done> pull = table.PullDense(absl::MakeSpan(values));
  std::vector<float> some(10);
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(other.PullDense(absl::MakeSpan(some)).Wait(kDeadline), IsOk());
  }
  // The pull has the rows as they were then.
  ASSERT_THAT(table.PushDense(pushed).Wait(kDeadline), IsOk());
  EXPECT_FALSE(pull.ready());
  EXPECT_THAT(Connect(0)->Delete(filler).Wait(kDeadline), IsOk());
  ASSERT_THAT(pull.Wait(kDeadline), IsOk());
  EXPECT_TRUE(SameBits(values, pushed));
  EXPECT_THAT(worker->Leave(), IsOk());
}

}  // namespace
}  // namespace phalanx::runtime
