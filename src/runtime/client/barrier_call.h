// A barrier: a tree of empty objects. Each participant waits for those below it, puts its own, and
// waits for that of the top, which everybody gets; a participant that comes again finds it there.
//
//   index 0 ◄── 1..32 ◄── 33..1056 ◄── ...        arrivals; then everybody ◄── 0
//
// Guarded by the connection's lock.
#ifndef PHALANX_RUNTIME_CLIENT_BARRIER_CALL_H_
#define PHALANX_RUNTIME_CLIENT_BARRIER_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "phalanx/client.h"
#include "src/runtime/client/call.h"

namespace phalanx::internal {

// How many arrivals a participant waits for.
inline constexpr size_t kBarrierFanIn = 32;

class BarrierCall final : public FutureState<Done> {
 public:
  // The ids of the top, of this participant (the top's for the top itself), and of those directly
  // below it.
  BarrierCall(std::shared_ptr<Connection> connection, const ObjectId& top, const ObjectId& own,
              std::vector<ObjectId> below)
      : FutureState(std::move(connection), "Barrier", own), top_(top), below_(std::move(below)) {}

  // Without the lock.
  void Begin(absl::Duration timeout);

  void OnAnswer(uint64_t request, const local::Answer& answer) override;

 private:
  // Requests by their place in the row: a Get of the top, Gets of those below, a Put, and the
  // Delete of what was put, whose answer is of no interest.
  uint64_t GetBelow(size_t i) const { return first_ + 1 + i; }
  uint64_t put() const { return GetBelow(below_.size()); }
  local::Request GetOf(const ObjectId& id, uint64_t number) const;
  // Lock held.
  void Arrive();
  void Pass();

  const ObjectId top_;
  const std::vector<ObjectId> below_;
  Instant deadline_ = Instant::Infinite();
  uint64_t first_ = 0;
  size_t arrived_ = 0;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_BARRIER_CALL_H_
