#include "src/cli/tools/drain_command.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/tools/directory_connection.h"
#include "src/cli/tools/screen.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(200);

class DrainCommand : public Command {
 public:
  absl::string_view name() const override { return "drain"; }
  absl::string_view summary() const override {
    return "Copy what only one node has to other nodes, which keep it";
  }
  absl::string_view details() const override {
    return "Waits until other nodes have all of it. The node goes on, and what is put there later\n"
           "is copied, too, until the node is restarted or loses its session.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("NODE", "The node's name, as phalanx status shows it", Text(&node_));
    flags.Argument("--detach", "Do not wait", Switch(&detach_));
    flags.Argument("--timeout", "Stop waiting after this time", TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    const Instant start = MonotonicNow();
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    Screen screen;
    std::string shown;
    while (true) {
      // Again at each look: a session that the node has lost ends a drain.
      const absl::StatusOr<v1::DrainNodeResponse> drain = directory.tools->DrainNode(node_);
      if (drain.ok() && (detach_ || drain->objects_left() == 0)) {
        std::cout << Render(*drain) << std::flush;
        return absl::OkStatus();
      }
      // A shard that restarts, or a node that is away for a moment, can come back.
      if (!drain.ok() && (detach_ || !absl::IsUnavailable(drain.status()))) return drain.status();
      const std::string why(drain.ok() ? drain->message() : drain.status().message());
      if (MonotonicNow() - start >= timeout_) {
        return drain.ok() ? absl::DeadlineExceededError(
                                absl::StrCat(Left(*drain), why.empty() ? "" : "; ", why))
                          : drain.status();
      }
      if (!why.empty() && why != shown) std::cerr << "waiting: " << why << "\n";
      shown = why;
      if (!screen.Wait(kLook)) {
        return absl::CancelledError("interrupted; the drain goes on until the node is restarted");
      }
    }
  }

 private:
  std::string Render(const v1::DrainNodeResponse& drain) const {
    if (json_) {
      const nlohmann::json shown = {
          {"node", node_}, {"objects_left", drain.objects_left()}, {"message", drain.message()}};
      return absl::StrCat(shown.dump(), "\n");
    }
    return absl::StrCat(Left(drain), drain.message().empty() ? "" : "; ", drain.message(), "\n");
  }

  std::string Left(const v1::DrainNodeResponse& drain) const {
    return absl::StrCat("objects that only ", node_, " has: ", drain.objects_left());
  }

  std::string node_;
  bool detach_ = false;
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewDrainCommand() { return std::make_unique<DrainCommand>(); }

}  // namespace phalanx::runtime
