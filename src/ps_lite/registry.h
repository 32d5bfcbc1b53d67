// Registry: the customers of this process, and messages that wait for one. Any thread.
#ifndef PHALANX_PS_LITE_REGISTRY_H_
#define PHALANX_PS_LITE_REGISTRY_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "ps/internal/customer.h"
#include "ps/internal/message.h"

namespace phalanx::ps_lite {

// How long a message waits for its customer.
inline constexpr std::chrono::seconds kCustomerPatience{60};

class Registry {
 public:
  // Returns false if there is one with these ids. It gets the messages that wait for it.
  bool Add(::ps::Customer* customer);
  void Remove(::ps::Customer* customer);
  // Returns null if there is none within the time.
  ::ps::Customer* Find(int app, int customer, std::chrono::seconds patience) const;
  // Wakes all that wait in their calls.
  void WakeAll();
  // Forgets all.
  void Clear();

  // Messages wait until Open, then for their customers. Requests to servers and schedulers are for
  // the customer whose id is that of the app, as in ps-lite.
  void Open(bool worker);
  void Deliver(::ps::Message message);
  // Names the message that has waited too long for its customer; empty if there is none.
  std::string Overdue() const;

 private:
  using Ids = std::pair<int, int>;  // app, customer
  struct Waiting {
    ::ps::Message message;
    std::chrono::steady_clock::time_point since;
  };
  // Null: there is none.
  ::ps::Customer* ReceiverOf(const ::ps::Message& message) const;
  void DeliverWaiting();

  mutable std::mutex mu_;
  mutable std::condition_variable cond_;
  std::map<Ids, ::ps::Customer*> customers_;
  std::deque<Waiting> waiting_;
  bool open_ = false;
  bool worker_ = false;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_REGISTRY_H_
