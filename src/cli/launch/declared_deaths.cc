#include "src/cli/launch/declared_deaths.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr absl::string_view kMock = "mock=";
// Rank, version, sequence number and life.
constexpr size_t kMockNumbers = 4;
constexpr size_t kMockLife = 3;

// The numbers of a word such as mock=3,1,0,2; nothing if it is no such word.
std::optional<std::vector<uint64_t>> MockNumbers(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, kMock)) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const absl::string_view text : absl::StrSplit(word, ',')) {
    const std::optional<uint64_t> number = internal::ParseDigits(text);
    // Rabit's are ints.
    if (!number || *number > std::numeric_limits<int>::max()) return std::nullopt;
    numbers.push_back(*number);
  }
  if (numbers.size() != kMockNumbers) return std::nullopt;
  return numbers;
}

std::string MockText(const std::vector<uint64_t>& numbers) {
  return absl::StrCat(kMock, absl::StrJoin(numbers, ","));
}

// What a mark says, written as Death::mark.
std::string Normal(absl::string_view mark) {
  if (const auto numbers = MockNumbers(mark)) return MockText(*numbers);
  if (const auto point = internal::ParseDeathPoint(mark)) return internal::DeathPointText(*point);
  // Any program can have written it.
  return absl::CHexEscape(mark);
}

}  // namespace

absl::string_view DeathInMark(absl::string_view mark, int life, std::optional<int> process) {
  const std::vector<absl::string_view> words = absl::StrSplit(mark, absl::MaxSplits(' ', 2));
  if (words.size() < 3 || internal::ParseDigits(words[0]) != static_cast<uint64_t>(life)) return "";
  if (!process) return words[2];
  return internal::ParseDigits(words[1]) == static_cast<uint64_t>(*process) ? words[2] : "";
}

absl::StatusOr<DeclaredDeaths> DeclaredDeaths::Parse(const std::vector<std::string>& fail,
                                                     const std::vector<std::string>& command,
                                                     int first, int tasks, int world) {
  DeclaredDeaths deaths;
  for (const std::string& text : fail) {
    PHALANX_RETURN_IF_ERROR(deaths.AddFail(text, first, tasks, world));
  }
  for (const std::string& word : command) deaths.AddMock(word, first, tasks, world);
  return deaths;
}

absl::Status DeclaredDeaths::AddFail(absl::string_view text, int first, int tasks, int world) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  const std::optional<uint64_t> number = internal::ParseDigits(parts.first);
  const std::optional<internal::DeathPoint> point = internal::ParseDeathPoint(parts.second);
  if (!number || !point) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fail: expected TASK@POINT like 3@57, where "
                     "POINT is ",
                     internal::kDeathPointForms, ", got \"", text, "\""));
  }
  if (*number >= static_cast<uint64_t>(world)) {
    return absl::InvalidArgumentError(absl::StrCat("--fail: there is no task ", *number,
                                                   " in a world of ", world, ": \"", text, "\""));
  }
  Death death;
  death.text = std::string(text);
  death.number = static_cast<int>(*number);
  if (death.number < first || death.number - first >= tasks) return absl::OkStatus();
  death.task = static_cast<size_t>(death.number - first);
  death.life =
      static_cast<int>(std::count_if(deaths_.begin(), deaths_.end(), [&death](const Death& each) {
        return each.task == death.task;
      }));
  death.point = point;
  death.mark = internal::DeathPointText(*point);
  deaths_.push_back(std::move(death));
  return absl::OkStatus();
}

void DeclaredDeaths::AddMock(absl::string_view word, int first, int tasks, int world) {
  const std::optional<std::vector<uint64_t>> numbers = MockNumbers(word);
  if (!numbers) return;
  Death death;
  death.text = std::string(word);
  death.mark = MockText(*numbers);
  death.number = static_cast<int>((*numbers)[0]);
  death.life = static_cast<int>((*numbers)[kMockLife]);
  const bool beyond = death.number >= world;
  const bool here = death.number >= first && death.number - first < tasks;
  if (!here && !(beyond && first == 0)) return;
  death.task = here ? static_cast<size_t>(death.number - first) : kNoTask;
  // Rabit makes a death that is declared twice once.
  const bool again = std::any_of(deaths_.begin(), deaths_.end(),
                                 [&death](const Death& each) { return each.mark == death.mark; });
  if (!again) deaths_.push_back(std::move(death));
}

std::string DeclaredDeaths::PointOf(size_t task, int life) const {
  for (const Death& death : deaths_) {
    if (death.point && death.task == task && death.life == life) return death.mark;
  }
  return "";
}

bool DeclaredDeaths::Has(size_t task, int life) const {
  return std::any_of(deaths_.begin(), deaths_.end(), [task, life](const Death& death) {
    return death.task == task && death.life == life;
  });
}

void DeclaredDeaths::Ended(size_t task, int life, absl::string_view how, absl::string_view mark) {
  const std::string made = Normal(mark);
  for (Death& death : deaths_) {
    if (death.task != task || death.life != life) continue;
    death.made = death.mark == made;
    death.how = absl::StrCat(how, made.empty() ? "" : absl::StrCat(" (", made, ")"));
  }
}

std::optional<std::string> DeclaredDeaths::Missed(size_t task, int life) const {
  for (const Death& death : deaths_) {
    const bool due = death.point && death.task == task && death.life == life;
    if (due && !death.made) return Line(death);
  }
  return std::nullopt;
}

std::vector<std::string> DeclaredDeaths::TakeUnmade() {
  std::vector<std::string> lines;
  for (const Death& death : std::exchange(deaths_, {})) {
    if (!death.made) lines.push_back(Line(death));
  }
  return lines;
}

std::string DeclaredDeaths::Line(const Death& death) {
  std::string line = absl::StrCat("declared death ", death.text, " was not made: ");
  if (death.task == kNoTask) {
    absl::StrAppend(&line, "there is no task ", death.number);
  } else if (death.how.empty()) {
    absl::StrAppend(&line, "task ", death.number, " has not had life ", death.life);
  } else {
    absl::StrAppend(&line, death.how, " in life ", death.life);
  }
  return line;
}

}  // namespace phalanx::runtime
