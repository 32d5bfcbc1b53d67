// Large calls of a WorkerCore, which leave piece by piece.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/ps/worker/testing/worker_play.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::internal {
namespace {

using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Play = WorkerPlay;
using Ticket = WorkerCore::Ticket;

TEST(WorkerCore, LargeCallsAreCutIntoEntriesThatFitIntoAMessage) {
  TableSpec spec = SpecOf("a");
  spec.keys = 200'000;
  spec.dtype = DType::kF32;
  spec.wire = DType::kBf16;
  Play play(1, {spec});
  play.Begin(1);
  std::vector<Key> keys;
  std::vector<float> values;
  for (Key key = 0; key < spec.keys; key += 2) {
    keys.push_back(key);
    values.push_back(static_cast<float>(key % 128));
  }
  std::vector<float> out(keys.size());
  const Ticket push = *play.Push(0, keys, values.data());
  const Ticket pull = *play.Pull(0, keys, out.data());
  play.core.Flush();
  uint64_t updates = 0;
  std::map<uint32_t, std::string> pushed;  // by piece
  std::vector<std::pair<uint32_t, size_t>> pulled;
  std::vector<ServerEntry> answers;
  for (const WorkerCore::Send& send : play.core.TakeSends()) {
    EXPECT_LE(send.bytes.size(), size_t{1} << 20);
    const auto message = DecodeWorkerMessage(send.bytes);
    for (const WorkerEntry& entry : std::get<WorkerBatch>(*message).entries) {
      if (const auto* one = std::get_if<Push>(&entry)) {
        EXPECT_EQ(one->at.piece, updates++);
        EXPECT_EQ(one->values.size(), one->keys.keys.size() * 2);
        pushed[one->at.piece] = std::string(one->values);
      } else {
        // The list was sent with the push.
        const auto& asked = std::get<Pull>(entry);
        EXPECT_EQ(asked.keys.form, WireKeys::Form::kHash);
        answers.push_back(Values{asked.ticket, asked.piece, 0, pushed[asked.piece]});
      }
    }
  }
  EXPECT_GT(updates, 1u);
  for (ServerEntry& answer : answers) play.Answer(0, 1, std::move(answer));
  play.Answer(0, 1, Done{.count = updates});
  EXPECT_THAT(play.Taken(push), IsOk());
  EXPECT_THAT(play.Taken(pull), IsOk());
  EXPECT_EQ(out, values);
}

// Of 50 keys that are no run, in pieces of ten.
struct LongCall {
  static Play PlayOf(uint64_t batch_bytes = 160) {
    Play play(1, {SpecOf("a", 0)}, 0, kObjectPartBytes, 1, batch_bytes);
    play.Begin(1);
    return play;
  }
  LongCall() {
    for (Key key = 0; key < 100; key += 2) keys.push_back(key);
    values.resize(keys.size(), 1);
    out.resize(keys.size());
  }
  WorkerCore::Rows Pushed() const {
    return {.table = 0, .keys = keys, .pushes = true, .values = values.data()};
  }
  WorkerCore::Rows Pulled() { return {.table = 0, .keys = keys, .pulls = true, .out = out.data()}; }

  std::vector<Key> keys;
  std::vector<int64_t> values;
  std::vector<int64_t> out;
};

TEST(WorkerCore, TheFirstPieceOfACallLeavesBeforeTheNextOneIsCut) {
  Play play = LongCall::PlayOf();
  LongCall call;
  const Ticket ticket = *play.core.Start(call.Pushed());
  EXPECT_THAT(play.Got(0), IsEmpty());
  for (int piece = 0; piece < 5; ++piece) {
    EXPECT_TRUE(play.core.Cut());
    EXPECT_THAT(play.Got(0), ElementsAre(absl::StrCat("push 0 at 0.1.", piece, " list of 10")));
    // All that was sent is done, and the call is not.
    play.Answer(0, 1, Done{.count = static_cast<uint64_t>(piece) + 1});
    EXPECT_THAT(play.core.TakeEnded(), IsEmpty());
    EXPECT_FALSE(play.core.idle());
  }
  EXPECT_FALSE(play.core.Cut());
  EXPECT_THAT(play.Got(0), IsEmpty());
  EXPECT_THAT(play.Taken(ticket), IsOk());
  EXPECT_FALSE(play.core.Cut());
}

// The server makes the first answers while further pulls are on their way.
TEST(WorkerCore, PullsLeaveAsSoonAsTheirAnswersFillABatch) {
  Play play = LongCall::PlayOf(/*batch_bytes=*/320);
  LongCall call;
  // From here on the list of each piece of 20 keys is a hash.
  ASSERT_THAT(play.Push(0, call.keys, call.values.data()), IsOk());
  play.core.Flush();
  play.Answer(0, 1, Done{.count = 3});
  play.Got(0);
  ASSERT_THAT(play.core.Start(call.Pulled()), IsOk());
  EXPECT_TRUE(play.core.Cut());
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 hash; pull 0 at 0 hash"));
  EXPECT_FALSE(play.core.Cut());
  play.core.Flush();
  EXPECT_THAT(play.Got(0), ElementsAre("pull 0 at 0 list of 10"));
}

TEST(WorkerCore, AnotherCallCompletesTheOneBeforeIt) {
  Play play = LongCall::PlayOf();
  LongCall call;
  ASSERT_THAT(play.core.Start(call.Pushed()), IsOk());
  EXPECT_TRUE(play.core.Cut());
  ASSERT_THAT(play.core.Clock(0), IsOk());
  play.core.Flush();
  const std::vector<std::string> got = play.Got(0);
  EXPECT_THAT(absl::StrJoin(got, "; "), HasSubstr("push 0 at 0.1.4 list of 10; clock 0 0"));
  EXPECT_FALSE(play.core.Cut());
  // A thread does not make the pieces of another one's call.
  const Ticket first = *play.core.Start(call.Pushed());
  const Ticket second = *play.core.Start(call.Pushed());
  EXPECT_FALSE(play.core.Cut(first));
  EXPECT_TRUE(play.core.Cut(second));
}

// What has come counts, so the rest has to come, too.
TEST(WorkerCore, ACancelledPushGetsAllItsPieces) {
  Play play = LongCall::PlayOf();
  LongCall call;
  const Ticket ticket = *play.core.Start(call.Pushed());
  EXPECT_TRUE(play.core.Cut());
  play.core.Cancel(ticket);
  EXPECT_THAT(play.Taken(ticket), StatusIs(absl::StatusCode::kCancelled));
  while (play.core.Cut()) {
  }
  EXPECT_EQ(play.Got(0).size(), 5u);
  EXPECT_FALSE(play.core.idle());
  play.Answer(0, 1, Done{.count = 5});
  EXPECT_TRUE(play.core.idle());
}

TEST(WorkerCore, APullThatIsCancelledAndAPushThatIsRefusedGetNoMorePieces) {
  Play play = LongCall::PlayOf();
  LongCall call;
  const Ticket pull = *play.core.Start(call.Pulled());
  EXPECT_TRUE(play.core.Cut());
  play.core.Cancel(pull);
  EXPECT_FALSE(play.core.Cut());
  EXPECT_EQ(play.Got(0).size(), 1u);
  EXPECT_THAT(play.Taken(pull), StatusIs(absl::StatusCode::kCancelled));
  const Ticket push = *play.core.Start(call.Pushed());
  EXPECT_TRUE(play.core.Cut());
  play.Answer(0, 1, Refused{.ticket = push, .why = absl::InvalidArgumentError("no")});
  EXPECT_FALSE(play.core.Cut());
  EXPECT_EQ(play.Got(0).size(), 1u);
  EXPECT_THAT(play.Taken(push), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Of a server that dies in the middle nothing is lost, and nothing comes twice or in another order.
TEST(WorkerCore, ACallGoesOnWhenItsServerHasDiedInTheMiddle) {
  Play play = LongCall::PlayOf();
  LongCall call;
  const Ticket ticket = *play.core.Start(call.Pushed());
  EXPECT_TRUE(play.core.Cut());
  EXPECT_TRUE(play.core.Cut());
  play.core.OnServer(0, false, 1);
  play.core.OnServer(0, true, 2);
  play.Welcome(0, 2, {{.clock = 0, .push = 1, .piece = 0}});
  while (play.core.Cut()) {
  }
  play.core.Flush();
  EXPECT_THAT(absl::StrJoin(play.Got(0), "; "),
              HasSubstr("push 0 at 0.1.1 list of 10; push 0 at 0.1.2 list of 10; "
                        "push 0 at 0.1.3 list of 10; push 0 at 0.1.4 list of 10"));
  play.Answer(0, 2, Done{.count = 4});
  EXPECT_THAT(play.Taken(ticket), IsOk());
}

}  // namespace
}  // namespace phalanx::ps::internal
