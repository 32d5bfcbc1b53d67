// Simulated reductions, Gets and broadcasts among nodes of which some pairs cannot reach each
// other, for as long as it lasts: all other links are fine, and every node is in touch with the
// directory. Testonly.
//
// A run is a few rounds of one kind in one cluster, with other objects each time: a reduction, a
// Get at one end of a cut of an object at the other end, or a broadcast from there to all nodes. It
// checks
//  1. that every round ends, with the exact bytes, within twice the time of a round without cuts
//     and a second. A round that finds all cuts known need not find them again, and has no second;
//  2. that no ring is begun across a cut that is known;
//  3. that a pair is used again when it has healed and a lease has passed;
//  4. that nothing is left in the end.
#ifndef PHALANX_SIM_WORKLOADS_CUT_SIMULATION_H_
#define PHALANX_SIM_WORKLOADS_CUT_SIMULATION_H_

#include <cstdint>
#include <string>

#include "src/sim/cluster/sim_cluster.h"
#include "src/sim/workloads/simulation_plan.h"

namespace phalanx::sim {

struct CutPlan {
  // kRing: in the order of one, of floats; where there is none, each slice by itself.
  enum class Kind { kReduce, kAllReduce, kFixedOrder, kSomeOf, kRing, kGet, kBroadcast };
  enum class Which { kOnePair, kTwoPairs, kAllButOne };
  enum class How { kSilent, kSilentOneWay, kRefused, kRefusedOneWay };

  uint64_t seed = 1;
  ClusterOptions cluster;
  Kind kind = Kind::kReduce;
  Which which = Which::kOnePair;
  How how = How::kSilent;
  // Sources of 8-byte elements, each on a node of its own; the other nodes have none. A Get or a
  // broadcast is of one of them.
  int sources = 6;
  uint64_t elements = 60'000;
  int slices = 1;         // of each source
  bool half_way = false;  // the links are cut when half of the usual time has passed
  bool warm = false;      // the nodes have connections from an earlier round
  // A node without a source that hands bytes on for others dies.
  bool relay_dies = false;
};

// Of a reduction; of one in the order of a ring; of a Get or a broadcast. Every plan has cuts:
// `peace` is ignored.
CutPlan DrawCutPlan(uint64_t seed, bool peace = false);
CutPlan DrawRingCutPlan(uint64_t seed, bool peace = false);
CutPlan DrawTransferCutPlan(uint64_t seed, bool peace = false);
CutPlan InHalves(CutPlan plan);
std::string Describe(const CutPlan& plan);
// `operations` are the rounds.
SimulationResult RunCutSimulation(const CutPlan& plan);

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_WORKLOADS_CUT_SIMULATION_H_
