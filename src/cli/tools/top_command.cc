#include "src/cli/tools/top_command.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/tools/directory_connection.h"
#include "src/cli/tools/screen.h"
#include "src/cli/views/colour.h"
#include "src/cli/views/holdups.h"
#include "src/cli/views/top_view.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// The number of objects that are searched for transfers, and the number shown.
constexpr uint32_t kMaxListed = 10'000;
constexpr size_t kMaxShown = 10;

double MovingBytesPerSecond(const v1::DescribeObjectResponse& object) {
  double sum = 0;
  for (const v1::CopyDescription& copy : object.copies()) {
    if (copy.pulling()) sum += copy.bytes_per_second();
  }
  return sum;
}

// Returns the order after this one; the first one after the last.
std::string Next(const std::vector<std::string>& orders, const std::string& order) {
  const auto found = std::find(orders.begin(), orders.end(), order);
  return found == orders.end() || found + 1 == orders.end() ? orders.front() : *(found + 1);
}

class TopCommand : public Command {
 public:
  absl::string_view name() const override { return "top"; }
  absl::string_view summary() const override { return "Show nodes and transfers, live"; }
  absl::string_view details() const override {
    return "Keys: n sorts nodes by the next of their orders, t transfers; q quits. If the output "
           "is\n"
           "not a terminal, prints a new text after each interval.";
  }

  void AddFlags(Flags& flags) override {
    flags.Argument("--interval", "Time between two updates", TimeSpan(&interval_));
    flags.Argument("--sort-nodes", "Order of nodes; numbers: the largest first",
                   Choice(&node_order_, NodeOrders()));
    flags.Argument("--sort-transfers", "Order of transfers: the largest first",
                   Choice(&transfer_order_, TransferOrders()));
    flags.Argument("--once", "Print one update", Switch(&once_));
    flags.Argument("--json", "Print a JSON object per update", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    // Keys are read only on a terminal, so a pipe gets plain text.
    Screen screen;
    while (true) {
      TopView view;
      view.cluster = MergeStatus(directory.shards, directory.tools->GetStatus());
      view.transfers = Transfers(*directory.tools);
      view.reductions = RunningReductions(view.cluster);
      // Typed keys change only the order, which needs no new answers.
      do {
        SortNodes(node_order_, view.cluster.nodes);
        SortTransfers(transfer_order_, view.transfers);
        screen.Show(Render(view, screen));
        if (once_) return view.cluster.status();
        if (!screen.Wait(interval_)) return absl::OkStatus();
      } while (TakeKey(screen.key()));
    }
  }

 private:
  bool TakeKey(char key) {
    if (key == 'n') node_order_ = Next(NodeOrders(), node_order_);
    if (key == 't') transfer_order_ = Next(TransferOrders(), transfer_order_);
    return key == 'n' || key == 't';
  }

  // The objects that move most bytes or for which most nodes wait; empty while the directory does
  // not answer.
  std::vector<Transfer> Transfers(directory::ToolsClient& tools) const {
    std::vector<Transfer> transfers;
    const absl::StatusOr<v1::ListObjectsResponse> list = tools.List(std::nullopt, kMaxListed);
    // The status shows already that a shard does not answer.
    if (!list.ok()) return transfers;
    for (const v1::ObjectSummary& object : list->objects()) {
      if (object.partial_copies() == 0 && object.waiting() == 0) continue;
      transfers.push_back({object, 0, {}});
    }
    // Each description is a request, so their number is limited. A rate is known only after it.
    SortTransfers(transfer_order_ == "rate" ? "waiting" : transfer_order_, transfers);
    if (transfers.size() > kMaxShown) transfers.resize(kMaxShown);
    for (Transfer& transfer : transfers) {
      // The id comes from another process, so its length is checked.
      const absl::StatusOr<ObjectId> id = ObjectId::FromBinary(transfer.summary.object_id());
      const absl::StatusOr<v1::DescribeObjectResponse> description =
          id.ok() ? tools.Describe(*id) : absl::StatusOr<v1::DescribeObjectResponse>(id.status());
      // Listed without a rate if the object was deleted in the meantime.
      if (!description.ok()) continue;
      transfer.bytes_per_second = MovingBytesPerSecond(*description);
      const std::vector<Holdup> holdups = FindHoldups(*description);
      if (!holdups.empty()) transfer.held_up_by = HoldupText(holdups.front());
    }
    return transfers;
  }

  static std::vector<v1::RunningReduction> RunningReductions(const ClusterStatus& cluster) {
    std::vector<v1::RunningReduction> reductions;
    // Every object belongs to one shard, so no reduction appears twice.
    for (const ClusterShard& shard : cluster.shards) {
      // The status of a silent shard holds no reductions.
      if (!shard.status.ok()) continue;
      reductions.insert(reductions.end(), shard.answer.running_reductions().begin(),
                        shard.answer.running_reductions().end());
    }
    return reductions;
  }

  std::string Render(const TopView& view, const Screen& screen) const {
    if (json_) return absl::StrCat(TopAsJson(view).dump(), "\n");
    if (!screen.is_terminal()) return TopAsText(view);
    const Screen::Size size = screen.size();
    Pane pane{size.rows, size.columns, HasColours(STDOUT_FILENO)};
    if (!once_) {
      pane.footer = absl::StrCat("n: nodes by ", node_order_, "   t: transfers by ",
                                 transfer_order_, "   q: quit");
    }
    return TopAsText(view, pane);
  }

  absl::Duration interval_ = absl::Seconds(1);
  std::string node_order_ = NodeOrders().front();
  std::string transfer_order_ = TransferOrders().front();
  bool once_ = false;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewTopCommand() { return std::make_unique<TopCommand>(); }

}  // namespace phalanx::runtime
