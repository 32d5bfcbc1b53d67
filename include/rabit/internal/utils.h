// Checks, errors and output of programs for Rabit.
//
// A program that defines RABIT_CUSTOMIZE_MSG_ defines the four functions Handle... itself; they can
// throw. Otherwise an error is printed, and the process exits with 255 (`phalanx launch` starts it
// again if it has restarts left).
#ifndef RABIT_INTERNAL_UTILS_H_
#define RABIT_INTERNAL_UTILS_H_

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dmlc/base.h"

namespace rabit {
namespace utils {

// The longest text of the functions below, in bytes.
const int kPrintBuffer = 1 << 12;

#ifdef RABIT_CUSTOMIZE_MSG_
void HandleAssertError(const char* message);
void HandleCheckError(const char* message);
void HandlePrint(const char* message);
void HandleLogInfo(const char* format, ...);
#else
inline void HandleAssertError(const char* message) {
  std::fprintf(stderr, "AssertError:%s\n", message);
  std::exit(-1);
}
inline void HandleCheckError(const char* message) {
  std::fprintf(stderr, "%s\n", message);
  std::exit(-1);
}
inline void HandlePrint(const char* message) {
  std::printf("%s", message);
  std::fflush(stdout);
}
inline void HandleLogInfo(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
}
#endif

// The text that a format and its arguments make, cut after kPrintBuffer bytes.
inline std::string FormatV(const char* format, std::va_list arguments) {
  std::vector<char> text(kPrintBuffer);
  std::vsnprintf(&text[0], text.size(), format, arguments);
  return std::string(&text[0]);
}

inline void Printf(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatV(format, arguments);
  va_end(arguments);
  HandlePrint(text.c_str());
}

inline int SPrintf(char* to, size_t size, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(to, size, format, arguments);
  va_end(arguments);
  return length;
}

// For what the program itself has got wrong.
inline void Assert(bool holds, const char* format, ...) {
  if (holds) return;
  std::va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatV(format, arguments);
  va_end(arguments);
  HandleAssertError(text.c_str());
}

// For input.
inline void Check(bool holds, const char* format, ...) {
  if (holds) return;
  std::va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatV(format, arguments);
  va_end(arguments);
  HandleCheckError(text.c_str());
}

inline void Error(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  const std::string text = FormatV(format, arguments);
  va_end(arguments);
  HandleCheckError(text.c_str());
}

}  // namespace utils

// Pointers to the first element, NULL if there is none.
using dmlc::BeginPtr;

}  // namespace rabit

#endif  // RABIT_INTERNAL_UTILS_H_
