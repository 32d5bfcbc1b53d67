#include "src/cli/views/top_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "src/cli/units.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/object_view.h"
#include "src/cli/views/reduction_drawing.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {
namespace {

// A pane with fewer rows has no empty lines and no footer.
constexpr int kRoomyRows = 14;

using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

std::string TransfersAsTable(const std::vector<Transfer>& transfers, bool colours, size_t columns) {
  if (transfers.empty()) return "no transfers\n";
  const bool named = std::any_of(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
    return transfer.summary.has_name();
  });
  std::vector<std::vector<std::string>> rows = {
      Heading({"OBJECT", named ? "NAME" : "", "SIZE", "COMPLETE", "PULLING", "WAITING", "RATE",
               "HELD UP BY"},
              colours)};
  for (const Transfer& transfer : transfers) {
    const v1::ObjectSummary& object = transfer.summary;
    rows.push_back({FittingId(object.object_id(), columns), NameText(object.name()),
                    object.has_info() ? HumanBytes(object.info().size_bytes()) : "-",
                    absl::StrCat(object.complete_copies()), absl::StrCat(object.partial_copies()),
                    absl::StrCat(object.waiting()), HumanRate(transfer.bytes_per_second),
                    transfer.held_up_by});
  }
  return AlignColumns(rows, {false, false, true, true, true, true, true, false},
                      {columns, {"HELD UP BY", "SIZE", "COMPLETE", "WAITING", "PULLING", "NAME"}});
}

// Returns how many lines of each section are shown: in turn one more of each, from two on, so that
// a long section leaves room for the others.
std::vector<size_t> Share(const std::vector<Lines>& sections, size_t rows) {
  std::vector<size_t> shown(sections.size());
  for (size_t i = 0; i < sections.size(); ++i) {
    // A heading without a row shows nothing.
    shown[i] = std::min({sections[i].size(), size_t{2}, rows});
    rows -= shown[i];
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < sections.size() && rows > 0; ++i) {
      if (shown[i] == sections[i].size()) continue;
      ++shown[i];
      --rows;
      more = true;
    }
  }
  return shown;
}

// Returns the first lines, and in place of the last one of several the number of those left out.
Lines Cut(Lines lines, size_t shown) {
  if (shown >= lines.size()) return lines;
  const size_t left_out = lines.size() - shown + 1;
  lines.resize(shown);
  if (shown > 2) lines.back() = absl::StrCat("and ", left_out, " more");
  return lines;
}

uint64_t InDemand(const v1::ObjectSummary& object) {
  return object.partial_copies() + object.waiting();
}

}  // namespace

const std::vector<std::string>& NodeOrders() {
  static const auto* const orders =
      new std::vector<std::string>{"name", "used", "copies", "pulls", "pushes"};
  return *orders;
}

const std::vector<std::string>& TransferOrders() {
  static const auto* const orders = new std::vector<std::string>{"rate", "size", "waiting"};
  return *orders;
}

void SortNodes(const std::string& order, std::vector<ClusterNode>& nodes) {
  std::stable_sort(nodes.begin(), nodes.end(), [&](const ClusterNode& a, const ClusterNode& b) {
    if (order == "used") return a.info.used_bytes() > b.info.used_bytes();
    if (order == "copies") return a.copies > b.copies;
    if (order == "pulls") return a.pulls > b.pulls;
    if (order == "pushes") return a.pushes > b.pushes;
    return CompareNaturally(a.info.name(), b.info.name()) < 0;
  });
}

void SortTransfers(const std::string& order, std::vector<Transfer>& transfers) {
  std::stable_sort(transfers.begin(), transfers.end(), [&](const Transfer& a, const Transfer& b) {
    if (order == "size") return a.summary.info().size_bytes() > b.summary.info().size_bytes();
    if (order == "waiting") return InDemand(a.summary) > InDemand(b.summary);
    return a.bytes_per_second > b.bytes_per_second;
  });
}

std::string TopAsText(const TopView& view) {
  const size_t any = TableWidth().cells;
  std::string text = absl::StrCat(StatusAsText(view.cluster), "\n",
                                  TransfersAsTable(view.transfers, /*colours=*/false, any));
  if (!view.reductions.empty()) absl::StrAppend(&text, "\n", ReductionsAsTable(view.reductions));
  return text;
}

std::string TopAsText(const TopView& view, const Pane& pane) {
  const size_t columns = static_cast<size_t>(std::max(pane.columns, 1));
  std::vector<Lines> sections = {LinesOf(SummaryAsText(view.cluster, pane.colours))};
  if (!view.cluster.nodes.empty()) {
    sections.push_back(LinesOf(NodesAsTable(view.cluster, pane.colours, columns)));
  }
  sections.push_back(LinesOf(TransfersAsTable(view.transfers, pane.colours, columns)));
  if (!view.reductions.empty()) {
    sections.push_back(LinesOf(ReductionsAsTable(view.reductions, pane.colours, columns)));
  }
  const bool roomy = pane.rows >= kRoomyRows;
  if (roomy && !pane.footer.empty()) sections.push_back({pane.footer});
  const size_t gaps = roomy ? sections.size() - 1 : 0;
  const std::vector<size_t> shown =
      Share(sections, static_cast<size_t>(std::max(pane.rows, 1)) - gaps);
  for (size_t i = 0; i < sections.size(); ++i) sections[i] = Cut(std::move(sections[i]), shown[i]);
  sections.erase(std::remove(sections.begin(), sections.end(), Lines()), sections.end());
  const std::string text = absl::StrJoin(
      sections, roomy ? "\n\n" : "\n",
      [](std::string* out, const Lines& lines) { out->append(absl::StrJoin(lines, "\n")); });
  return absl::StrCat(text, "\n");
}

nlohmann::json TopAsJson(const TopView& view) {
  nlohmann::json json = StatusAsJson(view.cluster);
  json["moving"] = nlohmann::json::array();
  for (const Transfer& transfer : view.transfers) {
    nlohmann::json object = SummaryAsJson(transfer.summary);
    object["bytes_per_second"] = transfer.bytes_per_second;
    object["held_up_by"] = nullptr;
    if (!transfer.held_up_by.empty()) object["held_up_by"] = transfer.held_up_by;
    json["moving"].push_back(std::move(object));
  }
  // Present even without reductions, so that programs need no check.
  json["reducing"] = nlohmann::json::array();
  for (const v1::RunningReduction& reduction : view.reductions) {
    json["reducing"].push_back({{"id", absl::BytesToHexString(reduction.object_id())},
                                {"ready", reduction.ready()},
                                {"needed", reduction.needed()},
                                {"size_bytes", reduction.size_bytes()},
                                {"watermark", reduction.watermark()},
                                {"elapsed_s", static_cast<double>(reduction.elapsed_ns()) / 1e9},
                                {"state", Printable(reduction.state())}});
    AddNameTo(json["reducing"].back(), reduction.name());
  }
  return json;
}

}  // namespace phalanx::runtime
