// A barrier: a tree of empty objects. Each participant waits for the objects of its children, puts
// its own object, and then waits for the release object, which every participant gets. Index 0 puts
// the release object after its own object.
//
// |   release ◄── index 0 ◄── 1..32 ◄── 33..1056 ◄── ...     then every participant ◄── release
//
// A name is for one barrier. What the directory knows of two objects tells a second use of a name
// from a call that is repeated:
//
// | this participant's object | release object    | the participant
// |---------------------------|-------------------|-------------------------------------------------
// | exists or not             | not yet           | arrives, also again, and waits
// | exists                    | exists            | arrived, but its call ended before the barrier
// |                           |                   | did (a deadline, a crash): passes
// | deleted, or unknown       | exists or deleted | has passed: error, as nobody else would come
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
  // Takes the ids of the release object, of this participant's object, and of its children.
  // `releases`: this participant is index 0. `name` is for errors.
  BarrierCall(std::shared_ptr<Connection> connection, absl::string_view name,
              const ObjectId& release, bool releases, const ObjectId& own,
              std::vector<ObjectId> below)
      : FutureState(std::move(connection), "Barrier", own),
        name_(name),
        release_(release),
        releases_(releases),
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

  // The requests by their place in the row: Stats of the release object and of this participant's
  // object, a Get of the release object, the Gets of the children, the Puts of this participant's
  // object and of the release object, and the Delete of this participant's object. The call ignores
  // the answer of the Delete.
  uint64_t StatRelease() const { return first_; }
  uint64_t StatOwn() const { return first_ + 1; }
  uint64_t GetRelease() const { return first_ + 2; }
  uint64_t GetBelow(size_t i) const { return first_ + 3 + i; }
  uint64_t PutOwn() const { return GetBelow(below_.size()); }
  uint64_t PutRelease() const { return PutOwn() + 1; }
  uint64_t DeleteOwn() const { return PutOwn() + 2; }
  size_t requests() const { return below_.size() + 6; }
  local::Request StatOf(const ObjectId& id, uint64_t number) const;
  local::Request GetOf(const ObjectId& id, uint64_t number) const;
  // Lock held.
  void OnStat(uint64_t request, const local::Answer& answer);
  void Enter();
  void PutEmpty(const ObjectId& id, uint64_t number);
  void Pass();

  const std::string name_;
  const ObjectId release_;
  const bool releases_;
  const std::vector<ObjectId> below_;
  Instant deadline_ = Instant::Infinite();
  uint64_t first_ = 0;
  Known release_known_;
  Known own_known_;
  size_t stats_left_ = 0;
  size_t arrived_ = 0;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_BARRIER_CALL_H_
