#include "src/cli/tools/ls_command.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "src/cli/tools/name_pattern.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/views/object_view.h"
#include "src/cli/views/text_table.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

using Order = std::function<bool(const v1::ObjectSummary&, const v1::ObjectSummary&)>;

// Returns whether one object stands before another; null for the order of ids.
Order OrderOf(const std::string& key) {
  if (key == "age") {
    return [](const v1::ObjectSummary& a, const v1::ObjectSummary& b) {
      return a.age_ns() < b.age_ns();
    };
  }
  if (key == "size") {
    return [](const v1::ObjectSummary& a, const v1::ObjectSummary& b) {
      return a.info().size_bytes() > b.info().size_bytes();
    };
  }
  if (key == "name") {
    return [](const v1::ObjectSummary& a, const v1::ObjectSummary& b) {
      // Objects without a name come last.
      if (a.has_name() != b.has_name()) return a.has_name();
      const int order = CompareNaturally(a.name().name(), b.name().name());
      return order != 0 ? order < 0 : a.name().name_space() < b.name().name_space();
    };
  }
  return nullptr;
}

class LsCommand : public Command {
 public:
  absl::string_view name() const override { return "ls"; }
  absl::string_view summary() const override { return "List objects"; }
  absl::string_view details() const override {
    return "The age of an object counts from its put, or from the last start of its shard.";
  }

  void AddFlags(Flags& flags) override {
    flags.Argument("-n,--name",
                   "Only objects with such names in the namespace: * is any characters, ? is one",
                   Text(&pattern_, "PATTERN"));
    flags.Argument("-a,--all", "Also deleted objects", Switch(&all_));
    flags.Argument("--sort",
                   "The newest, the largest, the first name or the least id first; id prints "
                   "objects as they are found",
                   Choice(&sort_, {"age", "size", "name", "id"}));
    flags.Argument("-r,--reverse", "In reverse order", Switch(&reverse_));
    flags.Argument("--after", "Start after this id; only with --sort=id", Text(&after_, "ID"));
    flags.Argument("--limit", "List at most this many", Integer(&limit_, 1, 1 << 30));
    flags.Argument("--json", "Print a JSON object per line", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    const Order order = OrderOf(sort_);
    if (order == nullptr && reverse_) {
      return absl::InvalidArgumentError("--reverse does not go with --sort=id");
    }
    std::optional<ObjectId> after;
    if (!after_.empty()) {
      if (order != nullptr) return absl::InvalidArgumentError("--after needs --sort=id");
      PHALANX_ASSIGN_OR_RETURN(after, ObjectId::FromHex(after_));
    }
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    PHALANX_RETURN_IF_ERROR(order == nullptr ? ListById(*directory.tools, after)
                                             : ListSorted(*directory.tools, order));
    if (!json_) std::cout << ObjectsAsTable(list_) << std::flush;
    if (more_ && !json_) {
      std::cerr << "There are more objects; see --limit"
                << (order == nullptr ? " and --after." : ".") << std::endl;
    }
    return absl::OkStatus();
  }

 private:
  bool Wanted(const v1::ObjectSummary& object) const {
    if (pattern_.empty()) return true;
    return object.has_name() && object.name().name_space() == directory_.node.name_space &&
           MatchesPattern(object.name().name(), pattern_);
  }

  // By id, so that a new object does not shift the next page.
  absl::Status ListById(directory::ToolsClient& tools, const std::optional<ObjectId>& after) {
    int left = limit_;
    return VisitObjects(tools, after, all_, [this, &left](const v1::ObjectSummary& object) {
      if (!Wanted(object)) return true;
      more_ = left == 0;
      if (more_) return false;
      --left;
      // One object per line, so that a reader can process the list as it arrives.
      if (json_) std::cout << SummaryAsJson(object) << "\n";
      if (!json_) *list_.add_objects() = object;
      return true;
    });
  }

  absl::Status ListSorted(directory::ToolsClient& tools, const Order& order) {
    const auto limit = static_cast<size_t>(limit_);
    const Order before =
        reverse_ ? [&order](const auto& a, const auto& b) { return order(b, a); } : order;
    std::vector<v1::ObjectSummary> found;
    // Only as many as are listed are kept, whatever the directory has.
    const auto keep = [&] {
      std::stable_sort(found.begin(), found.end(), before);
      more_ = more_ || found.size() > limit;
      if (found.size() > limit) found.resize(limit);
    };
    PHALANX_RETURN_IF_ERROR(VisitObjects(tools, std::nullopt, all_, [&](const auto& object) {
      if (Wanted(object)) found.push_back(object);
      if (found.size() >= 2 * limit + kSlack) keep();
      return true;
    }));
    keep();
    for (v1::ObjectSummary& object : found) {
      if (json_) std::cout << SummaryAsJson(object) << "\n";
      if (!json_) *list_.add_objects() = std::move(object);
    }
    return absl::OkStatus();
  }

  // With a small limit, few objects would be sorted often.
  static constexpr size_t kSlack = 10000;

  std::string pattern_;
  bool all_ = false;
  std::string sort_ = "age";
  bool reverse_ = false;
  std::string after_;
  int limit_ = 1000;
  bool json_ = false;
  DirectoryFlags directory_;
  v1::ListObjectsResponse list_;
  bool more_ = false;
};

}  // namespace

std::unique_ptr<Command> NewLsCommand() { return std::make_unique<LsCommand>(); }

}  // namespace phalanx::runtime
