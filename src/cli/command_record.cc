#include "src/cli/command_record.h"

#include <utility>

#include "absl/strings/str_split.h"

namespace phalanx::runtime {
namespace {

class FlagRecorder : public Flags {
 public:
  explicit FlagRecorder(std::vector<FlagRecord>& records) : records_(records) {}

  void Group(absl::string_view title) override { group_ = std::string(title); }
  void Setting(absl::string_view names, absl::string_view help, FlagValue value) override {
    Add(names, help, std::move(value)).variable = EnvironmentName(names);
  }
  void Argument(absl::string_view names, absl::string_view help, FlagValue value) override {
    Add(names, help, std::move(value));
  }
  void Positional(absl::string_view name, absl::string_view help, FlagValue value,
                  bool required) override {
    FlagRecord& record = Add(name, help, std::move(value));
    record.positional = true;
    record.required = required;
    // The name of a positional stands for its type.
    record.type.clear();
  }

 private:
  FlagRecord& Add(absl::string_view names, absl::string_view help, FlagValue value) {
    FlagRecord record;
    record.group = group_;
    record.names = absl::StrSplit(names, ',');
    record.help = std::string(help);
    record.type = std::move(value.type);
    record.default_text = std::move(value.default_text);
    record.choices = std::move(value.choices);
    record.repeated = value.repeated;
    return records_.emplace_back(std::move(record));
  }

  std::vector<FlagRecord>& records_;
  std::string group_ = "Options";
};

}  // namespace

const absl::string_view kProgramSummary =
    "A distributed object store in which every reader relays: put once, get everywhere.";

bool FlagRecord::takes_file() const {
  const std::string& kind = positional ? names.front() : type;
  return kind == "FILE" || kind == "PATH" || kind == "PROGRAM";
}

CommandRecord Record(Command& command) {
  CommandRecord record{std::string(command.name()),
                       std::string(command.summary()),
                       std::string(command.details()),
                       {}};
  FlagRecorder recorder(record.flags);
  command.AddFlags(recorder);
  return record;
}

std::vector<CommandRecord> RecordAll(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<CommandRecord> records;
  for (const auto& command : commands) records.push_back(Record(*command));
  return records;
}

std::vector<FlagRecord> GlobalFlags() {
  FlagRecord help, version, config;
  help.names = {"-h", "--help"};
  help.help = "Print this help and exit";
  version.names = {"--version"};
  version.help = "Print the release and the version of the protocol, and exit";
  config.names = {"--config"};
  config.type = "FILE";
  config.variable = "PHALANX_CONFIG";
  config.help = "A TOML file with flags as keys, at its top or under [COMMAND]";
  return {help, version, config};
}

}  // namespace phalanx::runtime
