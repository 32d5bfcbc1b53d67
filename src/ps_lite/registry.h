// Registry: the customers of this process, and messages that wait for one. Any thread.
#ifndef PHALANX_PS_LITE_REGISTRY_H_
#define PHALANX_PS_LITE_REGISTRY_H_

#include <atomic>
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

  // The number of the next request of a customer with these ids. One that is made again with the
  // same ids goes on: a late response is for no request of it.
  int NextTimestamp(int app, int customer);

  // Messages wait until Open, then requests for their customers. Requests to servers and schedulers
  // are for the customer whose id is that of the app, as in ps-lite. A response is for the customer
  // that has asked, and dropped if that is gone.
  void Open(bool worker);
  void Deliver(::ps::Message message);
  // Names the message that has waited longer for its customer; empty if there is none.
  std::string Overdue(std::chrono::seconds patience = kCustomerPatience) const;
  // Waits until customers have handled what they have got, with the exceptions of Drain.
  void AwaitIdle(const std::atomic<bool>& failed) const;
  // The same. From now on requests are dropped, and in
  // the end responses. A handler that waits for a response is not waited for, nor is the one that
  // calls this. Returns early if `failed` is set.
  void Drain(const std::atomic<bool>& failed);

 private:
  using Ids = std::pair<int, int>;  // app, customer
  struct Waiting {
    ::ps::Message message;
    std::chrono::steady_clock::time_point since;
  };
  // What comes no more.
  enum class Closed { kNothing, kRequests, kAll };
  bool Drops(const ::ps::Message& message) const;
  // Null: there is none.
  ::ps::Customer* ReceiverOf(const ::ps::Message& message) const;
  void DeliverWaiting();
  void AwaitIdle(std::unique_lock<std::mutex>& lock, const std::atomic<bool>& failed) const;

  mutable std::mutex mu_;
  mutable std::condition_variable cond_;
  std::map<Ids, ::ps::Customer*> customers_;
  std::map<Ids, int> next_;  // timestamps
  std::deque<Waiting> waiting_;
  Closed closed_ = Closed::kNothing;
  bool open_ = false;
  bool worker_ = false;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_REGISTRY_H_
