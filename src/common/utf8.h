// Text that may travel in a protobuf string.
#ifndef PHALANX_COMMON_UTF8_H_
#define PHALANX_COMMON_UTF8_H_

#include "absl/strings/string_view.h"

namespace phalanx {

// Whether it is UTF-8 as RFC 3629 has it: no surrogates, nothing longer than it must be, nothing
// beyond U+10FFFF. Protobuf writes other text into a string, but does not read it back.
bool IsUtf8(absl::string_view text);

}  // namespace phalanx

#endif  // PHALANX_COMMON_UTF8_H_
