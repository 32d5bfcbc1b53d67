// Turns of a parameter server that are ring sums, on real nodes: rings that are made, what workers
// see where there is none, and what is left of attempts.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "src/client/ps/server_objects.h"
#include "src/common/time/clock.h"
#include "src/directory/grpc/tools_client.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::Table;
using ps::Worker;
using ps::internal::IdOfHandle;
using ps::internal::ServerObjects;
using testing::IsOk;
using testing::StatusIs;

class LocalPsRingsTest : public PsFixture {
 protected:
  static constexpr size_t kSize = 600'000;  // 2.4 MB

  void TearDown() override {
    if (serves_.joinable()) serves_.join();
  }
  // Server 0, on node 0, with the table "w".
  void Serve() {
    serves_ = std::thread([this] {
      absl::StatusOr<ps::Server> server = JoinServer(0, 0);
      ASSERT_THAT(server, IsOk());
      ASSERT_THAT(server->AddTable({.name = "w", .keys = kSize, .snapshot_every = 0}), IsOk());
      EXPECT_THAT(server->Run(), IsOk());
    });
  }
  // Workers 0 and 1, on nodes 1 and 2.
  void JoinBoth() {
    std::thread joins([this] { second_ = JoinWorker(1, 2).value(); });
    first_ = JoinWorker(0, 1).value();
    joins.join();
  }
  void LeaveBoth() {
    EXPECT_THAT(first_->Leave(), IsOk());
    EXPECT_THAT(second_->Leave(), IsOk());
  }
  // Both workers make these clocks, and pull behind each of them.
  void MakeClocks(uint64_t from, uint64_t to) {
    std::thread other([&] { MakeClocks(*second_, from, to); });
    MakeClocks(*first_, from, to);
    other.join();
  }
  void MakeClocks(Worker& worker, uint64_t from, uint64_t to) {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, worker.Open<float>("w"));
    std::vector<float> values(kSize);
    for (uint64_t clock = from; clock < to; ++clock) {
      ASSERT_EQ(table.clock(), clock);
      ASSERT_THAT(table.PushDense(PushOf(worker.rank(), clock, kSize)).Wait(kDeadline), IsOk());
      ASSERT_THAT(table.Clock(), IsOk());
      ASSERT_THAT(table.PullDense(absl::MakeSpan(values)).Wait(kDeadline), IsOk())
          << "worker " << worker.rank() << ", clock " << clock;
      EXPECT_TRUE(SameBits(values, Replayed(clock + 1, kSize))) << "clock " << clock;
    }
  }
  // That the directory has begun.
  uint64_t Rings() const {
    directory::ToolsClient tools({cluster_->directory()}, {});
    const auto status = tools.GetStatus();
    EXPECT_THAT(status.at(0).status(), IsOk());
    return status.at(0)->counters().at("rings");
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

  std::optional<Worker> first_, second_;
  std::thread serves_;
};

TEST_F(LocalPsRingsTest, TasksAtNodesOfTheirOwnMakeTheirTurnsInRings) {
  Make(/*nodes=*/3, /*servers=*/1, /*workers=*/2);
  Serve();
  JoinBoth();
  MakeClocks(0, 6);
  EXPECT_GE(Rings(), 1u);
  LeaveBoth();
}

// Workers are answered ahead, and then there is no ring: two of the tasks are at one node.
TEST_F(LocalPsRingsTest, ARingThatIsNotMadeEndsThePullsThatWaitForIt) {
  Make(/*nodes=*/3, /*servers=*/1, /*workers=*/2);
  Serve();
  JoinBoth();
  MakeClocks(0, 4);
  const uint64_t rings = Rings();
  EXPECT_GE(rings, 1u);
  second_.reset();
  second_ = JoinWorker(1, 1).value();
  MakeClocks(4, 7);
  EXPECT_EQ(Rings(), rings);
  LeaveBoth();
}

// What it has pushed ends with its node: pulls of its clock wait, and are of its next life's push.
TEST_F(LocalPsRingsTest, AMemberThatDiesHoldsUpItsClockAlone) {
  Make(/*nodes=*/3, /*servers=*/1, /*workers=*/2);
  Serve();
  JoinBoth();
  MakeClocks(0, 4);
  EXPECT_GE(Rings(), 1u);
  std::thread other([this] { MakeClocks(*first_, 4, 7); });
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, second_->Open<float>("w"));
    ASSERT_THAT(table.PushDense(PushOf(1, 4, kSize)).Wait(kDeadline), IsOk());
    ASSERT_THAT(table.Clock(), IsOk());
  }
  cluster_->KillNode(2);
  second_.reset();
  ASSERT_THAT(cluster_->RestartNode(2), IsOk());
  second_ = JoinWorker(1, 2).value();
  // The clock may have turned before.
  PHALANX_ASSERT_OK_AND_ASSIGN(Table<float> table, second_->Open<float>("w"));
  MakeClocks(*second_, table.clock(), 7);
  other.join();
  LeaveBoth();
}

// Such as are there when they are given up: a sum, one that a ring has made, and slices.
TEST_F(LocalPsRingsTest, AnAttemptThatIsGivenUpLeavesNoHold) {
  Make(/*nodes=*/3, /*servers=*/1, /*workers=*/2);
  const std::string bytes(kSize * sizeof(float), '\0');
  const auto put = [&](int node, absl::string_view handle) {
    const auto owner = Connect(node);
    EXPECT_THAT(owner->Put(IdOfHandle(handle), bytes).Wait(kDeadline), IsOk());
  };
  put(0, "rows");
  put(1, "a");
  put(2, "b");
  put(1, "c");
  ClientOptions options;
  options.address = cluster_->client_address(0);
  // Nothing else waits in a call of the client.
  options.callback_thread = true;
  const std::shared_ptr<Client> client = Client::Connect(options).value();
  ServerObjects objects(client);
  const uint64_t before = LeftOn(0);
  const auto comes = [](const std::function<bool()>& what) {
    const Instant until = MonotonicNow() + kDeadline;
    while (!what() && MonotonicNow() < until) std::this_thread::yield();
    return what();
  };
  const auto give_up = [&](uint64_t attempt, const std::string& other, bool ring, bool slices) {
    objects.Reduce({.table = 0,
                    .attempt = attempt,
                    .clock = 0,
                    .handles = {"a", other},
                    .only = false,
                    .bytes = bytes.size(),
                    .base = ring ? "rows" : "",
                    .target = ring ? absl::StrCat("target", attempt) : ""},
                   DType::kF32);
    const auto ready = [&] { return objects.ready(); };
    ASSERT_TRUE(comes(ready));
    if (slices) {
      EXPECT_TRUE(objects.TakeSums().empty());
      EXPECT_EQ(objects.TakeInSlices().size(), 1u);
      ASSERT_TRUE(comes(ready));
    }
    EXPECT_GT(LeftOn(0), before);
    objects.CancelSums(0);
    EXPECT_TRUE(comes([&] { return LeftOn(0) == before; })) << "attempt " << attempt;
  };
  give_up(1, "b", /*ring=*/false, /*slices=*/false);
  give_up(2, "b", /*ring=*/true, /*slices=*/false);
  give_up(3, "c", /*ring=*/true, /*slices=*/true);
}

TEST_F(LocalPsRingsTest, AVersionThatIsVoidEndsTheGetsOfIt) {
  Make(/*nodes=*/2, /*servers=*/1, /*workers=*/1);
  const auto client = Connect(0);
  const auto reader = Connect(1);
  ServerObjects objects(client);
  const ObjectId id = IdOfHandle("version");
  const Future<Buffer> waits = reader->Get(id);
  EXPECT_THAT(waits.Wait(absl::Milliseconds(50)), StatusIs(absl::StatusCode::kDeadlineExceeded));
  objects.Void("version");
  EXPECT_THAT(waits.Wait(kDeadline), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(reader->Get(id).Wait(kDeadline), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace phalanx::runtime
