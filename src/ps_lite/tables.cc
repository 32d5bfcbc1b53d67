#include "src/ps_lite/tables.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "dmlc/logging.h"
#include "src/ps_lite/wire.h"

namespace phalanx::ps_lite {
namespace {

constexpr int64_t kSecondNanos = 1'000'000'000;
constexpr int64_t kForever = -1;
constexpr char kTable[] = "values";
constexpr size_t kAtOnce = 256;  // answers
// How long a next life of a server can take at least to set its handle: as KVServer waits for one.
constexpr std::chrono::seconds kHandlePatience{60};
// How long a failure waits until snapshots are freed.
constexpr std::chrono::seconds kDropPatience{6};

// Elements of a table. 0: there are none of this type.
struct Elements {
  int dtype;
  size_t bytes;
};
Elements ElementsOf(Kind kind) {
  switch (kind) {
    case ::ps::FLOAT:
      return {PHX_F32, 4};
    case ::ps::DOUBLE:
      return {PHX_F64, 8};
    case ::ps::INT32:
      return {PHX_I32, 4};
    case ::ps::INT64:
      return {PHX_I64, 8};
    default:
      return {0, 0};
  }
}

// As KVServer's, without arrays.
::ps::Message ResponseTo(const ::ps::Message& request) {
  ::ps::Message response;
  response.meta = request.meta;
  response.meta.request = false;
  response.meta.sender = request.meta.recver;
  response.meta.recver = request.meta.sender;
  response.meta.priority = 0;
  response.meta.data_type.clear();
  response.meta.data_size = 0;
  return response;
}

std::string NameOf(int app) { return "app " + std::to_string(app); }

std::string TypesOf(const ::ps::Message& request) {
  return std::string(::ps::DataTypeName[request.meta.data_type[0]]) + " and " +
         ::ps::DataTypeName[request.meta.data_type[1]];
}

// What is wrong with a request for a table of this kind. A program can make one by hand.
std::string WrongWith(const ::ps::Message& request, Kind kind) {
  const Elements elements = ElementsOf(kind);
  if (request.data.size() < 2 || request.meta.data_type.size() < 2)
    return "a request without arrays of keys and values";
  if (request.meta.data_type[0] != ::ps::UINT64 || request.meta.data_type[1] != kind) {
    return "keys and values of the types " + TypesOf(request) + ", but the server has " +
           ::ps::DataTypeName[::ps::UINT64] + " and " + ::ps::DataTypeName[kind];
  }
  const size_t keys = request.data[0].size() / sizeof(uint64_t);
  const size_t values = request.data[1].size() / elements.bytes;
  if (request.data[0].size() % sizeof(uint64_t) != 0 ||
      request.data[1].size() % elements.bytes != 0) {
    return "keys or values that are not whole";
  }
  if (!request.meta.push || keys == values) return "";
  return "(" + std::to_string(keys) + " keys with " + std::to_string(values) +
         " values): KVServerDefaultHandle has one for each";
}

// A KVWorker's. What else a program sends is a message to whatever it has made at the server.
bool IsOfWorker(const ::ps::Message& request) {
  return !request.meta.simple_app && (request.meta.push || request.meta.pull);
}

uint64_t BytesOf(const ::ps::Message& request) {
  uint64_t bytes = kSendCostBytes + request.meta.body.size();
  for (const auto& array : request.data) bytes += array.size();
  return bytes;
}

}  // namespace

// ---------------------------------------------------------------------------- what handles an app

Tables::App& Tables::AppOf(int app) {
  std::unique_ptr<App>& of = apps_[app];
  if (of == nullptr) {
    of = std::make_unique<App>();
    of->owner = this;
    of->id = app;
    of->open = !tables_;
  }
  return *of;
}

// Without tables no request waits for a decision.
void Tables::Renew(bool tables) {
  std::lock_guard<std::mutex> lock(mu_);
  tables_ = tables;
  failed_ = state_ = false;
  asked_.clear();
  wrong_.clear();
  // A decision can have come behind the end of the job before.
  for (const auto& [id, app] : apps_) {
    app->kind.reset();
    app->open = !tables_;
    app->asked = false;
  }
}

// The program's handle is kept in any case: KVServer runs it if the app turns out to have
// functions. The report goes without the lock: the keeper can be this process, and decides within
// the call.
std::string Tables::Handle(int app, Kind kind) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (finishing_) return "";
    App& of = AppOf(app);
    if (of.is_table() && *of.kind != kind) {
      return NameOf(app) +
             " has KVServerDefaultHandle, and values in a table: it can get no other handle";
    }
    // A next life sets it when a request has come to the life before.
    if (begun_ && !place_.restarts && of.is_table() && of.handle.has_value()) {
      return NameOf(app) +
             " has values in a table: another KVServerDefaultHandle would keep them, "
             "and not begin at zero";
    }
    of.handle = kind;
    if (!begun_ || place_.own.role != Role::kServer) return "";
    if (!tables_) kind = kFunctions;
    ServeIfNeeded(of);
  }
  events_.report(app, Word::kHandle, kind);
  return "";
}

// It comes again when a table has become unsaved. Then only what is lost with a server has changed,
// which counts until the next job, also while this process is in Finalize.
std::string Tables::Decide(int app, const Decision& decision) {
  std::lock_guard<std::mutex> lock(mu_);
  state_ = state_ || decision.kind == kFunctions || decision.unsaved;
  if (finishing_) return "";
  App& of = AppOf(app);
  if (of.kind.has_value()) return "";
  of.kind = decision.kind;
  of.job = decision.job;
  of.decided = Clock::now();
  if (decision.kind == kFunctions && of.waiting.empty()) of.open = true;
  cond_.notify_all();
  if (!begun_) return "";
  ServeIfNeeded(of);
  if (!of.waiting.empty()) OpenIfNeeded(of);
  return WrongHandle(of);
}

std::string Tables::WrongHandle(const App& app) const {
  const bool serves = place_.own.role == Role::kServer && app.handle.has_value();
  if (!serves || !app.is_table() || app.handle == app.kind) return "";
  return NameOf(app.id) +
         " has got another handle than KVServerDefaultHandle when a request had come";
}

// What was set before Start is reported now, since the keeper is known. A next life has had its
// decisions then: nothing else looks at the handles that it has set before them.
std::string Tables::Begin(const Place& place) {
  std::map<int, Kind> handles;
  std::string wrong;
  {
    std::lock_guard<std::mutex> lock(mu_);
    place_ = place;
    queue_ = place_.client->queue_new();
    begun_ = true;
    began_ = Clock::now();
    for (const auto& [id, app] : apps_) {
      if (wrong.empty()) wrong = WrongHandle(*app);
      if (place_.own.role != Role::kServer || !app->handle.has_value()) continue;
      handles[id] = tables_ ? *app->handle : kFunctions;
      ServeIfNeeded(*app);
    }
    answers_ = std::thread([this] { TakeAnswers(); });
  }
  for (const auto& [app, kind] : handles) events_.report(app, Word::kHandle, kind);
  return wrong;
}

void Tables::OnAsked(Peer server) {
  std::lock_guard<std::mutex> lock(mu_);
  asked_.insert(server);
}

// An app that is undecided has had no requests, so nothing of it is lost.
Loss Tables::LossOf(Peer peer) {
  if (peer.role != Role::kServer) return Loss::kState;
  std::lock_guard<std::mutex> lock(mu_);
  if (state_ || !tables_) return Loss::kState;
  return asked_.count(peer) > 0 ? Loss::kAnswers : Loss::kNothing;
}

// A next life that loads as long as the first one did is given the time that others wait for one.
std::string Tables::Overdue() {
  std::lock_guard<std::mutex> lock(mu_);
  if (!begun_ || finishing_ || place_.own.role != Role::kServer) return "";
  const auto patience = std::max(kHandlePatience, std::chrono::seconds(place_.restart_seconds));
  for (const auto& [id, app] : apps_) {
    if (!app->is_table() || app->handle == app->kind) continue;
    if (Clock::now() - std::max(app->decided, began_) < patience) continue;
    return NameOf(id) + " has values in a table, but this server has set no handle of KVServer " +
           std::to_string(id) + " within " + std::to_string(patience.count()) + " s";
  }
  return "";
}

bool Tables::waits() {
  std::lock_guard<std::mutex> lock(mu_);
  return count_.under_way > 0 || std::any_of(apps_.begin(), apps_.end(), [](const auto& each) {
           return each.second->is_table() && !each.second->waiting.empty();
         });
}

// ---------------------------------------------------------------------------- requests

bool Tables::Take(const ::ps::Message& request, std::string* wrong) {
  App* app = nullptr;
  bool asks = false;
  {
    std::unique_lock<std::mutex> lock(mu_);
    const bool of_worker = IsOfWorker(request);
    // Those of tables have ended; messages go on until the channel is closed.
    if (finishing_) {
      const auto found = apps_.find(request.meta.app_id);
      const bool functions =
          !tables_ || (found != apps_.end() && found->second->kind == kFunctions);
      if (of_worker && !functions) *wrong = kAfterFinalize;
      return !wrong->empty();
    }
    app = &AppOf(request.meta.app_id);
    const bool message = !of_worker || (app->open && !app->is_table());
    if (message && app->waiting.empty()) {
      asked_.insert(PeerOf(request.meta.recver));
      return false;
    }
    // End waits for this.
    ++count_.asking;
    cond_.wait(lock,
               [&] { return count_.waiting_bytes <= kSendWindowBytes || app->open || failed_; });
    --count_.asking;
    cond_.notify_all();
    // The caller throws the failure.
    if (failed_) return false;
    if (!app->open) {
      app->waiting.push_back(CopyOf(request));
      count_.waiting_bytes += BytesOf(request);
      asks = !std::exchange(app->asked, true) && !app->kind.has_value();
      OpenIfNeeded(*app);
      if (!asks) return true;
    } else if (!app->is_table()) {
      asked_.insert(PeerOf(request.meta.recver));
      return false;
    } else {
      ++count_.asking;
    }
  }
  if (asks) {
    events_.report(request.meta.app_id, Word::kAsk, kFunctions);
    return true;
  }
  *wrong = Ask(*app, request);
  std::lock_guard<std::mutex> lock(mu_);
  --count_.asking;
  cond_.notify_all();
  return true;
}

// The lock is held. The last thing that the thread does is to be counted out: End joins it then
// without waiting for anything else.
void Tables::BeginThread(std::thread* thread, std::function<void()> run) {
  ++count_.running;
  *thread = std::thread([this, run = std::move(run)] {
    run();
    std::lock_guard<std::mutex> lock(mu_);
    --count_.running;
    cond_.notify_all();
  });
}

// Joining a table waits for its servers, and sending can wait for room: neither is for the thread
// that receives the decision.
void Tables::OpenIfNeeded(App& app) {
  if (!app.kind.has_value() || app.open || app.opening.joinable() || failed_) return;
  BeginThread(&app.opening, [this, &app] { Open(app); });
}

// Sends what has waited, in its order. From then on requests are not queued.
void Tables::Open(App& app) {
  std::string wrong = app.is_table() ? JoinTable(app) : "";
  while (wrong.empty()) {
    ::ps::Message request;
    bool message = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (app.waiting.empty()) {
        app.open = true;
        cond_.notify_all();
        return;
      }
      // It stays at its place until it is sent: others come behind it.
      request = app.waiting.front();
      message = !app.is_table() || !IsOfWorker(request);
      if (message) asked_.insert(PeerOf(request.meta.recver));
    }
    const uint64_t bytes = BytesOf(request);
    try {
      if (message) {
        events_.send(std::move(request));
      } else {
        wrong = Ask(app, request);
      }
    } catch (const dmlc::Error&) {
      // There is a failure already.
      return;
    }
    std::lock_guard<std::mutex> lock(mu_);
    app.waiting.pop_front();
    count_.waiting_bytes -= bytes;
    cond_.notify_all();
  }
  OnError(wrong);
}

// No call waits for a time: one for a server that does not come back ends with the failure of the
// process.
phx_ps_options Tables::OptionsOf(const App& app, const std::string& task, int world) const {
  phx_ps_options options = {};
  options.job = app.job.c_str();
  options.task = task.c_str();
  options.world = world;
  options.peer_timeout = kForever;
  return options;
}

// A server that has a next life is a worker of the table as well if it makes requests: its position
// there is that of its earlier life.
std::string Tables::JoinTable(App& app) {
  const ClientFunctions& client = *place_.client;
  // All processes can be workers of the table, by their place among them.
  const auto& nodes = place_.nodes;
  const auto own = std::find(nodes.begin(), nodes.end(), place_.own.id()) - nodes.begin();
  const std::string task = "worker" + std::to_string(own);
  const phx_ps_options options = OptionsOf(app, task, static_cast<int>(nodes.size()));
  phx_ps_worker* const worker = client.ps_worker_join(place_.connection, &options);
  phx_ps_table* const table = worker == nullptr ? nullptr : client.ps_worker_open(worker, kTable);
  const std::string wrong =
      table == nullptr ? "the table of " + NameOf(app.id) + ": " + client.error() : "";
  std::lock_guard<std::mutex> lock(mu_);
  app.worker = worker;
  app.table = table;
  return wrong;
}

std::string Tables::Ask(const App& app, const ::ps::Message& request) {
  ::ps::Message response = ResponseTo(request);
  // A slicer can send nothing to a server.
  if (request.data.empty()) {
    events_.answer(std::move(response));
    return "";
  }
  const std::string wrong = WrongWith(request, *app.kind);
  if (!wrong.empty()) return NameOf(app.id) + ": " + wrong;
  const ::ps::SArray<char>& values = request.data[1];
  const auto* const keys = reinterpret_cast<const uint64_t*>(request.data[0].data());
  const size_t n = request.data[0].size() / sizeof(uint64_t);
  const size_t bytes = n * ElementsOf(*app.kind).bytes;
  const ClientFunctions& client = *place_.client;
  auto asked = std::make_unique<Asked>();
  asked->response = std::move(response);
  if (request.meta.pull) {
    ::ps::SArray<char> out;
    out.resize(bytes);
    asked->response.data = {request.data[0], out};
    asked->response.meta.data_type = {::ps::UINT64, *app.kind};
    char* const to = out.data();
    asked->call = request.meta.push
                      ? client.ps_push_pull_rows(app.table, keys, n, values.data(), to, bytes)
                      : client.ps_pull_rows(app.table, keys, n, to, bytes);
  } else {
    asked->call = client.ps_push_rows(app.table, keys, n, values.data(), bytes);
  }
  if (asked->call == nullptr) return "the table of " + NameOf(app.id) + ": " + client.error();
  {
    std::lock_guard<std::mutex> lock(mu_);
    ++count_.calls;
    if (++count_.under_way == 1) cond_.notify_all();
  }
  phx_call* const call = asked->call;
  client.call_notify(call, queue_, reinterpret_cast<uint64_t>(asked.release()));
  return "";
}

// An idle process does not poll. After a failure calls that are under way are given up, as nothing
// may end them.
void Tables::TakeAnswers() {
  const ClientFunctions& client = *place_.client;
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mu_);
      cond_.wait(lock, [this] { return count_.under_way > 0 || ending_; });
      if (ending_ && (count_.under_way == 0 || failed_)) return;
    }
    client.poll(place_.connection, kSecondNanos);
    uint64_t tags[kAtOnce];
    size_t taken = 0;
    while ((taken = client.queue_take(queue_, tags, kAtOnce)) > 0) {
      for (size_t i = 0; i < taken; ++i) Answer(reinterpret_cast<Asked*>(tags[i]));
    }
  }
}

void Tables::Answer(Asked* asked) {
  const std::unique_ptr<Asked> owned(asked);
  const ClientFunctions& client = *place_.client;
  const int code = client.wait(asked->call, 0);
  const std::string why =
      code == 0 ? ""
                : "the table of " + NameOf(asked->response.meta.app_id) + ": " + client.error();
  client.call_free(asked->call);
  if (code == 0) {
    events_.answer(std::move(asked->response));
  } else {
    OnError(why);
  }
  std::lock_guard<std::mutex> lock(mu_);
  --count_.under_way;
  cond_.notify_all();
}

// ---------------------------------------------------------------------------- servers

void Tables::ServeIfNeeded(App& app) {
  if (place_.own.role != Role::kServer || failed_ || app.serving.joinable()) return;
  if (!app.is_table() || app.handle != app.kind) return;
  BeginThread(&app.serving, [this, &app] { Serve(app); });
}

void Tables::OnUnsaved(const App& app, const char* why) {
  const std::string text = "ps: " + NameOf(app.id) +
                           ": no snapshot of its values fits into the store (" + why +
                           "): from now on the death of a server is an error of all\n";
  std::fputs(text.c_str(), stderr);
  events_.report(app.id, Word::kUnsaved, *app.kind);
}

// Until all workers have left. What this life begins with is a snapshot, if there is one.
void Tables::Serve(App& app) {
  const ClientFunctions& client = *place_.client;
  const std::string task = "server" + std::to_string(place_.own.rank);
  phx_ps_options options = OptionsOf(app, task, place_.servers);
  // As the server of the original, which has what it has answered.
  options.await_workers = 1;
  phx_ps_server* const server = client.ps_server_join(place_.connection, &options);
  int code = server == nullptr ? client.error_code() : 0;
  if (server != nullptr) {
    phx_ps_table_spec spec;
    client.ps_table_defaults(&spec);
    spec.name = kTable;
    spec.dtype = spec.wire = ElementsOf(*app.kind).dtype;
    spec.sync = PHX_PS_ASP;
    // In proportion to the part.
    spec.snapshot_bytes = 0;
    const auto unsaved = [](void* argument, const char* /*table*/, const char* why) {
      const auto* const of = static_cast<const App*>(argument);
      of->owner->OnUnsaved(*of, why);
    };
    client.ps_server_on_unsaved(server, unsaved, &app);
    code = client.ps_server_add_table(server, &spec, nullptr, nullptr);
  }
  if (code == 0) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      app.server = server;
      if (finishing_) client.ps_server_finish(server);
      if (failed_ || dropping_) client.ps_server_stop(server);
    }
    code = client.ps_server_run(server);
  }
  const std::string why = "the table of " + NameOf(app.id) + ": " + client.error();
  {
    std::lock_guard<std::mutex> lock(mu_);
    app.server = nullptr;
    cond_.notify_all();
    if (failed_ || dropping_) code = 0;
  }
  if (server != nullptr) client.ps_server_free(server);
  if (code != 0) OnError(why);
}

// ---------------------------------------------------------------------------- the end

void Tables::OnError(const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (failed_ || dropping_) return;
    if (wrong_.empty()) wrong_ = why;
    cond_.notify_all();
  }
  events_.on_error(why);
}

uint64_t Tables::Settle() {
  std::unique_lock<std::mutex> lock(mu_);
  cond_.wait(lock, [this] {
    if (failed_) return true;
    return count_.under_way == 0 && std::all_of(apps_.begin(), apps_.end(), [](const auto& each) {
             return each.second->waiting.empty();
           });
  });
  return count_.calls;
}

// Those of servers that are killed at this moment stay as long as the nodes.
void Tables::Drop() {
  std::unique_lock<std::mutex> lock(mu_);
  if (!begun_ || failed_) return;
  dropping_ = true;
  for (const auto& [id, app] : apps_) {
    if (app->server != nullptr) place_.client->ps_server_drop(app->server);
  }
  cond_.wait_for(lock, kDropPatience, [this] {
    return std::all_of(apps_.begin(), apps_.end(),
                       [](const auto& each) { return each.second->server == nullptr; });
  });
}

void Tables::Fail() {
  std::lock_guard<std::mutex> lock(mu_);
  failed_ = true;
  cond_.notify_all();
  if (!begun_) return;
  for (const auto& [id, app] : apps_) {
    if (app->server != nullptr) place_.client->ps_server_stop(app->server);
    if (app->worker != nullptr) place_.client->ps_worker_fail(app->worker);
  }
}

// Quit is enough behind the barrier of all: what a server that dies now has lost is pulled by no
// process any more.
void Tables::LeaveTables(bool last) {
  std::vector<std::pair<int, phx_ps_worker*>> workers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [id, app] : apps_) {
      if (app->worker != nullptr && !failed_) workers.emplace_back(id, app->worker);
    }
  }
  for (const auto& [id, worker] : workers) {
    const auto leave = last ? place_.client->ps_worker_quit : place_.client->ps_worker_leave;
    if (leave(worker) != 0) OnError("the table of " + NameOf(id) + ": " + place_.client->error());
  }
}

std::string Tables::End(bool last) {
  Settle();
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!begun_) return "";
  }
  LeaveTables(last);
  bool failed = false;
  {
    std::unique_lock<std::mutex> lock(mu_);
    finishing_ = true;
    for (const auto& [id, app] : apps_) {
      if (app->server != nullptr) place_.client->ps_server_finish(app->server);
    }
    cond_.notify_all();
    cond_.wait(lock, [this] {
      return failed_ || (count_.running == 0 && count_.asking == 0 && !dropping_);
    });
    failed = failed_;
  }
  // A thread can wait in a call that nothing else ends.
  if (failed) place_.client->close(place_.connection);
  for (const auto& [id, app] : apps_) {
    if (app->opening.joinable()) app->opening.join();
    if (app->serving.joinable()) app->serving.join();
  }
  {
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait(lock, [this] { return count_.asking == 0; });
    ending_ = true;
    cond_.notify_all();
  }
  answers_.join();
  std::lock_guard<std::mutex> lock(mu_);
  const bool had = std::any_of(apps_.begin(), apps_.end(),
                               [](const auto& each) { return each.second->is_table(); });
  FreeApps();
  // What was pushed can be lost.
  return failed && had ? "the job has failed" : wrong_;
}

// The lock is held. The table first: it is a part of its worker.
void Tables::FreeApps() {
  for (const auto& [id, app] : apps_) {
    if (app->table != nullptr) place_.client->ps_table_free(app->table);
    if (app->worker != nullptr) place_.client->ps_worker_free(app->worker);
  }
  apps_.clear();
  place_.client->queue_free(queue_);
  count_.waiting_bytes = count_.calls = 0;
  begun_ = finishing_ = ending_ = dropping_ = false;
}

}  // namespace phalanx::ps_lite
