// Finds objects by what a user types: an id, the first digits of one, a name, or a pattern of
// names. Main's thread only.
#ifndef PHALANX_CLI_TOOLS_OBJECT_LOOKUP_H_
#define PHALANX_CLI_TOOLS_OBJECT_LOOKUP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/tools.pb.h"
#include "src/cli/objects/node_connection.h"
#include "src/cli/tools/directory_connection.h"
#include "src/directory/grpc/tools_client.h"

namespace phalanx::runtime {

// The least number of digits that can stand for an id.
inline constexpr size_t kMinIdDigits = 4;

// An object by its name within the namespace, or by its id, of which the first digits are enough if
// no other object's id begins with them.
struct ObjectFlags {
  std::string id;
  std::string name;
  // The flag that takes a name, for errors about ids.
  absl::string_view name_flag = "--name";
};
// Checks what can be checked without a connection. Returns InvalidArgument unless exactly one of
// both is set and an id has kMinIdDigits to 40 hexadecimal digits.
absl::Status CheckObject(const ObjectFlags& object);

// The id of an object that need not exist: exactly one of both must be set, and the id complete.
absl::StatusOr<ObjectId> NewObject(const ObjectFlags& object, const std::string& name_space);

// Connects to the node and finds the object there. The client sends the name, if there is one, with
// its requests, and its errors show it. The directory is asked only for an id of fewer than 40
// digits. Errors: those of CheckObject, before the connection is made; ConnectToNode;
// ConnectToDirectory; NotFound, and InvalidArgument with the candidates if there are several.
absl::StatusOr<std::shared_ptr<Client>> ConnectFor(const ObjectFlags& object,
                                                   const DirectoryFlags& flags, ObjectId* id);
// The same through clients that exist. `client` can be null.
absl::StatusOr<ObjectId> FindObject(const ObjectFlags& object, const DirectoryFlags& flags,
                                    const Client* client);
absl::StatusOr<ObjectId> FindObject(const ObjectFlags& object, const std::string& name_space,
                                    directory::ToolsClient& tools);

// Calls `visit` for each object after `after`, in the order of ids, until it returns false.
absl::Status VisitObjects(directory::ToolsClient& tools, std::optional<ObjectId> after,
                          bool with_deleted,
                          const std::function<bool(const v1::ObjectSummary&)>& visit);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_TOOLS_OBJECT_LOOKUP_H_
