// Whether a request for the target of a finished reduction asks for its result. Pure functions and
// values; any thread.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_RESULTS_REDUCE_RESULT_H_
#define PHALANX_DIRECTORY_REDUCTIONS_RESULTS_REDUCE_RESULT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/common/ids/digest.h"
#include "src/directory/reductions/tree_plan/reduce_plan.h"

namespace phalanx::directory {

// The arguments of a reduction, as the shard stores them with the result.
struct ReduceRecord {
  explicit ReduceRecord(const ReduceSpec& spec);
  // Returns the bytes that travel with the result in ObjectInfo::asked_for, at most
  // kMaxAskedForBytes. Equal bytes mean equal arguments.
  std::string Encode() const;
  // Returns nothing if the bytes are not a record.
  static std::optional<ReduceRecord> Decode(absl::string_view bytes);

  ReduceSpec arguments;           // without sources, metadata and runs
  Digest128 sources;              // of the list, with all sources that were added
  std::optional<Digest128> runs;  // of the runs; absent if there were none
};

// Returns the ids in a concatenation of ids, as in ObjectInfo::reduced_from.
std::vector<ObjectId> IdsIn(absl::string_view bytes);

// Returns the differences between the result of `made` and the request `asked` as a list of words
// ("op, range"), or an empty string if the result is the requested one. `reduced_from` and
// `size_bytes` are those of the result. If `made` is null, because the arguments are lost, these
// two alone decide: other sources, another number of them and an impossible size are differences
// that are found; another op is not.
std::string DifferenceOf(const ReduceSpec& asked, const ReduceRecord* made,
                         absl::string_view reduced_from, uint64_t size_bytes);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_RESULTS_REDUCE_RESULT_H_
