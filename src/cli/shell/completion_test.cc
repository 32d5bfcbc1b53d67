#include "src/cli/shell/completion.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class SailCommand : public Command {
 public:
  absl::string_view name() const override { return "sail"; }
  absl::string_view summary() const override { return "Leaves the harbour"; }
  void AddFlags(Flags& flags) override {
    flags.Setting("--rig", "Its sails", Choice(&rig_, {"gaff", "gunter", "lug"}));
    flags.Argument("-c,--chart", "Where to look", Text(&chart_, "FILE"));
    flags.Argument("--port", "Where to go", Texts(&ports_, "PORT"));
    flags.Argument("--night", "Sail at night", Switch(&night_));
    flags.Positional("WIND", "From where", Choice(&wind_, {"east", "west"}));
    flags.Positional("PATH", "Logs", Texts(&logs_, "PATH"), /*required=*/false);
  }
  absl::Status Run() override { return absl::OkStatus(); }

 private:
  std::string rig_ = "lug", chart_, wind_;
  std::vector<std::string> ports_, logs_;
  bool night_ = false;
};

class SignalCommand : public Command {
 public:
  absl::string_view name() const override { return "signal"; }
  absl::string_view summary() const override { return "Hoists a flag"; }
  void AddFlags(Flags& flags) override { flags.Positional("ID", "Which", Text(&id_)); }
  absl::Status Run() override { return absl::OkStatus(); }

 private:
  std::string id_;
};

Completion Answer(const std::vector<std::string>& arguments) {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(std::make_unique<SailCommand>());
  commands.push_back(std::make_unique<SignalCommand>());
  return Complete(RecordAll(commands), arguments);
}

std::vector<std::string> Words(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const Completion::Word& word : Answer(arguments).words) words.push_back(word.text);
  return words;
}

TEST(CompletionTest, TheFirstWordIsACommandOrAFlagOfEveryCommand) {
  EXPECT_THAT(Words({""}), ElementsAre("sail", "signal"));
  EXPECT_THAT(Words({"sa"}), ElementsAre("sail"));
  EXPECT_EQ(Answer({"sa"}).words[0].help, "Leaves the harbour");
  EXPECT_THAT(Words({"x"}), IsEmpty());
  EXPECT_THAT(Words({"--"}), ElementsAre("--help", "--version", "--config"));
  EXPECT_THAT(Words({"--config", "sail", "s"}), ElementsAre("sail", "signal"));
}

TEST(CompletionTest, FlagsAreThoseOfTheCommandThatAreNotGivenYet) {
  EXPECT_THAT(Words({"sail", "--"}), ElementsAre("--rig", "--chart", "--port", "--night", "--help",
                                                 "--version", "--config"));
  EXPECT_THAT(Words({"sail", "--n"}), ElementsAre("--night"));
  EXPECT_THAT(Words({"sail", "--night", "--port=Riga", "-c", "x", "--"}),
              ElementsAre("--rig", "--port", "--help", "--version", "--config"));
  EXPECT_THAT(Words({"sail", "-c"}), ElementsAre("-c"));
  EXPECT_THAT(Words({"--config=x", "sail", "--c"}), ElementsAre("--chart"));
  EXPECT_THAT(Words({"swim", "--"}), IsEmpty());
}

TEST(CompletionTest, AValueIsOneOfTheChoices) {
  EXPECT_THAT(Words({"sail", "--rig", "g"}), ElementsAre("gaff", "gunter"));
  EXPECT_THAT(Words({"sail", "--rig=g"}), ElementsAre("--rig=gaff", "--rig=gunter"));
  EXPECT_THAT(Words({"sail", "--rig", "--"}), IsEmpty());
  EXPECT_THAT(Words({"sail", "--port", ""}), IsEmpty());
  EXPECT_THAT(Words({"sail", "--keel="}), IsEmpty());
}

TEST(CompletionTest, NamesOfFilesAreLeftToTheShell) {
  EXPECT_TRUE(Answer({"sail", "--chart", ""}).files);
  EXPECT_TRUE(Answer({"sail", "-c", "x"}).files);
  EXPECT_TRUE(Answer({"sail", "--chart=x"}).files);
  EXPECT_TRUE(Answer({"--config", ""}).files);
  EXPECT_TRUE(Answer({"sail", "west", "log1", ""}).files);
  EXPECT_FALSE(Answer({"sail", ""}).files);
}

TEST(CompletionTest, PositionalsAreCountedWithoutFlagsAndTheirValues) {
  EXPECT_THAT(Words({"sail", ""}), ElementsAre("east", "west"));
  EXPECT_THAT(Words({"sail", "--rig", "lug", "--night", "w"}), ElementsAre("west"));
  EXPECT_THAT(Words({"sail", "--", "w"}), ElementsAre("west"));
  EXPECT_THAT(Words({"sail", "--", "-"}), IsEmpty());
}

TEST(CompletionTest, FlagsStandInForAPositionalThatIsUnknown) {
  EXPECT_THAT(Words({"signal", ""}), Contains("--help"));
  EXPECT_THAT(Words({"signal", "a"}), IsEmpty());
  EXPECT_THAT(Words({"sail", ""}), Not(Contains("--help")));
}

TEST(CompletionTest, NothingIsKnownWithoutAnArgument) { EXPECT_THAT(Words({}), IsEmpty()); }

}  // namespace
}  // namespace phalanx::runtime
