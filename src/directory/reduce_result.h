// Whether what is asked for under the id of a finished reduction is its result. Pure.
#ifndef PHALANX_DIRECTORY_REDUCE_RESULT_H_
#define PHALANX_DIRECTORY_REDUCE_RESULT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids.h"
#include "src/directory/reduce_plan.h"

namespace phalanx::directory {

// What was asked for, as it is remembered with the result.
struct ReduceRecord {
  explicit ReduceRecord(const ReduceSpec& spec);
  // As it travels with the result, ObjectInfo::asked_for: at most kMaxAskedForBytes. Equal ones
  // mean the same.
  std::string Encode() const;
  // Nothing for what is no such record.
  static std::optional<ReduceRecord> Decode(absl::string_view bytes);

  ReduceSpec arguments;  // without the sources and the runs of elements
  Generation sources;    // a hash of the list as it was in the end
  Generation runs;       // a hash of them; not valid if there were none
};

// The ids that stand one after the other, as in ObjectInfo::reduced_from.
std::vector<ObjectId> IdsIn(absl::string_view bytes);

// What the result of `made` is not that `asked` wants, as a list of words ("op, range"); empty: it
// is what is asked for. `reduced_from` and `size_bytes` are the result's. Without `made` (nobody
// knows what was asked for) these alone decide: other sources, or another number of them, are told,
// and a size that cannot be; another op is not.
std::string DifferenceOf(const ReduceSpec& asked, const ReduceRecord* made,
                         absl::string_view reduced_from, uint64_t size_bytes);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCE_RESULT_H_
