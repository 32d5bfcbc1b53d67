// What a node sends in a new session with a shard, when it takes several turns; drains; the names
// of objects.
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/ids/object_name.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/validate.h"
#include "src/object_store/testing/store_world.h"

namespace phalanx::object_store {
namespace {

using directory::NameOf;
using phalanx::testing::IsOk;
using phalanx::testing::StatusIs;
using testing::Assign;
using testing::Deliver;
using ::testing::ElementsAre;
using testing::Gone;
using ::testing::HasSubstr;
using testing::Id;
using testing::kPeer;
using testing::StoreWorld;

class StoreRegisterTest : public ::testing::Test {
 protected:
  StoreRegisterTest() {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(w_.Put(Id(i), "bytes").ok());
    w_.ForgetSent();
  }

  // The kinds of what was sent, in order: "bccccce" for a registration of five copies.
  std::string Sent() const {
    std::string sent;
    for (const v1::NodeMessage& message : w_.sent()) {
      switch (message.kind_case()) {
        case v1::NodeMessage::kRegisterBegin:
          sent += 'b';
          break;
        case v1::NodeMessage::kRegisterCopy:
          sent += 'c';
          break;
        case v1::NodeMessage::kRegisterWant:
          sent += 'w';
          break;
        case v1::NodeMessage::kRegisterTombstone:
          sent += 't';
          break;
        case v1::NodeMessage::kRegisterEnd:
          sent += 'e';
          break;
        default:
          sent += '.';
      }
    }
    return sent;
  }
  void PutNow(int i) {
    PutOptions options;
    options.id = Id(i);
    w_.store().Put(w_.client(), options, "bytes", [](absl::StatusOr<PutResult>) {});
  }

  static StoreOptions TwoInATurn() {
    StoreOptions options;
    options.registered_per_turn = 2;
    return options;
  }
  StoreWorld w_{64 << 20, TwoInATurn()};
};

TEST_F(StoreRegisterTest, ATurnRegistersAPart) {
  std::string at_once;
  w_.Run([&] {
    w_.channel().OnSession(0);
    at_once = Sent();
  });
  EXPECT_EQ(at_once, "bcc");
  EXPECT_EQ(Sent(), "bccccce");
}

TEST_F(StoreRegisterTest, MessagesDuringTheRegistrationFollowIt) {
  const auto reading = w_.Get(Id(7));
  w_.ForgetSent();
  w_.Run([&] {
    w_.channel().OnSession(0);
    PutNow(5);
    w_.store().Delete(w_.client(), Id(1), Instant::Infinite(), [](const absl::Status&) {});
    w_.store().Cancel(w_.client(), reading->request);
  });
  EXPECT_EQ(Sent(), "bcccccwe...");
  EXPECT_EQ(w_.Sent<v1::AnnounceCreate>().size(), 1u);
  EXPECT_EQ(w_.Sent<v1::DeleteRequest>().size(), 1u) << "asked once";
  EXPECT_EQ(w_.Sent<v1::Unwant>().size(), 1u);
}

TEST_F(StoreRegisterTest, ACopyThatIsDeletedBeforeItsTurnIsNotRegistered) {
  const v1::ShardMessage gone = Gone(Id(0), w_.store().Copies()[4].generation, v1::Gone::DELETED);
  v1::ShardMessage last = gone;
  last.mutable_gone()->set_object_id(w_.store().Copies()[4].id.binary().data(), ObjectId::kSize);
  w_.Run([&] {
    w_.channel().OnSession(0);
    w_.channel().OnMessage(0, last);
  });
  EXPECT_EQ(Sent(), "bcccce.");
  EXPECT_EQ(w_.Sent<v1::DeleteConfirm>().size(), 1u);
}

TEST_F(StoreRegisterTest, ASessionThatBeginsDuringARegistrationStartsItAgain) {
  w_.Run([&] {
    w_.channel().OnSession(0);
    w_.store().Delete(w_.client(), Id(1), Instant::Infinite(), [](const absl::Status&) {});
    w_.channel().OnSession(0);
  });
  EXPECT_EQ(Sent(), "bccbccccce.") << "what was held back is asked again, once";
}

TEST_F(StoreRegisterTest, TombstonesAreRegisteredInParts) {
  for (const Store::CopyInfo& copy : w_.store().Copies()) {
    w_.Shard(Gone(copy.id, copy.generation, v1::Gone::DELETED));
  }
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  EXPECT_EQ(Sent(), "bttttte");
}

// Of an id that was deleted more than 64 times, a shard lists those that come first.
TEST_F(StoreRegisterTest, TheNewestTombstoneIsRegisteredFirst) {
  const auto generation = [](uint64_t i) { return Generation{testing::kPeer, i}; };
  const ObjectId id = Id(7);
  w_.Shard(Gone(id, generation(1), v1::Gone::DELETED));
  w_.Run(
      [&] { w_.store().Delete(w_.client(), id, Instant::Infinite(), [](const absl::Status&) {}); });
  v1::ShardMessage message;
  v1::DeleteReply& reply = *message.mutable_delete_reply();
  reply.set_request_id(w_.Sent<v1::DeleteRequest>().back().request_id());
  // The last deletion first, as the shard sends them.
  for (const uint64_t i : {3, 2, 1}) directory::ToProto(generation(i), reply.add_generations());
  w_.Shard(message);
  w_.ForgetSent();
  w_.Run([&] { w_.channel().OnSession(0); });
  std::vector<uint64_t> registered;
  for (const v1::RegisterTombstone& tombstone : w_.Sent<v1::RegisterTombstone>()) {
    registered.push_back(tombstone.generation().sequence());
  }
  EXPECT_THAT(registered, ElementsAre(3, 2, 1));
}

TEST(StoreDrainTest, AnOverdueDrainNamesTheObjectsLeftAndAnotherCanBegin) {
  StoreWorld w;
  std::optional<absl::Status> drained;
  const auto drain = [&] {
    const Instant deadline = w.now() + absl::Seconds(9);
    w.Run([&] { w.store().Drain(deadline, [&](absl::Status s) { drained = s; }); });
  };
  drain();
  v1::ShardMessage status;
  status.mutable_drain_status()->set_objects_left(3);
  status.mutable_drain_status()->set_message("no other node has room");
  w.Shard(status);
  w.Pass(absl::Seconds(9));
  EXPECT_THAT(*drained, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("3 objects")));
  EXPECT_THAT(*drained, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no other node")));
  drained.reset();
  drain();
  EXPECT_FALSE(drained.has_value());
  status.mutable_drain_status()->set_objects_left(0);
  w.Shard(status);
  ASSERT_TRUE(drained.has_value());
  EXPECT_THAT(*drained, IsOk());
}

const ObjectName kName = ObjectName::Of("default", "job/7");
constexpr Generation kForeign{kPeer, 7};

// ---- names: announced, asked for, registered, and kept with pulled copies

class StoreNameTest : public ::testing::Test {
 protected:
  void Register() {
    w_.ForgetSent();
    w_.Run([&] { w_.channel().OnSession(0); });
  }
  // The name that the only registered copy has.
  ObjectName RegisteredName() {
    Register();
    const auto copies = w_.Sent<v1::RegisterCopy>();
    EXPECT_EQ(copies.size(), 1u);
    return copies.empty() ? ObjectName() : NameOf(copies[0].info());
  }
  ObjectStat Stat() {
    ObjectStat found;
    w_.Run([&] {
      w_.store().Stat(w_.client(), Id(1), Instant::Infinite(),
                      [&found](const absl::StatusOr<ObjectStat>& stat) { found = *stat; }, {});
    });
    v1::ShardMessage reply;
    reply.mutable_query_reply()->set_request_id(w_.Sent<v1::QueryRequest>()[0].request_id());
    w_.Shard(reply);
    return found;
  }

  StoreWorld w_;
};

TEST_F(StoreNameTest, APutAnnouncesAndRegistersItsName) {
  PutOptions options;
  options.id = Id(1);
  options.name = kName;
  ASSERT_THAT(**w_.StartPut(options, "bytes"), IsOk());
  EXPECT_EQ(NameOf(w_.Sent<v1::AnnounceCreate>()[0].info()), kName);
  EXPECT_EQ(RegisteredName(), kName);
  EXPECT_EQ(Stat().name, kName);
}

TEST_F(StoreNameTest, AWriterAnnouncesItsName) {
  PutOptions options;
  options.id = Id(1);
  options.name = kName;
  ASSERT_TRUE((*w_.StartCreate(options, 100))->ok());
  EXPECT_EQ(NameOf(w_.Sent<v1::AnnounceCreate>()[0].info()), kName);
}

TEST_F(StoreNameTest, WithoutANameNothingIsSent) {
  ASSERT_THAT(w_.Put(Id(1), "bytes"), IsOk());
  EXPECT_FALSE(w_.Sent<v1::AnnounceCreate>()[0].info().has_name());
  w_.Get(Id(2));
  EXPECT_FALSE(w_.Sent<v1::Want>()[0].has_name());
}

TEST_F(StoreNameTest, AWantHasTheNameAlsoInANewSession) {
  GetOptions options{Id(1)};
  options.name = kName;
  w_.Get(options);
  ASSERT_EQ(w_.Sent<v1::Want>().size(), 1u);
  EXPECT_EQ(NameOf(w_.Sent<v1::Want>()[0]), kName);
  Register();
  ASSERT_EQ(w_.Sent<v1::RegisterWant>().size(), 1u);
  EXPECT_EQ(NameOf(w_.Sent<v1::RegisterWant>()[0]), kName);
}

TEST_F(StoreNameTest, ADeliveredCopyKeepsTheName) {
  w_.Get(Id(1));
  v1::ShardMessage deliver = Deliver(Id(1), kForeign, "bytes");
  directory::ToProto(kName, deliver.mutable_deliver()->mutable_info()->mutable_name());
  w_.Shard(deliver);
  EXPECT_EQ(w_.store().Copies().at(0).name, kName);
  EXPECT_EQ(RegisteredName(), kName);
}

TEST_F(StoreNameTest, APulledCopyKeepsTheName) {
  w_.Get(Id(1));
  v1::ShardMessage assign = Assign(Id(1), kForeign, {.size = 800});
  directory::ToProto(kName, assign.mutable_assign()->mutable_info()->mutable_name());
  w_.Shard(assign);
  EXPECT_EQ(RegisteredName(), kName);
}

TEST_F(StoreNameTest, AMalformedNameOfAShardIsNone) {
  w_.Get(Id(1));
  v1::ShardMessage deliver = Deliver(Id(1), kForeign, "bytes");
  deliver.mutable_deliver()->mutable_info()->mutable_name()->set_name("a\nb");
  w_.Shard(deliver);
  ASSERT_EQ(w_.store().Copies().size(), 1u);
  EXPECT_TRUE(w_.store().Copies()[0].name.empty());
}

}  // namespace
}  // namespace phalanx::object_store
