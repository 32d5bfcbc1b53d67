// Fuzzes the decoder of the headers of messages. A decoded header encodes to the same bytes.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "src/common/check.h"
#include "src/jobs/messages/message_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = phalanx::jobs::DecodeMessageHeader(bytes);
  if (header.ok()) PHALANX_CHECK(phalanx::jobs::Encode(*header) == bytes, "one form");
  return 0;
}
