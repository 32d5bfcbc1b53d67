#include "src/cli/units.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace phalanx::runtime {
namespace {

constexpr absl::string_view kPrefixes = "kmgtp";

// Splits "1.5 GiB" into 1.5 and "gib". Returns false if the text does not start with a number.
bool SplitNumber(absl::string_view text, double& number, std::string& unit) {
  text = absl::StripAsciiWhitespace(text);
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &number)) return false;
  unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(digits)));
  return true;
}

// Returns the factor of "", "b", "k", "kb", "kib", and so on; 0 for anything else. `plain` is the
// base for a prefix without "b" or "ib".
double UnitFactor(absl::string_view unit, double plain) {
  if (unit.empty() || unit == "b") return 1;
  const size_t exponent = kPrefixes.find(unit[0]);
  if (exponent == absl::string_view::npos) return 0;
  const absl::string_view rest = unit.substr(1);
  double base = 0;
  if (rest.empty()) base = plain;
  if (rest == "b") base = 1000;
  if (rest == "ib") base = 1024;
  return base == 0 ? 0 : std::pow(base, static_cast<double>(exponent + 1));
}

// Writes three significant digits. The limits are where rounding would add a digit.
std::string ThreeDigits(double value) {
  return absl::StrFormat("%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  double number = 0;
  std::string unit;
  const double factor = SplitNumber(text, number, unit) ? UnitFactor(unit, 1024) : 0;
  // llround overflows above 2^63.
  if (factor == 0 || number * factor >= 9.2e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a size such as 4096, 64MiB or 1.5GB"));
  }
  uint64_t whole = 0;
  // A double cannot represent every integer above 2^53, so a number without a unit is parsed
  // exactly.
  if (factor == 1 && absl::SimpleAtoi(text, &whole)) return whole;
  return static_cast<uint64_t>(std::llround(number * factor));
}

absl::StatusOr<double> ParseRate(absl::string_view text) {
  const auto bad = [text] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a rate such as 12MB/s, 100mbit or 0 for no limit"));
  };
  double number = 0;
  std::string unit;
  if (!SplitNumber(text, number, unit)) return bad();
  // Zero is the only number that needs no unit.
  if (number == 0 && unit.empty()) return 0.0;
  absl::string_view rest = unit;
  const bool per_second = absl::ConsumeSuffix(&rest, "/s") || absl::ConsumeSuffix(&rest, "ps");
  double factor = 0;
  if (absl::ConsumeSuffix(&rest, "bit")) {
    // Bits always count by thousands, whatever the prefix alone means for bytes.
    factor = rest.empty() ? 1.0 / 8 : UnitFactor(rest, 1000) / 8;
  } else if (per_second && !rest.empty()) {
    factor = UnitFactor(rest, 1000);
  }
  if (factor == 0) return bad();
  return number * factor;
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  if (!absl::ParseDuration(std::string(stripped), &duration) || duration < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a duration such as 250ms, 2s, 1m30s or inf"));
  }
  return duration;
}

std::string HumanBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t prefix = 0;
  // 999.5 would round to four digits, so the next unit starts there.
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1024;
    ++prefix;
  }
  const char letter = absl::ascii_toupper(kPrefixes[prefix]);
  return absl::StrFormat("%s %ciB", ThreeDigits(value), letter);
}

std::string HumanRate(double bytes_per_second) {
  if (!(bytes_per_second > 0)) return "-";
  double value = bytes_per_second / 1000;
  size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  // "kB" is the only unit with a small letter.
  const char letter = prefix == 0 ? 'k' : absl::ascii_toupper(kPrefixes[prefix]);
  return absl::StrFormat("%s %cB/s", ThreeDigits(value), letter);
}

std::string HumanDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "inf";
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 0.0009995) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 0.9995) return absl::StrCat(ThreeDigits(seconds * 1e3), " ms");
  if (seconds < 60) return absl::StrCat(ThreeDigits(seconds), " s");
  const int64_t whole = absl::ToInt64Seconds(duration);
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%dd%02dh", whole / 86400, whole / 3600 % 24);
}

}  // namespace phalanx::runtime
