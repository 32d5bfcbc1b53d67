// The process's log: one line per event, with a level and key=value fields.
//
//   PHALANX_LOG(INFO) << "pull resumed" << LogField("object", id.hex()) << LogField("offset", n);
//   PHALANX_LOG_EVERY(WARNING, absl::Seconds(1)) << "accept failed" << LogField("error", text);
//
// writes  2022-11-21T01:02:03.004Z INFO  pull_manager.cc:88 pull resumed object=9f.. offset=7 Any
// thread may log, and may call the set-up functions at any time. Cores do not log. A line of a
// level that is off costs one relaxed load. If the log's file fails (a full disk, a closed pipe),
// lines are lost and nothing else happens; LostLogLines() counts them.
#ifndef PHALANX_COMMON_IO_LOG_H_
#define PHALANX_COMMON_IO_LOG_H_

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

// Drops lines below `level`. The initial level is kInfo.
void SetLogLevel(LogLevel level);
// Returns InvalidArgument if `name` is not debug, info, warning, error or off.
absl::Status SetLogLevel(absl::string_view name);

// Appends later lines to the file `path`, which is created if it does not exist, instead of stderr.
// "" selects stderr again. Returns Unavailable if the file cannot be opened; the log then keeps its
// current output.
absl::Status SetLogFile(const std::string& path);

// Returns the number of lines that could not be written since the process started.
uint64_t LostLogLines();

// Prints " key=value". The value is quoted if it contains blanks, quotes or control characters.
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

// One line. The destructor writes it.
class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line, uint64_t suppressed = 0);
  ~LogLine();
  std::ostream& stream() { return stream_; }

 private:
  const LogLevel level_;
  std::ostringstream stream_;
};

// Passes at most one line per `period` and counts the others. One instance per call site.
class LogLimiter {
 public:
  // True if the caller may write a line. `suppressed` is then the number of lines dropped
  // since the last one.
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

// Writes at most one line per `period` from this call site. suppressed=N counts the lines dropped
// between two.
#define PHALANX_LOG_EVERY(level, period)                                               \
  if (!::phalanx::internal::LogOn(::phalanx::internal::kLog##level)) {                 \
  } else if (static ::phalanx::internal::LogLimiter phalanx_limiter; false) {          \
  } else if (uint64_t phalanx_suppressed = 0;                                          \
             !phalanx_limiter.Pass((period), phalanx_suppressed)) {                    \
  } else /* NOLINT */                                                                  \
    ::phalanx::internal::LogLine(::phalanx::internal::kLog##level, __FILE__, __LINE__, \
                                 phalanx_suppressed)                                   \
        .stream()

#endif  // PHALANX_COMMON_IO_LOG_H_
