// A world around a real ReducePlan: sources that appear, disappear and are put again, and nodes
// that die and compute the folds that the plan orders, as values. Testonly.
//
// A fold's value is the sequence of the source generations in it, so that to fold is to
// concatenate. Whatever the tree, the result must be the sequence that the root's task names. The
// world checks at every step
//  - a version always has the same value, and no value has a source twice
//  - the inputs of an order exist: sources that the node has, folds that are placed
//  - no order goes to a dead node, and no fold is dropped that was not placed
//  - one version is committed, unless the result was lost, and it has as many sources as wanted
//  - a restarted shard keeps every fold whose subtree still exists
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_WORLD_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_WORLD_H_

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
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory::testing {

class ReduceWorld {
 public:
  struct Options {
    ReduceSpec spec;
    int nodes = 6;
    int root = 0;  // 0: the plan chooses
    uint64_t size = 1 << 20;
    ReduceCosts costs;
    // Nodes compute all folds that they can after every event.
    bool eager = false;
    // CheckInvariants after every event.
    bool invariants = true;
    // Events and effects on stderr.
    bool trace = false;
    // Called with every effect of the plan, in order. Can be empty.
    std::function<void(const ReduceEffect&)> on_effect = {};
  };

  explicit ReduceWorld(Options options);

  // ---- events; ignored if impossible in the current state
  void Begin();
  // Puts a new attempt on the node, if it is up. The copies of the last attempt are gone.
  void Put(int source, int node, bool complete = true);
  void Copy(int source, int node, bool complete = true);
  void LoseCopy(int source, int node);
  // Loses all copies.
  void Lose(int source);
  void SetInline(int source, bool has_inline);
  void Fail(int source);
  // `sources_first`: the plan learns of the lost copies before it learns that the node is down.
  void Down(int node, bool sources_first = false);
  void Up(int node);
  // The node's link has that speed (ReduceSource::Holder) from now on.
  void SetSpeed(int node, double speed);
  void LoseFold(int node, const SlotVersion& version);
  void LoseResult();
  void Add(int sources);
  void Close();
  // The shard dies, together with node `node_too` if that is not 0, and learns its state from the
  // other nodes, in an order drawn from `random`.
  void Restart(Random& random, int node_too = 0);
  // Computes one of the folds that can be computed. Returns false if there is none.
  bool Compute(size_t which);
  void ComputeAll();
  // Delivers one of the READYs on their way, including outdated ones.
  bool DeliverReady(size_t which);
  // Does one event drawn from `random`.
  void Step(Random& random);
  // Adds everything that is missing, without faults. The reduction must end.
  void Settle();

  const ReducePlan& plan() const { return *plan_; }
  // Returns the value of the last commit.
  const std::vector<std::pair<int, int>>& result() const { return result_; }
  bool Done() const { return committed_ || ended_; }
  // Returns how many folds were computed.
  int computed() const { return computed_; }
  int nodes() const { return options_.nodes; }
  // Returns the first violation.
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
  struct Machine {
    uint64_t incarnation = 1;
    bool up = true;
    double speed = 1;
  };
  using Where = std::pair<NodeKey, SlotVersion>;

  NodeKey Key(int node) const { return {static_cast<uint64_t>(node), machines_[node].incarnation}; }
  bool IsUp(const NodeKey& key) const;
  int Wanted() const;
  int Index(const ObjectId& id) const;
  std::optional<ReduceSource> Snapshot(int source) const;
  void Report(int source);
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
  std::vector<Machine> machines_;  // by node
  bool began_ = false;
  bool open_;
  std::map<Where, Fold> folds_;
  std::map<SlotVersion, std::pair<bool, Value>>
      values_;            // by version: is it a root's, and the value
  std::set<Where> lost_;  // by nodes that are up: the plan can still drop them
  std::optional<NodeKey> dying_;
  std::vector<Where> ready_;
  std::set<NodeKey> dropped_at_;  // nodes that were ordered to drop a root
  bool committed_ = false;
  Where committed_at_;
  Value result_;
  bool ended_ = false;
  int computed_ = 0;
  absl::Status broken_;
};

}  // namespace phalanx::directory::testing

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_TESTING_REDUCE_PLAN_WORLD_H_
