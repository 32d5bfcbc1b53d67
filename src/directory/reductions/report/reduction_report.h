// Running reductions as the tools and the errors describe them. Pure functions over the catalog;
// the shard's control loop.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_REPORT_REDUCTION_REPORT_H_
#define PHALANX_DIRECTORY_REDUCTIONS_REPORT_REDUCTION_REPORT_H_

#include <string>

#include "phalanx/v1/directory.pb.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/node_table.h"
#include "src/directory/reductions/reduction.h"
#include "src/directory/reductions/reduction_catalog.h"

namespace phalanx::directory {

// What the reduction waits for, and which nodes cannot reach each other.
std::string DescribeWaiting(const Reduction& reduction);
// Why the node's fold lacks an input. If a node was not reached: "n3 cannot reach n5
// (10.0.0.5:7001): connection refused".
std::string DescribeFailure(const NodeTable& nodes, const NodeKey& node, const v1::FoldReport& m);
// The reductions that have run longest.
void ListReductions(const ReductionCatalog& catalog, Instant now, v1::GetStatusResponse* out);
void DescribeReduction(const Reduction& reduction, const NodeTable& nodes, Instant now,
                       v1::ReductionDescription* out);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_REPORT_REDUCTION_REPORT_H_
