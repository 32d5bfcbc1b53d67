#include "src/cli/objects/get_command.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/objects/output_file.h"
#include "src/cli/tools/object_lookup.h"
#include "src/cli/views/progress_bar.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

class GetCommand : public Command {
 public:
  absl::string_view name() const override { return "get"; }
  absl::string_view summary() const override { return "Fetch an object into a file"; }
  absl::string_view details() const override {
    return "Waits for an object that does not exist yet. The file appears when it is complete.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("ID", "40 hexadecimal digits, or the first of them", Text(&object_.id),
                     /*required=*/false);
    flags.Argument("-n,--name", "The object's name, instead of its id",
                   Text(&object_.name, "NAME"));
    flags.Argument("-o,--output", "The output file; - is standard output", Text(&output_, "FILE"));
    flags.Argument("--timeout", "Stop waiting after this time", TimeSpan(&timeout_));
    flags.Argument("--json", "Print a JSON object when done (not with -o -)", Switch(&json_));
    flags.Argument("-q,--quiet", "No progress bar", Switch(&quiet_));
    AddDirectoryFlags(flags, &directory_);
  }

  absl::Status Run() override {
    // Both would write to standard output.
    if (json_ && output_ == "-") {
      return absl::InvalidArgumentError("--json needs an output file: -o FILE");
    }
    ObjectId id;
    PHALANX_ASSIGN_OR_RETURN(const std::shared_ptr<Client> client,
                             ConnectFor(object_, directory_, &id));
    PHALANX_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Open(output_));
    // JSON output is for programs, so it disables the bar.
    ProgressBar bar(absl::StrCat("get ", id.ShortHex()), !json_ && !quiet_);
    // A pipe cannot take bytes back when the arriving copy becomes void, so it gets only complete
    // objects.
    PHALANX_RETURN_IF_ERROR(file.restartable() ? CopyStream(*client, id, file, bar)
                                               : CopyWhole(*client, id, file, bar));
    PHALANX_RETURN_IF_ERROR(file.Commit());
    bar.Clear();
    Report(id, bar.elapsed());
    return absl::OkStatus();
  }

 private:
  // One timeout covers the wait for the object and its transfer.
  absl::Duration TimeLeft(const ProgressBar& bar) const {
    return std::max(absl::ZeroDuration(), timeout_ - bar.elapsed());
  }

  // Writes bytes as they arrive, and starts again at the beginning if the copy becomes void.
  absl::Status CopyStream(Client& client, const ObjectId& id, OutputFile& file, ProgressBar& bar) {
    bar.Say("waiting");
    PHALANX_ASSIGN_OR_RETURN(ObjectStream stream, client.GetStream(id, TimeLeft(bar)));
    while (true) {
      const absl::StatusOr<absl::string_view> bytes = stream.Next(kChunkBytes, TimeLeft(bar));
      if (absl::IsAborted(bytes.status())) {
        bar.Say("starts again: the received bytes are void");
        PHALANX_RETURN_IF_ERROR(file.Restart());
        size_ = 0;
        continue;
      }
      PHALANX_RETURN_IF_ERROR(bytes.status());
      if (bytes->empty()) return absl::OkStatus();
      PHALANX_RETURN_IF_ERROR(file.Write(*bytes));
      size_ += bytes->size();
      bar.Update(size_, stream.object_size());
    }
  }

  // Written bytes cannot be taken back, so this waits until the object is complete.
  absl::Status CopyWhole(Client& client, const ObjectId& id, OutputFile& file, ProgressBar& bar) {
    bar.Say("waiting");
    GetOptions options;
    options.timeout = timeout_;
    PHALANX_ASSIGN_OR_RETURN(const Buffer buffer, client.Get(id, options).Wait());
    size_ = buffer.size();
    return file.Write(buffer.view());
  }

  void Report(const ObjectId& id, absl::Duration elapsed) const {
    if (json_) {
      std::cout << nlohmann::json{{"id", id.hex()},
                                  {"size_bytes", size_},
                                  {"seconds", absl::ToDoubleSeconds(elapsed)},
                                  {"output", output_}}
                << std::endl;
    } else if (!quiet_ && isatty(STDERR_FILENO) == 1) {
      // To standard error: standard output can be the object itself.
      std::cerr << RenderSummary(size_, elapsed) << std::endl;
    }
  }

  ObjectFlags object_;
  std::string output_ = "-";
  absl::Duration timeout_ = absl::InfiniteDuration();
  bool json_ = false;
  bool quiet_ = false;
  DirectoryFlags directory_;
  uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Command> NewGetCommand() { return std::make_unique<GetCommand>(); }

}  // namespace phalanx::runtime
