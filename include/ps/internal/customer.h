// Customer: one end of requests and responses within a process, with a thread of its own that
// handles what it receives, one message after the other.
//
// Any thread may call any method. The program destroys it, not within its handler.
#ifndef PS_INTERNAL_CUSTOMER_H_
#define PS_INTERNAL_CUSTOMER_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ps/internal/message.h"
#include "ps/internal/threadsafe_queue.h"

namespace ps {

class Customer {
 public:
  using RecvHandle = std::function<void(const Message& recved)>;

  // The ids are those of no other customer of this process. Before or after Start.
  Customer(int app_id, int customer_id, const RecvHandle& recv_handle);
  ~Customer();
  Customer(const Customer&) = delete;
  void operator=(const Customer&) = delete;

  int app_id() const { return app_id_; }
  int customer_id() const { return customer_id_; }

  // Begins a request to a node or a group, whose nodes are to respond; returns its timestamp.
  int NewRequest(int recver);
  // Waits for all responses, and until the handler has handled them. Within the handler it handles
  // other responses meanwhile; requests come later. Throws dmlc::Error if a process of the job has
  // died, when no handler of the request runs any more, and for a timestamp that NewRequest has not
  // returned.
  void WaitRequest(int timestamp);
  // How many responses were handled.
  int NumResponse(int timestamp);
  // Counts nodes that are not to respond.
  void AddResponse(int timestamp, int num = 1);
  // KVServer's: a table of these values can handle its requests, or with OTHER only functions of
  // this process.
  void SetTable(DataType values);
  // Takes a message.
  void Accept(const Message& recved);
  // Whether it handles a message, or has one that it can handle, in another thread than this.
  bool Busy() const;

 private:
  struct State;
  // Ends the thread.
  void Stop();

  const int app_id_;
  const int customer_id_;
  const std::unique_ptr<State> state_;
};

}  // namespace ps

#endif  // PS_INTERNAL_CUSTOMER_H_
