#include "src/cli/objects/broadcast_command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/views/progress_bar.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// Often enough for the progress bar; each look is one request to the directory.
constexpr absl::Duration kLookEvery = absl::Milliseconds(250);

class BroadcastCommand : public Command {
 public:
  absl::string_view name() const override { return "broadcast"; }
  absl::string_view summary() const override { return "Make nodes fetch an object"; }
  absl::string_view details() const override {
    return "Waits until every node has the object. With --sticky, nodes that join later get it "
           "too,\n"
           "until --stop or until the object is deleted.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "40 hexadecimal digits, or the first of them", Text(&object_.id),
                     /*required=*/false);
    flags.Argument("-n,--name", "The object's name, instead of its id",
                   Text(&object_.name, "NAME"));
    flags.Argument("--to", "Only these nodes", TextList(&nodes_, "NODE"));
    flags.Argument("--sticky", "Also nodes that join later", Switch(&sticky_));
    flags.Argument("--stop", "Stop a sticky broadcast", Switch(&stop_));
    flags.Argument("--timeout", "Stop waiting after this time; the broadcast continues",
                   TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object when done", Switch(&json_));
    flags.Argument("-q,--quiet", "No progress bar", Switch(&quiet_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    // A stop applies to the object's whole sticky broadcast, so it takes no list of nodes.
    if (stop_ && (sticky_ || !nodes_.empty())) {
      return absl::InvalidArgumentError("--stop goes with neither --sticky nor --to");
    }
    ObjectId id;
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client,
                             ConnectFor(object_, directory_, &id));
    if (stop_) return client->StopBroadcast(id).Wait().status();
    BroadcastOptions options;
    // The default of the options stands for all nodes.
    if (!nodes_.empty()) options.nodes = nodes_;
    options.sticky = sticky_;
    options.timeout = timeout_;
    // JSON output is for programs, so it disables the bar.
    ProgressBar bar(absl::StrCat("broadcast ", id.ShortHex()), !json_ && !quiet_);
    const Future<int> broadcast = client->Broadcast(id, options);
    // The broadcast continues at the shard while this loop only shows its progress.
    absl::StatusOr<int> nodes = broadcast.Wait(kLookEvery);
    while (!broadcast.ready()) {
      const auto progress = client->ProgressOf(id, options.nodes, kLookEvery).Wait();
      // A failed look is not the end of the broadcast; the next look can succeed.
      if (progress.ok()) bar.Update(progress->bytes, progress->total_bytes);
      nodes = broadcast.Wait(kLookEvery);
    }
    PHALANX_RETURN_IF_ERROR(nodes.status());
    if (json_) {
      std::cout << nlohmann::json{{"id", id.hex()},
                                  {"nodes", *nodes},
                                  {"sticky", sticky_},
                                  {"seconds", absl::ToDoubleSeconds(bar.elapsed())}}
                << std::endl;
    }
    return absl::OkStatus();
  }

 private:
  ObjectFlags object_;
  std::vector<std::string> nodes_;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool sticky_ = false;
  bool stop_ = false;
  bool json_ = false;
  bool quiet_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewBroadcastCommand() { return std::make_unique<BroadcastCommand>(); }

}  // namespace phalanx::runtime
