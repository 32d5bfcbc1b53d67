#include "src/directory/reduce_plan.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "src/common/defects.h"
#include "src/common/status_macros.h"
#include "src/directory/reduce_plan_impl.h"

namespace phalanx::directory {
namespace {

// Until anything was measured: a data centre's network.
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
  return CheckRange(target, spec);
}

// ---- inside

ReducePlan::Impl::Impl(const ObjectId& target, ReduceSpec spec, NodeKey root)
    : target(target),
      spec(std::move(spec)),
      root(root),
      root_up(root.valid()),
      costs(CommonCosts()) {
  for (const ObjectId& id : this->spec.sources) {
    index.emplace(id, static_cast<int>(sources.size()));
    sources.emplace_back().id = id;
  }
}

int ReducePlan::Impl::Find(const ObjectId& id) const {
  const auto it = index.find(id);
  return it == index.end() ? kNone : it->second;
}

int ReducePlan::Impl::Wanted() const {
  return static_cast<int>(spec.num_objects > 0 ? spec.num_objects : sources.size());
}

void ReducePlan::Impl::SetState(int i, std::optional<ReduceSource> state) {
  Source& source = sources[i];
  if (state && state->holders.empty() && !state->has_inline) state.reset();
  const bool again = source.state && state && source.state->generation != state->generation;
  ready += (state ? 1 : 0) - (source.state ? 1 : 0);
  waiting.erase({source.arrival, i});
  placeable.erase({source.arrival, i});
  if (CountsForStar(i)) --star_usable;
  source.state = std::move(state);
  if (!source.state) source.arrival = 0;
  if (source.state && (source.arrival == 0 || again)) source.arrival = ++arrivals;
  if (CountsForStar(i)) ++star_usable;
  if (Placeable(source)) placeable.insert({source.arrival, i});
  if (!committed) Recheck(i);
  if (source.state && source.slot == kNone) waiting.insert({source.arrival, i});
}

void ReducePlan::Impl::SourceFailed(int i, const absl::Status& why) {
  Source& source = sources[i];
  source.failed = true;
  ++failed;
  why_failed = absl::Status(why.ok() ? absl::StatusCode::kUnknown : why.code(),
                            absl::StrCat("source ", source.id.hex(), " failed: ", why.message()));
  SetState(i, std::nullopt);
  // The others in a fixed order move up.
  if (source.home_slot != kNone && !committed) Unshape();
}

bool ReducePlan::Impl::EnoughLeft() {
  const int left = static_cast<int>(sources.size()) - failed;
  if (left >= Wanted()) return true;
  End(absl::Status(why_failed.code(), absl::StrCat("reduction of ", target.hex(), ": ", Wanted(),
                                                   " sources are wanted and ", left,
                                                   " can still come; ", why_failed.message())));
  return false;
}

void ReducePlan::Impl::LoseFoldsAt(const NodeKey& node) {
  const auto lose = [&node](Fold& fold) {
    if (fold.placed && fold.node == node) fold.lost = fold.gone = true;
  };
  lose(star);
  for (Slot& slot : slots) {
    lose(slot.fold);
    for (Seat& seat : slot.seats) lose(seat.leaf);
  }
}

// The tree's own root is the root from now on.
void ReducePlan::Impl::ForgetRoot() {
  root_up = false;
  if (mode != Mode::kTree) return;
  const int tree_root = shape->root();
  if (Delivers()) {
    Lower(tree_root);
    Lower(shape->slots());
    marked.erase({-slots.back().depth, shape->slots()});
    slots.pop_back();
    slots[tree_root].parent = kNone;
  }
  reserved = false;
  Mark(tree_root);
}

void ReducePlan::Impl::BeginAnew() {
  committed = false;
  bool reshape = mode == Mode::kStar;
  for (const Source& source : sources) reshape |= source.failed && source.home_slot != kNone;
  if (reshape) {
    Unshape();
    return;
  }
  Fold& root_fold = slots[TreeRoot()].fold;
  EmitDrop(root_fold);
  root_fold.lost = root_fold.gone = true;
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) Recheck(i);
  for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) Mark(slot);
}

void ReducePlan::Impl::End(const absl::Status& why) {
  Unshape();
  effects.emplace_back(EndReduction{why});
  ended = true;
}

const ReducePlan::Impl::Fold* ReducePlan::Impl::RootFold() const {
  if (mode == Mode::kStar) return star.placed ? &star : nullptr;
  if (mode != Mode::kTree) return nullptr;
  const Fold& fold = slots[TreeRoot()].fold;
  return fold.placed ? &fold : nullptr;
}

ReducePlan::Impl::Fold* ReducePlan::Impl::FoldOf(const NodeKey& node, const Generation& version) {
  const auto it = placed.find(version);
  if (it == placed.end()) return nullptr;
  const int number = it->second;
  Fold* fold = &star;
  if (mode == Mode::kTree) {
    const int row = shape->slots() + 1;
    Slot& slot = slots[number % row];
    fold = number < row ? &slot.fold : &slot.seats[number / row - 1].leaf;
  }
  return fold->gone || fold->node != node ? nullptr : fold;
}

// ---- what happens

ReducePlan::ReducePlan(const ObjectId& target, ReduceSpec spec, NodeKey root)
    : impl_(std::make_unique<Impl>(target, std::move(spec), root)) {}
ReducePlan::~ReducePlan() = default;

void ReducePlan::SetCosts(const ReduceCosts& costs) {
  const ReduceCosts common = CommonCosts();
  impl_->costs = costs;
  if (costs.latency <= absl::ZeroDuration()) impl_->costs.latency = common.latency;
  if (!(costs.bytes_per_second > 0)) impl_->costs.bytes_per_second = common.bytes_per_second;
  if (!(costs.fold_per_second > 0)) impl_->costs.fold_per_second = common.fold_per_second;
}

void ReducePlan::Hold() { impl_->held = true; }

void ReducePlan::Release() {
  impl_->held = false;
  impl_->Advance();
}

uint64_t ReducePlan::TakeExamined() { return std::exchange(impl_->examined, 0); }

void ReducePlan::Begin() {
  impl_->begun = true;
  impl_->Advance();
}

void ReducePlan::OnSource(const ObjectId& source, std::optional<ReduceSource> state) {
  const int i = impl_->Find(source);
  if (i == Impl::kNone || impl_->ended || impl_->sources[i].failed) return;
  impl_->SetState(i, std::move(state));
  impl_->Advance();
}

void ReducePlan::OnSourceFailed(const ObjectId& source, const absl::Status& why) {
  const int i = impl_->Find(source);
  if (i == Impl::kNone || impl_->ended || impl_->sources[i].failed) return;
  impl_->SourceFailed(i, why);
  impl_->Advance();
}

void ReducePlan::OnNodeDown(const NodeKey& node) {
  Impl& plan = *impl_;
  if (plan.ended) return;
  const Impl::Fold* root_fold = plan.RootFold();
  const bool result_lost = plan.committed && root_fold != nullptr && root_fold->node == node;
  plan.LoseFoldsAt(node);
  for (auto it = plan.restored.begin(); it != plan.restored.end();) {
    it = it->second.node == node ? plan.restored.erase(it) : std::next(it);
  }
  if (result_lost) plan.BeginAnew();
  if (plan.root_up && plan.root == node && !DefectActive(Defect::kDeadRootKept)) plan.ForgetRoot();
  for (int i = 0; i < static_cast<int>(plan.sources.size()); ++i) {
    const std::optional<ReduceSource>& state = plan.sources[i].state;
    if (!state || !Impl::Holds(*state, node)) continue;
    ReduceSource left = *state;
    left.holders.erase(
        std::remove_if(left.holders.begin(), left.holders.end(),
                       [&](const ReduceSource::Holder& holder) { return holder.node == node; }),
        left.holders.end());
    plan.SetState(i, std::move(left));
  }
  plan.Advance();
}

void ReducePlan::OnFoldLost(const NodeKey& node, const Generation& version) {
  Impl& plan = *impl_;
  Impl::Fold* fold = plan.ended ? nullptr : plan.FoldOf(node, version);
  if (fold == nullptr || fold->lost) return;
  fold->lost = true;
  int& losses = plan.mode == Impl::Mode::kStar ? plan.star_losses : fold->losses;
  if (++losses > kMaxFoldLosses) {
    plan.End(absl::UnavailableError(absl::StrCat("reduction of ", plan.target.hex(), ": node ",
                                                 node.ToString(), " has lost or refused slot ",
                                                 fold->task.slot, " too often")));
    return;
  }
  if (plan.committed && !fold->task.root) return;
  const int number = fold->task.slot;
  if (plan.committed) plan.BeginAnew();
  if (plan.mode == Impl::Mode::kTree) plan.MoveFold(number, node);
  plan.Advance();
}

void ReducePlan::OnReady(const NodeKey& node, const Generation& version) {
  Impl& plan = *impl_;
  const Impl::Fold* fold = plan.RootFold();
  if (plan.ended || fold == nullptr || fold->lost || fold->node != node) return;
  if (fold->task.version != version && !DefectActive(Defect::kOldVersionCommitted)) return;
  plan.committed = true;
  plan.effects.emplace_back(CommitFold{node, version});
}

void ReducePlan::OnResultLost() {
  if (impl_->ended || !impl_->committed || DefectActive(Defect::kLostResultForgotten)) return;
  impl_->BeginAnew();
  impl_->Advance();
}

absl::Status ReducePlan::Add(absl::Span<const ObjectId> sources) {
  Impl& plan = *impl_;
  if (!plan.spec.open || plan.closed || plan.ended) {
    return absl::FailedPreconditionError(
        absl::StrCat("reduction of ", plan.target.hex(), " takes no more sources"));
  }
  PHALANX_RETURN_IF_ERROR(CheckCount(plan.target, plan.sources.size() + sources.size()));
  absl::flat_hash_set<ObjectId> seen;
  for (const ObjectId& id : sources) {
    const bool twice = plan.Find(id) != Impl::kNone || !seen.insert(id).second;
    PHALANX_RETURN_IF_ERROR(CheckNewSource(plan.target, id, twice));
  }
  for (const ObjectId& id : sources) {
    plan.index.emplace(id, static_cast<int>(plan.sources.size()));
    plan.sources.emplace_back().id = id;
    plan.spec.sources.push_back(id);
  }
  return absl::OkStatus();
}

absl::Status ReducePlan::Close() {
  Impl& plan = *impl_;
  if (!plan.spec.open || plan.closed || plan.ended) {
    return absl::FailedPreconditionError(
        absl::StrCat("reduction of ", plan.target.hex(), " is not open"));
  }
  if (plan.sources.empty() || plan.spec.num_objects > plan.sources.size()) {
    return absl::InvalidArgumentError(absl::StrCat("reduction of ", plan.target.hex(), ": ",
                                                   plan.Wanted(), " objects out of ",
                                                   plan.sources.size(), " sources"));
  }
  plan.closed = true;
  plan.Advance();
  return absl::OkStatus();
}

void ReducePlan::Cancel() {
  if (impl_->ended) return;
  impl_->Unshape();
  impl_->ended = true;
}

std::vector<ReduceEffect> ReducePlan::TakeEffects() { return std::exchange(impl_->effects, {}); }

// ---- looking

const ReduceSpec& ReducePlan::spec() const { return impl_->spec; }
const NodeKey& ReducePlan::root() const { return impl_->root; }

const FoldTask* ReducePlan::Find(const NodeKey& node, const Generation& version) const {
  const Impl::Fold* fold = impl_->FoldOf(node, version);
  return fold == nullptr ? nullptr : &fold->task;
}

Generation ReducePlan::RootVersion() const {
  const Impl::Fold* fold = impl_->RootFold();
  return fold == nullptr ? Generation() : fold->task.version;
}

NodeKey ReducePlan::RootNode() const {
  const Impl::Fold* fold = impl_->RootFold();
  return fold == nullptr ? NodeKey() : fold->node;
}

bool ReducePlan::committed() const { return impl_->committed; }

bool ReducePlan::closed() const { return impl_->closed; }

bool ReducePlan::Has(const ObjectId& source) const { return impl_->Find(source) != Impl::kNone; }

bool ReducePlan::Watches(const ObjectId& source) const {
  const int i = impl_->Find(source);
  return i != Impl::kNone && !impl_->ended && !impl_->sources[i].failed;
}

bool ReducePlan::Placed(const ObjectId& source) const {
  const int i = impl_->Find(source);
  return i != Impl::kNone && impl_->sources[i].slot != Impl::kNone;
}

ReducePlan::View ReducePlan::Look() const {
  const Impl& plan = *impl_;
  View view;
  view.size_bytes = plan.size_bytes;
  view.ready = plan.ready;
  view.spares = plan.waiting.size();
  view.epoch = plan.epoch;
  if (plan.shape) view.degree = plan.shape->degree();
  if (plan.mode == Impl::Mode::kStar && plan.star.placed) {
    view.slots.push_back(
        {0, Impl::kNone, plan.star.node, plan.star.task.version, plan.star.task.reduced_from});
  }
  const auto version_of = [](const Impl::Fold& fold) {
    return fold.placed ? fold.task.version : Generation();
  };
  for (int number = 0; number < static_cast<int>(plan.slots.size()); ++number) {
    const Impl::Slot& slot = plan.slots[number];
    if (slot.closed) continue;
    view.slots.push_back({number, slot.parent, slot.node, version_of(slot.fold), {}});
    for (const Impl::Seat& seat : slot.seats) {
      if (seat.source == Impl::kNone || seat.node != slot.node) continue;
      view.slots.back().own.push_back(plan.sources[seat.source].id);
    }
  }
  for (int number = 0; number < static_cast<int>(plan.slots.size()); ++number) {
    for (size_t i = 0; i < plan.slots[number].seats.size(); ++i) {
      const Impl::Seat& seat = plan.slots[number].seats[i];
      if (!seat.leaf.placed) continue;
      view.slots.push_back({plan.LeafNumber(number, static_cast<int>(i)),
                            number,
                            seat.node,
                            seat.leaf.task.version,
                            {plan.sources[seat.source].id}});
    }
  }
  return view;
}

// ---- invariants

absl::Status ReducePlan::Impl::CheckSeats() const {
  int taken = 0;
  int empty = 0;
  for (int number = 0; number < static_cast<int>(slots.size()); ++number) {
    for (int j = 0; j < static_cast<int>(slots[number].seats.size()); ++j) {
      const Seat& seat = slots[number].seats[j];
      if (seat.source == kNone) {
        ++empty;
        if (free.count({number, j}) == 0) return absl::InternalError("an empty seat is not free");
        continue;
      }
      ++taken;
      const Source& source = sources[seat.source];
      if (source.slot != number || source.seat != j) {
        return absl::InternalError(absl::StrCat("source ", source.id.hex(), " has two seats"));
      }
      if (waiting.count({source.arrival, seat.source}) > 0) {
        return absl::InternalError(
            absl::StrCat("source ", source.id.hex(), " has a seat and waits"));
      }
      if (committed) continue;
      if (!source.state || source.state->generation != seat.generation ||
          !Holds(*source.state, seat.node)) {
        return absl::InternalError(
            absl::StrCat("source ", source.id.hex(), " is seated where it is not"));
      }
    }
  }
  if (taken != seated || empty != static_cast<int>(free.size())) {
    return absl::InternalError("seats are miscounted");
  }
  if (mode == Mode::kTree && taken + empty != Wanted()) {
    return absl::InternalError("there are not as many seats as sources are wanted");
  }
  return absl::OkStatus();
}

absl::Status ReducePlan::Impl::CheckSlot(int number) const {
  const Slot& slot = slots[number];
  const std::string what = absl::StrCat("slot ", number);
  if (slot.closed) {
    return slot.seats.empty() && !slot.fold.placed
               ? absl::OkStatus()
               : absl::InternalError(absl::StrCat(what, " is closed and used"));
  }
  for (const int child : ChildrenOf(number)) {
    if (slots[child].parent != number) {
      return absl::InternalError(absl::StrCat(what, " is not above ", child));
    }
  }
  int missing = 0;
  for (const Seat& seat : slot.seats) missing += seat.source == kNone ? 1 : 0;
  for (const int child : ChildrenOf(number)) missing += slots[child].fold.placed ? 0 : 1;
  if (missing != slot.missing) return absl::InternalError(absl::StrCat(what, " miscounts"));
  if (slot.fold.placed != (missing == 0)) {
    return absl::InternalError(absl::StrCat(what, missing == 0 ? " is not placed" : " is placed"));
  }
  for (const Seat& seat : slot.seats) {
    const bool elsewhere = seat.source != kNone && seat.node != slot.node;
    if (seat.leaf.placed != elsewhere || (elsewhere && seat.leaf.node != seat.node)) {
      return absl::InternalError(
          absl::StrCat(what, " has a leaf that it should not have, or none"));
    }
  }
  const bool root_node = Pinned(number) || number == shape->slots();
  if (root_node && slot.node != root) return absl::InternalError(absl::StrCat(what, " left root"));
  if (missing > 0) return absl::OkStatus();
  const FoldTask task = TaskOf(number);
  if (slot.fold.node != slot.node || !(slot.fold.task == task) || slot.fold.lost) {
    return absl::InternalError(absl::StrCat(what, " is placed as it should not be"));
  }
  return absl::OkStatus();
}

absl::Status ReducePlan::Impl::CheckPlaced() const {
  size_t folds = star.placed ? 1 : 0;
  for (const Slot& slot : slots) {
    folds += slot.fold.placed ? 1 : 0;
    for (const Seat& seat : slot.seats) folds += seat.leaf.placed ? 1 : 0;
  }
  if (folds != placed.size()) return absl::InternalError("two folds have one version");
  if (!marked.empty() && !committed) return absl::InternalError("something is left to be placed");
  if (committed && !ended && RootFold() == nullptr)
    return absl::InternalError("nothing is committed");
  return absl::OkStatus();
}

absl::Status ReducePlan::CheckInvariants() const {
  const Impl& plan = *impl_;
  PHALANX_RETURN_IF_ERROR(plan.CheckSeats());
  PHALANX_RETURN_IF_ERROR(plan.CheckPlaced());
  if (plan.mode != Impl::Mode::kTree || plan.committed) return absl::OkStatus();
  for (int number = 0; number < static_cast<int>(plan.slots.size()); ++number) {
    PHALANX_RETURN_IF_ERROR(plan.CheckSlot(number));
  }
  return absl::OkStatus();
}

}  // namespace phalanx::directory
