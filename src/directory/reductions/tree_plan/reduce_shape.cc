#include "src/directory/reductions/tree_plan/reduce_shape.h"

#include <algorithm>

#include "src/common/check.h"

namespace phalanx::directory {
namespace {

// A larger degree must be faster by this share.
constexpr double kMargin = 0.02;

// Returns the number of slots in the first child's subtree. No other child has more slots, and none
// has fewer by more than one.
int FirstSubtree(int slots, int degree) { return (slots - 1 + degree - 1) / degree; }

int RootOf(int begin, int end, int degree) { return begin + FirstSubtree(end - begin, degree); }

// Calls visit(begin, end) for the subtrees of the children, in order, of the tree [begin, end).
template <typename Visit>
void VisitSubtrees(int begin, int end, int degree, Visit visit) {
  const int root = RootOf(begin, end, degree);
  int below = end - begin - 1;
  for (int left = std::min(degree, below); left > 0; --left) {
    if (begin == root) ++begin;
    const int size = (below + left - 1) / left;
    visit(begin, begin + size);
    begin += size;
    below -= size;
  }
}

double FoldTime(int fan_in, uint64_t size_bytes, const ReduceCosts& costs) {
  // Bytes arrive and are folded at the same time, so the slower of the two rates counts.
  const double once =
      static_cast<double>(size_bytes) / std::min(costs.bytes_per_second, costs.fold_per_second);
  return fan_in > 1 ? fan_in * once * costs.unevenness : fan_in * once;
}

double TimeOf(int slots, int degree, uint64_t size_bytes, const ReduceCosts& costs) {
  const double hop = absl::ToDoubleSeconds(costs.latency) +
                     static_cast<double>(costs.segment_bytes) / costs.bytes_per_second;
  return ReduceShape::DepthOf(slots, degree) * hop +
         FoldTime(ReduceShape::FanInOf(slots, degree), size_bytes, costs);
}

}  // namespace

ReduceShape::ReduceShape(int slots, int degree) : degree_(degree) {
  PHALANX_CHECK(slots >= 1 && degree >= 1, "a tree has a slot and a degree");
  places_.resize(slots);
  // Without recursion: a chain is as deep as it has slots.
  std::vector<Place> open = {Place{kNone, 0, slots}};
  while (!open.empty()) {
    const Place subtree = open.back();
    open.pop_back();
    const int slot = RootOf(subtree.begin, subtree.end, degree);
    places_[slot] = subtree;
    if (subtree.parent == kNone) root_ = slot;
    VisitSubtrees(subtree.begin, subtree.end, degree, [&](int begin, int end) {
      open.push_back({slot, begin, end});
    });
  }
}

std::vector<int> ReduceShape::Children(int slot) const {
  std::vector<int> children;
  VisitSubtrees(places_[slot].begin, places_[slot].end, degree_,
                [&](int begin, int end) { children.push_back(RootOf(begin, end, degree_)); });
  return children;
}

std::vector<int> ReduceShape::Ancestors(int slot) const {
  std::vector<int> ancestors;
  for (int at = parent(slot); at != kNone; at = parent(at)) ancestors.push_back(at);
  return ancestors;
}

int ReduceShape::DepthOf(int slots, int degree) {
  if (degree == 1) return slots - 1;
  // No subtree is larger than the first one, so none is deeper.
  int depth = 0;
  for (; slots > 1; ++depth) slots = FirstSubtree(slots, degree);
  return depth;
}

int ReduceShape::FanInOf(int slots, int degree) { return std::min(degree, slots - 1); }

absl::Duration ReduceTime(int slots, int degree, uint64_t size_bytes, const ReduceCosts& costs) {
  return absl::Seconds(TimeOf(slots, degree, size_bytes, costs));
}

int ChooseDegree(int slots, uint64_t size_bytes, const ReduceCosts& costs) {
  int best = 1;
  double least = TimeOf(slots, 1, size_bytes, costs);
  // The root's link alone takes longer from some degree on, so larger degrees need no look.
  for (int degree = 2; degree < slots && FoldTime(degree, size_bytes, costs) < least; ++degree) {
    const double time = TimeOf(slots, degree, size_bytes, costs);
    if (time >= (1 - kMargin) * least) continue;
    least = time;
    best = degree;
  }
  return best;
}

}  // namespace phalanx::directory
