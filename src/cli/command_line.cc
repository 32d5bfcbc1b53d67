#include "src/cli/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <istream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/cli/command_record.h"
#include "src/cli/near_word.h"
#include "src/cli/views/colour.h"
#include "src/common/ids/ids.h"
#include "src/common/release.h"

namespace phalanx::runtime {
namespace {

constexpr size_t kNameColumn = 30;
constexpr size_t kHelpWidth = 68;
// The limit of values for one positional.
constexpr int kMaxValues = 1 << 16;
// With a smaller one, a flag that can be given several times takes the "--" behind its value for
// the end of its values, and not for the end of the flags.
constexpr int kMaxRepeats = CLI::detail::expected_max_vector_size;

// The parser takes an argument "[a,b]" for a list of two. This mark in front of it keeps it whole.
constexpr char kWhole = '\x1f';

std::string Marked(const std::string& argument) {
  const bool list = absl::StartsWith(argument, "[") && absl::EndsWith(argument, "]");
  return list ? absl::StrCat(std::string(1, kWhole), argument) : argument;
}

std::string Unmarked(const std::string& argument) {
  return argument.substr(!argument.empty() && argument.front() == kWhole ? 1 : 0);
}

bool InEnvironment(const std::string& name) {
  // An empty variable counts as not set.
  const char* text = name.empty() ? nullptr : std::getenv(name.c_str());
  return text != nullptr && *text != '\0';
}

std::string Wrap(absl::string_view text) {
  std::string wrapped;
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > 0 && column + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&wrapped, "\n", word);
      column = word.size();
    } else {
      absl::StrAppend(&wrapped, column > 0 ? " " : "", word);
      column += (column > 0 ? 1 : 0) + word.size();
    }
  }
  return wrapped;
}

// The name and type are on the left; help, default and environment variable on the right.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNameColumn); }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_type_name().empty()) return "";
    return absl::StrCat(" ", option->get_type_name());
  }
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = absl::StrCat(make_option_name(option, /*is_positional=*/true),
                                          option->get_expected_max() > 1 ? "..." : "");
    return option->get_required() ? name : absl::StrCat("[", name, "]");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) {
      absl::StrAppend(&text, " [", option->get_default_str(), "]");
    }
    if (!option->get_envname().empty()) absl::StrAppend(&text, " $", option->get_envname());
    return Wrap(text);
  }
};

class ParserFlags : public Flags {
 public:
  // `chosen`: the environment applies only to the command that will run, so that a variable meant
  // for a daemon cannot make another command fail.
  ParserFlags(CLI::App& app, bool chosen) : app_(app), chosen_(chosen) {}

  bool has_settings() const { return has_settings_; }

  void Group(absl::string_view title) override { group_ = std::string(title); }

  void Setting(absl::string_view names, absl::string_view help, FlagValue value) override {
    CLI::Option* option = Add(names, help, std::move(value));
    if (chosen_) option->envname(EnvironmentName(names));
    has_settings_ = true;
  }
  void Argument(absl::string_view names, absl::string_view help, FlagValue value) override {
    Add(names, help, std::move(value))->configurable(false);
  }
  void Positional(absl::string_view name, absl::string_view help, FlagValue value,
                  bool required) override {
    // The name of a positional stands for its type in the usage line.
    value.type.clear();
    CLI::Option* option = Add(name, help, std::move(value));
    option->configurable(false)->required(required);
  }

 private:
  CLI::Option* Add(absl::string_view names, absl::string_view help, FlagValue value) {
    const std::string all_names(names);
    // The last name is the long one; errors use it.
    const std::string name = absl::StrSplit(names, ',').operator std::vector<std::string>().back();
    CLI::callback_t take = [name, parse = std::move(value.parse)](CLI::results_t texts) {
      std::transform(texts.begin(), texts.end(), texts.begin(), Unmarked);
      const absl::Status status = parse(texts);
      if (!status.ok()) throw CLI::ValidationError(name, std::string(status.message()));
      return true;
    };
    // A switch has no type; a positional can have none either, but no dash.
    const bool is_switch = value.type.empty() && !names.empty() && names.front() == '-';
    if (is_switch) {
      const auto set = [take](int64_t on) { take({on > 0 ? "true" : "false"}); };
      return app_.add_flag_function(all_names, set, std::string(help))->group(group_);
    }
    CLI::Option* option = app_.add_option(all_names, std::move(take), std::string(help));
    option->group(group_)->type_name(value.type)->default_str(value.default_text);
    // The last value wins, so that a flag can be appended to override an earlier one.
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (value.repeated) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      const bool flag = names.front() == '-';
      option->expected(1, flag ? kMaxRepeats : kMaxValues)->allow_extra_args(!flag);
    }
    return option;
  }

  CLI::App& app_;
  const bool chosen_;
  bool has_settings_ = false;
  std::string group_ = "Options";
};

CLI::Option* FindSetting(CLI::App& app, const std::string& name) {
  CLI::Option* option = app.get_option_no_throw("--" + name);
  return option != nullptr && option->get_configurable() ? option : nullptr;
}

// Returns the name of the section that a line begins, without white space and without a comment
// after it; "" for every other line.
absl::string_view SectionOf(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (!absl::StartsWith(line, "[")) return "";
  line = absl::StripTrailingAsciiWhitespace(line.substr(0, line.find('#')));
  while (absl::StartsWith(line, "[") && absl::ConsumeSuffix(&line, "]")) line.remove_prefix(1);
  return absl::StartsWith(line, "[") ? "" : absl::StripAsciiWhitespace(line);
}

// Returns a line of an array without white space and its comment.
absl::string_view ArrayPart(absl::string_view line) {
  return absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
}

// Returns whether a line begins an array that it does not end.
bool BeginsArray(absl::string_view line) {
  const size_t equals = ArrayPart(line).find('=');
  if (equals == absl::string_view::npos) return false;
  const absl::string_view value = absl::StripAsciiWhitespace(ArrayPart(line).substr(equals + 1));
  return absl::StartsWith(value, "[") && !absl::EndsWith(value, "]");
}

// Returns the file as its parser understands it: a section has its line for itself, and an array is
// on one line. Every other line keeps its number.
std::string Plain(absl::string_view text) {
  std::string plain;
  int lines_of_array = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (lines_of_array > 0 || BeginsArray(line)) {
      ++lines_of_array;
      absl::StrAppend(&plain, ArrayPart(line));
      if (!absl::EndsWith(ArrayPart(line), "]")) continue;
      plain.append(static_cast<size_t>(std::exchange(lines_of_array, 0)), '\n');
      continue;
    }
    const absl::string_view section = SectionOf(line);
    absl::StrAppend(&plain, section.empty() ? line : absl::StrCat("[", section, "]"), "\n");
  }
  return plain;
}

// Returns "LINE:", from 1, of a key in a plain file; "" if it is not found. The parser
// of the file counts no lines. Reads names as the parser does.
std::string LineOf(absl::string_view text, const CLI::ConfigItem& item) {
  std::string section = "default";
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (const absl::string_view begun = SectionOf(line); !begun.empty()) {
      section = std::string(begun);
      continue;
    }
    std::string name(absl::StripAsciiWhitespace(line.substr(0, line.find_first_of("=#"))));
    if (!absl::StrContains(name, ".")) CLI::detail::remove_quotes(name);
    const std::vector<std::string> parents = CLI::detail::generate_parents(section, name, '.');
    if (name == item.name && parents == item.parents) return absl::StrCat(number, ":");
  }
  return "";
}

// Keeps the keys of a file that apply to the chosen command and are not set in the environment.
class LayeredConfig : public CLI::ConfigBase {
 public:
  LayeredConfig(CLI::App& root, std::string chosen) : root_(root), chosen_(std::move(chosen)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::ostringstream whole;
    whole << input.rdbuf();
    const std::string text = Plain(whole.str());
    std::istringstream lines(text);
    std::vector<CLI::ConfigItem> kept;
    for (CLI::ConfigItem& item : CLI::ConfigBase::from_config(lines)) {
      // Markers of the parser for the begin and end of a section.
      if (item.name == "++" || item.name == "--") continue;
      const std::string place =
          absl::StrCat(root_.get_config_ptr()->as<std::string>(), ":", LineOf(text, item), " ");
      CLI::Option* option = Find(item, place);
      if (option == nullptr || InEnvironment(option->get_envname())) continue;
      if (option->get_expected_min() == 0) CheckSwitch(item, place);
      // A value on the command line replaces this one, so that an error would be that value's.
      if (option->empty()) places_.insert({"--" + item.name, place});
      // The parser looks for the key below the chosen command, wherever it was in the file.
      item.parents = {chosen_};
      kept.push_back(std::move(item));
    }
    return kept;
  }

  // Returns "FILE:LINE: " if the flag ("--oars") has its value from the file, else "".
  std::string PlaceOf(const std::string& flag) const {
    const auto found = places_.find(flag);
    return found == places_.end() ? "" : found->second;
  }

 private:
  std::vector<CLI::App*> Commands() const {
    return root_.get_subcommands([](CLI::App*) { return true; });
  }

  // The parser's own error for the value of a switch does not name the switch.
  static void CheckSwitch(const CLI::ConfigItem& item, const std::string& place) {
    try {
      CLI::detail::to_flag_value(item.inputs.size() == 1 ? item.inputs.front() : "none");
    } catch (const std::exception&) {
      throw CLI::ConfigError(absl::StrCat(place, "--", item.name, ": \"",
                                          absl::StrJoin(item.inputs, ", "),
                                          "\" is neither true nor false"));
    }
  }

  // Returns the chosen command's flag; null if the key belongs to another command.
  CLI::Option* Find(const CLI::ConfigItem& item, const std::string& place) const {
    bool known = false;
    for (CLI::App* command : Commands()) {
      if (item.parents.size() > 1) break;
      if (!item.parents.empty() && item.parents[0] != command->get_name()) continue;
      CLI::Option* option = FindSetting(*command, item.name);
      known = known || option != nullptr;
      if (option != nullptr && command->get_name() == chosen_) return option;
    }
    // An unknown key is an error for every command, so that a typing error does not go unnoticed.
    if (!known) throw CLI::ConfigError(absl::StrCat(place, Unknown(item)));
    return nullptr;
  }

  // Says what could stand in place of an unknown key or section.
  std::string Unknown(const CLI::ConfigItem& item) const {
    const std::string section = absl::StrJoin(item.parents, ".");
    std::set<std::string> sections, keys;
    for (CLI::App* command : Commands()) {
      sections.insert(command->get_name());
      if (!section.empty() && section != command->get_name()) continue;
      for (const CLI::Option* option : command->get_options()) {
        if (option->get_configurable()) keys.insert(option->get_lnames().front());
      }
    }
    if (!section.empty() && sections.count(section) == 0) {
      return absl::StrCat("no command is called \"", section, "\"", DidYouMean(section, sections),
                          " (sections: ", absl::StrJoin(sections, ", "), ")");
    }
    const std::string where =
        section.empty() ? "before the first section" : absl::StrCat("of [", section, "]");
    return absl::StrCat("no setting is called \"", item.name, "\"", DidYouMean(item.name, keys),
                        " (keys ", where, ": ", absl::StrJoin(keys, ", "), ")");
  }

  CLI::App& root_;
  const std::string chosen_;
  // Where the file sets the flags that have their values from it.
  mutable std::map<std::string, std::string> places_;
};

// Returns the first argument that is neither a flag nor the value of one, or "". The environment
// must be bound before the parser runs, so the command is searched for here.
std::string CommandWord(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    // The only flag with a value that can stand before the command.
    if (arguments[i] == "--config") {
      ++i;
    } else if (!absl::StartsWith(arguments[i], "-")) {
      return arguments[i];
    }
  }
  return "";
}

// Returns "--name" if that flag is given as "--name=", else "". The parser would take the next
// argument as its value.
std::string FlagWithoutValue(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (absl::StartsWith(argument, "--") && argument.find('=') == argument.size() - 1) {
      return argument.substr(0, argument.size() - 1);
    }
  }
  return "";
}

// Returns the formatter of the configuration file, which the app shares.
std::shared_ptr<const LayeredConfig> SetUp(CLI::App& app, const std::string& chosen) {
  const std::vector<FlagRecord> flags = GlobalFlags();
  const FlagRecord &help = flags[0], &version = flags[1], &config = flags[2];
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag(absl::StrJoin(help.names, ","), help.help);
  app.set_version_flag(version.long_name(),
                       absl::StrCat("phalanx ", kRelease, ", protocol ", kProtocolVersion),
                       version.help);
  app.set_config(config.long_name(), "", absl::StrCat(config.help, " $", config.variable))
      ->type_name(config.type);
  const auto config_file = std::make_shared<LayeredConfig>(app, chosen);
  app.config_formatter(config_file);
  app.require_subcommand(1);
  const std::string codes =
      absl::StrJoin(kExitCodes, ", ", [](std::string* out, const ExitCodeMeaning& code) {
        absl::StrAppend(out, code.code, " ", code.meaning);
      });
  app.footer(Wrap(
      absl::StrCat("`phalanx help COMMAND` shows a command's flags. Exit codes: ", codes, ".")));
  return config_file;
}

// Makes the file of PHALANX_CONFIG, which must exist, the default of --config.
void ReadFileOfEnvironment(CLI::App& app) {
  const FlagRecord config = GlobalFlags()[2];
  if (!InEnvironment(config.variable)) return;
  app.get_config_ptr()->default_str(std::getenv(config.variable.c_str()))->required();
}

// Says which of the arguments that the parser did not expect is the first, and what could stand in
// its place.
std::string Unexpected(const CLI::App& command, const std::vector<std::string>& unexpected) {
  const auto found = std::find_if(unexpected.begin(), unexpected.end(),
                                  [](const std::string& argument) { return argument != "--"; });
  const std::string first = found == unexpected.end() ? "--" : Unmarked(*found);
  const std::string flag = first.substr(0, first.find('='));
  if (!absl::StartsWith(first, "-")) return absl::StrCat("unexpected argument \"", first, "\"");
  std::set<std::string> flags;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.insert("--" + name);
    }
  }
  return absl::StrCat("there is no flag ", flag, DidYouMean(flag, flags));
}

// The parser reports some wrong arguments before it has read all of them.
bool AsksForJson(const std::vector<std::string>& arguments) {
  bool json = false;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument == "--json") json = true;
    absl::string_view value = argument;
    // A value that is neither true nor false is an error, which the caller expects as JSON.
    if (absl::ConsumePrefix(&value, "--json=") && !absl::SimpleAtob(value, &json)) json = true;
  }
  return json;
}

// Says what is missing in a command line without a command, or is in its place.
std::string WithoutCommand(const CLI::App& app) {
  const std::vector<std::string> unexpected = app.remaining();
  return unexpected.empty() ? "give a command" : Unexpected(app, unexpected);
}

}  // namespace

ParsedCommandLine ParseCommandLine(const std::vector<std::unique_ptr<Command>>& commands,
                                   const std::vector<std::string>& arguments, std::ostream& out,
                                   std::ostream& err) {
  const std::string word = CommandWord(arguments);
  CLI::App app(std::string(kProgramSummary), "phalanx");
  const std::shared_ptr<const LayeredConfig> config_file = SetUp(app, word);
  ParsedCommandLine result;
  const CLI::App* chosen = &app;
  std::set<std::string> names;
  for (const auto& command : commands) {
    names.insert(std::string(command->name()));
    CLI::App* sub =
        app.add_subcommand(std::string(command->name()), std::string(command->summary()));
    sub->fallthrough()->footer(std::string(command->details()));
    ParserFlags flags(*sub, command->name() == word);
    command->AddFlags(flags);
    if (command->name() != word) continue;
    result.command = command.get();
    chosen = sub;
    if (flags.has_settings()) ReadFileOfEnvironment(app);
  }
  const std::string name = absl::StrCat("phalanx", result.command ? " " : "",
                                        result.command ? result.command->name() : "");
  const bool json = AsksForJson(arguments);
  // A test's stream has no colours.
  const bool colours = &err == &std::cerr && HasColours(STDERR_FILENO);
  const auto complain = [&](absl::string_view what) {
    if (json) {
      err << ErrorLine(result.command == nullptr ? "" : word, absl::InvalidArgumentError(what),
                       /*json=*/true, colours);
    } else {
      err << Painted(absl::StrCat(name, ":"), Colour::kRed, colours) << " " << what << "\nTry `"
          << name << " --help`.\n";
    }
    return ParsedCommandLine{nullptr, 2};
  };
  if (!word.empty() && result.command == nullptr) {
    return complain(absl::StrCat("there is no command \"", word, "\"", DidYouMean(word, names)));
  }
  if (const std::string flag = FlagWithoutValue(arguments); !flag.empty()) {
    return complain(absl::StrCat(flag, "= has no value: remove the flag, or give it a value"));
  }
  try {
    // The parser takes arguments from the end.
    std::vector<std::string> reversed(arguments.size());
    std::transform(arguments.rbegin(), arguments.rend(), reversed.begin(), Marked);
    app.parse(std::move(reversed));
    const CLI::Option* json_flag = chosen->get_option_no_throw("--json");
    result.json = json_flag != nullptr && json_flag->count() > 0 && json_flag->as<bool>();
    return result;
  } catch (const CLI::Success& asked) {
    app.exit(asked, out, err);
    return ParsedCommandLine();
  } catch (const CLI::ExtrasError&) {
    return complain(Unexpected(*chosen, app.remaining(/*recurse=*/true)));
  } catch (const CLI::RequiredError& missing) {
    return complain(result.command == nullptr ? WithoutCommand(app) : missing.what());
  } catch (const CLI::ParseError& wrong) {
    // The text of a wrong value begins with its flag.
    const std::string what = wrong.what();
    return complain(absl::StrCat(config_file->PlaceOf(what.substr(0, what.find(':'))), what));
  } catch (const std::exception&) {
    // The parser's own conversion of switches throws other exceptions.
    return complain("a switch takes true or false");
  }
}

}  // namespace phalanx::runtime
