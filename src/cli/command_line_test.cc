#include "src/cli/command_line.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Pair;
using ::testing::StartsWith;

// A command with one flag of each kind.
class SailCommand : public Command {
 public:
  absl::string_view name() const override { return "sail"; }
  absl::string_view summary() const override { return "Leaves the harbour"; }
  absl::string_view details() const override { return "Bring a hat."; }
  void AddFlags(Flags& flags) override {
    flags.Group("Ship");
    flags.Setting("--cargo-size", "Most of it", ByteSize(&cargo));
    flags.Setting("--patience", "How long to wait for wind", TimeSpan(&patience));
    flags.Setting("--label", "Where the ship belongs", Labels(&labels));
    flags.Setting("--ports", "Where to go", TextList(&ports, "PORT"));
    flags.Setting("--oars", "Rowers", Integer(&oars, 0, 99));
    flags.Setting("--night", "Sail at night", Switch(&night));
    flags.Argument("-f,--flag", "Whose", Text(&flag));
    flags.Argument("--rig", "Its sails", Choice(&rig, {"gaff", "lug"}));
    flags.Argument("--json", "Print JSON", Switch(&json));
    flags.Positional("SHIP", "Its name", Text(&ship));
  }
  absl::Status Run() override { return absl::OkStatus(); }

  uint64_t cargo = 1 << 20;
  absl::Duration patience = absl::Seconds(1);
  std::map<std::string, std::string> labels;
  std::vector<std::string> ports = {"Aalborg"};
  int oars = 4;
  bool night = false;
  std::string flag;
  std::string ship;
  std::string rig = "lug";
  bool json = false;
};

// Has no settings.
class MoorCommand : public Command {
 public:
  absl::string_view name() const override { return "moor"; }
  absl::string_view summary() const override { return "Ties up"; }
  void AddFlags(Flags& flags) override {
    flags.Argument("--stern", "There", Switch(&stern));
    flags.Argument("--knot", "How", Texts(&knots, "KNOT"));
    flags.Positional("ROPE", "With", Texts(&ropes, "ROPE"), /*required=*/false);
  }
  absl::Status Run() override { return absl::OkStatus(); }

  bool stern = false;
  std::vector<std::string> knots;
  std::vector<std::string> ropes;
};

class DockCommand : public Command {
 public:
  absl::string_view name() const override { return "dock"; }
  absl::string_view summary() const override { return "Comes back"; }
  void AddFlags(Flags& flags) override {
    flags.Setting("--oars", "Rowers", Integer(&oars, 0, 9));
    flags.Setting("--pilot", "Who steers", Text(&pilot));
  }
  absl::Status Run() override { return absl::OkStatus(); }

  int oars = 1;
  std::string pilot;
};

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    auto sail = std::make_unique<SailCommand>();
    auto dock = std::make_unique<DockCommand>();
    auto moor = std::make_unique<MoorCommand>();
    sail_ = sail.get();
    moor_ = moor.get();
    dock_ = dock.get();
    commands_.push_back(std::move(sail));
    commands_.push_back(std::move(dock));
    commands_.push_back(std::move(moor));
  }
  ~CommandLineTest() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }

  void SetEnvironment(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  std::string WriteConfig(const std::string& text) {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string path = absl::StrCat(::testing::TempDir(), "/", info->name(), ".toml");
    std::ofstream(path) << text;
    return path;
  }
  ParsedCommandLine Parse(const std::vector<std::string>& arguments) {
    return ParseCommandLine(commands_, arguments, out_, err_);
  }

  SailCommand* sail_;
  DockCommand* dock_;
  MoorCommand* moor_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::string> set_;
  std::ostringstream out_, err_;
};

TEST_F(CommandLineTest, FlagsSetTheOptionsOfTheChosenCommand) {
  const ParsedCommandLine parsed = Parse(
      {"sail", "--cargo-size=64MiB", "--patience", "2m", "--label", "zone=a", "--label",
       "rack=7,deck=2", "--ports=Bergen,Riga", "--oars=8", "--night", "-f", "danish", "Elida"});
  EXPECT_EQ(err_.str(), "");
  ASSERT_EQ(parsed.command, sail_);
  EXPECT_EQ(sail_->cargo, 64u << 20);
  EXPECT_EQ(sail_->patience, absl::Minutes(2));
  EXPECT_THAT(sail_->labels, ElementsAre(Pair("deck", "2"), Pair("rack", "7"), Pair("zone", "a")));
  EXPECT_THAT(sail_->ports, ElementsAre("Bergen", "Riga"));
  EXPECT_EQ(sail_->oars, 8);
  EXPECT_TRUE(sail_->night);
  EXPECT_EQ(sail_->flag, "danish");
  EXPECT_EQ(sail_->ship, "Elida");
}

TEST_F(CommandLineTest, RepeatedArgumentsStayAsTheyAre) {
  ASSERT_EQ(Parse({"moor", "--", "[a,b]", "", "--", "--stern", "[]", "a,b", "sail"}).command, moor_)
      << err_.str();
  EXPECT_THAT(moor_->ropes, ElementsAre("[a,b]", "", "--", "--stern", "[]", "a,b", "sail"));
  EXPECT_FALSE(moor_->stern);
  Parse({"dock", "[a,b]"});
  EXPECT_THAT(err_.str(), HasSubstr("unexpected argument \"[a,b]\""));
}

TEST_F(CommandLineTest, TheMarkBehindAFlagWithSeveralValuesEndsTheFlags) {
  for (const auto& knot : {std::vector<std::string>{"--knot", "reef"}, {"--knot=reef"}}) {
    std::vector<std::string> arguments = {"moor", "--knot", "bowline"};
    arguments.insert(arguments.end(), knot.begin(), knot.end());
    for (const char* rest : {"--", "hawser", "--stern"}) arguments.push_back(rest);
    ASSERT_EQ(Parse(arguments).command, moor_) << err_.str();
    EXPECT_THAT(moor_->knots, ElementsAre("bowline", "reef"));
    EXPECT_THAT(moor_->ropes, ElementsAre("hawser", "--stern"));
    EXPECT_FALSE(moor_->stern);
  }
}

TEST_F(CommandLineTest, UnsetFlagsKeepTheirDefaults) {
  ASSERT_EQ(Parse({"sail", "Elida"}).command, sail_);
  EXPECT_EQ(sail_->cargo, 1u << 20);
  EXPECT_THAT(sail_->ports, ElementsAre("Aalborg"));
  EXPECT_FALSE(sail_->night);
}

TEST_F(CommandLineTest, CommandLineOverridesEnvironmentOverridesFile) {
  const std::string config =
      WriteConfig("oars = 1\npatience = \"1s\"\ncargo-size = \"1KiB\"\nnight = true\n");
  SetEnvironment("PHALANX_OARS", "2");
  SetEnvironment("PHALANX_PATIENCE", "2s");
  ASSERT_EQ(Parse({"sail", "--config", config, "--oars=3", "Elida"}).command, sail_) << err_.str();
  EXPECT_EQ(sail_->oars, 3);
  EXPECT_EQ(sail_->patience, absl::Seconds(2));
  EXPECT_EQ(sail_->cargo, 1024u);
  EXPECT_TRUE(sail_->night);
}

TEST_F(CommandLineTest, TheEnvironmentCanNameTheFile) {
  SetEnvironment("PHALANX_CONFIG", WriteConfig("oars = 7\n"));
  ASSERT_EQ(Parse({"sail", "Elida"}).command, sail_) << err_.str();
  EXPECT_EQ(sail_->oars, 7);
}

TEST_F(CommandLineTest, SectionsOfTheFileApplyToOneCommand) {
  const std::string config = WriteConfig(
      "oars = 5\npilot = \"Ove\"\n# a comment\n[dock]\noars = 6\n[sail]\nports = [\"Riga\", "
      "\"Turku\"]\nlabel = [\"zone=a\"]\n");
  ASSERT_EQ(Parse({"sail", "Elida", "--config", config}).command, sail_) << err_.str();
  EXPECT_EQ(sail_->oars, 5);
  EXPECT_THAT(sail_->ports, ElementsAre("Riga", "Turku"));
  EXPECT_THAT(sail_->labels, ElementsAre(Pair("zone", "a")));
}

TEST_F(CommandLineTest, AnArrayCanHaveSeveralLinesWithComments) {
  const std::string config = WriteConfig(
      "[sail] # the ship\nports = [ # to the east\n  \"Riga\",  # first\n\n  \"Turku\", ]\noars = "
      "5\n"
      "label = [\"zone=a\",\n\"deck=2\"\n]\n");
  ASSERT_EQ(Parse({"sail", "Elida", "--config", config}).command, sail_) << err_.str();
  EXPECT_THAT(sail_->ports, ElementsAre("Riga", "Turku"));
  EXPECT_THAT(sail_->labels, ElementsAre(Pair("deck", "2"), Pair("zone", "a")));
  EXPECT_EQ(sail_->oars, 5);
}

TEST_F(CommandLineTest, UnknownKeysAreErrors) {
  for (const char* text :
       {"oarz = 5\n", "[dock]\nports = \"Riga\"\n", "[swim]\noars = 1\n", "flag = \"danish\"\n"}) {
    const ParsedCommandLine parsed = Parse({"sail", "Elida", "--config", WriteConfig(text)});
    EXPECT_EQ(parsed.command, nullptr) << text;
    EXPECT_EQ(parsed.exit_code, 2);
  }
}

TEST_F(CommandLineTest, ErrorsOfTheFileNameFileLineKeyAndWhatIsAccepted) {
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"# ships\n\noarz = 5\n",
       {":3: no setting is called \"oarz\", did you mean \"oars\"?",
        " (keys before the first section: cargo-size, label, night, oars, "}},
      {"oars = 1\n[dock]\noars = 1\nports = \"Riga\"\n",
       {":4: no setting is called \"ports\" (keys of [dock]: oars, pilot)\n"}},
      {"[dokc]\noars = 1\n",
       {":2: no command is called \"dokc\", did you mean \"dock\"? (sections: dock, moor, "
        "sail)\n"}},
      {"sail.orrs = 1\n",
       {":1: no setting is called \"orrs\", did you mean \"oars\"? (keys of [sail]: "}},
      {"# ships\n[sail]\n\"oars\" = 100\n",
       {":3: --oars: \"100\" is not a whole number from 0 to 99"}},
      {"night = maybe\n", {":1: --night: \"maybe\" is neither true nor false"}},
      {"[sail] # ours\noars = 100\n", {":2: --oars: \"100\" is not"}},
      {"[ sail ]\noars = 100\n", {":2: --oars: \"100\" is not"}},
      {"[[sail]]\noars = 100\n", {":2: --oars: \"100\" is not"}},
      {"[\"sail\"]\noars = 100\n", {":2: --oars: \"100\" is not"}},
      {"[dock]\n[default]\noars = 100\n", {":3: --oars: \"100\" is not"}},
      {"sail.\"oars\" = 100\n", {":1: --oars: \"100\" is not"}},
      {"[sail]\nports = [\n\"Riga\",\n\"Turku\"\n]\noars = 100\n", {":6: --oars: \"100\" is not"}},
      {"night\n", {}}};
  for (const auto& [text, parts] : wrong) {
    const std::string config = WriteConfig(text);
    err_.str("");
    Parse({"sail", "Elida", "--config", config});
    for (const std::string& part : parts) {
      EXPECT_THAT(err_.str(), HasSubstr(absl::StrCat(part[0] == ':' ? config : "", part))) << text;
    }
    EXPECT_EQ(err_.str().empty(), parts.empty()) << text;
  }
  // An error on the command line is not the file's.
  err_.str("");
  Parse({"sail", "Elida", "--oars=200", "--config", WriteConfig("oars = 100\n")});
  EXPECT_THAT(err_.str(), StartsWith("phalanx sail: --oars: \"200\" is not"));
}

TEST_F(CommandLineTest, AMissingFileIsAnError) {
  EXPECT_EQ(Parse({"sail", "Elida", "--config", "/nonexistent/x.toml"}).exit_code, 2);
  SetEnvironment("PHALANX_CONFIG", "/nonexistent/y.toml");
  EXPECT_EQ(Parse({"sail", "Elida"}).exit_code, 2);
  EXPECT_THAT(err_.str(), HasSubstr("y.toml"));
}

TEST_F(CommandLineTest, IgnoresVariablesOfOtherCommands) {
  SetEnvironment("PHALANX_CARGO_SIZE", "heavy");
  EXPECT_EQ(Parse({"dock"}).command, dock_) << err_.str();
}

TEST_F(CommandLineTest, ErrorsNameTheFlagAndTheValue) {
  const ParsedCommandLine parsed = Parse({"sail", "Elida", "--cargo-size=lots"});
  EXPECT_EQ(parsed.command, nullptr);
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(err_.str(), HasSubstr("--cargo-size: \"lots\" is not a size"));
  EXPECT_THAT(err_.str(), HasSubstr("phalanx sail --help"));
}

TEST_F(CommandLineTest, RejectsBadValuesInTheEnvironment) {
  SetEnvironment("PHALANX_PATIENCE", "none");
  EXPECT_EQ(Parse({"sail", "Elida"}).exit_code, 2);
  EXPECT_THAT(err_.str(), HasSubstr("\"none\" is not a duration"));
}

TEST_F(CommandLineTest, RejectsWrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"fly"},
                                                       {"sail"},
                                                       {"sail", "a", "b"},
                                                       {"sail", "a", "--oars"},
                                                       {"sail", "a", "--oars=100"},
                                                       {"sail", "a", "--sails"},
                                                       {"sail", "a", "--label", "zone"},
                                                       {"sail", "a", "--night=maybe"}};
  for (const std::vector<std::string>& arguments : wrong) {
    const ParsedCommandLine parsed = Parse(arguments);
    EXPECT_EQ(parsed.command, nullptr);
    EXPECT_EQ(parsed.exit_code, 2);
  }
}

TEST_F(CommandLineTest, AnUnknownCommandIsNamedWithTheNearOne) {
  EXPECT_EQ(Parse({"sial", "--config=x", "-f", "dock"}).exit_code, 2);
  EXPECT_THAT(err_.str(),
              StartsWith("phalanx: there is no command \"sial\", did you mean \"sail\"?\n"));
  err_.str("");
  EXPECT_EQ(Parse({"--config", "sail", "fly", "--help"}).exit_code, 2);
  EXPECT_THAT(err_.str(), StartsWith("phalanx: there is no command \"fly\"\n"));
}

TEST_F(CommandLineTest, ACommandLineWithoutACommandIsAnError) {
  EXPECT_EQ(Parse({}).exit_code, 2);
  EXPECT_EQ(err_.str(), "phalanx: give a command\nTry `phalanx --help`.\n");
  err_.str("");
  EXPECT_EQ(Parse({"--versoin"}).exit_code, 2);
  EXPECT_THAT(err_.str(),
              StartsWith("phalanx: there is no flag --versoin, did you mean \"--version\"?\n"));
  err_.str("");
  EXPECT_EQ(Parse({""}).exit_code, 2);
  EXPECT_THAT(err_.str(), StartsWith("phalanx: unexpected argument \"\"\n"));
}

TEST_F(CommandLineTest, AnUnknownFlagOrValueIsNamedWithTheNearOne) {
  const std::map<std::vector<std::string>, std::string> wrong = {
      {{"sail", "a", "--oasr=3"}, "there is no flag --oasr, did you mean \"--oars\"?\n"},
      {{"sail", "a", "--versoin"}, "there is no flag --versoin, did you mean \"--version\"?\n"},
      {{"sail", "a", "-x"}, "there is no flag -x\n"},
      {{"sail", "a", "b"}, "unexpected argument \"b\"\n"},
      {{"sail", "a", "--rig=gafff"},
       "--rig: \"gafff\" is not one of gaff|lug, did you mean \"gaff\"?\n"}};
  for (const auto& [arguments, text] : wrong) {
    err_.str("");
    EXPECT_EQ(Parse(arguments).exit_code, 2);
    EXPECT_THAT(err_.str(), StartsWith("phalanx sail: " + text));
  }
}

TEST_F(CommandLineTest, ErrorsAreJsonIfTheResultsAre) {
  const ParsedCommandLine parsed = Parse({"sail", "Elida", "--json"});
  EXPECT_EQ(parsed.command, sail_);
  EXPECT_TRUE(parsed.json);
  EXPECT_FALSE(Parse({"sail", "Elida"}).json);
  EXPECT_FALSE(Parse({"sail", "Elida", "--json=false"}).json);
  EXPECT_TRUE(Parse({"sail", "Elida", "--json=true"}).json);
  EXPECT_FALSE(Parse({"sail", "--", "--json"}).json);
  EXPECT_EQ(Parse({"sail", "--json", "Elida", "--oars=x"}).exit_code, 2);
  EXPECT_EQ(
      err_.str(),
      "{\"code\":\"INVALID_ARGUMENT\",\"command\":\"sail\",\"error\":\"--oars: \\\"x\\\" is not "
      "a whole number from 0 to 99\",\"exit_code\":2}\n");
  err_.str("");
  EXPECT_EQ(Parse({"sail", "--json=true", "Elida", "--oars=x"}).exit_code, 2);
  EXPECT_THAT(err_.str(), StartsWith("{\"code\":\"INVALID_ARGUMENT\""));
  err_.str("");
  EXPECT_EQ(Parse({"sail", "--json=false", "Elida", "--oars=x"}).exit_code, 2);
  EXPECT_THAT(err_.str(), StartsWith("phalanx sail: --oars"));
  EXPECT_EQ(
      ErrorLine("get", absl::NotFoundError("no \xff"), /*json=*/true, /*colours=*/true),
      "{\"code\":\"NOT_FOUND\",\"command\":\"get\",\"error\":\"no \xef\xbf\xbd\",\"exit_code\":3}"
      "\n");
  EXPECT_EQ(ErrorLine("get", absl::NotFoundError("none"), /*json=*/false, /*colours=*/false),
            "phalanx get: none (NOT_FOUND)\n");
  EXPECT_EQ(ErrorLine("get", absl::NotFoundError("none"), /*json=*/false, /*colours=*/true),
            "\x1b[31mphalanx get:\x1b[0m none (NOT_FOUND)\n");
}

TEST_F(CommandLineTest, ACommandWithoutSettingsDoesNotReadTheFileOfTheEnvironment) {
  SetEnvironment("PHALANX_CONFIG", "/nonexistent/y.toml");
  EXPECT_NE(Parse({"moor"}).command, nullptr) << err_.str();
  EXPECT_EQ(Parse({"dock"}).command, nullptr);
}

TEST_F(CommandLineTest, AFlagWithoutItsValueDoesNotTakeTheNextArgument) {
  for (const char* flag : {"--flag=", "--ports=", "--cargo-size=", "--night="}) {
    err_.str("");
    EXPECT_EQ(Parse({"sail", flag, "--oars=3", "Elida"}).exit_code, 2);
    EXPECT_THAT(err_.str(), StartsWith(absl::StrCat("phalanx sail: ", flag, " has no value")))
        << flag;
  }
  EXPECT_EQ(Parse({"sail", "--flag=a=", "--", "--flag="}).command, sail_) << err_.str();
  EXPECT_EQ(sail_->flag, "a=");
  EXPECT_EQ(sail_->ship, "--flag=");
}

TEST_F(CommandLineTest, TheVersionIsThatOfTheReleaseAndThenOfTheProtocol) {
  EXPECT_EQ(Parse({"--version"}).exit_code, 0);
  EXPECT_THAT(out_.str(), MatchesRegex("phalanx [0-9]+\\.[0-9]+\\.[0-9]+, protocol [0-9]+\n"));
}

TEST_F(CommandLineTest, HelpShowsTypesDefaultsAndVariables) {
  const ParsedCommandLine parsed = Parse({"sail", "--help"});
  EXPECT_EQ(parsed.command, nullptr);
  EXPECT_EQ(parsed.exit_code, 0);
  for (const char* text : {"Leaves the harbour", "--cargo-size SIZE", "[1.00 MiB]",
                           "$PHALANX_CARGO_SIZE", "-f,--flag TEXT", "Bring a hat.", "Ship:"}) {
    EXPECT_THAT(out_.str(), HasSubstr(text));
  }
}

TEST_F(CommandLineTest, MainHelpListsTheCommands) {
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  EXPECT_THAT(out_.str(), HasSubstr("Comes back"));
  EXPECT_THAT(out_.str(), HasSubstr("Exit codes"));
}

TEST(ExitCodeTest, EachErrorHasItsExitCode) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCode(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCode(absl::NotFoundError("")), 3);
  EXPECT_EQ(ExitCode(absl::DeadlineExceededError("")), 4);
  EXPECT_EQ(ExitCode(absl::UnavailableError("")), 5);
}

}  // namespace
}  // namespace phalanx::runtime
