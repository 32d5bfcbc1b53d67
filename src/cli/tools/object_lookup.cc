#include "src/cli/tools/object_lookup.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/cli/views/object_names.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr size_t kIdDigits = 2 * ObjectId::kSize;
// One page fits well into a message; a large listing does not block a shard for long.
constexpr uint32_t kPage = 1000;
// Candidates that an error lists.
constexpr size_t kMaxCandidates = 8;

// Returns the id before the first one that begins with these digits, or nothing if that is the
// first id of all.
std::optional<ObjectId> Before(const std::string& digits) {
  std::string bytes =
      absl::HexStringToBytes(absl::StrCat(digits, std::string(kIdDigits - digits.size(), '0')));
  for (size_t i = bytes.size(); i-- > 0;) {
    // Borrows from the byte before.
    if (bytes[i]-- != 0) return *ObjectId::FromBinary(bytes);
  }
  return std::nullopt;
}

absl::Status Ambiguous(const std::string& digits, absl::Span<const v1::ObjectSummary> found) {
  std::string text = absl::StrCat("several objects have ids that begin with ", digits, ":");
  for (const v1::ObjectSummary& object : found.subspan(0, kMaxCandidates)) {
    absl::StrAppend(&text, "\n  ", IdWithName(object.object_id(), object.name()),
                    object.deleted() ? ", deleted" : "");
  }
  if (found.size() > kMaxCandidates) absl::StrAppend(&text, "\n  and more");
  return absl::InvalidArgumentError(text);
}

absl::StatusOr<ObjectId> FindByDigits(directory::ToolsClient& tools, const ObjectFlags& object) {
  const std::string digits = absl::AsciiStrToLower(object.id);
  std::vector<v1::ObjectSummary> live;
  std::vector<v1::ObjectSummary> deleted;
  PHALANX_RETURN_IF_ERROR(VisitObjects(
      tools, Before(digits), /*with_deleted=*/true, [&](const v1::ObjectSummary& listed) {
        if (!absl::StartsWith(absl::BytesToHexString(listed.object_id()), digits)) return false;
        (listed.deleted() ? deleted : live).push_back(listed);
        return live.size() <= kMaxCandidates && deleted.size() <= kMaxCandidates;
      }));
  // A deleted object is meant only if no other can be.
  const std::vector<v1::ObjectSummary>& found = live.empty() ? deleted : live;
  if (found.empty()) {
    // A name can consist of such digits: "cafe".
    return absl::NotFoundError(absl::StrCat("no object has an id that begins with ", digits,
                                            "; for a name use ", object.name_flag));
  }
  if (found.size() > 1) return Ambiguous(digits, found);
  return ObjectId::FromBinary(found.front().object_id());
}

bool IsWhole(const ObjectFlags& object) { return object.id.size() == kIdDigits; }

}  // namespace

absl::Status CheckObject(const ObjectFlags& object) {
  if (object.id.empty() == object.name.empty()) {
    return absl::InvalidArgumentError("give either the object's id or --name");
  }
  if (!object.name.empty()) return absl::OkStatus();
  const bool digits = std::all_of(object.id.begin(), object.id.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (!digits || object.id.size() > kIdDigits || object.id.size() < kMinIdDigits) {
    const bool few = digits && object.id.size() < kMinIdDigits;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", object.id, "\" is no id: ",
                     few ? absl::StrCat("give at least ", kMinIdDigits, " of its ") : "an id has ",
                     kIdDigits, " hexadecimal digits; for a name use ", object.name_flag));
  }
  // The nil id is reserved, so the node would refuse it with a less clear text.
  if (IsWhole(object) && ObjectId::FromHex(object.id)->nil()) {
    return absl::InvalidArgumentError("the id of zeros names no object");
  }
  return absl::OkStatus();
}

absl::StatusOr<ObjectId> NewObject(const ObjectFlags& object, const std::string& name_space) {
  PHALANX_RETURN_IF_ERROR(CheckObject(object));
  if (!object.name.empty()) return ObjectId::FromName(name_space, object.name);
  return ObjectId::FromHex(object.id);
}

absl::StatusOr<std::shared_ptr<Client>> ConnectFor(const ObjectFlags& object,
                                                   const DirectoryFlags& flags, ObjectId* id) {
  PHALANX_RETURN_IF_ERROR(CheckObject(object));
  PHALANX_ASSIGN_OR_RETURN(std::shared_ptr<Client> client, ConnectToNode(flags.node));
  PHALANX_ASSIGN_OR_RETURN(*id, FindObject(object, flags, client.get()));
  return client;
}

absl::StatusOr<ObjectId> FindObject(const ObjectFlags& object, const DirectoryFlags& flags,
                                    const Client* client) {
  PHALANX_RETURN_IF_ERROR(CheckObject(object));
  if (!object.name.empty() && client != nullptr) return client->Id(object.name);
  if (!object.name.empty() || IsWhole(object)) return NewObject(object, flags.node.name_space);
  PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(flags, client));
  return FindByDigits(*directory.tools, object);
}

absl::StatusOr<ObjectId> FindObject(const ObjectFlags& object, const std::string& name_space,
                                    directory::ToolsClient& tools) {
  PHALANX_RETURN_IF_ERROR(CheckObject(object));
  if (!object.name.empty() || IsWhole(object)) return NewObject(object, name_space);
  return FindByDigits(tools, object);
}

absl::Status VisitObjects(directory::ToolsClient& tools, std::optional<ObjectId> after,
                          bool with_deleted,
                          const std::function<bool(const v1::ObjectSummary&)>& visit) {
  while (true) {
    PHALANX_ASSIGN_OR_RETURN(const v1::ListObjectsResponse page,
                             tools.List(after, kPage, with_deleted));
    for (const v1::ObjectSummary& object : page.objects()) {
      if (!visit(object)) return absl::OkStatus();
    }
    if (!page.more()) return absl::OkStatus();
    PHALANX_ASSIGN_OR_RETURN(const ObjectId listed_to, ObjectId::FromBinary(page.listed_to()));
    // Without progress this loop would not end.
    if (after.has_value() && listed_to <= *after) {
      return absl::InternalError("the directory lists the same objects again");
    }
    after = listed_to;
  }
}

}  // namespace phalanx::runtime
