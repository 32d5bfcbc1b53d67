// Spares of real nodes, without the servers' programs: members of the job take the parts of those
// that have died.
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/client/ps/spare.h"
#include "src/node/testing/ps_fixture.h"

namespace phalanx::runtime {
namespace {

using ps::internal::JoinInsteadOf;
using ps::internal::SpareOptions;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class LocalSparesTest : public PsFixture {
 protected:
  // A process with a client of its own.
  struct Process {
    std::shared_ptr<Client> client;
    absl::StatusOr<Membership> member = absl::UnknownError("not joined");
    std::thread thread = {};
  };

  LocalSparesTest() { Make(/*nodes=*/2, /*servers=*/2, /*workers=*/0); }

  std::unique_ptr<Process> StartServer(const std::string& job, int rank) const {
    auto server = std::make_unique<Process>(Process{Connect(rank % 2)});
    server->member = server->client->Join(job, absl::StrCat("server", rank),
                                          {.world = servers_, .role = "server"});
    EXPECT_THAT(server->member, IsOk());
    return server;
  }
  std::unique_ptr<Process> StartSpare(const std::string& job, int rank, int spares,
                                      absl::Duration join_timeout = kDeadline) const {
    auto spare = std::make_unique<Process>(Process{Connect(rank % 2)});
    spare->thread = std::thread([job, rank, spares, join_timeout, &process = *spare] {
      SpareOptions options;
      options.world = spares;
      options.job = job;
      options.task = absl::StrCat("spare", rank);
      options.server_role = "server";
      options.join_timeout = join_timeout;
      options.absent_after = absl::Seconds(1);
      process.member = JoinInsteadOf(*process.client, options);
    });
    return spare;
  }
};

// Spare 1 has to see both deaths before it takes a part, or that spare 0 has one.
TEST_F(LocalSparesTest, ServersThatDieAtOnceAreReplacedByDifferentSpares) {
  for (int run = 0; run < 30; ++run) {
    const std::string job = absl::StrCat("job", run);
    std::vector<std::unique_ptr<Process>> servers, spares;
    for (int rank = 0; rank < servers_; ++rank) servers.push_back(StartServer(job, rank));
    for (int rank = 0; rank < 2; ++rank) spares.push_back(StartSpare(job, rank, 2));
    // In no order of ranks.
    const int first = run % servers_;
    EXPECT_THAT(servers[first]->member->Fail(), IsOk());
    EXPECT_THAT(servers[1 - first]->member->Fail(), IsOk());
    std::set<int> parts;
    for (const std::unique_ptr<Process>& spare : spares) {
      spare->thread.join();
      ASSERT_THAT(spare->member, IsOk()) << "run " << run;
      EXPECT_EQ(spare->member->life(), 1u) << "run " << run;
      parts.insert(spare->member->rank());
    }
    EXPECT_EQ(parts.size(), 2u) << "run " << run;
    for (const std::unique_ptr<Process>& spare : spares) {
      EXPECT_THAT(spare->member->status(), IsOk()) << "run " << run;
    }
  }
}

TEST_F(LocalSparesTest, ASpareThatIsStoppedKeepsNoOtherFromAPart) {
  const std::unique_ptr<Process> server = StartServer("job", 0);
  const std::shared_ptr<Client> client = Connect(0);
  const absl::StatusOr<Membership> stopped =
      client->Join("job", "spare0", {.world = 2, .role = "server-spare"});
  ASSERT_THAT(stopped, IsOk());
  const std::unique_ptr<Process> spare = StartSpare("job", 1, 2);
  EXPECT_THAT(server->member->Fail(), IsOk());
  spare->thread.join();
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 0);
}

// It can have failed before it has joined.
TEST_F(LocalSparesTest, AServerThatDoesNotComeIsReplaced) {
  const std::unique_ptr<Process> server = StartServer("job", 1);
  const std::unique_ptr<Process> spare = StartSpare("job", 0, 1);
  spare->thread.join();
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 0);
  EXPECT_EQ(spare->member->task(), "server0");
  EXPECT_THAT(server->member->status(), IsOk());
}

TEST_F(LocalSparesTest, ASpareDoesNotWaitForEverForServersThatDoNotCome) {
  const std::unique_ptr<Process> spare = StartSpare("job", 0, 1, absl::Seconds(1));
  spare->thread.join();
  EXPECT_THAT(spare->member.status(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                               HasSubstr("no server of job job has joined")));
}

}  // namespace
}  // namespace phalanx::runtime
