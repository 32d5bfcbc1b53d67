// Wants that name a neighbour: the choice of the sender, and how long the core waits for the
// neighbour.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;

constexpr int kNodes = 5;
// 16.8 ms at 1 Gbit/s, the assumed rate while nothing is measured.
constexpr uint64_t kBytes = 2 << 20;

ObjectId Share(int i) { return Id("share " + std::to_string(i)); }

// As many nodes as objects; each node creates one object.
class DirectoryCoreNearTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < kNodes; ++i) nodes_.push_back(h_.Up("n" + std::to_string(i)));
  }
  void Put(int i, uint64_t size = kBytes) {
    h_.Create(nodes_[i], Share(i), {.size = size, .complete = true});
  }
  void PutAll(uint64_t size = kBytes) {
    for (int i = 0; i < kNodes; ++i) Put(i, size);
  }
  // Node i wants the object of node j, if possible from its own neighbour.
  void Want(int i, int j) { h_.WantNear(nodes_[i], Share(j), Share((i + 1) % kNodes)); }
  int SenderOf(int i, int j) {
    const NodeKey sender = h_.SenderOf(nodes_[i], Share(j));
    for (int k = 0; k < kNodes; ++k) {
      if (nodes_[k] == sender) return k;
    }
    return -1;
  }

  Harness h_;
  std::vector<NodeKey> nodes_;
};

TEST_F(DirectoryCoreNearTest, EveryNodePullsFromItsNearNodeInAnyOrderOfWants) {
  PutAll();
  // An order in which most nodes ask before their neighbour.
  for (const int i : {3, 1, 4, 2, 0}) {
    for (int j = 0; j < kNodes; ++j) {
      if (j != i) Want(i, j);
    }
  }
  for (int i = 0; i < kNodes; ++i) {
    for (int j = 0; j < kNodes; ++j) {
      if (j == i) continue;
      EXPECT_EQ(SenderOf(i, j), (i + 1) % kNodes) << i << " of " << j;
    }
  }
}

TEST_F(DirectoryCoreNearTest, ANeighbourThatDoesNotAskIsWaitedForAsLongAsTheBytesTake) {
  PutAll();
  Want(2, 0);
  EXPECT_EQ(SenderOf(2, 0), -1);
  h_.Advance(absl::Milliseconds(15));
  EXPECT_EQ(SenderOf(2, 0), -1);
  h_.Advance(absl::Milliseconds(3));
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, WhoseNeighbourIsNotKnownYetWaitsNoLonger) {
  Put(0);
  Want(2, 0);
  EXPECT_EQ(SenderOf(2, 0), -1);
  h_.Advance(absl::Milliseconds(18));
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, ANeighbourThatIsGoneIsNotWaitedFor) {
  PutAll();
  h_.Want(nodes_[4], Share(3));
  h_.Finish(nodes_[4], Share(3));
  h_.Down(nodes_[3]);
  Want(2, 0);
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, ANearNodeThatDiesIsReplacedByAnyOtherSender) {
  PutAll();
  Want(3, 0);
  h_.Advance(absl::Milliseconds(18));
  Want(2, 0);
  ASSERT_EQ(SenderOf(2, 0), 3);
  h_.Down(nodes_[3]);
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, ANeighbourThatHasFailedIsNotAskedAgain) {
  PutAll();
  Want(4, 0);
  Want(3, 0);
  ASSERT_EQ(SenderOf(3, 0), 4);
  h_.Fail(nodes_[3], Share(0));
  EXPECT_EQ(SenderOf(3, 0), 0);
}

TEST_F(DirectoryCoreNearTest, NoNodeWaitsForASmallObject) {
  PutAll(100'000);
  Want(2, 0);
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, TheCreatorOfTheNamedObjectHasNoNearNode) {
  PutAll();
  h_.WantNear(nodes_[2], Share(0), Share(2));
  EXPECT_EQ(SenderOf(2, 0), 0);
}

TEST_F(DirectoryCoreNearTest, AnInvalidIdIsRefused) {
  v1::NodeMessage message;
  message.mutable_want()->set_object_id(Share(0).binary().data(), ObjectId::kSize);
  message.mutable_want()->set_number(1);
  message.mutable_want()->set_near_id("short");
  EXPECT_EQ(h_.Send(nodes_[0], message).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phalanx::directory
