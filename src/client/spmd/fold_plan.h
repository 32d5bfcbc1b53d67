// FoldPlan: how the ranks of a session fold their values with a function of the program.
//
// A rank holds the fold of itself and of the ranks that follow it, up to some rank: its own value,
// then those of its children, in the order of ranks. So rank 0 has the fold of all, in rank order.
//
//   tree, world 8       0 ◄─ 1              chain       0 ◄─ 1 ◄─ 2 ◄─ 3 ...
//                       0 ◄─ 2 ◄─ 3
//                       0 ◄─ 4 ◄─ 5         A vector goes in pieces, so that a rank folds one while
//                            4 ◄─ 6 ◄─ 7    its parent folds the one before.
//
// Rank 0 of a tree takes as many values as there are bits in the last rank, one after the other. A
// rank of a chain takes one, but a piece goes through all of them. The plan takes what ends first
// if links are what limits.
//
// The plan depends on the arguments alone, so it is the same on all ranks in all lives, and so is
// the order of the folds.
//
// Pure: values and functions. Any thread.
#ifndef PHALANX_CLIENT_SPMD_FOLD_PLAN_H_
#define PHALANX_CLIENT_SPMD_FOLD_PLAN_H_

#include <cstdint>
#include <vector>

namespace phalanx::spmd::internal {

// What all ranks give together is gathered by all of them up to this size, and folded by each.
inline constexpr uint64_t kMaxGatheredBytes = 256 << 10;
inline constexpr uint64_t kMinPieceBytes = 1 << 20;
inline constexpr uint64_t kMaxPieces = 16;

class FoldPlan {
 public:
  struct Piece {
    uint64_t from = 0;
    uint64_t bytes = 0;
  };

  // Of values that are not cut.
  static FoldPlan OfValues(int world);
  // Of vectors of so many bytes. REQUIRES: bytes > 0, and it is a multiple of `element`.
  static FoldPlan OfVectors(int world, uint64_t bytes, uint64_t element);

  bool chain() const { return chain_; }
  uint64_t pieces() const { return pieces_; }
  // None is empty. Each but the last is a multiple of 16 elements.
  Piece PieceAt(uint64_t index) const;
  // Whose values the rank takes, in the order in which it folds them.
  std::vector<int> ChildrenOf(int rank) const;
  // How long the rank waits for its children, as a share of the time that the call has: the nearer
  // to rank 0 the longer. So the error of a rank that waits in vain reaches the others in time.
  double ShareOf(int rank) const;

 private:
  explicit FoldPlan(int world) : world_(world) {}

  int world_;
  bool chain_ = false;
  uint64_t bytes_ = 0;
  uint64_t unit_ = 1;
  uint64_t pieces_ = 1;
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_FOLD_PLAN_H_
