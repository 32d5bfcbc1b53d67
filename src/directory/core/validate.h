// Converts the messages of the wire to our values and checks every limit of the protocol. Only this
// file checks the form of the directory's messages; the core decides whether a message makes sense
// for an object.
//
// Pure functions, any thread. Errors are InvalidArgument and name the field and the fault; a
// rejected message has changed no state.
#ifndef PHALANX_DIRECTORY_CORE_VALIDATE_H_
#define PHALANX_DIRECTORY_CORE_VALIDATE_H_

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
#include "phalanx/scope.h"
#include "phalanx/v1/types.pb.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/ids/version.h"

namespace phalanx::directory {

// The properties that are fixed when a generation is created, checked: size, slices and metadata
// are within the limits.
struct ObjectInfo {
  uint64_t size_bytes = 0;
  uint32_t slices = 1;
  std::string metadata;
  // For the result of a reduction: the ids of its sources, concatenated in the order of the fold.
  std::string reduced_from = {};
  // The ids of the objects that the bytes refer to, concatenated.
  std::string refers_to = {};
  // The shard frees the object if no node holds it. Not part of equality, because Keep can end it.
  bool owned = false;
  // The request that the result belongs to, as reduce_result.h encodes it; can be empty.
  std::string asked_for = {};
  // The object's name, if the creator knew it. Not part of equality, because a name belongs to the
  // id: an object keeps it from the first message that has one.
  ObjectName name = {};
  // What was left when the message was sent. Not part of equality, because it shrinks.
  absl::Duration ttl = absl::InfiniteDuration();
  // Not part of equality: two attempts of a task can belong to different rounds of it.
  Scope scope = {};

  friend bool operator==(const ObjectInfo& a, const ObjectInfo& b) {
    return a.size_bytes == b.size_bytes && a.slices == b.slices && a.metadata == b.metadata &&
           a.reduced_from == b.reduced_from && a.refers_to == b.refers_to &&
           a.asked_for == b.asked_for;
  }
};

inline constexpr size_t kMaxAskedForBytes = 64;
// Limits of a broadcast: the number of named nodes, and the length of each name.
inline constexpr size_t kMaxNamedNodes = 256;
// Peers in a Probe or ProbeReport, and those that a node tries at a time.
inline constexpr size_t kMaxProbedPeers = 64;
inline constexpr size_t kMaxNamedNodeBytes = 256;
// The stamp of the mark that the creator of an object sends with it: every stamp that a shard mints
// is greater.
inline constexpr uint64_t kCreatorStamp = 1;

// Rejects a name that is empty or cannot be kept (CanBeKept).
absl::StatusOr<Scope> ParseScope(const v1::Scope& scope);
// Rejects bytes that are not exactly 20, or all zero.
absl::StatusOr<ObjectId> ParseObjectId(absl::string_view bytes);
// Concatenated ids, none of them nil, at most kMaxReferences. The error names `field`.
absl::StatusOr<std::vector<ObjectId>> ParseObjectIds(absl::string_view field,
                                                     absl::string_view bytes);
// At least one name; kMaxNamedNodes and kMaxNamedNodeBytes limit their number and length.
absl::StatusOr<absl::btree_set<std::string>> ParseNodeNames(
    const google::protobuf::RepeatedPtrField<std::string>& names);
// Rejects node 0.
absl::StatusOr<NodeKey> ParseNodeKey(const v1::NodeKey& key);
// Rejects a generation without a creator or with sequence 0.
absl::StatusOr<Generation> ParseGeneration(const v1::Generation& generation);
// As ParseGeneration; a version can have any other numbers.
absl::StatusOr<SlotVersion> ParseVersion(const v1::Generation& version);
absl::StatusOr<ObjectInfo> ParseObjectInfo(const v1::ObjectInfo& info);
// Infinite for 0. Rejects more than kMaxTtl.
absl::StatusOr<absl::Duration> ParseTtl(uint64_t ttl_ns);
// Rejects a name that cannot be kept (ObjectName::Of).
absl::StatusOr<ObjectName> ParseObjectName(const v1::ObjectName& name);
// The same for a field that can be absent: no name then. The message is one with a field `name`.
template <typename Message>
absl::StatusOr<ObjectName> ParseNameOf(const Message& message) {
  if (!message.has_name()) return ObjectName();
  return ParseObjectName(message.name());
}

// Rejects inline bytes if the object is incomplete, if they are longer than kMaxInlineBytes, or if
// their length is not the object's.
absl::Status ValidateInline(uint64_t size_bytes, bool complete, bool has_inline,
                            absl::string_view inline_bytes);
// Accepts no watermarks, or one per slice and each within its slice. SliceLayout defines the
// slices.
absl::Status ValidateWatermarks(const ObjectInfo& info, absl::Span<const uint64_t> watermarks);
// The same check without the object: limits the number of watermarks and each value by the
// protocol's largest object.
absl::Status ValidateWatermarkCount(absl::Span<const uint64_t> watermarks);

// The measured value, or 0 ("not measured") if no clock and no link can have produced it: not a
// number, negative, above 10^15 bytes a second; above an hour. A bad measurement is no error, so a
// node that measures badly still reports its pulls and keeps its stream.
double UsableRate(double bytes_per_second);
absl::Duration UsableLatency(uint64_t nanoseconds);

void ToProto(const ObjectId& id, std::string* out);
void ToProto(const NodeKey& key, v1::NodeKey* out);
void ToProto(const Generation& generation, v1::Generation* out);
// All but the time to live, which SetTtl sets to what is left of it.
void ToProto(const ObjectInfo& info, v1::ObjectInfo* out);
// `left`: infinite: no limit. A time that has passed is sent as the shortest there is.
void SetTtl(absl::Duration left, v1::ObjectInfo* out);
// Returns the time to live in the message, infinite if there is none or it is malformed; for
// messages of a shard, which has checked it.
absl::Duration TtlOf(const v1::ObjectInfo& info);
// REQUIRES: there is a name.
void ToProto(const ObjectName& name, v1::ObjectName* out);
// Returns the name in the field `name`, or no name if the field is absent or malformed; for
// messages of a shard, which has checked it.
template <typename Message>
ObjectName NameOf(const Message& message) {
  if (!message.has_name()) return ObjectName();
  return ObjectName::Of(message.name().name_space(), message.name().name());
}
// Sets the field `name` of the message, unless there is no name.
template <typename Message>
void SetName(const ObjectName& name, Message* message) {
  if (!name.empty()) ToProto(name, message->mutable_name());
}
// REQUIRES: there is a scope.
void ToProto(const Scope& scope, v1::Scope* out);
// Sets the field `scope` of the message, unless there is no scope.
template <typename Message>
void SetScope(const Scope& scope, Message* message) {
  if (!scope.empty()) ToProto(scope, message->mutable_scope());
}
// Returns the scope in the field `scope`, or no scope if the field is absent or malformed; for
// messages of a shard, which has checked it.
template <typename Message>
Scope ScopeOf(const Message& message) {
  if (!message.has_scope()) return Scope();
  return ParseScope(message.scope()).value_or(Scope());
}
// Copies the fields; for messages that were checked already.
NodeKey FromProto(const v1::NodeKey& key);
Generation FromProto(const v1::Generation& generation);

// Ids that messages carry in the form of a generation. The fields are copied, whatever they are.
template <typename Tag>
void ToProto(const TaggedId<Tag>& id, v1::Generation* out) {
  ToProto(id.AsGeneration(), out);
}
SlotVersion VersionFromProto(const v1::Generation& version);
ReductionId ReductionIdFromProto(const v1::Generation& id);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_VALIDATE_H_
