#include "src/directory/jobs/job_messages.h"

#include <string>

#include "src/common/testing/status_matchers.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

v1::JoinRequest Join() {
  v1::JoinRequest join;
  join.set_request_id(7);
  join.set_job("train");
  join.set_role("worker");
  join.set_task("worker3");
  join.set_world(8);
  return join;
}

v1::RegisterJob Registration() {
  v1::RegisterJob job;
  job.set_job("train");
  job.mutable_epoch()->set_incarnation(5);
  job.mutable_epoch()->set_counter(6);
  v1::JobRole* role = job.add_roles();
  role->set_name("worker");
  role->set_world(8);
  v1::JobMember* member = job.add_members();
  member->set_rank(3);
  member->set_task("worker3");
  member->set_life(2);
  member->set_state(v1::JobMember::DIED);
  member->mutable_node()->set_node(1);
  return job;
}

template <typename Message, typename Parse, typename Change>
void ExpectRefused(const Message& message, Parse parse, Change change, const std::string& text) {
  Message changed = message;
  change(changed);
  EXPECT_THAT(parse(changed).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(JobMessages, AJoinHasNamesAWorldAndPerhapsARank) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const JoinSpec spec, ParseJoin(Join()));
  EXPECT_EQ(spec.task, "worker3");
  EXPECT_EQ(spec.world, 8);
  EXPECT_FALSE(spec.rank.has_value());
  const auto refuse = [](auto change, const std::string& text) {
    ExpectRefused(Join(), ParseJoin, change, text);
  };
  refuse([](auto& m) { m.set_job(""); }, "a job needs a name");
  refuse([](auto& m) { m.set_role(std::string(256, 'r')); }, "at most 255 bytes");
  refuse([](auto& m) { m.set_task("a\x7f"); }, "control characters");
  refuse([](auto& m) { m.set_world(0); }, "world: 0 is not in 1..65536");
  refuse([](auto& m) { m.set_world(65537); }, "world: 65537");
  refuse(
      [](auto& m) {
        m.set_has_rank(true);
        m.set_rank(8);
      },
      "rank: 8 in a world of 8");
}

TEST(JobMessages, ARegistrationHasRolesAndMembersInThem) {
  PHALANX_ASSERT_OK_AND_ASSIGN(const RegisteredJob job, ParseRegisterJob(Registration()));
  EXPECT_EQ(job.epoch, (JobEpoch{5, 6}));
  ASSERT_EQ(job.members.size(), 1u);
  EXPECT_EQ(job.members[0].life, 2u);
  EXPECT_EQ(job.members[0].state, MemberState::kDied);
  const auto refuse = [](auto change, const std::string& text) {
    ExpectRefused(Registration(), ParseRegisterJob, change, text);
  };
  refuse([](auto& m) { m.mutable_members(0)->set_role(1); }, "role 1 of 1");
  refuse([](auto& m) { m.mutable_members(0)->set_rank(8); }, "rank 8 in a world of 8");
  refuse([](auto& m) { m.mutable_members(0)->set_state(v1::JobMember::UNKNOWN); }, "state 0");
  refuse([](auto& m) { m.mutable_members(0)->clear_node(); }, "node");
  refuse([](auto& m) { m.mutable_members(0)->set_life(~uint64_t{0}); }, "life");
  refuse([](auto& m) { m.mutable_epoch()->set_incarnation(~uint64_t{0}); }, "epoch");
  refuse([](auto& m) { m.mutable_members(0)->set_host(std::string(1100, 'h')); }, "too long");
  refuse(
      [](auto& m) {
        for (int i = 0; i < 16; ++i) *m.add_roles() = m.roles(0);
      },
      "roles: 17 of at most 16");
}

TEST(JobMessages, TheHostOfANodeIsItsLabelOrThatOfItsAddress) {
  v1::NodeInfo node;
  node.set_name("n");
  node.set_address("10.0.0.7:7410");
  EXPECT_EQ(PlaceOf(node).host, "10.0.0.7");
  (*node.mutable_labels())["host"] = "box7";
  EXPECT_EQ(PlaceOf(node).host, "box7");
}

}  // namespace
}  // namespace phalanx::directory
