// The mark of a server's life that has ended well, as an object of real nodes.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "src/client/ps/run_mark.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::internal::RunMark;
using testing::IsOk;
using Before = RunMark::Before;

class LocalRunMarkTest : public PsFixture {
 protected:
  LocalRunMarkTest() { Make(/*nodes=*/1, /*servers=*/1, /*workers=*/1); }
};

// Run and barriers of server 0 ask in threads of their own, and so may a life that is not known to
// have ended. The mark that they find is that of a run that the job has forgotten.
TEST_F(LocalRunMarkTest, ThoseThatAskAtOnceHaveOneAnswer) {
  const std::shared_ptr<Client> client = Connect(0);
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(Connect(0));
  for (int round = 0; round < 20; ++round) {
    const std::string server = absl::StrCat("train/server/", round);
    ASSERT_THAT(RunMark(client, server, 0).End(kDeadline), IsOk());
    RunMark mark(client, server, 0);
    absl::Notification begin;
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        RunMark own(clients[i], server, 0);
        begin.WaitForNotification();
        const absl::StatusOr<Before> before = (i % 2 == 0 ? mark : own).Begin(kDeadline);
        ASSERT_THAT(before, IsOk());
        EXPECT_EQ(*before, Before::kNone);
      });
    }
    begin.Notify();
    for (std::thread& thread : threads) thread.join();
  }
}

// A barrier can come when Run has ended. What Run has left is for the next run.
TEST_F(LocalRunMarkTest, WhoAsksAgainDoesNotRemoveTheMark) {
  const std::shared_ptr<Client> client = Connect(0);
  RunMark mark(client, "train/server/0", 0);
  ASSERT_THAT(mark.Begin(kDeadline), IsOk());
  ASSERT_THAT(mark.End(kDeadline), IsOk());
  ASSERT_THAT(mark.Begin(kDeadline), IsOk());
  const absl::StatusOr<Before> next = RunMark(client, "train/server/0", 1).Begin(kDeadline);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(*next, Before::kEnded);
}

}  // namespace
}  // namespace phalanx::runtime
