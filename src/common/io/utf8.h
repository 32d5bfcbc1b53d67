// Checks that a text can be sent in a protobuf string.
#ifndef PHALANX_COMMON_IO_UTF8_H_
#define PHALANX_COMMON_IO_UTF8_H_

#include "absl/strings/string_view.h"

namespace phalanx {

// True if `text` is UTF-8 as RFC 3629 defines it: no surrogates, no overlong sequences,
// nothing beyond U+10FFFF. Protobuf writes other text into a string, but fails to parse it.
bool IsUtf8(absl::string_view text);

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_UTF8_H_
