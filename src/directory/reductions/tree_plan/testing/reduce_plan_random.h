// One random reduction in a random world, from a seed. Testonly.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_RANDOM_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_RANDOM_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "src/common/random.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_world.h"

namespace phalanx::directory::testing {

inline ReduceWorld::Options RandomReduction(Random& random) {
  ReduceWorld::Options options;
  const int sources = 1 + static_cast<int>(random.Below(8));
  options.spec = SumOf(sources);
  if (random.Chance(0.5)) options.spec.num_objects = 1 + random.Below(sources);
  if (random.Chance(0.3)) options.spec.order = ReduceSpec::Order::kFixed;
  options.spec.open = random.Chance(0.2);
  options.nodes = 2 + static_cast<int>(random.Below(7));
  if (random.Chance(0.6)) options.root = 1 + static_cast<int>(random.Below(options.nodes));
  if (random.Chance(0.3)) options.size = 64;
  options.costs = HopCosts(static_cast<double>(uint64_t{1} << random.Below(30)));
  return options;
}

// Returns the first violation. Calls `on_effect` with every effect of the plan.
inline absl::Status RunRandomReduction(uint64_t seed, bool trace = false,
                                       std::function<void(const ReduceEffect&)> on_effect = {}) {
  Random random(seed);
  ReduceWorld::Options options = RandomReduction(random);
  options.trace = trace;
  options.on_effect = std::move(on_effect);
  ReduceWorld world(std::move(options));
  for (uint64_t left = 20 + random.Below(200); left > 0 && world.status().ok(); --left) {
    world.Step(random);
  }
  if (world.status().ok()) world.Settle();
  return world.status();
}

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_RANDOM_H_
