// The names of objects: the shard keeps the first that a message has for an id, sends it with every
// copy, and has it again from the nodes after a restart.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;

const ObjectName kName = ObjectName::Of("default", "job/7");
const ObjectId x = ObjectId::FromName("default", "job/7");

class NamedObject : public ::testing::Test {
 protected:
  explicit NamedObject(bool learning = false) : h_(learning) {}

  template <typename Message>
  static void SetId(Message* message) {
    ToProto(x, message->mutable_object_id());
  }
  Generation Create(const NodeKey& node, const ObjectName& name, bool complete = true) {
    const Generation generation = h_.NewGeneration(node);
    v1::NodeMessage message;
    v1::AnnounceCreate& create = *message.mutable_announce_create();
    SetId(&create);
    ToProto(generation, create.mutable_generation());
    create.mutable_info()->set_size_bytes(100'000);
    create.mutable_info()->set_slices(1);
    SetName(name, create.mutable_info());
    create.set_complete(complete);
    h_.Send(node, message).IgnoreError();
    return generation;
  }
  void Register(const NodeKey& node, const Generation& generation, const ObjectName& name) {
    v1::NodeMessage message;
    v1::RegisterCopy& copy = *message.mutable_register_copy();
    SetId(&copy);
    ToProto(generation, copy.mutable_generation());
    copy.mutable_info()->set_size_bytes(100'000);
    copy.mutable_info()->set_slices(1);
    SetName(name, copy.mutable_info());
    copy.set_adopted(true);
    copy.set_complete(true);
    h_.NewSession(node, /*had_session=*/true);
    h_.Send(node, message).IgnoreError();
    h_.RegisterEnd(node);
  }
  void Want(const NodeKey& node, const ObjectName& name) {
    v1::NodeMessage message;
    SetId(message.mutable_want());
    message.mutable_want()->set_number(1);
    SetName(name, message.mutable_want());
    h_.Send(node, message).IgnoreError();
  }
  ObjectName Shown() { return NameOf(h_.Describe(x).summary()); }

  Harness h_;
  const NodeKey a_ = h_.Up("a"), b_ = h_.Up("b");
};

class NamedObjectAtARestart : public NamedObject {
 protected:
  NamedObjectAtARestart() : NamedObject(/*learning=*/true) {}
};

TEST_F(NamedObject, IsDescribedAndListedWithItsName) {
  Create(a_, kName);
  EXPECT_EQ(Shown(), kName);
  EXPECT_FALSE(h_.Describe(x).summary().info().has_name()) << "it would be sent twice";
  v1::ListObjectsResponse list;
  ASSERT_TRUE(h_.core().List({}, h_.now(), &list).ok());
  ASSERT_EQ(list.objects_size(), 1);
  EXPECT_EQ(NameOf(list.objects(0)), kName);
}

TEST_F(NamedObject, WithoutANameHasNone) {
  Create(a_, ObjectName());
  EXPECT_FALSE(h_.Describe(x).summary().has_name());
}

TEST_F(NamedObject, NameTravelsToReceivers) {
  Create(a_, kName);
  Want(b_, ObjectName());
  const auto assign = h_.Last(b_, v1::ShardMessage::kAssign);
  ASSERT_TRUE(assign.has_value());
  EXPECT_EQ(NameOf(assign->assign().info()), kName);
}

TEST_F(NamedObject, IsNamedBeforeItExists) {
  Want(b_, kName);
  EXPECT_EQ(Shown(), kName);
  EXPECT_FALSE(h_.Describe(x).summary().has_info());
  // Its creator does not know the name.
  Create(a_, ObjectName());
  EXPECT_EQ(Shown(), kName);
  EXPECT_EQ(NameOf(h_.Last(b_, v1::ShardMessage::kAssign)->assign().info()), kName);
}

TEST_F(NamedObject, KeepsItsNameAcrossGenerations) {
  const Generation first = Create(a_, kName, /*complete=*/false);
  Want(b_, ObjectName());
  h_.Withdraw(a_, x, first);
  EXPECT_EQ(Shown(), kName);
  Create(a_, ObjectName());
  EXPECT_EQ(Shown(), kName);
}

TEST_F(NamedObject, AStandbyKnowsTheName) {
  Create(a_, ObjectName(), /*complete=*/false);
  Create(b_, kName, /*complete=*/false);
  EXPECT_EQ(Shown(), kName);
}

TEST_F(NamedObject, AQueryReturnsTheName) {
  Create(a_, kName);
  h_.Query(b_, x);
  EXPECT_EQ(NameOf(h_.Last(b_, v1::ShardMessage::kQueryReply)->query_reply().info()), kName);
}

TEST_F(NamedObject, ATombstoneHasTheName) {
  Create(a_, kName);
  h_.Delete(b_, x);
  const v1::ObjectSummary summary = h_.Describe(x).summary();
  EXPECT_TRUE(summary.deleted());
  EXPECT_EQ(NameOf(summary), kName);
}

TEST_F(NamedObject, ANameIsNoPartOfTheIdentityOfAGeneration) {
  const Generation generation = Create(a_, ObjectName());
  Register(a_, generation, kName);
  EXPECT_TRUE(h_.status().ok()) << h_.status();
  EXPECT_EQ(Shown(), kName);
}

TEST_F(NamedObject, ABadNameIsRefusedAndChangesNothing) {
  v1::NodeMessage message;
  SetId(message.mutable_want());
  message.mutable_want()->set_number(1);
  message.mutable_want()->mutable_name()->set_name("a\nb");
  EXPECT_THAT(h_.Send(b_, message),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  EXPECT_FALSE(h_.Known(x));
}

TEST_F(NamedObjectAtARestart, ASecondaryCopyBringsTheNameBack) {
  Register(b_, Generation{a_, 9}, kName);
  EXPECT_EQ(Shown(), kName);
  // Another copy was made before its node knew the name.
  const NodeKey c = h_.Up("c");
  Register(c, Generation{a_, 9}, ObjectName());
  EXPECT_EQ(Shown(), kName);
}

TEST_F(NamedObjectAtARestart, AWaitingNodeBringsTheNameBack) {
  h_.NewSession(b_, true);
  v1::NodeMessage message;
  SetId(message.mutable_register_want());
  SetName(kName, message.mutable_register_want());
  h_.Send(b_, message).IgnoreError();
  h_.RegisterEnd(b_);
  EXPECT_EQ(Shown(), kName);
}

}  // namespace
}  // namespace phalanx::directory
