#include "src/directory/core/status_report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/objects/object_fixture.h"

namespace phalanx::directory {
namespace {

using phalanx::testing::HasCode;
using testing::kA;
using testing::kB;
using testing::kC;
using testing::ObjectFixture;

class IgnoredRefusals final : public PullListener {
 public:
  void OnRefused(Object&, const NodeKey&) override {}
  void OnOrderRefused(const ObjectId&, const NodeKey&, PlanId) override {}
  void OnReported(Object&, const NodeKey&, PlanId, bool) override {}
  void OnRoomFreed() override {}
};

class IgnoredDeletes final : public DeletedResultListener {
 public:
  void OnDeletedGeneration(const ObjectId&, const Generation&) override {}
};

class StatusReportTest : public ObjectFixture {
 protected:
  StatusReportTest() { listeners_ = {&scheduler_, &reduction_manager_, &drains_, &placements_}; }

  static std::string Bytes(const ObjectId& id) {
    return std::string(id.binary().data(), ObjectId::kSize);
  }
  void Want(const NodeKey& key) {
    v1::Want m;
    m.set_object_id(Bytes(id_));
    PHALANX_ASSERT_OK(scheduler_.OnWant(node(key), m));
  }
  v1::DescribeObjectResponse Describe() {
    v1::DescribeObjectResponse out;
    PHALANX_EXPECT_OK(report_.Describe(id_, context_.now, &out));
    return out;
  }
  // The ids of a page behind `after`.
  v1::ListObjectsResponse List(uint32_t limit = 0, const std::string& after = "") {
    v1::ListObjectsRequest request;
    request.set_limit(limit);
    request.set_after_object_id(after);
    v1::ListObjectsResponse out;
    PHALANX_EXPECT_OK(report_.List(request, context_.now, &out));
    return out;
  }
  v1::GetStatusResponse Status() {
    v1::GetStatusResponse out;
    report_.FillStatus(context_.now, &out);
    return out;
  }

  IgnoredRefusals refusals_;
  IgnoredDeletes deletes_;
  PlacementTable placement_table_{PlacementTable::Limits{}};
  CopyKeeper copies_{{context_, nodes_, outbox_, gate_, table_}};
  PullScheduler scheduler_{{context_, nodes_, outbox_, gate_, table_, tombstones_, failures_,
                            inline_cache_, placement_table_},
                           refusals_};
  ReductionManager reduction_manager_{
      {context_, nodes_, outbox_, gate_, table_, tombstones_, failures_, holds_,
       scheduler_.planner().links(), scheduler_.planner().pairs()},
      deletes_};
  DeleteWaits delete_waits_{context_, nodes_, outbox_, gate_, tombstones_};
  JobManager jobs_{{context_, nodes_, outbox_, gate_}};
  StatusReport report_{{context_, nodes_, holds_, tombstones_, delete_waits_, inline_cache_,
                        placement_table_, copies_, scopes_, table_, scheduler_, reduction_manager_,
                        jobs_}};
};

TEST_F(StatusReportTest, AnUnknownIdIsNotFound) {
  v1::DescribeObjectResponse out;
  EXPECT_THAT(report_.Describe(id_, context_.now, &out), HasCode(absl::StatusCode::kNotFound));
}

TEST_F(StatusReportTest, ADescriptionHasTheCopiesTheirPullsAndTheWaitingNodes) {
  Want(kC);
  EXPECT_EQ(Describe().waiting(0).name(), "c");
  Create(kA, /*complete=*/true);
  Advance(absl::Seconds(1));
  const v1::DescribeObjectResponse out = Describe();
  EXPECT_EQ(FromProto(out.summary().generation()), Gen(kA));
  EXPECT_EQ(out.summary().complete_copies(), 1u);
  EXPECT_EQ(out.summary().partial_copies(), 1u);
  EXPECT_EQ(out.waiting_size(), 0);
  ASSERT_EQ(out.copies_size(), 2);
  EXPECT_EQ(out.copies(0).name(), "a");
  EXPECT_TRUE(out.copies(0).complete());
  EXPECT_FALSE(out.copies(0).pulling());
  EXPECT_EQ(out.copies(0).receivers(), 1u);
  EXPECT_EQ(out.copies(1).name(), "c");
  EXPECT_TRUE(out.copies(1).pulling());
  EXPECT_EQ(out.copies(1).sender_name(), "a");
  EXPECT_EQ(out.copies(1).elapsed_ns(), 1000000000u);
  EXPECT_EQ(out.copies_left_out(), 0u);
}

TEST_F(StatusReportTest, ADeletedObjectIsDescribedByItsTombstone) {
  tombstones_.Add(id_, Gen(kA)).SetObject(7, 1, ObjectName());
  const v1::DescribeObjectResponse out = Describe();
  EXPECT_TRUE(out.summary().deleted());
  EXPECT_EQ(out.summary().info().size_bytes(), 7u);
  EXPECT_EQ(FromProto(out.summary().generation()), Gen(kA));
}

TEST_F(StatusReportTest, ATargetWithoutAnObjectIsDescribedByItsReduction) {
  v1::ReduceRequest m;
  m.set_request_id(1);
  m.set_object_id(Bytes(id_));
  m.mutable_reduction()->add_source_ids(Bytes(ObjectId::FromName("test", "source")));
  PHALANX_ASSERT_OK(reduction_manager_.OnReduce(node(kA), m));
  const v1::DescribeObjectResponse out = Describe();
  EXPECT_TRUE(out.summary().reducing());
  EXPECT_EQ(out.reduction().needed(), 1u);
  EXPECT_EQ(Status().reductions(), 1u);
  EXPECT_EQ(Status().running_reductions_size(), 1);
}

TEST_F(StatusReportTest, APageListsLiveAndDeletedIdsInOrder) {
  Create(kA, /*complete=*/true);
  std::vector<ObjectId> ids = {id_};
  for (const char* name : {"x", "y", "z"}) {
    ids.push_back(ObjectId::FromName("test", name));
    tombstones_.Add(ids.back(), Gen(kA));
  }
  std::sort(ids.begin(), ids.end());
  std::string after;
  for (size_t i = 0; i < ids.size(); ++i) {
    const v1::ListObjectsResponse page = List(/*limit=*/1, after);
    ASSERT_EQ(page.objects_size(), 1);
    EXPECT_EQ(page.objects(0).object_id(), Bytes(ids[i]));
    EXPECT_EQ(page.objects(0).deleted(), ids[i] != id_);
    EXPECT_EQ(page.more(), i + 1 < ids.size());
    after = page.listed_to();
  }
}

TEST_F(StatusReportTest, AListWithoutDeletedObjectsHasTheOthers) {
  Create(kA, /*complete=*/true);
  for (const char* name : {"x", "y", "z"})
    tombstones_.Add(ObjectId::FromName("test", name), Gen(kA));
  v1::ListObjectsRequest request;
  request.set_without_deleted(true);
  v1::ListObjectsResponse out;
  PHALANX_ASSERT_OK(report_.List(request, context_.now, &out));
  ASSERT_EQ(out.objects_size(), 1);
  EXPECT_EQ(out.objects(0).object_id(), Bytes(id_));
  EXPECT_FALSE(out.more());
  request.set_after_object_id(Bytes(id_));
  out.Clear();
  PHALANX_ASSERT_OK(report_.List(request, context_.now, &out));
  EXPECT_EQ(out.objects_size(), 0);
}

TEST_F(StatusReportTest, TheAgeCountsFromTheAdoption) {
  Want(kB);
  Advance(absl::Seconds(3));
  EXPECT_EQ(Describe().summary().age_ns(), 3000000000u) << "waited for";
  Create(kA, /*complete=*/true);
  EXPECT_EQ(Describe().summary().age_ns(), 0u);
  Advance(absl::Seconds(2));
  EXPECT_EQ(Describe().summary().age_ns(), 2000000000u);
  EXPECT_EQ(List().objects(0).age_ns(), 2000000000u);
}

TEST_F(StatusReportTest, AnIdThatWasPutAgainIsListedOnceAndAlive) {
  tombstones_.Add(id_, Gen(kB));
  Create(kA, /*complete=*/true);
  const v1::ListObjectsResponse page = List();
  ASSERT_EQ(page.objects_size(), 1);
  EXPECT_FALSE(page.objects(0).deleted());
}

TEST_F(StatusReportTest, APageBehindSomethingElseThanAnIdIsInvalid) {
  v1::ListObjectsRequest request;
  request.set_after_object_id("short");
  v1::ListObjectsResponse out;
  EXPECT_THAT(report_.List(request, context_.now, &out),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(StatusReportTest, TheStatusHasTheNodesAndTheCounters) {
  Create(kA, /*complete=*/true);
  Want(kB);
  node(kC).draining = true;
  node(kC).connected = false;
  Advance(absl::Seconds(2));
  const v1::GetStatusResponse out = Status();
  ASSERT_EQ(out.nodes_size(), 3);
  EXPECT_EQ(out.nodes(0).info().name(), "a");
  EXPECT_EQ(out.nodes(0).copies(), 1u);
  EXPECT_EQ(out.nodes(0).pushes(), 1u);
  EXPECT_EQ(out.nodes(1).pulls(), 1u);
  EXPECT_TRUE(out.nodes(2).draining());
  EXPECT_FALSE(out.nodes(2).connected());
  EXPECT_EQ(out.uptime_ns(), 2000000000u);
  EXPECT_EQ(out.objects(), 1u);
  EXPECT_EQ(out.counters().at("creates"), 1u);
  EXPECT_EQ(out.counters().at("adopted"), 1u);
  EXPECT_EQ(out.counters().at("assigned"), 1u);
  EXPECT_THAT(out.gauges(), ::testing::ElementsAre(
                                "holds", "holds_complete", "jobs", "job_members", "joins_waiting",
                                "sticky", "broadcasts_waited_for", "ended_scopes", "scope_objects",
                                "scopes_waited_for", "short_of_copies", "copies_waited_for"));
  for (const std::string& name : out.gauges()) EXPECT_TRUE(out.counters().contains(name)) << name;
}

}  // namespace
}  // namespace phalanx::directory
