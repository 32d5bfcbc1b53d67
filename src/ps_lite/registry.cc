#include "src/ps_lite/registry.h"

#include <algorithm>
#include <utility>

namespace phalanx::ps_lite {
namespace {

// Between two looks at customers that have to end what they do.
constexpr std::chrono::milliseconds kDrainInterval{2};

}  // namespace

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
  closed_ = Closed::kNothing;
  open_ = false;
}

int Registry::NextTimestamp(int app, int customer) {
  std::lock_guard<std::mutex> lock(mu_);
  return next_[{app, customer}]++;
}

void Registry::Open(bool worker) {
  std::lock_guard<std::mutex> lock(mu_);
  open_ = true;
  worker_ = worker;
  DeliverWaiting();
}

void Registry::Deliver(::ps::Message message) {
  std::lock_guard<std::mutex> lock(mu_);
  if (Drops(message)) return;
  // What a customer has got and what waits for it keep their order, since nothing waits for one
  // that is there.
  ::ps::Customer* const receiver = open_ ? ReceiverOf(message) : nullptr;
  if (receiver != nullptr) {
    receiver->Accept(message);
  } else if (!open_ || message.meta.request) {
    waiting_.push_back({std::move(message), std::chrono::steady_clock::now()});
  }
}

bool Registry::Drops(const ::ps::Message& message) const {
  return closed_ == Closed::kAll || (closed_ == Closed::kRequests && message.meta.request);
}

void Registry::AwaitIdle(const std::atomic<bool>& failed) const {
  std::unique_lock<std::mutex> lock(mu_);
  AwaitIdle(lock, failed);
}

void Registry::AwaitIdle(std::unique_lock<std::mutex>& lock,
                         const std::atomic<bool>& failed) const {
  const auto busy = [](const auto& each) { return each.second->Busy(); };
  // Customers cannot wake this: their locks are taken within this one.
  while (!failed && std::any_of(customers_.begin(), customers_.end(), busy)) {
    cond_.wait_for(lock, kDrainInterval);
  }
}

// Requests first, since customers answer what they have got before responses are dropped.
void Registry::Drain(const std::atomic<bool>& failed) {
  std::unique_lock<std::mutex> lock(mu_);
  for (const Closed closed : {Closed::kRequests, Closed::kAll}) {
    closed_ = closed;
    AwaitIdle(lock, failed);
  }
}

std::string Registry::Overdue(std::chrono::seconds patience) const {
  std::lock_guard<std::mutex> lock(mu_);
  if (!open_ || waiting_.empty()) return "";
  const Waiting& oldest = waiting_.front();
  if (std::chrono::steady_clock::now() - oldest.since < patience) return "";
  const ::ps::Meta& meta = oldest.message.meta;
  return "a message of node " + std::to_string(meta.sender) + " is for customer " +
         std::to_string(meta.customer_id) + " of app " + std::to_string(meta.app_id) +
         ", which this process has not made within " + std::to_string(patience.count()) + " s";
}

::ps::Customer* Registry::ReceiverOf(const ::ps::Message& message) const {
  const ::ps::Meta& meta = message.meta;
  const Ids exact(meta.app_id, meta.customer_id);
  const Ids of_app(meta.app_id, meta.app_id);
  // A response is for the customer that has asked, and a request to customer 1 of a worker not for
  // customer 0.
  auto found = worker_ || !meta.request ? customers_.end() : customers_.find(of_app);
  if (found == customers_.end()) found = customers_.find(exact);
  return found == customers_.end() ? nullptr : found->second;
}

void Registry::DeliverWaiting() {
  std::deque<Waiting> rest;
  for (Waiting& each : waiting_) {
    ::ps::Customer* const receiver = open_ ? ReceiverOf(each.message) : nullptr;
    if (receiver != nullptr) {
      receiver->Accept(each.message);
    } else if (!open_ || each.message.meta.request) {
      rest.push_back(std::move(each));
    }
  }
  waiting_ = std::move(rest);
}

}  // namespace phalanx::ps_lite
