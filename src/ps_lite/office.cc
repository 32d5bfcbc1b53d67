#include "src/ps_lite/office.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "dmlc/logging.h"
#include "ps/internal/env.h"

namespace phalanx::ps_lite {
namespace {

constexpr int kAllGroups = 7;

// Of a run: a job of an earlier one at the same port is another one.
std::string NewJobName(const Settings& settings) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return "ps-lite:" + std::to_string(settings.root_port) + ":" + std::to_string(getpid()) + ":" +
         std::to_string(now);
}

// In one line, of the scheduler alone.
void WarnOfUnused(const Settings& settings) {
  std::string names;
  for (const std::string& name : settings.unused) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) std::fprintf(stderr, "ps: without effect here: %s\n", names.c_str());
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

::ps::SArray<char> BytesOf(const std::vector<int>& numbers) {
  ::ps::SArray<char> bytes;
  bytes.CopyFrom(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int));
  return bytes;
}

}  // namespace

Office& Office::Get() {
  static Office* const office = new Office;
  return *office;
}

void Office::Throw(const std::string& text) {
  const std::string line = "ps: " + text;
  std::fprintf(stderr, "%s\n", line.c_str());
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
    SendControl(::ps::Control::ADD_NODE, kAllGroups, customer, call);
    if (keeps()) AnswerStart();
  });
  // Messages of peers that are not seen as live here could not be answered.
  std::lock_guard<std::mutex> lock(start_mu_);
  if (ready_) return;
  CheckEmpty(channel_->WaitForLive(Processes()));
  finalized_ = false;
  ready_ = true;
  registry_.Open(own.role == Role::kWorker);
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
  hold.Confirm();
  {
    std::lock_guard<std::mutex> lock(mu_);
    failure_.clear();
    failed_ = false;
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
    if (channel->own() == own.keeper())
      barriers_ = std::make_unique<Barriers>(own.count(Role::kScheduler), own.servers, own.workers);
    channel_ = std::move(channel);
  }
  channel_->Run(EventsOfChannel());
  if (own.verbose > 0) {
    std::fprintf(stderr, "ps: %s is in job %s\n", TextOf(channel_->own()).c_str(),
                 place.job.c_str());
  }
  if (!keeps()) return CheckEmpty(channel_->WaitForLive({own.keeper()}));
  WarnOfUnused(own);
  if (root_ == nullptr) return;
  place.address = channel_->address();
  root_->Serve(own, place, [this](const std::string& why) { Fail(why, /*of_other=*/false); });
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
    place->job = NewJobName(own);
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
  return {[this](::ps::Message message) { OnMessage(std::move(message)); },
          [this](Peer peer) { OnLeft(peer); },
          [this] {
            const std::string overdue = registry_.Overdue();
            if (!overdue.empty()) Fail(overdue, /*of_other=*/false);
          },
          [this](const std::string& why, bool of_other) { Fail(why, of_other); }};
}

void Office::Finalize(int customer, bool do_barrier) {
  if (do_barrier) Barrier(customer, kAllGroups);
  if (customer != 0) return;
  std::unique_lock<std::mutex> lock(start_mu_);
  if (channel_ == nullptr) Throw("Finalize without Start");
  // They need it for their barriers, and for its private cluster.
  if (keeps()) channel_->WaitForOthers();
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
    barriers_.reset();
    callback = std::exchange(exit_callback_, nullptr);
  }
  lock.unlock();
  if (callback) callback();
}

void Office::SetExitCallback(std::function<void()> callback) {
  std::lock_guard<std::mutex> lock(mu_);
  exit_callback_ = std::move(callback);
}

// ---------------------------------------------------------------------------- barriers

void Office::Barrier(int customer, int group) {
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
  Await(0, "Barrier",
        [&](int call) { SendControl(::ps::Control::BARRIER, group, customer, call); });
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
      if (barriers_ != nullptr) missing += "; missing: " + barriers_->Missing();
    }
  }
  if (!missing.empty()) Throw(missing);
  Check();
}

void Office::SendControl(::ps::Control::Command command, int group, int customer, int call) {
  ::ps::Message message;
  message.meta.control.cmd = command;
  message.meta.control.barrier_group = group;
  message.meta.customer_id = customer;
  message.meta.timestamp = call;
  message.meta.request = true;
  message.meta.sender = node_.id;
  if (keeps()) return OnControl(message);
  Current()->Send(settings().keeper(), message, /*urgent=*/true);
}

void Office::OnMessage(::ps::Message message) {
  if (settings().verbose > 1)
    std::fprintf(stderr, "ps: received %s\n", message.DebugString().c_str());
  if (!message.meta.control.empty()) return OnControl(message);
  registry_.Deliver(std::move(message));
}

void Office::OnControl(const ::ps::Message& message) {
  if (!message.meta.request) return OnReleased(message);
  if (keeps()) OnRequest(message.meta);
}

void Office::OnRequest(const ::ps::Meta& meta) {
  const Peer from = PeerOf(meta.sender);
  const ::ps::Control::Command command = meta.control.cmd;
  std::vector<Release> releases;
  std::string wrong;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (command == ::ps::Control::BARRIER) {
      releases = barriers_->Arrive(from, meta.timestamp, meta.control.barrier_group);
    } else if (command == ::ps::Control::ADD_NODE) {
      std::vector<Release> starts = barriers_->Start(from, meta.timestamp, &wrong);
      // The thread in Start answers.
      if (!starts.empty()) starts_ = std::move(starts);
      cond_.notify_all();
      if (wrong.empty()) return;
      releases = {{from, {meta.timestamp}}};
    }
  }
  SendReleases(releases, command, wrong);
}

void Office::AnswerStart() {
  const Settings& own = settings();
  std::vector<Release> starts;
  {
    std::unique_lock<std::mutex> lock(mu_);
    cond_.wait_for(lock, std::chrono::seconds(own.timeout_seconds),
                   [this] { return barriers_->started() || failed_; });
    starts = std::exchange(starts_, {});
  }
  if (starts.empty()) return;
  std::vector<Peer> peers;
  peers.reserve(starts.size());
  for (const Release& each : starts) peers.push_back(each.to);
  const std::string wrong = channel_->WaitForLive(peers);
  if (!wrong.empty()) return Fail(wrong, /*of_other=*/false);
  SendReleases(starts, ::ps::Control::ADD_NODE, "");
}

void Office::OnLeft(Peer peer) {
  if (!keeps() || failed_) return;
  std::vector<Release> releases;
  {
    std::lock_guard<std::mutex> lock(mu_);
    releases = barriers_->Leave(peer);
  }
  SendReleases(releases, ::ps::Control::BARRIER, "");
}

void Office::SendReleases(const std::vector<Release>& releases, ::ps::Control::Command command,
                          const std::string& wrong) {
  ::ps::Message message;
  message.meta.control.cmd = command;
  message.meta.request = false;
  message.meta.sender = node_.id;
  message.meta.body = wrong;
  message.meta.data_type.assign(3, ::ps::OTHER);
  {
    std::lock_guard<std::mutex> lock(mu_);
    message.data = {
        {}, BytesOf(barriers_->Ranks(Role::kServer)), BytesOf(barriers_->Ranks(Role::kWorker))};
  }
  std::vector<int> own;
  for (const Release& release : releases) {
    if (release.to.id() == node_.id) {
      own.insert(own.end(), release.calls.begin(), release.calls.end());
      continue;
    }
    message.data[0] = BytesOf(release.calls);
    channel_->Send(release.to, message, /*urgent=*/true);
  }
  // Behind the others: this process can go on at once, and end.
  if (own.empty()) return;
  message.data[0] = BytesOf(own);
  OnReleased(message);
}

void Office::OnReleased(const ::ps::Message& message) {
  if (!message.meta.body.empty()) return Fail(message.meta.body, /*of_other=*/false);
  if (message.data.size() != 3)
    return Fail("the scheduler has sent a message of another kind", /*of_other=*/false);
  std::lock_guard<std::mutex> lock(mu_);
  if (message.meta.control.cmd == ::ps::Control::ADD_NODE && node_ids_.empty()) {
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

void Office::Fail(const std::string& why, bool of_other) {
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
  channel->GiveUp(of_other);
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

int Office::Send(::ps::Message* message) {
  ::ps::Meta& meta = message->meta;
  if (finalized_) {
    // A server can answer as late as that, when no process waits for it.
    if (!meta.request) return 0;
    Throw("Send after Finalize");
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
  if (meta.recver == node_.id) {
    registry_.Deliver(CopyOf(*message));
  } else {
    const std::shared_ptr<Channel> channel = Current();
    // Finalize has overtaken this.
    if (channel == nullptr) return Send(message);
    channel->Send(PeerOf(meta.recver), *message, /*urgent=*/false);
  }
  return static_cast<int>(bytes);
}

}  // namespace phalanx::ps_lite
