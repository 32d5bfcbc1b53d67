#include "src/cli/flags.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "src/cli/near_word.h"
#include "src/cli/units.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

// A flag with one value; the last value wins. `parse` turns a text into a T.
template <typename T, typename Parse>
FlagValue OneValue(T* target, std::string type, std::string default_text, Parse parse) {
  FlagValue value;
  value.type = std::move(type);
  value.default_text = std::move(default_text);
  value.parse = [target, parse](const std::vector<std::string>& texts) -> absl::Status {
    if (texts.empty()) return absl::OkStatus();
    // Earlier values are ignored without a check, as the last one replaces them.
    absl::StatusOr<T> parsed = parse(absl::string_view(texts.back()));
    if (parsed.ok()) *target = *std::move(parsed);
    return parsed.status();
  };
  return value;
}

// A flag with several values. The given values, split at commas, replace the default.
template <typename T, typename Parse>
FlagValue ManyValues(std::vector<T>* target, std::string type, std::string default_text,
                     Parse parse) {
  FlagValue value;
  value.type = std::move(type);
  value.default_text = std::move(default_text);
  value.repeated = true;
  value.parse = [target, parse](const std::vector<std::string>& texts) -> absl::Status {
    std::vector<T> all;
    for (const std::string& text : texts) {
      for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
        absl::StatusOr<T> parsed = parse(absl::StripAsciiWhitespace(part));
        if (!parsed.ok()) return parsed.status();
        all.push_back(*std::move(parsed));
      }
    }
    // Written only after all parts are valid: the target keeps its default on an error.
    *target = std::move(all);
    return absl::OkStatus();
  };
  return value;
}

absl::StatusOr<std::string> AnyText(absl::string_view text) { return std::string(text); }

}  // namespace

// A switch takes a text as well, because files and the environment write "true" or "false".
FlagValue Switch(bool* target) {
  FlagValue value;
  value.parse = [target](const std::vector<std::string>& texts) -> absl::Status {
    if (texts.empty()) return absl::OkStatus();
    if (!absl::SimpleAtob(texts.back(), target)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", texts.back(), "\" is neither true nor false"));
    }
    return absl::OkStatus();
  };
  return value;
}

FlagValue Text(std::string* target, absl::string_view type) {
  return OneValue(target, std::string(type), *target, AnyText);
}

FlagValue TextList(std::vector<std::string>* target, absl::string_view type) {
  return ManyValues(target, std::string(type), absl::StrJoin(*target, ","), AnyText);
}

FlagValue Texts(std::vector<std::string>* target, absl::string_view type) {
  FlagValue value;
  value.type = std::string(type);
  value.repeated = true;
  value.parse = [target](const std::vector<std::string>& texts) -> absl::Status {
    *target = texts;
    return absl::OkStatus();
  };
  return value;
}

// The range is part of the flag, so that commands need no checks of their own.
FlagValue Integer(int* target, int least, int most) {
  return OneValue(target, "NUMBER", absl::StrCat(*target),
                  [least, most](absl::string_view text) -> absl::StatusOr<int> {
                    int number = 0;
                    if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) {
                      return number;
                    }
                    return absl::InvalidArgumentError(absl::StrCat(
                        "\"", text, "\" is not a whole number from ", least, " to ", most));
                  });
}

FlagValue Fraction(double* target) {
  return OneValue(target, "FRACTION", absl::StrCat(*target),
                  [](absl::string_view text) -> absl::StatusOr<double> {
                    double number = 0;
                    if (absl::SimpleAtod(text, &number) && number >= 0 && number <= 1)
                      return number;
                    return absl::InvalidArgumentError(
                        absl::StrCat("\"", text, "\" is not a number from 0 to 1"));
                  });
}

FlagValue ByteSize(uint64_t* target) {
  // Zero means that the daemon chooses, so the help shows no default.
  return OneValue(target, "SIZE", *target == 0 ? "" : HumanBytes(*target), ParseBytes);
}

FlagValue ByteSizeList(std::vector<uint64_t>* target) {
  const std::string defaults = absl::StrJoin(*target, ",", [](std::string* out, uint64_t bytes) {
    // Without a blank, so that the default can be pasted into a command line.
    absl::StrAppend(out, absl::StrReplaceAll(HumanBytes(bytes), {{" ", ""}}));
  });
  return ManyValues(target, "SIZE", defaults, ParseBytes);
}

FlagValue ByteRate(double* target) {
  return OneValue(target, "RATE", *target == 0 ? "" : HumanRate(*target), ParseRate);
}

FlagValue TimeSpan(absl::Duration* target) {
  return OneValue(target, "DURATION", absl::FormatDuration(*target), ParseDuration);
}

FlagValue Labels(std::map<std::string, std::string>* target) {
  FlagValue value;
  value.type = "KEY=VALUE";
  value.repeated = true;
  value.parse = [target](const std::vector<std::string>& texts) -> absl::Status {
    std::map<std::string, std::string> labels;
    for (const std::string& text : texts) {
      for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
        // Only the first "=" separates, so values can contain one.
        const std::pair<std::string, std::string> label =
            absl::StrSplit(part, absl::MaxSplits('=', 1));
        // Without "=" the first part is the whole text.
        if (label.first.empty() || label.first.size() == part.size()) {
          return absl::InvalidArgumentError(
              absl::StrCat("\"", part, "\" is not a label such as zone=a"));
        }
        // Two values for one key would make the location of the node ambiguous.
        if (!labels.insert(label).second) {
          return absl::InvalidArgumentError(absl::StrCat("label ", label.first, " is given twice"));
        }
      }
    }
    *target = std::move(labels);
    return absl::OkStatus();
  };
  return value;
}

FlagValue Choice(std::string* target, std::vector<std::string> choices) {
  // The list is also the type in the help, so the choices need no text of their own.
  const std::string list = absl::StrJoin(choices, "|");
  FlagValue value =
      OneValue(target, list, *target,
               [choices, list](absl::string_view text) -> absl::StatusOr<std::string> {
                 const std::set<std::string> words(choices.begin(), choices.end());
                 if (words.contains(std::string(text))) return std::string(text);
                 return absl::InvalidArgumentError(
                     absl::StrCat("\"", text, "\" is not one of ", list, DidYouMean(text, words)));
               });
  value.choices = std::move(choices);
  return value;
}

// Derived from the flag's name, so that no setting can lack a variable.
std::string EnvironmentName(absl::string_view names) {
  const std::vector<absl::string_view> all = absl::StrSplit(names, ',');
  const std::string name = absl::AsciiStrToUpper(absl::StripPrefix(all.back(), "--"));
  return absl::StrCat("PHALANX_", absl::StrReplaceAll(name, {{"-", "_"}}));
}

}  // namespace phalanx::runtime
