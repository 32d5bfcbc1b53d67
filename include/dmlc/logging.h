// CHECK and LOG of programs for ps-lite. If the program has dmlc-core in any folder of its include
// path, that library's file is used instead.
#ifndef DMLC_LOGGING_H_
#if defined(__GNUC__)
#pragma GCC system_header
#endif
#if defined(__has_include_next)
#if __has_include_next(<dmlc/logging.h>)
#define RABIT_DMLC_LOGGING_FOLLOWS
#endif
#endif
#ifdef RABIT_DMLC_LOGGING_FOLLOWS
#undef RABIT_DMLC_LOGGING_FOLLOWS
#include_next <dmlc/logging.h>
#else
#define DMLC_LOGGING_H_

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// With 0, a failed CHECK and LOG(FATAL) abort the process instead of throwing dmlc::Error.
#ifndef DMLC_LOG_FATAL_THROW
#define DMLC_LOG_FATAL_THROW 1
#endif

namespace dmlc {

struct Error : public std::runtime_error {
  explicit Error(const std::string& text) : std::runtime_error(text) {}
};

inline void InitLogging(const char*) {}

// The time of day, file and line, then what the program writes. The whole text is written to
// standard error at once, so that texts of several threads do not mix.
class LogText {
 public:
  LogText(const char* file, int line) {
    const time_t seconds = time(NULL);
    struct tm local;
    char clock[16] = "";
    if (localtime_r(&seconds, &local) != NULL) strftime(clock, sizeof(clock), "%H:%M:%S", &local);
    stream_ << "[" << clock << "] " << file << ":" << line << ": ";
  }
  std::ostream& stream() { return stream_; }

 protected:
  void Print() const { std::cerr << stream_.str() + "\n" << std::flush; }

  std::ostringstream stream_;
};

class LogMessage : public LogText {
 public:
  LogMessage(const char* file, int line) : LogText(file, line) {}
  ~LogMessage() { Print(); }
};

class LogMessageFatal : public LogText {
 public:
  LogMessageFatal(const char* file, int line) : LogText(file, line) {}
  ~LogMessageFatal() noexcept(false) {
    Print();
#if DMLC_LOG_FATAL_THROW
    throw Error(stream_.str());
#else
    abort();
#endif
  }
};

// For expressions that are a message, or nothing.
class LogMessageVoidify {
 public:
  void operator&(std::ostream&) {}
};

template <typename T>
inline T& CheckNotNull(const char* file, int line, const char* what, T& value) {
  if (value == NULL) LogMessageFatal(file, line).stream() << "Check failed: " << what << " is NULL";
  return value;
}
template <typename T>
inline T CheckNotNull(const char* file, int line, const char* what, const T&& value) {
  if (value == NULL) LogMessageFatal(file, line).stream() << "Check failed: " << what << " is NULL";
  return value;
}

}  // namespace dmlc

#define LOG_INFO ::dmlc::LogMessage(__FILE__, __LINE__)
#define LOG_WARNING LOG_INFO
#define LOG_ERROR LOG_INFO
#define LOG_FATAL ::dmlc::LogMessageFatal(__FILE__, __LINE__)
#define LOG_QFATAL LOG_FATAL

#define LOG(severity) LOG_##severity.stream()
#define LG LOG_INFO.stream()
#define VLOG(level) LOG_INFO.stream()
#define LOG_IF(severity, condition) \
  !(condition) ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(severity)
#define LOG_EVERY_N(severity, n) LOG(severity)

#define CHECK(condition) \
  (condition) ? (void)0  \
              : ::dmlc::LogMessageVoidify() & LOG(FATAL) << "Check failed: " #condition << ' '
#define CHECK_LT(x, y) CHECK((x) < (y))
#define CHECK_GT(x, y) CHECK((x) > (y))
#define CHECK_LE(x, y) CHECK((x) <= (y))
#define CHECK_GE(x, y) CHECK((x) >= (y))
#define CHECK_EQ(x, y) CHECK((x) == (y))
#define CHECK_NE(x, y) CHECK((x) != (y))
#define CHECK_NOTNULL(x) ::dmlc::CheckNotNull(__FILE__, __LINE__, #x, (x))

// Those of debug builds are compiled in others, too, but do nothing.
#ifdef NDEBUG
#define DCHECK(condition) \
  while (false) CHECK(condition)
#define LOG_DFATAL LOG_ERROR
#define DFATAL ERROR
#define DLOG(severity) LOG_IF(severity, false)
#define DLOG_IF(severity, condition) LOG_IF(severity, false && (condition))
#else
#define DCHECK(condition) CHECK(condition)
#define LOG_DFATAL LOG_FATAL
#define DFATAL FATAL
#define DLOG(severity) LOG(severity)
#define DLOG_IF(severity, condition) LOG_IF(severity, condition)
#endif
#define DCHECK_LT(x, y) DCHECK((x) < (y))
#define DCHECK_GT(x, y) DCHECK((x) > (y))
#define DCHECK_LE(x, y) DCHECK((x) <= (y))
#define DCHECK_GE(x, y) DCHECK((x) >= (y))
#define DCHECK_EQ(x, y) DCHECK((x) == (y))
#define DCHECK_NE(x, y) DCHECK((x) != (y))

#endif
#endif  // DMLC_LOGGING_H_
