#include "src/directory/reductions/tree_plan/reduce_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/reductions/tree_plan/fold_ledger.h"
#include "src/directory/reductions/tree_plan/fold_versions.h"
#include "src/directory/reductions/tree_plan/restored_folds.h"
#include "src/directory/reductions/tree_plan/slot_tree.h"
#include "src/directory/reductions/tree_plan/source_table.h"
#include "src/directory/reductions/tree_plan/star_fold.h"
#include "src/directory/reductions/tree_plan/tree_layout.h"

namespace phalanx::directory {
namespace {

// How often nodes that are up can lose one fold before the reduction ends.
constexpr int kMaxFoldLosses = 100;

// The costs of a data centre's network, for a plan without measured ones.
ReduceCosts CommonCosts() {
  return {.latency = absl::Microseconds(200),
          .bytes_per_second = 1.25e9,
          .fold_per_second = 5e9,
          .segment_bytes = 256 << 10};
}

absl::Status CheckNewSource(const ObjectId& target, const ObjectId& source, bool twice) {
  const std::string what = absl::StrCat("reduction of ", target.hex(), ": source ", source.hex());
  if (source.nil()) return absl::InvalidArgumentError(absl::StrCat(what, " is no object's id"));
  if (source == target) return absl::InvalidArgumentError(absl::StrCat(what, " is the target"));
  if (twice) return absl::InvalidArgumentError(absl::StrCat(what, " comes twice"));
  return absl::OkStatus();
}

absl::Status CheckCount(const ObjectId& target, size_t sources) {
  if (sources <= kMaxReduceSources) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("reduction of ", target.hex(), ": ", sources,
                                                 " sources, at most ", kMaxReduceSources,
                                                 " can be reduced"));
}

absl::Status CheckRange(const ObjectId& target, const ReduceSpec& spec) {
  const uint64_t grain = spec.elements.Grain();
  const uint64_t offset = spec.range_offset;
  const uint64_t bytes = spec.range_bytes;
  const std::string what =
      absl::StrCat("reduction of ", target.hex(), ": the range of ", bytes, " bytes from ", offset);
  if (bytes == 0 && offset > 0) return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  if (offset % grain != 0 || (bytes != 0 && !CheckWhole(spec.elements, bytes).ok())) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is no whole number of ", spec.elements.Name()));
  }
  if (offset > kMaxObjectBytes || bytes > kMaxObjectBytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is beyond the largest object"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateReduceSpec(const ObjectId& target, const ReduceSpec& spec) {
  if (target.nil()) return absl::InvalidArgumentError("the target of a reduction has no id");
  PHALANX_RETURN_IF_ERROR(CheckReducible(spec.elements, spec.op));
  if (spec.sources.empty() && !spec.open) {
    return absl::InvalidArgumentError(
        absl::StrCat("reduction of ", target.hex(), ": there are no sources"));
  }
  PHALANX_RETURN_IF_ERROR(CheckCount(target, spec.sources.size()));
  absl::flat_hash_set<ObjectId> seen;
  for (const ObjectId& source : spec.sources) {
    PHALANX_RETURN_IF_ERROR(CheckNewSource(target, source, !seen.insert(source).second));
  }
  PHALANX_RETURN_IF_ERROR(CheckCount(target, spec.num_objects));
  if (!spec.open && spec.num_objects > spec.sources.size()) {
    return absl::InvalidArgumentError(absl::StrCat("reduction of ", target.hex(), ": ",
                                                   spec.num_objects, " objects out of ",
                                                   spec.sources.size(), " sources"));
  }
  const bool whole = !spec.open && spec.range_bytes == 0 && spec.range_offset == 0 &&
                     (spec.num_objects == 0 || spec.num_objects == spec.sources.size());
  if (spec.order == ReduceSpec::Order::kRing && !whole) {
    return absl::InvalidArgumentError(absl::StrCat("reduction of ", target.hex(),
                                                   ": a ring has all of each source, and "
                                                   "all sources, which are known when it begins"));
  }
  return CheckRange(target, spec);
}

// ---- inside

// The router: it decides when the shape is chosen, dropped and committed. Everything else is in the
// components, in this order of use:
//
//   sources ──► versions ──► ledger ──► restored ──► star or tree
struct ReducePlan::Impl {
  //   kCollecting ──Begin──► kRunning ──READY of the root, or a star──► kCommitted
  //                             ▲                                           │
  //                             └─────────────the result is lost────────────┘
  //   kCommitted ──End, Cancel──► kEndedCommitted       any other ──End, Cancel──► kEnded
  enum class Phase : uint8_t { kCollecting, kRunning, kCommitted, kEnded, kEndedCommitted };

  //   kNone ──► kTree                              large reductions
  //   kNone ──► kStar ──► kSmallTree ──► kStar     small ones; a tree while no star can be placed
  //   any ──Reset──► kNone
  enum class Shape : uint8_t {
    kNone,  // no source is in a seat
    kTree,
    kSmallTree,  // a star replaces it if it can, until all seats are taken
    kStar,       // the fold is placed when all sources can be had
  };

  Impl(const ObjectId& target, ReduceSpec spec, NodeKey root)
      : inputs{target, std::move(spec), root, root.valid(), CommonCosts()} {}

  bool ended() const { return phase == Phase::kEnded || phase == Phase::kEndedCommitted; }
  bool committed() const { return phase == Phase::kCommitted || phase == Phase::kEndedCommitted; }
  bool takes_sources() const { return inputs.spec.open && !closed && !ended(); }
  bool is_tree() const { return shape == Shape::kTree || shape == Shape::kSmallTree; }
  // Returns true if the plan can still use news of the source.
  bool follows(int source) const {
    return source != SourceTable::kNone && !ended() && !sources[source].failed();
  }

  void Advance();
  bool FixSize();
  bool EnoughLeft();
  bool PlaceStar();
  void BuildTree(bool small);
  void SetState(int source, std::optional<ReduceSource> state);
  bool SwapPays() const;
  void LoseRoot();
  void ReplanResult();
  void Reset();
  void End(const absl::Status& why);
  void MarkEnded();
  const Fold* RootFold() const;
  Fold* FoldOf(const NodeKey& node, const SlotVersion& version);

  PlanInputs inputs;
  Phase phase = Phase::kCollecting;
  Shape shape = Shape::kNone;
  bool closed = false;  // an open reduction takes no more sources
  bool held = false;    // between Hold and Release
  int swaps = 0;
  int swaps_taken = 0;  // by TakeSwaps
  // The last progress of a root.
  SlotVersion progress_of;
  uint64_t progress_bytes = 0;

  SourceTable sources{inputs};
  FoldVersions versions{inputs, sources};
  FoldLedger ledger{versions};
  RestoredFolds restored{inputs, sources, versions};
  StarFold star{inputs, sources, restored, versions, ledger};
  SlotTree tree{inputs, sources, versions, ledger};
};

// Moves the plan as far as the sources allow. Called after every event.
void ReducePlan::Impl::Advance() {
  if (held || phase != Phase::kRunning || (inputs.spec.open && !closed) || !EnoughLeft()) return;
  // A shape without sources is chosen again for those that come: their size and nodes can differ.
  if (is_tree() && tree.seated() == 0) Reset();
  if (shape == Shape::kStar && sources.ready() == 0) Reset();
  if (SwapPays()) {
    ++swaps;
    Reset();
  }
  bool small = shape == Shape::kStar || shape == Shape::kSmallTree;
  if (shape == Shape::kNone) {
    if (!FixSize()) return;
    small = star.Pays();
    // Nodes have parts of a tree from before a restart; a star would fold everything again.
    if (small && !restored.DescribeTree()) shape = Shape::kStar;
  }
  const bool enough = sources.ready() >= sources.wanted();
  const bool waits = shape == Shape::kStar || (is_tree() && tree.has_free_seats());
  if (small && enough && waits && PlaceStar()) return;
  // All sources are ready, but some are too large for the order or only partly at the node.
  if (shape == Shape::kNone || (shape == Shape::kStar && enough)) BuildTree(small);
  if (!is_tree() || ended()) return;
  if (const absl::Status status = tree.FillSeats(); !status.ok()) return End(status);
  tree.Flush();
}

// Returns true if the waiting sources are so much faster than slow ones in the tree that the result
// is complete sooner although all of it is computed again.
bool ReducePlan::Impl::SwapPays() const {
  if (!is_tree() || tree.has_free_seats()) return false;
  if (DefectActive(Defect::kSwapBackAndForth)) return sources.SlowestSeated() < 1;
  const double faster = swaps < kMaxSwaps ? sources.SpeedUp() : 1;
  if (faster <= 1 || inputs.size_bytes == 0) return false;
  const Fold* root = RootFold();
  const bool known = root != nullptr && root->task.version == progress_of;
  const uint64_t done = known ? std::min(progress_bytes, inputs.size_bytes) : 0;
  const double left = static_cast<double>(inputs.size_bytes - done) / inputs.size_bytes;
  return left * faster > kMuchSooner;
}

// Takes the size from the first ready source. Returns false if there is none, or if the source
// cannot be reduced and the reduction has ended.
bool ReducePlan::Impl::FixSize() {
  const int end = sources.EligibleEnd();
  for (const auto& [arrival, source] : sources.waiting()) {
    if (source >= end) continue;
    inputs.size_bytes = sources.FoldBytes(sources[source]);
    const absl::Status status = sources.CheckFits(sources[source]);
    if (!status.ok()) End(status);
    return status.ok();
  }
  return false;
}

// Returns false if too few sources can still come, and the reduction has ended.
bool ReducePlan::Impl::EnoughLeft() {
  if (sources.remaining() >= sources.wanted()) return true;
  const absl::Status why = sources.why_failed();
  End(absl::Status(
      why.code(), absl::StrCat("reduction of ", inputs.target.hex(), ": ", sources.wanted(),
                               " sources are wanted and ", sources.remaining(), " can still come; ",
                               why.message())));
  return false;
}

// Returns true if the star is placed, or the reduction has ended.
bool ReducePlan::Impl::PlaceStar() {
  const std::optional<StarFold::Placement> placement = star.FindPlacement();
  if (!placement) return false;
  for (const int source : placement->sources) {
    if (const absl::Status status = sources.CheckFits(sources[source]); !status.ok()) {
      End(status);
      return true;
    }
  }
  if (is_tree()) Reset();
  shape = Shape::kStar;
  star.Place(*placement);
  phase = Phase::kCommitted;
  return true;
}

void ReducePlan::Impl::BuildTree(bool small) {
  TreeLayout layout;
  if (!restored.empty()) layout = restored.MakeLayout();
  if (layout.groups.empty()) {
    layout = inputs.spec.order == ReduceSpec::Order::kFixed ? FixedLayout(inputs, sources)
                                                            : ArrivalLayout(inputs, sources);
  }
  if (layout.groups.empty()) return;
  // The reports are used once: a later tree has other slots.
  restored.Clear();
  shape = small ? Shape::kSmallTree : Shape::kTree;
  if (const absl::Status status = tree.Build(layout); !status.ok()) End(status);
}

void ReducePlan::Impl::SetState(int source, std::optional<ReduceSource> state) {
  star.BeforeChange(source);
  sources.SetState(source, std::move(state));
  star.AfterChange(source);
  if (phase != Phase::kCommitted && is_tree()) tree.OnSourceChanged(source);
}

// The tree's own root is the root from now on.
void ReducePlan::Impl::LoseRoot() {
  inputs.root_up = false;
  if (is_tree()) tree.OnRootDown();
}

void ReducePlan::Impl::ReplanResult() {
  phase = Phase::kRunning;
  bool reset = shape == Shape::kStar;
  for (int i = 0; i < sources.size(); ++i) {
    // Failures were not followed since the commit. In a fixed order, all later sources move up.
    reset |= sources[i].failed() && sources[i].reserved_seat.valid();
  }
  if (reset) return Reset();
  tree.OnResultLost();
}

void ReducePlan::Impl::Reset() {
  tree.Clear();
  star.Drop();
  sources.ClearSeats();
  shape = Shape::kNone;
}

void ReducePlan::Impl::End(const absl::Status& why) {
  Reset();
  ledger.End(why);
  MarkEnded();
}

void ReducePlan::Impl::MarkEnded() {
  phase = phase == Phase::kCommitted ? Phase::kEndedCommitted : Phase::kEnded;
}

const Fold* ReducePlan::Impl::RootFold() const {
  if (shape == Shape::kNone) return nullptr;
  const Fold& fold = is_tree() ? tree.root_fold() : star.fold();
  return fold.placed() ? &fold : nullptr;
}

Fold* ReducePlan::Impl::FoldOf(const NodeKey& node, const SlotVersion& version) {
  const std::optional<int> number = ledger.NumberOf(version);
  if (!number) return nullptr;
  Fold& fold = is_tree() ? tree.FoldOf(*number) : star.fold();
  return fold.state == Fold::State::kGone || fold.node != node ? nullptr : &fold;
}

// ---- what happens

ReducePlan::ReducePlan(const ObjectId& target, ReduceSpec spec, NodeKey root)
    : impl_(std::make_unique<Impl>(target, std::move(spec), root)) {}
ReducePlan::~ReducePlan() = default;

void ReducePlan::SetCosts(const ReduceCosts& costs) {
  const ReduceCosts common = CommonCosts();
  ReduceCosts& used = impl_->inputs.costs;
  used = costs;
  if (costs.latency <= absl::ZeroDuration()) used.latency = common.latency;
  // Written so that NaN is replaced, too.
  if (!(costs.bytes_per_second > 0)) used.bytes_per_second = common.bytes_per_second;
  if (!(costs.fold_per_second > 0)) used.fold_per_second = common.fold_per_second;
}

void ReducePlan::Hold() { impl_->held = true; }

void ReducePlan::Release() {
  impl_->held = false;
  impl_->Advance();
}

uint64_t ReducePlan::TakeExamined() { return impl_->sources.TakeExamined(); }

uint64_t ReducePlan::TakeSwaps() {
  return static_cast<uint64_t>(impl_->swaps - std::exchange(impl_->swaps_taken, impl_->swaps));
}

void ReducePlan::OnProgress(const SlotVersion& version, uint64_t bytes) {
  if (version != RootVersion()) return;
  impl_->progress_of = version;
  impl_->progress_bytes = bytes;
}

void ReducePlan::Begin() {
  if (impl_->phase == Impl::Phase::kCollecting) impl_->phase = Impl::Phase::kRunning;
  impl_->Advance();
}

void ReducePlan::Restore(int slots, int degree, int slot, absl::Span<const ObjectId> sources,
                         const NodeKey& node, const SlotVersion& version) {
  if (impl_->phase != Impl::Phase::kCollecting) return;
  impl_->restored.Add(slots, degree, slot, sources, node, version);
}

void ReducePlan::OnSource(const ObjectId& source, std::optional<ReduceSource> state) {
  Impl& plan = *impl_;
  const int i = plan.sources.Find(source);
  // Nothing is placed before an open reduction is closed, so what exists then counts.
  if (i != SourceTable::kNone && state && plan.takes_sources()) plan.sources.ClearFailure(i);
  if (!plan.follows(i)) return;
  plan.SetState(i, std::move(state));
  plan.Advance();
}

void ReducePlan::OnSourceFailed(const ObjectId& source, const absl::Status& why) {
  Impl& plan = *impl_;
  const int i = plan.sources.Find(source);
  if (!plan.follows(i)) return;
  plan.sources.MarkFailed(i, why);
  plan.SetState(i, std::nullopt);
  // In a fixed order all later sources move up by one, into other slots.
  if (plan.sources[i].reserved_seat.valid() && !plan.committed()) plan.Reset();
  plan.Advance();
}

void ReducePlan::OnNodeDown(const NodeKey& node) {
  Impl& plan = *impl_;
  if (plan.ended()) return;
  const Fold* root_fold = plan.RootFold();
  const bool result_lost = plan.committed() && root_fold != nullptr && root_fold->node == node;
  // Before anything is dropped: no DropFold goes to a node that is down.
  plan.star.MarkNodeDown(node);
  plan.tree.MarkNodeDown(node);
  plan.restored.ForgetNode(node);
  if (result_lost) plan.ReplanResult();
  const bool root_lost = plan.inputs.root_up && plan.inputs.root == node;
  if (root_lost && !DefectActive(Defect::kDeadRootKept)) plan.LoseRoot();
  for (int i = 0; i < plan.sources.size(); ++i) {
    const std::optional<ReduceSource>& state = plan.sources[i].state;
    if (!state || !Holds(*state, node)) continue;
    ReduceSource left = *state;
    left.holders.erase(
        std::remove_if(left.holders.begin(), left.holders.end(),
                       [&](const ReduceSource::Holder& holder) { return holder.node == node; }),
        left.holders.end());
    plan.SetState(i, std::move(left));
  }
  plan.Advance();
}

void ReducePlan::OnFoldLost(const NodeKey& node, const SlotVersion& version) {
  Impl& plan = *impl_;
  Fold* fold = plan.ended() ? nullptr : plan.FoldOf(node, version);
  // A second report of one loss does not count as a second loss.
  if (fold == nullptr || fold->lost()) return;
  plan.ledger.MarkLost(*fold);
  const int losses = plan.is_tree() ? ++fold->losses : plan.star.CountLoss();
  if (losses > kMaxFoldLosses) {
    plan.End(absl::UnavailableError(
        absl::StrCat("reduction of ", plan.inputs.target.hex(), ": node ", node.ToString(),
                     " has lost or refused slot ", fold->task.slot, " too often")));
    return;
  }
  // After a commit only the root's output is needed: the nodes below it have sent theirs.
  if (plan.committed() && !fold->task.root) return;
  const int number = fold->task.slot;
  if (plan.committed()) plan.ReplanResult();
  if (plan.is_tree()) plan.tree.OnFoldLost(number, node);
  plan.Advance();
}

void ReducePlan::OnReady(const NodeKey& node, const SlotVersion& version) {
  Impl& plan = *impl_;
  const Fold* fold = plan.RootFold();
  if (plan.ended() || fold == nullptr || fold->lost() || fold->node != node) return;
  if (fold->task.version != version && !DefectActive(Defect::kOldVersionCommitted)) return;
  // A READY after the commit is answered again: the first CommitFold can have been lost.
  plan.phase = Impl::Phase::kCommitted;
  plan.ledger.Commit(node, version);
}

void ReducePlan::OnResultLost() {
  if (impl_->phase != Impl::Phase::kCommitted || DefectActive(Defect::kLostResultForgotten)) return;
  impl_->ReplanResult();
  impl_->Advance();
}

absl::Status ReducePlan::Add(absl::Span<const ObjectId> sources) {
  Impl& plan = *impl_;
  const ObjectId& target = plan.inputs.target;
  if (!plan.takes_sources()) {
    return absl::FailedPreconditionError(
        absl::StrCat("reduction of ", target.hex(), " takes no more sources"));
  }
  PHALANX_RETURN_IF_ERROR(CheckCount(target, plan.sources.size() + sources.size()));
  // All are checked before one is added: an error adds none.
  absl::flat_hash_set<ObjectId> seen;
  for (const ObjectId& id : sources) {
    const bool twice = Has(id) || !seen.insert(id).second;
    PHALANX_RETURN_IF_ERROR(CheckNewSource(target, id, twice));
  }
  for (const ObjectId& id : sources) {
    plan.sources.Add(id);
    plan.inputs.spec.sources.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReducePlan::Close() {
  Impl& plan = *impl_;
  const std::string what = absl::StrCat("reduction of ", plan.inputs.target.hex());
  if (!plan.takes_sources()) {
    return absl::FailedPreconditionError(absl::StrCat(what, " is not open"));
  }
  const int all = plan.sources.size();
  if (all == 0 || plan.inputs.spec.num_objects > static_cast<uint32_t>(all)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", plan.sources.wanted(), " objects out of ", all, " sources"));
  }
  // Only now the plan knows how many sources the result has.
  plan.closed = true;
  plan.Advance();
  return absl::OkStatus();
}

void ReducePlan::Cancel() {
  if (impl_->ended()) return;
  impl_->Reset();
  impl_->MarkEnded();
}

std::vector<ReduceEffect> ReducePlan::TakeEffects() { return impl_->ledger.TakeEffects(); }

// ---- looking

const ReduceSpec& ReducePlan::spec() const { return impl_->inputs.spec; }
const NodeKey& ReducePlan::root() const { return impl_->inputs.root; }

const FoldTask* ReducePlan::Find(const NodeKey& node, const SlotVersion& version) const {
  const Fold* fold = impl_->FoldOf(node, version);
  return fold == nullptr ? nullptr : &fold->task;
}

SlotVersion ReducePlan::RootVersion() const {
  const Fold* fold = impl_->RootFold();
  return fold == nullptr ? SlotVersion() : fold->task.version;
}

NodeKey ReducePlan::RootNode() const {
  const Fold* fold = impl_->RootFold();
  return fold == nullptr ? NodeKey() : fold->node;
}

bool ReducePlan::committed() const { return impl_->committed(); }

bool ReducePlan::closed() const { return impl_->closed; }

bool ReducePlan::Has(const ObjectId& source) const {
  return impl_->sources.Find(source) != SourceTable::kNone;
}

bool ReducePlan::Watches(const ObjectId& source) const {
  return impl_->follows(impl_->sources.Find(source));
}

bool ReducePlan::Placed(const ObjectId& source) const {
  const int i = impl_->sources.Find(source);
  return i != SourceTable::kNone && impl_->sources[i].seat.valid();
}

std::vector<ObjectId> ReducePlan::HeldBy(const NodeKey& node) const {
  const SourceTable& sources = impl_->sources;
  sources.CountExamined(static_cast<uint64_t>(sources.size()));
  std::vector<ObjectId> held;
  for (int i = 0; i < sources.size(); ++i) {
    const std::optional<ReduceSource>& state = sources[i].state;
    if (state && Holds(*state, node)) held.push_back(sources[i].id);
  }
  return held;
}

ReducePlan::View ReducePlan::Look() const {
  const Impl& plan = *impl_;
  View view;
  view.size_bytes = plan.inputs.size_bytes;
  view.ready = plan.sources.ready();
  view.spares = plan.sources.waiting().size();
  view.epoch = plan.ledger.epoch();
  view.degree = plan.tree.degree();
  if (const Fold& star = plan.star.fold(); star.placed()) {
    view.degree = star.task.degree;
    view.slots.push_back(
        {0, SlotTree::kNone, star.node, star.task.version, star.task.reduced_from});
  }
  const std::vector<SlotTree::Slot>& slots = plan.tree.slots();
  for (int number = 0; number < static_cast<int>(slots.size()); ++number) {
    const SlotTree::Slot& slot = slots[number];
    if (slot.closed()) continue;
    // The task of a fold that is not placed has no version.
    view.slots.push_back({number, slot.parent, slot.node, slot.fold.task.version, {}});
    for (const SlotTree::Seat& seat : slot.seats) {
      if (seat.source == SourceTable::kNone || seat.node != slot.node) continue;
      view.slots.back().own.push_back(plan.sources[seat.source].id);
    }
  }
  for (int number = 0; number < static_cast<int>(slots.size()); ++number) {
    for (size_t i = 0; i < slots[number].seats.size(); ++i) {
      const SlotTree::Seat& seat = slots[number].seats[i];
      if (!seat.leaf.placed()) continue;
      view.slots.push_back({plan.tree.LeafNumber(number, static_cast<int>(i)),
                            number,
                            seat.node,
                            seat.leaf.task.version,
                            {plan.sources[seat.source].id}});
    }
  }
  return view;
}

absl::Status ReducePlan::CheckInvariants() const {
  const Impl& plan = *impl_;
  PHALANX_RETURN_IF_ERROR(plan.sources.CheckInvariants());
  PHALANX_RETURN_IF_ERROR(plan.versions.CheckInvariants());
  PHALANX_RETURN_IF_ERROR(plan.restored.CheckInvariants());
  PHALANX_RETURN_IF_ERROR(plan.star.CheckInvariants());
  PHALANX_RETURN_IF_ERROR(plan.tree.CheckInvariants(plan.committed()));
  const size_t placed = plan.tree.placed_folds() + (plan.star.fold().placed() ? 1 : 0);
  PHALANX_RETURN_IF_ERROR(plan.ledger.CheckInvariants(placed));
  if (plan.is_tree() == plan.tree.empty())
    return absl::InternalError("the shape is not the tree's");
  if (plan.phase == Impl::Phase::kCommitted && plan.RootFold() == nullptr) {
    return absl::InternalError("nothing is committed");
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
