// Parameters of a rabit program: `name=value` among its arguments, which count before those in the
// environment. docs/coming-from.md has the table.
#ifndef PHALANX_RABIT_PARAMETERS_H_
#define PHALANX_RABIT_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace phalanx::rabit {

// mock=rank,version,seq,life: the rank dies as it makes this call, the checkpoint among them.
struct MockDeath {
  int rank = 0;
  int version = 0;
  int seq = 0;
  int life = 0;

  bool operator==(const MockDeath&) const = default;
};

struct Parameters {
  // Whether there are other ranks: there is a job, and no tracker "NULL".
  bool launched = false;
  // A process of another role than "worker" exits at once.
  std::string role = "worker";
  std::string task;  // empty: PHALANX_TASK
  int world = 0;     // 0: PHALANX_WORLD
  int result_copies = 0;
  int local_copies = 0;  // both 0: the default of sessions
  int64_t peer_timeout_ns = 0;
  // Calls before LoadCheckPoint are found again by where they are in the program, not by their
  // order.
  bool boot_by_caller = false;

  // ---- of the mock library
  std::vector<MockDeath> deaths;
  bool report_stats = false;
  bool force_local = false;
  std::optional<int> life;  // rabit_num_trial, or that of the launch

  // Given parameters that have no effect here, in the order in which they came.
  std::vector<std::string> unused;
};

// Returns the value of a variable of the environment, nullptr if it is not set.
using Environment = std::function<const char*(const char* name)>;

// Returns what is wrong, empty if nothing is. Arguments of the program itself are skipped. With
// `mock` those of the mock library count, too.
std::string ReadParameters(int argc, const char* const* argv, const Environment& environment,
                           bool mock, Parameters* to);

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_PARAMETERS_H_
