// Finds the reason why a broadcast is slow: the copy for which starved nodes wait.
//
// A node is starved if its sender had no bytes to send for most of the time. A starved node is not
// slow itself, and neither is its sender if that is starved too. The first sender up the tree that
// is not starved has the slow link, or is the slow writer, that holds up all nodes below it:
//
// |    n1 ── 12.5 MB/s ──> n2 ── 3.1 MB/s ──> n3 ── starved ──> n4 ── starved ──> n5
// |                             └─ holds up n4 and n5
//
// Pure; any thread. Accepts any description that a directory can send.
#ifndef PHALANX_CLI_VIEWS_HOLDUPS_H_
#define PHALANX_CLI_VIEWS_HOLDUPS_H_

#include <string>
#include <vector>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

struct Holdup {
  // The copy that gets its bytes slowly: over the link from its sender or, if it has no sender,
  // from the writer.
  const v1::CopyDescription* slow = nullptr;
  // Copies that wait for it, directly or not; never empty. In natural order of their names.
  std::vector<const v1::CopyDescription*> waiting;
};

// Sorted by the number of waiting copies, largest first. The results point into `object`.
std::vector<Holdup> FindHoldups(const v1::DescribeObjectResponse& object);

// "n2 -> n3 at 3.12 MB/s", "the writer at n1", "n4, which has no sender", "n4, which
// is not connected".
std::string HoldupText(const Holdup& holdup);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_HOLDUPS_H_
