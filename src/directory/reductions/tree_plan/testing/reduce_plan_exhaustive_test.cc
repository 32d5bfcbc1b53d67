// Every order of arrival of up to six sources, in trees of every degree that the plan can choose,
// with one failure at each point (with four sources: two failures), against a left fold. The checks
// are those of reduce_plan_world.h.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_world.h"

namespace phalanx::directory {
namespace {

using testing::CostsFor;
using testing::HopCosts;
using testing::ReduceWorld;
using testing::SumOf;

// Source i is on node i + 1. There are two more nodes.
struct Failure {
  enum Kind { kSourceLost, kNodeDown, kNodeDownButCopied, kPutAgain, kFoldLost, kKinds };
  int point = 0;  // before so many have arrived; one more: after the commit
  int source = 0;
  int kind = kSourceLost;
};

struct Case {
  std::vector<int> arrival;
  ReduceCosts costs;
  int root = 0;
  bool spare = false;  // one more source than wanted, which comes last
  bool late = false;   // begins when all are there
  bool fixed = false;
  std::vector<Failure> failures;
};

std::string Describe(const Case& c) {
  std::string text = absl::StrCat("root ", c.root, c.spare ? ", a spare" : "",
                                  c.late ? ", late" : "", c.fixed ? ", in order" : "", ", arrival");
  for (const int source : c.arrival) absl::StrAppend(&text, " ", source);
  for (const Failure& f : c.failures) {
    absl::StrAppend(&text, "; failure ", f.kind, " of source ", f.source, " at ", f.point);
  }
  return text;
}

void LoseAFold(ReduceWorld& world, int source) {
  for (const auto& slot : world.plan().Look().slots) {
    if (!slot.version.valid() || slot.own != std::vector{testing::Source(source)}) continue;
    world.LoseFold(static_cast<int>(slot.node.node), slot.version);
    return;
  }
}

void Apply(ReduceWorld& world, const Failure& failure, int spare_node) {
  switch (failure.kind) {
    case Failure::kSourceLost:
      return world.Lose(failure.source);
    case Failure::kNodeDownButCopied:
      world.Copy(failure.source, spare_node);
      return world.Down(failure.source + 1);
    case Failure::kNodeDown:
      return world.Down(failure.source + 1, /*sources_first=*/failure.point % 2 == 0);
    case Failure::kPutAgain:
      return world.Put(failure.source, spare_node);
    default:
      return LoseAFold(world, failure.source);
  }
}

absl::Status RunCase(const Case& c) {
  const int sources = static_cast<int>(c.arrival.size());
  ReduceWorld::Options options;
  options.spec = SumOf(sources, sources - (c.spare ? 1 : 0));
  if (c.fixed) options.spec.order = ReduceSpec::Order::kFixed;
  options.nodes = sources + 2;
  options.root = c.root;
  options.costs = c.costs;
  options.eager = true;
  ReduceWorld world(options);
  if (!c.late) world.Begin();
  for (int point = 0; point <= sources + 1; ++point) {
    for (const Failure& failure : c.failures) {
      if (failure.point == point) Apply(world, failure, sources + 1);
    }
    if (point < sources) world.Put(c.arrival[point], c.arrival[point] + 1);
    if (point + 1 == sources) world.Begin();
    while (point == sources && world.DeliverReady(0)) {
    }
  }
  world.Settle();
  return world.status();
}

std::vector<ReduceCosts> EveryDegree(int slots) {
  std::vector<ReduceCosts> all;
  for (int degree = 1; degree < std::max(2, slots); ++degree) {
    if (const auto costs = CostsFor(slots, degree)) all.push_back(*costs);
  }
  return all;
}

// Failures of one kind, or of each kind if `kind` is kKinds.
template <typename Visit>
void ForEveryFailure(int sources, int only, Visit visit) {
  for (int point = 1; point <= sources + 1; ++point) {
    for (int source = 0; source < sources; ++source) {
      for (int kind = 0; kind < Failure::kKinds; ++kind) {
        if (only == Failure::kKinds || kind == only) visit(Failure{point, source, kind});
      }
    }
  }
}

// The variants alternate with different periods, so that each meets each other one.
Case Vary(const std::vector<int>& arrival, const ReduceCosts& costs, int turn) {
  const int sources = static_cast<int>(arrival.size());
  const int roots[] = {0, arrival[turn % sources] + 1, sources + 2};
  return {arrival, costs, roots[turn % 3], turn % 2 == 1, turn % 5 == 4, turn % 7 == 6, {}};
}

TEST(ReducePlanExhaustiveTest, OneFailureAtEveryPointOfEveryOrderOfArrival) {
  int turn = 0;
  for (int sources = 1; sources <= 6; ++sources) {
    std::vector<int> arrival(sources);
    std::iota(arrival.begin(), arrival.end(), 0);
    do {
      for (const ReduceCosts& costs : EveryDegree(sources)) {
        // With six sources, one kind of failure in turn.
        const int kind = sources < 6 ? Failure::kKinds : (turn / 11) % Failure::kKinds;
        ForEveryFailure(sources, kind, [&](const Failure& failure) {
          Case c = Vary(arrival, costs, turn++);
          if (c.spare && sources == 1) c.spare = false;
          c.failures = {failure};
          const absl::Status status = RunCase(c);
          ASSERT_TRUE(status.ok()) << Describe(c) << ": " << status;
        });
        if (HasFatalFailure()) return;
      }
    } while (std::next_permutation(arrival.begin(), arrival.end()));
  }
}

TEST(ReducePlanExhaustiveTest, TwoFailuresOfFourSources) {
  int turn = 0;
  std::vector<int> arrival = {0, 1, 2, 3};
  do {
    for (const ReduceCosts& costs : EveryDegree(4)) {
      ForEveryFailure(4, Failure::kKinds, [&](const Failure& first) {
        ForEveryFailure(4, (turn / 11) % Failure::kKinds, [&](const Failure& second) {
          if (second.point < first.point) return;
          Case c = Vary(arrival, costs, turn++);
          c.failures = {first, second};
          const absl::Status status = RunCase(c);
          ASSERT_TRUE(status.ok()) << Describe(c) << ": " << status;
        });
      });
      if (HasFatalFailure()) return;
    }
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

}  // namespace
}  // namespace phalanx::directory
