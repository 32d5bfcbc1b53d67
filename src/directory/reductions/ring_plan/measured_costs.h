// What the shape of a tree, or a ring, is chosen by: the measured links, or what is assumed of a
// network of which nothing was measured. Pure, any thread.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_MEASURED_COSTS_H_
#define PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_MEASURED_COSTS_H_

#include "src/directory/pulls/link_model.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"

namespace phalanx::directory {

ReduceCosts MeasuredCosts(const LinkModel& links);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_RING_PLAN_MEASURED_COSTS_H_
