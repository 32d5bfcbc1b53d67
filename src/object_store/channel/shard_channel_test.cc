#include "src/object_store/channel/shard_channel.h"

#include <deque>
#include <string>

#include "gtest/gtest.h"

namespace phalanx::object_store {
namespace {

using Kind = v1::ShardMessage;

// A message that is told apart by its text.
v1::NodeMessage Message(const std::string& text) {
  v1::NodeMessage message;
  message.mutable_withdraw()->set_reason(text);
  return message;
}

class ShardChannelTest : public ::testing::Test {
 protected:
  // Registers `parts` messages, one in a turn, and "last".
  class FakeRegistrant final : public Registrant {
   public:
    FakeRegistrant(ShardChannelTest& test, std::string name, int parts)
        : test_(test), name_(std::move(name)), parts_(parts) {}

    void FillBegin(int, v1::RegisterBegin* begin) override { begin->set_sticky_stamp(7); }
    std::vector<v1::NodeMessage> BeginSession(int shard) override {
      left_ = parts_;
      test_.channel_.SendTo(shard, Message(name_ + "-again"));
      return {Message(name_ + "-last")};
    }
    bool RegisterSome(int shard) override {
      if (left_ > 0) test_.channel_.Register(shard, Message(name_ + std::to_string(left_--)));
      return left_ == 0;
    }
    void EndRegistrationTurn() override { ++turns; }

    int turns = 0;

   private:
    ShardChannelTest& test_;
    const std::string name_;
    const int parts_;
    int left_ = 0;
  };

  void RunLater() {
    while (!later_.empty()) {
      ShardChannel::Task task = std::move(later_.front());
      later_.pop_front();
      task();
    }
  }

  std::string sent_;
  std::deque<ShardChannel::Task> later_;
  ShardChannel channel_{2,
                        [this](int shard, v1::NodeMessage message) {
                          std::string text = message.withdraw().reason();
                          if (message.has_register_begin()) {
                            text = message.register_begin().had_session() ? "begin-again" : "begin";
                          }
                          if (message.has_register_end()) text = "end";
                          sent_ += std::to_string(shard) + ":" + text + " ";
                        },
                        [this](ShardChannel::Task task) { later_.push_back(std::move(task)); }};
};

TEST_F(ShardChannelTest, AMessageReachesTheComponentOfItsKindOnly) {
  std::string heard;
  channel_.Handle(Kind::kGone, [&](int shard, const auto&) { heard += std::to_string(shard); });
  channel_.Handle(Kind::kFold, [&](int, const auto&) { heard += "f"; });
  v1::ShardMessage message;
  channel_.OnMessage(0, message);
  message.mutable_verdict();
  channel_.OnMessage(0, message);
  EXPECT_EQ(heard, "") << "no component handles these";
  message.mutable_gone();
  channel_.OnMessage(1, message);
  message.mutable_fold();
  channel_.OnMessage(0, message);
  EXPECT_EQ(heard, "1f");
}

TEST_F(ShardChannelTest, RegistrantsRegisterInTheirOrder) {
  FakeRegistrant a(*this, "a", 1);
  FakeRegistrant b(*this, "b", 1);
  channel_.AddRegistrant(&a);
  channel_.AddRegistrant(&b);
  channel_.OnSession(0);
  EXPECT_EQ(sent_, "0:begin 0:a1 0:b1 0:a-last 0:b-last 0:end 0:a-again 0:b-again ");
  EXPECT_EQ(a.turns, 1);
  sent_.clear();
  channel_.OnSession(1);
  EXPECT_EQ(sent_.substr(0, 8), "1:begin ") << "the first session with this shard";
  sent_.clear();
  channel_.OnSession(0);
  EXPECT_EQ(sent_.substr(0, 14), "0:begin-again ");
}

TEST_F(ShardChannelTest, ALongRegistrationTakesSeveralTurnsAndHoldsOtherMessagesBack) {
  FakeRegistrant a(*this, "a", 2);
  channel_.AddRegistrant(&a);
  channel_.OnSession(0);
  channel_.SendTo(0, Message("x"));
  channel_.SendTo(1, Message("y"));
  EXPECT_EQ(sent_, "0:begin 0:a2 1:y ");
  RunLater();
  EXPECT_EQ(sent_, "0:begin 0:a2 1:y 0:a1 0:a-last 0:end 0:a-again 0:x ");
  EXPECT_EQ(a.turns, 2);
}

TEST_F(ShardChannelTest, ANewSessionVoidsTheRegistrationUnderWay) {
  FakeRegistrant a(*this, "a", 2);
  channel_.AddRegistrant(&a);
  channel_.OnSession(0);
  channel_.SendTo(0, Message("void"));
  sent_.clear();
  channel_.OnSession(0);
  RunLater();
  EXPECT_EQ(sent_, "0:begin-again 0:a2 0:a1 0:a-last 0:end 0:a-again ");
}

TEST_F(ShardChannelTest, HoldsAreSentBeforeTheMessagesThatDependOnThem) {
  channel_.SetFlushHolds([this] { channel_.SendTo(1, Message("hold")); });
  channel_.SendTo(0, Message("x"));
  channel_.SendAfterHolds(0, Message("y"));
  EXPECT_EQ(sent_, "0:x 1:hold 0:y ");
}

TEST_F(ShardChannelTest, NothingIsRegisteredOnceTheRegistrantIsGone) {
  FakeRegistrant a(*this, "a", 2);
  channel_.AddRegistrant(&a);
  channel_.OnSession(0);
  channel_.RemoveRegistrant(&a);
  sent_.clear();
  RunLater();
  EXPECT_EQ(sent_, "");
}

}  // namespace
}  // namespace phalanx::object_store
