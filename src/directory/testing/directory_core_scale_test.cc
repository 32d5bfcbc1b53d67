// How the core's work and memory grow: counts examined candidates, sent messages and allocated
// bytes, not seconds.
#include <malloc.h>

#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/directory/testing/directory_core_harness.h"

namespace phalanx::directory {
namespace {

using testing::Harness;
using testing::Id;
using testing::Labels;

const ObjectId x = Id("x");

uint64_t Examined(Harness& h) {
  v1::GetStatusResponse status;
  h.core().FillStatus(h.now(), &status);
  return status.counters().at("candidates_examined");
}

std::vector<NodeKey> UpMany(Harness& h, int count, int zones = 0) {
  std::vector<NodeKey> nodes;
  for (int i = 0; i < count; ++i) {
    Labels labels;
    if (zones > 0) labels["zone"] = std::to_string(i % zones);
    nodes.push_back(h.Up("r" + std::to_string(i), labels));
  }
  return nodes;
}

void MeasureOnce(Harness& h, const NodeKey& from, const NodeKey& to) {
  h.Create(from, Id("probe"), {.complete = true});
  h.Want(to, Id("probe"));
  v1::PullReport report = h.ReportOf(to, Id("probe"), true);
  report.set_bytes_per_second(1e9);
  report.set_first_byte_ns(200'000);
  h.Report(to, report);
}

struct Case {
  const char* name;
  int receivers;
  uint64_t size;
  bool measured;
  int zones;
};

class ManyReceivers : public ::testing::TestWithParam<Case> {};

// Wants one by one, then all before the object is put, then half of the nodes dying: the work per
// receiver is bounded.
TEST_P(ManyReceivers, CostBoundedWorkEach) {
  const Case& c = GetParam();
  Harness h;
  h.CheckEvery(c.receivers);
  const NodeKey a = h.Up("a", {{"zone", "0"}});
  const auto nodes = UpMany(h, c.receivers, c.zones);
  if (c.measured) MeasureOnce(h, a, nodes[0]);
  const uint64_t before = Examined(h);
  h.Create(a, x, {.size = c.size, .complete = true});
  for (const NodeKey& node : nodes) h.Want(node, x);
  for (const NodeKey& node : nodes) ASSERT_TRUE(h.SenderOf(node, x).valid());
  const uint64_t bound = (c.measured ? 300u : 20u) * c.receivers;
  EXPECT_LT(Examined(h) - before, bound);

  const ObjectId later = Id("later");
  for (const NodeKey& node : nodes) h.Want(node, later);
  h.Create(a, later, {.size = c.size, .complete = false});
  for (const NodeKey& node : nodes) ASSERT_TRUE(h.SenderOf(node, later).valid());
  EXPECT_LT(Examined(h) - before, 2 * bound);
  for (const NodeKey& node : nodes) h.Finish(node, x);
  EXPECT_EQ(h.Describe(x).summary().complete_copies(), static_cast<uint32_t>(c.receivers) + 1);
}

INSTANTIATE_TEST_SUITE_P(Scale, ManyReceivers,
                         ::testing::Values(Case{"Thousand", 1000, 1 << 30, false, 0},
                                           Case{"ThousandMeasured", 1000, 1 << 30, true, 0},
                                           Case{"ThousandSmall", 1000, 100'000, true, 0},
                                           Case{"ThousandInTenZones", 1000, 1 << 30, false, 10},
                                           Case{"TenThousand", 10'000, 1 << 30, false, 0},
                                           Case{"TenThousandSmall", 10'000, 100'000, true, 0},
                                           Case{"TenThousandInAThousandZones", 10'000, 1 << 30,
                                                false, 1000}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DirectoryCoreScaleTest, EveryReceiverIsServedThoughEveryTenthOfAThousandRelaysDies) {
  Harness h;
  h.CheckEvery(100);
  const NodeKey a = h.Up("a");
  const auto nodes = UpMany(h, 1000);
  h.Create(a, x, {.size = 1 << 30, .complete = true});
  for (const NodeKey& node : nodes) h.Want(node, x);
  const uint64_t before = Examined(h);
  h.Clear();
  for (size_t i = 0; i < nodes.size(); i += 10) h.Down(nodes[i]);
  EXPECT_LT(h.messages(), 200u) << "only those who lost their sender hear of it";
  EXPECT_LT(Examined(h) - before, 100u * 1000u)
      << "at most the holders of the object, for each death";
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i % 10 == 0) continue;
    const NodeKey sender = h.SenderOf(nodes[i], x);
    EXPECT_TRUE(sender == a || (sender.node - nodes[0].node) % 10 != 0) << "a dead sender";
  }
}

TEST(DirectoryCoreScaleTest, ASmallPutAndASmallGetAreOneMessageEachWay) {
  Harness h;
  h.CheckEvery(5000);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  h.Clear();
  for (int i = 0; i < 5000; ++i) {
    const ObjectId id = Id("o" + std::to_string(i));
    h.Create(a, id, {.inline_bytes = "0123456789"});
    h.Want(b, id);
  }
  EXPECT_EQ(h.messages(), 10'000u);
  EXPECT_EQ(Examined(h), 0u);
}

TEST(DirectoryCoreScaleTest, StateIsFreedWithTheLastThatNeedsIt) {
  Harness h;
  h.CheckEvery(1000);
  const NodeKey a = h.Up("a");
  const NodeKey b = h.Up("b");
  for (int i = 0; i < 1000; ++i) {
    const ObjectId id = Id("o" + std::to_string(i));
    h.Create(a, id, {.complete = true});
    h.Want(b, id);
    h.Want(b, Id("never" + std::to_string(i)));
  }
  h.Down(a);
  h.Down(b);
  h.Advance(absl::Minutes(11));
  v1::GetStatusResponse status;
  h.core().FillStatus(h.now(), &status);
  EXPECT_EQ(status.objects(), 0u);
  EXPECT_EQ(status.waiting(), 0u);
  EXPECT_EQ(status.inline_bytes(), 0u);
  EXPECT_TRUE(h.core().NextDeadline().infinite());
}

TEST(ManyTombstones, AreForgottenSomeInEachTurn) {
  Harness h;
  h.CheckEvery(1000);
  const NodeKey a = h.Up("a");
  for (int i = 0; i < 10'000; ++i) {
    const ObjectId id = Id(std::to_string(i));
    h.Create(a, id, {.complete = true});
    h.Delete(a, id);
  }
  h.NewSession(a);
  h.RegisterEnd(a);
  const auto left = [&h] {
    v1::GetStatusResponse status;
    h.core().FillStatus(h.now(), &status);
    return status.tombstones();
  };
  ASSERT_EQ(left(), 10'000u);
  h.Advance(absl::Minutes(10));
  EXPECT_EQ(left(), 10'000u - 4096);
  EXPECT_LE(h.core().NextDeadline(), h.now()) << "the rest in the next turns";
  h.Advance(absl::ZeroDuration());
  h.Advance(absl::ZeroDuration());
  EXPECT_EQ(left(), 0u);
}

// In bytes; 0 if the sanitizers allocate.
size_t Allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Returns the bytes that the core keeps of an object that was put and deleted, and that its holder
// has dropped.
double BytesOfADeletedObject(const std::string& namespace_of_names) {
  constexpr int kObjects = 1'000'000;
  Harness h;
  h.CheckEvery(kObjects * 4);
  const NodeKey a = h.Up("a");
  h.Clear();
  size_t before = 0;
  for (int i = 0; i < kObjects + 1000; ++i) {
    // Tables that every shard has are there.
    if (i == 1000) before = Allocated();
    const std::string name = "object-" + std::to_string(i);
    ObjectId id = ObjectId::FromName("drawn", name);
    testing::Creation creation{.complete = true};
    if (!namespace_of_names.empty()) {
      creation.name = ObjectName::Of(namespace_of_names, name);
      id = ObjectId::FromName(namespace_of_names, name);
    }
    const Generation generation = h.Create(a, id, creation);
    h.Delete(a, id);
    h.Confirm(a, id, generation);
    h.Clear();
  }
  return static_cast<double>(Allocated() - before) / kObjects;
}

TEST(ManyTombstones, TakeLessThanAHundredBytesEach) {
  if (Allocated() == 0) GTEST_SKIP() << "the memory is not the C library's";
  const double bytes = BytesOfADeletedObject("");
  const double named = BytesOfADeletedObject("batch");
  std::cout << "a deleted object takes " << bytes << " bytes, one with a name " << named << "\n";
  EXPECT_LT(bytes, 100);
  EXPECT_LT(named, 140);
}

}  // namespace
}  // namespace phalanx::directory
