#include "src/cli/views/object_view.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "phalanx/object_id.h"
#include "src/cli/units.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/holdups.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/reduction_drawing.h"
#include "src/cli/views/text_table.h"
#include "src/cli/views/tree_drawing.h"
#include "src/common/ids/ids.h"

namespace phalanx::runtime {
namespace {

// JSON consumers expect seconds; the protocol counts nanoseconds.
double Seconds(uint64_t nanos) { return static_cast<double>(nanos) / 1e9; }

std::string GenerationText(const v1::Generation& generation) {
  const NodeKey creator{generation.creator().node(), generation.creator().incarnation()};
  return Generation{creator, generation.sequence()}.ToString();
}

// Parts of a second do not matter in a list.
std::string AgeText(uint64_t nanos) {
  const uint64_t seconds = nanos / 1'000'000'000;
  if (seconds < 60) return absl::StrCat(seconds, "s");
  return HumanDuration(absl::Seconds(seconds));
}

// The hold-up of each waiting copy.
std::map<const v1::CopyDescription*, std::string> Reasons(
    const v1::DescribeObjectResponse& object) {
  std::map<const v1::CopyDescription*, std::string> reasons;
  for (const Holdup& holdup : FindHoldups(object)) {
    for (const v1::CopyDescription* copy : holdup.waiting) reasons[copy] = HoldupText(holdup);
  }
  return reasons;
}

// `ids` has 20 bytes per id, without separators.
nlohmann::json IdsAsJson(absl::string_view ids) {
  nlohmann::json json = nlohmann::json::array();
  for (; ids.size() >= ObjectId::kSize; ids.remove_prefix(ObjectId::kSize)) {
    json.push_back(absl::BytesToHexString(ids.substr(0, ObjectId::kSize)));
  }
  return json;
}

nlohmann::json CopyAsJson(const TreeRow& row, uint64_t size_bytes) {
  const v1::CopyDescription& copy = *row.copy;
  nlohmann::json sender;
  // A copy without a sender is a root; its sender is null in the JSON.
  if (copy.sender().node() != 0) sender = Printable(copy.sender_name());
  return {{"node", Printable(copy.name())},
          {"state", CopyState(copy)},
          {"complete", copy.complete()},
          {"primary", copy.primary()},
          {"connected", copy.connected()},
          {"pulling", copy.pulling()},
          {"sender", std::move(sender)},
          {"depth", row.more_siblings.size()},
          {"descendants", row.descendants},
          {"receivers", copy.receivers()},
          {"bytes_present", BytesPresent(copy, size_bytes)},
          {"bytes_received", copy.bytes_received()},
          {"bytes_sent_twice", BytesSentTwice(copy, size_bytes)},
          {"bytes_per_second", copy.bytes_per_second()},
          {"elapsed_s", Seconds(copy.elapsed_ns())},
          {"starved_s", Seconds(copy.starved_ns())},
          {"repairs", copy.repairs()}};
}

}  // namespace

nlohmann::json SummaryAsJson(const v1::ObjectSummary& summary) {
  // Keys are an interface for scripts: add new ones, but do not rename them.
  nlohmann::json json = {{"id", absl::BytesToHexString(summary.object_id())},
                         {"generation", GenerationText(summary.generation())},
                         {"size_bytes", summary.info().size_bytes()},
                         {"slices", summary.info().slices()},
                         {"metadata", absl::BytesToHexString(summary.info().metadata())},
                         {"complete_copies", summary.complete_copies()},
                         {"partial_copies", summary.partial_copies()},
                         {"waiting", summary.waiting()},
                         {"age_s", Seconds(summary.age_ns())},
                         {"deleted", summary.deleted()},
                         {"inline_cached", summary.inline_cached()},
                         {"conflicts", summary.conflicts()},
                         {"owned", summary.info().owned()},
                         {"holders", summary.holders()},
                         {"sticky", summary.has_sticky()},
                         {"copies_wanted", summary.copies_wanted()},
                         {"copies_there", summary.copies_there()},
                         {"refers_to", IdsAsJson(summary.info().refers_to())},
                         {"reduced_from", IdsAsJson(summary.info().reduced_from())}};
  // Null for an object in no scope.
  json["scope"] = nullptr;
  if (summary.info().has_scope()) {
    json["scope"] = {{"name", Printable(summary.info().scope().name())},
                     {"number", summary.info().scope().number()}};
  }
  // Null for an object without a limit.
  json["ttl_s"] = nullptr;
  if (summary.info().ttl_ns() != 0) json["ttl_s"] = Seconds(summary.info().ttl_ns());
  AddNameTo(json, summary.name());
  return json;
}

nlohmann::json ObjectAsJson(const v1::DescribeObjectResponse& object) {
  nlohmann::json json = SummaryAsJson(object.summary());
  json["waiting_nodes"] = nlohmann::json::array();
  for (const v1::NodeInfo& node : object.waiting()) {
    json["waiting_nodes"].push_back(Printable(node.name()));
  }
  json["copies_left_out"] = object.copies_left_out();
  json["waiting_left_out"] = object.waiting_left_out();
  json["copies"] = nlohmann::json::array();
  const std::map<const v1::CopyDescription*, std::string> reasons = Reasons(object);
  // The order of the drawing, so that depth and descendants describe the list.
  for (const TreeRow& row : LayOutTree(object)) {
    nlohmann::json copy = CopyAsJson(row, object.summary().info().size_bytes());
    const auto reason = reasons.find(row.copy);
    // The key is always present, so that programs can read it without a check.
    copy["held_up_by"] = nullptr;
    if (reason != reasons.end()) copy["held_up_by"] = reason->second;
    json["copies"].push_back(std::move(copy));
  }
  json["delete_waits_for"] = nullptr;
  if (!object.delete_waits_for().empty()) json["delete_waits_for"] = object.delete_waits_for();
  json["troubles"] = nlohmann::json::array();
  for (const std::string& trouble : object.troubles())
    json["troubles"].push_back(Printable(trouble));
  json["reduction"] = nullptr;
  if (object.has_reduction()) json["reduction"] = ReductionAsJson(object.reduction());
  return json;
}

std::string ObjectAsText(const v1::DescribeObjectResponse& object, bool unicode, bool colours) {
  std::string text = DrawTree(object, unicode, colours);
  if (object.has_reduction()) {
    absl::StrAppend(&text, "\n", DrawReduction(object.reduction(), unicode));
  }
  if (!object.delete_waits_for().empty()) {
    absl::StrAppend(&text, "\n", Painted("a Delete waits for", Colour::kYellow, colours), " ",
                    Printable(object.delete_waits_for()), "\n");
  }
  if (!object.troubles().empty()) absl::StrAppend(&text, "\n");
  for (const std::string& trouble : object.troubles()) {
    absl::StrAppend(&text, Painted(Printable(trouble), Colour::kYellow, colours), "\n");
  }
  // The drawing shows states only; the cause of a slow tree needs a line of its own.
  const std::vector<Holdup> holdups = FindHoldups(object);
  if (!holdups.empty()) absl::StrAppend(&text, "\n");
  for (const Holdup& holdup : holdups) {
    const std::string cause = absl::StrCat("held up by ", HoldupText(holdup));
    absl::StrAppend(&text, Painted(cause, Colour::kYellow, colours), ": ",
                    absl::StrJoin(holdup.waiting, ", ",
                                  [](std::string* out, const v1::CopyDescription* copy) {
                                    out->append(Printable(copy->name()));
                                  }),
                    "\n");
  }
  return text;
}

std::string ObjectsAsTable(const v1::ListObjectsResponse& list) {
  // A column without any text is left out.
  const bool named = std::any_of(list.objects().begin(), list.objects().end(),
                                 [](const v1::ObjectSummary& object) { return object.has_name(); });
  const bool expires =
      std::any_of(list.objects().begin(), list.objects().end(),
                  [](const v1::ObjectSummary& object) { return object.info().ttl_ns() != 0; });
  const bool copied =
      std::any_of(list.objects().begin(), list.objects().end(),
                  [](const v1::ObjectSummary& object) { return object.copies_wanted() > 0; });
  std::vector<std::vector<std::string>> rows = {{"ID", named ? "NAME" : "", "SIZE", "AGE",
                                                 expires ? "TTL" : "", "COMPLETE", "PARTIAL",
                                                 copied ? "HOSTS" : "", "WAITING", "NOTES"}};
  for (const v1::ObjectSummary& object : list.objects()) {
    std::string notes = object.deleted() ? "deleted" : object.inline_cached() ? "cached" : "";
    // A waiting node makes an object known before its Put.
    if (!object.has_info() && !object.deleted()) notes = "not put yet";
    if (object.reducing()) notes = "being reduced";
    // A conflict means that two writers used one id, which an operator should see.
    if (object.conflicts() > 0) {
      absl::StrAppend(&notes, notes.empty() ? "" : ", ", object.conflicts(), " conflicts");
    }
    rows.push_back({absl::BytesToHexString(object.object_id()), NameText(object.name()),
                    object.has_info() ? HumanBytes(object.info().size_bytes()) : "-",
                    AgeText(object.age_ns()),
                    object.info().ttl_ns() == 0 ? "" : AgeText(object.info().ttl_ns()),
                    absl::StrCat(object.complete_copies()), absl::StrCat(object.partial_copies()),
                    object.copies_wanted() == 0
                        ? ""
                        : absl::StrCat(object.copies_there(), "/", object.copies_wanted()),
                    absl::StrCat(object.waiting()), std::move(notes)});
  }
  return AlignColumns(rows, {false, false, true, true, true, true, true, true, true});
}

}  // namespace phalanx::runtime
