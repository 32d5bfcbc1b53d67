#include "src/cli/objects/replicate_command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "src/cli/tools/object_lookup.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

class ReplicateCommand : public Command {
 public:
  absl::string_view name() const override { return "replicate"; }
  absl::string_view summary() const override { return "Keep copies of an object on several hosts"; }
  absl::string_view details() const override {
    return "Waits until so many hosts have a copy that is never evicted, or all hosts if there are "
           "fewer,\n"
           "and prints their number. Lost copies are made again until the object is deleted;\n"
           "--copies=1 ends that.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "40 hexadecimal digits, or the first of them", Text(&object_.id),
                     /*required=*/false);
    flags.Argument("-n,--name", "The object's name, instead of its id",
                   Text(&object_.name, "NAME"));
    flags.Argument("--copies", "How many, each on another host",
                   Integer(&copies_, 1, kMaxObjectCopies));
    flags.Argument("--timeout", "Stop waiting after this time; the copies are still made",
                   TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object when done", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    ObjectId id;
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client,
                             ConnectFor(object_, directory_, &id));
    PHALANX_ASSIGN_OR_RETURN(const int hosts, client->Replicate(id, copies_, timeout_).Wait());
    if (json_) {
      std::cout << nlohmann::json{{"id", id.hex()}, {"copies", copies_}, {"hosts", hosts}}
                << std::endl;
    } else {
      std::cout << hosts << std::endl;
    }
    return absl::OkStatus();
  }

 private:
  ObjectFlags object_;
  int copies_ = 2;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewReplicateCommand() { return std::make_unique<ReplicateCommand>(); }

}  // namespace phalanx::runtime
