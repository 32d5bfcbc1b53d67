// PsWorld: workers and servers of a parameter server in simulated time, with faults. Testonly.
//
// Each worker runs the program of its PsPlan on a WorkerCore, each server is a ServerCore. Messages
// from one life to another have delays, and arrive in order. A worker that dies can take with it
// what is on its way to some of the servers. A link that is lost loses what is on
// its way, in both directions; as with the messages of jobs, either end sees that when it sends the
// next message to the other: that one is refused, after a while, and what was sent behind it
// arrives. News of lives have delays of their own, for each receiver. A server's snapshots take
// time, can fail, and outlive it; one that is under way when the server dies may be stored or not.
//
// Objects of pushes belong to the life of their worker, and versions to that of their server; some
// outlive it a little. To put, to sum and to read them takes time, and can fail; a pull that fails
// so is not made again. A sum waits for what is lost, or fails. A ring makes a version that workers
// can have before its server knows of it, or breaks.
//
// After a number of faults no more come. When all programs have ended, and all that they have
// pushed is durable, the last pulls have everything, and all workers leave.
//
// Checked: each pull, by PsOracle; that every ticket ends once, with OK unless it was cancelled;
// that nothing is written to the memory of a ticket that has ended; that no snapshot is freed that
// is the newest, and no object twice, or while it is read; that a worker leaves no object; and that
// the run ends.
//
// Owned by a test. One thread.
#ifndef PHALANX_PS_TESTING_PS_WORLD_H_
#define PHALANX_PS_TESTING_PS_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"
#include "src/common/random.h"
#include "src/ps/server/server_core.h"
#include "src/ps/testing/ps_plan.h"
#include "src/ps/worker_core.h"

namespace phalanx::ps::testing {

class PsWorld {
 public:
  struct Counts {
    uint64_t worker_deaths = 0;
    uint64_t server_deaths = 0;
    uint64_t lost_links = 0;
    uint64_t pulls = 0;     // that were checked
    uint64_t restored = 0;  // snapshots
    uint64_t failed_stores = 0;
    uint64_t waits = 0;  // pushes that waited for a snapshot
    uint64_t sums = 0;
    uint64_t lost_sums = 0;  // that have waited for an object
    uint64_t rings = 0;      // that have made a version
    uint64_t broken_rings = 0;
    uint64_t ahead = 0;  // answers with versions that were not there
    uint64_t fetches = 0;
    uint64_t failed_versions = 0;  // that had no memory, or were lost, or could not be read
  };

  explicit PsWorld(uint64_t seed) : PsWorld(seed, PsPlan(seed), 0) {}
  // An exact plan, whose only fault is that worker 0 dies when it sends so many messages in its
  // first life, from 1: this one does not arrive, and each one before that is on its way may not.
  PsWorld(uint64_t seed, uint64_t dies_at) : PsWorld(seed, PsPlan::Exact(seed), dies_at) {}
  // Runs to the end, and returns what was wrong; after the first fault that is seen it stops.
  std::vector<std::string> Run();
  const Counts& counts() const { return counts_; }

 private:
  PsWorld(uint64_t seed, const PsPlan& plan, uint64_t dies_at);
  using Micros = uint64_t;
  using Ticket = internal::WorkerCore::Ticket;
  // A worker or a server.
  struct Member {
    bool is_server = false;
    int rank = 0;
    friend auto operator<=>(const Member&, const Member&) = default;
    // With it the names of its objects in this life begin.
    std::string Prefix(uint64_t life) const;
  };
  struct Call {
    PsPlan::Kind kind = PsPlan::Kind::kPush;
    PsOracle::Read read = {};
    std::string out = {};                // what is pulled
    std::string values = {};             // what is pushed
    std::vector<uint32_t> lengths = {};  // of its rows
    std::vector<int32_t> servers = {};
    bool cancelled = false;
    bool basis = false;
    bool dense = false;
    uint32_t push = 0;  // its number, if it pushes
  };
  // What a program does next.
  enum class Phase { kBegin, kSteps, kIdle, kSettling, kLeaving, kLeft };
  struct Worker {
    uint64_t life = 0;
    bool live = false;
    std::unique_ptr<internal::WorkerCore> core;
    Phase phase = Phase::kBegin;
    uint64_t clock = 0;
    size_t step = 0;
    bool waiting = false;  // for all calls
    bool putting = false;  // objects of a push
    bool cutting = false;  // a call into pieces
    bool scheduled = false;
    std::vector<uint64_t> begun = {};                    // by table, the clock of this life
    std::vector<uint64_t> basis = {};                    // by table, of this clock
    std::map<Ticket, std::unique_ptr<Call>> calls = {};  // that have not ended
    std::set<uint32_t> refused = {};  // tables that have refused a push in this clock
    std::set<uint64_t> fetches = {};  // that are wanted
    // Calls that were cancelled, and their memory then: it must stay as it is.
    std::vector<std::pair<std::unique_ptr<Call>, std::string>> given_up = {};
  };
  // That is under way, with its objects in their order.
  struct Sum {
    uint32_t table;
    uint64_t attempt;
    std::vector<std::string> handles;
    std::string base;  // of a ring sum, as in ServerCore::Reduce
    std::string target;
    bool is(uint32_t of, uint64_t number) const { return table == of && attempt == number; }
    bool ring() const { return !target.empty(); }
  };
  struct Server {
    uint64_t life = 0;
    bool live = false;
    bool retries = false;  // it will call Retry
    std::unique_ptr<internal::ServerCore> core;
    // By table: the number and bytes of stored snapshots.
    std::vector<std::map<uint64_t, std::string>> stored;
    std::vector<internal::ServerCore::Store> storing = {};
    std::vector<Sum> sums = {};
  };
  // Why a version is not there any more, or will not be.
  enum class Missing { kNoMemory, kLost, kFreed };
  struct Object {
    std::string bytes;
    Member owner;
    uint64_t life;
  };
  // From one life to another.
  struct Stream {
    uint64_t link = 0;  // how often it was lost
    Micros last = 0;    // arrival
    bool lost = false;  // the next message is refused
  };
  using StreamKey = std::pair<std::pair<Member, uint64_t>, std::pair<Member, uint64_t>>;

  void After(Micros delay, std::function<void()> event);
  void RunEvent();
  Micros SmallDelay() { return random_.Below(random_.Chance(0.1) ? 8'000 : 400); }
  Micros Delay() { return 30 + random_.Below(random_.Chance(0.1) ? 8'000 : 800); }
  void Wrong(const std::string& what);
  std::string DescribeAll() const;

  // ---- lives and links
  void Fault();
  bool IsLive(const Member& member, uint64_t life) const;
  uint64_t LifeOf(const Member& member) const;
  void BeginWorker(int rank);
  void BeginServer(int rank);
  void EndWorker(int rank);
  void EndServer(int rank);
  void LoseLink(int worker, int server);
  // What the worker has sent, and has not arrived.
  void LoseSent(int worker, int server);
  // All of the other role hear of it.
  void Announce(const Member& subject, uint64_t life, MemberState state);
  void News(const Member& to, const Member& subject);
  void Hear(const Member& to, uint64_t to_life, const Member& subject, uint64_t life,
            MemberState state);
  void Carry(const Member& from, const Member& to, uint64_t to_life, std::string bytes);
  void Arrive(const Member& from, uint64_t from_life, const Member& to, absl::string_view bytes);
  void Lost(const Member& at, const Member& to, uint64_t life);

  // ---- servers
  void Drain(Server& server, int rank);
  void Store(int rank, internal::ServerCore::Store store);
  void Stored(int rank, uint32_t table, uint64_t number);
  void Retry(int rank, uint64_t life);

  // ---- workers
  void Drain(Worker& worker, int rank);
  void Schedule(int rank, Micros delay);
  void Advance(int rank);
  void Begin(Worker& worker);
  // Does the step of the program, or returns false if it has to wait.
  bool Do(Worker& worker, int rank, const PsPlan::Step& step);
  bool EndClock(Worker& worker, int rank);
  void PullAll(Worker& worker, int rank);
  std::string ValuesOf(const Worker& worker, int rank, const PsPlan::Step& step) const;
  Ticket StartPull(Worker& worker, int rank, const PsPlan::Step& step, bool last);
  void Cut(int rank, uint64_t life);
  void Ended(Worker& worker, int rank, Ticket ticket);
  void Cancel(int rank, uint64_t life, Ticket ticket);
  void Probe(int rank, uint64_t life);
  // ---- objects; ps_world_objects.cc
  void CheckVersionsLeft();
  void Forget(const Member& owner, uint64_t life);
  void ActOnObjects(Server& server, int rank, const internal::ServerCore::Effects& effects);
  bool Publish(Server& server, int rank, const internal::ServerCore::Publish& publish);
  void TrySum(int rank, uint64_t life, uint32_t table, uint64_t attempt);
  void FailSum(int rank, uint32_t table, uint64_t attempt, const absl::Status& why);
  void Summed(int rank, uint64_t life, uint32_t table, uint64_t attempt, const std::string& sum);
  std::string SumOf(const Sum& sum) const;
  // Those that `which` names are not made any more.
  void DropSums(Server& server, const std::function<bool(const Sum&)>& which);
  void Void(const std::string& target);
  void ActOnObjects(Worker& worker, int rank);
  void Fetched(int rank, uint64_t life, const internal::WorkerCore::Objects::Fetch& fetch);
  bool BeginPut(Worker& worker, int rank, const PsPlan::Step& step);
  void EndPut(int rank, uint64_t life, const PsPlan::Step& step,
              internal::WorkerCore::DensePush push, const std::string& values);
  void PutPart(const Member& owner, uint64_t life, uint32_t table,
               const internal::WorkerCore::DensePush::Part& part, const std::string& values);
  bool HasLostLink(const Member& one, uint64_t life, const Member& other,
                   uint64_t other_life) const;

  bool AllIdle(Phase least) const;

  Random random_;
  const PsPlan plan_;
  PsOracle oracle_;
  Micros now_ = 0;
  std::multimap<Micros, std::function<void()>> events_;
  std::vector<Worker> workers_;
  std::vector<Server> servers_;
  std::map<std::string, Object> objects_;   // by name
  std::map<std::string, Missing> missing_;  // versions, by name
  std::map<StreamKey, Stream> streams_;
  std::map<Member, MemberState> states_;
  std::map<std::pair<Member, uint64_t>, Micros> heard_;  // by life: the last news
  std::vector<std::vector<uint64_t>> reached_;           // by worker and table, of all lives
  const uint64_t dies_at_;                               // 0: never
  uint64_t sent_ = 0;                                    // messages of worker 0
  int faults_left_ = 0;
  bool ending_ = false;   // no more faults
  bool settled_ = false;  // all pushes are durable: the last pulls have all of them
  std::vector<std::string> wrong_;
  Counts counts_;
};

}  // namespace phalanx::ps::testing

#endif  // PHALANX_PS_TESTING_PS_WORLD_H_
