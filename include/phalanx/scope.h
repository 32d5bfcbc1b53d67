// A scope: objects that are freed together, by one call (docs/lifetime.md).
//
// A value; any thread.
#ifndef PHALANX_SCOPE_H_
#define PHALANX_SCOPE_H_

#include <cstdint>
#include <string>

namespace phalanx {

struct Scope {
  // UTF-8 without control characters, at most 255 bytes. Empty: no scope.
  std::string name;
  // To end a scope ends those with the same name and a smaller number, too: a program that numbers
  // its rounds ends all rounds up to one.
  uint64_t number = 0;

  bool empty() const { return name.empty(); }
  // `scope "job" 7`, for messages.
  std::string ToString() const;

  friend bool operator==(const Scope&, const Scope&) = default;
};

}  // namespace phalanx

#endif  // PHALANX_SCOPE_H_
