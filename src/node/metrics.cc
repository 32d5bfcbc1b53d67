#include "src/node/metrics.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace phalanx::runtime {

void MetricsText::Counter(absl::string_view name, absl::string_view help, double value,
                          const Labels& labels) {
  Sample("counter", name, help, value, labels);
}

void MetricsText::Gauge(absl::string_view name, absl::string_view help, double value,
                        const Labels& labels) {
  Sample("gauge", name, help, value, labels);
}

void MetricsText::Sample(absl::string_view type, absl::string_view name, absl::string_view help,
                         double value, const Labels& labels) {
  // The format allows one heading per name, before its first sample.
  if (name != last_name_) {
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
    last_name_ = std::string(name);
  }
  absl::StrAppend(&text_, name);
  for (size_t i = 0; i < labels.size(); ++i) {
    // Node names and addresses come from other hosts, and must not break the format.
    const std::string escaped =
        absl::StrReplaceAll(labels[i].second, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
    absl::StrAppend(&text_, i == 0 ? "{" : ",", labels[i].first, "=\"", escaped, "\"");
  }
  if (!labels.empty()) absl::StrAppend(&text_, "}");
  // Whole numbers are written as such, so that a count of bytes keeps its last digits.
  const bool whole = value == std::floor(value) && std::fabs(value) < 9e15;
  absl::StrAppend(&text_, " ",
                  whole ? absl::StrFormat("%.0f", value) : absl::StrFormat("%.9g", value), "\n");
}

}  // namespace phalanx::runtime
