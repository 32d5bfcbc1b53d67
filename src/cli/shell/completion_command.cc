#include "src/cli/shell/completion_command.h"

#include <iostream>
#include <string>
#include <utility>

#include "src/cli/command_record.h"
#include "src/cli/shell/completion.h"
#include "src/cli/shell/completion_scripts.h"

namespace phalanx::runtime {
namespace {

class CompletionCommand : public Command {
 public:
  explicit CompletionCommand(std::function<std::vector<std::unique_ptr<Command>>()> all)
      : all_(std::move(all)) {}

  absl::string_view name() const override { return "completion"; }
  absl::string_view summary() const override {
    return "Print the script that makes a shell complete arguments";
  }
  absl::string_view details() const override {
    return "In bash: source <(phalanx completion bash). In zsh: source <(phalanx completion zsh). "
           "In\n"
           "fish: phalanx completion fish | source. The script asks this command: with WORDs, "
           "which\n"
           "follow a --, it prints the completions of the last WORD.";
  }

  void AddFlags(Flags& flags) override {
    flags.Positional("SHELL", "bash, fish or zsh", Choice(&shell_, CompletionShells()));
    flags.Positional("WORD", "The words to complete", Texts(&words_, "WORD"), /*required=*/false);
  }

  absl::Status Run() override {
    if (words_.empty()) {
      std::cout << CompletionScript(shell_);
      return absl::OkStatus();
    }
    const Completion completion = Complete(RecordAll(all_()), words_);
    if (completion.files) std::cout << ":files\n";
    for (const Completion::Word& word : completion.words) {
      std::cout << word.text << "\t" << word.help << "\n";
    }
    return absl::OkStatus();
  }

 private:
  const std::function<std::vector<std::unique_ptr<Command>>()> all_;
  std::string shell_;
  std::vector<std::string> words_;
};

}  // namespace

std::unique_ptr<Command> NewCompletionCommand(
    std::function<std::vector<std::unique_ptr<Command>>()> all) {
  return std::make_unique<CompletionCommand>(std::move(all));
}

}  // namespace phalanx::runtime
