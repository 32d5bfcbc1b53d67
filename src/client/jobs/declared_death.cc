#include "src/client/jobs/declared_death.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace phalanx::internal {
namespace {

using Kind = DeathPoint::Kind;

constexpr absl::string_view kEntry = "entry";
constexpr absl::string_view kPut = "put";
constexpr absl::string_view kLoad = "load";
constexpr absl::string_view kCheckpoint = "checkpoint";
constexpr absl::string_view kLeave = "leave";

struct Named {
  absl::string_view word;
  Kind kind;
};
constexpr Named kOfParameterServer[] = {{"push", Kind::kPush},
                                        {"pull", Kind::kPull},
                                        {"clock", Kind::kClock},
                                        {"snapshot", Kind::kSnapshot},
                                        {"restore", Kind::kRestore}};

// Numbers of calls and checkpoints begin with 1.
std::optional<uint64_t> ParsePlace(absl::string_view text) {
  const std::optional<uint64_t> number = ParseDigits(text);
  return number == 0 ? std::nullopt : number;
}

// WORD:CLOCK, or with the bytes of a snapshot behind it.
std::optional<DeathPoint> ParseParameterServer(Kind kind,
                                               const std::vector<absl::string_view>& words) {
  if (words.size() != (kind == Kind::kSnapshot ? 3 : 2)) return std::nullopt;
  const std::optional<uint64_t> clock = ParseDigits(words[1]);
  const std::optional<uint64_t> bytes = ParseDigits(words.size() == 3 ? words[2] : "0");
  if (!clock || !bytes) return std::nullopt;
  return DeathPoint{kind, *clock, *bytes};
}

}  // namespace

std::optional<DeathPoint::Kind> ParameterServerPoint(absl::string_view word) {
  for (const Named& named : kOfParameterServer) {
    if (named.word == word) return named.kind;
  }
  return std::nullopt;
}

std::optional<uint64_t> ParseDigits(absl::string_view text) {
  uint64_t number = 0;
  // SimpleAtoi takes signs and spaces, too.
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return std::nullopt;
  }
  if (!absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

std::optional<DeathPoint> ParseDeathPoint(absl::string_view text) {
  // A text of a null pointer has no words.
  if (text.empty()) return std::nullopt;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ':');
  if (words.size() == 1 && words[0] == kLoad) return DeathPoint{Kind::kLoad};
  if (words.size() == 1 && words[0] == kLeave) return DeathPoint{Kind::kLeave};
  if (const auto kind = ParameterServerPoint(words[0])) return ParseParameterServer(*kind, words);
  const bool checkpoint = words[0] == kCheckpoint && words.size() <= 2;
  if (checkpoint && words.size() == 1) return DeathPoint{Kind::kCheckpoint, 1};
  const std::optional<uint64_t> place = ParsePlace(checkpoint ? words[1] : words[0]);
  if (!place) return std::nullopt;
  if (checkpoint) return DeathPoint{Kind::kCheckpoint, *place};
  if (words.size() == 1 || (words.size() == 2 && words[1] == kEntry)) {
    return DeathPoint{Kind::kCall, *place};
  }
  if (words.size() != 3 || words[1] != kPut) return std::nullopt;
  const std::optional<uint64_t> bytes = ParseDigits(words[2]);
  if (!bytes) return std::nullopt;
  return DeathPoint{Kind::kPut, *place, *bytes};
}

std::string DeathPointText(const DeathPoint& point) {
  switch (point.kind) {
    case Kind::kNone:
      return "";
    case Kind::kCall:
      return absl::StrCat(point.number);
    case Kind::kPut:
      return absl::StrCat(point.number, ":", kPut, ":", point.bytes);
    case Kind::kLoad:
      return std::string(kLoad);
    case Kind::kCheckpoint:
      return absl::StrCat(kCheckpoint, ":", point.number);
    case Kind::kLeave:
      return std::string(kLeave);
    default:
      break;
  }
  for (const Named& named : kOfParameterServer) {
    if (named.kind != point.kind) continue;
    const std::string bytes =
        point.kind == Kind::kSnapshot ? absl::StrCat(":", point.bytes) : std::string();
    return absl::StrCat(named.word, ":", point.number, bytes);
  }
  return "";
}

}  // namespace phalanx::internal
