// A barrier: a tree of empty objects. Each participant waits for the objects of its children, puts
// its own object, and then waits for the object of the root, which every participant gets.
//
// |   index 0 ◄── 1..32 ◄── 33..1056 ◄── ...        arrivals; then every participant ◄── 0
//
// A name is for one barrier. What the directory knows of two objects tells a second use of a name
// from a call that is repeated:
//
// | this participant's object | the root's object | the participant
// |---------------------------|-------------------|-------------------------------------------------
// | exists or not             | not yet           | arrives, also again, and waits
// | exists                    | exists            | arrived, but its call ended before the barrier
// |                           |                   | did (a deadline, a crash): passes
// | deleted, or unknown       | exists or deleted | has passed: error, as nobody else would come
//
// The root's participant passes when its object exists, so for it the last row covers the second.
//
// Guarded by the connection's lock.
#ifndef PHALANX_CLIENT_BARRIER_CALL_H_
#define PHALANX_CLIENT_BARRIER_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"

namespace phalanx::internal {

// The number of children for which a participant waits.
inline constexpr size_t kBarrierFanIn = 32;

class BarrierCall final : public FutureState<Done> {
 public:
  // Takes the ids of the root, of this participant (the root's own id at the root), and of its
  // children. `name` is for errors.
  BarrierCall(std::shared_ptr<Connection> connection, absl::string_view name, const ObjectId& top,
              const ObjectId& own, std::vector<ObjectId> below)
      : FutureState(std::move(connection), "Barrier", own),
        name_(name),
        top_(top),
        below_(std::move(below)) {}

  // Without the lock.
  void Begin(absl::Duration timeout);

  void OnAnswer(uint64_t request, const local::Answer& answer) override;

 private:
  // What the directory knows of an object.
  struct Known {
    bool exists = false;
    bool deleted = false;
  };

  // The requests by their place in the row: Stats of the root and of this participant's object, a
  // Get of the root, the Gets of the children, a Put, and the Delete of this participant's object.
  // The call ignores the answer of the Delete.
  uint64_t StatTop() const { return first_; }
  uint64_t StatOwn() const { return first_ + 1; }
  uint64_t GetTop() const { return first_ + 2; }
  uint64_t GetBelow(size_t i) const { return first_ + 3 + i; }
  uint64_t put() const { return GetBelow(below_.size()); }
  size_t requests() const { return below_.size() + 5; }
  bool is_top() const { return id() == top_; }
  local::Request StatOf(const ObjectId& id, uint64_t number) const;
  local::Request GetOf(const ObjectId& id, uint64_t number) const;
  // Lock held.
  void OnStat(uint64_t request, const local::Answer& answer);
  void Enter();
  void Arrive();
  void Pass();

  const std::string name_;
  const ObjectId top_;
  const std::vector<ObjectId> below_;
  Instant deadline_ = Instant::Infinite();
  uint64_t first_ = 0;
  Known top_known_;
  Known own_known_;
  size_t stats_left_ = 0;
  size_t arrived_ = 0;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_BARRIER_CALL_H_
