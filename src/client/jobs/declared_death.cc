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

// Numbers of calls and checkpoints begin with 1.
std::optional<uint64_t> ParsePlace(absl::string_view text) {
  const std::optional<uint64_t> number = ParseDigits(text);
  return number == 0 ? std::nullopt : number;
}

}  // namespace

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
  }
  return "";
}

}  // namespace phalanx::internal
