// SimpleApp: requests of a number and a text to nodes or groups, and their responses.
//
// Handlers run in the app's own thread, one at a time. A Wait within one works; other requests are
// handled after it.
#ifndef PS_SIMPLE_APP_H_
#define PS_SIMPLE_APP_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "ps/internal/message.h"
#include "ps/internal/postoffice.h"

namespace ps {

struct SimpleData {
  int head;
  std::string body;
  int sender;
  int timestamp;
  int customer_id;
};

class SimpleApp {
 public:
  using Handle = std::function<void(const SimpleData& recved, SimpleApp* app)>;

  // Before or after Start.
  explicit SimpleApp(int app_id, int customer_id = 0) : SimpleApp() {
    obj_ = new Customer(app_id, customer_id, [this](const Message& msg) { Process(msg); });
  }
  virtual ~SimpleApp() {
    delete obj_;
    obj_ = nullptr;
  }
  SimpleApp(const SimpleApp&) = delete;
  void operator=(const SimpleApp&) = delete;

  // Returns the timestamp for Wait.
  virtual int Request(int req_head, const std::string& req_body, int recv_id) {
    Message msg;
    msg.meta.head = req_head;
    msg.meta.body = req_body;
    msg.meta.timestamp = obj_->NewRequest(recv_id);
    msg.meta.request = true;
    msg.meta.simple_app = true;
    msg.meta.app_id = obj_->app_id();
    msg.meta.customer_id = obj_->customer_id();
    const int timestamp = msg.meta.timestamp;
    for (int node : Postoffice::Get()->GetNodeIDs(recv_id)) {
      msg.meta.recver = node;
      Postoffice::Get()->van()->Send(msg);
    }
    return timestamp;
  }
  // Waits for the responses of all nodes.
  virtual void Wait(int timestamp) { obj_->WaitRequest(timestamp); }
  // Answers a request, once.
  virtual void Response(const SimpleData& recv_req, const std::string& res_body = "") {
    Message msg;
    msg.meta.head = recv_req.head;
    msg.meta.body = res_body;
    msg.meta.timestamp = recv_req.timestamp;
    msg.meta.request = false;
    msg.meta.simple_app = true;
    msg.meta.app_id = obj_->app_id();
    msg.meta.customer_id = recv_req.customer_id;
    msg.meta.recver = recv_req.sender;
    Postoffice::Get()->van()->Send(msg);
  }

  // Without one, requests are answered with an empty text; the first one waits a second for the
  // handler, since it can arrive before the program has called this.
  void set_request_handle(const Handle& request_handle) {
    CHECK(request_handle) << "invalid request handle";
    std::lock_guard<std::mutex> lock(handles_mu_);
    request_handle_ = request_handle;
    handles_cond_.notify_all();
  }
  void set_response_handle(const Handle& response_handle) {
    CHECK(response_handle) << "invalid response handle";
    std::lock_guard<std::mutex> lock(handles_mu_);
    response_handle_ = response_handle;
  }
  virtual Customer* get_customer() { return obj_; }

 protected:
  SimpleApp() : obj_(nullptr) {}

  virtual void Process(const Message& msg) {
    SimpleData received;
    received.head = msg.meta.head;
    received.body = msg.meta.body;
    received.sender = msg.meta.sender;
    received.timestamp = msg.meta.timestamp;
    received.customer_id = msg.meta.customer_id;
    Handle handle;
    {
      std::unique_lock<std::mutex> lock(handles_mu_);
      if (msg.meta.request && !waited_) {
        handles_cond_.wait_for(lock, std::chrono::seconds(1),
                               [this] { return static_cast<bool>(request_handle_); });
        waited_ = true;
      }
      handle = msg.meta.request ? request_handle_ : response_handle_;
    }
    if (handle) {
      handle(received, this);
    } else if (msg.meta.request) {
      Response(received);
    }
  }

  Customer* obj_;

 private:
  std::mutex handles_mu_;
  std::condition_variable handles_cond_;
  Handle request_handle_;
  Handle response_handle_;
  bool waited_ = false;
};

}  // namespace ps

#endif  // PS_SIMPLE_APP_H_
