#include "src/common/io/log.h"

// See //third_party:spdlog.
#ifdef PHALANX_SPDLOG_HEADERS
#undef SPDLOG_SHARED_LIB
#undef SPDLOG_COMPILED_LIB
#define FMT_HEADER_ONLY
#endif

#include <spdlog/common.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "src/common/threads/mutex.h"
#include "src/common/time/clock.h"

namespace phalanx {
namespace {

// ISO 8601 in UTC, so that the lines of several hosts can be merged.
constexpr char kPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %v";

class Log {
 public:
  // Never destroyed: the destructors of other statics can still log.
  static Log& Get() {
    static Log& log = *new Log;
    return log;
  }

  absl::Status Open(const std::string& path) {
    std::shared_ptr<spdlog::sinks::sink> sink;
    try {
      if (path.empty()) {
        sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
      } else {
        sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
      }
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat("log file ", path, ": ", error.what()));
    }
    sink->set_formatter(
        std::make_unique<spdlog::pattern_formatter>(kPattern, spdlog::pattern_time_type::utc));
    // The old sink is replaced only after the new one is open: an error leaves the log as it was.
    MutexLock lock(mu_);
    sink_ = std::move(sink);
    return absl::OkStatus();
  }

  void Write(absl::string_view text) {
    const spdlog::string_view_t view(text.data(), text.size());
    // The level of spdlog has no effect: LogOn has already filtered the line, and `text` begins
    // with its level.
    const spdlog::details::log_msg message("", spdlog::level::info, view);
    MutexLock lock(mu_);
    try {
      // Flushed for each line: the last lines before a crash matter most.
      sink_->log(message);
      sink_->flush();
    } catch (const std::exception&) {
      // A caller has no way to handle a full disk, so a line is counted and dropped.
      lost_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  // Logging works before main() and without any set-up.
  Log() { Open("").IgnoreError(); }

  std::atomic<uint64_t> lost_{0};
  Mutex mu_;
  std::shared_ptr<spdlog::sinks::sink> sink_ ABSL_GUARDED_BY(mu_);
};

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG ";
    case LogLevel::kInfo:
      return "INFO  ";
    case LogLevel::kWarning:
      return "WARN  ";
    case LogLevel::kError:
    case LogLevel::kOff:
      break;
  }
  return "ERROR ";
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

bool NeedsQuotes(absl::string_view value) {
  // Quotes keep a value with blanks in one field for a reader that splits at blanks.
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

}  // namespace

namespace internal {

std::atomic<LogLevel> log_level{LogLevel::kInfo};

LogLine::LogLine(LogLevel level, const char* file, int line, uint64_t suppressed) : level_(level) {
  stream_ << BaseName(file) << ':' << line << ' ';
  if (suppressed > 0) stream_ << "suppressed=" << suppressed << ' ';
}

LogLine::~LogLine() {
  std::string text = absl::StrCat(LevelName(level_), stream_.str());
  // A text from a peer can contain newlines. Without this loop it could forge a line of the log.
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  Log::Get().Write(text);
}

bool LogLimiter::Pass(absl::Duration period, uint64_t& suppressed) {
  const int64_t now = MonotonicNow().nanos();
  int64_t next = next_nanos_.load(std::memory_order_relaxed);
  // If several threads pass `next` at the same time, only the one whose exchange succeeds writes a
  // line. Relaxed order suffices: the counters protect no other data.
  if (now < next || !next_nanos_.compare_exchange_strong(
                        next, now + absl::ToInt64Nanoseconds(period), std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace internal

LogField::LogField(absl::string_view key, const absl::AlphaNum& value) {
  if (NeedsQuotes(value.Piece())) {
    text_ = absl::StrCat(" ", key, "=\"", absl::CHexEscape(value.Piece()), "\"");
  } else {
    text_ = absl::StrCat(" ", key, "=", value);
  }
}

std::ostream& operator<<(std::ostream& out, const LogField& field) { return out << field.text_; }

void SetLogLevel(LogLevel level) { internal::log_level.store(level, std::memory_order_relaxed); }

absl::Status SetLogLevel(absl::string_view name) {
  constexpr std::pair<absl::string_view, LogLevel> kNames[] = {{"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError},
                                                               {"off", LogLevel::kOff}};
  for (const auto& [known, level] : kNames) {
    if (name != known) continue;
    SetLogLevel(level);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("log level \"", absl::CHexEscape(name),
                                                 "\": use debug, info, warning, error or off"));
}

absl::Status SetLogFile(const std::string& path) { return Log::Get().Open(path); }

uint64_t LostLogLines() { return Log::Get().lost(); }

}  // namespace phalanx
