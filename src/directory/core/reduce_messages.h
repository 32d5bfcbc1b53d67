// Conversions between messages about reductions and checked values. Pure functions, any thread. All
// errors are InvalidArgument and name the field and the reason.
#ifndef PHALANX_DIRECTORY_CORE_REDUCE_MESSAGES_H_
#define PHALANX_DIRECTORY_CORE_REDUCE_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/version.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory {

// Accepts at most kMaxReduceSources ids.
absl::StatusOr<std::vector<ObjectId>> ParseSources(
    const google::protobuf::RepeatedPtrField<std::string>& ids);
// The dtype of a Reduction or Fold that has runs. A peer that does not know runs rejects the value.
inline constexpr uint32_t kSeveralDTypes = 255;

// Parses the elements of a Reduction or Fold. Accepts known dtypes and at most kMaxElementRuns
// runs.
absl::StatusOr<ElementTypes> ParseElements(
    uint32_t dtype, const google::protobuf::RepeatedPtrField<v1::ElementRun>& runs);
// Returns the dtype.
uint32_t ToProto(const ElementTypes& elements,
                 google::protobuf::RepeatedPtrField<v1::ElementRun>* runs);

// Checks each field by itself, also the name. ValidateReduceSpec checks whether the fields agree.
absl::StatusOr<ReduceSpec> ParseReduction(const v1::Reduction& reduction);
// Writes the sources from index `first_source` on.
void ToProto(const ReduceSpec& spec, const NodeKey& root, v1::Reduction* out,
             size_t first_source = 0);

// Returns the reduction id of a message that can have one (Reduction, ExtendRequest, RegisterFold);
// not valid if the message has none.
template <typename Message>
absl::StatusOr<ReductionId> ParseReductionId(const Message& message) {
  if (!message.has_begun()) return ReductionId();
  const Generation form = FromProto(message.begun());
  if (form.creator.node != 0 && IsReductionId(form)) return ReductionId::FromGeneration(form);
  return absl::InvalidArgumentError("begun: it is no reduction's number");
}

// Returns OK if a tree can have that many slots and that degree, and `slot` is a number of a slot
// or leaf of it (reductions/tree_plan/slot_tree.h). A tree has at most one slot for each source and
// the one that delivers the result.
absl::Status CheckShape(uint32_t slots, uint32_t degree, uint32_t slot);

// Returns true if all fields but the sources are equal.
bool SameArguments(const ReduceSpec& a, const ReduceSpec& b);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_REDUCE_MESSAGES_H_
