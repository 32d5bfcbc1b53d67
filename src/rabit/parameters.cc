#include "src/rabit/parameters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <string_view>

namespace phalanx::rabit {
namespace {

// How long a call waits for ranks that are missing, if nothing is given: Rabit's own number.
constexpr int kDefaultTimeoutSeconds = 1800;
constexpr int64_t kNanosPerSecond = 1'000'000'000;
// What a session can keep.
constexpr int kMostResultCopies = 16;
constexpr int kMostLocalCopies = 15;
// No limit, in phalanx/c.h.
constexpr int64_t kForever = -1;

// What is read so far. Some parameters say something only together.
struct Reading {
  Parameters& to;
  bool mock;            // parameters of the mock library count
  std::string role;     // of the launch
  std::string tracker;  // its address, if one is given
  bool timeout = true;
  int timeout_seconds = kDefaultTimeoutSeconds;
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  return lower;
}

// The whole text is the number.
std::optional<int> Integer(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The functions below read a value, and return what it should be if it is not that.

std::string ReadBool(std::string_view value, bool* to) {
  const std::string lower = Lower(value);
  *to = lower == "true" || lower == "1";
  return *to || lower == "false" || lower == "0" ? "" : "true, false, 1 or 0";
}

std::string ReadCount(std::string_view value, int* to) {
  const std::optional<int> read = Integer(value);
  if (!read || *read < 1) return "a number from 1 on";
  *to = *read;
  return "";
}

// A program can ask for more than a session keeps: it gets the most.
std::string ReadCopies(std::string_view value, int most, int* to) {
  std::string wanted = ReadCount(value, to);
  *to = std::min(*to, most);
  return wanted;
}

// Digits, and one of B, K, M and G, with which a B can come.
std::string CheckSize(std::string_view value) {
  const size_t digits = std::min(value.find_first_not_of("0123456789"), value.size());
  const std::string unit = Lower(value.substr(digits));
  const char* const units[] = {"", "b", "k", "kb", "m", "mb", "g", "gb"};
  const bool known = std::find(std::begin(units), std::end(units), unit) != std::end(units);
  return digits > 0 && known ? "" : "a size, such as 256MB";
}

std::string ReadDeath(std::string_view value, std::vector<MockDeath>* to) {
  int numbers[4] = {};
  for (int i = 0; i < 4; ++i) {
    const size_t comma = i < 3 ? value.find(',') : value.size();
    const std::optional<int> number =
        comma == std::string_view::npos ? std::nullopt : Integer(value.substr(0, comma));
    if (!number || *number < 0) return "RANK,VERSION,SEQ,LIFE";
    numbers[i] = *number;
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  to->push_back({numbers[0], numbers[1], numbers[2], numbers[3]});
  return "";
}

std::string ReadTask(std::string_view value, const std::string& role, std::string* to) {
  if (value == "NULL") return "";
  // The place of a task called worker3 is 3.
  const bool number = Integer(value).has_value();
  *to = number ? role + std::string(value) : std::string(value);
  return "";
}

// Rabit writes a negative number where the launcher says it.
std::string ReadWorld(std::string_view value, int* to) {
  const std::optional<int> world = Integer(value);
  if (!world || *world == 0) return "a number from 1 on, or -1";
  *to = std::max(*world, 0);
  return "";
}

std::string ReadLife(std::string_view value, std::optional<int>* to) {
  *to = Integer(value);
  return to->has_value() && **to >= 0 ? "" : "a number from 0 on";
}

// Parameters that Phalanx has no use for: their values are checked, and they are listed.
std::string CheckUnused(const std::string& name, std::string_view value, Parameters* to) {
  bool ignored = false;
  int number = 0;
  std::string wanted;
  const bool of_mock = name == "mock" || name == "report_stats" || name == "force_local";
  if (name == "rabit_reduce_buffer" || name == "rabit_tree_reduce_minsize") {
    wanted = CheckSize(value);
  } else if (name == "rabit_reduce_ring_mincount" || name == "rabit_tracker_port" ||
             name == "DMLC_WORKER_CONNECT_RETRY" || name == "DMLC_TRACKER_PORT") {
    wanted = ReadCount(value, &number);
  } else if (name == "rabit_debug" || name == "rabit_enable_tcp_no_delay" ||
             name == "rabit_hadoop_mode") {
    wanted = ReadBool(value, &ignored);
  } else if (!of_mock && name.rfind("rabit_", 0) != 0) {
    return "";
  }
  if (std::find(to->unused.begin(), to->unused.end(), name) == to->unused.end()) {
    to->unused.push_back(name);
  }
  return wanted;
}

// Sets `known` if the parameter has an effect.
std::string ReadMeaningful(const std::string& name, std::string_view value, Reading* reading,
                           bool* known) {
  Parameters& to = reading->to;
  *known = true;
  if (name == "rabit_tracker_uri" || name == "DMLC_TRACKER_URI") {
    reading->tracker = value;
    return "";
  }
  if (name == "rabit_task_id" || name == "DMLC_TASK_ID")
    return ReadTask(value, reading->role, &to.task);
  if (name == "rabit_world_size" || name == "DMLC_NUM_WORKER") return ReadWorld(value, &to.world);
  if (name == "DMLC_ROLE") {
    to.role = value;
    return "";
  }
  if (name == "rabit_global_replica") {
    return ReadCopies(value, kMostResultCopies, &to.result_copies);
  }
  if (name == "rabit_local_replica") return ReadCopies(value, kMostLocalCopies, &to.local_copies);
  if (name == "rabit_timeout") return ReadBool(value, &reading->timeout);
  if (name == "rabit_timeout_sec") return ReadCount(value, &reading->timeout_seconds);
  if (name == "rabit_bootstrap_cache") return ReadBool(value, &to.boot_by_caller);
  if (reading->mock && name == "mock") return ReadDeath(value, &to.deaths);
  if (reading->mock && name == "report_stats") return ReadBool(value, &to.report_stats);
  if (reading->mock && name == "force_local") return ReadBool(value, &to.force_local);
  if (name == "rabit_num_trial" || name == "DMLC_NUM_ATTEMPT") return ReadLife(value, &to.life);
  *known = false;
  return "";
}

// Returns an error, with the name and the value in it.
std::string Read(const std::string& name, std::string_view value, Reading* reading) {
  bool known = false;
  std::string wanted = ReadMeaningful(name, value, reading, &known);
  if (!known) wanted = CheckUnused(name, value, &reading->to);
  if (wanted.empty()) return "";
  return name + "=" + std::string(value) + ": the value is " + wanted;
}

// Those that Rabit looks for in the environment. Of launchers' DMLC_ variables the tracker's port
// and the like say nothing here.
constexpr const char* kVariables[] = {
    "DMLC_TRACKER_URI",
    "DMLC_ROLE",
    "rabit_tracker_uri",
    "rabit_tracker_port",
    "rabit_task_id",
    "rabit_world_size",
    "rabit_reduce_buffer",
    "rabit_reduce_ring_mincount",
    "rabit_tree_reduce_minsize",
    "rabit_global_replica",
    "rabit_local_replica",
    "rabit_bootstrap_cache",
    "rabit_timeout",
    "rabit_timeout_sec",
    "rabit_debug",
    "rabit_enable_tcp_no_delay",
    "rabit_hadoop_mode",
    "rabit_num_trial",
};
// The launch's own variables count before these.
constexpr const char* kLaunchersVariables[][2] = {
    {"DMLC_TASK_ID", "PHALANX_TASK"},
    {"DMLC_NUM_WORKER", "PHALANX_WORLD"},
    {"DMLC_NUM_ATTEMPT", "PHALANX_LIFE"},
};

// A variable that is empty counts as one that is not set.
bool IsSet(const char* value) { return value != nullptr && *value != '\0'; }

// Those of the launchers come first, so that Rabit's own names count before them.
std::string ReadEnvironment(const Environment& environment, Reading* reading) {
  std::string wrong;
  for (const auto& [name, own] : kLaunchersVariables) {
    const char* const value = environment(name);
    if (!IsSet(value) || IsSet(environment(own))) continue;
    wrong = Read(name, value, reading);
    if (!wrong.empty()) return wrong;
  }
  // Rabit counts the processes of a rank, as the launch does; a session counts those that joined.
  const char* const life = environment("PHALANX_LIFE");
  if (IsSet(life)) wrong = Read("DMLC_NUM_ATTEMPT", life, reading);
  if (!wrong.empty()) return wrong;
  for (const char* const name : kVariables) {
    const char* const value = environment(name);
    if (IsSet(value)) wrong = Read(name, value, reading);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Sets what follows from several parameters together.
std::string Finish(const Environment& environment, Reading* reading) {
  Parameters& to = reading->to;
  to.peer_timeout_ns = reading->timeout ? reading->timeout_seconds * kNanosPerSecond : kForever;
  const bool job = IsSet(environment("PHALANX_JOB"));
  const bool alone = reading->tracker == "NULL";
  to.launched = job && !alone;
  const char* const world = environment("PHALANX_WORLD");
  // The first rank that joins says for all how many there are.
  if (to.launched && to.world != 0 && IsSet(world) && Integer(world) != to.world) {
    return "rabit_world_size=" + std::to_string(to.world) + ": the launch has a world of " + world;
  }
  // Each process would run alone, and none would notice.
  if (!job && !alone && !reading->tracker.empty()) {
    return "there is a tracker (" + reading->tracker +
           "), but no job: this library has no use for Rabit's tracker; start the program with "
           "`phalanx launch`";
  }
  return "";
}

}  // namespace

std::string ReadParameters(int argc, const char* const* argv, const Environment& environment,
                           bool mock, Parameters* to) {
  const char* const role = environment("PHALANX_ROLE");
  Reading reading{*to, mock, IsSet(role) ? role : to->role, "", true, kDefaultTimeoutSeconds};
  std::string wrong = ReadEnvironment(environment, &reading);
  for (int i = 0; i < argc && wrong.empty(); ++i) {
    const char* const equals = argv[i] == nullptr ? nullptr : std::strchr(argv[i], '=');
    // Rabit skips names without a value, too.
    if (equals == nullptr || equals[1] == '\0') continue;
    wrong = Read(std::string(argv[i], equals), equals + 1, &reading);
  }
  return wrong.empty() ? Finish(environment, &reading) : wrong;
}

}  // namespace phalanx::rabit
