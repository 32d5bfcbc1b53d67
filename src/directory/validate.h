// From the wire's messages to our values, with every limit of the protocol checked: the one place
// where the directory's messages are judged for form. Whether they make sense for an object is the
// core's affair.
//
// Pure functions, any thread. Errors are InvalidArgument and name the field and what is wrong with
// it; nothing that is rejected has been stored.
#ifndef PHALANX_DIRECTORY_VALIDATE_H_
#define PHALANX_DIRECTORY_VALIDATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/types.pb.h"
#include "src/common/ids.h"

namespace phalanx::directory {

// What is fixed when a generation is created, checked: size, slices and metadata are within the
// limits.
struct ObjectInfo {
  uint64_t size_bytes = 0;
  uint32_t slices = 1;
  std::string metadata;
  // Of the result of a reduction: the ids of its sources in the order of the fold, one after the
  // other.
  std::string reduced_from = {};
  // Ids of the objects that the bytes refer to, likewise.
  std::string refers_to = {};
  // Freed when nobody holds it. May end (Keep), so it is no part of what the generation is.
  bool owned = false;
  // And what was asked for, as reduce_result.h has it; may be empty.
  std::string asked_for = {};

  friend bool operator==(const ObjectInfo& a, const ObjectInfo& b) {
    return a.size_bytes == b.size_bytes && a.slices == b.slices && a.metadata == b.metadata &&
           a.reduced_from == b.reduced_from && a.refers_to == b.refers_to &&
           a.asked_for == b.asked_for;
  }
};

inline constexpr size_t kMaxAskedForBytes = 64;
// Of a broadcast: the nodes that are named, and each name.
inline constexpr size_t kMaxNamedNodes = 256;
inline constexpr size_t kMaxNamedNodeBytes = 256;

// Exactly 20 bytes, not all of them zero.
absl::StatusOr<ObjectId> ParseObjectId(absl::string_view bytes);
// Ids one after the other, none of them nil, at most kMaxReferences. `field` is for the error.
absl::StatusOr<std::vector<ObjectId>> ParseObjectIds(absl::string_view field,
                                                     absl::string_view bytes);
// At least one, and as many and as long as kMaxNamedNodes and kMaxNamedNodeBytes allow.
absl::StatusOr<absl::btree_set<std::string>> ParseNodeNames(
    const google::protobuf::RepeatedPtrField<std::string>& names);
// A node that is not 0.
absl::StatusOr<NodeKey> ParseNodeKey(const v1::NodeKey& key);
// A creator, and a sequence that is not 0.
absl::StatusOr<Generation> ParseGeneration(const v1::Generation& generation);
absl::StatusOr<ObjectInfo> ParseObjectInfo(const v1::ObjectInfo& info);

// Inline bytes belong to a complete object, are at most kMaxInlineBytes and exactly as many as the
// object has.
absl::Status ValidateInline(uint64_t size_bytes, bool complete, bool has_inline,
                            absl::string_view inline_bytes);
// One watermark per slice (or none at all), each within its slice; slices are cut as
// net::SliceLayout says.
absl::Status ValidateWatermarks(const ObjectInfo& info, absl::Span<const uint64_t> watermarks);
// The same without the object at hand: their number and the protocol's largest size.
absl::Status ValidateWatermarkCount(absl::Span<const uint64_t> watermarks);

// What a node measured, or 0 ("nothing was measured") where no clock and no link could have given
// it: not a number, negative, above 10^15 bytes a second; above an hour. A node that measures badly
// still reports its pulls, and is not cut off for it.
double UsableRate(double bytes_per_second);
absl::Duration UsableLatency(uint64_t nanoseconds);

void ToProto(const ObjectId& id, std::string* out);
void ToProto(const NodeKey& key, v1::NodeKey* out);
void ToProto(const Generation& generation, v1::Generation* out);
void ToProto(const ObjectInfo& info, v1::ObjectInfo* out);
// The fields as they are; for messages that were checked already.
NodeKey FromProto(const v1::NodeKey& key);
Generation FromProto(const v1::Generation& generation);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_VALIDATE_H_
