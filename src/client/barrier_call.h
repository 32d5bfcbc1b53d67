// A barrier is a tree of empty objects. Each participant waits for the objects of its children,
// puts its own object, and then waits for the object of the root, which every participant gets. A
// participant that calls the barrier a second time finds the root's object and passes.
//
// |   index 0 ◄── 1..32 ◄── 33..1056 ◄── ...        arrivals; then every participant ◄── 0
//
// Guarded by the connection's lock.
#ifndef PHALANX_CLIENT_BARRIER_CALL_H_
#define PHALANX_CLIENT_BARRIER_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "phalanx/client.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {

// The number of children for which a participant waits.
inline constexpr size_t kBarrierFanIn = 32;

class BarrierCall final : public FutureState<Done> {
 public:
  // Takes the ids of the root, of this participant (the root's own id at the root), and of its
  // children.
  BarrierCall(std::shared_ptr<Connection> connection, const ObjectId& top, const ObjectId& own,
              std::vector<ObjectId> below)
      : FutureState(std::move(connection), "Barrier", own), top_(top), below_(std::move(below)) {}

  // Without the lock.
  void Begin(absl::Duration timeout);

  void OnAnswer(uint64_t request, const local::Answer& answer) override;

 private:
  // The requests by their place in the row: a Get of the root, the Gets of the children, a Put, and
  // the Delete of this participant's object. The call ignores the answer of the Delete.
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

#endif  // PHALANX_CLIENT_BARRIER_CALL_H_
