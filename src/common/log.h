// The process's log: one line per event, levelled, with key=value fields.
//
//   PHALANX_LOG(INFO) << "pull resumed" << LogField("object", id.hex()) << LogField("offset", n);
//   PHALANX_LOG_EVERY(WARNING, absl::Seconds(1)) << "accept failed" << LogField("error", text);
//
// writes  2022-11-21T01:02:03.004Z INFO  pull_manager.cc:88 pull resumed object=9f.. offset=7
// Any thread may log; set-up calls may come from any thread at any time. Cores do not log. Lines of
// a level that is off cost one relaxed load. Losing what is behind the log (a full disk, a closed
// pipe) loses lines and nothing else: they are counted by LostLogLines().
#ifndef PHALANX_COMMON_LOG_H_
#define PHALANX_COMMON_LOG_H_

#include <atomic>
#include <cstdint>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace phalanx {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Lines below `level` are dropped. The level at start is kInfo.
void SetLogLevel(LogLevel level);
// InvalidArgument unless `name` is debug, info, warning, error or off.
absl::Status SetLogLevel(absl::string_view name);

// Appends to `path` from now on (a file, created when missing) instead of stderr; "" goes back to
// stderr. Unavailable when it cannot be opened; the log then stays where it was.
absl::Status SetLogFile(const std::string& path);

// Lines that could not be written since the process started.
uint64_t LostLogLines();

// " key=value", the value quoted when it has blanks, quotes or control characters in it.
class LogField {
 public:
  LogField(absl::string_view key, const absl::AlphaNum& value);
  friend std::ostream& operator<<(std::ostream& out, const LogField& field);

 private:
  std::string text_;
};

namespace internal {

inline constexpr LogLevel kLogDEBUG = LogLevel::kDebug;
inline constexpr LogLevel kLogINFO = LogLevel::kInfo;
inline constexpr LogLevel kLogWARNING = LogLevel::kWarning;
inline constexpr LogLevel kLogERROR = LogLevel::kError;

extern std::atomic<LogLevel> log_level;
inline bool LogOn(LogLevel level) { return level >= log_level.load(std::memory_order_relaxed); }

// One line; written when it is destroyed.
class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line, uint64_t suppressed = 0);
  ~LogLine();
  std::ostream& stream() { return stream_; }

 private:
  const LogLevel level_;
  std::ostringstream stream_;
};

// Lets a line through at most once per `period` and counts the others. One per call site.
class LogLimiter {
 public:
  // True when a line may be written; `suppressed` is then how many were not since the last.
  bool Pass(absl::Duration period, uint64_t& suppressed);

 private:
  std::atomic<int64_t> next_nanos_{0};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace internal
}  // namespace phalanx

// `level` is DEBUG, INFO, WARNING or ERROR.
#define PHALANX_LOG(level)                                             \
  if (!::phalanx::internal::LogOn(::phalanx::internal::kLog##level)) { \
  } else /* NOLINT */                                                  \
    ::phalanx::internal::LogLine(::phalanx::internal::kLog##level, __FILE__, __LINE__).stream()

// At most one line per `period` from this place in the code, with suppressed=N for those between.
#define PHALANX_LOG_EVERY(level, period)                                               \
  if (!::phalanx::internal::LogOn(::phalanx::internal::kLog##level)) {                 \
  } else if (static ::phalanx::internal::LogLimiter phalanx_limiter; false) {          \
  } else if (uint64_t phalanx_suppressed = 0;                                          \
             !phalanx_limiter.Pass((period), phalanx_suppressed)) {                    \
  } else /* NOLINT */                                                                  \
    ::phalanx::internal::LogLine(::phalanx::internal::kLog##level, __FILE__, __LINE__, \
                                 phalanx_suppressed)                                   \
        .stream()

#endif  // PHALANX_COMMON_LOG_H_
