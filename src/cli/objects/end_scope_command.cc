#include "src/cli/objects/end_scope_command.h"

#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "src/cli/objects/node_connection.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

class EndScopeCommand : public Command {
 public:
  absl::string_view name() const override { return "end-scope"; }
  absl::string_view summary() const override { return "Free all objects of a scope"; }
  absl::string_view details() const override {
    return "Frees the objects that were put into the scope, or into one with its name and a "
           "smaller "
           "number.\n"
           "Returns when every node has dropped its copies. Later puts into the scope are refused.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("NAME", "The name of the scope", Text(&scope_));
    flags.Argument("--number", "Its number; those with smaller numbers end, too",
                   Integer(&number_, 0, std::numeric_limits<int>::max()));
    flags.Argument("--timeout", "Stop waiting after this time", TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object when done", Switch(&json_));
    AddNodeFlags(flags, &node_);
  }

  absl::Status Run() override {
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, ConnectToNode(node_));
    const Scope scope{scope_, static_cast<uint64_t>(number_)};
    PHALANX_RETURN_IF_ERROR(client->EndScope(scope, timeout_).Wait().status());
    if (json_) {
      std::cout << nlohmann::json{{"name", scope.name}, {"number", scope.number}} << std::endl;
    }
    return absl::OkStatus();
  }

 private:
  std::string scope_;
  int number_ = 0;
  absl::Duration timeout_ = absl::Seconds(30);
  bool json_ = false;
  NodeFlags node_;
};

}  // namespace

std::unique_ptr<Command> NewEndScopeCommand() { return std::make_unique<EndScopeCommand>(); }

}  // namespace phalanx::runtime
