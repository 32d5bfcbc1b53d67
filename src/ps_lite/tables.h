// Tables: the apps of this process whose requests are not messages to a KVServer, but calls for a
// table of the parameter server (phalanx/c_ps.h): those with KVServerDefaultHandle.
//
//   server:  Handle ── report ──► keeper (Kinds) ── Decide ──► all processes
//            a thread for each app, in phx_ps_server_run
//   others:  Take(request) ── ask ──► keeper, once
//                          ── phx_ps_push_rows, ... ──► the servers' tables
//            Registry ◄── response ── thread of answers ◄── phx_poll
//
// Pushes and pulls for an app wait here until it is decided, in their order, and what comes behind
// them. Each app has a job of its own, in which every process of the program can be a worker: it
// joins with its first request.
//
// The tables wait for the next life of a server that has died. Any thread.
#ifndef PHALANX_PS_LITE_TABLES_H_
#define PHALANX_PS_LITE_TABLES_H_

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

// The error of a request that comes too late.
inline constexpr char kAfterFinalize[] = "Send after Finalize";

// What a process reports of an app to the keeper.
enum class Word { kHandle, kAsk, kUnsaved };
// What the keeper has decided of an app.
struct Decision {
  Kind kind = kFunctions;
  std::string job;       // of the table
  bool unsaved = false;  // some server has no snapshots of it
};

class Tables {
 public:
  struct Events {
    // To the keeper: a server has this handle; a process has a request; the part of a server has no
    // snapshots any more.
    std::function<void(int app, Word word, Kind kind)> report;
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
    bool restarts = false;        // a next life, behind the start of all
    int restart_seconds = 0;      // Settings
  };

  explicit Tables(Events events) : events_(std::move(events)) {}
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // A job begins: failures of the one before do not count. Without `tables` the apps of this
  // process have functions, and no death of a server is survived.
  void Renew(bool tables);
  // A program has set what handles the requests of an app here, before Begin or after it. Returns
  // what is wrong with it.
  std::string Handle(int app, Kind kind);
  // The keeper has decided; perhaps before Begin, and again if a table has become unsaved. Returns
  // what is wrong with the handle of this server.
  std::string Decide(int app, const Decision& decision);
  // Returns what is wrong with a handle of this server that was set before.
  std::string Begin(const Place& place);
  // Takes a request to a server unless it is to be sent as a message. Waits while more pushes are
  // in no snapshot than the table allows, or more bytes wait here than a window of messages has.
  // Sets what is wrong with it.
  bool Take(const ::ps::Message& request, std::string* wrong);
  // This server has sent a request to this process as a message: its next life would take the
  // answer for that to a request of its own.
  void OnAsked(Peer server);
  // What is lost with a process that dies. Also behind End, until Renew.
  Loss LossOf(Peer peer);
  // Names an app for which this life of a server has made no handle in time, though it is a table;
  // empty if there is none.
  std::string Overdue();
  // Something waits for tables: no server of them can have left.
  bool waits();

  // Waits until no request is under way, or a failure. Returns how many calls for tables there have
  // been.
  uint64_t Settle();
  // Waits for the answers, leaves the tables, serves until all have left those of this process, and
  // forgets all. `last`: all processes have made their last request, so that nothing has to outlive
  // a server any more. After a failure it only forgets. Returns what was wrong with a table.
  std::string End(bool last);
  // No next life of a server will go on from the tables: frees their snapshots, in some seconds.
  // Fail follows.
  void Drop();
  // Ends all waits.
  void Fail();

 private:
  using Clock = std::chrono::steady_clock;
  struct App {
    Tables* owner = nullptr;
    int id = 0;
    std::optional<Kind> handle;  // of this server
    std::optional<Kind> kind;    // decided
    bool is_table() const { return kind.has_value() && *kind != kFunctions; }
    std::string job;
    Clock::time_point decided = {};
    std::deque<::ps::Message> waiting;
    bool asked = false;
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
  // What is wrong with the handle of this server.
  std::string WrongHandle(const App& app) const;
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
  phx_ps_options OptionsOf(const App& app, const std::string& task, int world) const;
  void OnUnsaved(const App& app, const char* why);
  void LeaveTables(bool last);
  // A table has failed: End returns the first such error.
  void OnError(const std::string& why);
  void BeginThread(std::thread* thread, std::function<void()> run);
  // Of apps of tables that nothing uses any more.
  void FreeApps();

  const Events events_;
  std::mutex mu_;  // for what follows
  std::condition_variable cond_;
  std::map<int, std::unique_ptr<App>> apps_;
  std::set<Peer> asked_;  // servers that have had messages of this process, or have sent some
  bool tables_ = true;    // Renew
  bool state_ = false;    // something is in the memory of servers alone
  bool begun_ = false;
  Clock::time_point began_ = {};
  bool finishing_ = false;
  bool dropping_ = false;
  bool failed_ = false;
  bool ending_ = false;
  std::string wrong_;  // the first error of a table
  struct {
    uint64_t waiting_bytes = 0;  // of all apps
    uint64_t calls = 0;          // that were made
    uint64_t under_way = 0;      // of them
    uint64_t asking = 0;         // threads in Take
    uint64_t running = 0;        // threads of apps
  } count_;
  // Constant from Begin to End.
  Place place_;
  phx_queue* queue_ = nullptr;  // of calls that have ended
  std::thread answers_;
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_TABLES_H_
