#include "src/cli/views/reduction_drawing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/cli/units.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/text_table.h"
#include "src/common/elements.h"

namespace phalanx::runtime {
namespace {

using Slot = v1::ReductionDescription::Slot;

constexpr int kBarCells = 10;
// Deeper branches are not indented further.
constexpr size_t kMaxIndent = 12;

// The version is an opaque id, so it is printed as one number.
std::string VersionText(const v1::Generation& version) {
  return absl::StrFormat("%016x%016x", version.creator().incarnation(), version.creator().node());
}

using Names = std::map<std::string, v1::ObjectName>;

Names NamesIn(const v1::ReductionDescription& reduction) {
  Names names;
  for (const v1::NamedObject& named : reduction.names()) names[named.object_id()] = named.name();
  return names;
}

std::string SourceText(const Names& names, const std::string& id) {
  const auto found = names.find(id);
  return IdWithName(id, found == names.end() ? v1::ObjectName() : found->second);
}

std::string OrderName(uint32_t order) {
  if (order > 1) return "ring";
  return order == 0 ? "arrival" : "fixed";
}

std::string DescribedOrder(uint32_t order) {
  if (order > 1) return "slice by slice in a ring";
  return order == 0 ? "in order of arrival" : "in the listed order";
}

class Drawing {
 public:
  Drawing(const v1::ReductionDescription& reduction, const Names& names, bool unicode)
      : reduction_(reduction), names_(names), unicode_(unicode) {
    for (const Slot& slot : reduction.slots()) {
      // A shard of another version could send a slot twice; the first one counts.
      if (!by_number_.emplace(slot.slot(), &slot).second) continue;
      below_[slot.parent()].push_back(&slot);
    }
  }

  // Roots first: slots whose parent is not in the record.
  std::vector<std::vector<std::string>> Rows() {
    for (const auto& [number, slot] : by_number_) {
      if (!by_number_.contains(slot->parent())) AddSubtree(*slot);
    }
    // The remaining slots form cycles.
    for (const auto& [number, slot] : by_number_) {
      if (!drawn_.contains(number)) AddSubtree(*slot);
    }
    return std::move(rows_);
  }

 private:
  struct Visit {
    const Slot* slot;
    // The branch in front of this slot, and the indentation of its children.
    std::string prefix;
    std::string below;
  };

  void AddSubtree(const Slot& root) {
    // A stack instead of recursion: a chain can have thousands of slots.
    std::vector<Visit> stack = {{&root, "", ""}};
    while (!stack.empty()) {
      const Visit visit = std::move(stack.back());
      stack.pop_back();
      if (!drawn_.insert(visit.slot->slot()).second) continue;
      rows_.push_back(Cells(*visit.slot, visit.prefix));
      const auto found = below_.find(static_cast<int>(visit.slot->slot()));
      if (found == below_.end()) continue;
      const std::vector<const Slot*>& children = found->second;
      const bool branches = children.size() > 1 && visit.below.size() < kMaxIndent * 3;
      // In reverse, because the stack returns the last one first.
      for (size_t i = children.size(); i-- > 0;) {
        const bool last = i + 1 == children.size();
        if (!branches) {
          stack.push_back({children[i], visit.below, visit.below});
          continue;
        }
        stack.push_back({children[i], absl::StrCat(visit.below, Branch(last)),
                         absl::StrCat(visit.below, last       ? "   "
                                                   : unicode_ ? "│  "
                                                              : "|  ")});
      }
    }
  }

  // The same width with and without unicode, so that columns stay aligned.
  std::string Branch(bool last) const {
    if (last) return unicode_ ? "└─ " : "`- ";
    return unicode_ ? "├─ " : "|- ";
  }

  std::vector<std::string> Cells(const Slot& slot, const std::string& prefix) const {
    // A slot without a node waits for its first source.
    const bool placed = slot.node().node() != 0;
    const double fraction =
        reduction_.size_bytes() == 0
            ? 0
            : std::min(1.0, static_cast<double>(slot.watermark()) / reduction_.size_bytes());
    std::vector<std::string> notes;
    if (slot.parent() < 0) notes.push_back("root");
    if (placed && !slot.connected()) notes.push_back("its node is not connected");
    if (!slot.trouble().empty()) notes.push_back(Printable(slot.trouble()));
    if (!placed && slot.source_ids_size() == 0) notes.push_back("waits for a source");
    if (slot.source_ids_size() > 0 && !slot.has_version()) {
      notes.push_back("waits for its children");
    }
    // Such a slot computes nothing, so it has no progress.
    const bool leaf = !below_.contains(static_cast<int>(slot.slot()));
    if (leaf && slot.has_version() && slot.source_ids_size() == 1) {
      notes.push_back("forwards its source");
    }
    if (slot.source_ids_size() > 1) {
      notes.push_back(absl::StrCat(slot.source_ids_size(), " sources"));
    } else if (slot.source_ids_size() == 1 && names_.contains(slot.source_ids(0))) {
      notes.push_back(absl::StrCat("\"", NameText(names_.at(slot.source_ids(0))), "\""));
    }
    return {absl::StrCat(prefix, placed ? Printable(slot.node_name()) : "no node"),
            absl::StrCat("slot ", slot.slot()),
            slot.watermark() == 0
                ? ""
                : absl::StrFormat("%s %3d %%", DrawBar(fraction, kBarCells, unicode_),
                                  static_cast<int>(fraction * 100)),
            slot.bytes_per_second() > 0 ? HumanRate(slot.bytes_per_second()) : "",
            absl::StrJoin(notes, ", ")};
  }

  const v1::ReductionDescription& reduction_;
  const Names& names_;
  const bool unicode_;
  std::map<int64_t, const Slot*> by_number_;
  std::map<int, std::vector<const Slot*>> below_;
  std::set<int64_t> drawn_;
  std::vector<std::vector<std::string>> rows_;
};

// Accepts the numbers of any dtype, also from a shard of another version.
std::string NameOfElements(const v1::Reduction& spec) {
  std::vector<ElementRun> runs;
  for (const v1::ElementRun& run : spec.runs()) {
    runs.push_back({run.end(), static_cast<DType>(run.dtype())});
  }
  return ElementTypes(static_cast<DType>(spec.dtype()), std::move(runs)).Name();
}

}  // namespace

std::string DrawReduction(const v1::ReductionDescription& reduction, bool unicode) {
  const v1::Reduction& spec = reduction.reduction();
  const Names names = NamesIn(reduction);
  std::string text =
      absl::StrCat(ReduceOpName(static_cast<ReduceOp>(spec.op())), " of ", NameOfElements(spec),
                   ", ", DescribedOrder(spec.order()), ": ", reduction.ready(), " of ",
                   reduction.needed(), " sources are ready, ", reduction.spares(), " to spare",
                   spec.open() ? ", more can be added" : "", "\n");
  if (reduction.slots_size() > 0) {
    const std::string shape =
        reduction.ring()
            ? absl::StrCat("ring of ", reduction.slots_size(),
                           " members: each folds a slice of the result and "
                           "receives from the one below it, the last from the first")
            : absl::StrCat("tree of degree ", reduction.degree(), " over ", reduction.slots_size(),
                           " slots, version ", reduction.epoch(), " of its root");
    absl::StrAppend(&text, shape, reduction.committed() ? ", committed" : "", "\n\n");
    absl::StrAppend(&text, AlignColumns(Drawing(reduction, names, unicode).Rows(),
                                        {false, false, false, true, false}));
  }
  // The shard omits slots of a large reduction, so a cut drawing says so.
  if (reduction.slots_left_out() > 0) {
    absl::StrAppend(&text, "not shown: ", reduction.slots_left_out(), " slots\n");
  }
  if (reduction.missing_source_ids_size() > 0) {
    absl::StrAppend(&text, "missing: ",
                    absl::StrJoin(reduction.missing_source_ids(), ", ",
                                  [&names](std::string* out, const std::string& id) {
                                    out->append(SourceText(names, id));
                                  }),
                    "\n");
  }
  return text;
}

nlohmann::json ReductionAsJson(const v1::ReductionDescription& reduction) {
  const v1::Reduction& spec = reduction.reduction();
  nlohmann::json runs = nlohmann::json::array();
  for (const v1::ElementRun& run : spec.runs()) {
    runs.push_back({{"end", run.end()}, {"dtype", DTypeName(static_cast<DType>(run.dtype()))}});
  }
  // Null for several dtypes, which "runs" lists.
  nlohmann::json json = {
      {"dtype", spec.runs().empty() ? nlohmann::json(NameOfElements(spec)) : nullptr},
      {"runs", std::move(runs)},
      {"op", std::string(ReduceOpName(static_cast<ReduceOp>(spec.op())))},
      {"order", OrderName(spec.order())},
      {"open", spec.open()},
      {"ready", reduction.ready()},
      {"needed", reduction.needed()},
      {"spares", reduction.spares()},
      {"shape", reduction.ring() ? "ring" : "tree"},
      {"degree", reduction.degree()},
      {"epoch", reduction.epoch()},
      {"size_bytes", reduction.size_bytes()},
      {"committed", reduction.committed()},
      {"asking", reduction.asking()},
      {"elapsed_s", static_cast<double>(reduction.elapsed_ns()) / 1e9},
      {"slots_left_out", reduction.slots_left_out()},
      {"missing", nlohmann::json::array()},
      {"names", nlohmann::json::object()},
      {"slots", nlohmann::json::array()}};
  // By id, because "missing" and "sources" are lists of ids.
  for (const v1::NamedObject& named : reduction.names()) {
    AddNameTo(json["names"][absl::BytesToHexString(named.object_id())], named.name());
  }
  for (const std::string& id : reduction.missing_source_ids()) {
    json["missing"].push_back(absl::BytesToHexString(id));
  }
  for (const Slot& slot : reduction.slots()) {
    nlohmann::json entry = {{"slot", slot.slot()},
                            {"parent", slot.parent()},
                            {"node", nullptr},
                            {"connected", slot.connected()},
                            {"version", nullptr},
                            {"sources", nlohmann::json::array()},
                            {"watermark", slot.watermark()},
                            {"bytes_per_second", slot.bytes_per_second()},
                            {"trouble", Printable(slot.trouble())}};
    if (slot.node().node() != 0) entry["node"] = Printable(slot.node_name());
    // Null before the slot has started.
    if (slot.has_version()) entry["version"] = VersionText(slot.version());
    for (const std::string& id : slot.source_ids()) {
      entry["sources"].push_back(absl::BytesToHexString(id));
    }
    json["slots"].push_back(std::move(entry));
  }
  return json;
}

std::string ReductionsAsTable(const std::vector<v1::RunningReduction>& reductions, bool colours,
                              size_t columns) {
  const bool any_named =
      std::any_of(reductions.begin(), reductions.end(),
                  [](const v1::RunningReduction& reduction) { return reduction.has_name(); });
  std::vector<std::vector<std::string>> rows = {
      Heading({"REDUCTION", any_named ? "NAME" : "", "SIZE", "SOURCES", "FOLDED", "FOR", "STATE"},
              colours)};
  for (const v1::RunningReduction& reduction : reductions) {
    // The size is known only after the first source exists.
    const bool sized = reduction.size_bytes() > 0;
    rows.push_back(
        {FittingId(reduction.object_id(), columns), NameText(reduction.name()),
         sized ? HumanBytes(reduction.size_bytes()) : "-",
         absl::StrCat(reduction.ready(), "/", reduction.needed()),
         sized ? absl::StrFormat("%d %%", static_cast<int>(100.0 * reduction.watermark() /
                                                           reduction.size_bytes()))
               : "-",
         HumanDuration(absl::Nanoseconds(reduction.elapsed_ns())), Printable(reduction.state())});
  }
  return AlignColumns(rows, {false, false, true, true, true, true, false},
                      {columns, {"STATE", "FOR", "SIZE", "SOURCES", "NAME"}});
}

}  // namespace phalanx::runtime
