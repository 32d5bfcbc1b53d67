#include "src/ps_lite/office.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "dmlc/logging.h"
#include "ps/internal/env.h"

namespace phalanx::ps_lite {
namespace {

constexpr int kAllGroups = 7;
// How long the reason for an error of a table is awaited: longer than that of a message.
constexpr std::chrono::seconds kReasonPatience{5};
// What a process reports of an app to the keeper (Word), and what the keeper decides.
constexpr ::ps::Control::Command kHandles = ::ps::Control::ACK;

// Of a run: a job of an earlier one at the same port is another one.
std::string NewRun() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return std::to_string(getpid()) + ":" + std::to_string(now);
}

::ps::Message Control(::ps::Control::Command command, bool request) {
  ::ps::Message message;
  message.meta.control.cmd = command;
  message.meta.request = request;
  return message;
}

// In one line, of the scheduler alone.
void WarnOfUnused(const Settings& settings) {
  std::string names;
  for (const std::string& name : settings.unused) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) std::fprintf(stderr, "ps: without effect here: %s\n", names.c_str());
}

::ps::SArray<char> BytesOf(const std::vector<int>& numbers) {
  ::ps::SArray<char> bytes;
  bytes.CopyFrom(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int));
  return bytes;
}

}  // namespace

Office::Office()
    : tables_({[this](int app, Word word, Kind kind) {
                 ::ps::Message report = Control(kHandles, /*request=*/true);
                 report.meta.app_id = app;
                 report.meta.head = kind;
                 report.meta.option = static_cast<int>(word);
                 SendControl(std::move(report));
               },
               [this](const ::ps::Message& message) { SendNow(message); },
               [this](::ps::Message response) { registry_.Deliver(std::move(response)); },
               [this](const std::string& why) {
                 const std::shared_ptr<Channel> channel = Current();
                 if (channel != nullptr) channel->Suspect(why);
               }}) {}

Office& Office::Get() {
  static Office* const office = new Office;
  return *office;
}

void Office::Throw(const std::string& text) {
  const std::string line = "ps: " + text;
  std::fprintf(stderr, "%s\n", line.c_str());
  if (text == kAfterFinalize) throw AfterFinalize(line);
  throw dmlc::Error(line);
}

void Office::Check() {
  if (!failed_) return;
  std::string why;
  {
    std::lock_guard<std::mutex> lock(mu_);
    why = failure_;
  }
  Throw(why);
}

void Office::CheckEmpty(const std::string& wrong) {
  if (wrong.empty()) return;
  Check();
  Throw(wrong);
}

const Settings& Office::settings() {
  std::string wrong;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (settings_) return *settings_;
    Settings read;
    wrong =
        ReadSettings([](const char* name) { return ::ps::Environment::Get()->find(name); }, &read);
    if (wrong.empty()) return settings_.emplace(std::move(read));
  }
  Throw(wrong);
}

// ---------------------------------------------------------------------------- Start and Finalize

void Office::Start(int customer) {
  {
    std::lock_guard<std::mutex> lock(start_mu_);
    if (channel_ == nullptr) Begin();
  }
  const Settings& own = settings();
  // The keeper has waited in AnswerStart.
  Await(keeps() ? 1 : own.timeout_seconds, "Start", [&](int call) {
    ::ps::Message message = Control(::ps::Control::ADD_NODE, /*request=*/true);
    message.meta.customer_id = customer;
    message.meta.timestamp = call;
    SendControl(std::move(message));
    if (keeps()) AnswerStart();
  });
  std::lock_guard<std::mutex> lock(start_mu_);
  if (ready_) return;
  // Messages of peers that are not seen as live here could not be answered. A next life comes when
  // some can have left.
  if (!restarts_) CheckEmpty(channel_->WaitForLive(Processes()));
  finalized_ = false;
  BeginTables();
  ready_ = true;
  registry_.Open(own.role == Role::kWorker);
}

// The tables number their workers by the order of these ids, which is the same in all processes and
// lives.
void Office::BeginTables() {
  const Settings& own = settings();
  Tables::Place place;
  place.client = &channel_->client();
  place.connection = channel_->connection();
  place.own = channel_->own();
  place.servers = own.servers;
  place.nodes = NodeIds(kAllGroups);
  std::sort(place.nodes.begin(), place.nodes.end());
  place.restarts = restarts_;
  place.restart_seconds = own.restart_seconds;
  const std::string wrong = tables_.Begin(place);
  if (wrong.empty()) return;
  // The others wait for the values of this server: they see its death.
  Fail(wrong, Failure::kOwn);
  Check();
}

void Office::Begin() {
  // Those of the process may have changed since an earlier job.
  {
    std::lock_guard<std::mutex> lock(mu_);
    settings_.reset();
  }
  const Settings& own = settings();
  Place place;
  Hold hold;
  std::string wrong = FindPlace(&place, &hold);
  std::shared_ptr<Channel> channel;
  if (wrong.empty()) channel = Channel::Join(own, place, &wrong);
  if (channel == nullptr) Throw(wrong);
  hold.Confirm(channel->life());
  {
    std::lock_guard<std::mutex> lock(mu_);
    failure_.clear();
    failed_ = false;
    tables_.Renew(own.tables);
    node_ids_.clear();
    key_ranges_.clear();
    calls_.clear();
    node_ = ::ps::Node();
    node_.role = own.role == Role::kServer   ? ::ps::Node::SERVER
                 : own.role == Role::kWorker ? ::ps::Node::WORKER
                                             : ::ps::Node::SCHEDULER;
    node_.id = channel->own().id();
    node_.hostname = own.root_host;
    node_.port = own.root_port;
    restarts_ = false;
    if (channel->own() == own.keeper()) {
      // A launch can run again under its name.
      keeping_ =
          std::make_unique<Keeping>(Keeping{{own.count(Role::kScheduler), own.servers, own.workers},
                                            Kinds(own.servers),
                                            own.launched ? place.job + ":" + NewRun() : place.job,
                                            {},
                                            {}});
    }
    channel_ = std::move(channel);
  }
  channel_->Run(EventsOfChannel());
  if (own.verbose > 0) {
    std::fprintf(stderr, "ps: %s is in job %s\n", TextOf(channel_->own()).c_str(),
                 place.job.c_str());
  }
  if (!keeps()) return CheckEmpty(channel_->WaitForKeeper());
  WarnOfUnused(own);
  if (root_ == nullptr) return;
  place.address = channel_->address();
  root_->Serve(own, place, [this](const std::string& why) { Fail(why, Failure::kOwn); });
}

std::string Office::FindPlace(Place* place, Hold* hold) {
  const Settings& own = settings();
  const char* const address = std::getenv("PHALANX_ADDRESS");
  const bool given = address != nullptr && *address != '\0';
  std::string wrong;
  if (own.launched) {
    place->rank = own.rank;
    place->job = own.job;
    place->address = given ? address : "";
    return given ? "" : "PHALANX_JOB is set, but not PHALANX_ADDRESS";
  }
  if (own.role == Role::kScheduler) {
    // Before the cluster is started, which takes longer.
    root_ = Root::Listen(own.root_host, own.root_port, &wrong);
    place->job = "ps-lite:" + std::to_string(own.root_port) + ":" + NewRun();
    place->private_cluster = !given;
    return wrong;
  }
  wrong = AskRoot(own, place, hold);
  if (!wrong.empty() || !given) return wrong;
  if (place->private_cluster) {
    return "PHALANX_ADDRESS is set here, but not for the scheduler, which has started a private "
           "cluster: set it for all "
           "processes or for none";
  }
  place->address = address;
  return "";
}

Channel::Events Office::EventsOfChannel() {
  return {[this](::ps::Message message, uint64_t life) { OnMessage(std::move(message), life); },
          [this](Peer peer) { OnLeft(peer); },
          [this](Peer peer, uint64_t life) { OnDied(peer, life); },
          [this] { OnSecond(); },
          [this](Peer peer) { return tables_.LossOf(peer); },
          [this](const std::string& why, Failure failure) { Fail(why, failure); }};
}

// While a server is away its report cannot come, so the time does not count.
void Office::OnSecond() {
  for (const std::string& overdue : {registry_.Overdue(), tables_.Overdue()}) {
    if (!overdue.empty()) Fail(overdue, Failure::kOwn);
  }
  // A request can come when the server has left already.
  for (const Peer peer : Current()->Left()) FailIfAwaited(peer);
  if (!keeps()) return;
  std::vector<int> late;
  {
    const auto now = std::chrono::steady_clock::now();
    const bool away = !DeadNodes().empty();
    std::lock_guard<std::mutex> lock(mu_);
    if (away) keeping_->kinds.Prolong(now);
    late = keeping_->kinds.GiveUp(now);
  }
  for (const int app : late) SendDecision(app);
}

// A worker's callbacks can make the first calls. Those of servers are not awaited for that: they
// may have requests to handle all the time.
void Office::Settle() {
  uint64_t calls = tables_.Settle();
  bool more = calls > 0 || (settings().tables && settings().role == Role::kWorker);
  while (more) {
    registry_.AwaitIdle(failed_);
    const uint64_t before = std::exchange(calls, tables_.Settle());
    more = calls > before;
  }
}

void Office::Finalize(int customer, bool do_barrier) {
  // Behind the barrier no process joins a table, or calls for one, and a server that dies need not
  // have all that was pushed.
  if (do_barrier || customer == 0) Settle();
  if (do_barrier) Barrier(customer, kAllGroups, /*last=*/true);
  if (customer != 0) return;
  std::unique_lock<std::mutex> lock(start_mu_);
  if (channel_ == nullptr) Throw("Finalize without Start");
  EndTables(/*last=*/do_barrier);
  // They need it for their barriers, and for its private cluster, but wait for it no more.
  if (keeps()) {
    OnLeft(channel_->own());
    channel_->WaitForOthers();
  }
  // What has come is still handled, and answered.
  registry_.Drain(failed_);
  finalized_ = true;
  ready_ = false;
  channel_->Leave();
  root_.reset();
  registry_.Clear();
  std::function<void()> callback;
  {
    std::lock_guard<std::mutex> state(mu_);
    channel_.reset();
    keeping_.reset();
    callback = std::exchange(exit_callback_, nullptr);
  }
  lock.unlock();
  if (callback) callback();
}

// The others must not see that this process has left, if what it has pushed is lost.
void Office::EndTables(bool last) {
  const std::string wrong = tables_.End(last);
  if (wrong.empty()) return;
  {
    // It can be that of another one, of which the news come by another way.
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait_for(lock, kReasonPatience, [this] { return failed_.load(); });
  }
  Fail(wrong, Failure::kOwn);
  Check();
}

void Office::SetExitCallback(std::function<void()> callback) {
  std::lock_guard<std::mutex> lock(mu_);
  exit_callback_ = std::move(callback);
}

// ---------------------------------------------------------------------------- barriers

void Office::Barrier(int customer, int group, bool last) {
  const Settings& own = settings();
  const Peer peer{own.role, 0};
  if (group < 1 || group > kAllGroups || (peer.group() & group) == 0) {
    Throw("Barrier: a " + std::string(NameOf(own.role)) + " is not in group " +
          std::to_string(group));
  }
  Check();
  if (!ready_) Throw("Barrier without Start");
  // A group of one needs no scheduler. A process is as many workers as customers of it have
  // started.
  int count = 0;
  for (const Role role : kRoles)
    count += (Peer{role, 0}.group() & group) != 0 ? own.count(role) : 0;
  if (count <= 1) return;
  Await(0, "Barrier", [&](int call) {
    ::ps::Message message = Control(::ps::Control::BARRIER, /*request=*/true);
    message.meta.control.barrier_group = group;
    message.meta.customer_id = customer;
    message.meta.timestamp = call;
    message.meta.option = last ? 1 : 0;
    SendControl(std::move(message));
  });
}

void Office::Await(int seconds, const std::string& what,
                   const std::function<void(int call)>& send) {
  int call = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    call = ++last_call_;
    calls_[call];
  }
  send(call);
  std::string missing;
  {
    std::unique_lock<std::mutex> lock(mu_);
    const auto ended = [&] { return calls_[call].ended || failed_; };
    bool in_time = true;
    if (seconds > 0) {
      in_time = cond_.wait_for(lock, std::chrono::seconds(seconds), ended);
    } else {
      cond_.wait(lock, ended);
    }
    if (calls_[call].ended) {
      calls_.erase(call);
      return;
    }
    if (!in_time) {
      missing = what + ": not all processes of the job have come within " +
                std::to_string(settings_->timeout_seconds) + " s (PHALANX_PS_TIMEOUT)";
      if (keeping_ != nullptr) missing += "; missing: " + keeping_->barriers.Missing();
    }
  }
  if (!missing.empty()) Throw(missing);
  Check();
}

void Office::SendControl(::ps::Message message) {
  message.meta.sender = node_.id;
  const std::shared_ptr<Channel> channel = Current();
  if (keeps()) return OnControl(message, channel->life());
  channel->Send(settings().keeper(), message, /*urgent=*/true);
}

void Office::OnMessage(::ps::Message message, uint64_t life) {
  if (settings().verbose > 1)
    std::fprintf(stderr, "ps: received %s\n", message.DebugString().c_str());
  const ::ps::Meta& meta = message.meta;
  if (!meta.control.empty()) return OnControl(message, life);
  if (meta.request && PeerOf(meta.sender).role == Role::kServer)
    tables_.OnAsked(PeerOf(meta.sender));
  registry_.Deliver(std::move(message));
}

void Office::OnControl(const ::ps::Message& message, uint64_t life) {
  const ::ps::Meta& meta = message.meta;
  if (meta.request) {
    if (keeps()) OnRequest(meta, life);
  } else if (meta.control.cmd == kHandles) {
    const std::string wrong =
        tables_.Decide(meta.app_id, {static_cast<Kind>(meta.head), meta.body, meta.option != 0});
    if (!wrong.empty()) Fail(wrong, Failure::kOwn);
  } else {
    OnReleased(message);
  }
}

void Office::OnRequest(const ::ps::Meta& meta, uint64_t life) {
  const Peer from = PeerOf(meta.sender);
  const ::ps::Control::Command command = meta.control.cmd;
  std::vector<Release> releases;
  std::string wrong;
  bool restarts = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Barriers& barriers = keeping_->barriers;
    if (!barriers.Hear(from, life)) return;
    if (command == ::ps::Control::BARRIER) {
      releases =
          barriers.Arrive(from, meta.timestamp, meta.control.barrier_group, meta.option != 0);
    } else if (command == ::ps::Control::ADD_NODE) {
      restarts = barriers.started();
      releases = barriers.Start(from, meta.timestamp, &wrong);
      if (!wrong.empty()) releases = {{from, life, {meta.timestamp}}};
      if (!restarts && wrong.empty()) {
        // The thread in Start answers.
        if (!releases.empty()) keeping_->starts = std::exchange(releases, {});
        cond_.notify_all();
      }
    }
  }
  if (command == kHandles) return OnReport(from, meta);
  // Before its Start returns: what it serves is known then.
  if (restarts) SendDecisions(from);
  if (!releases.empty()) SendReleases(releases, command, wrong, restarts);
}

// A process can ask for an app that is decided meanwhile: the answer is on its way to it.
void Office::OnReport(Peer from, const ::ps::Meta& meta) {
  const int app = meta.app_id;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Kinds& kinds = keeping_->kinds;
    bool decided = false;
    switch (static_cast<Word>(meta.option)) {
      case Word::kHandle:
        decided = kinds.Report(from, app, static_cast<Kind>(meta.head));
        break;
      case Word::kAsk:
        decided = kinds.Ask(app, std::chrono::steady_clock::now());
        break;
      case Word::kUnsaved:
        decided = kinds.decided().count(app) > 0 && keeping_->unsaved.insert(app).second;
        break;
    }
    if (!decided) return;
  }
  SendDecision(app);
}

void Office::SendDecision(int app) {
  std::vector<Peer> all;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const Role role : kRoles) {
      for (const int rank : keeping_->barriers.Ranks(role)) all.push_back({role, rank});
    }
  }
  SendDecision(all, app);
}

void Office::SendDecisions(Peer to) {
  std::map<int, Kind> decided;
  {
    std::lock_guard<std::mutex> lock(mu_);
    decided = keeping_->kinds.decided();
  }
  for (const auto& [app, kind] : decided) SendDecision({to}, app);
}

void Office::SendDecision(const std::vector<Peer>& to, int app) {
  ::ps::Message message = Control(kHandles, /*request=*/false);
  message.meta.sender = node_.id;
  message.meta.app_id = app;
  {
    std::lock_guard<std::mutex> lock(mu_);
    message.meta.head = keeping_->kinds.decided().at(app);
    message.meta.body = keeping_->run + ":app" + std::to_string(app);
    message.meta.option = keeping_->unsaved.count(app) > 0 ? 1 : 0;
  }
  for (const Peer peer : to) {
    if (peer.id() == node_.id) {
      OnControl(message, 0);
    } else {
      channel_->Send(peer, message, /*urgent=*/true);
    }
  }
}

void Office::AnswerStart() {
  const Settings& own = settings();
  std::vector<Release> starts;
  {
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait_for(lock, std::chrono::seconds(own.timeout_seconds),
                   [this] { return keeping_->barriers.started() || failed_; });
    starts = std::exchange(keeping_->starts, {});
  }
  if (starts.empty()) return;
  std::vector<Peer> peers;
  peers.reserve(starts.size());
  for (const Release& each : starts) peers.push_back(each.to);
  const std::string wrong = channel_->WaitForLive(peers);
  if (!wrong.empty()) return Fail(wrong, Failure::kOwn);
  SendReleases(starts, ::ps::Control::ADD_NODE, "");
}

// A server of which tables wait has not served them: it has ended before a worker came, or is the
// next life of one that had.
void Office::FailIfAwaited(Peer left) {
  if (left.role != Role::kServer || failed_ || !tables_.waits()) return;
  Fail(TextOf(left) + " has left, and requests for its values wait", Failure::kOwn);
}

void Office::OnLeft(Peer peer) {
  FailIfAwaited(peer);
  if (!keeps() || failed_) return;
  std::vector<Release> releases;
  {
    std::lock_guard<std::mutex> lock(mu_);
    releases = keeping_->barriers.Leave(peer);
  }
  SendReleases(releases, ::ps::Control::BARRIER, "");
}

void Office::OnDied(Peer peer, uint64_t life) {
  if (peer.role != Role::kServer) return;
  if (root_ != nullptr) root_->Died(peer, life);
  if (!keeps()) return;
  std::lock_guard<std::mutex> lock(mu_);
  keeping_->barriers.Die(peer, life);
}

void Office::SendReleases(const std::vector<Release>& releases, ::ps::Control::Command command,
                          const std::string& wrong, bool restarts) {
  ::ps::Message message = Control(command, /*request=*/false);
  message.meta.option = restarts ? 1 : 0;
  message.meta.sender = node_.id;
  message.meta.body = wrong;
  message.meta.data_type.assign(3, ::ps::OTHER);
  {
    std::lock_guard<std::mutex> lock(mu_);
    const Barriers& barriers = keeping_->barriers;
    message.data = {
        {}, BytesOf(barriers.Ranks(Role::kServer)), BytesOf(barriers.Ranks(Role::kWorker))};
  }
  std::vector<int> own;
  for (const Release& release : releases) {
    if (release.to.id() == node_.id) {
      own.insert(own.end(), release.calls.begin(), release.calls.end());
      continue;
    }
    message.data[0] = BytesOf(release.calls);
    channel_->Send(release.to, message, /*urgent=*/true, static_cast<int64_t>(release.life));
  }
  // Behind the others: this process can go on at once, and end.
  if (own.empty()) return;
  message.data[0] = BytesOf(own);
  OnReleased(message);
}

void Office::OnReleased(const ::ps::Message& message) {
  if (!message.meta.body.empty()) return Fail(message.meta.body, Failure::kOwn);
  if (message.data.size() != 3)
    return Fail("the scheduler has sent a message of another kind", Failure::kOwn);
  std::lock_guard<std::mutex> lock(mu_);
  if (message.meta.control.cmd == ::ps::Control::ADD_NODE && node_ids_.empty()) {
    restarts_ = message.meta.option != 0;
    std::vector<Peer> peers;
    if (!settings_->launched) peers.emplace_back();
    for (const Role role : {Role::kServer, Role::kWorker}) {
      const ::ps::SArray<int> ranks(message.data[role == Role::kServer ? 1 : 2]);
      for (const int rank : ranks) peers.push_back({role, rank});
    }
    for (const Peer peer : peers) {
      node_ids_[peer.id()] = {peer.id()};
      for (int group = 1; group <= kAllGroups; ++group) {
        // The scheduler's id is that of its group.
        if ((group & peer.group()) != 0 && group != peer.id())
          node_ids_[group].push_back(peer.id());
      }
    }
  }
  const ::ps::SArray<int> calls(message.data[0]);
  for (const int call : calls) {
    const auto found = calls_.find(call);
    if (found != calls_.end()) found->second.ended = true;
  }
  cond_.notify_all();
}

void Office::Fail(const std::string& why, Failure failure) {
  // Before the program hears of it, with which it ends.
  if (!failed_ && failure != Failure::kOwn) tables_.Drop();
  std::shared_ptr<Channel> channel;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (failed_) return;
    failure_ = why;
    failed_ = true;
    channel = channel_;
    cond_.notify_all();
  }
  registry_.WakeAll();
  tables_.Fail();
  channel->GiveUp(failure);
}

// ---------------------------------------------------------------------------- nodes

std::shared_ptr<Channel> Office::Current() {
  std::lock_guard<std::mutex> lock(mu_);
  return channel_;
}

std::vector<Peer> Office::Processes() {
  std::vector<Peer> peers;
  for (const int id : NodeIds(kAllGroups)) peers.push_back(PeerOf(id));
  return peers;
}

const std::vector<int>& Office::NodeIds(int node_or_group) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = node_ids_.find(node_or_group);
    if (found != node_ids_.end()) return found->second;
    // A group can be without a process.
    if (!node_ids_.empty() && node_or_group > 0 && node_or_group <= kAllGroups)
      return node_ids_[node_or_group];
  }
  Throw("there is no node or group " + std::to_string(node_or_group) +
        (ready_ ? "" : " before Start"));
}

const std::vector<::ps::Range>& Office::KeyRanges(uint64_t greatest) {
  const int servers = settings().servers;
  std::lock_guard<std::mutex> lock(mu_);
  std::vector<::ps::Range>& ranges = key_ranges_[greatest];
  if (!ranges.empty()) return ranges;
  const uint64_t width = servers == 0 ? 0 : greatest / static_cast<uint64_t>(servers);
  for (int i = 0; i < servers; ++i) {
    const uint64_t begin = width * static_cast<uint64_t>(i);
    // What the division leaves belongs to the last one.
    ranges.emplace_back(begin, i + 1 == servers ? greatest : begin + width);
  }
  return ranges;
}

std::vector<int> Office::DeadNodes() {
  const std::shared_ptr<Channel> channel = Current();
  std::vector<int> ids;
  if (channel == nullptr) return ids;
  for (const Peer peer : channel->Dead()) ids.push_back(peer.id());
  return ids;
}

// Responses never go to tables: those of tables are made here.
int Office::Send(::ps::Message* message) {
  ::ps::Meta& meta = message->meta;
  if (finalized_) {
    // A server can answer as late as that, when no process waits for it.
    if (!meta.request) return 0;
    Throw(kAfterFinalize);
  }
  Check();
  if (!ready_) Throw("Send without Start");
  meta.sender = node_.id;
  if (NodeIds(meta.recver) != std::vector<int>{meta.recver}) {
    Throw("Send: " + std::to_string(meta.recver) + " is not the id of a node");
  }
  if (!meta.control.empty()) Throw("Send: messages of control are the library's own");
  const std::string wrong = WrongWith(*message);
  if (!wrong.empty()) Throw("Send: " + wrong);
  size_t bytes = meta.body.size();
  for (const auto& array : message->data) bytes += array.size();
  if (settings().verbose > 1)
    std::fprintf(stderr, "ps: sends %s\n", message->DebugString().c_str());
  std::string refused;
  const bool request = meta.request && PeerOf(meta.recver).role == Role::kServer;
  if (!request || !tables_.Take(*message, &refused)) SendNow(*message);
  CheckEmpty(refused);
  return static_cast<int>(bytes);
}

void Office::SendNow(const ::ps::Message& message) {
  Check();
  if (message.meta.recver == node_.id) return registry_.Deliver(CopyOf(message));
  const std::shared_ptr<Channel> channel = Current();
  // Finalize can have overtaken this.
  if (channel != nullptr) return channel->Send(PeerOf(message.meta.recver), message, false);
  if (message.meta.request) Throw(kAfterFinalize);
}

}  // namespace phalanx::ps_lite
