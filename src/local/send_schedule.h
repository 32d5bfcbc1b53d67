// When a session sends its answers, so that those of one turn go out in one piece: the answers to
// requests right after the requests have been handled, others at the end of the turn.
//
//   idle ── answer while reading ──► due ── EndRead ──► the caller sends
//   idle ── any other answer ──► posted ── Posted ──► the caller sends
//   the socket is full ──► waiting for room ── OnRoom ──► the caller sends
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_SEND_SCHEDULE_H_
#define PHALANX_LOCAL_SEND_SCHEDULE_H_

#include <utility>

namespace phalanx::object_store {

class SendSchedule {
 public:
  // Brackets the handling of requests. EndRead returns whether to send now.
  void BeginRead() { reading_ = true; }
  bool EndRead() {
    reading_ = false;
    return std::exchange(due_, false);
  }

  // An answer is ready. The result is whether the caller must post a task that calls Posted and
  // sends.
  bool OnAnswer() {
    // Whatever runs next sends this answer too.
    if (posted_ || waiting_) return false;
    if (reading_) {
      due_ = true;
      return false;
    }
    posted_ = true;
    return true;
  }
  void Posted() { posted_ = false; }

  // While the socket has no room, no send is tried.
  bool waiting_for_room() const { return waiting_; }
  void WaitForRoom() { waiting_ = true; }
  void OnRoom() { waiting_ = false; }

 private:
  bool reading_ = false;
  bool due_ = false;
  bool posted_ = false;
  bool waiting_ = false;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_SEND_SCHEDULE_H_
