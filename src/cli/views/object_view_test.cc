#include "src/cli/views/object_view.h"

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

v1::DescribeObjectResponse Object() {
  v1::DescribeObjectResponse object;
  v1::ObjectSummary& summary = *object.mutable_summary();
  summary.set_object_id(std::string(20, '\xab'));
  summary.mutable_info()->set_size_bytes(1000);
  summary.mutable_info()->set_slices(1);
  summary.mutable_info()->set_metadata("\x01\xff");
  summary.set_complete_copies(1);
  summary.set_age_ns(90'000'000'000);
  summary.set_partial_copies(1);
  v1::CopyDescription& root = *object.add_copies();
  root.mutable_node()->set_node(1);
  root.set_name("n1");
  root.set_complete(true);
  root.set_connected(true);
  v1::CopyDescription& leaf = *object.add_copies();
  leaf.mutable_node()->set_node(2);
  leaf.set_name("n2");
  leaf.set_connected(true);
  leaf.set_pulling(true);
  leaf.mutable_sender()->set_node(1);
  leaf.set_sender_name("n1");
  leaf.add_watermarks(400);
  leaf.set_bytes_received(450);
  leaf.set_elapsed_ns(2'000'000'000);
  object.add_waiting()->set_name("n\n3");
  return object;
}

TEST(ObjectViewTest, JsonHasTheSenderOfEachCopy) {
  const nlohmann::json json = ObjectAsJson(Object());
  EXPECT_EQ(json["id"], "abababababababababababababababababababab");
  EXPECT_EQ(json["metadata"], "01ff");
  EXPECT_EQ(json["waiting_nodes"], nlohmann::json({"n?3"}));
  ASSERT_EQ(json["copies"].size(), 2u);
  EXPECT_EQ(json["copies"][0]["node"], "n1");
  EXPECT_EQ(json["copies"][0]["sender"], nullptr);
  EXPECT_EQ(json["copies"][0]["descendants"], 1);
  EXPECT_EQ(json["copies"][0]["bytes_present"], 1000);
  EXPECT_EQ(json["copies"][1]["sender"], "n1");
  EXPECT_EQ(json["copies"][1]["depth"], 1);
  EXPECT_EQ(json["copies"][1]["state"], "pulling");
  EXPECT_EQ(json["copies"][1]["bytes_present"], 400);
  EXPECT_EQ(json["copies"][1]["bytes_sent_twice"], 50);
  EXPECT_EQ(json["copies"][1]["elapsed_s"], 2.0);
}

TEST(ObjectViewTest, PairsThatCannotReachEachOtherAreShown) {
  v1::DescribeObjectResponse object = Object();
  EXPECT_EQ(ObjectAsJson(object)["troubles"], nlohmann::json::array());
  object.add_troubles("n2 cannot reach n1 (a:1); n3 hands its bytes on");
  EXPECT_EQ(ObjectAsJson(object)["troubles"],
            nlohmann::json({"n2 cannot reach n1 (a:1); n3 hands its bytes on"}));
  EXPECT_NE(ObjectAsText(object, true).find("\n\nn2 cannot reach n1 (a:1); n3 hands"),
            std::string::npos)
      << ObjectAsText(object, true);
}

TEST(ObjectViewTest, NamesAreShown) {
  v1::DescribeObjectResponse object = Object();
  EXPECT_EQ(ObjectAsJson(object)["name"], nullptr);
  EXPECT_EQ(ObjectAsJson(object)["namespace"], nullptr);
  object.mutable_summary()->mutable_name()->set_name_space("default");
  object.mutable_summary()->mutable_name()->set_name("job/7");
  EXPECT_EQ(ObjectAsJson(object)["name"], "job/7");
  EXPECT_EQ(ObjectAsJson(object)["namespace"], "default");
  EXPECT_NE(ObjectAsText(object, true).find("abab  \"job/7\"  1000 B"), std::string::npos)
      << ObjectAsText(object, true);
  v1::ListObjectsResponse list;
  *list.add_objects() = object.summary();
  *list.add_objects() = Object().summary();
  list.mutable_objects(0)->mutable_name()->set_name_space("batch");
  EXPECT_EQ(ObjectsAsTable(list),
            "ID                                        NAME           SIZE    AGE  COMPLETE  "
            "PARTIAL  WAITING  NOTES\n"
            "abababababababababababababababababababab  batch:job/7  1000 B  1m30s         1  "
            "      1        0\n"
            "abababababababababababababababababababab               1000 B  1m30s         1  "
            "      1        0\n");
  // Whatever a shard sends, it does not control the terminal.
  list.mutable_objects(0)->mutable_name()->set_name("\x1b[2J");
  EXPECT_EQ(ObjectsAsTable(list).find('\x1b'), std::string::npos);
}

TEST(ObjectViewTest, JsonAndDrawingShowHoldups) {
  v1::DescribeObjectResponse object = Object();
  EXPECT_EQ(ObjectAsText(object, true).find("held up"), std::string::npos);
  EXPECT_EQ(ObjectAsJson(object)["copies"][1]["held_up_by"], nullptr);
  object.mutable_copies(0)->set_complete(false);
  object.mutable_copies(0)->set_primary(true);
  for (v1::CopyDescription& copy : *object.mutable_copies()) {
    if (copy.pulling()) copy.set_starved_ns(copy.elapsed_ns());
  }
  EXPECT_EQ(ObjectAsJson(object)["copies"][0]["held_up_by"], nullptr);
  EXPECT_EQ(ObjectAsJson(object)["copies"][1]["held_up_by"], "the writer at n1");
  const std::string text = ObjectAsText(object, true);
  EXPECT_NE(text.find("\n\nheld up by the writer at n1: "), std::string::npos) << text;
}

TEST(ObjectViewTest, TheNodesThatADeleteWaitsForAreShown) {
  v1::DescribeObjectResponse object = Object();
  EXPECT_EQ(ObjectAsJson(object)["delete_waits_for"], nullptr);
  EXPECT_EQ(ObjectAsText(object, false).find("Delete"), std::string::npos);
  object.set_delete_waits_for("the confirmation of node b");
  EXPECT_EQ(ObjectAsJson(object)["delete_waits_for"], "the confirmation of node b");
  EXPECT_NE(ObjectAsText(object, false).find("a Delete waits for the confirmation of node b\n"),
            std::string::npos);
}

TEST(ObjectViewTest, TheTimeToLiveIsShownIfThereIsOne) {
  v1::DescribeObjectResponse object = Object();
  EXPECT_EQ(ObjectAsJson(object)["ttl_s"], nullptr);
  EXPECT_EQ(ObjectAsText(object, false).find("expires"), std::string::npos);
  object.mutable_summary()->mutable_info()->set_ttl_ns(90'500'000'000);
  EXPECT_EQ(ObjectAsJson(object)["ttl_s"], 90.5);
  EXPECT_NE(ObjectAsText(object, false).find(", expires in 1m30s"), std::string::npos)
      << ObjectAsText(object, false);
  v1::ListObjectsResponse list;
  *list.add_objects() = object.summary();
  EXPECT_EQ(ObjectsAsTable(list),
            "ID                                          SIZE    AGE    TTL  COMPLETE  PARTIAL  "
            "WAITING  NOTES\n"
            "abababababababababababababababababababab  1000 B  1m30s  1m30s         1        1  "
            "      0\n");
}

TEST(ObjectViewTest, AListHasALinePerObject) {
  v1::ListObjectsResponse list;
  *list.add_objects() = Object().summary();
  v1::ObjectSummary& waited = *list.add_objects();
  waited.set_object_id(std::string(20, '\xcd'));
  waited.set_waiting(12);
  v1::ObjectSummary& deleted = *list.add_objects();
  deleted.set_object_id(std::string(20, '\xef'));
  deleted.set_deleted(true);
  deleted.set_conflicts(2);
  EXPECT_EQ(ObjectsAsTable(list),
            "ID                                          SIZE    AGE  COMPLETE  PARTIAL  WAITING  "
            "NOTES\n"
            "abababababababababababababababababababab  1000 B  1m30s         1        1        0\n"
            "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd       -     0s         0        0       12  "
            "not put yet\n"
            "efefefefefefefefefefefefefefefefefefefef       -     0s         0        0        0  "
            "deleted, 2 conflicts\n");
}

}  // namespace
}  // namespace phalanx::runtime
