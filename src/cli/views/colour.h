// Colours of a terminal. Pure except HasColours; any thread.
#ifndef PHALANX_CLI_VIEWS_COLOUR_H_
#define PHALANX_CLI_VIEWS_COLOUR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

enum class Colour { kBold, kRed, kGreen, kYellow };

// Returns whether a descriptor is a terminal that shows colours: not if TERM is "dumb", nor if
// NO_COLOR is set and not empty (https://no-color.org).
bool HasColours(int fd);

// Returns the text between the escape sequences of the colour; the text itself if `colours` is
// false or it is empty.
std::string Painted(absl::string_view text, Colour colour, bool colours);

// Returns the length of the escape sequence of a colour at the start of `text`; 0 if there is none.
size_t ColourLength(absl::string_view text);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_COLOUR_H_
