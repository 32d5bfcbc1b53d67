#include "src/cli/shell/completion.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace phalanx::runtime {
namespace {

// Reads the arguments before the cursor, and then completes the last one.
class Line {
 public:
  explicit Line(const std::vector<CommandRecord>& commands)
      : commands_(commands), flags_(GlobalFlags()) {}

  void Read(const std::string& argument) {
    if (awaiting_ >= 0) {
      awaiting_ = -1;
    } else if (!flags_ended_ && argument == "--") {
      flags_ended_ = true;
    } else if (!flags_ended_ && argument.size() > 1 && argument.front() == '-') {
      ReadFlag(argument);
    } else if (has_command_) {
      ++positionals_;
    } else {
      ReadCommand(argument);
    }
  }

  Completion Complete(const std::string& text) const {
    if (awaiting_ >= 0) return Values(flags_[static_cast<size_t>(awaiting_)], "", text);
    if (!flags_ended_ && absl::StartsWith(text, "-")) return CompleteFlag(text);
    if (!has_command_) return Commands(text);
    std::vector<const FlagRecord*> positionals;
    for (const FlagRecord& flag : flags_) {
      if (flag.positional) positionals.push_back(&flag);
    }
    // The last positional can take any number of arguments.
    size_t at = positionals_;
    if (!positionals.empty() && positionals.back()->repeated) {
      at = std::min(at, positionals.size() - 1);
    }
    Completion completion;
    if (at < positionals.size()) completion = Values(*positionals[at], "", text);
    // An id cannot be completed; the flags show what else is possible.
    const bool unknown = completion.words.empty() && !completion.files;
    return unknown && text.empty() && !flags_ended_ ? CompleteFlag("") : completion;
  }

 private:
  // Returns the flag's index, or -1.
  int Find(absl::string_view name) const {
    for (size_t i = 0; i < flags_.size(); ++i) {
      const std::vector<std::string>& names = flags_[i].names;
      if (!flags_[i].positional && std::find(names.begin(), names.end(), name) != names.end()) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void ReadFlag(const std::string& argument) {
    const size_t equals = argument.find('=');
    const int flag = Find(absl::string_view(argument).substr(0, equals));
    if (flag < 0) return;
    given_.insert(flag);
    if (equals == std::string::npos && flags_[static_cast<size_t>(flag)].takes_value()) {
      awaiting_ = flag;
    }
  }

  void ReadCommand(const std::string& name) {
    has_command_ = true;
    for (const CommandRecord& command : commands_) {
      if (command.name != name) continue;
      // Before the global flags, as in the help.
      std::vector<FlagRecord> all = command.flags;
      const int shift = static_cast<int>(all.size());
      all.insert(all.end(), flags_.begin(), flags_.end());
      flags_ = std::move(all);
      std::set<int> given;
      for (const int index : given_) given.insert(index + shift);
      given_ = std::move(given);
      return;
    }
    // An unknown command has no flags.
    flags_.clear();
    given_.clear();
  }

  Completion Commands(const std::string& text) const {
    Completion completion;
    for (const CommandRecord& command : commands_) {
      if (absl::StartsWith(command.name, text)) {
        completion.words.push_back({command.name, command.summary});
      }
    }
    return completion;
  }

  Completion CompleteFlag(const std::string& text) const {
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      const int flag = Find(absl::string_view(text).substr(0, equals));
      if (flag < 0) return {};
      return Values(flags_[static_cast<size_t>(flag)], text.substr(0, equals + 1),
                    text.substr(equals + 1));
    }
    Completion completion;
    for (size_t i = 0; i < flags_.size(); ++i) {
      const FlagRecord& flag = flags_[i];
      // Once is enough for most flags.
      if (flag.positional || (given_.count(static_cast<int>(i)) > 0 && !flag.repeated)) continue;
      if (absl::StartsWith(flag.long_name(), text)) {
        completion.words.push_back({flag.long_name(), flag.help});
      } else if (flag.names.front() == text) {
        completion.words.push_back({text, flag.help});
      }
    }
    return completion;
  }

  static Completion Values(const FlagRecord& flag, const std::string& prefix,
                           const std::string& text) {
    Completion completion;
    completion.files = flag.takes_file();
    for (const std::string& choice : flag.choices) {
      if (absl::StartsWith(choice, text)) {
        completion.words.push_back({absl::StrCat(prefix, choice), ""});
      }
    }
    return completion;
  }

  const std::vector<CommandRecord>& commands_;
  // Of the command, when it is known, and of every command.
  std::vector<FlagRecord> flags_;
  bool has_command_ = false;
  bool flags_ended_ = false;
  size_t positionals_ = 0;
  // Indices of flags: the one whose value comes next, or -1; those that were given.
  int awaiting_ = -1;
  std::set<int> given_;
};

}  // namespace

Completion Complete(const std::vector<CommandRecord>& commands,
                    const std::vector<std::string>& arguments) {
  if (arguments.empty()) return {};
  Line line(commands);
  for (size_t i = 0; i + 1 < arguments.size(); ++i) line.Read(arguments[i]);
  return line.Complete(arguments.back());
}

}  // namespace phalanx::runtime
