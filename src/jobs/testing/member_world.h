// Nodes with clients that join jobs, and the shard of the jobs, on simulated time, with the faults
// that reach them: sessions that are cut and fenced, nodes and shards that die and return.
// Testonly.
//
//   MemberWorld w({.nodes = 3});
//   Client& one = w.Join(1, {"train", "worker", "worker0", 4});
//   w.RunFor(absl::Milliseconds(50));
//   EXPECT_EQ(one.member().rank, 0);
//
// What is checked all the time; broken() has the first violation
//  1. No life of a task is given twice by one life of the shard, nor one that node 0 had seen when
//  the
//     shard died. (What only the joining node knew is lost if that node dies or is cut off, too.)
//  2. A task keeps its rank, and two tasks of a role never have one: of those that node 0 knew when
//  the
//     shard died.
//  3. The epoch of a view grows at every node, and two nodes with one epoch see the same members.
//  4. A life that ended does not become live again, and the life of a rank never falls.
//  5. A member is only ended by its client, by a newer life, by the end of its node or by a fence.
// Settle ends all faults and checks that every node sees exactly the members that live.
//
// A test that runs for longer than a grace, or restarts the shard, keeps a member of each job on
// node 0, and node 0 is not cut off or killed.
#ifndef PHALANX_JOBS_TESTING_MEMBER_WORLD_H_
#define PHALANX_JOBS_TESTING_MEMBER_WORLD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "src/common/random.h"
#include "src/directory/core/directory_core.h"
#include "src/jobs/members/members.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::jobs::testing {

class MemberWorld;

// One client process with one member.
class Client final : public MemberListener {
 public:
  enum class State { kJoining, kLive, kEnded };

  Client(MemberWorld& world, int node, JoinArguments arguments)
      : world_(world), node_(node), arguments_(std::move(arguments)) {}

  State state() const { return state_; }
  bool live() const { return state_ == State::kLive; }
  int node() const { return node_; }
  const JoinArguments& arguments() const { return arguments_; }
  // Of the last life; valid once the client has joined.
  const LocalMember& member() const { return member_; }
  // Why it did not join, or has ended.
  const absl::Status& why() const { return why_; }
  int changes() const { return changes_; }

 private:
  friend class MemberWorld;
  void OnJoined(MemberId id, const absl::StatusOr<LocalMember>& member) override;
  void OnChanged(MemberId id) override;
  void OnEnded(MemberId id, const absl::Status& why) override;

  MemberWorld& world_;
  const int node_;
  const JoinArguments arguments_;
  MemberId id_ = 0;
  State state_ = State::kJoining;
  LocalMember member_;
  absl::Status why_;
  int changes_ = 0;
  uint64_t fences_ = 0;  // that can have ended it, when it joined
};

class MemberWorld {
 public:
  struct Options {
    int nodes = 3;
    uint64_t seed = 1;
    absl::Duration lease = absl::Seconds(2);
    absl::Duration max_delay = absl::Milliseconds(5);  // of a message
  };

  explicit MemberWorld(const Options& options);
  ~MemberWorld();

  // ---- clients
  Client& Join(int node, JoinArguments arguments, absl::Duration timeout = absl::Seconds(20));
  // The client leaves its job, or dies.
  void End(Client& client, MemberState how);
  const std::vector<std::unique_ptr<Client>>& clients() const { return clients_; }

  // ---- faults
  // Nothing passes between the node and the shard. After a lease the shard fences the node.
  void Cut(int node);
  void Heal(int node);
  void CrashNode(int node);
  void StartNode(int node);
  void StopShard();
  void StartShard();
  bool node_up(int node) const { return nodes_[static_cast<size_t>(node)]->members != nullptr; }
  bool node_cut(int node) const { return nodes_[static_cast<size_t>(node)]->cut; }
  bool shard_up() const { return core_ != nullptr; }

  void RunFor(absl::Duration time);
  // No more faults; then every node must see the members that live, and no others as live.
  void Settle();

  Members& members(int node) { return *nodes_[static_cast<size_t>(node)]->members; }
  directory::DirectoryCore& core() { return *core_; }
  Instant now() const { return scheduler_.now(); }
  Random& random() { return random_; }
  // "worker0.1+ worker1.0- -": by rank; "-" alone: absent. "unknown": the node knows no such group.
  std::string Seen(int node, const std::string& job, const std::string& role) const;
  const absl::Status& broken() const { return broken_; }
  // Between the shard and the nodes.
  uint64_t messages() const { return messages_; }
  uint64_t message_bytes() const { return message_bytes_; }

 private:
  friend class Client;
  struct Node final : public GroupObserver {
    Node(MemberWorld& world, int number) : world(world), number(number) {}
    void OnView(const GroupView& view) override { world.OnView(*this, view); }
    void OnGroupLeft(absl::string_view job, absl::string_view role) override;

    MemberWorld& world;
    const int number;
    uint64_t incarnation = 0;
    std::unique_ptr<sim::SimProcess> process;
    sim::SimExecutor* control = nullptr;
    std::unique_ptr<object_store::ShardChannel> channel;
    std::unique_ptr<Members> members;
    bool cut = false;
    uint64_t cuts = 0;
    uint64_t session = 0;  // 0: none
    std::deque<v1::NodeMessage> to_shard;
    std::deque<v1::ShardMessage> to_node;
    uint64_t fences = 0;
    std::map<std::pair<std::string, std::string>, JobEpoch> shown;  // by job and role
  };
  using TaskKey = std::tuple<std::string, std::string, std::string>;  // job, role, task

  NodeKey KeyOf(const Node& node) const;
  v1::NodeInfo InfoOf(const Node& node) const;
  absl::Duration Delay();
  void Connect(Node& node);
  void ConnectLater(Node& node);
  void DrainToShard(Node& node, uint64_t session);
  void DrainToNode(Node& node, uint64_t session);
  void Fence(const NodeKey& key);
  // Sends what the core has decided, and calls it again when it is due.
  void FlushShard();
  void Break(const std::string& what);

  void OnView(Node& node, const GroupView& view);
  void OnMemberJoined(Client& client);
  void OnMemberEnded(Client& client, const absl::Status& why);
  void CheckView(const Node& node, const std::string& job, const std::string& role);

  const Options options_;
  sim::SimScheduler scheduler_;
  Random random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<directory::DirectoryCore> core_;
  uint64_t shard_lives_ = 0;
  uint64_t last_session_ = 0;
  Instant armed_ = Instant::Infinite();
  uint64_t messages_ = 0;
  uint64_t message_bytes_ = 0;

  absl::Status broken_;
  // Of each life that a client was given: the last life of the shard that gave it.
  std::map<TaskKey, std::map<uint64_t, uint64_t>> lives_;
  // The greatest life that node 0 knew when the shard died last, and one more.
  std::map<TaskKey, uint64_t> before_;
  std::map<TaskKey, int> ranks_;
  std::map<std::tuple<std::string, std::string, JobEpoch>, std::string> views_;
  // Of each rank, at each node: its last life and whether that has ended.
  std::map<std::tuple<int, uint64_t, std::string, std::string, int>, std::pair<uint64_t, bool>>
      last_;
};

}  // namespace phalanx::jobs::testing

#endif  // PHALANX_JOBS_TESTING_MEMBER_WORLD_H_
