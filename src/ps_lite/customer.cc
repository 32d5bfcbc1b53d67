// ps::Customer.

#include "ps/internal/customer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dmlc/logging.h"
#include "ps/internal/postoffice.h"
#include "src/ps_lite/office.h"

namespace ps {
namespace {

using phalanx::ps_lite::Office;

// Of how many requests that have ended the number of responses is known.
constexpr size_t kRemembered = 1024;

}  // namespace

// Requests are numbered from 0. Only those that have not ended are kept.
struct Customer::State {
  struct Request {
    int expected;
    int handled = 0;
    std::vector<int> responded;  // nodes
  };
  struct Queued {
    uint64_t number;
    Message message;
  };

  explicit State(const RecvHandle& recv_handle) : handle(recv_handle) {}

  // Handles messages until the customer is destroyed.
  void Run();
  // Takes the next message; with `responses_only` leaves requests. mu is held.
  std::optional<Message> Take(bool responses_only);
  // Handles one without the lock. After a failure it drops all, and what calls throw then.
  void Handle(std::unique_lock<std::mutex>& lock, const Message& message);
  void CallHandle(std::unique_lock<std::mutex>& lock, const Message& message);
  void Count(int timestamp, int num);
  bool Ended(int timestamp) const { return requests.count(timestamp) == 0; }
  // Within the handler of its last response.
  bool Ending(int timestamp) const;
  // Within the handler of a response to it.
  bool Handling(int timestamp) const;

  const RecvHandle handle;
  std::thread thread;
  std::mutex mu;  // for what follows
  std::condition_variable cond;
  bool stopped = false;
  uint64_t accepted = 0;
  std::deque<Queued> incoming[2];  // requests, responses
  int next = 0;
  std::map<int, Request> requests;
  std::map<int, int> remembered;  // responses of those that have ended
  std::vector<int> handling;      // responses, the innermost last
  int running = 0;                // handlers: more than one, if one waits
  bool blocked = false;           // the innermost one waits
};

std::optional<Message> Customer::State::Take(bool responses_only) {
  auto& [requests_in, responses_in] = incoming;
  std::deque<Queued>* from = &responses_in;
  const bool request_first =
      !requests_in.empty() &&
      (responses_in.empty() || requests_in.front().number < responses_in.front().number);
  if (!responses_only && request_first) from = &requests_in;
  if (from->empty()) return std::nullopt;
  Message message = std::move(from->front().message);
  from->pop_front();
  return message;
}

void Customer::State::Handle(std::unique_lock<std::mutex>& lock, const Message& message) {
  if (Office::Get().failed()) return;
  const int timestamp = message.meta.timestamp;
  const bool response = !message.meta.request;
  if (response) {
    const auto found = requests.find(timestamp);
    // A node that responds twice, or to what it was not asked.
    if (found == requests.end()) return;
    std::vector<int>& responded = found->second.responded;
    if (std::find(responded.begin(), responded.end(), message.meta.sender) != responded.end())
      return;
    responded.push_back(message.meta.sender);
    handling.push_back(timestamp);
  }
  CallHandle(lock, message);
  if (!response) return;
  handling.pop_back();
  if (!Office::Get().failed()) return Count(timestamp, 1);
  // A call of WaitRequest can wait for the end of the handler, which can have thrown.
  cond.notify_all();
}

void Customer::State::CallHandle(std::unique_lock<std::mutex>& lock, const Message& message) {
  ++running;
  lock.unlock();
  try {
    handle(message);
  } catch (const phalanx::ps_lite::AfterFinalize&) {
    // The error is on standard error. The callback of an answer that has come that late can ask no
    // more, and the process ends as well as the others.
  } catch (const dmlc::Error&) {
    // A call in it has thrown the failure, as those of the program's own threads do.
    if (!Office::Get().failed()) throw;
  }
  lock.lock();
  --running;
}

void Customer::State::Count(int timestamp, int num) {
  const auto found = requests.find(timestamp);
  if (found == requests.end()) return;
  Request& request = found->second;
  request.handled += num;
  if (request.handled < request.expected) return;
  remembered[timestamp] = request.handled;
  if (remembered.size() > kRemembered) remembered.erase(remembered.begin());
  requests.erase(found);
  cond.notify_all();
}

bool Customer::State::Handling(int timestamp) const {
  return std::find(handling.begin(), handling.end(), timestamp) != handling.end();
}

bool Customer::State::Ending(int timestamp) const {
  if (!Handling(timestamp)) return false;
  const auto found = requests.find(timestamp);
  return found == requests.end() || found->second.handled + 1 >= found->second.expected;
}

void Customer::State::Run() {
  std::unique_lock<std::mutex> lock(mu);
  while (true) {
    std::optional<Message> message;
    cond.wait(lock,
              [&] { return stopped || (message = Take(/*responses_only=*/false)).has_value(); });
    if (!message) return;
    Handle(lock, *message);
  }
}

Customer::Customer(int app_id, int customer_id, const RecvHandle& recv_handle)
    : app_id_(app_id), customer_id_(customer_id), state_(new State(recv_handle)) {
  state_->thread = std::thread([state = state_.get()] { state->Run(); });
  try {
    Postoffice::Get()->AddCustomer(this);
  } catch (...) {
    Stop();
    throw;
  }
}

Customer::~Customer() {
  Postoffice::Get()->RemoveCustomer(this);
  Stop();
}

void Customer::Stop() {
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    state_->stopped = true;
    for (auto& queue : state_->incoming) queue.clear();
    state_->cond.notify_all();
  }
  state_->thread.join();
}

int Customer::NewRequest(int recver) {
  Office::Get().Check();
  const int expected = static_cast<int>(Office::Get().NodeIds(recver).size());
  const int timestamp = Office::Get().registry().NextTimestamp(app_id_, customer_id_);
  std::lock_guard<std::mutex> lock(state_->mu);
  state_->next = std::max(state_->next, timestamp + 1);
  if (expected > 0) state_->requests[timestamp] = {expected, 0, {}};
  return timestamp;
}

void Customer::WaitRequest(int timestamp) {
  State& state = *state_;
  const bool within = std::this_thread::get_id() == state.thread.get_id();
  const auto failed = [] { return Office::Get().failed(); };
  std::unique_lock<std::mutex> lock(state.mu);
  if (timestamp < 0 || timestamp >= state.next) {
    lock.unlock();
    Office::Throw("Wait: there is no request " + std::to_string(timestamp) + " of customer " +
                  std::to_string(customer_id_) + " of app " + std::to_string(app_id_));
  }
  while (!state.Ended(timestamp) && !failed()) {
    if (!within) {
      state.cond.wait(lock);
      continue;
    }
    if (state.Ending(timestamp)) return;
    const std::optional<Message> message = state.Take(/*responses_only=*/true);
    if (message) {
      state.Handle(lock, *message);
    } else if (state.stopped) {
      return;
    } else {
      state.blocked = true;
      state.cond.wait(lock);
      state.blocked = false;
    }
  }
  if (state.Ended(timestamp)) return;
  // The program can destroy what the handler writes when this has thrown.
  if (!within) state.cond.wait(lock, [&] { return !state.Handling(timestamp); });
  lock.unlock();
  Office::Get().Check();
}

int Customer::NumResponse(int timestamp) {
  std::lock_guard<std::mutex> lock(state_->mu);
  const auto found = state_->requests.find(timestamp);
  if (found != state_->requests.end()) return found->second.handled;
  const auto ended = state_->remembered.find(timestamp);
  return ended == state_->remembered.end() ? 0 : ended->second;
}

void Customer::AddResponse(int timestamp, int num) {
  std::lock_guard<std::mutex> lock(state_->mu);
  state_->Count(timestamp, num);
}

void Customer::SetTable(DataType values) { Office::Get().SetHandle(app_id_, values); }

bool Customer::Busy() const {
  if (std::this_thread::get_id() == state_->thread.get_id()) return false;
  std::lock_guard<std::mutex> lock(state_->mu);
  const auto& [requests_in, responses_in] = state_->incoming;
  if (state_->running == 0) return !requests_in.empty() || !responses_in.empty();
  return !state_->blocked || !responses_in.empty();
}

void Customer::Accept(const Message& recved) {
  std::lock_guard<std::mutex> lock(state_->mu);
  // One of control only wakes those that wait: there is a failure.
  if (recved.meta.control.empty()) {
    state_->incoming[recved.meta.request ? 0 : 1].push_back({state_->accepted++, recved});
  }
  state_->cond.notify_all();
}

}  // namespace ps
