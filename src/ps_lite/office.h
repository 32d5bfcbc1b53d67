// Office: what is behind ps::Postoffice, ps::Van and ps::Customer. There is one in a process.
//
//   program ── Postoffice, Van, Customer (facade.cc, customer.cc)
//                │
//              Office ──── Registry       customers, and messages for them
//                ├──────── Root           the scheduler's port
//                ├──────── Barriers, Kinds    the lists of the job's keeper: the scheduler
//                ├──────── Tables         requests that are no messages
//                └──────── Channel        this process as a member of the job
//
// Any thread. Errors are thrown as dmlc::Error, and printed before. From a failure on (a process of
// the job has died, and has no next life) all calls fail with it.
#ifndef PHALANX_PS_LITE_OFFICE_H_
#define PHALANX_PS_LITE_OFFICE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dmlc/logging.h"
#include "ps/internal/message.h"
#include "ps/range.h"
#include "src/ps_lite/channel.h"
#include "src/ps_lite/keeper/barriers.h"
#include "src/ps_lite/keeper/kinds.h"
#include "src/ps_lite/registry.h"
#include "src/ps_lite/root.h"
#include "src/ps_lite/settings.h"
#include "src/ps_lite/tables.h"

namespace phalanx::ps_lite {

// A request that comes too late. In a handler it is no failure: the job has ended well.
struct AfterFinalize : public dmlc::Error {
  using dmlc::Error::Error;
};

class Office {
 public:
  // Never destroyed: threads and destructors of static objects can call until the end.
  static Office& Get();
  [[noreturn]] static void Throw(const std::string& text);

  // Read from the environment at the first call.
  const Settings& settings();
  void Start(int customer);
  void Finalize(int customer, bool do_barrier);
  void SetExitCallback(std::function<void()> callback);
  void Barrier(int customer, int group) { Barrier(customer, group, /*last=*/false); }
  // A KVServer of this app has got what handles its requests.
  void SetHandle(int app, Kind kind) { CheckEmpty(tables_.Handle(app, kind)); }

  Registry& registry() { return registry_; }
  const std::vector<int>& NodeIds(int node_or_group);
  const std::vector<::ps::Range>& KeyRanges(uint64_t greatest);
  std::vector<int> DeadNodes();
  // Valid from Start on.
  const ::ps::Node& node() const { return node_; }
  bool ready() const { return ready_; }

  int Send(::ps::Message* message);
  bool failed() const { return failed_; }
  // Throws if there is a failure.
  void Check();
  // Throws what is wrong, if it is not empty: the failure, if there is one.
  void CheckEmpty(const std::string& wrong);

 private:
  Office();

  // A call of Start or Barrier that waits, by its number.
  struct Call {
    bool ended = false;
  };

  // The lists of the keeper.
  struct Keeping {
    Barriers barriers;
    Kinds kinds;
    std::string run;              // names the tables: the job, or a run of it
    std::set<int> unsaved;        // tables of which some server has no snapshots
    std::vector<Release> starts;  // to be answered
  };

  // Joins the job.
  void Begin();
  // All have come.
  void BeginTables();
  std::string FindPlace(Place* place, Hold* hold);
  bool keeps() const { return keeping_ != nullptr; }
  void Barrier(int customer, int group, bool last);
  // Waits until the tables' calls have ended, and what their callbacks have called.
  void Settle();
  void EndTables(bool last);
  Channel::Events EventsOfChannel();
  // Waits for the end of a call that `send` begins; 0: without a limit.
  void Await(int seconds, const std::string& what, const std::function<void(int call)>& send);
  void SendControl(::ps::Message message);
  // The keeper's: all have come, so that they can be answered.
  void AnswerStart();
  std::vector<Peer> Processes();
  std::shared_ptr<Channel> Current();

  void OnMessage(::ps::Message message, uint64_t life);
  void OnControl(const ::ps::Message& message, uint64_t life);
  // The keeper's.
  void OnRequest(const ::ps::Meta& meta, uint64_t life);
  void OnLeft(Peer peer);
  // Fails if requests wait for the tables of a server that has left.
  void FailIfAwaited(Peer left);
  void OnDied(Peer peer, uint64_t life);
  void OnReport(Peer from, const ::ps::Meta& meta);
  void OnSecond();
  // What is decided of an app, to all; of all apps, to a next life.
  void SendDecision(int app);
  void SendDecisions(Peer to);
  void SendDecision(const std::vector<Peer>& to, int app);
  // `restarts`: of a next life, behind the start of all.
  void SendReleases(const std::vector<Release>& releases, ::ps::Control::Command command,
                    const std::string& wrong, bool restarts = false);
  void OnReleased(const ::ps::Message& message);
  // As a message, whatever its app is.
  void SendNow(const ::ps::Message& message);
  void Fail(const std::string& why, Failure failure);

  Registry registry_;
  Tables tables_;
  // One thread starts or finalizes. No call of a handler takes it: Finalize waits for handlers.
  std::mutex start_mu_;
  std::mutex mu_;  // for what follows
  std::condition_variable cond_;
  std::optional<Settings> settings_;
  std::unique_ptr<Root> root_;
  std::shared_ptr<Channel> channel_;  // from Start until Finalize
  std::unique_ptr<Keeping> keeping_;  // the keeper's
  std::map<int, Call> calls_;
  int last_call_ = 0;
  std::map<int, std::vector<int>> node_ids_;
  std::map<uint64_t, std::vector<::ps::Range>> key_ranges_;
  std::string failure_;
  std::function<void()> exit_callback_;
  bool restarts_ = false;  // this life has started behind the start of all
  ::ps::Node node_;        // constant while ready_
  std::atomic<bool> ready_{false};
  std::atomic<bool> finalized_{false};  // after a job, and before the next one
  std::atomic<bool> failed_{false};
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_OFFICE_H_
