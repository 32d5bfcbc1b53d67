// Draws the directory's record of one object: its copies, their senders, their progress and rates.
//
//   3f2a9c01  95.4 MiB in 1 slice  9f2c0011.5d1e#3
//   3 complete, 1 partial, 1 waiting
//
//   n1        complete  ██████████ 100 %            primary
//   ├─ n2     complete  ██████████ 100 %  12.5 MB/s  8.01 s
//   │  └─ n4  pulling   ████▊       48 %  12.1 MB/s  repaired once
//   └─ n3     complete  ██████████ 100 %  12.4 MB/s  8.05 s
//   n5        waiting
//
// Pure; any thread. Accepts any description that a directory can send: an unknown sender, a cycle
// or a bad number is drawn, but not used for calculations.
#ifndef PHALANX_CLI_VIEWS_TREE_DRAWING_H_
#define PHALANX_CLI_VIEWS_TREE_DRAWING_H_

#include <string>
#include <vector>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// One line of the tree; children follow their parent.
struct TreeRow {
  const v1::CopyDescription* copy = nullptr;
  // For each level from the root down: whether another sibling follows. Empty for a root.
  std::vector<bool> more_siblings;
  // The number of nodes that got their bytes through this one, directly or not.
  int descendants = 0;
  // The copy has a sender that is not drawn above it: the sender dropped its copy, or the senders
  // form a cycle.
  bool sender_gone = false;
};

// Returns every copy once. Siblings are in natural order of their names ("n2" before "n10"). The
// rows point into `object`.
std::vector<TreeRow> LayOutTree(const v1::DescribeObjectResponse& object);

// "complete", "writing" (its creator has not sealed it), "pulling", "starved" (its sender waited
// for bytes most of the time), "idle" (partial, without a sender), "lost" (its node is not
// connected).
std::string CopyState(const v1::CopyDescription& copy);

// The number of the object's bytes that are present, over all slices; the whole size for a complete
// copy.
uint64_t BytesPresent(const v1::CopyDescription& copy, uint64_t size_bytes);
// The number of bytes that were received more than once.
uint64_t BytesSentTwice(const v1::CopyDescription& copy, uint64_t size_bytes);

// Ends with a newline. If `unicode` is false, draws only with ASCII. `colours` paints states.
std::string DrawTree(const v1::DescribeObjectResponse& object, bool unicode, bool colours = false);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_TREE_DRAWING_H_
