#include "src/cli/tools/top_command.h"

#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/cli/tools/directory_connection.h"
#include "src/cli/tools/screen.h"
#include "src/cli/units.h"
#include "src/cli/views/holdups.h"
#include "src/cli/views/object_names.h"
#include "src/cli/views/object_view.h"
#include "src/cli/views/reduction_drawing.h"
#include "src/cli/views/status_view.h"
#include "src/cli/views/text_table.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// The number of objects that are searched for transfers, and the number shown.
constexpr uint32_t kMaxListed = 10'000;
constexpr size_t kMaxShown = 10;

struct Motion {
  v1::ObjectSummary summary;
  double bytes_per_second = 0;
  // The hold-up of most of its nodes; empty if there is none.
  std::string held_up_by;
};

double MovingBytesPerSecond(const v1::DescribeObjectResponse& object) {
  double sum = 0;
  for (const v1::CopyDescription& copy : object.copies()) {
    if (copy.pulling()) sum += copy.bytes_per_second();
  }
  return sum;
}

std::string MotionsAsTable(const std::vector<Motion>& motions) {
  const bool named = std::any_of(motions.begin(), motions.end(),
                                 [](const Motion& motion) { return motion.summary.has_name(); });
  std::vector<std::vector<std::string>> rows = {{"OBJECT", named ? "NAME" : "", "SIZE", "COMPLETE",
                                                 "PULLING", "WAITING", "RATE", "HELD UP BY"}};
  for (const Motion& motion : motions) {
    const v1::ObjectSummary& object = motion.summary;
    rows.push_back({absl::BytesToHexString(object.object_id()), NameText(object.name()),
                    object.has_info() ? HumanBytes(object.info().size_bytes()) : "-",
                    absl::StrCat(object.complete_copies()), absl::StrCat(object.partial_copies()),
                    absl::StrCat(object.waiting()), HumanRate(motion.bytes_per_second),
                    motion.held_up_by});
  }
  return AlignColumns(rows, {false, false, true, true, true, true, true, false});
}

class TopCommand : public Command {
 public:
  absl::string_view name() const override { return "top"; }
  absl::string_view summary() const override { return "Show nodes and transfers, live"; }
  absl::string_view details() const override {
    return "q quits. If the output is not a terminal, prints a new text after each interval.";
  }

  void AddFlags(Flags& flags) override {
    flags.Argument("--interval", "Time between two updates", TimeSpan(&interval_));
    flags.Argument("--once", "Print one update", Switch(&once_));
    flags.Argument("--json", "Print a JSON object per update", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    // Keys are read only on a terminal, so a pipe gets plain text.
    Screen screen;
    while (true) {
      const ClusterStatus cluster = MergeStatus(directory.shards, directory.tools->GetStatus());
      const std::vector<Motion> motions = Motions(*directory.tools);
      screen.Show(Render(cluster, motions));
      if (once_) return cluster.status();
      if (!screen.Wait(interval_)) return absl::OkStatus();
    }
  }

 private:
  // Objects with transfers in progress; empty while the directory does not answer.
  static std::vector<Motion> Motions(directory::ToolsClient& tools) {
    std::vector<Motion> motions;
    const absl::StatusOr<v1::ListObjectsResponse> list = tools.List(std::nullopt, kMaxListed);
    // The status above shows already that a shard does not answer.
    if (!list.ok()) return motions;
    for (const v1::ObjectSummary& object : list->objects()) {
      if (object.partial_copies() == 0 && object.waiting() == 0) continue;
      // Each description is a request, so their number is limited.
      if (motions.size() == kMaxShown) break;
      Motion motion{object, 0, {}};
      // The id comes from another process, so its length is checked.
      const absl::StatusOr<ObjectId> id = ObjectId::FromBinary(object.object_id());
      const absl::StatusOr<v1::DescribeObjectResponse> description =
          id.ok() ? tools.Describe(*id) : absl::StatusOr<v1::DescribeObjectResponse>(id.status());
      if (description.ok()) {
        motion.bytes_per_second = MovingBytesPerSecond(*description);
        const std::vector<Holdup> holdups = FindHoldups(*description);
        if (!holdups.empty()) motion.held_up_by = HoldupText(holdups.front());
      }
      // Listed without rates if the object was deleted in the meantime.
      motions.push_back(std::move(motion));
    }
    return motions;
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

  std::string Render(const ClusterStatus& cluster, const std::vector<Motion>& motions) const {
    if (!json_) {
      const std::vector<v1::RunningReduction> reductions = RunningReductions(cluster);
      return absl::StrCat(
          StatusAsText(cluster), "\n", motions.empty() ? "no transfers\n" : MotionsAsTable(motions),
          reductions.empty() ? "" : "\n", reductions.empty() ? "" : ReductionsAsTable(reductions));
    }
    nlohmann::json json = StatusAsJson(cluster);
    json["moving"] = nlohmann::json::array();
    for (const Motion& motion : motions) {
      nlohmann::json object = SummaryAsJson(motion.summary);
      object["bytes_per_second"] = motion.bytes_per_second;
      object["held_up_by"] = nullptr;
      if (!motion.held_up_by.empty()) object["held_up_by"] = motion.held_up_by;
      json["moving"].push_back(std::move(object));
    }
    // Present even without reductions, so that programs need no check.
    json["reducing"] = nlohmann::json::array();
    for (const v1::RunningReduction& reduction : RunningReductions(cluster)) {
      json["reducing"].push_back({{"id", absl::BytesToHexString(reduction.object_id())},
                                  {"ready", reduction.ready()},
                                  {"needed", reduction.needed()},
                                  {"size_bytes", reduction.size_bytes()},
                                  {"watermark", reduction.watermark()},
                                  {"elapsed_s", static_cast<double>(reduction.elapsed_ns()) / 1e9},
                                  {"state", Printable(reduction.state())}});
      AddNameTo(json["reducing"].back(), reduction.name());
    }
    return absl::StrCat(json.dump(), "\n");
  }

  absl::Duration interval_ = absl::Seconds(1);
  bool once_ = false;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewTopCommand() { return std::make_unique<TopCommand>(); }

}  // namespace phalanx::runtime
