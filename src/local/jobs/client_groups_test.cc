// Calls of groups whose clients copy their inputs late, or not as they should, and results of which
// parts are shown early: one node with a real socket.
#include "src/local/jobs/client_groups.h"

#include <sys/resource.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"
#include "src/local/testing/raw_member.h"

namespace phalanx::object_store {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::object_store::testing::RawMember;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint64_t kBytes = uint64_t{1} << 20;

jobs::CallSpec Sum(uint64_t bytes = kBytes) {
  return {.kind = jobs::CallKind::kAllReduce, .bytes = bytes};
}

// Expects that the node closes the connection with this reason.
void ExpectRefused(RawMember& member, const std::string& reason) {
  EXPECT_THAT(member.client().Reason(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
}

TEST(ClientGroups, ACallBeginsWithWhatIsThereOfItsInput) {
  LocalNode node;
  RawMember member(node, "worker0", 1);
  member.Call(Sum(), kBytes, kBytes / 8);
  member.Fill(kBytes / 2, kBytes / 2);
  member.Fill(kBytes / 8, kBytes / 2 - kBytes / 8);
  const auto done = member.Await<local::GroupDone>();
  EXPECT_EQ(done.number, 1u);
  EXPECT_EQ(done.members, 1u);
  // Nothing is left to be filled.
  member.Fill(0, kBytes);
  member.Fill(77, 0, 1);
  member.Call(Sum(), kBytes, kBytes);
  EXPECT_EQ(member.Await<local::GroupDone>().number, 2u);
}

TEST(ClientGroups, BytesBeyondTheInputEndTheClient) {
  LocalNode node;
  for (const auto& [from, bytes] : {std::pair{kBytes - 1, uint64_t{2}},
                                    {kBytes, uint64_t{1}},
                                    {uint64_t{0}, ~uint64_t{0}},
                                    {~uint64_t{0}, uint64_t{1}}}) {
    RawMember member(node, "worker0", 1);
    member.Call(Sum(), kBytes, 1);
    member.Fill(from, bytes);
    ExpectRefused(member, "of 1048576");
  }
}

TEST(ClientGroups, TooManyGapsEndTheClient) {
  LocalNode node;
  RawMember member(node, "worker0", 1);
  member.Call(Sum(), kBytes, 1);
  for (uint64_t i = 1; i <= jobs::kMaxByteRanges; ++i) member.Fill(2 * i, 1);
  ExpectRefused(member, "more than 16 ranges");
}

TEST(ClientGroups, AClientThatDiesWhileItCopiesHasGivenNothing) {
  LocalNode node;
  jobs::CallSpec spec = Sum();
  spec.on_loss = jobs::OnLoss::kExclude;
  RawMember stays(node, "worker0", 2);
  auto dies = std::make_unique<RawMember>(node, "worker1", 2);
  stays.Call(spec, kBytes, kBytes);
  dies->Call(spec, kBytes, kBytes - 1);
  dies.reset();
  EXPECT_EQ(stays.Await<local::GroupDone>().members, 1u);
}

TEST(ClientGroups, TheErrorAtTheDeadlineNamesTheMemberThatIsStillCopying) {
  LocalNode node;
  RawMember waits(node, "worker0", 2);
  RawMember copies(node, "worker1", 2);
  copies.Call(Sum(), kBytes, kBytes - 1);
  copies.NewBuffer(1);
  waits.Call(Sum(), kBytes, kBytes, absl::Milliseconds(50));
  EXPECT_EQ(waits.Await<local::GroupDone>().members, 0u);
  const auto answer = waits.client().Receive();
  ASSERT_TRUE(answer.has_value() && std::holds_alternative<local::Failed>(*answer));
  const auto& failed = std::get<local::Failed>(*answer);
  EXPECT_EQ(failed.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(failed.message), HasSubstr("waiting for rank 1 (worker1)"));
}

// The two arrive at once, so the member has its answer and is still in the list.
TEST(ClientGroups, ACallGetsTheRestOfTheInputOfAMemberThatLeavesWhileItCopies) {
  LocalNode node;
  RawMember stays(node, "worker0", 2);
  RawMember leaves(node, "worker1", 2);
  stays.Call(Sum(), kBytes, kBytes);
  leaves.Call(Sum(), kBytes, 1);
  // Two inputs, and the memory of the call.
  node.Await([&] { return node.memory().stats().allocated_bytes >= 3 * kBytes; });
  std::string both;
  local::Encode(local::LeaveJob{1, false}, both);
  local::Encode(local::GroupFilled{RawMember::kCall, 1, kBytes - 1}, both);
  leaves.client().SendBytes(both);
  EXPECT_EQ(stays.Await<local::GroupDone>().members, 2u);
}

TEST(ClientGroups, ACallGoesOnWithoutAMemberThatLeavesWhileItCopies) {
  LocalNode node;
  jobs::CallSpec spec = Sum();
  spec.on_loss = jobs::OnLoss::kExclude;
  RawMember stays(node, "worker0", 2);
  RawMember leaves(node, "worker1", 2);
  stays.Call(spec, kBytes, kBytes);
  leaves.Call(spec, kBytes, 1);
  leaves.Leave();
  EXPECT_EQ(stays.Await<local::GroupDone>().members, 1u);
}

// More than the node lets wait.
TEST(ClientGroups, QuestionsThatAreCancelledMakeRoomForOthers) {
  LocalNode node;
  RawMember member(node, "worker0", 2);
  for (uint64_t request = 10; request < 1500; ++request) {
    member.client().Send(local::GroupResult{request, 1, 1, absl::InfiniteDuration()});
    member.client().Send(local::Cancel{request});
    std::optional<local::Answer> answer;
    do {
      answer = member.client().Receive();
    } while (answer.has_value() && !std::holds_alternative<local::Failed>(*answer));
    ASSERT_TRUE(answer.has_value());
    const auto& failed = std::get<local::Failed>(*answer);
    ASSERT_EQ(failed.request, request);
    ASSERT_EQ(failed.code, absl::StatusCode::kCancelled) << std::string(failed.message);
  }
}

// Capacity for three inputs and one result, but not for a result and a half.
TEST(ClientGroups, ACallThatIsTakenAgainNeedsTheMemoryOfItsResultOnce) {
  LocalNode node(7 * kBytes);
  const jobs::CallSpec spec{
      .kind = jobs::CallKind::kAllGather, .on_loss = jobs::OnLoss::kExclude, .bytes = kBytes};
  RawMember stay[] = {{node, "worker0", 3}, {node, "worker1", 3}};
  auto dies = std::make_unique<RawMember>(node, "worker2", 3);
  for (RawMember& member : stay) member.Call(spec, kBytes, kBytes);
  dies->Call(spec, kBytes, 1);
  uint64_t pins[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    pins[i] = stay[i].Await<local::Mapped>().pin;
    EXPECT_GE(stay[i].Await<local::GroupPart>().bytes, kBytes);
  }
  dies.reset();
  for (size_t i = 0; i < 2; ++i) {
    // What was shown is void.
    while (stay[i].Await<local::GroupPart>().bytes > 0) {
    }
    stay[i].Release(pins[i]);
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NE(stay[i].Await<local::Mapped>().pin, pins[i]);
    EXPECT_EQ(stay[i].Await<local::GroupDone>().members, 2u);
  }
}

// The node has no descriptor for the client when it shows the first part, and has one at the end.
TEST(ClientGroups, AResultThatCouldNotBeMappedEarlyIsMappedAtTheEnd) {
  LocalNode node;
  const jobs::CallSpec spec{.kind = jobs::CallKind::kAllGather, .bytes = kBytes};
  RawMember gets(node, "worker0", 2);
  RawMember copies(node, "worker1", 2);
  gets.Call(spec, kBytes, 1);
  copies.Call(spec, kBytes, 1);
  // Two inputs, and the memory of the result.
  node.Await([&] { return node.memory().stats().allocated_bytes >= 4 * kBytes; });
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  gets.Fill(1, kBytes - 1);
  const auto first = gets.client().Receive();
  const bool part = first.has_value() && std::holds_alternative<local::GroupPart>(*first);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_TRUE(part);
  copies.Fill(1, kBytes - 1);
  EXPECT_EQ(gets.Await<local::Mapped>().object_size, 2 * kBytes);
  EXPECT_EQ(gets.Await<local::GroupDone>().members, 2u);
}

}  // namespace
}  // namespace phalanx::object_store
