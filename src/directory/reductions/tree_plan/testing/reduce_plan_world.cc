#include "src/directory/reductions/tree_plan/testing/reduce_plan_world.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/common/check.h"
#include "src/directory/reductions/tree_plan/testing/reduce_plan_harness.h"

namespace phalanx::directory::testing {
namespace {

void Shuffle(Random& random, std::vector<int>& order) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
}

}  // namespace

ReduceWorld::ReduceWorld(Options options)
    : options_(std::move(options)), machines_(options_.nodes + 1), open_(options_.spec.open) {
  items_.resize(options_.spec.sources.size());
  for (size_t i = 0; i < items_.size(); ++i) index_[options_.spec.sources[i]] = static_cast<int>(i);
  plan_ = std::make_unique<ReducePlan>(Target(), options_.spec,
                                       options_.root > 0 ? Key(options_.root) : NodeKey());
  plan_->SetCosts(options_.costs);
}

bool ReduceWorld::IsUp(const NodeKey& key) const {
  return key.node <= static_cast<uint64_t>(options_.nodes) && machines_[key.node].up &&
         key.incarnation == machines_[key.node].incarnation;
}

int ReduceWorld::Wanted() const {
  const int wanted = static_cast<int>(options_.spec.num_objects);
  return wanted > 0 ? wanted : static_cast<int>(items_.size());
}

int ReduceWorld::Index(const ObjectId& id) const {
  const auto it = index_.find(id);
  return it == index_.end() ? -1 : it->second;
}

std::optional<ReduceSource> ReduceWorld::Snapshot(int source) const {
  const Item& item = items_[source];
  if (item.copies.empty() && !item.has_inline) return std::nullopt;
  ReduceSource state;
  state.generation = Attempt(source, item.attempt);
  state.size_bytes = options_.size;
  state.has_inline = item.has_inline;
  for (const auto& [node, complete] : item.copies) {
    state.holders.push_back(
        {Key(node), complete, node % 2 == 0 ? "even" : "odd", machines_[node].speed});
  }
  return state;
}

void ReduceWorld::Report(int source) {
  if (options_.trace) {
    std::string text = absl::StrCat("source ", source, " attempt ", items_[source].attempt,
                                    items_[source].has_inline ? " inline" : "", " on");
    for (const auto& [node, complete] : items_[source].copies) {
      absl::StrAppend(&text, " ", node, complete ? "" : " (part)");
    }
    Trace(text);
  }
  plan_->OnSource(Source(source), Snapshot(source));
  Apply();
}

void ReduceWorld::Break(const std::string& what) {
  if (broken_.ok()) broken_ = absl::InternalError(what);
}

void ReduceWorld::Trace(const std::string& what) const {
  if (options_.trace) absl::FPrintF(stderr, "%s\n", what);
}

std::string ReduceWorld::Describe(const NodeKey& node, const FoldTask& task) const {
  std::string text =
      absl::StrCat("slot ", task.slot, " of ", task.slots, task.root ? " (root)" : "", " as ",
                   task.version.ToString(), " at ", node.node, " from");
  for (const FoldInput& input : task.inputs) {
    if (input.kind == FoldInput::Kind::kSlot) {
      absl::StrAppend(&text, " ", input.version.ToString(), "@", input.node.node);
    } else {
      absl::StrAppend(&text, input.kind == FoldInput::Kind::kInline ? " inline " : " source ",
                      Index(input.source));
    }
  }
  return text;
}

void ReduceWorld::TraceEffect(const ReduceEffect& effect) const {
  if (const auto* place = std::get_if<PlaceFold>(&effect)) {
    Trace(absl::StrCat("  place ", Describe(place->node, place->task)));
  } else if (const auto* drop = std::get_if<DropFold>(&effect)) {
    Trace(absl::StrCat("  drop ", drop->version.ToString(), " at ", drop->node.node));
  } else if (const auto* commit = std::get_if<CommitFold>(&effect)) {
    Trace(absl::StrCat("  commit ", commit->version.ToString(), " at ", commit->node.node));
  } else {
    Trace(absl::StrCat("  end: ", std::get<EndReduction>(effect).why.ToString()));
  }
}

// ---- events

void ReduceWorld::Begin() {
  if (began_) return;
  began_ = true;
  Trace("begin");
  plan_->Begin();
  Apply();
}

void ReduceWorld::Put(int source, int node, bool complete) {
  Item& item = items_[source];
  // A source that has failed can be put again until an open reduction is closed.
  if ((item.failed && !open_) || !machines_[node].up) return;
  item.failed = false;
  ++item.attempt;
  item.copies = {{node, complete}};
  item.has_inline = false;
  Report(source);
}

void ReduceWorld::Copy(int source, int node, bool complete) {
  Item& item = items_[source];
  if (item.failed || !machines_[node].up || item.copies.empty()) return;
  for (auto& [holder, done] : item.copies) {
    if (holder != node) continue;
    done |= complete;
    Report(source);
    return;
  }
  item.copies.emplace_back(node, complete);
  Report(source);
}

void ReduceWorld::LoseCopy(int source, int node) {
  auto& copies = items_[source].copies;
  const auto it = std::find_if(copies.begin(), copies.end(),
                               [node](const auto& copy) { return copy.first == node; });
  if (it == copies.end()) return;
  copies.erase(it);
  Report(source);
}

void ReduceWorld::Lose(int source) {
  items_[source].copies.clear();
  items_[source].has_inline = false;
  Report(source);
}

void ReduceWorld::SetInline(int source, bool has_inline) {
  Item& item = items_[source];
  if (item.attempt == 0 || item.failed) return;
  item.has_inline = has_inline && (!item.copies.empty() || item.has_inline);
  Report(source);
}

void ReduceWorld::Fail(int source) {
  Item& item = items_[source];
  if (item.failed) return;
  item = {item.attempt, {}, false, true};
  Trace(absl::StrCat("failed: source ", source));
  plan_->OnSourceFailed(Source(source), absl::AbortedError("its task died"));
  Apply();
}

void ReduceWorld::SetSpeed(int node, double speed) {
  Trace(absl::StrCat("node ", node, " has speed ", speed));
  machines_[node].speed = speed;
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    const auto& copies = items_[i].copies;
    const bool held = std::any_of(copies.begin(), copies.end(),
                                  [node](const auto& copy) { return copy.first == node; });
    if (held) Report(i);
  }
}

void ReduceWorld::Down(int node, bool sources_first) {
  if (!machines_[node].up) return;
  const NodeKey key = Key(node);
  Trace(absl::StrCat("down ", node));
  machines_[node].up = false;
  for (auto it = folds_.begin(); it != folds_.end();) {
    it = it->first.first == key ? folds_.erase(it) : std::next(it);
  }
  if (committed_ && committed_at_.first == key) committed_ = false;
  std::vector<int> reported;
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    auto& copies = items_[i].copies;
    const auto end = std::remove_if(copies.begin(), copies.end(),
                                    [node](const auto& copy) { return copy.first == node; });
    if (end != copies.end()) reported.push_back(i);
    copies.erase(end, copies.end());
  }
  if (sources_first) {
    dying_ = key;
    for (const int source : reported) Report(source);
    dying_.reset();
  }
  plan_->OnNodeDown(key);
  Apply();
  if (sources_first) return;
  for (const int source : reported) Report(source);
}

void ReduceWorld::Up(int node) {
  if (machines_[node].up) return;
  machines_[node].up = true;
  ++machines_[node].incarnation;
}

void ReduceWorld::LoseFold(int node, const SlotVersion& version) {
  const Where where = {Key(node), version};
  if (folds_.erase(where) == 0) return;
  // The messages of one node arrive in their order.
  ready_.erase(std::remove(ready_.begin(), ready_.end(), where), ready_.end());
  if (committed_ && committed_at_ == where) committed_ = false;
  lost_.insert(where);
  Trace(absl::StrCat("fold lost ", version.ToString(), " at ", node));
  plan_->OnFoldLost(where.first, version);
  Apply();
}

void ReduceWorld::LoseResult() {
  if (!committed_) return;
  committed_ = false;
  Trace("result lost");
  plan_->OnResultLost();
  Apply();
}

void ReduceWorld::Add(int sources) {
  if (!open_) return;
  std::vector<ObjectId> added;
  for (int i = 0; i < sources; ++i) {
    index_[Source(static_cast<int>(items_.size()))] = static_cast<int>(items_.size());
    added.push_back(Source(static_cast<int>(items_.size())));
    items_.emplace_back();
  }
  if (!plan_->Add(added).ok()) Break("an open reduction took no sources");
}

void ReduceWorld::Close() {
  if (!open_) return;
  const bool enough = !items_.empty() && static_cast<int>(items_.size()) >= Wanted();
  if (plan_->Close().ok() != enough) Break("closed with too few sources, or not with enough");
  open_ = !enough;
  Apply();
}

// ---- the nodes

void ReduceWorld::Apply() {
  for (const ReduceEffect& effect : plan_->TakeEffects()) {
    if (options_.trace) TraceEffect(effect);
    if (options_.on_effect) options_.on_effect(effect);
    if (const auto* place = std::get_if<PlaceFold>(&effect)) ApplyPlace(*place);
    if (const auto* drop = std::get_if<DropFold>(&effect)) ApplyDrop(*drop);
    if (const auto* commit = std::get_if<CommitFold>(&effect)) ApplyCommit(*commit);
    if (std::holds_alternative<EndReduction>(effect)) {
      if (ended_) Break("it ended twice");
      if (!folds_.empty()) Break("folds were left behind at the end");
      ended_ = true;
    }
  }
  if (dying_) return;
  CheckAll();
  if (options_.eager) ComputeAll();
}

void ReduceWorld::ApplyPlace(const PlaceFold& place) {
  if (dying_ == place.node) return;
  if (!IsUp(place.node)) return Break("a fold was placed on a dead node");
  if (ended_) return Break("a fold was placed after the end");
  if (!began_ || open_) return Break("a fold was placed too early");
  if (place.task.planned != static_cast<uint64_t>(Wanted())) return Break("planned is another");
  lost_.erase({place.node, place.task.version});
  const auto [it, added] = folds_.try_emplace({place.node, place.task.version});
  FoldTask& task = it->second.task;
  if (!added) {
    if (task.root != place.task.root || task.inputs.size() != place.task.inputs.size()) {
      return Break("the same version is another fold");
    }
    for (size_t i = 0; i < task.inputs.size(); ++i) {
      FoldInput moved = place.task.inputs[i];
      moved.node = task.inputs[i].node;
      if (moved != task.inputs[i]) return Break("the same version has other inputs");
    }
  }
  task = place.task;
}

void ReduceWorld::ApplyDrop(const DropFold& drop) {
  if (dying_ == drop.node) return;
  if (!IsUp(drop.node)) return Break("a fold was dropped on a dead node");
  const Where where = {drop.node, drop.version};
  if (lost_.erase(where) > 0) {
    dropped_at_.insert(drop.node);
    return;
  }
  const auto it = folds_.find(where);
  if (it == folds_.end()) return Break("a fold was dropped that was not there");
  if (it->second.task.root) dropped_at_.insert(drop.node);
  folds_.erase(it);
  if (committed_ && committed_at_ == where && !ended_) Break("the result was dropped");
}

void ReduceWorld::ApplyCommit(const CommitFold& commit) {
  const Where where = {commit.node, commit.version};
  const auto it = folds_.find(where);
  if (it == folds_.end() || !it->second.task.root) return Break("what is committed is no root");
  if (!it->second.value) return Break("what is committed is not computed");
  SetResult(where, it->second);
}

void ReduceWorld::SetResult(const Where& where, const Fold& fold) {
  if (committed_ && committed_at_ != where) return Break("two versions were committed");
  committed_ = true;
  committed_at_ = where;
  result_ = *fold.value;
  if (static_cast<int>(result_.size()) != Wanted()) Break("the result is of too few, or too many");
  std::vector<ObjectId> ids;
  for (const auto& [source, attempt] : result_) ids.push_back(Source(source));
  if (ids != fold.task.reduced_from) Break("the result is not what the root was said to be of");
  if (options_.spec.order == ReduceSpec::Order::kFixed &&
      !std::is_sorted(result_.begin(), result_.end())) {
    Break("a fixed order was not kept");
  }
}

// The inputs of a placed fold must exist.
void ReduceWorld::CheckInputs(const PlaceFold& place) {
  for (const FoldInput& input : place.task.inputs) {
    if (input.kind == FoldInput::Kind::kSlot) {
      if (folds_.count({input.node, input.version}) == 0) {
        Break(absl::StrCat("slot ", place.task.slot, " waits for a fold that is nowhere"));
      }
      continue;
    }
    const int source = Index(input.source);
    if (source < 0) return Break("an input is no source");
    const Item& item = items_[source];
    if (input.generation != Attempt(source, item.attempt)) {
      Break(absl::StrCat("slot ", place.task.slot, " waits for an attempt that is gone"));
    }
    const bool held = std::any_of(item.copies.begin(), item.copies.end(),
                                  [&](const auto& copy) { return Key(copy.first) == place.node; });
    if (input.kind == FoldInput::Kind::kInline ? !item.has_inline : !held) {
      Break(absl::StrCat("slot ", place.task.slot, " waits for a source that is not there"));
    }
  }
}

void ReduceWorld::CheckAll() {
  if (options_.invariants) {
    const absl::Status status = plan_->CheckInvariants();
    if (!status.ok()) Break(std::string(status.message()));
  }
  if (plan_->committed()) return;
  for (const auto& [where, fold] : folds_) CheckInputs({where.first, fold.task});
}

std::optional<ReduceWorld::Value> ReduceWorld::ValueOf(const Where& where, const Fold& fold) {
  Value value;
  for (const FoldInput& input : fold.task.inputs) {
    if (input.kind == FoldInput::Kind::kSlot) {
      const auto it = folds_.find({input.node, input.version});
      if (it == folds_.end() || !it->second.value) return std::nullopt;
      value.insert(value.end(), it->second.value->begin(), it->second.value->end());
      continue;
    }
    const int source = Index(input.source);
    // A node pins the sources of its folds, so they outlive the object.
    value.emplace_back(source, static_cast<int>(input.generation.sequence));
  }
  const auto [it, added] = values_.try_emplace(where.second, std::make_pair(fold.task.root, value));
  if (!added && it->second != std::make_pair(fold.task.root, value))
    Break("a version is two things");
  std::set<int> seen;
  for (const auto& [source, attempt] : value) {
    if (!seen.insert(source).second) Break("a source is folded twice");
  }
  return value;
}

bool ReduceWorld::Compute(size_t which) {
  std::vector<std::map<Where, Fold>::iterator> able;
  for (auto it = folds_.begin(); it != folds_.end(); ++it) {
    if (!it->second.value && ValueOf(it->first, it->second)) able.push_back(it);
  }
  if (able.empty()) return false;
  const auto it = able[which % able.size()];
  it->second.value = ValueOf(it->first, it->second);
  ++computed_;
  if (it->second.task.committed) {
    SetResult(it->first, it->second);
  } else if (it->second.task.root) {
    ready_.push_back(it->first);
  }
  return true;
}

void ReduceWorld::ComputeAll() {
  bool any = true;
  while (any) {
    any = false;
    for (auto& [where, fold] : folds_) {
      if (fold.value || !(fold.value = ValueOf(where, fold))) continue;
      any = true;
      ++computed_;
      if (fold.task.committed) {
        SetResult(where, fold);
      } else if (fold.task.root) {
        ready_.push_back(where);
      }
    }
  }
}

bool ReduceWorld::DeliverReady(size_t which) {
  if (ready_.empty()) return false;
  const auto it = ready_.begin() + static_cast<ptrdiff_t>(which % ready_.size());
  const Where where = *it;
  ready_.erase(it);
  Trace(absl::StrCat("ready ", where.second.ToString(), " at ", where.first.node));
  plan_->OnReady(where.first, where.second);
  Apply();
  return true;
}

// ---- a restart

// Returns true if every fold below a fold still exists.
bool ReduceWorld::Kept(const Where& where, const std::map<Where, Fold>& folds) const {
  const auto it = folds.find(where);
  if (it == folds.end() || !IsUp(where.first)) return false;
  for (const FoldInput& input : it->second.task.inputs) {
    if (input.kind == FoldInput::Kind::kSlot) {
      if (!Kept({input.node, input.version}, folds)) return false;
      continue;
    }
    const int source = Index(input.source);
    const Item& item = items_[source];
    const bool held = std::any_of(item.copies.begin(), item.copies.end(),
                                  [&](const auto& copy) { return Key(copy.first) == where.first; });
    if (input.generation != Attempt(source, item.attempt)) return false;
    if (!held && input.kind == FoldInput::Kind::kSource) return false;
  }
  return true;
}

void ReduceWorld::NewPlan(Random& random) {
  ReduceSpec spec = options_.spec;
  spec.sources = Sources(0, static_cast<int>(items_.size()));
  spec.open = open_;
  const NodeKey root = plan_->root();
  plan_ = std::make_unique<ReducePlan>(Target(), spec, IsUp(root) ? root : NodeKey());
  plan_->SetCosts(options_.costs);
  std::vector<int> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  Shuffle(random, order);
  for (const int source : order) {
    if (items_[source].failed) plan_->OnSourceFailed(Source(source), absl::AbortedError("died"));
    plan_->OnSource(Source(source), Snapshot(source));
  }
}

void ReduceWorld::Restart(Random& random, int node_too) {
  if (!began_ || committed_ || ended_ || plan_->committed()) return;
  Trace(absl::StrCat("restart, without node ", node_too));
  const NodeKey root = plan_->root();
  const bool root_dies = node_too > 0 && Key(node_too) == root && IsUp(root);
  if (node_too > 0) {
    // No node receives the effects of the plan that is lost.
    machines_[node_too].up = false;
    for (Item& item : items_) {
      auto& copies = item.copies;
      copies.erase(std::remove_if(copies.begin(), copies.end(),
                                  [&](const auto& copy) { return copy.first == node_too; }),
                   copies.end());
    }
  }
  ready_.clear();
  lost_.clear();
  NewPlan(random);
  std::vector<std::map<Where, Fold>::const_iterator> said;
  for (auto it = folds_.begin(); it != folds_.end(); ++it) {
    if (IsUp(it->first.first)) said.push_back(it);
  }
  std::vector<int> order(said.size());
  std::iota(order.begin(), order.end(), 0);
  Shuffle(random, order);
  for (const int i : order) {
    const auto& [where, fold] = *said[i];
    std::vector<ObjectId> own;
    for (const FoldInput& input : fold.task.inputs) {
      if (input.kind != FoldInput::Kind::kSlot) own.push_back(input.source);
    }
    plan_->Restore(fold.task.slots, fold.task.degree, fold.task.slot, own, where.first,
                   where.second);
  }
  plan_->Begin();
  // The nodes that lost nothing continue with the folds that the new plan wants.
  const std::map<Where, Fold> before = std::exchange(folds_, {});
  for (const auto& [where, fold] : before) {
    const bool wanted = plan_->Find(where.first, where.second) != nullptr;
    if (wanted) folds_.insert({where, fold});
    // Exceptions: a root that was dropped at a node before has another version there, and a root
    // whose node died is another fold. A leaf of a slot that no node reports can become that slot
    // itself. A small reduction can be a star now.
    const bool may = plan_->committed() || fold.task.slot > fold.task.slots ||
                     (fold.task.root && dropped_at_.count(where.first) > 0) ||
                     (root_dies && (fold.task.slot + 1 >= fold.task.slots || fold.task.degree > 1));
    if (!wanted && !may && Kept(where, before)) {
      Break(absl::StrCat("a restart gave up ", Describe(where.first, fold.task)));
    }
  }
  Apply();
  for (const auto& [where, fold] : folds_) {
    if (fold.task.root && fold.value) ready_.push_back(where);
  }
}

// ---- random worlds

void ReduceWorld::StepSource(Random& random, int source) {
  const int node = 1 + static_cast<int>(random.Below(options_.nodes));
  switch (random.Below(8)) {
    case 0:
    case 1:
      if (items_[source].copies.empty()) Put(source, node, random.Chance(0.7));
      break;
    case 2:
    case 3:
      Copy(source, node, random.Chance(0.7));
      break;
    case 4:
      LoseCopy(source, node);
      break;
    case 5:
      SetInline(source, random.Chance(0.8));
      break;
    case 6:
      if (random.Chance(0.2)) Put(source, node);
      break;
    default:
      if (random.Chance(0.3)) Lose(source);
      if (random.Chance(0.02)) Fail(source);
  }
}

void ReduceWorld::StepNode(Random& random, int node) {
  if (!machines_[node].up) {
    if (random.Chance(0.5)) Up(node);
    return;
  }
  if (random.Chance(0.15)) return Down(node, random.Chance(0.5));
  std::vector<SlotVersion> here;
  for (const auto& [where, fold] : folds_) {
    if (where.first == Key(node)) here.push_back(where.second);
  }
  if (!here.empty() && random.Chance(0.3)) LoseFold(node, here[random.Below(here.size())]);
}

void ReduceWorld::Step(Random& random) {
  const uint64_t dice = random.Below(100);
  if (dice < 50 && !items_.empty()) {
    StepSource(random, static_cast<int>(random.Below(items_.size())));
  } else if (dice < 60) {
    StepNode(random, 1 + static_cast<int>(random.Below(options_.nodes)));
  } else if (dice < 84) {
    Compute(random.Below(1 << 20));
  } else if (dice < 88) {
    DeliverReady(random.Below(1 << 20));
  } else if (dice < 90) {
    Begin();
  } else if (dice < 93) {
    const int node = 1 + static_cast<int>(random.Below(options_.nodes));
    Restart(random, random.Chance(0.3) && machines_[node].up ? node : 0);
  } else if (dice < 95 && open_ && items_.size() < 12) {
    Add(1);
  } else if (dice < 97) {
    if (random.Chance(0.3)) Close();
  } else if (dice < 98) {
    LoseResult();
  } else {
    const int node = 1 + static_cast<int>(random.Below(options_.nodes));
    SetSpeed(node, random.Chance(0.5) ? 1 : 0.1 * static_cast<double>(random.Below(4)));
  }
}

void ReduceWorld::Settle() {
  Begin();
  for (int node = 1; node <= options_.nodes; ++node) Up(node);
  while (open_ && static_cast<int>(items_.size()) < std::max(1, Wanted())) Add(1);
  Close();
  const auto lost =
      std::count_if(items_.begin(), items_.end(), [](const Item& item) { return item.failed; });
  const bool possible = static_cast<int>(items_.size() - lost) >= Wanted();
  for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
    if (items_[i].copies.empty()) Put(i, 1 + i % options_.nodes);
    Copy(i, items_[i].copies.empty() ? 1 : items_[i].copies.front().first);
  }
  for (int turn = 0; turn < 100 && !Done(); ++turn) {
    ComputeAll();
    while (DeliverReady(0)) {
    }
  }
  if (!Done()) Break("it never ends");
  if (committed_ && !possible && !ended_ && !plan_->committed()) Break("committed without sources");
  if (ended_ && possible) Break("it ended although sources were left");
  plan_->Cancel();
  ended_ = true;
  for (const ReduceEffect& effect : plan_->TakeEffects()) {
    if (options_.on_effect) options_.on_effect(effect);
    if (const auto* drop = std::get_if<DropFold>(&effect)) ApplyDrop(*drop);
  }
  if (!folds_.empty()) Break("folds were left behind");
}

}  // namespace phalanx::directory::testing
