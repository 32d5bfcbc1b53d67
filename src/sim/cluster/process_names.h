// The names of simulated processes: node 3 is "n3", shard 0 is "s0". Testonly.
#ifndef PHALANX_SIM_CLUSTER_PROCESS_NAMES_H_
#define PHALANX_SIM_CLUSTER_PROCESS_NAMES_H_

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace phalanx::sim {

inline std::string NodeName(int n) { return absl::StrCat("n", n); }
inline std::string ShardName(int s) { return absl::StrCat("s", s); }

// Returns 3 for "n3" if `letter` is 'n'; -1 for the name of another kind of process.
inline int ProcessNumber(absl::string_view name, char letter) {
  int number = -1;
  if (name.empty() || name[0] != letter || !absl::SimpleAtoi(name.substr(1), &number)) return -1;
  return number;
}

}  // namespace phalanx::sim

#endif  // PHALANX_SIM_CLUSTER_PROCESS_NAMES_H_
