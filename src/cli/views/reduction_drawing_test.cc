#include "src/cli/views/reduction_drawing.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using ::testing::HasSubstr;
using Slot = v1::ReductionDescription::Slot;

v1::ReductionDescription Described(int slots) {
  v1::ReductionDescription reduction;
  reduction.mutable_reduction()->set_dtype(2);
  reduction.set_ready(slots);
  reduction.set_needed(slots);
  reduction.set_size_bytes(1000);
  reduction.set_degree(2);
  reduction.set_epoch(1);
  return reduction;
}

Slot& Add(v1::ReductionDescription& reduction, int parent, const std::string& node,
          uint64_t watermark = 0) {
  Slot& slot = *reduction.add_slots();
  slot.set_slot(reduction.slots_size() - 1);
  slot.set_parent(parent);
  if (node.empty()) return slot;
  slot.mutable_node()->set_node(reduction.slots_size());
  slot.set_node_name(node);
  slot.set_connected(true);
  slot.add_source_ids(std::string(20, 'x'));
  slot.mutable_version()->set_sequence(1);
  slot.set_watermark(watermark);
  return slot;
}

TEST(ReductionDrawingTest, DrawsSlotsBelowTheirParents) {
  v1::ReductionDescription reduction = Described(3);
  Add(reduction, 1, "n0");
  Add(reduction, -1, "n1", 250).set_bytes_per_second(118e6);
  Add(reduction, 1, "n2");
  EXPECT_EQ(DrawReduction(reduction, /*unicode=*/true),
            "sum of f32, in order of arrival: 3 of 3 sources are ready, 0 to spare\n"
            "tree of degree 2 over 3 slots, version 1 of its root\n"
            "\n"
            "n1     slot 1  ██▌         25 %  118 MB/s  root\n"
            "├─ n0  slot 0                              forwards its source\n"
            "└─ n2  slot 2                              forwards its source\n");
}

TEST(ReductionDrawingTest, DrawsARingAsAList) {
  v1::ReductionDescription reduction = Described(3);
  reduction.set_ring(true);
  for (int i = 0; i < 3; ++i) Add(reduction, (i + 1) % 3, "n" + std::to_string(i), 500);
  const std::string text = DrawReduction(reduction, /*unicode=*/false);
  EXPECT_THAT(text, HasSubstr("ring of 3 members"));
  EXPECT_THAT(text, HasSubstr("n0  slot 0"));
  EXPECT_LT(text.find("n2  slot 2"), text.find("n1  slot 1")) << "fed by the one below";
  EXPECT_EQ(ReductionAsJson(reduction)["shape"], "ring");
}

TEST(ReductionDrawingTest, DrawsAChainAsAList) {
  v1::ReductionDescription reduction = Described(40);
  for (int i = 0; i < 40; ++i) Add(reduction, i == 39 ? -1 : i + 1, "n" + std::to_string(i));
  const std::string text = DrawReduction(reduction, /*unicode=*/false);
  EXPECT_THAT(text, HasSubstr("\nn39  slot 39"));
  EXPECT_THAT(text, HasSubstr("\nn0   slot 0   forwards its source\n"));
}

TEST(ReductionDrawingTest, ShowsTheReasonWhyASlotWaits) {
  v1::ReductionDescription reduction = Described(3);
  Add(reduction, 1, "n0").set_trouble("n3 refused\x1b[2J");
  Add(reduction, -1, "n1").clear_version();
  Add(reduction, 1, "");
  reduction.add_missing_source_ids(std::string(20, '\x01'));
  const std::string text = DrawReduction(reduction, /*unicode=*/true);
  EXPECT_THAT(text, HasSubstr("n3 refused?[2J"));
  EXPECT_THAT(text, HasSubstr("root, waits for its children"));
  EXPECT_THAT(text, HasSubstr("no node"));
  EXPECT_THAT(text, HasSubstr("waits for a source"));
  EXPECT_THAT(text, HasSubstr("missing: 0101"));
}

TEST(ReductionDrawingTest, ShowsTheNamesOfSources) {
  v1::ReductionDescription reduction = Described(1);
  Add(reduction, -1, "n0");
  reduction.add_missing_source_ids(std::string(20, '\x01'));
  reduction.add_missing_source_ids(std::string(20, '\x02'));
  const auto name = [&reduction](char id, const std::string& as) {
    v1::NamedObject& named = *reduction.add_names();
    named.set_object_id(std::string(20, id));
    named.mutable_name()->set_name_space("default");
    named.mutable_name()->set_name(as);
  };
  name('x', "grad/0");
  name('\x02', "grad/2");
  const std::string text = DrawReduction(reduction, /*unicode=*/true);
  EXPECT_THAT(text, HasSubstr("forwards its source, \"grad/0\"\n"));
  EXPECT_THAT(text,
              HasSubstr("missing: 0101010101010101010101010101010101010101, \"grad/2\" (0202"));
  const nlohmann::json json = ReductionAsJson(reduction);
  EXPECT_EQ(json["names"].size(), 2);
  EXPECT_EQ(json["names"]["0202020202020202020202020202020202020202"]["name"], "grad/2");
}

TEST(ReductionDrawingTest, ListsNamesOfRunningReductionsIfThereAreAny) {
  v1::RunningReduction unnamed;
  unnamed.set_object_id(std::string(20, '\x01'));
  v1::RunningReduction named = unnamed;
  named.mutable_name()->set_name("sum");
  EXPECT_EQ(ReductionsAsTable({unnamed}).find("NAME"), std::string::npos);
  EXPECT_THAT(ReductionsAsTable({unnamed, named}), HasSubstr("  sum  "));
}

TEST(ReductionDrawingTest, DrawsCyclesUnknownParentsAndDuplicatesOnce) {
  v1::ReductionDescription reduction = Described(3);
  Add(reduction, 1, "a");
  Add(reduction, 0, "b");
  Add(reduction, 77, "c");
  *reduction.add_slots() = reduction.slots(0);
  const std::string text = DrawReduction(reduction, /*unicode=*/true);
  for (const char* name : {"a ", "b ", "c "}) {
    const size_t first = text.find(std::string("\n") + name);
    EXPECT_NE(first, std::string::npos) << name << text;
  }
}

TEST(ReductionDrawingTest, JsonHasEverySlot) {
  v1::ReductionDescription reduction = Described(2);
  Add(reduction, 1, "n0");
  Add(reduction, -1, "");
  const nlohmann::json json = ReductionAsJson(reduction);
  EXPECT_EQ(json["op"], "sum");
  EXPECT_EQ(json["dtype"], "f32");
  ASSERT_EQ(json["slots"].size(), 2);
  EXPECT_EQ(json["slots"][0]["node"], "n0");
  EXPECT_TRUE(json["slots"][1]["node"].is_null());
}

}  // namespace
}  // namespace phalanx::runtime
