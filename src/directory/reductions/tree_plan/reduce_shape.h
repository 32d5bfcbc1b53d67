// The shape of a reduce tree, before sources take its slots.
//
// A tree of n slots in which every slot has up to d children, as balanced as possible. Slots are
// numbered in order: a slot comes after the subtree of its first child and before those of its
// other children. The i-th source to become ready takes slot i. So a slot's first subtree is always
// complete before the slot is, and bytes move while other sources are not ready. A slot folds its
// first child, then its own source, then its other children, in whatever order they arrive. So the
// result is a function of the slots' sources alone.
//
//   n = 6, d = 1                n = 6, d = 2               n = 6, d = 5
//   0 -> 1 -> 2 -> ... -> 5          3                          1
//                                  /   \                    / / | \ \.
//                                 1     5                  0 2  3 4 5
//                                / \   /
//                               0   2 4
//
// The degree is the one with the least time by the cost model of the Hoplite paper (SIGCOMM 2021,
// section 3.4.2), with the depth and widest fan-in of the actual tree in place of their limits
// T(1) = n L + S / B and T(d) = L log_d(n) + d S / B:
//
//   T(d) = depth (L + segment / B) + fan-in S / min(B, fold rate)
//
// The outputs of several children share their parent's link unevenly, and the fold waits for the
// last of them: if the fan-in is more than 1, its term is multiplied by `unevenness`.
//
// Pure values; const methods can be called from several threads at once.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_SHAPE_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace phalanx::directory {

class ReduceShape {
 public:
  // The slot above the root.
  static constexpr int kNone = -1;

  // REQUIRES: slots >= 1, degree >= 1.
  ReduceShape(int slots, int degree);

  int slots() const { return static_cast<int>(places_.size()); }
  int degree() const { return degree_; }
  int root() const { return root_; }
  int parent(int slot) const { return places_[slot].parent; }
  // Returns the children in the order of their slots, which is that of the fold: the first comes
  // before the slot's own source, the others after it. Empty for a leaf.
  std::vector<int> Children(int slot) const;
  // The slot's subtree is [subtree_begin, subtree_end).
  int subtree_begin(int slot) const { return places_[slot].begin; }
  int subtree_end(int slot) const { return places_[slot].end; }
  // Returns the slots above, from the parent to the root. Their outputs contain the slot's source,
  // so they start over if it is lost.
  std::vector<int> Ancestors(int slot) const;
  // The number of edges on the longest path to the root.
  int depth() const { return DepthOf(slots(), degree_); }
  // The largest number of children of a slot.
  int fan_in() const { return FanInOf(slots(), degree_); }

  // The same for a tree that is not built.
  static int DepthOf(int slots, int degree);
  static int FanInOf(int slots, int degree);

 private:
  struct Place {
    int parent = kNone;
    int begin = 0;
    int end = 0;
  };

  const int degree_;
  int root_ = 0;
  std::vector<Place> places_;
};

// The costs by which the shape is chosen; all positive.
struct ReduceCosts {
  absl::Duration latency;       // L: one way, from a slot's output to its parent's
  double bytes_per_second = 0;  // B: of a node's link
  double fold_per_second = 0;   // bytes of one operand that a node folds into another
  uint64_t segment_bytes = 0;   // that a slot hands on at a time
  double unevenness = 1;        // at least 1
};

// Returns the time from the moment at which all sources are ready to the last byte at the root.
absl::Duration ReduceTime(int slots, int degree, uint64_t size_bytes, const ReduceCosts& costs);

// Returns the degree with the least time. A larger degree must be faster by a fiftieth, because it
// leaves less of the links to other transfers.
// REQUIRES: slots >= 1.
int ChooseDegree(int slots, uint64_t size_bytes, const ReduceCosts& costs);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_REDUCE_SHAPE_H_
