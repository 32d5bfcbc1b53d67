// Quantities as people write them, both ways: "64MiB", "100mbit", "1.5s". Pure; any thread.
#ifndef PHALANX_RUNTIME_UNITS_H_
#define PHALANX_RUNTIME_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

// "0", "4096", "64KiB", "1.5 GiB", "10MB": a number and B, K/KB/KiB up to P/PB/PiB. KB is 1000, K
// and KiB are 1024. InvalidArgument for anything else, negative or over 2^63.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// Bytes a second. "12MB/s", "1GiB/s" in bytes; "100mbit", "1gbit/s" in bits, by thousands as
// networks count. "0" is no limit. InvalidArgument as above, and for a number without a unit.
absl::StatusOr<double> ParseRate(absl::string_view text);

// "250ms", "2s", "1m30s", "inf". InvalidArgument for negative ones and bare numbers but "0".
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// Three digits and a binary unit: "0 B", "1023 B", "1.00 KiB", "64.0 MiB".
std::string HumanBytes(uint64_t bytes);
// In bytes by thousands: "12.5 MB/s"; "-" for 0.
std::string HumanRate(double bytes_per_second);
// Three digits: "850 us", "1.25 s", "2m05s", "3h20m", "4d02h"; "inf".
std::string HumanDuration(absl::Duration duration);

}  // namespace phalanx::runtime

#endif  // PHALANX_RUNTIME_UNITS_H_
