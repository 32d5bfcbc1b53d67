// Writes metrics in Prometheus' text format (version 0.0.4).
//
// A value; one thread. Hand-written, because the format is small and the libraries that write it
// bring a web server with its own threads.
#ifndef PHALANX_NODE_METRICS_H_
#define PHALANX_NODE_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

class MetricsText {
 public:
  using Labels = std::vector<std::pair<absl::string_view, absl::string_view>>;

  // Samples of one name must follow each other; only the `help` of the first one is written.
  // REQUIRES: `name` is a valid Prometheus name; a counter's name ends in "_total".
  void Counter(absl::string_view name, absl::string_view help, double value,
               const Labels& labels = {});
  void Gauge(absl::string_view name, absl::string_view help, double value,
             const Labels& labels = {});

  const std::string& text() const { return text_; }

 private:
  void Sample(absl::string_view type, absl::string_view name, absl::string_view help, double value,
              const Labels& labels);

  std::string text_;
  std::string last_name_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_METRICS_H_
