// The threads that drive a client: threads that wait, a program's own event loop, a callback
// thread.
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "src/common/testing/status_matchers.h"
#include "src/local/testing/local_node.h"

namespace phalanx {
namespace {

using ::phalanx::object_store::testing::LocalNode;
using ::phalanx::testing::IsOk;
using ::phalanx::testing::StatusIs;
using ::testing::HasSubstr;

ObjectId Id(int i) { return ObjectId::FromName("test", absl::StrCat(i)); }

std::shared_ptr<Client> ConnectTo(const LocalNode& node, bool callback_thread = false) {
  ClientOptions options;
  options.address = node.address();
  options.callback_thread = callback_thread;
  auto client = Client::Connect(options);
  EXPECT_THAT(client, IsOk());
  return *client;
}

// Any thread can open it, once.
class Gate {
 public:
  void Open() {
    const std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
    opened_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mu_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mu_;
  std::condition_variable opened_;
  bool open_ = false;
};

bool Readable(int fd, int timeout_ms) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, timeout_ms) == 1;
}

// ---------------------------------------------------------------------------- threads

TEST(ClientThreads, ManyThreadsShareOneClient) {
  LocalNode node;
  const auto client = ConnectTo(node);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&client, t] {
      for (int i = 0; i < 100; ++i) {
        const int number = t * 1000 + i;
        const size_t size = (i % 10 == 0) ? (1 << 20) + i : (i % 3 == 0 ? 100000 : 100);
        const std::string bytes(size, static_cast<char>('a' + number % 26));
        ASSERT_THAT(client->Put(Id(number), bytes).Wait(), IsOk());
        const auto buffer = client->Get(Id(number)).Wait();
        ASSERT_THAT(buffer, IsOk());
        ASSERT_TRUE(buffer->view() == bytes);
        if (i % 2 == 0) {
          ASSERT_THAT(client->Delete(Id(number)).Wait(), IsOk());
        }
        ASSERT_TRUE(buffer->view() == bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  node.Await([&] { return node.store().stats().pins == 0; });
  EXPECT_THAT(node.CheckInvariants(), IsOk());
}

TEST(ClientThreads, WaitersOfOneObjectAllWake) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const Future<Buffer> future = client->Get(Id(1));
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Future<Buffer> mine = t % 2 == 0 ? future : client->Get(Id(1));
      if (mine.Wait().ok()) ++got;
    });
  }
  node.Await([&] { return node.store().stats().waiting_gets == 5; });
  EXPECT_THAT(ConnectTo(node)->Put(Id(1), "bytes").Wait(), IsOk());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 8);
}

TEST(ClientThreads, WritersCanEndWhileTheRequestLimitIsReached) {
  LocalNode node;
  const auto client = ConnectTo(node);
  auto sealed = client->Create(Id(1), 2 << 20);
  auto aborted = client->Create(Id(2), 2 << 20);
  ASSERT_THAT(sealed, IsOk());
  ASSERT_THAT(aborted, IsOk());
  std::vector<Future<Buffer>> waiting;
  for (int i = 3; waiting.empty() || !waiting.back().ready(); ++i) {
    waiting.push_back(client->Get(Id(i)));
  }
  ASSERT_THAT(waiting.back().Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  aborted->Abort();
  EXPECT_THAT(sealed->Seal().Wait(), IsOk());
  waiting.clear();
  client->Close();
  EXPECT_THAT(ConnectTo(node)->Put(Id(2), "bytes").Wait(), IsOk());
}

TEST(ClientThreads, ALeaderWithItsResultHandsOver) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const auto writer = ConnectTo(node);
  // Each thread leads in turn: the first one to get its answer must hand over to another.
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] { EXPECT_THAT(client->Get(Id(t)).Wait(), IsOk()); });
  }
  node.Await([&] { return node.store().stats().waiting_gets == 6; });
  for (int t = 0; t < 6; ++t) EXPECT_THAT(writer->Put(Id(t), "bytes").Wait(), IsOk());
  for (std::thread& thread : threads) thread.join();
}

TEST(ClientThreads, CancelAndCloseWakeTheLeader) {
  LocalNode node;
  const auto client = ConnectTo(node);
  for (const bool close : {false, true}) {
    const Future<Buffer> future = client->Get(Id(1));
    std::thread waiter([&] {
      EXPECT_THAT(future.Wait(), StatusIs(close ? absl::StatusCode::kFailedPrecondition
                                                : absl::StatusCode::kCancelled));
    });
    node.Await([&] { return node.store().stats().waiting_gets == 1; });
    if (close) {
      client->Close();
    } else {
      future.Cancel();
    }
    waiter.join();
    node.Await([&] { return node.store().stats().waiting_gets == 0; });
  }
}

TEST(ClientThreads, BuffersCanBeDroppedOnAnyThread) {
  LocalNode node;
  const auto client = ConnectTo(node);
  ASSERT_THAT(client->Put(Id(1), std::string(100000, 'x')).Wait(), IsOk());
  ASSERT_THAT(client->Put(Id(2), std::string(2 << 20, 'x')).Wait(), IsOk());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<ObjectId> ids;
      for (int i = 0; i < 500; ++i) ids.push_back(Id(1 + i % 2));
      auto buffers = client->GetMany(ids).Wait();
      ASSERT_THAT(buffers, IsOk());
      std::thread([taken = *std::move(buffers)]() mutable { taken.clear(); }).join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  node.Await([&] { return node.store().stats().pins == 0; });
}

// ---------------------------------------------------------------------------- callbacks

TEST(ClientCallbacks, RunInPollAndNotInTheCallThatRegistersThem) {
  LocalNode node;
  const auto client = ConnectTo(node);
  int calls = 0;
  const Future<PutResult> put = client->Put(Id(1), "bytes");
  put.OnReady([&](const absl::StatusOr<PutResult>& result) {
    EXPECT_THAT(result, IsOk());
    ++calls;
  });
  EXPECT_EQ(client->Poll(absl::Seconds(60)), 1);
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(put.ready());
  put.OnReady([&](const absl::StatusOr<PutResult>&) { ++calls; });
  EXPECT_EQ(calls, 1) << "not inside OnReady";
  EXPECT_EQ(client->Poll(), 1);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(client->Poll(), 0);
}

TEST(ClientCallbacks, CanCallTheClientAndWait) {
  LocalNode node;
  const auto client = ConnectTo(node);
  std::vector<std::string> order;
  client->Put(Id(1), "one").OnReady([&](const absl::StatusOr<PutResult>&) {
    order.push_back("put");
    // Waits inside a callback, and so drives the connection itself.
    const auto buffer = client->Get(Id(1)).Wait();
    ASSERT_THAT(buffer, IsOk());
    order.emplace_back(buffer->view());
    client->Put(Id(2), "two").OnReady([&](const absl::StatusOr<PutResult>&) {
      order.push_back("second");
    });
  });
  while (order.size() < 3) client->Poll(absl::Seconds(60));
  EXPECT_THAT(order, ::testing::ElementsAre("put", "one", "second"));
}

TEST(ClientCallbacks, RunInAnyThreadThatWaits) {
  LocalNode node;
  const auto client = ConnectTo(node);
  std::thread::id ran_on;
  client->Put(Id(1), "one").OnReady([&](const absl::StatusOr<PutResult>&) {
    ran_on = std::this_thread::get_id();
  });
  EXPECT_THAT(client->Put(Id(2), "two").Wait(), IsOk());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(ClientCallbacks, AWaitingLeaderRunsWhatAnotherThreadRegisters) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const Future<PutResult> ready = client->Put(Id(1), "bytes");
  ASSERT_THAT(ready.Wait(), IsOk());
  const Future<Buffer> waiting = client->Get(Id(2));
  std::thread leader([&] { waiting.Wait().IgnoreError(); });
  node.Await([&] { return node.store().stats().waiting_gets == 1; });
  Gate ran;
  ready.OnReady([&](const absl::StatusOr<PutResult>&) { ran.Open(); });
  ran.Pass();
  waiting.Cancel();
  leader.join();
}

TEST(ClientCallbacks, RunInTheCallbackThread) {
  LocalNode node;
  auto client = ConnectTo(node, /*callback_thread=*/true);
  Gate ran;
  std::thread::id ran_on;
  client->Put(Id(1), "bytes").OnReady([&](const absl::StatusOr<PutResult>&) {
    ran_on = std::this_thread::get_id();
    ran.Open();
  });
  ran.Pass();
  EXPECT_NE(ran_on, std::this_thread::get_id());
  // Waiting threads do not run them.
  Gate second;
  std::thread::id second_on;
  const Future<PutResult> put = client->Put(Id(2), "bytes");
  put.OnReady([&](const absl::StatusOr<PutResult>&) {
    second_on = std::this_thread::get_id();
    second.Open();
  });
  EXPECT_THAT(put.Wait(), IsOk());
  second.Pass();
  EXPECT_EQ(second_on, ran_on);
  // Outstanding calls are called back before Close returns.
  bool closed = false;
  client->Get(Id(3)).OnReady([&](const absl::StatusOr<Buffer>& result) {
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kFailedPrecondition));
    closed = true;
  });
  client->Close();
  EXPECT_TRUE(closed);
}

TEST(ClientCallbacks, WhatBecomesReadyWhileACallbackRunsIsRunAfterIt) {
  LocalNode node;
  auto client = ConnectTo(node, /*callback_thread=*/true);
  Gate runs, ends, second;
  client->Put(Id(1), "bytes").OnReady([&](const absl::StatusOr<PutResult>&) {
    runs.Open();
    ends.Pass();
  });
  runs.Pass();
  const Future<PutResult> put = client->Put(Id(2), "bytes");
  put.OnReady([&](const absl::StatusOr<PutResult>&) { second.Open(); });
  EXPECT_THAT(put.Wait(), IsOk());
  ends.Open();
  second.Pass();
}

TEST(ClientCallbacks, ACallbackCanDropTheLastReference) {
  LocalNode node;
  for (const bool thread : {false, true}) {
    auto client = ConnectTo(node, thread);
    Gate gone;
    const Future<PutResult> put = client->Put(Id(1), "bytes");
    put.OnReady([&](const absl::StatusOr<PutResult>&) {
      client.reset();
      gone.Open();
    });
    if (!thread) {
      const std::shared_ptr<Client> keep = client;
      while (client != nullptr) keep->Poll(absl::Seconds(60));
    }
    gone.Pass();
    node.Await([&] { return node.service().stats().clients == 0; });
  }
}

// ---------------------------------------------------------------------------- a program's own loop

TEST(ClientLoop, AnIdleClientIsNotReadable) {
  LocalNode node;
  const auto client = ConnectTo(node);
  ASSERT_THAT(client->Put(Id(1), "bytes").Wait(), IsOk());
  EXPECT_FALSE(Readable(client->fd(), 0));
  const Future<Buffer> waiting = client->Get(Id(2));
  EXPECT_EQ(client->Poll(), 0);
  EXPECT_FALSE(Readable(client->fd(), 20));
}

TEST(ClientLoop, AnEpollLoopDrivesEverything) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  epoll_event watch{};
  watch.events = EPOLLIN;
  ASSERT_EQ(epoll_ctl(loop, EPOLL_CTL_ADD, client->fd(), &watch), 0);
  int done = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string bytes(i % 5 == 0 ? 300000 : 300, 'x');
    client->Put(Id(i), bytes).OnReady([&, i](const absl::StatusOr<PutResult>& put) {
      EXPECT_THAT(put, IsOk());
      client->Get(Id(i)).OnReady([&](const absl::StatusOr<Buffer>& buffer) {
        EXPECT_THAT(buffer, IsOk());
        ++done;
      });
    });
  }
  while (done < 50) {
    epoll_event event{};
    ASSERT_EQ(epoll_wait(loop, &event, 1, 60000), 1) << done << " done, and nothing to do";
    client->Poll();
  }
  while (Readable(client->fd(), 0)) client->Poll();
  close(loop);
}

TEST(ClientLoop, ACallbackOnAnEndedCallMakesTheDescriptorReadable) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const Future<PutResult> put = client->Put(Id(1), "bytes");
  ASSERT_THAT(put.Wait(), IsOk());
  const int fd = client->fd();
  put.OnReady([](const absl::StatusOr<PutResult>&) {});
  EXPECT_TRUE(Readable(fd, 0));
  EXPECT_EQ(client->Poll(), 1);
  EXPECT_FALSE(Readable(fd, 0));
}

TEST(ClientLoop, PollBlocksForItsTimeoutAndNoLonger) {
  LocalNode node;
  const auto client = ConnectTo(node);
  EXPECT_EQ(client->Poll(absl::Milliseconds(20)), 0);
  const Future<Buffer> waiting = client->Get(Id(1));
  std::thread writer([&] { EXPECT_THAT(ConnectTo(node)->Put(Id(1), "bytes").Wait(), IsOk()); });
  // Returns when the answer has arrived, although there is no callback.
  while (!waiting.ready()) client->Poll(absl::Seconds(60));
  writer.join();
}

TEST(ClientLoop, PollOfAClosedClientReturns) {
  LocalNode node;
  const auto client = ConnectTo(node);
  // Holds whether or not the poller has begun to wait.
  std::thread poller([&] { client->Poll(absl::InfiniteDuration()); });
  client->Close();
  poller.join();
  EXPECT_EQ(client->Poll(absl::InfiniteDuration()), 0);
}

TEST(ClientLoop, CallsOtherThanWaitAndPollRunNoCallbacks) {
  LocalNode node;
  const auto client = ConnectTo(node);
  int calls = 0;
  const auto count = [&calls](const auto&) { ++calls; };
  // The answer to the Put arrives before the answers of the other calls.
  client->Put(Id(1), "bytes").OnReady(count);
  EXPECT_THAT(client->Create(Id(2), 1 << 20), IsOk());
  EXPECT_EQ(calls, 0);
  client->Put(Id(3), "more").OnReady(count);
  auto stream = client->GetStream(Id(3));
  ASSERT_THAT(stream, IsOk());
  EXPECT_THAT(stream->Next(), IsOk());
  EXPECT_EQ(calls, 0);
  while (calls < 2) client->Poll(absl::Seconds(60));
}

TEST(ClientLoop, AWaitWithZeroTimeoutHandlesReceivedAnswers) {
  LocalNode node;
  const auto client = ConnectTo(node);
  const Future<PutResult> put = client->Put(Id(1), "bytes");
  while (!put.Wait(absl::ZeroDuration()).ok()) {
  }
  EXPECT_THAT(client->Get(Id(2)).Wait(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(ClientLoop, ClientEndsCallsOfASilentNodeAfterTheDeadline) {
  LocalNode node;
  const auto client = ConnectTo(node);
  Gate stop;
  Gate stopped;
  std::thread stopper([&] {
    node.OnLoop([&] {
      stopped.Open();
      stop.Pass();
    });
  });
  stopped.Pass();
  GetOptions options;
  options.timeout = absl::Milliseconds(1);
  const Future<Buffer> waited_for = client->Get(Id(1), options);
  EXPECT_THAT(waited_for.Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("has not answered")));
  // The same for an event loop: the descriptor becomes readable.
  const int fd = client->fd();
  const Future<Buffer> polled = client->Get(Id(2), options);
  EXPECT_FALSE(Readable(fd, 0));
  EXPECT_TRUE(Readable(fd, 60000));
  client->Poll();
  EXPECT_TRUE(polled.ready());
  stop.Open();
  stopper.join();
  // Late answers are dropped.
  EXPECT_THAT(client->Put(Id(3), "bytes").Wait(), IsOk());
}

TEST(ClientLoop, PutsWaitAndFailIfTheNodeDoesNotRead) {
  LocalNode node;
  const auto client = ConnectTo(node);
  Gate stop;
  Gate stopped;
  std::thread stopper([&] {
    node.OnLoop([&] {
      stopped.Open();
      stop.Pass();
    });
  });
  stopped.Pass();
  const std::string bytes(1 << 19, 'x');
  PutOptions options;
  options.timeout = absl::Milliseconds(1);
  std::vector<Future<PutResult>> puts;
  for (int i = 0; i < 100; ++i) puts.push_back(client->Put(Id(i), bytes, options));
  // The Puts beyond the window never left this process.
  EXPECT_THAT(puts.back().Wait(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("earlier Puts")));
  stop.Open();
  stopper.join();
  for (int i = 0; i < 10; ++i) puts[static_cast<size_t>(i)].Wait().IgnoreError();
  EXPECT_THAT(client->Put(Id(200), bytes).Wait(), IsOk());
}

}  // namespace
}  // namespace phalanx
