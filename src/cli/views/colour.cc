#include "src/cli/views/colour.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace phalanx::runtime {
namespace {

constexpr absl::string_view kStart = "\x1b[";
constexpr absl::string_view kEnd = "\x1b[0m";

// Numbers that every terminal with colours knows; its user has chosen how they look.
absl::string_view CodeOf(Colour colour) {
  switch (colour) {
    case Colour::kBold:
      return "1m";
    case Colour::kRed:
      return "31m";
    case Colour::kGreen:
      return "32m";
    case Colour::kYellow:
      return "33m";
  }
  return "0m";
}

}  // namespace

bool HasColours(int fd) {
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || absl::string_view(terminal) == "dumb") return false;
  return isatty(fd) == 1;
}

std::string Painted(absl::string_view text, Colour colour, bool colours) {
  if (!colours || text.empty()) return std::string(text);
  return absl::StrCat(kStart, CodeOf(colour), text, kEnd);
}

size_t ColourLength(absl::string_view text) {
  if (!absl::StartsWith(text, kStart)) return 0;
  const size_t end = text.find_first_not_of("0123456789;", kStart.size());
  return end != absl::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace phalanx::runtime
