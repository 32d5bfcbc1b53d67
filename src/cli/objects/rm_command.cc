#include "src/cli/objects/rm_command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "src/cli/objects/node_connection.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

class RmCommand : public Command {
 public:
  absl::string_view name() const override { return "rm"; }
  absl::string_view summary() const override { return "Delete objects everywhere"; }
  absl::string_view details() const override {
    return "Processes that have an object open can still read it. Tries all objects and returns "
           "the\n"
           "first error.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "Objects, 40 hexadecimal digits each", Texts(&ids_, "ID"),
                     /*required=*/false);
    flags.Argument("-n,--name", "Objects by their names", Texts(&names_, "NAME"));
    flags.Argument("--timeout", "Stop waiting after this time", TimeSpan(&timeout_));
    flags.Argument("-f,--force", "Ignore objects that do not exist", Switch(&force_));
    flags.Argument("--json", "Print a JSON object per object", Switch(&json_));
    AddNodeFlags(flags, &node_);
  }

  absl::Status Run() override {
    // All ids are checked before the first Delete, so that a typing error deletes nothing.
    std::vector<ObjectId> objects;
    for (const std::string& id : ids_) {
      PHALANX_ASSIGN_OR_RETURN(objects.emplace_back(), ResolveObject({id, ""}, node_.name_space));
    }
    for (const std::string& name : names_) {
      PHALANX_ASSIGN_OR_RETURN(objects.emplace_back(), ResolveObject({"", name}, node_.name_space));
    }
    if (objects.empty()) return absl::InvalidArgumentError("give at least one id or --name");
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(node_));
    // The exit code is that of the first error; the JSON lines have the others.
    absl::Status first_error;
    // Continues after an error: the other objects can still be deleted.
    for (const ObjectId& id : objects) {
      absl::Status status = client->Delete(id, timeout_).Wait().status();
      if (json_) {
        std::cout << nlohmann::json{{"id", id.hex()},
                                    {"deleted", status.ok()},
                                    {"code", absl::StatusCodeToString(status.code())}}
                  << std::endl;
      }
      // After the JSON line, which always reports the real code.
      if (force_ && absl::IsNotFound(status)) status = absl::OkStatus();
      first_error.Update(status);
    }
    return first_error;
  }

 private:
  std::vector<std::string> ids_;
  std::vector<std::string> names_;
  absl::Duration timeout_ = absl::Seconds(30);
  bool force_ = false;
  bool json_ = false;
  NodeFlags node_;
};

}  // namespace

std::unique_ptr<Command> NewRmCommand() { return std::make_unique<RmCommand>(); }

}  // namespace phalanx::runtime
