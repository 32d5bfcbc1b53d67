#include "src/ps_lite/tables.h"

#include <algorithm>
#include <utility>

#include "dmlc/logging.h"

namespace phalanx::ps_lite {
namespace {

constexpr int64_t kSecondNanos = 1'000'000'000;
constexpr int64_t kForever = -1;
constexpr char kTable[] = "values";
constexpr size_t kAtOnce = 256;  // answers

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

// The message with memory of its own.
::ps::Message CopyOf(const ::ps::Message& message) {
  ::ps::Message copy = message;
  for (auto& array : copy.data) {
    const ::ps::SArray<char> view = array;
    array.CopyFrom(view.data(), view.size());
  }
  return copy;
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

// What is wrong with a request for a table of this kind.
std::string WrongWith(const ::ps::Message& request, Kind kind) {
  const Elements elements = ElementsOf(kind);
  if (request.data.size() < 2) return "a request without arrays of keys and values";
  if (request.meta.data_type[0] != ::ps::UINT64 || request.meta.data_type[1] != kind) {
    return std::string("keys and values of the types ") +
           ::ps::DataTypeName[request.meta.data_type[0]] + " and " +
           ::ps::DataTypeName[request.meta.data_type[1]] + ", but the server has " +
           ::ps::DataTypeName[::ps::UINT64] + " and " + ::ps::DataTypeName[kind];
  }
  const size_t keys = request.data[0].size() / sizeof(uint64_t);
  const size_t values = request.data[1].size() / elements.bytes;
  if (!request.meta.push || keys == values) return "";
  return "(" + std::to_string(keys) + " keys with " + std::to_string(values) +
         " values): KVServerDefaultHandle has one for each";
}

}  // namespace

// ---------------------------------------------------------------------------- what handles an app

Tables::App& Tables::AppOf(int app) {
  std::unique_ptr<App>& of = apps_[app];
  if (of == nullptr) {
    of = std::make_unique<App>();
    of->id = app;
  }
  return *of;
}

void Tables::Renew() {
  std::lock_guard<std::mutex> lock(mu_);
  failed_ = false;
  // A decision can have come behind the end of the job before.
  for (const auto& [id, app] : apps_) {
    app->kind.reset();
    app->open = false;
  }
}

std::string Tables::Handle(int app, Kind kind) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (finishing_) return "";
    App& of = AppOf(app);
    if (of.kind.has_value() && *of.kind != kFunctions && *of.kind != kind) {
      return NameOf(app) +
             " has KVServerDefaultHandle, and values in a table: it can get no other "
             "handle";
    }
    of.handle = kind;
    if (!begun_ || place_.own.role != Role::kServer) return "";
    ServeIfNeeded(of);
  }
  events_.report(app, kind);
  return "";
}

void Tables::Decide(int app, Kind kind, const std::string& job) {
  std::lock_guard<std::mutex> lock(mu_);
  if (finishing_) return;
  App& of = AppOf(app);
  if (of.kind.has_value()) return;
  of.kind = kind;
  of.job = job;
  if (kind == kFunctions && of.waiting.empty()) of.open = true;
  if (!begun_) return;
  ServeIfNeeded(of);
  if (!of.waiting.empty()) OpenIfNeeded(of);
}

void Tables::Begin(const Place& place) {
  std::map<int, Kind> handles;
  {
    std::lock_guard<std::mutex> lock(mu_);
    place_ = place;
    queue_ = place_.client->queue_new();
    begun_ = true;
    for (const auto& [id, app] : apps_) {
      if (place_.own.role != Role::kServer || !app->handle.has_value()) continue;
      handles[id] = *app->handle;
      ServeIfNeeded(*app);
    }
    answers_ = std::thread([this] { TakeAnswers(); });
  }
  for (const auto& [app, kind] : handles) events_.report(app, kind);
}

Loss Tables::LossOf(Peer peer) {
  if (peer.role != Role::kServer) return Loss::kState;
  std::lock_guard<std::mutex> lock(mu_);
  const bool functions = std::any_of(
      apps_.begin(), apps_.end(), [](const auto& each) { return each.second->kind == kFunctions; });
  if (functions) return Loss::kState;
  return asked_.count(peer) > 0 ? Loss::kAnswers : Loss::kNothing;
}

std::string Tables::Overdue() {
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [id, app] : apps_) {
    if (app->kind.has_value() || app->waiting.empty() ||
        Clock::now() - app->waiting.front().since < kHandlePatience) {
      continue;
    }
    return "the servers have set no request handle of KVServer " + std::to_string(id) + " within " +
           std::to_string(kHandlePatience.count()) + " s of a request";
  }
  return "";
}

// ---------------------------------------------------------------------------- requests

bool Tables::Take(const ::ps::Message& request, std::string* wrong) {
  App* app = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (finishing_) return false;
    app = &AppOf(request.meta.app_id);
    const bool message = request.meta.simple_app || app->kind == kFunctions;
    if (message && app->waiting.empty() && (app->open || request.meta.simple_app)) {
      asked_.insert(PeerOf(request.meta.recver));
      return false;
    }
    if (!app->open) {
      app->waiting.push_back({CopyOf(request), Clock::now()});
      OpenIfNeeded(*app);
      return true;
    }
  }
  *wrong = Ask(*app, request);
  return true;
}

void Tables::OpenIfNeeded(App& app) {
  if (!app.kind.has_value() || app.open || app.opening.joinable() || failed_) return;
  app.opening = std::thread([this, &app] { Open(app); });
}

void Tables::Open(App& app) {
  std::string wrong = *app.kind == kFunctions ? "" : JoinTable(app);
  while (wrong.empty()) {
    ::ps::Message request;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (app.waiting.empty()) {
        app.open = true;
        cond_.notify_all();
        return;
      }
      // It stays at its place until it is sent: others come behind it.
      request = app.waiting.front().request;
      if (*app.kind == kFunctions || request.meta.simple_app)
        asked_.insert(PeerOf(request.meta.recver));
    }
    try {
      if (*app.kind == kFunctions || request.meta.simple_app) {
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
  }
  events_.on_error(wrong);
}

phx_ps_options Tables::OptionsOf(const App& app, const std::string& task, int world,
                                 int64_t timeout) const {
  phx_ps_options options = {};
  options.job = app.job.c_str();
  options.task = task.c_str();
  options.world = world;
  options.peer_timeout = timeout;
  return options;
}

std::string Tables::JoinTable(App& app) {
  const ClientFunctions& client = *place_.client;
  // All processes can be workers of the table, by their place among them.
  const auto& nodes = place_.nodes;
  const auto own = std::find(nodes.begin(), nodes.end(), place_.own.id()) - nodes.begin();
  const std::string task = "worker" + std::to_string(own);
  const phx_ps_options options =
      OptionsOf(app, task, static_cast<int>(nodes.size()), place_.timeout_seconds * kSecondNanos);
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
    if (++under_way_ == 1) cond_.notify_all();
  }
  phx_call* const call = asked->call;
  client.call_notify(call, queue_, reinterpret_cast<uint64_t>(asked.release()));
  return "";
}

void Tables::TakeAnswers() {
  const ClientFunctions& client = *place_.client;
  while (true) {
    {
      std::unique_lock<std::mutex> lock(mu_);
      cond_.wait(lock, [this] { return under_way_ > 0 || ending_; });
      if (ending_ && (under_way_ == 0 || failed_)) return;
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
    events_.on_error(why);
  }
  std::lock_guard<std::mutex> lock(mu_);
  --under_way_;
  cond_.notify_all();
}

// ---------------------------------------------------------------------------- servers

void Tables::ServeIfNeeded(App& app) {
  if (place_.own.role != Role::kServer || failed_ || app.serving.joinable()) return;
  if (!app.handle.has_value() || !app.kind.has_value() || *app.kind == kFunctions) return;
  app.serving = std::thread([this, &app] { Serve(app); });
}

void Tables::Serve(App& app) {
  const ClientFunctions& client = *place_.client;
  const std::string task = "server" + std::to_string(place_.own.rank);
  // Workers can come late.
  phx_ps_options options = OptionsOf(app, task, place_.servers, kForever);
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
    code = client.ps_server_add_table(server, &spec, nullptr, nullptr);
  }
  if (code == 0) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      app.server = server;
      if (finishing_) client.ps_server_finish(server);
      if (failed_) client.ps_server_stop(server);
    }
    code = client.ps_server_run(server);
  }
  const std::string why = "the table of " + NameOf(app.id) + ": " + client.error();
  {
    std::lock_guard<std::mutex> lock(mu_);
    app.server = nullptr;
    if (failed_) code = 0;
  }
  if (server != nullptr) client.ps_server_free(server);
  if (code != 0) events_.on_error(why);
}

// ---------------------------------------------------------------------------- the end

void Tables::Flush() {
  std::unique_lock<std::mutex> lock(mu_);
  cond_.wait(lock, [this] {
    return failed_ || std::all_of(apps_.begin(), apps_.end(), [](const auto& each) {
             return each.second->waiting.empty() || each.second->open;
           });
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
    if (leave(worker) == 0) continue;
    const std::string why = "the table of " + NameOf(id) + ": " + place_.client->error();
    std::unique_lock<std::mutex> lock(mu_);
    const bool failed = failed_;
    lock.unlock();
    if (!failed) events_.on_error(why);
  }
}

void Tables::End(bool last) {
  Flush();
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!begun_) return;
  }
  LeaveTables(last);
  bool failed = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    finishing_ = true;
    failed = failed_;
    for (const auto& [id, app] : apps_) {
      if (app->server != nullptr) place_.client->ps_server_finish(app->server);
    }
  }
  // A thread can wait in a call that nothing else ends.
  if (failed) place_.client->close(place_.connection);
  for (const auto& [id, app] : apps_) {
    if (app->opening.joinable()) app->opening.join();
    if (app->serving.joinable()) app->serving.join();
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
    cond_.notify_all();
  }
  answers_.join();
  std::map<int, std::unique_ptr<App>> apps;
  {
    // Fail uses them until now.
    std::lock_guard<std::mutex> lock(mu_);
    apps.swap(apps_);
    asked_.clear();
    begun_ = finishing_ = ending_ = false;
  }
  for (const auto& [id, app] : apps) {
    if (app->table != nullptr) place_.client->ps_table_free(app->table);
    if (app->worker != nullptr) place_.client->ps_worker_free(app->worker);
  }
  place_.client->queue_free(queue_);
}

}  // namespace phalanx::ps_lite
