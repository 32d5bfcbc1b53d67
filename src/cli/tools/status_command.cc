#include "src/cli/tools/status_command.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/tools/directory_connection.h"
#include "src/cli/tools/screen.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/progress_bar.h"
#include "src/cli/views/status_view.h"
#include "src/common/status_macros.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime {
namespace {

class StatusCommand : public Command {
 public:
  absl::string_view name() const override { return "status"; }
  absl::string_view summary() const override { return "Show shards and nodes"; }
  absl::string_view details() const override {
    return "Fails if a shard does not answer. --until-nodes waits for a cluster to start.";
  }

  void AddFlags(Flags& flags) override {
    flags.Argument("-f,--follow", "Repeat until interrupted", Switch(&follow_));
    flags.Argument("--until-nodes", "Wait until this many nodes are connected to every shard",
                   Integer(&until_nodes_, 0, 1 << 30));
    flags.Argument("--interval", "Time between two updates", TimeSpan(&interval_));
    flags.Argument("--timeout", "Stop following or waiting after this time", TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object (with --follow one per update)", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    if (follow_ || until_nodes_ > 0) return Follow();
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    const ClusterStatus cluster = MergeStatus(directory.shards, directory.tools->GetStatus());
    std::cout << Render(cluster) << std::flush;
    return cluster.status();
  }

 private:
  std::string Render(const ClusterStatus& cluster) const {
    return json_ ? absl::StrCat(StatusAsJson(cluster).dump(), "\n")
                 : StatusAsText(cluster, HasColours(STDOUT_FILENO));
  }

  // With --until-nodes alone, only the last status is shown.
  absl::Status Follow() const {
    // Redraws in place on a terminal; with --until-nodes it is used once.
    Screen screen;
    const Instant start = MonotonicNow();
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, Connect(screen, start));
    while (true) {
      const ClusterStatus cluster = MergeStatus(directory.shards, directory.tools->GetStatus());
      const bool there = until_nodes_ > 0 && cluster.connected_nodes() >= until_nodes_;
      const bool late = MonotonicNow() - start >= timeout_;
      // A script that waits for a cluster needs one output, not one for each look.
      if (follow_ || there || late) screen.Show(Render(cluster));
      if (there) return absl::OkStatus();
      if (!MayPass(cluster.status())) return cluster.status();
      if (late) {
        return absl::DeadlineExceededError(absl::StrCat(cluster.connected_nodes(), " of ",
                                                        until_nodes_, " nodes are connected; ",
                                                        cluster.status().message()));
      }
      if (!screen.Wait(interval_)) return cluster.status();
    }
  }

  // With --until-nodes the node that knows the directory can be starting, too. A wrong address is
  // an error all the same, if later.
  absl::StatusOr<DirectoryConnection> Connect(Screen& screen, Instant start) const {
    const absl::Duration patience = std::min(timeout_, directory_.node.connect_timeout);
    while (true) {
      absl::StatusOr<DirectoryConnection> made = ConnectToDirectory(directory_);
      const bool starting = until_nodes_ > 0 && absl::IsUnavailable(made.status());
      if (!starting || MonotonicNow() - start >= patience || !screen.Wait(interval_)) return made;
    }
  }

  // An unreachable shard can come up later; a shard that refuses this client will keep doing so.
  static bool MayPass(const absl::Status& status) {
    return status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }

  bool follow_ = false;
  int until_nodes_ = 0;
  absl::Duration interval_ = absl::Milliseconds(200);
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewStatusCommand() { return std::make_unique<StatusCommand>(); }

}  // namespace phalanx::runtime
