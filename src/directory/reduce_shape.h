// The shape of a reduce tree, before anybody has taken a place in it.
//
// A tree of n slots in which every slot has up to d children, as balanced as can be. Slots are
// numbered in order: a slot comes after the subtree of its first child and before those of its
// other children. The i-th source to become ready takes slot i, so that a slot's first subtree is
// always there before the slot: bytes move while others are still on their way. A slot folds its
// first child, then its own source, then its other children, whatever comes first; so the result
// is a function of the slots' sources alone.
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
// Several children come unevenly over their parent's link, and the fold waits for the last of them:
// where the fan-in is more than 1 its term is `unevenness` times that.
//
// Pure values; any thread, const methods at once.
#ifndef PHALANX_DIRECTORY_REDUCE_SHAPE_H_
#define PHALANX_DIRECTORY_REDUCE_SHAPE_H_

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
  // In the order of their slots, which is that of the fold: the first comes before the slot's own
  // source, the others after it. Empty for a leaf.
  std::vector<int> Children(int slot) const;
  // The slot's subtree is [subtree_begin, subtree_end).
  int subtree_begin(int slot) const { return places_[slot].begin; }
  int subtree_end(int slot) const { return places_[slot].end; }
  // Slots whose output holds the slot's source, from its parent to the root: those that start over
  // when it is lost.
  std::vector<int> Ancestors(int slot) const;
  // Edges on the longest way to the root.
  int depth() const { return DepthOf(slots(), degree_); }
  // Most children of a slot.
  int fan_in() const { return FanInOf(slots(), degree_); }

  // The same of a tree that is not made.
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

// What the shape is chosen by; all positive.
struct ReduceCosts {
  absl::Duration latency;       // L: one way, from a slot's output to its parent's
  double bytes_per_second = 0;  // B: of a node's link
  double fold_per_second = 0;   // bytes of one operand that a node folds into another
  uint64_t segment_bytes = 0;   // what is handed on in one go
  double unevenness = 1;        // at least 1
};

// From the moment at which all sources are ready to the last byte at the root.
absl::Duration ReduceTime(int slots, int degree, uint64_t size_bytes, const ReduceCosts& costs);

// The degree with the least time; of those within a fiftieth of it the smallest, which leaves links
// to others.
// REQUIRES: slots >= 1.
int ChooseDegree(int slots, uint64_t size_bytes, const ReduceCosts& costs);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCE_SHAPE_H_
