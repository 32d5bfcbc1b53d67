#include "src/client/spmd/fold_plan.h"

#include <algorithm>

#include "absl/numeric/bits.h"

namespace phalanx::spmd::internal {
namespace {

// Pieces are aligned as by malloc if the vector is.
constexpr uint64_t kAlignment = 16;

constexpr double kLeastShare = 0.7;
constexpr double kGreatestShare = 0.9;

// The number of bits of the last rank: of the children of rank 0 in a tree.
int BitsOf(int world) {
  return static_cast<int>(absl::bit_width(static_cast<uint32_t>(world - 1)));
}

}  // namespace

FoldPlan FoldPlan::OfValues(int world) { return FoldPlan(world); }

FoldPlan FoldPlan::OfVectors(int world, uint64_t bytes, uint64_t element) {
  FoldPlan plan(world);
  plan.bytes_ = bytes;
  plan.unit_ = element * kAlignment;
  const uint64_t units = (bytes + plan.unit_ - 1) / plan.unit_;
  plan.pieces_ = std::clamp<uint64_t>(std::min(bytes / kMinPieceBytes, units), 1, kMaxPieces);
  // A chain takes as long as these many pieces, one after the other; so does the root of a tree.
  const uint64_t of_chain = plan.pieces_ + static_cast<uint64_t>(world) - 2;
  plan.chain_ = world > 2 && of_chain < plan.pieces_ * static_cast<uint64_t>(BitsOf(world));
  return plan;
}

FoldPlan::Piece FoldPlan::PieceAt(uint64_t index) const {
  const uint64_t units = (bytes_ + unit_ - 1) / unit_;
  const uint64_t from = units * index / pieces_ * unit_;
  const uint64_t end = std::min(units * (index + 1) / pieces_ * unit_, bytes_);
  return {from, end - from};
}

std::vector<int> FoldPlan::ChildrenOf(int rank) const {
  std::vector<int> children;
  if (chain_) {
    if (rank + 1 < world_) children.push_back(rank + 1);
    return children;
  }
  for (int distance = 1; rank + distance < world_ && (rank & distance) == 0; distance *= 2) {
    children.push_back(rank + distance);
  }
  return children;
}

double FoldPlan::ShareOf(int rank) const {
  // Rank 0 has the greatest height.
  int height = 0;
  int greatest = 0;
  if (chain_) {
    height = world_ - 1 - rank;
    greatest = world_ - 1;
  } else {
    height = static_cast<int>(ChildrenOf(rank).size());
    greatest = BitsOf(world_);
  }
  if (greatest == 0) return kGreatestShare;
  return kLeastShare + (kGreatestShare - kLeastShare) * height / greatest;
}

}  // namespace phalanx::spmd::internal
