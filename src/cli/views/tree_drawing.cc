#include "src/cli/views/tree_drawing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/cli/units.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/text_table.h"
#include "src/common/ids/ids.h"

namespace phalanx::runtime {
namespace {

constexpr int kBarCells = 10;

NodeKey KeyOf(const v1::NodeKey& key) { return NodeKey{key.node(), key.incarnation()}; }

// Two lives of one node have the same name, so the key decides.
bool NameBefore(const v1::CopyDescription* a, const v1::CopyDescription* b) {
  const int order = CompareNaturally(a->name(), b->name());
  return order != 0 ? order < 0 : KeyOf(a->node()) < KeyOf(b->node());
}

// The copies as a forest, walked depth first.
class Layout {
 public:
  explicit Layout(const v1::DescribeObjectResponse& object) {
    for (const v1::CopyDescription& copy : object.copies()) {
      // A node that is listed twice is drawn once.
      if (by_node_.emplace(KeyOf(copy.node()), &copy).second) copies_.push_back(&copy);
    }
    std::sort(copies_.begin(), copies_.end(), NameBefore);
    for (const v1::CopyDescription* copy : copies_) {
      if (HasSender(*copy)) children_[KeyOf(copy->sender())].push_back(copy);
    }
  }

  // Roots first: copies without a sender, and copies whose sender has dropped its own copy.
  std::vector<TreeRow> Walk() {
    for (const v1::CopyDescription* copy : copies_) {
      if (!HasSender(*copy)) AddSubtree(copy);
    }
    // The remaining copies form cycles: every one of them has a sender.
    for (const v1::CopyDescription* copy : copies_) {
      if (!drawn_.contains(copy)) AddSubtree(copy);
    }
    return std::move(rows_);
  }

 private:
  bool HasSender(const v1::CopyDescription& copy) const {
    return copy.sender().node() != 0 && by_node_.contains(KeyOf(copy.sender()));
  }

  void AddSubtree(const v1::CopyDescription* root) {
    struct Visit {
      const v1::CopyDescription* copy;
      std::vector<bool> more_siblings;
    };
    const size_t first_row = rows_.size();
    // A stack instead of recursion: a chain can have thousands of nodes.
    std::vector<Visit> stack = {{root, {}}};
    while (!stack.empty()) {
      Visit visit = std::move(stack.back());
      stack.pop_back();
      if (!drawn_.insert(visit.copy).second) continue;
      std::vector<Visit> below;
      const auto found = children_.find(KeyOf(visit.copy->node()));
      if (found != children_.end()) {
        for (const v1::CopyDescription* child : found->second) {
          // Drawn copies are skipped, or a cycle would not end.
          if (drawn_.contains(child)) continue;
          below.push_back({child, visit.more_siblings});
          below.back().more_siblings.push_back(true);
        }
      }
      if (!below.empty()) below.back().more_siblings.back() = false;
      const bool gone = visit.copy->sender().node() != 0 && visit.more_siblings.empty();
      rows_.push_back({visit.copy, std::move(visit.more_siblings), 0, gone});
      stack.insert(stack.end(), below.rbegin(), below.rend());
    }
    CountDescendants(first_row);
  }

  // The walk is depth first, so the descendants of a row follow it directly.
  void CountDescendants(size_t first_row) {
    // Descendants follow their ancestor directly and are deeper, so counting rows is enough.
    for (size_t i = first_row; i < rows_.size(); ++i) {
      const size_t depth = rows_[i].more_siblings.size();
      size_t end = i + 1;
      while (end < rows_.size() && rows_[end].more_siblings.size() > depth) ++end;
      rows_[i].descendants = static_cast<int>(end - i - 1);
    }
  }

  std::vector<const v1::CopyDescription*> copies_;
  std::map<NodeKey, const v1::CopyDescription*> by_node_;
  std::map<NodeKey, std::vector<const v1::CopyDescription*>> children_;
  std::set<const v1::CopyDescription*> drawn_;
  std::vector<TreeRow> rows_;
};

// Each level needs two states only: whether another sibling follows.
std::string Branches(const std::vector<bool>& more_siblings, bool unicode) {
  std::string text;
  for (size_t level = 0; level < more_siblings.size(); ++level) {
    const bool last = level + 1 == more_siblings.size();
    if (last) {
      absl::StrAppend(&text,
                      more_siblings[level] ? (unicode ? "├─ " : "|- ") : (unicode ? "└─ " : "`- "));
    } else {
      absl::StrAppend(&text, more_siblings[level] ? (unicode ? "│  " : "|  ") : "   ");
    }
  }
  return text;
}

std::string Times(uint32_t count) {
  return count == 1 ? std::string("once") : absl::StrCat(count, " times");
}

// `all`: the directory omitted no copy.
std::string Notes(const TreeRow& row, uint64_t size_bytes, bool all) {
  const v1::CopyDescription& copy = *row.copy;
  std::vector<std::string> notes;
  if (copy.primary()) notes.push_back("primary");
  if (copy.complete() && copy.elapsed_ns() > 0) {
    notes.push_back(absl::StrCat("in ", HumanDuration(absl::Nanoseconds(copy.elapsed_ns()))));
  }
  if (row.sender_gone) {
    const std::string sender = copy.sender_name().empty() ? KeyOf(copy.sender()).ToString()
                                                          : Printable(copy.sender_name());
    notes.push_back(absl::StrCat("from ", sender, all ? ", which has no copy now" : ""));
  }
  if (!copy.second_sender_name().empty()) {
    notes.push_back(absl::StrCat("half from ", Printable(copy.second_sender_name())));
  }
  if (copy.repairs() > 0) notes.push_back(absl::StrCat("repaired ", Times(copy.repairs())));
  // Bytes that arrived twice are the cost of a repair, so operators look for this note.
  const uint64_t twice = BytesSentTwice(copy, size_bytes);
  if (twice > 0) notes.push_back(absl::StrCat(HumanBytes(twice), " sent twice"));
  return absl::StrJoin(notes, ", ");
}

// The drawn state: green if the copy is complete, red or yellow if something is wrong.
std::string StateText(const v1::CopyDescription& copy, bool colours) {
  const std::string state = CopyState(copy);
  if (state == "complete") return Painted(state, Colour::kGreen, colours);
  if (state == "lost") return Painted(state, Colour::kRed, colours);
  if (state == "starved") return Painted(state, Colour::kYellow, colours);
  return state;
}

std::vector<std::string> Cells(const TreeRow& row, uint64_t size_bytes, bool all, bool unicode,
                               bool colours) {
  const v1::CopyDescription& copy = *row.copy;
  // An empty object has no bytes to divide by.
  const double fraction = copy.complete() || size_bytes == 0
                              ? 1
                              : static_cast<double>(BytesPresent(copy, size_bytes)) / size_bytes;
  // A partial copy never shows 100 %.
  const int percent = copy.complete() ? 100 : std::min(99, static_cast<int>(fraction * 100));
  return {absl::StrCat(Branches(row.more_siblings, unicode), Printable(copy.name())),
          StateText(copy, colours),
          absl::StrFormat("%s %3d %%", DrawBar(fraction, kBarCells, unicode), percent),
          copy.bytes_per_second() > 0 ? HumanRate(copy.bytes_per_second()) : "",
          Notes(row, size_bytes, all)};
}

std::string Headline(const v1::DescribeObjectResponse& object) {
  const v1::ObjectSummary& summary = object.summary();
  const v1::Generation& generation = summary.generation();
  std::string text = absl::BytesToHexString(summary.object_id());
  if (summary.has_name()) absl::StrAppend(&text, "  \"", NameText(summary.name()), "\"");
  if (summary.deleted()) return absl::StrCat(text, "  deleted\n");
  if (!summary.has_info()) {
    return absl::StrCat(text, object.has_reduction() ? "  being reduced\n" : "  not put yet\n");
  }
  const uint32_t slices = summary.info().slices();
  absl::StrAppend(&text, "  ", HumanBytes(summary.info().size_bytes()), "  ");
  if (slices > 1) absl::StrAppend(&text, "in ", slices, " slices  ");
  absl::StrAppend(&text, "generation ",
                  Generation{KeyOf(generation.creator()), generation.sequence()}.ToString(), "\n");
  return text;
}

// The counts come from the summary, so they are right even if copies are omitted below.
std::string Counts(const v1::DescribeObjectResponse& object) {
  const v1::ObjectSummary& summary = object.summary();
  std::vector<std::string> parts = {absl::StrCat(summary.complete_copies(), " complete"),
                                    absl::StrCat(summary.partial_copies(), " partial"),
                                    absl::StrCat(summary.waiting(), " waiting")};
  if (summary.inline_cached()) parts.push_back("cached in the directory");
  if (summary.info().owned() || summary.holders() > 0) {
    parts.push_back(absl::StrCat(summary.info().owned() ? "owned, " : "", "held on ",
                                 summary.holders(), summary.holders() == 1 ? " node" : " nodes"));
  }
  if (summary.has_sticky()) {
    const auto& nodes = summary.sticky().nodes();
    const bool all = nodes.size() == 1 && nodes[0] == "*";
    parts.push_back(all ? "sticky" : absl::StrCat("sticky for ", nodes.size(), " names"));
  }
  if (summary.info().has_scope()) {
    parts.push_back(absl::StrCat("in scope ", Printable(summary.info().scope().name()), " ",
                                 summary.info().scope().number()));
  }
  if (summary.copies_wanted() > 0) {
    parts.push_back(absl::StrCat("kept on ", summary.copies_there(), " of ",
                                 summary.copies_wanted(), " hosts"));
  }
  if (summary.info().ttl_ns() != 0) {
    parts.push_back(
        absl::StrCat("expires in ", HumanDuration(absl::Nanoseconds(summary.info().ttl_ns()))));
  }
  if (summary.conflicts() > 0) {
    parts.push_back(absl::StrCat(summary.conflicts(), " conflicting Puts dropped"));
  }
  std::string text = absl::StrCat(absl::StrJoin(parts, ", "), "\n");
  if (object.copies_left_out() > 0 || object.waiting_left_out() > 0) {
    absl::StrAppend(&text, "not shown: ", object.copies_left_out(), " copies and ",
                    object.waiting_left_out(), " waiting nodes\n");
  }
  return text;
}

}  // namespace

std::vector<TreeRow> LayOutTree(const v1::DescribeObjectResponse& object) {
  return Layout(object).Walk();
}

std::string CopyState(const v1::CopyDescription& copy) {
  // The order matters: the record of a lost node can still say that it pulls.
  if (!copy.connected()) return "lost";
  if (copy.complete()) return "complete";
  if (copy.pulling()) {
    // Half of the time is the limit: a sender that waits now and then is normal in a relay tree.
    const bool starved = copy.starved_ns() > 0 && copy.starved_ns() >= copy.elapsed_ns() / 2;
    return starved ? "starved" : "pulling";
  }
  return copy.primary() ? "writing" : "idle";
}

uint64_t BytesPresent(const v1::CopyDescription& copy, uint64_t size_bytes) {
  if (copy.complete()) return size_bytes;
  uint64_t present = 0;
  for (const uint64_t watermark : copy.watermarks()) {
    // Watermarks can exceed the size if the record is damaged; the sum must not.
    present += std::min(watermark, size_bytes - present);
  }
  return present;
}

// Received bytes minus present bytes: a repair resends bytes that had arrived.
uint64_t BytesSentTwice(const v1::CopyDescription& copy, uint64_t size_bytes) {
  const uint64_t present = BytesPresent(copy, size_bytes);
  return copy.bytes_received() > present ? copy.bytes_received() - present : 0;
}

std::string DrawTree(const v1::DescribeObjectResponse& object, bool unicode, bool colours) {
  const uint64_t size_bytes = object.summary().info().size_bytes();
  std::vector<std::vector<std::string>> rows;
  const bool all = object.copies_left_out() == 0;
  for (const TreeRow& row : LayOutTree(object))
    rows.push_back(Cells(row, size_bytes, all, unicode, colours));
  std::vector<std::string> waiting;
  // A node with a partial copy also waits for the object; it is drawn once.
  std::set<NodeKey> with_copy;
  for (const v1::CopyDescription& copy : object.copies()) with_copy.insert(KeyOf(copy.node()));
  for (const v1::NodeInfo& node : object.waiting()) {
    // A waiting node with a partial copy is in the tree already.
    if (!with_copy.contains(KeyOf(node.key()))) waiting.push_back(Printable(node.name()));
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const std::string& a, const std::string& b) { return CompareNaturally(a, b) < 0; });
  for (std::string& name : waiting) rows.push_back({std::move(name), "waiting"});
  std::string text = absl::StrCat(Headline(object), Counts(object));
  if (!rows.empty()) absl::StrAppend(&text, "\n", AlignColumns(rows, {false, false, false, true}));
  return text;
}

}  // namespace phalanx::runtime
