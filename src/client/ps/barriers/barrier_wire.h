// The messages of barriers, which travel in messages of the job beside those of tables (ps_wire.h)
// and of disks: they differ in the first byte.
//
// A barrier with the number e is stage e + 1 here: how many barriers of its group a task has come
// to, so that 0 stands for none.
//
// Values and pure functions; any thread.
#ifndef PHALANX_CLIENT_PS_BARRIERS_BARRIER_WIRE_H_
#define PHALANX_CLIENT_PS_BARRIERS_BARRIER_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/ps_barrier.h"

namespace phalanx::ps::internal {

inline constexpr int kBarrierGroups = 3;
// Of a text that travels; the rest of a longer one is left out.
inline constexpr size_t kMaxBarrierText = 1024;

// A task to the keeper: how far it has come, and which stage it has seen end. The newest one has
// all that the ones before had.
struct Arrival {
  BarrierGroup group = BarrierGroup::kWorkers;
  uint64_t arrived = 0;
  uint64_t ended = 0;
  uint32_t world = 0;  // of the sender's role
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

// The keeper to a task.
struct Verdict {
  BarrierGroup group = BarrierGroup::kWorkers;
  uint64_t ended = 0;
  // Not OK: the barriers behind `ended` in which the task waits end with this.
  absl::Status why = {};
  // Otherwise, for which tasks they wait, as a text.
  std::string missing = {};
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

bool IsBarrierMessage(absl::string_view bytes);
std::string Encode(const Arrival& arrival);
std::string Encode(const Verdict& verdict);
// Nothing: the bytes are none. They are not trusted.
std::optional<Arrival> DecodeArrival(absl::string_view bytes);
std::optional<Verdict> DecodeVerdict(absl::string_view bytes);

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_BARRIERS_BARRIER_WIRE_H_
