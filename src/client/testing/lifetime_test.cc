// Holds, as clients of a real node take and drop them.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }

class LifetimeTest : public ::testing::Test {
 protected:
  ~LifetimeTest() override {
    client_.reset();
    AwaitHeld(0);
    EXPECT_THAT(node_.CheckInvariants(), IsOk());
  }
  std::shared_ptr<Client> Connect() {
    ClientOptions options;
    options.address = node_.address();
    auto client = Client::Connect(options);
    EXPECT_THAT(client, IsOk());
    return *client;
  }
  void AwaitHeld(uint64_t held) {
    for (bool reached = false; !reached;) {
      // The next call of the client sends what the node has not read in time.
      if (client_ != nullptr) client_->Poll();
      node_.OnLoop([&] { reached = node_.store().stats().held == held; });
    }
  }
  static PutOptions Owned() {
    PutOptions options;
    options.owned = true;
    return options;
  }

  LocalNode node_;
  std::shared_ptr<Client> client_ = Connect();
};

TEST_F(LifetimeTest, PuttingAnOwnedObjectHoldsIt) {
  for (const size_t size : {size_t{5}, size_t{3} << 20}) {
    const ObjectId id = Id(static_cast<int>(size));
    PHALANX_ASSERT_OK(client_->Put(id, std::string(size, 'x'), Owned()).Wait());
    EXPECT_EQ(node_.store_stats().held, 1u);
    PHALANX_ASSERT_OK_AND_ASSIGN(const ObjectStatus status, client_->Stat(id).Wait());
    EXPECT_TRUE(status.owned);
    client_->Release({{id}});
    AwaitHeld(0);
  }
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  EXPECT_EQ(node_.store_stats().held, 0u);
}

TEST_F(LifetimeTest, AWriterHoldsUnlessItAborts) {
  {
    PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer buffer, client_->Create(Id(1), 2 << 20, Owned()));
    EXPECT_EQ(node_.store_stats().held, 1u);
    PHALANX_ASSERT_OK(buffer.Seal().Wait());
  }
  EXPECT_EQ(node_.store_stats().held, 1u);
  PHALANX_ASSERT_OK_AND_ASSIGN(WritableBuffer dropped, client_->Create(Id(2), 100, Owned()));
  EXPECT_EQ(node_.store_stats().held, 2u);
  dropped.Abort();
  AwaitHeld(1);
}

TEST_F(LifetimeTest, ACallThatFailsHoldsNothing) {
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes").Wait());
  EXPECT_THAT(client_->Put(Id(1), "more bytes", Owned()).Wait(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  AwaitHeld(0);
  EXPECT_THAT(client_->Create(Id(1), 100, Owned()).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  AwaitHeld(0);
  PutOptions wrong = Owned();
  wrong.slices = 65;
  EXPECT_THAT(client_->Put(Id(2), "bytes", wrong).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(node_.store_stats().held, 0u);
  PHALANX_ASSERT_OK_AND_ASSIGN(const PutResult again, client_->Put(Id(1), "bytes", Owned()).Wait());
  EXPECT_TRUE(again.already_existed);
  EXPECT_EQ(node_.store_stats().held, 1u) << "that is no failure";
}

TEST_F(LifetimeTest, HoldsAreCountedPerClient) {
  const std::shared_ptr<Client> other = Connect();
  PHALANX_ASSERT_OK(client_->Hold({{Id(1), Id(1), Id(2)}}));
  PHALANX_ASSERT_OK(other->Hold({{Id(1)}}));
  AwaitHeld(2);
  client_->Release({{Id(1), Id(2)}});
  AwaitHeld(1);
  other->Release({{Id(1), Id(1), Id(1)}});
  client_->Release({{Id(1)}});
  AwaitHeld(0);
}

TEST_F(LifetimeTest, AClientThatEndsHoldsNothing) {
  const std::shared_ptr<Client> other = Connect();
  PHALANX_ASSERT_OK(other->Hold({{Id(1)}}));
  AwaitHeld(1);
  other->Close();
  AwaitHeld(0);
  EXPECT_THAT(other->Hold({{Id(1)}}), StatusIs(absl::StatusCode::kFailedPrecondition));
  other->Release({{Id(1)}});
}

TEST_F(LifetimeTest, MoreIdsThanAMessageHasAreHeld) {
  std::vector<ObjectId> ids;
  for (int i = 0; i < 40'000; ++i) ids.push_back(Id(i));
  PHALANX_ASSERT_OK(client_->Hold(ids));
  AwaitHeld(40'000);
  client_->Release(ids);
  AwaitHeld(0);
}

TEST_F(LifetimeTest, AReferenceInTransitIsHeld) {
  const std::shared_ptr<Client> other = Connect();
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes", Owned()).Wait());
  PHALANX_ASSERT_OK_AND_ASSIGN(const std::string token, client_->Transit(Id(1)));
  EXPECT_EQ(token.size(), 24u);
  client_->Release({{Id(1)}});
  node_.Await([this] { return node_.store().stats().transits == 1; });
  EXPECT_EQ(node_.store_stats().held, 1u);
  PHALANX_ASSERT_OK(other->Hold(Id(1), token));
  node_.Await([this] { return node_.store().stats().transits == 0; });
  EXPECT_EQ(node_.store_stats().held, 1u);
  PHALANX_ASSERT_OK(other->Hold(Id(1), token));
  other->Release({{Id(1), Id(1)}});
  AwaitHeld(0);
}

TEST_F(LifetimeTest, RejectsABadToken) {
  EXPECT_THAT(client_->Hold(Id(1), ""), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Hold(Id(1), std::string(23, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Hold(Id(1), std::string(25, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Hold(Id(1), std::string(24, '\0')),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Hold({{ObjectId()}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->Transit(ObjectId()).status(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(LifetimeTest, ReferencedObjectsAreHeldWithTheirReferrer) {
  PutOptions options;
  options.refers_to = {Id(2), Id(3)};
  PHALANX_ASSERT_OK(client_->Put(Id(1), "bytes", options).Wait());
  EXPECT_EQ(node_.store_stats().held, 2u);
  PHALANX_ASSERT_OK(client_->Delete(Id(1)).Wait());
  AwaitHeld(0);
  options.refers_to.assign(kMaxObjectReferences, Id(4));
  PHALANX_ASSERT_OK(client_->Put(Id(5), std::string(900'000, 'x'), options).Wait());
  options.refers_to.push_back(Id(4));
  EXPECT_THAT(client_->Put(Id(6), "bytes", options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  options.refers_to = {ObjectId()};
  EXPECT_THAT(client_->Put(Id(6), "bytes", options).Wait(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  PHALANX_ASSERT_OK(client_->Delete(Id(5)).Wait());
}

TEST_F(LifetimeTest, AReductionHoldsItsOwnedResult) {
  ReduceOptions options;
  options.owned = true;
  const Future<Done> failing = client_->Reduce(Id(9), {{Id(1), Id(2)}}, options);
  AwaitHeld(1);
  node_.Await([this] { return node_.reduce().calls.size() == 1; });
  node_.OnLoop([this] {
    EXPECT_TRUE(node_.reduce().calls.front().target.owned);
    node_.reduce().Answer(absl::NotFoundError("deleted"));
  });
  EXPECT_THAT(failing.Wait(), StatusIs(absl::StatusCode::kNotFound));
  AwaitHeld(0);
  const Future<Done> made = client_->Reduce(Id(9), {{Id(1), Id(2)}}, options);
  node_.Await([this] { return node_.reduce().calls.size() == 1; });
  node_.OnLoop([this] { node_.reduce().Answer(); });
  PHALANX_ASSERT_OK(made.Wait());
  EXPECT_EQ(node_.store_stats().held, 1u);
  const Future<Buffer> cancelled = client_->AllReduce(Id(8), {{Id(1), Id(2)}}, options);
  AwaitHeld(2);
  cancelled.Cancel();
  AwaitHeld(1);
}

}  // namespace
}  // namespace phalanx
