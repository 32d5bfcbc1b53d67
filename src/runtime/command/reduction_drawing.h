// Draws what the directory knows of a reduction that has not ended: its tree from the root down,
// who computes what, how far and how fast, and what it waits for.
//
//   sum of f32, in order of arrival: 7 of 8 sources are there, 0 to spare
//   tree of degree 2 over 8 slots, the root's 1st version
//
//   n5          slot 3  ██▌        25 %  118 MB/s  root
//   ├─ n1       slot 1  ████▊      48 %  121 MB/s
//   │  ├─ n0    slot 0
//   │  └─ n2    slot 2
//   └─ nobody   slot 5                             waits for a source
//   missing: 3f2a9c01...
//
// A slot with a single one below it stands above it without a branch: a chain is a list.
//
// Pure; any thread. Made for whatever a directory may send.
#ifndef PHALANX_RUNTIME_COMMAND_REDUCTION_DRAWING_H_
#define PHALANX_RUNTIME_COMMAND_REDUCTION_DRAWING_H_

#include <nlohmann/json.hpp>
#include <string>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::runtime {

// Ends with a newline. `unicode` false draws with ASCII alone.
std::string DrawReduction(const v1::ReductionDescription& reduction, bool unicode);

// dtype, op, order, ready, needed, spares, degree, epoch, size_bytes, committed, asking, elapsed_s,
// missing (ids), slots_left_out, and slots with slot, parent, node, connected, version, sources,
// watermark, bytes_per_second and trouble each.
nlohmann::json ReductionAsJson(const v1::ReductionDescription& reduction);

// A heading and a line for each of those that run.
std::string ReductionsAsTable(const std::vector<v1::RunningReduction>& reductions);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_COMMAND_REDUCTION_DRAWING_H_
