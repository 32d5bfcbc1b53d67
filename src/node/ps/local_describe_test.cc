// How servers of real nodes are asked what they do.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/client/ps/describe_door.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::internal::Asked;
using ps::internal::AskServers;
using ps::internal::DescribeDoor;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;
using testing::StatusIs;

class LocalDescribeTest : public PsFixture {
 protected:
  LocalDescribeTest() { Make(/*nodes=*/2, /*servers=*/1, /*workers=*/1, /*shards=*/2); }

  static std::vector<absl::StatusOr<std::string>> Ask(Client& client, const std::string& job,
                                                      const std::vector<Asked>& tasks,
                                                      absl::Duration timeout) {
    const auto texts = AskServers(client, job, tasks, timeout);
    EXPECT_THAT(texts, IsOk());
    return texts.ok() ? *texts
                      : std::vector<absl::StatusOr<std::string>>(tasks.size(), texts.status());
  }
  static Asked Server(int rank, uint64_t life = 0) {
    return {.role = "server", .rank = rank, .life = life};
  }
  // Takes steps, each behind a question to its node that takes so long, until it is stopped.
  class Process {
   public:
    Process(std::shared_ptr<Client> client, const Asked& server, absl::Duration step)
        : client_(std::move(client)), door_(std::in_place, client_, "job", server) {
      door_->Begin();
      // Until it is open.
      for (int i = 0; i < 20; ++i) Step(absl::Milliseconds(10));
      thread_ = std::thread([this, step] {
        while (!ends_) Step(step);
      });
    }
    ~Process() { Stop(); }
    // Its door stays.
    void Stop() {
      ends_ = true;
      if (thread_.joinable()) thread_.join();
    }

   private:
    void Step(absl::Duration step) {
      client_->Get(ObjectId::Random(), {.timeout = step}).Wait().status().IgnoreError();
      door_->Step([] { return std::string("it serves"); });
    }

    std::shared_ptr<Client> client_;
    std::optional<DescribeDoor> door_;
    std::atomic<bool> ends_ = false;
    std::thread thread_;
  };
};

// Hundreds of workers leave a server all the time that there is.
TEST_F(LocalDescribeTest, AServerThatIsBusyIsWaitedForWhateverTheNumberOfTasks) {
  Process server(Connect(0), Server(0), absl::Milliseconds(300));
  std::vector<Asked> tasks = {Server(0)};
  for (int rank = 0; rank < 300; ++rank) tasks.push_back({.role = "worker", .rank = rank});
  const std::shared_ptr<Client> client = Connect(1);
  const auto texts = Ask(*client, "job", tasks, absl::Seconds(20));
  EXPECT_THAT(texts[0], IsOkAndHolds("it serves"));
  EXPECT_THAT(texts[1], IsOkAndHolds(""));
}

TEST_F(LocalDescribeTest, AServerThatIsStoppedTakesNoTimeFromTheOthers) {
  Process stopped(Connect(0), Server(0), absl::Milliseconds(10));
  Process server(Connect(0), Server(1), absl::Milliseconds(10));
  stopped.Stop();
  const std::shared_ptr<Client> client = Connect(1);
  const auto texts = Ask(*client, "job", {Server(0), Server(1)}, absl::Seconds(2));
  EXPECT_THAT(texts[0], StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(texts[1], IsOkAndHolds("it serves"));
}

TEST_F(LocalDescribeTest, AnEarlierLifeDoesNotCloseTheDoorOfTheNext) {
  auto before = std::make_unique<Process>(Connect(0), Server(0, 0), absl::Milliseconds(10));
  before->Stop();
  Process server(Connect(1), Server(0, 1), absl::Milliseconds(10));
  before.reset();
  const std::shared_ptr<Client> client = Connect(1);
  for (int i = 0; i < 2; ++i) {
    const auto texts = Ask(*client, "job", {Server(0, 1)}, kDeadline);
    EXPECT_THAT(texts[0], IsOkAndHolds("it serves"));
  }
}

TEST_F(LocalDescribeTest, AServerThatIsNotInRunIsNamedBesideOneThatIs) {
  Process server(Connect(0), Server(0), absl::Milliseconds(10));
  const std::shared_ptr<Client> client = Connect(1);
  const Asked worker = {.role = "worker", .rank = 0};
  const auto texts = Ask(*client, "job", {Server(0), Server(1), worker}, absl::Seconds(2));
  EXPECT_THAT(texts[0], IsOkAndHolds("it serves"));
  EXPECT_THAT(texts[1], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not in Run")));
  EXPECT_THAT(texts[2], IsOkAndHolds(""));
}

// A task whose door cannot be looked for need not be a server.
TEST_F(LocalDescribeTest, AShardThatIsAwayMakesNoWorkerAServer) {
  std::vector<std::unique_ptr<Process>> servers;
  std::vector<Asked> tasks;
  for (int rank = 0; rank < 6; ++rank) {
    tasks.push_back(Server(rank));
    servers.push_back(std::make_unique<Process>(Connect(0), Server(rank), absl::Milliseconds(10)));
  }
  for (int rank = 0; rank < 20; ++rank) tasks.push_back({.role = "worker", .rank = rank});
  const std::shared_ptr<Client> client = Connect(1);
  cluster_->KillShard(1);
  const auto texts = Ask(*client, "job", tasks, absl::Seconds(2));
  // Doors of the other shard show which role is that of servers.
  for (size_t i = 0; i < 6; ++i) EXPECT_THAT(texts[i], Not(IsOkAndHolds(""))) << i;
  for (size_t i = 6; i < texts.size(); ++i) EXPECT_THAT(texts[i], IsOkAndHolds("")) << i;
  // It is known of none that it is one.
  const std::vector<Asked> workers(tasks.begin() + 6, tasks.end());
  EXPECT_THAT(AskServers(*client, "job", workers, absl::Seconds(1)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace phalanx::runtime
