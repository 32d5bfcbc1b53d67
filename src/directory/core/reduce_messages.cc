#include "src/directory/core/reduce_messages.h"

#include "absl/strings/str_cat.h"
#include "src/common/status_macros.h"
#include "src/directory/core/validate.h"

namespace phalanx::directory {

absl::StatusOr<std::vector<ObjectId>> ParseSources(
    const google::protobuf::RepeatedPtrField<std::string>& ids) {
  // Checked before memory is reserved for the ids.
  if (static_cast<size_t>(ids.size()) > kMaxReduceSources) {
    return absl::InvalidArgumentError(absl::StrCat("source_ids: ", ids.size(), " of them, at most ",
                                                   kMaxReduceSources, " are allowed"));
  }
  std::vector<ObjectId> sources;
  sources.reserve(static_cast<size_t>(ids.size()));
  for (const std::string& bytes : ids) {
    PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ParseObjectId(bytes));
    sources.push_back(id);
  }
  return sources;
}

absl::StatusOr<ElementTypes> ParseElements(
    uint32_t dtype, const google::protobuf::RepeatedPtrField<v1::ElementRun>& runs) {
  const auto parse = [](uint32_t number) -> absl::StatusOr<DType> {
    if (number < kAllDTypes.size()) return static_cast<DType>(number);
    return absl::InvalidArgumentError(absl::StrCat("dtype: ", number, " is none"));
  };
  // Without runs, all elements have one dtype.
  if (runs.empty()) return parse(dtype);
  if (dtype != kSeveralDTypes || static_cast<size_t>(runs.size()) > kMaxElementRuns) {
    return absl::InvalidArgumentError(absl::StrCat("runs: ", runs.size(), " of them and dtype ",
                                                   dtype, "; at most ", kMaxElementRuns, " and ",
                                                   kSeveralDTypes, " are allowed"));
  }
  ElementTypes elements;
  for (const v1::ElementRun& run : runs) {
    PHALANX_ASSIGN_OR_RETURN(const DType of, parse(run.dtype()));
    elements.runs.push_back({run.end(), of});
  }
  return elements;
}

uint32_t ToProto(const ElementTypes& elements,
                 google::protobuf::RepeatedPtrField<v1::ElementRun>* runs) {
  for (const ElementRun& run : elements.runs) {
    v1::ElementRun& to = *runs->Add();
    to.set_end(run.end);
    to.set_dtype(static_cast<uint32_t>(run.dtype));
  }
  return elements.runs.empty() ? static_cast<uint32_t>(elements.dtype) : kSeveralDTypes;
}

absl::StatusOr<ReduceSpec> ParseReduction(const v1::Reduction& reduction) {
  ReduceSpec spec;
  PHALANX_ASSIGN_OR_RETURN(spec.sources, ParseSources(reduction.source_ids()));
  if (reduction.op() >= kAllReduceOps.size()) {
    return absl::InvalidArgumentError(absl::StrCat("op: ", reduction.op(), " is none"));
  }
  // An open reduction can be described in several messages, each with a part of the list.
  const uint64_t first = reduction.first_source();
  // The sum is one of 64 bits: it cannot wrap.
  if (first + spec.sources.size() > kMaxReduceSources) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first_source: ", first, " and ", spec.sources.size(), " sources are beyond any list"));
  }
  if (first > 0 && !reduction.open()) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_source: ", first, " of a reduction that is not open"));
  }
  if (reduction.order() >= kAllReduceOrders.size()) {
    return absl::InvalidArgumentError(absl::StrCat("order: ", reduction.order(), " is none"));
  }
  // Not a part of the spec: requests with and without it are the same.
  PHALANX_RETURN_IF_ERROR(ParseNameOf(reduction).status());
  PHALANX_ASSIGN_OR_RETURN(spec.elements, ParseElements(reduction.dtype(), reduction.runs()));
  spec.op = static_cast<ReduceOp>(reduction.op());
  spec.order = static_cast<ReduceSpec::Order>(reduction.order());
  spec.num_objects = reduction.num_objects();
  spec.open = reduction.open();
  spec.range_offset = reduction.range_offset();
  spec.range_bytes = reduction.range_bytes();
  if (reduction.source_metadata().size() > kMaxMetadataBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("source_metadata: ", reduction.source_metadata().size(), " bytes, at most ",
                     kMaxMetadataBytes));
  }
  spec.source_metadata = reduction.source_metadata();
  return spec;
}

void ToProto(const ReduceSpec& spec, const NodeKey& root, v1::Reduction* out, size_t first_source) {
  out->set_dtype(ToProto(spec.elements, out->mutable_runs()));
  out->set_op(static_cast<uint32_t>(spec.op));
  out->set_order(static_cast<uint32_t>(spec.order));
  out->set_num_objects(spec.num_objects);
  out->set_open(spec.open);
  // The receiver appends the ids to those that it has, so the message names where they begin.
  out->set_first_source(static_cast<uint32_t>(first_source));
  for (size_t i = first_source; i < spec.sources.size(); ++i) {
    ToProto(spec.sources[i], out->add_source_ids());
  }
  out->set_range_offset(spec.range_offset);
  out->set_range_bytes(spec.range_bytes);
  out->set_source_metadata(spec.source_metadata);
  if (root.valid()) ToProto(root, out->mutable_root());
}

absl::Status CheckShape(uint32_t slots, uint32_t degree, uint32_t slot) {
  // A row of numbers has the slots and the delivering one; each seat adds a row of leaves.
  const uint64_t numbers = (uint64_t{kMaxReduceSources} + 1) * (uint64_t{slots} + 1);
  const bool sound = slots >= 1 && slots <= kMaxReduceSources + 1 && degree >= 1 &&
                     degree <= slots && slot < numbers;
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("no tree has slot ", slot, " of ", slots, " with degree ", degree));
}

bool SameArguments(const ReduceSpec& a, const ReduceSpec& b) {
  return a.elements == b.elements && a.op == b.op && a.order == b.order &&
         a.num_objects == b.num_objects && a.open == b.open && a.range_offset == b.range_offset &&
         a.range_bytes == b.range_bytes;
}

}  // namespace phalanx::directory
