// The core's answers to the tools: descriptions, lists, and the entries that are left out of them.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using ::phalanx::testing::StatusIs;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Id;
using testing::Labels;

const ObjectId x = Id("x");

TEST(ToolsTest, AFinishedTreeCanBeDrawn) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = 1000, .complete = true});
  h.Want(b, x);
  h.Advance(absl::Milliseconds(40));
  v1::PullReport report = h.ReportOf(b, x, true);
  report.set_bytes_received(1000);
  report.set_bytes_per_second(25'000);
  h.Report(b, report);
  h.Advance(absl::Seconds(9));
  const v1::CopyDescription copy = h.Describe(x).copies(1);
  EXPECT_EQ(copy.sender_name(), "a");
  EXPECT_FALSE(copy.pulling());
  EXPECT_EQ(copy.bytes_received(), 1000u);
  EXPECT_EQ(copy.elapsed_ns(), 40'000'000u);
}

TEST(ToolsTest, ARunningPullReportsHowLongItsSenderHadNoBytes) {
  Harness h;
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Create(a, x, {.size = 8 << 20, .complete = true});
  h.Want(b, x);
  h.Advance(absl::Seconds(1));
  h.Progress(b, x, 1 << 20, 1e6, absl::Milliseconds(700));
  const v1::DescribeObjectResponse object = h.Describe(x);
  ASSERT_EQ(object.copies_size(), 2);
  EXPECT_TRUE(object.copies(1).pulling());
  EXPECT_EQ(object.copies(1).starved_ns(), 700'000'000u);
  EXPECT_EQ(object.copies(1).elapsed_ns(), 1'000'000'000u);
}

TEST(ToolsTest, ListsPageInOrderOfIds) {
  Harness h;
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 10; ++i) h.Create(a, Id(std::to_string(i)), {.complete = true});
  h.Delete(a, Id("3"));
  v1::ListObjectsRequest request;
  request.set_limit(4);
  std::vector<std::string> seen;
  while (true) {
    v1::ListObjectsResponse page;
    PHALANX_ASSERT_OK(h.core().List(request, h.now(), &page));
    for (const auto& object : page.objects()) seen.push_back(object.object_id());
    if (!page.more()) break;
    EXPECT_EQ(page.objects_size(), 4);
    EXPECT_EQ(page.listed_to(), seen.back());
    request.set_after_object_id(page.listed_to());
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(ToolsTest, AListFromAnInvalidIdIsRefused) {
  Harness h;
  h.Create(h.Up("a"), x, {.complete = true});
  v1::ListObjectsRequest request;
  request.set_after_object_id("short");
  v1::ListObjectsResponse page;
  EXPECT_THAT(h.core().List(request, h.now(), &page),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("after_object_id")));
  EXPECT_EQ(page.objects_size(), 0);
}

TEST(ToolsTest, AListWithManyBytesHasManyPages) {
  Harness h;
  h.CheckEvery(100);
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 1000; ++i) {
    h.Create(a, Id(std::to_string(i)), {.complete = true, .metadata = std::string(4096, 'm')});
  }
  v1::ListObjectsRequest request;
  v1::ListObjectsResponse page;
  PHALANX_ASSERT_OK(h.core().List(request, h.now(), &page));
  EXPECT_TRUE(page.more());
  EXPECT_LT(page.ByteSizeLong(), (2 << 20) + 5000);
  const int first = page.objects_size();
  request.set_after_object_id(page.listed_to());
  page.Clear();
  PHALANX_ASSERT_OK(h.core().List(request, h.now(), &page));
  EXPECT_FALSE(page.more());
  EXPECT_EQ(first + page.objects_size(), 1000);
}

TEST(ToolsTest, AListDoesNotExamineAllUnlistedIds) {
  Harness h;
  h.CheckEvery(1 << 20);
  const NodeKey a = h.Up("a");
  constexpr int kIds = 25'000;
  for (int i = 0; i < kIds; ++i) {
    const ObjectId id = Id(std::to_string(i));
    h.Create(a, id);
    h.Delete(a, id);
    h.Withdraw(a, id, h.Create(a, id));
    h.Clear();
  }
  v1::ListObjectsRequest request;
  v1::ListObjectsResponse page;
  PHALANX_ASSERT_OK(h.core().List(request, h.now(), &page));
  EXPECT_EQ(page.objects_size(), 0);
  ASSERT_TRUE(page.more()) << "all " << kIds << " ids were looked at in one turn";
  request.set_after_object_id(page.listed_to());
  page.Clear();
  PHALANX_ASSERT_OK(h.core().List(request, h.now(), &page));
  EXPECT_FALSE(page.more());
}

TEST(ToolsTest, ADescriptionIsCutAndCountsTheRest) {
  Harness h;
  h.CheckEvery(1000);
  const NodeKey a = h.Up("a");
  h.Create(a, x, {.slices = 64});
  const ObjectId unknown = Id("never put");
  Labels labels;
  for (int i = 0; i < 16; ++i) labels[std::to_string(i)] = std::string(120, 'v');
  constexpr int kNodes = 4000;
  for (int i = 0; i < kNodes; ++i) {
    const NodeKey node = h.Up(std::string(120, 'n'), labels);
    h.Want(node, x);
    h.Want(node, unknown);
  }
  // So many nodes are placed together.
  h.Advance(absl::Milliseconds(20));
  v1::DescribeObjectResponse described = h.Describe(x);
  EXPECT_GT(described.copies_left_out(), 0u);
  EXPECT_EQ(described.copies_size() + described.copies_left_out(),
            described.summary().partial_copies());
  EXPECT_LT(described.ByteSizeLong(), 3 << 20);
  described = h.Describe(unknown);
  EXPECT_GT(described.waiting_left_out(), 0u);
  EXPECT_EQ(described.waiting_size() + described.waiting_left_out(), kNodes);
  EXPECT_LT(described.ByteSizeLong(), 3 << 20);
}

TEST(ToolsTest, AnUnknownObjectIsNotFound) {
  Harness h;
  v1::DescribeObjectResponse out;
  EXPECT_THAT(h.core().Describe(x, h.now(), &out), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace phalanx::directory
