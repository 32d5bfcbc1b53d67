#include "src/cli/shell/help_command.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <utility>

#include "src/cli/command_line.h"
#include "src/cli/command_record.h"
#include "src/cli/shell/manual_page.h"

namespace phalanx::runtime {
namespace {

class HelpCommand : public Command {
 public:
  explicit HelpCommand(std::function<std::vector<std::unique_ptr<Command>>()> all)
      : all_(std::move(all)) {}

  absl::string_view name() const override { return "help"; }
  absl::string_view summary() const override { return "Show the flags of a command"; }
  absl::string_view details() const override {
    return "To read a manual page: phalanx help --man put | man -l -";
  }

  void AddFlags(Flags& flags) override {
    std::vector<std::string> names;
    for (const auto& command : all_()) names.emplace_back(command->name());
    FlagValue value = Choice(&command_, std::move(names));
    flags.Positional("COMMAND", "The command; without it, all commands", std::move(value),
                     /*required=*/false);
    flags.Argument("--man", "Print the manual page, for man", Switch(&manual_));
  }

  absl::Status Run() override {
    if (!manual_) {
      std::vector<std::string> arguments = {"--help"};
      if (!command_.empty()) arguments.insert(arguments.begin(), command_);
      ParseCommandLine(all_(), arguments, std::cout, std::cerr);
      return absl::OkStatus();
    }
    const std::vector<CommandRecord> commands = RecordAll(all_());
    const auto chosen =
        std::find_if(commands.begin(), commands.end(),
                     [this](const CommandRecord& command) { return command.name == command_; });
    std::cout << (chosen == commands.end() ? ProgramPage(commands) : CommandPage(*chosen));
    return absl::OkStatus();
  }

 private:
  const std::function<std::vector<std::unique_ptr<Command>>()> all_;
  std::string command_;
  bool manual_ = false;
};

}  // namespace

std::unique_ptr<Command> NewHelpCommand(
    std::function<std::vector<std::unique_ptr<Command>>()> all) {
  return std::make_unique<HelpCommand>(std::move(all));
}

}  // namespace phalanx::runtime
