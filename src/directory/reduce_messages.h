// Reductions in the wire's messages: checked, and to our values and back. Pure functions, any
// thread. Errors are InvalidArgument and name the field and what is wrong with it.
#ifndef PHALANX_DIRECTORY_REDUCE_MESSAGES_H_
#define PHALANX_DIRECTORY_REDUCE_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids.h"
#include "src/common/version.h"
#include "src/directory/reduce_plan.h"
#include "src/directory/validate.h"

namespace phalanx::directory {

// At most kMaxReduceSources ids.
absl::StatusOr<std::vector<ObjectId>> ParseSources(
    const google::protobuf::RepeatedPtrField<std::string>& ids);
// The dtype of a Reduction or Fold that has runs: who does not know of these refuses it.
inline constexpr uint32_t kSeveralDTypes = 255;

// Of Reduction or Fold: numbers are ones that there are, and at most kMaxElementRuns.
absl::StatusOr<ElementTypes> ParseElements(
    uint32_t dtype, const google::protobuf::RepeatedPtrField<v1::ElementRun>& runs);
// Returns the dtype.
uint32_t ToProto(const ElementTypes& elements,
                 google::protobuf::RepeatedPtrField<v1::ElementRun>* runs);

// Numbers are ones that there are; whether they go together is ValidateReduceSpec's affair.
absl::StatusOr<ReduceSpec> ParseReduction(const v1::Reduction& reduction);
// The sources from place `first_source` on.
void ToProto(const ReduceSpec& spec, const NodeKey& root, v1::Reduction* out,
             size_t first_source = 0);

// The reduction's number in a message that may have one (Reduction, ExtendRequest, RegisterFold);
// not valid if there is none.
template <typename Message>
absl::StatusOr<Generation> ParseNumber(const Message& message) {
  if (!message.has_begun()) return Generation();
  const Generation number = FromProto(message.begun());
  if (number.creator.node != 0 && IsReductionNumber(number)) return number;
  return absl::InvalidArgumentError("begun: it is no reduction's number");
}

// A tree of that many slots and that degree, with no more slots than there may be sources (and one
// more, which passes the result on), and a slot of it or a leaf beside one, as the plan numbers
// them.
absl::Status CheckShape(uint32_t slots, uint32_t degree, uint32_t slot);

// What is asked for but for the sources, and who computes the root.
bool SameArguments(const ReduceSpec& a, const ReduceSpec& b);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCE_MESSAGES_H_
