// Session::AllreduceBy and AllreduceModel: folds with functions of the program, in the order of
// ranks. Small values are gathered, and each rank folds all of them. Others are folded along a
// tree, and rank 0 sends the result.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/spmd.h"
#include "src/client/spmd/fold_plan.h"
#include "src/client/spmd/fold_tree.h"
#include "src/client/spmd/session_state.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd {
namespace {

using internal::FoldPlan;
using internal::FoldTree;
using internal::kNeedsAll;
using internal::kNeedsRoot;
using internal::SessionState;

// What a rank has.
struct Input {
  uint64_t bytes = 0;
  uint64_t element = 0;  // 0: a model
};

enum class Sizes { kAlike, kAny };

std::string Describe(const Input& input) {
  if (input.element == 0) return absl::StrCat("a model of ", input.bytes, " bytes");
  return absl::StrCat(input.bytes, " bytes of elements of ", input.element);
}

// All ranks have the same error.
absl::Status Check(absl::Span<const Input> inputs, Sizes sizes) {
  const Input& first = inputs.front();
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const Input& other = inputs[rank];
    const bool fits = sizes == Sizes::kAny || other.bytes == first.bytes;
    if (fits && other.element == first.element) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank 0 gives ", Describe(first), ", and rank ", rank, " ", Describe(other)));
  }
  return absl::OkStatus();
}

// Of a call whose sizes are kept, while its result is not.
absl::Status CheckOwn(const Input& own, const Input& kept) {
  if (own.bytes == kept.bytes && own.element == kept.element) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a repeated call of another size: ", Describe(own),
                                                 ", and in the life before ", Describe(kept)));
}

// What rank 0 sends before the result, or instead of it.
struct Outcome {
  uint64_t bytes = 0;
  uint32_t code = 0;  // of the error; 0: there is none
  char why[500] = {};
};

Outcome OutcomeOf(const absl::Status& status, uint64_t bytes) {
  Outcome outcome;
  if (status.ok()) {
    outcome.bytes = bytes;
    return outcome;
  }
  outcome.code = static_cast<uint32_t>(status.code());
  const absl::string_view why = status.message().substr(0, sizeof(outcome.why) - 1);
  std::copy(why.begin(), why.end(), outcome.why);
  return outcome;
}

absl::Status StatusOf(Outcome& outcome) {
  outcome.why[sizeof(outcome.why) - 1] = 0;
  return absl::Status(static_cast<absl::StatusCode>(outcome.code), absl::string_view(outcome.why));
}

// What AllreduceBy and AllreduceModel have in common. The input is made once, and only if a call of
// the group needs it: not if all results are kept.
class FoldCall {
 public:
  FoldCall(SessionState& state, const Prepare& prepare, absl::string_view name)
      : state_(state), prepare_(prepare), name_(name) {}
  virtual ~FoldCall() = default;

 protected:
  // This rank's value, once it is prepared.
  virtual void TakeInput() = 0;
  virtual Input input() const = 0;
  // Memory for the result; at rank 0 that of the fold of all values.
  virtual char* PlaceResult(uint64_t bytes) = 0;

  void MakeInput();
  absl::StatusOr<std::vector<Input>> GatherInputs();
  // Of a call whose kept result has another size than this one's.
  absl::Status ExplainSize(const absl::Status& why, absl::string_view how) const;
  absl::Status FoldAlong(const FoldPlan& plan, const FoldTree::Value& value);
  absl::Status Receive(const Outcome& outcome);

  SessionState& state_;
  const Prepare& prepare_;
  const absl::string_view name_;

 private:
  bool made_ = false;
};

void FoldCall::MakeInput() {
  if (std::exchange(made_, true)) return;
  if (prepare_ != nullptr) {
    prepare_();
    state_.CountPrepared();
  }
  TakeInput();
}

// A small vector is gathered by a call of another kind, so ranks that differ in that see it. So
// does a life whose vector is larger or smaller than before, since the results have different
// sizes.
absl::StatusOr<std::vector<Input>> FoldCall::GatherInputs() {
  if (!state_.core().repeats()) MakeInput();
  std::vector<Input> inputs(static_cast<size_t>(state_.member().world()));
  inputs[static_cast<size_t>(state_.member().rank())] = input();
  const uint64_t bytes = inputs.size() * sizeof(Input);
  const bool repeats = state_.core().repeats();
  const absl::Status called =
      state_.Call({kNeedsAll, name_}, inputs.data(), bytes, [&](const Group& group) {
        return group.AllReduce(DType::kU64, inputs.data(), bytes, ReduceOp::kBitOr);
      });
  PHALANX_RETURN_IF_ERROR(repeats ? ExplainSize(called, "folded along a tree") : called);
  return inputs;
}

absl::Status FoldCall::ExplainSize(const absl::Status& why, absl::string_view how) const {
  if (!absl::IsInvalidArgument(why)) return why;
  const std::string own = input().element == 0 ? "a model" : Describe(input());
  return absl::InvalidArgumentError(
      absl::StrCat("a repeated call of another size: ", own, ", ", how, ": ", why.message()));
}

absl::Status FoldCall::FoldAlong(const FoldPlan& plan, const FoldTree::Value& value) {
  const uint64_t call = state_.core().next_call();
  bool climbed = false;
  const auto climb = [&] {
    climbed = true;
    MakeInput();
    return state_.FoldAlong(plan, call, value);
  };
  const bool root = state_.member().rank() == 0;
  Outcome outcome;
  absl::Status mine;
  if (!state_.core().repeats()) {
    mine = climb();
    outcome = OutcomeOf(mine, input().bytes);
  }
  const absl::Status sent = state_.Call(
      {kNeedsRoot, name_}, &outcome, sizeof(outcome),
      [&](const Group& group) { return group.Broadcast(0, &outcome, sizeof(outcome)); });
  // Rank 0 has this rank's error, unless an earlier life has put its fold.
  if (absl::IsDeadlineExceeded(sent) && !mine.ok()) return state_.End(mine);
  if (!sent.ok()) return sent;
  if (outcome.code != 0) {
    if (root) state_.EndFailedFold(call);
    const absl::Status why = StatusOf(outcome);
    // A rank whose node is full cannot put its error, so the others have waited for it.
    const bool knows_more =
        absl::IsDeadlineExceeded(why) && !mine.ok() && !absl::IsDeadlineExceeded(mine);
    return state_.End(knows_more ? mine : why);
  }
  PHALANX_RETURN_IF_ERROR(state_.CheckBytes(outcome.bytes));
  // A life of rank 0 before this one has sent the outcome, and not the result: it folds again. What
  // this rank has put can be lost with its node, so it does, too; only rank 0 needs it to work.
  const bool sends = outcome.bytes > 0 && !state_.core().repeats();
  if (sends && !climbed) {
    const absl::Status again = climb();
    if (root) PHALANX_RETURN_IF_ERROR(state_.End(again));
  }
  if (sends && root && input().bytes != outcome.bytes) {
    return state_.End(absl::InvalidArgumentError(absl::StrCat(
        "a result of ", input().bytes, " bytes, and of ", outcome.bytes, " in the life before")));
  }
  PHALANX_RETURN_IF_ERROR(Receive(outcome));
  state_.CountCall();
  return absl::OkStatus();
}

absl::Status FoldCall::Receive(const Outcome& outcome) {
  char* const result = PlaceResult(outcome.bytes);
  if (outcome.bytes == 0) return absl::OkStatus();
  return state_.Call({kNeedsRoot, name_}, result, outcome.bytes,
                     [&](const Group& group) { return group.Broadcast(0, result, outcome.bytes); });
}

// ---------------------------------------------------------------------------- vectors

class VectorFold final : public FoldCall {
 public:
  VectorFold(SessionState& state, const Prepare& prepare, absl::string_view name, void* inout,
             Input input, FoldElements fold)
      : FoldCall(state, prepare, name),
        inout_(static_cast<char*>(inout)),
        input_(input),
        fold_(fold) {}

  absl::Status Run() {
    const auto world = static_cast<uint64_t>(state_.member().world());
    return input_.bytes * world <= internal::kMaxGatheredBytes ? FoldHere() : FoldAlongTree();
  }

 private:
  void TakeInput() override {}
  Input input() const override { return input_; }
  // All ranks have agreed on the size.
  char* PlaceResult(uint64_t) override { return inout_; }

  absl::Status FoldHere();
  absl::Status FoldAlongTree();
  void Add(char* into, absl::string_view from);

  char* const inout_;
  const Input input_;
  const FoldElements fold_;
  std::vector<std::max_align_t> aligned_;
};

// Each rank's part is its bytes, and then its sizes: more than the sizes alone, which are what is
// first sent of a fold along a tree.
absl::Status VectorFold::FoldHere() {
  const uint64_t bytes = input_.bytes;
  const uint64_t part = bytes + sizeof(Input);
  const auto world = static_cast<size_t>(state_.member().world());
  const bool repeats = state_.core().repeats();
  if (!repeats) MakeInput();
  std::string mine(inout_, bytes);
  mine.append(reinterpret_cast<const char*>(&input_), sizeof(input_));
  std::string parts(part * world, '\0');
  const absl::Status called =
      state_.Call({kNeedsAll, name_}, parts.data(), parts.size(), [&](const Group& group) {
        return group.AllGather(mine.data(), part, parts.data(), parts.size());
      });
  PHALANX_RETURN_IF_ERROR(repeats ? ExplainSize(called, "gathered") : called);
  std::vector<Input> inputs(world);
  for (size_t rank = 0; rank < world; ++rank) {
    std::memcpy(&inputs[rank], &parts[rank * part + bytes], sizeof(Input));
  }
  PHALANX_RETURN_IF_ERROR(state_.End(Check(inputs, Sizes::kAlike)));
  state_.CountCall();
  std::memcpy(inout_, parts.data(), bytes);
  for (size_t rank = 1; rank < world; ++rank) {
    Add(inout_, absl::string_view(parts).substr(rank * part, bytes));
  }
  return absl::OkStatus();
}

absl::Status VectorFold::FoldAlongTree() {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Input> inputs, GatherInputs());
  PHALANX_RETURN_IF_ERROR(state_.End(Check(inputs, Sizes::kAlike)));
  const Input& kept = inputs[static_cast<size_t>(state_.member().rank())];
  PHALANX_RETURN_IF_ERROR(state_.End(CheckOwn(input_, kept)));
  const FoldPlan plan = FoldPlan::OfVectors(state_.member().world(), input_.bytes, input_.element);
  const auto add = [&](uint64_t piece, absl::string_view bytes) -> absl::Status {
    const auto [from, size] = plan.PieceAt(piece);
    if (bytes.size() != size) {
      return absl::InvalidArgumentError(
          absl::StrCat("a piece of ", bytes.size(), " bytes instead of ", size));
    }
    Add(inout_ + from, bytes);
    return absl::OkStatus();
  };
  const auto get = [&](uint64_t piece) {
    const auto [from, size] = plan.PieceAt(piece);
    return absl::string_view(inout_ + from, size);
  };
  return FoldAlong(plan, {.add = add, .get = get});
}

void VectorFold::Add(char* into, absl::string_view from) {
  const void* data = from.data();
  if (reinterpret_cast<uintptr_t>(data) % alignof(std::max_align_t) != 0) {
    aligned_.resize(from.size() / sizeof(std::max_align_t) + 1);
    std::memcpy(aligned_.data(), data, from.size());
    data = aligned_.data();
  }
  fold_(into, data, from.size() / input_.element);
}

// ---------------------------------------------------------------------------- models

class ValueFold final : public FoldCall {
 public:
  ValueFold(SessionState& state, const Prepare& prepare, absl::string_view name,
            const ModelFold& fold)
      : FoldCall(state, prepare, name), fold_(fold) {}

  absl::Status Run();

 private:
  void TakeInput() override { bytes_ = fold_.save(); }
  Input input() const override { return {bytes_.size(), 0}; }
  char* PlaceResult(uint64_t bytes) override {
    bytes_.resize(bytes);
    return bytes_.data();
  }

  absl::Status FoldHere(absl::Span<const Input> inputs, uint64_t all);
  absl::Status FoldAlongTree();

  const ModelFold& fold_;
  std::string bytes_;  // of this rank's value, and then of the result
};

absl::Status ValueFold::Run() {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Input> inputs, GatherInputs());
  PHALANX_RETURN_IF_ERROR(state_.End(Check(inputs, Sizes::kAny)));
  uint64_t all = 0;
  for (const Input& each : inputs) {
    PHALANX_RETURN_IF_ERROR(state_.CheckBytes(each.bytes));
    all += each.bytes;
  }
  return all <= internal::kMaxGatheredBytes ? FoldHere(inputs, all) : FoldAlongTree();
}

absl::Status ValueFold::FoldHere(absl::Span<const Input> inputs, uint64_t all) {
  const auto me = static_cast<size_t>(state_.member().rank());
  std::string parts(all, '\0');
  if (all > 0) {
    if (!state_.core().repeats()) MakeInput();
    // The life before can have given the size.
    if (!state_.core().repeats() && bytes_.size() != inputs[me].bytes) {
      return state_.End(
          absl::InvalidArgumentError(absl::StrCat("a value of ", bytes_.size(), " bytes, and of ",
                                                  inputs[me].bytes, " in the life before")));
    }
    PHALANX_RETURN_IF_ERROR(
        state_.Call({kNeedsAll, name_}, parts.data(), all, [&](const Group& group) {
          uint64_t before = 0;
          for (size_t rank = 0; rank < me; ++rank) before += inputs[rank].bytes;
          parts.replace(before, bytes_.size(), bytes_);
          return group.AllReduce(DType::kU8, parts.data(), all, ReduceOp::kBitOr);
        }));
  }
  absl::string_view rest = parts;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    const absl::string_view value = rest.substr(0, inputs[rank].bytes);
    rest.remove_prefix(value.size());
    PHALANX_RETURN_IF_ERROR(state_.End(rank == 0 ? fold_.load(value) : fold_.add(value)));
  }
  // If they throw, the value can be the fold of some ranks' values: the session is over.
  state_.CountCall();
  return absl::OkStatus();
}

absl::Status ValueFold::FoldAlongTree() {
  bool changed = false;
  const auto add = [&](uint64_t, absl::string_view bytes) {
    changed = true;
    return fold_.add(bytes);
  };
  const auto get = [&](uint64_t) {
    if (changed) bytes_ = fold_.save();
    return absl::string_view(bytes_);
  };
  PHALANX_RETURN_IF_ERROR(
      FoldAlong(FoldPlan::OfValues(state_.member().world()), {.add = add, .get = get}));
  // Also at rank 0: a value that was loaded has the same bits on all ranks.
  return state_.End(fold_.load(bytes_));
}

}  // namespace

absl::Status Session::AllreduceBy(void* inout, uint64_t bytes, uint64_t element, FoldElements fold,
                                  const Prepare& prepare, absl::string_view name) {
  return state_->Run("AllreduceBy", [&]() -> absl::Status {
    if (element == 0 || bytes % element != 0 || bytes > jobs::kMaxGroupBytes) {
      return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes of elements of ", element,
                                                     "; the limit is ", jobs::kMaxGroupBytes));
    }
    if (bytes > 0) {
      PHALANX_RETURN_IF_ERROR(state_->BeginCall(name));
      return VectorFold(*state_, prepare, name, inout, {bytes, element}, fold).Run();
    }
    state_->CountCall();
    return absl::OkStatus();
  });
}

absl::Status Session::AllreduceModel(const ModelFold& fold, const Prepare& prepare,
                                     absl::string_view name) {
  return state_->Run("AllreduceModel", [&]() -> absl::Status {
    PHALANX_RETURN_IF_ERROR(state_->BeginCall(name));
    return ValueFold(*state_, prepare, name, fold).Run();
  });
}

}  // namespace phalanx::spmd
