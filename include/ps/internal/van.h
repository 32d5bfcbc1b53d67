// Van: sends messages, as far as programs use it. Any thread.
#ifndef PS_INTERNAL_VAN_H_
#define PS_INTERNAL_VAN_H_

#include <atomic>
#include <string>

#include "ps/base.h"
#include "ps/internal/message.h"

namespace ps {

class Van {
 public:
  // Sends the message to the node meta.recver; returns its bytes. Its arrays can be changed
  // afterwards. Throws dmlc::Error if a process of the job has died, or without Start.
  int Send(Message& msg);  // NOLINT
  // REQUIRES: Start has returned.
  const Node& my_node() const;
  int GetTimestamp() { return timestamp_++; }
  // Whether Start has returned, and Finalize was not called.
  bool IsReady() const;

 private:
  friend class Postoffice;
  Van() = default;

  std::atomic<int> timestamp_{0};
};

}  // namespace ps

#endif  // PS_INTERNAL_VAN_H_
