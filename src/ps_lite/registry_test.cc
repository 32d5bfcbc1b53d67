#include "src/ps_lite/registry.h"

#include <condition_variable>
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
