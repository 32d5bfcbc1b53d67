// Collectives over a real socket and store; reductions are simulated.
#include "phalanx/collectives.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ObjectId Id(size_t i) { return ObjectId::FromName("test", absl::StrCat(i)); }

std::vector<ObjectId> Ids(size_t count, size_t first = 0) {
  std::vector<ObjectId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(Id(first + i));
  return ids;
}

std::vector<std::string> Views(const std::vector<Buffer>& buffers) {
  std::vector<std::string> views;
  for (const Buffer& buffer : buffers) views.emplace_back(buffer.view());
  return views;
}

TEST(PartOf, PartsAreContiguousAndDifferByAtMostOneUnit) {
  for (const uint64_t units : {0, 1, 2, 7, 8, 9, 1000003}) {
    for (const uint64_t unit : {1, 4, 8}) {
      for (const size_t parts : {1, 2, 7, 8, 64}) {
        uint64_t end = 0;
        for (size_t i = 0; i < parts; ++i) {
          PHALANX_ASSERT_OK_AND_ASSIGN(const Part part, PartOf(units * unit, unit, parts, i));
          EXPECT_EQ(part.offset, end);
          EXPECT_GE(part.length / unit, units / parts);
          EXPECT_LE(part.length / unit, units / parts + 1);
          EXPECT_EQ(part.length % unit, 0u);
          end += part.length;
        }
        EXPECT_EQ(end, units * unit);
      }
    }
  }
  EXPECT_EQ(*PartOf(40, 4, 4, 0), (Part{0, 12}));
  EXPECT_EQ(*PartOf(40, 4, 4, 3), (Part{32, 8}));
}

TEST(PartOf, RejectsFractionalUnits) {
  EXPECT_THAT(PartOf(10, 4, 2, 0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10")));
  EXPECT_THAT(PartOf(8, 0, 2, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(PartOf(8, 4, 2, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("index 2 is not below 2")));
  EXPECT_THAT(PartOf(8, 4, 0, 0), StatusIs(absl::StatusCode::kInvalidArgument));
}

class CollectivesTest : public ::testing::Test {
 protected:
  CollectivesTest() : client_(Connect()) {}
  ~CollectivesTest() override {
    client_.reset();
    EXPECT_THAT(node_.CheckInvariants(), IsOk());
  }
  std::shared_ptr<Client> Connect() {
    ClientOptions options;
    options.address = node_.address();
    return Client::Connect(options).value();
  }
  void ExpectNothingWaits() {
    node_.Await([this] { return node_.store().stats().waiting_gets == 0; });
  }

  LocalNode node_;
  std::shared_ptr<Client> client_;
};

TEST_F(CollectivesTest, GatherGivesObjectsOfAllSizesInTheirOrder) {
  const Future<std::vector<Buffer>> gathered = Gather(*client_, Ids(3));
  for (size_t i = 3; i-- > 0;) {
    PHALANX_ASSERT_OK(client_->Put(Id(i), std::string(i, 'a')).Wait());
  }
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> got, gathered.Wait());
  EXPECT_THAT(Views(got), ElementsAre("", "a", "aa"));
}

TEST_F(CollectivesTest, AllGatherIsTheSameForEveryIndex) {
  for (size_t i = 0; i < 4; ++i) {
    PHALANX_ASSERT_OK(client_->Put(Id(i), absl::StrCat("object ", i)).Wait());
  }
  for (size_t index = 0; index < 4; ++index) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> got,
                                 AllGather(*client_, Ids(4), index).Wait());
    EXPECT_THAT(Views(got), ElementsAre("object 0", "object 1", "object 2", "object 3"));
  }
  EXPECT_THAT(AllGather(*client_, Ids(4), 4).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("index 4 is not below 4")));
}

TEST_F(CollectivesTest, AllGatherEndsAtItsDeadlineAndWhenItIsCancelled) {
  GetOptions options;
  options.timeout = absl::Milliseconds(1);
  EXPECT_THAT(AllGather(*client_, Ids(2), 0, options).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  const Future<std::vector<Buffer>> cancelled = AllGather(*client_, Ids(2), 0);
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), StatusIs(absl::StatusCode::kCancelled));
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, ScatterPutsWholeUnits) {
  PHALANX_ASSERT_OK(Scatter(*client_, Ids(3), "aaaabbbbccccdddd", 4).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> got, Gather(*client_, Ids(3)).Wait());
  EXPECT_THAT(Views(got), ElementsAre("aaaabbbb", "cccc", "dddd"));
  EXPECT_THAT(Scatter(*client_, Ids(3), "aaaab", 4).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Scatter(*client_, {}, "aaaa").Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Scatter(*client_, {Id(9), Id(9)}, "aaaa").Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Id(9).hex())));
}

TEST_F(CollectivesTest, ScatterFailsWithItsFirstPart) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "of another size").Wait());
  EXPECT_THAT(Scatter(*client_, Ids(3), "aaabbbccc").Wait(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(Id(1).hex())));
}

TEST_F(CollectivesTest, AllToAllHandsEveryPartToItsReceiver) {
  constexpr size_t kTasks = 4;
  std::vector<std::shared_ptr<Client>> clients;
  std::vector<Future<std::vector<Buffer>>> results;
  for (size_t task = 0; task < kTasks; ++task) {
    clients.push_back(Connect());
    std::vector<std::string> bytes;
    for (size_t to = 0; to < kTasks; ++to) bytes.push_back(absl::StrCat(task, " to ", to));
    std::vector<Outgoing> outgoing;
    std::vector<ObjectId> incoming;
    for (size_t other = 0; other < kTasks; ++other) {
      outgoing.push_back({Id(task * kTasks + other), bytes[other]});
      incoming.push_back(Id(other * kTasks + task));
    }
    results.push_back(AllToAll(*clients.back(), outgoing, incoming));
  }
  for (size_t task = 0; task < kTasks; ++task) {
    PHALANX_ASSERT_OK_AND_ASSIGN(const std::vector<Buffer> got, results[task].Wait());
    ASSERT_EQ(got.size(), kTasks);
    for (size_t from = 0; from < kTasks; ++from) {
      EXPECT_EQ(got[from].view(), absl::StrCat(from, " to ", task));
    }
  }
}

TEST_F(CollectivesTest, AFailedAllToAllCancelsItsGets) {
  PHALANX_ASSERT_OK(client_->Put(Id(0), "of another size").Wait());
  EXPECT_THAT(AllToAll(*client_, {{Id(0), "part"}}, {Id(1)}).Wait(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, ReduceScatterReducesItsPartOfEverySource) {
  // 10 elements of 4 bytes for 3 tasks.
  const std::vector<Part> parts = {{0, 16}, {16, 12}, {28, 12}};
  for (size_t index = 0; index < parts.size(); ++index) {
    const Future<Buffer> reduced =
        ReduceScatter(*client_, Ids(3, 100), Ids(3), index, 40, ReduceOptions());
    node_.Await([this] { return node_.reduce().calls.size() == 1; });
    node_.OnLoop([&] {
      const auto& call = node_.reduce().calls[0];
      EXPECT_EQ(call.target.id, Id(100 + index));
      EXPECT_EQ(call.spec.sources, Ids(3));
      EXPECT_EQ((Part{call.spec.range_offset, call.spec.range_bytes}), parts[index]);
      EXPECT_TRUE(call.target.root_here);
      node_.reduce().Answer();
    });
    PHALANX_ASSERT_OK(client_->Put(Id(100 + index), "part").Wait());
    PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer got, reduced.Wait());
    EXPECT_EQ(got.view(), "part");
  }
}

TEST_F(CollectivesTest, ReduceScatterOfFewerElementsThanTasksLeavesTheLastEmpty) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const Buffer got,
                               ReduceScatter(*client_, Ids(3, 100), Ids(3), 2, 8).Wait());
  EXPECT_EQ(got.size(), 0u);
  node_.OnLoop([this] { EXPECT_TRUE(node_.reduce().calls.empty()); });
}

TEST_F(CollectivesTest, ReduceScatterRejectsBadArguments) {
  const auto refused = [this](size_t index, uint64_t bytes, ReduceOptions options) {
    return ReduceScatter(*client_, Ids(3, 100), Ids(3), index, bytes, options).Wait().status();
  };
  EXPECT_THAT(refused(3, 40, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not below 3")));
  EXPECT_THAT(refused(0, 42, {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("42")));
  ReduceOptions ranged;
  ranged.length = 4;
  EXPECT_THAT(refused(0, 40, ranged),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("range")));
  ReduceOptions unknown;
  unknown.dtype = static_cast<DType>(99);
  EXPECT_THAT(refused(0, 40, unknown), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(CollectivesTest, NoParticipantPassesABarrierBeforeTheLastArrives) {
  // Three levels of the tree.
  constexpr size_t kTasks = 1100;
  std::vector<Future<Done>> barriers;
  for (size_t i = kTasks; i-- > 1;) barriers.push_back(Barrier(*client_, "start", kTasks, i));
  // All earlier requests have been handled, except for their consequences.
  PHALANX_ASSERT_OK(client_->Contains(Id(1)).Wait());
  for (const Future<Done>& barrier : barriers) EXPECT_FALSE(barrier.ready());
  PHALANX_ASSERT_OK(Barrier(*client_, "start", kTasks, 0).Wait());
  for (const Future<Done>& barrier : barriers) PHALANX_ASSERT_OK(barrier.Wait());
  // One object is left of the whole barrier.
  node_.Await([this] { return node_.store().stats().objects == 1; });
  PHALANX_ASSERT_OK_AND_ASSIGN(const bool left,
                               client_->Contains(BarrierObject(*client_, "start")).Wait());
  EXPECT_TRUE(left);
}

TEST_F(CollectivesTest, NoParticipantPassesABarrierTwice) {
  const auto used = StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("\"again\""));
  const Future<Done> second = Barrier(*client_, "again", 2, 1);
  PHALANX_ASSERT_OK(Barrier(*client_, "again", 2, 0).Wait());
  PHALANX_ASSERT_OK(second.Wait());
  for (const size_t index : {0, 1}) {
    EXPECT_THAT(Barrier(*client_, "again", 2, index).Wait(), used);
  }
  PHALANX_ASSERT_OK(client_->Delete(BarrierObject(*client_, "again")).Wait());
  for (const size_t index : {0, 1}) {
    EXPECT_THAT(Barrier(*client_, "again", 2, index).Wait(), used);
  }
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, AParticipantWhoseCallEndedEarlyPassesABarrierLater) {
  // Index 33 is below index 1, which is below the root.
  constexpr size_t kTasks = 34;
  for (const size_t early : {1, 2, 33}) {
    const std::string name = absl::StrCat("early ", early);
    std::vector<Future<Done>> others;
    for (size_t i = 1; i < kTasks; ++i) {
      if (i != early) others.push_back(Barrier(*client_, name, kTasks, i));
    }
    const Future<Done> cancelled = Barrier(*client_, name, kTasks, early);
    const ObjectId own = client_->Id(absl::StrCat("barrier/", early, "/", name));
    PHALANX_ASSERT_OK(client_->Get(own).Wait());
    cancelled.Cancel();
    EXPECT_THAT(cancelled.Wait(), StatusIs(absl::StatusCode::kCancelled));
    PHALANX_ASSERT_OK(Barrier(*client_, name, kTasks, 0).Wait());
    for (const Future<Done>& other : others) PHALANX_ASSERT_OK(other.Wait());
    PHALANX_ASSERT_OK(Barrier(*client_, name, kTasks, early).Wait());
    EXPECT_THAT(Barrier(*client_, name, kTasks, early).Wait(),
                StatusIs(absl::StatusCode::kAlreadyExists));
  }
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, TheRootPassesABarrierAfterACallThatReleasedIt) {
  // Index 0 arrived and released the barrier, but its call ended before the answer of its Get.
  PHALANX_ASSERT_OK(client_->Put(client_->Id("barrier/arrived/late"), "").Wait());
  PHALANX_ASSERT_OK(client_->Put(BarrierObject(*client_, "late"), "").Wait());
  PHALANX_ASSERT_OK(Barrier(*client_, "late", 34, 0).Wait());
  EXPECT_THAT(Barrier(*client_, "late", 34, 0).Wait(), StatusIs(absl::StatusCode::kAlreadyExists));
  // It arrived, but its call ended before the release.
  PHALANX_ASSERT_OK(client_->Put(client_->Id("barrier/arrived/early"), "").Wait());
  const Future<Done> other = Barrier(*client_, "early", 2, 1);
  PHALANX_ASSERT_OK(Barrier(*client_, "early", 2, 0).Wait());
  PHALANX_ASSERT_OK(other.Wait());
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, AParticipantThatRunsAgainArrivesOnce) {
  const Future<Done> first = Barrier(*client_, "rerun", 3, 1);
  const Future<Done> again = Barrier(*client_, "rerun", 3, 1);
  const Future<Done> other = Barrier(*client_, "rerun", 3, 2);
  PHALANX_ASSERT_OK(client_->Get(client_->Id("barrier/2/rerun")).Wait());
  EXPECT_FALSE(first.ready());
  PHALANX_ASSERT_OK(Barrier(*client_, "rerun", 3, 0).Wait());
  PHALANX_ASSERT_OK(first.Wait());
  PHALANX_ASSERT_OK(again.Wait());
  PHALANX_ASSERT_OK(other.Wait());
}

TEST_F(CollectivesTest, ABarrierEndsAtItsDeadlineAndWhenItIsCancelled) {
  EXPECT_THAT(Barrier(*client_, "alone", 2, 0, absl::Milliseconds(1)).Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  const Future<Done> cancelled = Barrier(*client_, "alone", 2, 0);
  cancelled.Cancel();
  EXPECT_THAT(cancelled.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Barrier(*client_, "alone", 2, 2).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ExpectNothingWaits();
}

TEST_F(CollectivesTest, ACallbackCanWaitForACollective) {
  std::vector<std::string> got;
  client_->Put(Id(0), "zero").OnReady([&](const auto&) {
    const auto all = AllGather(*client_, Ids(1), 0).Wait(absl::Seconds(60));
    if (all.ok()) got = Views(*all);
  });
  while (got.empty()) client_->Poll(absl::Seconds(60));
  EXPECT_THAT(got, ElementsAre("zero"));
}

TEST_F(CollectivesTest, CloseEndsRunningCollectives) {
  const Future<std::vector<Buffer>> gathered = AllGather(*client_, Ids(2), 0);
  const Future<Done> barrier = Barrier(*client_, "never", 2, 1);
  client_->Close();
  EXPECT_THAT(gathered.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(barrier.Wait(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace phalanx
