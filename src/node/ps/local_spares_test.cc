// Spares of real nodes, without the servers' programs: members of the job take the parts of those
// that have died.
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/client/ps/spares/spare.h"
#include "src/common/time/clock.h"
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

  ~LocalSparesTest() override {
    for (int rank = 0; rank < 2; ++rank) unlink(PartsOf(rank).c_str());
  }
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
    SpareOptions options = Spare(job, rank, spares);
    options.join_timeout = join_timeout;
    return StartSpare(options, rank % 2);
  }
  static SpareOptions Spare(const std::string& job, int rank, int spares) {
    SpareOptions options;
    options.world = spares;
    options.job = job;
    options.task = absl::StrCat("spare", rank);
    options.server_role = "server";
    options.join_timeout = kDeadline;
    options.absent_after = absl::Seconds(1);
    options.parts = PartsOf(rank);
    return options;
  }
  std::unique_ptr<Process> StartSpare(const SpareOptions& options, int node) const {
    auto spare = std::make_unique<Process>(Process{Connect(node)});
    unlink(options.parts.c_str());
    spare->thread = std::thread(
        [options, &process = *spare] { process.member = JoinInsteadOf(*process.client, options); });
    return spare;
  }
  // Until the spare has seen how the servers are.
  void AwaitLook(int rank) const {
    const std::shared_ptr<Client> client = Connect(0);
    const Instant until = MonotonicNow() + kDeadline;
    while (access(PartsOf(rank).c_str(), F_OK) != 0 && MonotonicNow() < until) {
      const absl::Duration pause = absl::Milliseconds(5);
      client->Get(ObjectId::Random(), {.timeout = pause}).Wait().status().IgnoreError();
    }
    unlink(PartsOf(rank).c_str());
  }
  static std::string PartsOf(int rank) {
    return absl::StrCat(::testing::TempDir(), "/spare", getpid(), ".", rank);
  }
};

// Spare 1 has to see both deaths before it takes a part, or that spare 0 has one.
TEST_F(LocalSparesTest, ServersThatDieAtOnceAreReplacedByDifferentSpares) {
  for (int run = 0; run < 30; ++run) {
    const std::string job = absl::StrCat("job", run);
    std::vector<std::unique_ptr<Process>> servers, spares;
    for (int rank = 0; rank < servers_; ++rank) servers.push_back(StartServer(job, rank));
    for (int rank = 0; rank < 2; ++rank) {
      spares.push_back(StartSpare(job, rank, 2));
      AwaitLook(rank);
    }
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
  SpareOptions options = Spare("job", 1, 2);
  options.absent_after = absl::InfiniteDuration();
  const std::unique_ptr<Process> spare = StartSpare(options, 1);
  AwaitLook(1);
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

// The only server can fail before it has joined.
TEST_F(LocalSparesTest, AServerIsReplacedThoughNoneHasJoined) {
  SpareOptions options = Spare("job", 0, 1);
  options.server_world = 2;
  options.server_role = "ps";
  options.server_task = "server";
  const std::unique_ptr<Process> spare = StartSpare(options, 0);
  spare->thread.join();
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 0);
  EXPECT_EQ(spare->member->world(), 2);
  // The name that the launch has given, whatever the program calls the role.
  EXPECT_EQ(spare->member->role(), "ps");
  EXPECT_EQ(spare->member->task(), "server0");
}

// Of several launches the last can be late.
TEST_F(LocalSparesTest, AServerThatIsLateIsWaitedForHalfOfTheTimeoutByDefault) {
  const std::unique_ptr<Process> server = StartServer("job", 0);
  SpareOptions options = Spare("job", 0, 1);
  options.join_timeout = absl::Seconds(8);
  options.absent_after.reset();
  const Instant begin = MonotonicNow();
  const std::unique_ptr<Process> spare = StartSpare(options, 0);
  spare->thread.join();
  EXPECT_GE(MonotonicNow() - begin, absl::Seconds(4));
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 1);
}

// A job is remembered for a minute. The servers of the next run may be on their way.
TEST_F(LocalSparesTest, ServersOfAnEarlierRunThatWasKilledAreNotReplacedAtOnce) {
  for (int rank = 0; rank < servers_; ++rank) {
    EXPECT_THAT(StartServer("job", rank)->member->Fail(), IsOk());
  }
  SpareOptions options = Spare("job", 0, 1);
  options.absent_after = absl::InfiniteDuration();
  const std::unique_ptr<Process> spare = StartSpare(options, 0);
  std::vector<std::unique_ptr<Process>> servers;
  for (int rank = 0; rank < servers_; ++rank) {
    // It has its time to take a part.
    if (rank == 1) AwaitLook(0);
    servers.push_back(StartServer("job", rank));
    EXPECT_EQ(servers[rank]->member->life(), 1u);
  }
  // A death of this run is its own.
  EXPECT_THAT(servers[1]->member->Fail(), IsOk());
  spare->thread.join();
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 1);
  EXPECT_EQ(spare->member->life(), 2u);
  EXPECT_THAT(servers[0]->member->status(), IsOk());
}

TEST_F(LocalSparesTest, ServersOfAnEarlierRunThatDoNotComeAreReplaced) {
  for (int rank = 0; rank < servers_; ++rank) {
    EXPECT_THAT(StartServer("job", rank)->member->Fail(), IsOk());
  }
  const Instant begin = MonotonicNow();
  const std::unique_ptr<Process> spare = StartSpare("job", 0, 1);
  spare->thread.join();
  EXPECT_GE(MonotonicNow() - begin, absl::Seconds(1));
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->life(), 1u);
}

// Snapshots can take all of it for a while.
TEST_F(LocalSparesTest, ASpareWhoseNodeHasNoMemoryTriesAgain) {
  const std::shared_ptr<Client> client = Connect(0);
  std::vector<ObjectId> fill;
  // At last none of the size of a claim fits.
  const size_t claim = ObjectId::Random().binary().size();
  for (size_t size = size_t{64} << 20; size > 0;) {
    const ObjectId id = ObjectId::Random();
    PutOptions options;
    options.timeout = absl::ZeroDuration();
    if (client->Put(id, std::string(size, 'x'), options).Wait().ok()) {
      fill.push_back(id);
    } else {
      size = size > 4096 ? size / 2 : size > claim ? claim : 0;
    }
  }
  const std::unique_ptr<Process> server = StartServer("job", 1);
  SpareOptions options = Spare("job", 0, 1);
  options.absent_after = absl::InfiniteDuration();
  options.claim_timeout = absl::Milliseconds(50);
  const std::unique_ptr<Process> spare = StartSpare(options, 0);
  AwaitLook(0);
  EXPECT_THAT(server->member->Fail(), IsOk());
  // Some claims fail.
  client->Get(ObjectId::Random(), {.timeout = absl::Seconds(2)}).Wait().status().IgnoreError();
  for (const ObjectId& id : fill) EXPECT_THAT(client->Delete(id).Wait(), IsOk());
  spare->thread.join();
  ASSERT_THAT(spare->member, IsOk());
  EXPECT_EQ(spare->member->rank(), 1);
}

TEST_F(LocalSparesTest, ASpareOutlivesServersThatHadLeftBeforeItCame) {
  for (int rank = 0; rank < servers_; ++rank) {
    EXPECT_THAT(StartServer("job", rank)->member->Leave(), IsOk());
  }
  const Instant begin = MonotonicNow();
  // Longer than a spare stays behind servers that have left in its time.
  const std::unique_ptr<Process> spare = StartSpare("job", 0, 1, absl::Seconds(14));
  spare->thread.join();
  EXPECT_GE(MonotonicNow() - begin, absl::Seconds(14));
  EXPECT_THAT(spare->member.status(), StatusIs(absl::StatusCode::kCancelled,
                                               HasSubstr("all servers of job job have left")));
}

}  // namespace
}  // namespace phalanx::runtime
