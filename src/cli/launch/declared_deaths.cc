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
constexpr uint64_t kMaxLife = 1 << 20;

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

struct NamedTask {
  const RolePlace* role;
  uint64_t number;
};

// The task in a text such as "3" or "server3"; nothing if it is neither a number nor a role and a
// number.
std::optional<NamedTask> TaskIn(absl::string_view text, const LaunchTasks& tasks) {
  const RolePlace* workers = tasks.Role(kWorkerRole);
  if (const auto number = internal::ParseDigits(text)) {
    return NamedTask{workers != nullptr ? workers : &tasks.roles().front(), *number};
  }
  for (const RolePlace& role : tasks.roles()) {
    absl::string_view rest = text;
    if (!absl::ConsumePrefix(&rest, role.role)) continue;
    if (const auto number = internal::ParseDigits(rest)) return NamedTask{&role, *number};
  }
  return std::nullopt;
}

// What a text of --fail declares. Without a life: the task's next one.
struct Declaration {
  NamedTask task;
  internal::DeathPoint point;
  std::optional<int> life;
};

// A death at another point would be found to be missing at the end of the launch alone.
bool MakesSense(absl::string_view role, internal::DeathPoint::Kind kind) {
  using Kind = internal::DeathPoint::Kind;
  // Which part a spare gets, and in which life, is not known before.
  if (role == kSpareRole) return false;
  if (role == kServerRole) return kind != Kind::kPull;
  return role != kWorkerRole || (kind != Kind::kSnapshot && kind != Kind::kRestore);
}

// Such as server:1,20,0 and snapshot:1000: the clock and the life are with the task.
std::optional<Declaration> OfParameterServer(absl::string_view role, absl::string_view rest,
                                             absl::string_view where, const LaunchTasks& tasks) {
  // A text of a null pointer has no words.
  if (where.empty()) return std::nullopt;
  const std::vector<absl::string_view> numbers = absl::StrSplit(rest, ',');
  const std::vector<absl::string_view> words = absl::StrSplit(where, ':');
  if (numbers.size() != 3) return std::nullopt;
  const auto kind = internal::ParameterServerPoint(words[0]);
  const auto life = internal::ParseDigits(numbers[2]);
  if (!kind || !MakesSense(role, *kind) || !life || *life > kMaxLife) return std::nullopt;
  const auto task = TaskIn(absl::StrCat(role, numbers[0]), tasks);
  const std::string bytes = words.size() > 1 ? absl::StrCat(":", words[1]) : "";
  const auto point = internal::ParseDeathPoint(absl::StrCat(words[0], ":", numbers[1], bytes));
  if (!task || !point || words.size() > 2) return std::nullopt;
  return Declaration{*task, *point, static_cast<int>(*life)};
}

std::optional<Declaration> DeclarationIn(absl::string_view text, const LaunchTasks& tasks) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  const std::pair<absl::string_view, absl::string_view> named =
      absl::StrSplit(parts.first, absl::MaxSplits(':', 1));
  if (!named.second.empty()) {
    return OfParameterServer(named.first, named.second, parts.second, tasks);
  }
  const std::optional<NamedTask> task = TaskIn(parts.first, tasks);
  const std::optional<internal::DeathPoint> point = internal::ParseDeathPoint(parts.second);
  if (!task || !point || !MakesSense(task->role->role, point->kind)) return std::nullopt;
  return Declaration{*task, *point, std::nullopt};
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
                                                     const LaunchTasks& tasks) {
  DeclaredDeaths deaths;
  for (const std::string& text : fail) {
    PHALANX_RETURN_IF_ERROR(deaths.AddFail(text, tasks));
  }
  const RolePlace* workers = tasks.Role(kWorkerRole);
  if (workers == nullptr) return deaths;
  for (const std::string& word : command) deaths.AddMock(word, *workers, tasks);
  return deaths;
}

absl::Status DeclaredDeaths::AddFail(absl::string_view text, const LaunchTasks& tasks) {
  const std::optional<Declaration> declared = DeclarationIn(text, tasks);
  if (!declared) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--fail: expected TASK@POINT like 3@57 or ", TaskName(tasks.roles().front().role, 3),
        "@57, where POINT is ", internal::kDeathPointForms,
        ", or server:RANK,CLOCK,LIFE@push, @clock, @snapshot:BYTES or @restore, or "
        "worker:RANK,CLOCK,LIFE@push, @pull or @clock, got \"",
        text, "\""));
  }
  const NamedTask* const task = &declared->task;
  if (task->number >= static_cast<uint64_t>(task->role->world)) {
    return absl::InvalidArgumentError(absl::StrCat("--fail: there is no ", task->role->role,
                                                   task->number, " in a world of ",
                                                   task->role->world, ": \"", text, "\""));
  }
  const int number = static_cast<int>(task->number);
  const std::optional<size_t> here = tasks.Find(task->role->role, number);
  if (!here) return absl::OkStatus();
  Death death;
  death.text = std::string(text);
  death.name = TaskName(task->role->role, number);
  death.task = *here;
  if (declared->life.has_value()) {
    death.life = *declared->life;
  } else {
    while (Has(death.task, death.life)) ++death.life;
  }
  if (Has(death.task, death.life)) {
    return absl::InvalidArgumentError(absl::StrCat("--fail: life ", death.life, " of ", death.name,
                                                   " has another death already: \"", text, "\""));
  }
  death.point = declared->point;
  death.mark = internal::DeathPointText(death.point.value());
  deaths_.push_back(std::move(death));
  return absl::OkStatus();
}

void DeclaredDeaths::AddMock(absl::string_view word, const RolePlace& workers,
                             const LaunchTasks& tasks) {
  const std::optional<std::vector<uint64_t>> numbers = MockNumbers(word);
  if (!numbers) return;
  Death death;
  death.text = std::string(word);
  death.mark = MockText(*numbers);
  const int number = static_cast<int>((*numbers)[0]);
  death.name = TaskName(workers.role, number);
  death.life = static_cast<int>((*numbers)[kMockLife]);
  const bool beyond = number >= workers.world;
  const std::optional<size_t> here = tasks.Find(workers.role, number);
  if (!here && !(beyond && tasks.Find(workers.role, 0))) return;
  death.task = here.value_or(kNoTask);
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
    absl::StrAppend(&line, "there is no ", death.name);
  } else if (death.how.empty()) {
    absl::StrAppend(&line, death.name, " has not had life ", death.life);
  } else {
    absl::StrAppend(&line, death.how, " in life ", death.life);
  }
  return line;
}

}  // namespace phalanx::runtime
