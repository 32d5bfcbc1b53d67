// The named numbers of a shard's status, each written with its kind, so that none is exported with
// the wrong one. Writes to a response that outlives it; one thread.
#ifndef PHALANX_DIRECTORY_CORE_STATUS_COUNTERS_H_
#define PHALANX_DIRECTORY_CORE_STATUS_COUNTERS_H_

#include <cstdint>
#include <string>

#include "phalanx/v1/tools.pb.h"

namespace phalanx::directory {

class StatusCounters {
 public:
  explicit StatusCounters(v1::GetStatusResponse* out) : out_(*out) {}

  // A number that only grows while the shard lives.
  void Counter(const std::string& name, uint64_t value) {
    (*out_.mutable_counters())[name] = value;
  }
  // A number that can fall. Older tools read it among the counters.
  void Gauge(const std::string& name, uint64_t value) {
    Counter(name, value);
    out_.add_gauges(name);
  }

 private:
  v1::GetStatusResponse& out_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_CORE_STATUS_COUNTERS_H_
