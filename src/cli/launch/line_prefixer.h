// Splits the output of a task into lines and puts the task's name in front of each.
//
// A core: bytes in, bytes out. Owned by the task whose output it is.
#ifndef PHALANX_CLI_LAUNCH_LINE_PREFIXER_H_
#define PHALANX_CLI_LAUNCH_LINE_PREFIXER_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace phalanx::runtime {

class LinePrefixer {
 public:
  // Longer lines are passed on in parts of this length.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  // With an empty prefix the bytes stay as they are: whole lines, but a part of a long line and a
  // last line without a newline get none.
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` complete to `out`; keeps the beginning of the next one.
  void Add(absl::string_view bytes, std::string* out);
  // Appends the beginning of a line that no newline has followed. Called at the end of the output.
  void End(std::string* out);

 private:
  void Pass(std::string* out);

  const std::string prefix_;
  // The beginning of the next line.
  std::string line_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_LAUNCH_LINE_PREFIXER_H_
