// DeathPoint: where in its life a task is killed on order, to try out how a job survives (`phalanx
// launch --fail`). The launch passes its text to the library in PHALANX_FAIL.
//
// A value; pure functions.
#ifndef PHALANX_CLIENT_JOBS_DECLARED_DEATH_H_
#define PHALANX_CLIENT_JOBS_DECLARED_DEATH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace phalanx::internal {

struct DeathPoint {
  enum class Kind : uint8_t {
    kNone,
    kCall,        // as it makes this call of a group
    kPut,         // in this call, when the node has so many bytes of its input
    kLoad,        // in Load of a session
    kCheckpoint,  // in this Checkpoint, which is written and does not count yet
    kLeave,       // in Leave of a session
    // Of a parameter server's tasks: src/client/ps/server_death.h.
    kPush,
    kPull,
    kClock,
    kSnapshot,
    kRestore,
  };
  Kind kind = Kind::kNone;
  // Of the call or the Checkpoint in this life, from 1; the clock of a parameter server's task.
  uint64_t number = 0;
  // kPut and kSnapshot alone.
  uint64_t bytes = 0;

  friend bool operator==(const DeathPoint&, const DeathPoint&) = default;
};

// How the texts of points are written, for errors.
inline constexpr char kDeathPointForms[] =
    "CALL, CALL:entry, CALL:put:BYTES, load, checkpoint, checkpoint:N, leave, push:CLOCK, "
    "pull:CLOCK, clock:CLOCK, snapshot:CLOCK:BYTES or restore:CLOCK";

// Returns nothing for other texts, and for a number that is 0 where the first one is 1.
std::optional<DeathPoint> ParseDeathPoint(absl::string_view text);
// The same for equal points: "57", "57:put:1000", "load", "checkpoint:1", "leave".
std::string DeathPointText(const DeathPoint& point);

// The kind of a word of a parameter server's points, such as "push".
std::optional<DeathPoint::Kind> ParameterServerPoint(absl::string_view word);

// Returns the number in a text of digits alone.
std::optional<uint64_t> ParseDigits(absl::string_view text);

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_JOBS_DECLARED_DEATH_H_
