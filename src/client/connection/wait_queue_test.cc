// Which waiting thread is woken, and how.
#include "src/client/connection/wait_queue.h"

#include <poll.h>

#include <thread>

#include "gtest/gtest.h"

namespace phalanx::internal {
namespace {

bool Nudged(const WaitQueue& queue) {
  pollfd ready{queue.nudge_fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

bool Never() { return false; }
bool Always() { return true; }

TEST(WaitQueueTest, OnlyALeaderIsNudgedAndItsEndTakesTheNudgeBack) {
  WaitQueue queue;
  queue.Nudge();
  EXPECT_FALSE(Nudged(queue));
  queue.BeginLead(nullptr);
  queue.Nudge();
  queue.Nudge();
  EXPECT_TRUE(Nudged(queue));
  queue.EndLead();
  EXPECT_FALSE(Nudged(queue));
  EXPECT_FALSE(queue.leading());
}

TEST(WaitQueueTest, ALeaderWhoseWaitHasEndedIsNudged) {
  WaitQueue queue;
  Waiter leader{Always, false, {}};
  const WaitQueue::Place place = queue.Add(leader);
  queue.BeginLead(&leader);
  queue.WakeEnded(/*callbacks_ready=*/false);
  EXPECT_TRUE(Nudged(queue));
  queue.EndLead();
  queue.Remove(place);
}

TEST(WaitQueueTest, OneThreadIsWokenForCallbacks) {
  WaitQueue queue;
  // The first waiter runs them, so the leader behind it goes on polling.
  Waiter runner{Never, true, {}};
  Waiter leader{Never, true, {}};
  const WaitQueue::Place first = queue.Add(runner);
  const WaitQueue::Place second = queue.Add(leader);
  queue.BeginLead(&leader);
  queue.WakeEnded(/*callbacks_ready=*/true);
  EXPECT_FALSE(Nudged(queue));
  queue.Remove(first);
  queue.WakeEnded(/*callbacks_ready=*/true);
  EXPECT_TRUE(Nudged(queue));
  queue.EndLead();
  queue.Remove(second);
}

TEST(WaitQueueTest, TheNextLeaderIsWoken) {
  Mutex mu;
  WaitQueue queue;
  bool led = false;
  mu.Lock();
  Waiter self{Never, false, {}};
  Waiter follower{Never, false, {}};
  const WaitQueue::Place first = queue.Add(self);
  const WaitQueue::Place second = queue.Add(follower);
  std::thread thread([&] {
    mu.Lock();
    follower.wake.WaitFor(mu, absl::Seconds(60));
    led = true;
    mu.Unlock();
  });
  while (!led) {
    queue.WakeNextLeader(&self);
    mu.Unlock();
    std::this_thread::yield();
    mu.Lock();
  }
  queue.Remove(first);
  queue.Remove(second);
  mu.Unlock();
  thread.join();
}

}  // namespace
}  // namespace phalanx::internal
