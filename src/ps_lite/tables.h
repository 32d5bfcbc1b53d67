// Tables: the apps of this process whose requests are not messages to a KVServer, but calls for a
// table of the parameter server (phalanx/c.h): those with KVServerDefaultHandle.
//
//   server:  Handle ── report ──► keeper (Kinds) ── Decide ──► all processes
//            a thread for each app, in phx_ps_server_run
//   others:  Take(request) ── phx_ps_push_rows, ... ──► the servers' tables
//            Registry ◄── response ── thread of answers ◄── phx_poll
//
// Requests for an app wait here until it is decided, in their order. Each app has a job of its own,
// in which every process of the program can be a worker: it joins with its first request.
//
// The tables wait for the next life of a server that has died. Any thread.
#ifndef PHALANX_PS_LITE_TABLES_H_
#define PHALANX_PS_LITE_TABLES_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ps/internal/message.h"
#include "src/ps_lite/channel.h"
#include "src/ps_lite/client_functions.h"
#include "src/ps_lite/keeper/kinds.h"
#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// How long a request waits until it is decided what handles it.
inline constexpr std::chrono::seconds kHandlePatience{60};

class Tables {
 public:
  struct Events {
    // To the keeper.
    std::function<void(int app, Kind kind)> report;
    // A request that has waited is a message after all. Throws dmlc::Error.
    std::function<void(::ps::Message message)> send;
    std::function<void(::ps::Message response)> answer;
    // A call for a table has failed. The reason may be one that the process hears by another way.
    std::function<void(const std::string& why)> on_error;
  };
  // This process in its job.
  struct Place {
    const ClientFunctions* client = nullptr;
    phx_client* connection = nullptr;
    Peer own = {};
    int servers = 0;
    std::vector<int> nodes = {};  // the ids of all processes
    int timeout_seconds = 0;
  };

  explicit Tables(Events events) : events_(std::move(events)) {}
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // A job begins: failures of the one before do not count.
  void Renew();
  // A program has set what handles the requests of an app here, before Begin or after it. Returns
  // what is wrong with it.
  std::string Handle(int app, Kind kind);
  // The keeper has decided; perhaps before Begin. `job` is that of the table.
  void Decide(int app, Kind kind, const std::string& job);
  void Begin(const Place& place);
  // Takes a request to a server unless it is to be sent as a message. Waits while more pushes are
  // in no snapshot than the table allows. Sets what is wrong with it.
  bool Take(const ::ps::Message& request, std::string* wrong);
  // What is lost with a process that dies.
  Loss LossOf(Peer peer);
  // Names a request that has waited for its decision too long; empty if there is none.
  std::string Overdue();

  // Waits until nothing waits here for a decision, or a failure.
  void Flush();
  // Waits for the answers, leaves the tables, serves until all have left those of this process, and
  // forgets all. `last`: all processes have made their last request, so that nothing has to outlive
  // a server any more. After a failure it only forgets.
  void End(bool last);
  // Ends all waits.
  void Fail();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    ::ps::Message request;
    Clock::time_point since;
  };
  struct App {
    int id = 0;
    std::optional<Kind> handle;  // of this server
    std::optional<Kind> kind;    // decided
    std::string job;
    std::deque<Waiting> waiting;
    // Requests need not wait.
    bool open = false;
    std::thread opening;
    phx_ps_worker* worker = nullptr;
    phx_ps_table* table = nullptr;
    std::thread serving;
    phx_ps_server* server = nullptr;
  };
  // A call under way, and its response.
  struct Asked {
    phx_call* call = nullptr;
    ::ps::Message response;
  };

  // mu_ is held.
  App& AppOf(int app);
  void OpenIfNeeded(App& app);
  void ServeIfNeeded(App& app);

  // Threads.
  void Open(App& app);
  void Serve(App& app);
  void TakeAnswers();

  std::string JoinTable(App& app);
  // Makes the call. Returns what is wrong.
  std::string Ask(const App& app, const ::ps::Message& request);
  void Answer(Asked* asked);
  phx_ps_options OptionsOf(const App& app, const std::string& task, int world,
                           int64_t timeout) const;
  void LeaveTables(bool last);

  const Events events_;
  std::mutex mu_;  // for what follows
  std::condition_variable cond_;
  std::map<int, std::unique_ptr<App>> apps_;
  std::set<Peer> asked_;  // servers that have had messages of this process
  bool begun_ = false;
  bool finishing_ = false;
  bool failed_ = false;
  bool ending_ = false;
  uint64_t under_way_ = 0;  // calls
  // Constant from Begin to End.
  Place place_;
  phx_queue* queue_ = nullptr;  // of calls that have ended
  std::thread answers_;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_TABLES_H_
