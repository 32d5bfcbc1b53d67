// Parses arbitrary configuration files for commands with a flag of every kind. A file must be
// accepted or rejected with an error, and an accepted flag must be within its limits.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/cli/command_line.h"
#include "src/common/check.h"
#include "src/net/stream/address.h"

namespace phalanx::runtime {
namespace {

class FuzzedCommand : public Command {
 public:
  explicit FuzzedCommand(absl::string_view name) : name_(name) {}
  absl::string_view name() const override { return name_; }
  absl::string_view summary() const override { return "Does nothing"; }
  absl::string_view details() const override { return ""; }
  void AddFlags(Flags& flags) override {
    flags.Setting("--switch", "", Switch(&on));
    flags.Setting("--text", "", Text(&text));
    flags.Setting("--list", "", TextList(&list, "TEXT"));
    flags.Setting("--integer", "", Integer(&integer, -5, 99));
    flags.Setting("--fraction", "", Fraction(&fraction));
    flags.Setting("--size", "", ByteSize(&size));
    flags.Setting("--sizes", "", ByteSizeList(&sizes));
    flags.Setting("--rate", "", ByteRate(&rate));
    flags.Setting("--time", "", TimeSpan(&time));
    flags.Setting("--label", "", Labels(&labels));
    flags.Setting("--choice", "", Choice(&choice, {"red", "green"}));
    flags.Argument("--argument", "", Text(&argument));
  }
  absl::Status Run() override { return absl::OkStatus(); }

  void Check() const {
    PHALANX_CHECK(integer >= -5 && integer <= 99, "an integer has its limits");
    PHALANX_CHECK(fraction >= 0 && fraction <= 1, "a fraction has its limits");
    PHALANX_CHECK(size <= uint64_t{1} << 63, "a size has its limit");
    for (const uint64_t each : sizes) PHALANX_CHECK(each <= uint64_t{1} << 63, "as one size has");
    PHALANX_CHECK(rate >= 0, "a rate has its limit");
    PHALANX_CHECK(time >= absl::ZeroDuration(), "a time has its limit");
    PHALANX_CHECK(choice == "red" || choice == "green", "a choice is one of those to choose from");
    PHALANX_CHECK(argument.empty(), "an argument is no setting");
    const auto address = net::ParseHostPort(text);
    if (address.ok()) {
      const auto again = net::ParseHostPort(address->ToString());
      PHALANX_CHECK(again.ok() && again->host == address->host && again->port == address->port,
                    "an address parses again after it is printed");
    }
  }

 private:
  const std::string name_;
  bool on = false;
  std::string text;
  std::vector<std::string> list;
  int integer = 0;
  double fraction = 0;
  uint64_t size = 0;
  std::vector<uint64_t> sizes;
  double rate = 0;
  absl::Duration time;
  std::map<std::string, std::string> labels;
  std::string choice = "red";
  std::string argument;
};

}  // namespace
}  // namespace phalanx::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phalanx::runtime;
  static const int file = memfd_create("config", 0);
  PHALANX_CHECK(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == ssize_t(size), "a file");
  std::vector<std::unique_ptr<Command>> commands;
  auto chosen = std::make_unique<FuzzedCommand>("node");
  const FuzzedCommand& node = *chosen;
  commands.push_back(std::move(chosen));
  commands.push_back(std::make_unique<FuzzedCommand>("directory"));
  std::ostringstream out, err;
  const ParsedCommandLine parsed =
      ParseCommandLine(commands, {"node", absl::StrCat("--config=/proc/self/fd/", file)}, out, err);
  PHALANX_CHECK((parsed.command == &node) == err.str().empty(), "it is taken, or complained about");
  PHALANX_CHECK(parsed.command != nullptr || parsed.exit_code == 2, "a bad file is wrong usage");
  node.Check();
  return 0;
}
