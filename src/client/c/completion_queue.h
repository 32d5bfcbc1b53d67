// Announces ended calls to an event loop of another language: tags behind a descriptor.
//
// Callbacks of calls can run on any thread, even after the queue was freed, so they share ownership
// of the mailbox to which they write.
#ifndef PHALANX_CLIENT_C_COMPLETION_QUEUE_H_
#define PHALANX_CLIENT_C_COMPLETION_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "phalanx/c.h"
#include "src/client/c/handles.h"
#include "src/common/threads/mutex.h"

namespace phalanx::c {

class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Readable while there are tags; -1 if the system refused a descriptor.
  int fd() const { return event_; }
  void Add(uint64_t tag);
  size_t Take(uint64_t* tags, size_t n);

 private:
  const int event_;
  Mutex mu_;
  std::deque<uint64_t> tags_ ABSL_GUARDED_BY(mu_);
};

template <typename T, typename Callback>
void NotifyWhenEnded(const Future<T>& future, const Callback& callback) {
  future.OnReady([callback](const auto& result) { callback(result); });
}

template <typename Callback>
void NotifyWhenEnded(const Creating& creating, const Callback& callback) {
  if (creating->connection().forked()) return;
  creating->connection().Update([&creating, &callback] {
    const auto on_result = [callback](const auto& result) { callback(result); };
    if (creating->done()) return creating->connection().AddReady(creating->Bind(on_result));
    creating->callbacks.push_back(on_result);
  });
}

}  // namespace phalanx::c

struct phx_queue {
  std::shared_ptr<phalanx::c::Mailbox> mailbox;
};

#endif  // PHALANX_CLIENT_C_COMPLETION_QUEUE_H_
