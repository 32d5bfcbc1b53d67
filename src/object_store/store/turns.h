// One call from outside is a turn: a client's call, a message of a shard, a timer. What the turn
// decides is settled when the outermost turn ends, so that no step runs inside another one.
//
//   Turn{ call ─► Turn{ nested call } } ─► settle
//
// Thread rule: no thread, lock, clock or I/O inside; the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_STORE_TURNS_H_
#define PHALANX_OBJECT_STORE_STORE_TURNS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "phalanx/object_id.h"

namespace phalanx::object_store {

class Turns {
 public:
  explicit Turns(absl::AnyInvocable<void()> settle) : settle_(std::move(settle)) {}

  class Turn {
   public:
    explicit Turn(Turns& turns) : turns_(turns) { ++turns_.depth_; }
    ~Turn() { turns_.Leave(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
  };

  // While `gather` is true, all calls are nested in one turn, which ends with false.
  void Gather(bool gather) {
    if (gather == std::exchange(gathers_, gather)) return;
    if (gather) {
      ++depth_;
    } else {
      Leave();
    }
  }
  bool gathers() const { return gathers_; }

  // Wraps a callback: it runs in a turn, and does nothing after Close.
  template <typename F>
  auto Guarded(F f) {
    return [this, alive = std::weak_ptr<char>(alive_), f = std::move(f)](auto&&... args) mutable {
      if (alive.expired()) return;
      Turn turn(*this);
      f(std::forward<decltype(args)>(args)...);
    };
  }
  // Expires at Close.
  std::weak_ptr<char> alive() const { return alive_; }
  void Close() { alive_.reset(); }

  // The object's copies or requests have changed: settling looks at the object.
  void Touch(const ObjectId& id) {
    // Most turns touch one object, several times.
    if (touched_.empty() || touched_.back() != id) touched_.push_back(id);
  }
  // In the order of Touch.
  std::vector<ObjectId> TakeTouched() { return std::exchange(touched_, {}); }

 private:
  void Leave() {
    if (depth_ == 1) settle_();  // turns inside of it are nested ones
    --depth_;
  }

  absl::AnyInvocable<void()> settle_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
  int depth_ = 0;
  bool gathers_ = false;
  std::vector<ObjectId> touched_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_TURNS_H_
