// Keeps callbacks from reaching an object that is destroyed.
//
//   executor.Post(guard_.Wrap([this] { OnTurn(); }));   // does nothing once the guard is closed
//
// A member of the object that the callbacks use. Destructors that call out close the guard first:
// members that stand behind it are destroyed before it.
//
// Thread rule: wrapped callbacks run on the thread that destroys the guard.
#ifndef PHALANX_COMMON_THREADS_CALLBACK_GUARD_H_
#define PHALANX_COMMON_THREADS_CALLBACK_GUARD_H_

#include <memory>
#include <utility>

namespace phalanx {

class CallbackGuard {
 public:
  CallbackGuard() = default;
  CallbackGuard(const CallbackGuard&) = delete;
  CallbackGuard& operator=(const CallbackGuard&) = delete;

  // Wrapped callbacks do nothing from now on. Idempotent.
  void Close() { open_.reset(); }

  template <typename F>
  auto Wrap(F f) const {
    return [open = std::weak_ptr<char>(open_), f = std::move(f)](auto&&... args) mutable {
      if (!open.expired()) f(std::forward<decltype(args)>(args)...);
    };
  }

 private:
  std::shared_ptr<char> open_ = std::make_shared<char>();
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_THREADS_CALLBACK_GUARD_H_
