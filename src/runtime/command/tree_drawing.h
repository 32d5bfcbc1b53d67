// Draws what the directory knows of one object: who has it, who feeds whom, how far and how fast.
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
// Pure; any thread. Made for whatever a directory may send: an unknown sender, a cycle or a bad
// number is drawn, not believed.
#ifndef PHALANX_RUNTIME_COMMAND_TREE_DRAWING_H_
#define PHALANX_RUNTIME_COMMAND_TREE_DRAWING_H_

#include <string>
#include <vector>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// One line of the tree, children after their parent.
struct TreeRow {
  const v1::CopyDescription* copy = nullptr;
  // From the root down: whether another sibling follows at that level. Empty for a root.
  std::vector<bool> more_siblings;
  // Nodes that got their bytes through this one, directly or not.
  int descendants = 0;
  // Has a sender, which is not drawn above it: it dropped its copy, or the record runs in a circle.
  bool sender_gone = false;
};

// Every copy once. Siblings in natural order of their names ("n2" before "n10"). The rows point
// into `object`.
std::vector<TreeRow> LayOutTree(const v1::DescribeObjectResponse& object);

// "complete", "writing" (its creator is not done), "pulling", "starved" (its sender itself waits
// for most of the time), "idle" (partial, with nobody to pull from), "lost" (its node is not
// connected).
std::string CopyState(const v1::CopyDescription& copy);

// Bytes of the object that are there, over all slices; the whole size for a complete copy.
uint64_t BytesPresent(const v1::CopyDescription& copy, uint64_t size_bytes);
// Bytes that came more than once.
uint64_t BytesSentTwice(const v1::CopyDescription& copy, uint64_t size_bytes);

// Ends with a newline. `unicode` false draws with ASCII alone.
std::string DrawTree(const v1::DescribeObjectResponse& object, bool unicode);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_TREE_DRAWING_H_
