#include "src/ps_lite/registry.h"

#include <utility>

namespace phalanx::ps_lite {

bool Registry::Add(::ps::Customer* customer) {
  std::lock_guard<std::mutex> lock(mu_);
  const Ids ids(customer->app_id(), customer->customer_id());
  if (!customers_.try_emplace(ids, customer).second) return false;
  DeliverWaiting();
  cond_.notify_all();
  return true;
}

void Registry::Remove(::ps::Customer* customer) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = customers_.find({customer->app_id(), customer->customer_id()});
  // Another one can have the ids since Clear.
  if (found != customers_.end() && found->second == customer) customers_.erase(found);
}

::ps::Customer* Registry::Find(int app, int customer, std::chrono::seconds patience) const {
  std::unique_lock<std::mutex> lock(mu_);
  const Ids ids(app, customer);
  const bool there = cond_.wait_for(lock, patience, [&] { return customers_.count(ids) > 0; });
  return there ? customers_.at(ids) : nullptr;
}

void Registry::WakeAll() {
  std::lock_guard<std::mutex> lock(mu_);
  // A customer handles no message of this kind.
  ::ps::Message wake;
  wake.meta.control.cmd = ::ps::Control::TERMINATE;
  for (const auto& [ids, customer] : customers_) customer->Accept(wake);
}

void Registry::Clear() {
  std::lock_guard<std::mutex> lock(mu_);
  customers_.clear();
  waiting_.clear();
  open_ = false;
}

void Registry::Open(bool worker) {
  std::lock_guard<std::mutex> lock(mu_);
  open_ = true;
  worker_ = worker;
  DeliverWaiting();
}

void Registry::Deliver(::ps::Message message) {
  std::lock_guard<std::mutex> lock(mu_);
  // What a customer has got and what waits for it keep their order, since nothing waits for one
  // that is there.
  ::ps::Customer* const receiver = open_ ? ReceiverOf(message) : nullptr;
  if (receiver != nullptr) {
    receiver->Accept(message);
  } else {
    waiting_.push_back({std::move(message), std::chrono::steady_clock::now()});
  }
}

std::string Registry::Overdue() const {
  std::lock_guard<std::mutex> lock(mu_);
  if (!open_ || waiting_.empty()) return "";
  const Waiting& oldest = waiting_.front();
  if (std::chrono::steady_clock::now() - oldest.since < kCustomerPatience) return "";
  const ::ps::Meta& meta = oldest.message.meta;
  return "a message of node " + std::to_string(meta.sender) + " is for customer " +
         std::to_string(meta.customer_id) + " of app " + std::to_string(meta.app_id) +
         ", which this process has not made within " + std::to_string(kCustomerPatience.count()) +
         " s";
}

::ps::Customer* Registry::ReceiverOf(const ::ps::Message& message) const {
  const ::ps::Meta& meta = message.meta;
  const Ids exact(meta.app_id, meta.customer_id);
  const Ids of_app(meta.app_id, meta.app_id);
  const bool exact_first = worker_ || !meta.request;
  for (const Ids& ids : {exact_first ? exact : of_app, exact_first ? of_app : exact}) {
    const auto found = customers_.find(ids);
    if (found != customers_.end()) return found->second;
    // A request of customer 1 is not for customer 0 of a worker.
    if (worker_ && meta.request) break;
  }
  return nullptr;
}

void Registry::DeliverWaiting() {
  std::deque<Waiting> rest;
  for (Waiting& each : waiting_) {
    ::ps::Customer* const receiver = open_ ? ReceiverOf(each.message) : nullptr;
    if (receiver != nullptr) {
      receiver->Accept(each.message);
    } else {
      rest.push_back(std::move(each));
    }
  }
  waiting_ = std::move(rest);
}

}  // namespace phalanx::ps_lite
