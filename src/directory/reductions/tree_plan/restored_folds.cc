#include "src/directory/reductions/tree_plan/restored_folds.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::directory {
namespace {

constexpr int kNone = ReduceShape::kNone;

}  // namespace

void RestoredFolds::Add(int slots, int degree, int number, absl::Span<const ObjectId> sources,
                        const NodeKey& node, const SlotVersion& version) {
  const int most = table_.size();
  if (slots < 1 || slots > most || degree < 1 || degree > most || number < 0) return;
  if (slots_ == 0) {
    slots_ = slots;
    degree_ = degree;
  }
  if (slots != slots_ || degree != degree_) return;
  // The numbers of SlotTree::LeafNumber: one row of slots, then one row of leaves for each seat.
  const SeatId where = {number % (slots + 1), number / (slots + 1) - 1};
  const bool leaf = where.seat >= 0;
  if (where.seat >= most || (leaf && sources.size() != 1)) return;
  Report report;
  report.node = node;
  report.version = version;
  for (const ObjectId& id : sources) {
    const int source = table_.Find(id);
    if (source == kNone || reported_sources_.count(source) > 0) return;
    report.sources.push_back(source);
  }
  if (!reports_.try_emplace(where, report).second) return;
  reported_sources_.insert(report.sources.begin(), report.sources.end());
}

void RestoredFolds::ForgetNode(const NodeKey& node) {
  for (auto it = reports_.begin(); it != reports_.end();) {
    it = it->second.node == node ? reports_.erase(it) : std::next(it);
  }
}

bool RestoredFolds::DescribeTree() const {
  if (reports_.empty()) return false;
  return slots_ > 1 || reports_.size() > 1 || (inputs_.root_up && first_node() != inputs_.root);
}

const RestoredFolds::Report* RestoredFolds::ReportOf(int slot) const {
  const auto it = reports_.find({slot, kNone});
  return it == reports_.end() ? nullptr : &it->second;
}

TreeLayout RestoredFolds::MakeLayout() const {
  TreeLayout layout;
  layout.degree = degree_;
  layout.groups.resize(slots_);
  const bool fixed = inputs_.spec.order == ReduceSpec::Order::kFixed;
  if (fixed && degree_ != 1) return TreeLayout();
  if (!(fixed ? FillRanges(layout) : FillSeats(layout))) return TreeLayout();
  PlaceRoot(layout);
  if (DefectActive(Defect::kRestoredSlotGivenAway)) {
    for (TreeLayout::Group& group : layout.groups) {
      if (!group.members.empty()) group.members.front().source = kNone;
      if (!group.members.empty()) break;
    }
  }
  // The plan would drop a tree without a seated source at the next event.
  for (const TreeLayout::Group& group : layout.groups) {
    for (const TreeLayout::Member& member : group.members) {
      if (member.source != kNone && table_[member.source].seatable()) return layout;
    }
  }
  return TreeLayout();
}

// ---- in the order of arrival: each slot has the reported seats, and more if seats are left

bool RestoredFolds::FillSeats(TreeLayout& layout) const {
  const int left = AddReportedSeats(layout);
  return left >= 0 && AddMissingSeats(layout, left);
}

// Returns how many seats are left; less than 0 if the reports have more than are wanted.
int RestoredFolds::AddReportedSeats(TreeLayout& layout) const {
  int left = table_.wanted();
  // A leaf's number has the number of its seat, so leaves are first; a slot's own sources then have
  // the seats between them.
  for (const auto& [where, report] : reports_) {
    if (where.slot >= slots_ || where.seat == kNone) continue;
    auto& members = layout.groups[where.slot].members;
    const int added = std::max(0, where.seat + 1 - static_cast<int>(members.size()));
    left -= added;
    // A seat number can be as large as the list: such a slot is not built.
    if (left < 0) return left;
    members.resize(members.size() + added);
    members[where.seat] = {report.sources.front(), report.node};
  }
  for (const auto& [where, report] : reports_) {
    if (where.slot >= slots_ || where.seat != kNone) continue;
    layout.groups[where.slot].node = report.node;
    auto& members = layout.groups[where.slot].members;
    size_t seat = 0;
    for (const int source : report.sources) {
      while (seat < members.size() && members[seat].source != kNone) ++seat;
      if (seat == members.size()) {
        members.emplace_back();
        --left;
      }
      members[seat] = {source, report.node};
    }
  }
  // A node that missed a DropFold reports a fold that is no longer part of the tree. Then there are
  // too many seats.
  return left;
}

// Gives the seats that no report is about to slots without seats. Such a slot's parent has no fold
// or starts over, or the slot was closed; slots that cannot have been closed come first.
bool RestoredFolds::AddMissingSeats(TreeLayout& layout, int left) const {
  const ReduceShape tree(slots_, degree_);
  const std::set<int> closed = ClosedSlots(layout);
  int last = tree.root();
  for (const bool closable : {false, true}) {
    for (int slot = 0; slot < slots_; ++slot) {
      auto& members = layout.groups[slot].members;
      const bool may_be_closed = slot != tree.root() && tree.Children(slot).size() <= 1;
      if (!members.empty() || may_be_closed != closable || closed.count(slot) > 0) continue;
      if (left == 0 && closable) continue;
      if (left == 0) return false;
      members.emplace_back();
      --left;
      last = slot;
    }
  }
  auto& members = layout.groups[last].members;
  members.resize(members.size() + left);
  return true;
}

// Returns the slots that must have been closed: without them the slot above has the version that
// its node reports.
std::set<int> RestoredFolds::ClosedSlots(const TreeLayout& layout) const {
  const ReduceShape tree(slots_, degree_);
  const bool delivers = ReportOf(slots_) != nullptr;
  std::set<int> closed;
  for (const auto& [where, report] : reports_) {
    const int number = where.slot;
    if (where.seat != kNone || number >= slots_) continue;
    std::set<int> unreported;
    std::map<int, SlotVersion> below;
    for (const int child : tree.Children(number)) {
      int at = child;
      while (at != kNone && ReportOf(at) == nullptr) {
        unreported.insert(at);
        const std::vector<int> next = tree.Children(at);
        // Only a slot with at most one child can be closed, so the search has one way down.
        at = next.size() == 1 ? next.front() : kNone;
      }
      if (at != kNone) below[at] = ReportOf(at)->version;
    }
    if (unreported.empty()) continue;
    const bool is_root = number == tree.root() && !delivers;
    if (VersionOf(number, layout.groups[number], below, is_root) == report.version) {
      closed.merge(unreported);
    }
  }
  return closed;
}

// Returns the version that SlotTree::TaskOf gives to a slot with such seats above such slots; not
// valid if a source is missing.
SlotVersion RestoredFolds::VersionOf(int number, const TreeLayout::Group& group,
                                     const std::map<int, SlotVersion>& below, bool is_root) const {
  VersionText text = versions_.Begin(is_root);
  auto child = below.begin();
  for (; child != below.end() && child->first < number; ++child) text.AddSlot(child->second);
  for (const TreeLayout::Member& member : group.members) {
    if (member.source == kNone || !table_[member.source].state) return SlotVersion();
    const SourceTable::Source& source = table_[member.source];
    if (member.node == group.node) {
      text.AddSource(source.id, source.state->generation);
    } else {
      text.AddSlot(versions_.OfLeaf(source.id, source.state->generation));
    }
  }
  for (; child != below.end(); ++child) text.AddSlot(child->second);
  return versions_.Of(text);
}

// ---- in a fixed order: each slot has a range of the list

bool RestoredFolds::FillRanges(TreeLayout& layout) const {
  std::vector<int> list;
  for (int i = 0; i < table_.EligibleEnd(); ++i) {
    if (!table_[i].failed()) list.push_back(i);
  }
  std::map<int, std::map<int, NodeKey>> reported;  // by slot: the sources in it
  for (const auto& [where, report] : reports_) {
    if (where.slot >= slots_) continue;
    if (where.seat == kNone) layout.groups[where.slot].node = report.node;
    for (const int source : report.sources) reported[where.slot][source] = report.node;
  }
  size_t next = 0;
  int slot = 0;
  // The slots before `until` take the list up to `end`: one source each, and the last the rest.
  const auto give = [&](int until, size_t end) {
    for (; slot < until; ++slot) {
      const size_t count = slot + 1 == until && end > next ? end - next : 1;
      for (size_t i = 0; i < count && next < end; ++i, ++next) {
        layout.groups[slot].members.push_back({list[next], NodeKey()});
      }
    }
  };
  for (const auto& [at, members] : reported) {
    const auto index = [&](int source) -> size_t {
      return std::lower_bound(list.begin(), list.end(), source) - list.begin();
    };
    give(at, index(members.begin()->first));
    const size_t end = index(members.rbegin()->first) + 1;
    for (; next < std::min(end, list.size()); ++next) {
      const auto it = members.find(list[next]);
      layout.groups[at].members.push_back(
          {list[next], it == members.end() ? NodeKey() : it->second});
    }
    slot = at + 1;
  }
  give(slots_, list.size());
  for (; next < list.size(); ++next) layout.groups.back().members.push_back({list[next], {}});
  // A source that failed meanwhile can leave a slot without sources: the tree has another shape.
  return std::none_of(layout.groups.begin(), layout.groups.end(),
                      [](const TreeLayout::Group& group) { return group.members.empty(); });
}

// ---- the root

void RestoredFolds::PlaceRoot(TreeLayout& layout) const {
  if (!inputs_.root_up || ReportOf(slots_) != nullptr) return;
  const int root_slot = ReduceShape(slots_, degree_).root();
  if (const Report* report = ReportOf(root_slot); report != nullptr) {
    layout.root_in_tree = report->node == inputs_.root;
    return;
  }
  // No node reports a root, so nothing is lost by either choice: as in a new tree.
  if (inputs_.spec.order == ReduceSpec::Order::kFixed) {
    layout.root_in_tree = table_.AtRoot(table_[layout.groups.back().members.back().source]);
    return;
  }
  TreeLayout::Member& seat = layout.groups[root_slot].members.front();
  for (const auto& [arrival, i] : table_.waiting()) {
    if (seat.source != kNone || !table_.AtRoot(table_[i]) || reported_sources_.count(i) > 0) {
      continue;
    }
    seat = {i, inputs_.root};
    layout.root_in_tree = true;
  }
}

absl::Status RestoredFolds::CheckInvariants() const {
  std::set<int> sources;
  for (const auto& [where, report] : reports_) {
    if (where.slot > slots_) return absl::InternalError("a report is about no slot of the tree");
    const std::set<int> own(report.sources.begin(), report.sources.end());
    for (const int source : own) {
      if (reported_sources_.count(source) == 0 || !sources.insert(source).second) {
        return absl::InternalError("a source is in the reports of two folds");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
