#include "src/cli/tools/ls_command.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "src/cli/tools/directory_connection.h"
#include "src/cli/views/object_view.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// One page fits well into a message; a large listing does not block a shard for long.
constexpr int kPage = 1000;

class LsCommand : public Command {
 public:
  absl::string_view name() const override { return "ls"; }
  absl::string_view summary() const override { return "List objects, in order of their ids"; }

  void AddFlags(Flags& flags) override {
    flags.Argument("--after", "Start after this id", Text(&after_, "ID"));
    flags.Argument("--limit", "List at most this many", Integer(&limit_, 1, 1 << 30));
    flags.Argument("--json", "Print a JSON object per line", Switch(&json_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    // Listing by id, so that a new object does not shift the next page.
    std::optional<ObjectId> after;
    if (!after_.empty()) {
      PHALANX_ASSIGN_OR_RETURN(after, ObjectId::FromHex(after_));
    }
    PHALANX_ASSIGN_OR_RETURN(const DirectoryConnection directory, ConnectToDirectory(directory_));
    int left = limit_;
    bool more = true;
    while (more && left > 0) {
      PHALANX_ASSIGN_OR_RETURN(
          const v1::ListObjectsResponse page,
          directory.tools->List(after, static_cast<uint32_t>(std::min(left, kPage))));
      Print(page, /*first=*/left == limit_);
      left -= page.objects_size();
      more = page.more();
      if (!more) break;
      PHALANX_ASSIGN_OR_RETURN(const ObjectId listed_to, ObjectId::FromBinary(page.listed_to()));
      // Without progress this loop would not end.
      if (after.has_value() && listed_to <= *after) {
        return absl::InternalError("the directory lists the same objects again");
      }
      after = listed_to;
    }
    if (more && !json_)
      std::cerr << "There are more objects; see --after and --limit." << std::endl;
    return absl::OkStatus();
  }

 private:
  void Print(const v1::ListObjectsResponse& page, bool first) const {
    if (json_) {
      for (const v1::ObjectSummary& object : page.objects()) {
        // One object per line, so that a reader can process the list as it arrives.
        std::cout << SummaryAsJson(object) << "\n";
      }
    } else if (first || page.objects_size() > 0) {
      std::cout << ObjectsAsTable(page);
    }
    std::cout << std::flush;
  }

  std::string after_;
  int limit_ = 1000;
  bool json_ = false;
  DirectoryFlags directory_;
};

}  // namespace

std::unique_ptr<Command> NewLsCommand() { return std::make_unique<LsCommand>(); }

}  // namespace phalanx::runtime
