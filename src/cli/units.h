// Reads and writes quantities in human form: "64MiB", "100mbit", "1.5s". Pure; any thread.
#ifndef PHALANX_CLI_UNITS_H_
#define PHALANX_CLI_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx::runtime {

// Reads "0", "4096", "64KiB", "1.5 GiB", "10MB": a number and B, K/KB/KiB up to P/PB/PiB. KB is
// 1000, K and KiB are 1024. Returns InvalidArgument for any other text, a negative number, or a
// number over 2^63.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// Reads a rate in bytes per second. "12MB/s", "1GiB/s" are bytes; "100mbit", "1gbit/s" are bits
// with decimal prefixes, as is usual for networks. "0" means no limit. InvalidArgument as above,
// and for a number without a unit.
absl::StatusOr<double> ParseRate(absl::string_view text);

// Reads "250ms", "2s", "1m30s", "inf". Returns InvalidArgument for a negative duration, and for a
// bare number except "0".
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// Writes three digits and a binary unit: "0 B", "1023 B", "1.00 KiB", "64.0 MiB".
std::string HumanBytes(uint64_t bytes);
// Writes bytes per second with decimal units: "12.5 MB/s"; "-" for 0.
std::string HumanRate(double bytes_per_second);
// Writes three digits: "850 us", "1.25 s", "2m05s", "3h20m", "4d02h"; "inf".
std::string HumanDuration(absl::Duration duration);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_UNITS_H_
