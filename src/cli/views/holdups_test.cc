#include "src/cli/views/holdups.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Adds node `number`, which pulls from `sender` (0: a root) and was starved for `starved` of the
// last second.
v1::CopyDescription& Add(v1::DescribeObjectResponse& object, uint64_t number, uint64_t sender,
                         double starved) {
  v1::CopyDescription& copy = *object.add_copies();
  copy.mutable_node()->set_node(number);
  copy.set_name(absl::StrCat("n", number));
  copy.set_connected(true);
  if (sender == 0) return copy;
  copy.mutable_sender()->set_node(sender);
  copy.set_sender_name(absl::StrCat("n", sender));
  copy.set_pulling(true);
  copy.set_bytes_per_second(12.5e6);
  copy.set_elapsed_ns(1'000'000'000);
  copy.set_starved_ns(static_cast<uint64_t>(starved * 1e9));
  return copy;
}

// Returns "SLOW: NAMES" for each.
std::vector<std::string> Holdups(const v1::DescribeObjectResponse& object) {
  std::vector<std::string> texts;
  for (const Holdup& holdup : FindHoldups(object)) {
    std::string text = absl::StrCat(HoldupText(holdup), ":");
    for (const v1::CopyDescription* copy : holdup.waiting)
      absl::StrAppend(&text, " ", copy->name());
    texts.push_back(std::move(text));
  }
  return texts;
}

TEST(HoldupsTest, ASlowLinkHoldsUpAllDescendants) {
  v1::DescribeObjectResponse object;
  Add(object, 5, 4, 0.9);
  Add(object, 4, 3, 0.8);
  Add(object, 10, 3, 0.8);
  Add(object, 3, 2, 0.1).set_bytes_per_second(3.1e6);
  Add(object, 2, 1, 0);
  Add(object, 1, 0, 0).set_complete(true);
  EXPECT_THAT(Holdups(object), ElementsAre("n2 -> n3 at 3.10 MB/s: n4 n5 n10"));
}

TEST(HoldupsTest, NoHoldupIfEveryLinkIsBusy) {
  v1::DescribeObjectResponse object;
  Add(object, 1, 0, 0).set_complete(true);
  Add(object, 2, 1, 0);
  Add(object, 3, 2, 0.4);
  EXPECT_THAT(Holdups(object), IsEmpty());
}

TEST(HoldupsTest, ASlowWriterAndALostSenderAreNamed) {
  v1::DescribeObjectResponse object;
  Add(object, 1, 0, 0).set_primary(true);
  Add(object, 2, 1, 0.9);
  Add(object, 3, 2, 0.9);
  Add(object, 4, 2, 0.2).set_connected(false);
  Add(object, 5, 4, 0.9);
  Add(object, 6, 0, 0);
  Add(object, 7, 6, 0.9);
  EXPECT_THAT(Holdups(object),
              ElementsAre("the writer at n1: n2 n3", "n4, which is not connected: n5",
                          "n6, which has no sender: n7"));
}

TEST(HoldupsTest, IgnoresInvalidRecords) {
  v1::DescribeObjectResponse object;
  Add(object, 1, 2, 0.9);
  Add(object, 2, 1, 0.9);
  Add(object, 3, 99, 0.9);
  Add(object, 4, 4, 0.9);
  EXPECT_THAT(Holdups(object), IsEmpty());
  v1::DescribeObjectResponse complete;
  Add(complete, 1, 0, 0).set_complete(true);
  Add(complete, 2, 1, 0.9);
  EXPECT_THAT(Holdups(complete), IsEmpty());
}

}  // namespace
}  // namespace phalanx::runtime
