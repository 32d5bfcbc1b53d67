// Draws a reduction that has not ended, as the directory reports it: its tree from the root down,
// the node of each slot, its progress and rate, and the reason if it waits.
//
//   sum of f32, in order of arrival: 7 of 8 sources are ready, 0 to spare
//   tree of degree 2 over 8 slots, the root's 1st version
//
//   n5          slot 3  ██▌        25 %  118 MB/s  root
//   ├─ n1       slot 1  ████▊      48 %  121 MB/s
//   │  ├─ n0    slot 0
//   │  └─ n2    slot 2
//   └─ no node  slot 5                             waits for a source
//   missing: 3f2a9c01...
//
// A slot with a single child stands above it without a branch, so a chain is drawn as a list.
//
// Pure; any thread. Accepts any description that a directory can send.
#ifndef PHALANX_CLI_VIEWS_REDUCTION_DRAWING_H_
#define PHALANX_CLI_VIEWS_REDUCTION_DRAWING_H_

#include <nlohmann/json.hpp>
#include <string>

#include "phalanx/v1/tools.pb.h"
#include "src/cli/views/text_table.h"

namespace phalanx::runtime {

// Ends with a newline. If `unicode` is false, draws only with ASCII.
std::string DrawReduction(const v1::ReductionDescription& reduction, bool unicode);

// Fields: dtype, op, order, ready, needed, spares, degree, epoch, size_bytes, committed, asking,
// elapsed_s, missing (ids), slots_left_out, and slots. Each slot has slot, parent, node, connected,
// version, sources, watermark, bytes_per_second and trouble.
nlohmann::json ReductionAsJson(const v1::ReductionDescription& reduction);

// A heading, and a line for each running reduction, which can be narrower.
std::string ReductionsAsTable(const std::vector<v1::RunningReduction>& reductions,
                              bool colours = false, size_t columns = TableWidth().cells);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_REDUCTION_DRAWING_H_
