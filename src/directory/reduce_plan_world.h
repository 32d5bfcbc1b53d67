// Sources that come, go and are put again, on nodes that die, around a real ReducePlan: nodes
// compute the folds that they are told to, as values. Testonly.
//
// A fold's value is the sequence of the sources' generations in it, so that folding is putting one
// after the other: whatever the tree, the result must be the sequence that its root said. What is
// checked at every step
//  - a version has one value, ever, and a value has no source twice
//  - what a node is told to fold is there: sources that it has, folds that are placed
//  - nothing is told to dead nodes, and nothing is dropped that was not placed
//  - one version is committed, unless the result was lost, and it is of as many sources as wanted
//  - a shard that starts anew keeps every fold whose subtree is still there
#ifndef PHALANX_DIRECTORY_REDUCE_PLAN_WORLD_H_
#define PHALANX_DIRECTORY_REDUCE_PLAN_WORLD_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/common/random.h"
#include "src/directory/reduce_plan.h"

namespace phalanx::directory::testing {

class ReduceWorld {
 public:
  struct Options {
    ReduceSpec spec;
    int nodes = 6;
    int root = 0;  // 0: the plan chooses
    uint64_t size = 1 << 20;
    ReduceCosts costs;
    // Computes all that it can after every event.
    bool eager = false;
    // CheckInvariants after every event.
    bool invariants = true;
    // Events and effects on stderr.
    bool trace = false;
    // Sees every effect of the plan, in order. May be empty.
    std::function<void(const ReduceEffect&)> on_effect = {};
  };

  explicit ReduceWorld(Options options);

  // ---- events; nothing happens when they make no sense
  void Begin();
  // A new attempt on the node, if it is up; the copies of the last one are gone.
  void Put(int source, int node, bool complete = true);
  void Copy(int source, int node, bool complete = true);
  void LoseCopy(int source, int node);
  // All copies.
  void Lose(int source);
  void SetInline(int source, bool has_inline);
  void Fail(int source);
  // `sources_first`: what became of its copies is told before it is said to be down.
  void Down(int node, bool sources_first = false);
  void Up(int node);
  void LoseFold(int node, const Generation& version);
  void LoseResult();
  void Add(int sources);
  void Close();
  // The shard dies, with the node if there is one, and learns what it can from the others, in an
  // order drawn from `random`.
  void Restart(Random& random, int node_too = 0);
  // One that can be computed; false: there is none.
  bool Compute(size_t which);
  void ComputeAll();
  // One of the READYs on their way, also those that are out of date.
  bool DeliverReady(size_t which);
  // One drawn event.
  void Step(Random& random);
  // Everything comes that is still missing, and no fault: it must end.
  void Settle();

  const ReducePlan& plan() const { return *plan_; }
  // Of the last commit.
  const std::vector<std::pair<int, int>>& result() const { return result_; }
  bool Done() const { return committed_ || ended_; }
  // How many folds were computed.
  int computed() const { return computed_; }
  int nodes() const { return options_.nodes; }
  // The first thing that was wrong.
  const absl::Status& status() const { return broken_; }

 private:
  // (source, attempt), in the order of the fold.
  using Value = std::vector<std::pair<int, int>>;
  struct Fold {
    FoldTask task;
    std::optional<Value> value;
  };
  struct Item {
    int attempt = 0;
    std::vector<std::pair<int, bool>> copies;  // node, complete; the best first
    bool has_inline = false;
    bool failed = false;
  };
  using Where = std::pair<NodeKey, Generation>;

  NodeKey Key(int node) const { return {static_cast<uint64_t>(node), incarnation_[node]}; }
  bool IsUp(const NodeKey& key) const;
  int Wanted() const;
  int Index(const ObjectId& id) const;
  std::optional<ReduceSource> Snapshot(int source) const;
  void Tell(int source);
  void Break(const std::string& what);
  void Trace(const std::string& what) const;
  void TraceEffect(const ReduceEffect& effect) const;
  void Apply();
  void ApplyPlace(const PlaceFold& place);
  void ApplyDrop(const DropFold& drop);
  void ApplyCommit(const CommitFold& commit);
  void CheckInputs(const PlaceFold& place);
  void CheckAll();
  std::optional<Value> ValueOf(const Where& where, const Fold& fold);
  void SetResult(const Where& where, const Fold& fold);
  void NewPlan(Random& random);
  std::string Describe(const NodeKey& node, const FoldTask& task) const;
  bool Kept(const Where& where, const std::map<Where, Fold>& folds) const;
  void StepSource(Random& random, int source);
  void StepNode(Random& random, int node);

  Options options_;
  std::map<ObjectId, int> index_;
  std::unique_ptr<ReducePlan> plan_;
  std::vector<Item> items_;
  std::vector<uint64_t> incarnation_;  // by node
  std::vector<bool> up_;
  bool began_ = false;
  bool open_;
  std::map<Where, Fold> folds_;
  std::map<Generation, std::pair<bool, Value>> values_;  // of versions: whether a root's, and what
  std::set<Where> lost_;  // by nodes that are up: they may be dropped still
  std::optional<NodeKey> dying_;
  std::vector<Where> ready_;
  std::set<NodeKey> dropped_at_;  // nodes that were told to drop a root
  bool committed_ = false;
  Where committed_at_;
  Value result_;
  bool ended_ = false;
  int computed_ = 0;
  absl::Status broken_;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCE_PLAN_WORLD_H_
