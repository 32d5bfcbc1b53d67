#include "src/directory/core/validate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/slice_layout.h"
#include "src/common/status_macros.h"

namespace phalanx::directory {
namespace {

absl::Status TooLong(absl::string_view field, size_t has, size_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", has, " bytes, at most ", limit, " are allowed"));
}

}  // namespace

absl::StatusOr<ObjectId> ParseObjectId(absl::string_view bytes) {
  absl::StatusOr<ObjectId> id = ObjectId::FromBinary(bytes);
  if (!id.ok())
    return absl::InvalidArgumentError(absl::StrCat("object_id: ", id.status().message()));
  // Containers and wire fields use nil as "no id"; an object with that id could not be named.
  if (id->nil()) return absl::InvalidArgumentError("object_id: the nil id names no object");
  return id;
}

absl::StatusOr<std::vector<ObjectId>> ParseObjectIds(absl::string_view field,
                                                     absl::string_view bytes) {
  // The loop below takes whole ids from the front.
  if (bytes.size() % ObjectId::kSize != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", bytes.size(), " bytes, which are no whole ids"));
  }
  // Before the vector is reserved: its size comes from the peer.
  if (bytes.size() > kMaxReferences * ObjectId::kSize) {
    return TooLong(field, bytes.size(), kMaxReferences * ObjectId::kSize);
  }
  std::vector<ObjectId> ids;
  ids.reserve(bytes.size() / ObjectId::kSize);
  for (; !bytes.empty(); bytes.remove_prefix(ObjectId::kSize)) {
    ids.push_back(*ObjectId::FromBinary(bytes.substr(0, ObjectId::kSize)));
    if (!ids.back().nil()) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": the nil id names no object"));
  }
  return ids;
}

absl::StatusOr<absl::btree_set<std::string>> ParseNodeNames(
    const google::protobuf::RepeatedPtrField<std::string>& names) {
  // An empty list would be a broadcast that completes without an effect.
  if (names.empty()) return absl::InvalidArgumentError("nodes: there is none");
  if (static_cast<size_t>(names.size()) > kMaxNamedNodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("nodes: ", names.size(), " names, at most ", kMaxNamedNodes, " are allowed"));
  }
  for (const std::string& name : names) {
    if (name.empty()) return absl::InvalidArgumentError("nodes: a name is empty");
    if (name.size() > kMaxNamedNodeBytes) return TooLong("nodes", name.size(), kMaxNamedNodeBytes);
  }
  // A set: a broadcast counts a repeated name once.
  return absl::btree_set<std::string>(names.begin(), names.end());
}

absl::StatusOr<NodeKey> ParseNodeKey(const v1::NodeKey& key) {
  // Node 0 means "no node" in every field that is optional.
  if (key.node() == 0) return absl::InvalidArgumentError("node: 0 is no node");
  return FromProto(key);
}

absl::StatusOr<Generation> ParseGeneration(const v1::Generation& generation) {
  if (generation.creator().node() == 0) {
    return absl::InvalidArgumentError("generation: it has no creator");
  }
  // A generation with sequence 0 equals one that was never set.
  if (generation.sequence() == 0) {
    return absl::InvalidArgumentError("generation: 0 is no sequence number");
  }
  return FromProto(generation);
}

absl::StatusOr<SlotVersion> ParseVersion(const v1::Generation& version) {
  PHALANX_ASSIGN_OR_RETURN(const Generation form, ParseGeneration(version));
  return SlotVersion::FromGeneration(form);
}

absl::StatusOr<ObjectInfo> ParseObjectInfo(const v1::ObjectInfo& info) {
  if (info.size_bytes() > kMaxObjectBytes) {
    return absl::InvalidArgumentError(absl::StrCat("info.size_bytes: ", info.size_bytes(),
                                                   ", at most ", kMaxObjectBytes, " are allowed"));
  }
  // Nodes allocate memory by these values.
  if (info.slices() < 1 || info.slices() > kMaxSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat("info.slices: ", info.slices(), " is not between 1 and ", kMaxSlices));
  }
  if (info.metadata().size() > kMaxMetadataBytes) {
    return TooLong("info.metadata", info.metadata().size(), kMaxMetadataBytes);
  }
  if (info.reduced_from().size() % ObjectId::kSize != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "info.reduced_from has ", info.reduced_from().size(), " bytes, which are no whole ids"));
  }
  if (info.reduced_from().size() > kMaxReduceSources * ObjectId::kSize) {
    return TooLong("info.reduced_from", info.reduced_from().size(),
                   kMaxReduceSources * ObjectId::kSize);
  }
  // Only the form matters here; the core resolves the ids.
  PHALANX_RETURN_IF_ERROR(ParseObjectIds("info.refers_to", info.refers_to()).status());
  if (info.asked_for().size() > kMaxAskedForBytes) {
    return TooLong("info.asked_for", info.asked_for().size(), kMaxAskedForBytes);
  }
  PHALANX_ASSIGN_OR_RETURN(ObjectName name, ParseNameOf(info));
  PHALANX_ASSIGN_OR_RETURN(const absl::Duration ttl, ParseTtl(info.ttl_ns()));
  Scope scope;
  if (info.has_scope()) {
    PHALANX_ASSIGN_OR_RETURN(scope, ParseScope(info.scope()));
  }
  return ObjectInfo{info.size_bytes(),   info.slices(),    info.metadata(),
                    info.reduced_from(), info.refers_to(), info.owned(),
                    info.asked_for(),    std::move(name),  ttl,
                    std::move(scope)};
}

absl::StatusOr<Scope> ParseScope(const v1::Scope& scope) {
  if (!scope.name().empty() && CanBeKept(scope.name())) {
    return Scope{scope.name(), scope.number()};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "scope: ", scope.name().size(), " bytes are no UTF-8 without control characters of 1 to ",
      kMaxObjectNameBytes, " bytes"));
}

absl::StatusOr<absl::Duration> ParseTtl(uint64_t ttl_ns) {
  if (ttl_ns == 0) return absl::InfiniteDuration();
  // Compared before the cast: a larger value could become negative.
  if (ttl_ns > static_cast<uint64_t>(absl::ToInt64Nanoseconds(kMaxTtl))) {
    return absl::InvalidArgumentError(
        absl::StrCat("info.ttl_ns: ", ttl_ns, " is more than a hundred years"));
  }
  return absl::Nanoseconds(static_cast<int64_t>(ttl_ns));
}

absl::StatusOr<ObjectName> ParseObjectName(const v1::ObjectName& name) {
  ObjectName parsed = ObjectName::Of(name.name_space(), name.name());
  if (!parsed.empty()) return parsed;
  // Terminals show names.
  return absl::InvalidArgumentError(absl::StrCat(
      "name: ", name.name_space().size(), " and ", name.name().size(),
      " bytes are no UTF-8 without control characters of 1 to ", kMaxObjectNameBytes, " bytes"));
}

absl::Status ValidateInline(uint64_t size_bytes, bool complete, bool has_inline,
                            absl::string_view inline_bytes) {
  if (!has_inline) {
    // An object of 0 bytes can be inline, so presence needs a field of its own.
    if (inline_bytes.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("inline_bytes: there are some, but has_inline says none");
  }
  if (!complete) {
    return absl::InvalidArgumentError("inline_bytes: the generation is not complete");
  }
  if (inline_bytes.size() > kMaxInlineBytes) {
    return TooLong("inline_bytes", inline_bytes.size(), kMaxInlineBytes);
  }
  // A node would deliver a truncated object, or bytes that belong to no object.
  if (inline_bytes.size() != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("inline_bytes: ", inline_bytes.size(), " bytes of an object of ", size_bytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateWatermarkCount(absl::Span<const uint64_t> watermarks) {
  if (watermarks.size() > kMaxSlices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "watermarks: ", watermarks.size(), " of them, at most ", kMaxSlices, " are allowed"));
  }
  // One slice can be the whole object, so the object's limit is the only one without its layout.
  for (const uint64_t watermark : watermarks) {
    if (watermark <= kMaxObjectBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("watermarks: ", watermark, " is beyond the largest object"));
  }
  return absl::OkStatus();
}

absl::Status ValidateWatermarks(const ObjectInfo& info, absl::Span<const uint64_t> watermarks) {
  // A complete copy has no watermarks.
  if (watermarks.empty()) return absl::OkStatus();
  if (watermarks.size() != info.slices) {
    return absl::InvalidArgumentError(absl::StrCat("watermarks: ", watermarks.size(),
                                                   " for an object of ", info.slices, " slices"));
  }
  const SliceLayout layout{info.size_bytes, static_cast<int>(info.slices)};
  for (int i = 0; i < layout.slices; ++i) {
    const uint64_t limit = layout.Size(i);
    if (watermarks[i] <= limit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("watermarks: ", watermarks[i], " in slice ", i, " of ", limit, " bytes"));
  }
  return absl::OkStatus();
}

double UsableRate(double bytes_per_second) {
  constexpr double kMaxBytesPerSecond = 1e15;
  // The comparison with 0 is false for NaN too.
  const bool usable = bytes_per_second > 0 && bytes_per_second <= kMaxBytesPerSecond;
  return usable ? bytes_per_second : 0;
}

absl::Duration UsableLatency(uint64_t nanoseconds) {
  constexpr uint64_t kMaxNanoseconds = uint64_t{3600} * 1'000'000'000;
  // Checked before the cast: a larger value could become negative.
  if (nanoseconds > kMaxNanoseconds) return absl::ZeroDuration();
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds));
}

void ToProto(const ObjectId& id, std::string* out) {
  out->assign(id.binary().data(), ObjectId::kSize);
}

void ToProto(const NodeKey& key, v1::NodeKey* out) {
  out->set_node(key.node);
  out->set_incarnation(key.incarnation);
}

void ToProto(const Generation& generation, v1::Generation* out) {
  ToProto(generation.creator, out->mutable_creator());
  out->set_sequence(generation.sequence);
}

void ToProto(const Scope& scope, v1::Scope* out) {
  out->set_name(scope.name);
  out->set_number(scope.number);
}

void ToProto(const ObjectInfo& info, v1::ObjectInfo* out) {
  out->set_size_bytes(info.size_bytes);
  out->set_slices(info.slices);
  out->set_metadata(info.metadata);
  if (!info.reduced_from.empty()) out->set_reduced_from(info.reduced_from);
  if (!info.refers_to.empty()) out->set_refers_to(info.refers_to);
  if (info.owned) out->set_owned(true);
  if (!info.asked_for.empty()) out->set_asked_for(info.asked_for);
  SetName(info.name, out);
  SetScope(info.scope, out);
}

void SetTtl(absl::Duration left, v1::ObjectInfo* out) {
  if (left == absl::InfiniteDuration()) return;
  // At least 1, because 0 is no limit.
  out->set_ttl_ns(static_cast<uint64_t>(std::max<int64_t>(1, absl::ToInt64Nanoseconds(left))));
}

absl::Duration TtlOf(const v1::ObjectInfo& info) {
  return ParseTtl(info.ttl_ns()).value_or(absl::InfiniteDuration());
}

void ToProto(const ObjectName& name, v1::ObjectName* out) {
  out->set_name_space(name.name_space().data(), name.name_space().size());
  out->set_name(name.name().data(), name.name().size());
}

NodeKey FromProto(const v1::NodeKey& key) { return NodeKey{key.node(), key.incarnation()}; }

Generation FromProto(const v1::Generation& generation) {
  return Generation{FromProto(generation.creator()), generation.sequence()};
}

SlotVersion VersionFromProto(const v1::Generation& version) {
  return SlotVersion::FromGeneration(FromProto(version));
}

ReductionId ReductionIdFromProto(const v1::Generation& id) {
  return ReductionId::FromGeneration(FromProto(id));
}

}  // namespace phalanx::directory
