// SessionsFixture: sessions whose ranks are threads with clients of real nodes. A rank that drops
// its session without Leave has died. Testonly.
#ifndef PHALANX_NODE_TESTING_SESSIONS_FIXTURE_H_
#define PHALANX_NODE_TESTING_SESSIONS_FIXTURE_H_

#include <algorithm>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "phalanx/spmd.h"
#include "src/common/testing/status_matchers.h"
#include "src/common/time/clock.h"
#include "src/node/local_cluster.h"

namespace phalanx::runtime {

using spmd::Session;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::StatusIs;

inline constexpr absl::Duration kDeadline = absl::Seconds(60);
inline constexpr int kIterations = 3;
inline constexpr size_t kCount = 1000;
// Sums of them depend on their order.
inline constexpr float kValues[] = {1e8f, 1, -1e8f};

// A model of kCount floats.
struct Values {
  std::string Save() const {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  absl::Status Load(absl::string_view bytes) {
    if (bytes.size() != kCount * sizeof(float)) return absl::DataLossError("another size");
    values.resize(kCount);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
    return absl::OkStatus();
  }
  std::vector<float> values = std::vector<float>(kCount);
};

// A life of this rank dies at this point of its program.
struct Death {
  int rank = 0;
  int point = 0;
};
// Counts the places at which a life can die, and dies at one of them; 0: not.
class Points {
 public:
  // What the place where a life dies throws.
  struct Fatal {};

  explicit Points(int fatal) : fatal_(fatal) {}
  void Pass() {
    if (++count_ == fatal_) throw Fatal();
  }
  // For a life that begins behind these.
  void Skip(int passed) { count_ = passed; }
  int count() const { return count_; }

 private:
  const int fatal_;
  int count_ = 0;
};

class SessionsFixture : public ::testing::Test {
 protected:
  void Make(int nodes, int world) {
    LocalClusterOptions options;
    options.nodes = nodes;
    // A result is kept on several hosts.
    options.configure_node = [](int node, NodeConfig& config) {
      config.node.labels["host"] = absl::StrCat("host", node);
    };
    absl::StatusOr<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Start(std::move(options));
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    world_ = world;
  }
  spmd::Options OptionsOf(int rank) const {
    spmd::Options options;
    options.job = job_;
    options.task = absl::StrCat("worker", rank);
    options.world = world_;
    options.local_copies = local_copies_;
    options.peer_timeout = peer_timeout_;
    options.checkpoint_dir = checkpoint_dir_;
    return options;
  }
  std::shared_ptr<Client> Connect(int node) const {
    ClientOptions options;
    options.address = cluster_->client_address(node);
    return Client::Connect(options).value();
  }
  int NodeOf(int rank) const { return rank % cluster_->nodes(); }
  absl::StatusOr<Session> Join(int rank) const {
    return Session::Join(*Connect(NodeOf(rank)), OptionsOf(rank));
  }
  // Until the others see that the rank has died.
  void WaitForDeath(int rank) const {
    const std::shared_ptr<Client> client = Connect(0);
    const absl::StatusOr<Membership> watcher =
        client->Join(job_, "watcher", {.world = 1, .role = "watcher"});
    ASSERT_THAT(watcher, IsOk());
    for (uint64_t change = 0;;) {
      const std::vector<Member> members = watcher->Members("worker");
      const auto at = static_cast<size_t>(rank);
      if (members.size() > at && members[at].state == MemberState::kDied) break;
      const absl::StatusOr<uint64_t> next = watcher->WaitForChange(change, kDeadline);
      ASSERT_THAT(next, IsOk());
      change = *next;
    }
    EXPECT_THAT(watcher->Leave(), IsOk());
  }
  // Until the node has no object.
  void AwaitEmptyStore(int node) const {
    const Instant until = MonotonicNow() + kDeadline;
    uint64_t objects = 1;
    while (objects > 0 && MonotonicNow() < until) {
      std::this_thread::yield();
      cluster_->OnNode(node, [&](Node& each) { objects = each.store().stats().objects; });
    }
    EXPECT_EQ(objects, 0u);
  }
  void ForAllRanks(const std::function<void(int rank)>& body) const {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_; ++rank) ranks.emplace_back(body, rank);
    for (std::thread& rank : ranks) rank.join();
  }
  // Calls `body` with a session of each rank, in threads. The sessions end when all bodies have
  // returned: a rank that dies as soon as a call has ended can take the call's result, or its
  // error, with it before the others have that, and they wait for its next life. A body whose rank
  // is to die before the others calls Die.
  void ForAll(const std::function<void(Session&)>& body) const {
    std::latch returned(world_);
    ForAllRanks([&](int rank) {
      absl::StatusOr<Session> session = Join(rank);
      EXPECT_THAT(session, IsOk());
      if (session.ok()) body(*session);
      returned.arrive_and_wait();
    });
  }
  static void Die(Session& session) { const Session dead = std::move(session); }
  // Runs a program on all ranks. Each death ends one life of its rank, in this order. Returns the
  // number of points of each rank's last life.
  using FatalProgram = std::function<void(Session&, Points&)>;
  std::vector<int> RunWithDeaths(const std::vector<Death>& deaths,
                                 const FatalProgram& program) const {
    std::vector<int> counts(static_cast<size_t>(world_));
    ForAllRanks([&](int rank) {
      std::vector<int> lives;
      for (const Death& death : deaths) {
        if (death.rank == rank) lives.push_back(death.point);
      }
      lives.push_back(0);
      for (const int fatal_point : lives) {
        Points points(fatal_point);
        bool died = false;
        try {
          absl::StatusOr<Session> session = Join(rank);
          ASSERT_THAT(session, IsOk());
          program(*session, points);
        } catch (const Points::Fatal&) {
          died = true;
        }
        EXPECT_EQ(died, fatal_point > 0) << "rank " << rank << ", point " << fatal_point;
        counts[static_cast<size_t>(rank)] = points.count();
      }
    });
    return counts;
  }
  std::vector<int> RunWithDeaths(int victim, const std::vector<int>& fatal_points,
                                 const FatalProgram& program) const {
    std::vector<Death> deaths;
    for (const int point : fatal_points) deaths.push_back({victim, point});
    return RunWithDeaths(deaths, program);
  }

  std::unique_ptr<LocalCluster> cluster_;
  std::string job_ = "train";
  absl::Duration peer_timeout_ = kDeadline;
  int world_ = 0;
  int local_copies_ = 2;
  std::string checkpoint_dir_;
};

}  // namespace phalanx::runtime

#endif  // PHALANX_NODE_TESTING_SESSIONS_FIXTURE_H_
