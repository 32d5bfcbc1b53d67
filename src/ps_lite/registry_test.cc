#include "src/ps_lite/registry.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/internal/postoffice.h"

namespace phalanx::ps_lite {
namespace {

using ::testing::ElementsAre;

// A customer that notes the heads of what it gets.
class Noting {
 public:
  Noting(int app, int id)
      : customer_(app, id, [this](const ::ps::Message& message) {
          std::lock_guard<std::mutex> lock(mu_);
          heads_.push_back(message.meta.head);
          cond_.notify_all();
        }) {}

  ::ps::Customer* get() { return &customer_; }
  // Waits for so many.
  std::vector<int> Heads(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait(lock, [&] { return heads_.size() >= count; });
    return heads_;
  }

 private:
  std::mutex mu_;
  std::condition_variable cond_;
  std::vector<int> heads_;
  // Its thread ends before what it uses.
  ::ps::Customer customer_;
};

::ps::Message RequestOf(int app, int customer, int head) {
  ::ps::Message message;
  message.meta.app_id = app;
  message.meta.customer_id = customer;
  message.meta.head = head;
  message.meta.request = true;
  return message;
}

TEST(Registry, KeepsMessagesUntilTheirCustomerIsThere) {
  Registry registry;
  Noting customer(3, 0);
  registry.Deliver(RequestOf(3, 0, 1));
  registry.Open(/*worker=*/true);
  registry.Deliver(RequestOf(3, 0, 2));
  registry.Deliver(RequestOf(3, 1, 9));
  EXPECT_TRUE(registry.Add(customer.get()));
  registry.Deliver(RequestOf(3, 0, 3));
  EXPECT_THAT(customer.Heads(3), ElementsAre(1, 2, 3));
  EXPECT_EQ(registry.Overdue(), "");
}

TEST(Registry, KeepsMessagesUntilItIsOpen) {
  Registry registry;
  Noting customer(3, 0);
  EXPECT_TRUE(registry.Add(customer.get()));
  registry.Deliver(RequestOf(3, 0, 1));
  registry.Deliver(RequestOf(3, 0, 2));
  registry.Open(/*worker=*/true);
  EXPECT_THAT(customer.Heads(2), ElementsAre(1, 2));
}

TEST(Registry, RequestsToServersAreForTheCustomerOfTheApp) {
  Registry registry;
  Noting server(5, 5);
  EXPECT_TRUE(registry.Add(server.get()));
  registry.Open(/*worker=*/false);
  registry.Deliver(RequestOf(5, 0, 1));
  registry.Deliver(RequestOf(5, 1, 2));
  EXPECT_THAT(server.Heads(2), ElementsAre(1, 2));
}

TEST(Registry, ResponsesAreForTheCustomerThatHasAsked) {
  Registry registry;
  Noting other(0, 0);
  EXPECT_TRUE(registry.Add(other.get()));
  ::ps::Message response = RequestOf(0, 1, 1);
  response.meta.request = false;
  registry.Deliver(response);
  registry.Open(/*worker=*/true);
  registry.Deliver(response);
  EXPECT_FALSE(other.get()->Busy());
  // Nothing waits for customer 1.
  EXPECT_EQ(registry.Overdue(std::chrono::seconds(0)), "");
  registry.Deliver(RequestOf(0, 1, 2));
  EXPECT_NE(registry.Overdue(std::chrono::seconds(0)), "");
}

TEST(Registry, NumbersRequestsOfTheSameIds) {
  Registry registry;
  EXPECT_EQ(registry.NextTimestamp(0, 1), 0);
  EXPECT_EQ(registry.NextTimestamp(0, 2), 0);
  EXPECT_EQ(registry.NextTimestamp(0, 1), 1);
  registry.Clear();
  EXPECT_EQ(registry.NextTimestamp(0, 1), 2);
}

TEST(Registry, DrainsCustomersAndDropsWhatComesLater) {
  const std::atomic<bool> failed{false};
  Registry registry;
  std::atomic<int> handled{0};
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  ::ps::Customer slow(9, 0, [&handled, opened](const ::ps::Message&) {
    opened.wait();
    ++handled;
  });
  EXPECT_TRUE(registry.Add(&slow));
  registry.Open(/*worker=*/true);
  for (int i = 0; i < 5; ++i) registry.Deliver(RequestOf(9, 0, i));
  const std::future<void> drained = std::async(std::launch::async, [&] { registry.Drain(failed); });
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  gate.set_value();
  drained.wait();
  EXPECT_EQ(handled, 5);
  registry.Deliver(RequestOf(9, 0, 5));
  EXPECT_FALSE(slow.Busy());
  // The next job.
  registry.Clear();
  registry.Deliver(RequestOf(9, 0, 6));
  EXPECT_TRUE(registry.Add(&slow));
  registry.Open(/*worker=*/true);
  registry.Drain(failed);
  EXPECT_EQ(handled, 6);
}

TEST(Registry, HasOneCustomerWithTheSameIds) {
  Registry registry;
  Noting first(6, 0), second(7, 0);
  EXPECT_TRUE(registry.Add(first.get()));
  EXPECT_FALSE(registry.Add(first.get()));
  EXPECT_TRUE(registry.Add(second.get()));
  EXPECT_EQ(registry.Find(6, 0, std::chrono::seconds(0)), first.get());
  registry.Remove(first.get());
  EXPECT_EQ(registry.Find(6, 0, std::chrono::seconds(0)), nullptr);
  registry.Clear();
  EXPECT_EQ(registry.Find(7, 0, std::chrono::seconds(0)), nullptr);
}

TEST(Customer, OfTheSameIdsIsRefused) {
  Noting first(8, 1);
  EXPECT_THROW(Noting(8, 1), dmlc::Error);
  Noting other(8, 2);
  EXPECT_NE(::ps::Postoffice::Get()->GetCustomer(8, 1), nullptr);
  EXPECT_EQ(::ps::Postoffice::Get()->GetCustomer(8, 3), nullptr);
}

}  // namespace
}  // namespace phalanx::ps_lite
