// ThreadsafeQueue: values from some threads to others. Any thread.
#ifndef PS_INTERNAL_THREADSAFE_QUEUE_H_
#define PS_INTERNAL_THREADSAFE_QUEUE_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <queue>
#include <utility>

#include "ps/base.h"

namespace ps {

template <typename T>
class ThreadsafeQueue {
 public:
  ThreadsafeQueue() {}
  ThreadsafeQueue(const ThreadsafeQueue&) = delete;
  void operator=(const ThreadsafeQueue&) = delete;

  void Push(T value) {
    std::lock_guard<std::mutex> lock(mu_);
    queue_.push(std::move(value));
    cond_.notify_one();
  }
  void WaitAndPop(T* value) {
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait(lock, [this] { return !queue_.empty(); });
    *value = std::move(queue_.front());
    queue_.pop();
  }
  int Size() {
    std::lock_guard<std::mutex> lock(mu_);
    return static_cast<int>(queue_.size());
  }

 private:
  std::mutex mu_;
  std::condition_variable cond_;
  std::queue<T> queue_;
};

}  // namespace ps

#endif  // PS_INTERNAL_THREADSAFE_QUEUE_H_
