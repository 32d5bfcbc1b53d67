// Why a broadcast is as slow as it is: whom the nodes without bytes to fetch wait for.
//
// A node whose sender had nothing to send for most of the time is not slow, and neither is its
// sender if that waited as well. Up the tree from there comes the one link, or the one writer,
// that holds up all below it:
//
//     n1 ── 12.5 MB/s ──> n2 ── 3.1 MB/s ──> n3 ── starved ──> n4 ── starved ──> n5
//                              └─ holds up n4 and n5
//
// Pure; any thread. Made for whatever a directory may send.
#ifndef PHALANX_RUNTIME_COMMAND_HOLDUPS_H_
#define PHALANX_RUNTIME_COMMAND_HOLDUPS_H_

#include <string>
#include <vector>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

struct Holdup {
  // The copy that gets its bytes slowly: over the link from its sender, or, without one, from who
  // writes it.
  const v1::CopyDescription* slow = nullptr;
  // Copies that wait for it, directly or not; never empty. Natural order of names.
  std::vector<const v1::CopyDescription*> waiting;
};

// Those that hold up most first. They point into `object`.
std::vector<Holdup> FindHoldups(const v1::DescribeObjectResponse& object);

// "n2 -> n3 at 3.12 MB/s", "the writer at n1", "n4, which has nobody to pull from", "n4, which is
// not connected".
std::string HoldupText(const Holdup& holdup);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_HOLDUPS_H_
