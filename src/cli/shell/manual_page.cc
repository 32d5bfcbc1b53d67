#include "src/cli/shell/manual_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "src/common/release.h"

namespace phalanx::runtime {
namespace {

// Returns text that roff prints as it is. A plain "-" could be printed as a hyphen, which cannot be
// pasted into a shell.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}});
}

// Returns running text as lines of their own, none of which is a request to roff.
std::string Paragraph(absl::string_view text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&lines, absl::StartsWith(line, ".") ? "\\&" : "", Escaped(line), "\n");
  }
  return lines;
}

std::string Bold(absl::string_view text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(absl::string_view text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

std::string Begin(absl::string_view page, absl::string_view summary) {
  const std::string title = absl::StrReplaceAll(absl::AsciiStrToUpper(page), {{"-", "\\-"}});
  return absl::StrCat(".TH ", title, " 1 \"\" \"phalanx ", kRelease,
                      "\" \"Phalanx\"\n.nh\n.ad l\n.SH NAME\n", Escaped(page), " \\- ",
                      Escaped(summary), "\n");
}

std::string Synopsis(const CommandRecord& command) {
  std::string line =
      absl::StrCat(Bold(absl::StrCat("phalanx ", command.name)), " [", Italic("FLAG"), "]...");
  for (const FlagRecord& flag : command.flags) {
    if (!flag.positional) continue;
    const std::string name = absl::StrCat(Italic(flag.names.front()), flag.repeated ? "..." : "");
    absl::StrAppend(&line, " ", flag.required ? name : absl::StrCat("[", name, "]"));
  }
  return absl::StrCat(".SH SYNOPSIS\n", line, "\n");
}

std::string Entry(const FlagRecord& flag) {
  const std::string names =
      flag.positional
          ? Italic(flag.names.front())
          : absl::StrJoin(flag.names, ", ", [](std::string* out, const std::string& name) {
              out->append(Bold(name));
            });
  std::string text =
      absl::StrCat(".TP\n", names, flag.type.empty() ? "" : " ", Italic(flag.type), "\n",
                   Paragraph(absl::StrCat(absl::StrReplaceAll(flag.help, {{"\n", " "}}), ".")));
  if (flag.repeated && !flag.positional) absl::StrAppend(&text, "Can be given several times.\n");
  if (!flag.default_text.empty()) {
    absl::StrAppend(&text, "The default is ", Escaped(flag.default_text), ".\n");
  }
  if (!flag.variable.empty()) {
    absl::StrAppend(&text, "Environment: ", Bold(flag.variable), ".\n");
  }
  return text;
}

std::string Entries(const std::vector<FlagRecord>& flags, bool positional) {
  std::string text, group;
  for (const FlagRecord& flag : flags) {
    if (flag.positional != positional) continue;
    // A group can be declared in several parts.
    if (!positional && flag.group != group) {
      group = flag.group;
      absl::StrAppend(&text, ".SS ", Escaped(group), "\n");
    }
    absl::StrAppend(&text, Entry(flag));
  }
  return text;
}

std::string ExitStatus() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCodeMeaning& code : kExitCodes) {
    absl::StrAppend(&text, ".TP\n", Bold(absl::StrCat(code.code)), "\n", Escaped(code.meaning),
                    "\n");
  }
  return text;
}

}  // namespace

std::string ProgramPage(const std::vector<CommandRecord>& commands) {
  std::string page = Begin("phalanx", kProgramSummary);
  absl::StrAppend(
      &page, ".SH SYNOPSIS\n", Bold("phalanx"), " ", Italic("COMMAND"), " [", Italic("ARGUMENT"),
      "]...\n.SH DESCRIPTION\n",
      "A setting comes from the command line, else from the environment, else from the\n"
      "configuration file, else it has its default. ",
      Bold("phalanx help "), Italic("COMMAND"), " shows the flags of a command.\n",
      ".SH COMMANDS\n");
  for (const CommandRecord& command : commands) {
    absl::StrAppend(&page, ".TP\n", Bold(absl::StrCat("phalanx-", command.name)), "(1)\n",
                    Paragraph(absl::StrCat(command.summary, ".")));
  }
  absl::StrAppend(&page, ".SH OPTIONS\n");
  for (const FlagRecord& flag : GlobalFlags()) absl::StrAppend(&page, Entry(flag));
  return absl::StrCat(page, ExitStatus());
}

std::string CommandPage(const CommandRecord& command) {
  std::string page = Begin(absl::StrCat("phalanx-", command.name), command.summary);
  absl::StrAppend(&page, Synopsis(command), ".SH DESCRIPTION\n",
                  Paragraph(absl::StrCat(command.summary, ".")), Paragraph(command.details));
  const std::string arguments = Entries(command.flags, /*positional=*/true);
  if (!arguments.empty()) absl::StrAppend(&page, ".SH ARGUMENTS\n", arguments);
  absl::StrAppend(&page, ".SH OPTIONS\n", Entries(command.flags, /*positional=*/false),
                  ".SS Every command\n");
  for (const FlagRecord& flag : GlobalFlags()) absl::StrAppend(&page, Entry(flag));
  return absl::StrCat(page, ExitStatus(), ".SH SEE ALSO\n", Bold("phalanx"), "(1)\n");
}

}  // namespace phalanx::runtime
