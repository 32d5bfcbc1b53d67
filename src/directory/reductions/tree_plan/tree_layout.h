// The slots that a tree begins with: which sources and nodes each slot has. Pure functions of the
// sources; any thread.
//
//   sources ──FixedLayout──────────┐
//   sources ──ArrivalLayout────────┼──► TreeLayout ──► SlotTree::Build
//   folds of nodes ──RestoredFolds─┘
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TREE_LAYOUT_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TREE_LAYOUT_H_

#include <string>
#include <vector>

#include "src/common/ids/ids.h"
#include "src/directory/reductions/tree_plan/plan_types.h"
#include "src/directory/reductions/tree_plan/source_table.h"

namespace phalanx::directory {

struct TreeLayout {
  // What becomes one seat of a slot.
  struct Member {
    int source = SourceTable::kNone;  // kNone if any source can take the seat
    NodeKey node;                     // where the source is taken from, if it is there
  };
  // What becomes one slot.
  struct Group {
    std::vector<Member> members;
    std::string zone;
    NodeKey node;  // where the slot was computed before a restart; otherwise not valid
  };

  std::vector<Group> groups;  // by slot; empty if no tree can be made
  int degree = 1;
  // The tree's root slot is computed at the requested root. Otherwise a slot without sources above
  // it delivers the result there, if that node is up.
  bool root_in_tree = false;
};

// The strict left fold in the order of the list: a chain in which neighbours that are on one node
// share a slot. Empty if no source is seatable.
TreeLayout FixedLayout(const PlanInputs& inputs, const SourceTable& sources);

// A tree of the waiting sources in their order of arrival, and of free seats for those that are
// missing. Sources on one node share a slot, and sources of one zone have slots next to each other.
// A source at the requested root is in the tree whenever it arrived, in the root slot. Empty if no
// source is seatable.
//
// The source of a slow node, if it is the only one there, is in the slot of a fast node: a leaf
// then hands the source on, and the slow node receives nothing. Slow sources that are held back are
// not in the tree.
//
// If there is a requested root, slots begin with the node that follows it, all nodes taken as a
// circle. Reductions of the same sources with different roots so begin at different nodes, and
// every node is spared one of the reductions at its link.
TreeLayout ArrivalLayout(const PlanInputs& inputs, const SourceTable& sources);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TREE_LAYOUT_H_
