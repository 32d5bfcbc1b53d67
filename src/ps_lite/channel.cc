#include "src/ps_lite/channel.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace phalanx::ps_lite {
namespace {

constexpr int64_t kForever = -1;
constexpr int64_t kSecondNanos = 1'000'000'000;
// How long after an error of a message the reason for it is awaited: that the receiver has left, or
// died. The news of that come by another way.
constexpr std::chrono::seconds kReasonPatience{2};
// absl::StatusCode.
constexpr int kDeadlineExceeded = 4;

bool RoleNamed(const std::string& name, Role* role) {
  for (const Role each : kRoles) {
    if (name != NameOf(each)) continue;
    *role = each;
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Channel> Channel::Join(const Settings& settings, const Place& place,
                                       std::string* wrong) {
  const ClientFunctions* client = nullptr;
  *wrong = LoadClientFunctions(&client);
  if (!wrong->empty()) return nullptr;
  std::unique_ptr<Channel> channel(new Channel(*client, settings, place));
  phx_connect_options options = {};
  options.address = place.address.c_str();
  options.connect_timeout = settings.timeout_seconds * kSecondNanos;
  channel->connection_ = client->connect(&options);
  if (channel->connection_ == nullptr) {
    *wrong = client->error();
    if (!place.address.empty()) {
      *wrong += " (the scheduler's node: on another host, start a node and set PHALANX_ADDRESS)";
    }
    return nullptr;
  }
  phx_join_options join = {};
  join.role = NameOf(settings.role);
  join.world = settings.count(settings.role);
  join.rank = place.rank;
  join.timeout = settings.timeout_seconds * kSecondNanos;
  const std::string task = NameOf(settings.role) + std::to_string(place.rank);
  channel->member_ = client->join(channel->connection_, place.job.c_str(), task.c_str(), &join);
  if (channel->member_ != nullptr) {
    if (settings.launched) channel->ForgetEarlierRun();
    return channel;
  }
  *wrong = client->error();
  return nullptr;
}

Channel::~Channel() {
  if (member_ != nullptr) client_.member_free(member_);
  if (connection_ != nullptr) client_.client_free(connection_);
}

void Channel::Run(Events events) {
  events_ = std::move(events);
  receiving_ = std::thread([this] { Receive(); });
  watching_ = std::thread([this] { Watch(); });
}

void Channel::Leave() {
  leaving_ = true;
  {
    std::unique_lock<std::mutex> lock(sends_.mu);
    while (sends_.count > 0) EndOldest(lock, nullptr);
  }
  // Both threads end.
  client_.member_leave(member_, 0);
  receiving_.join();
  watching_.join();
}

// ---------------------------------------------------------------------------- receiving

void Channel::Receive() {
  std::map<Peer, Incoming> incoming;
  while (true) {
    phx_message* const message = client_.member_receive(member_, kForever);
    // The watching thread reports the end: it may have to take in the death that has caused it.
    if (message == nullptr) return;
    const std::string wrong = TakeMessage(message, &incoming);
    if (!wrong.empty()) {
      if (!leaving_) events_.on_failure(wrong, Failure::kOwn);
      return;
    }
  }
}

std::string Channel::TakeMessage(phx_message* message, std::map<Peer, Incoming>* incoming) {
  // Arrays can outlive this channel, but not the library's functions.
  const std::shared_ptr<const void> owner(message, client_.message_free);
  Peer from{Role::kScheduler, client_.message_rank(message)};
  if (!RoleNamed(client_.message_role(message), &from.role)) return "";
  const uint64_t life = client_.message_life(message);
  Incoming& of_peer = (*incoming)[from];
  if (life < of_peer.life) return "";
  // A life that has died can have sent a part of a message.
  if (life > of_peer.life) of_peer = {life};
  Assembly& assembly = of_peer.assembly;
  const char* const bytes = static_cast<const char*>(client_.message_data(message));
  const std::string wrong = assembly.Take(bytes, client_.message_size(message), owner);
  if (!wrong.empty()) return TextOf(from) + " has sent " + wrong;
  if (assembly.complete()) events_.on_message(assembly.Release(), life);
  return "";
}

// ---------------------------------------------------------------------------- watching

void Channel::Watch() {
  uint64_t change = 0;
  while (true) {
    const uint64_t before = change;
    const int code = client_.member_wait_change(member_, before, kSecondNanos, &change);
    const bool ended = code != 0 && code != kDeadlineExceeded;
    const std::string why = ended ? client_.error() : "";
    // A death that has caused the end comes before it.
    const bool died = Scan();
    if (ended && !died && !leaving_) {
      const char* const what = private_cluster_ ? "scheduler 1, or its private cluster, has died: "
                                                : "this process is no member of its job any more: ";
      events_.on_failure(BehindDeath(what + why),
                         private_cluster_ ? Failure::kOther : Failure::kOwn);
    }
    if (ended) break;
    EndEnded();
    const std::string error = TakeError();
    if (!error.empty() && !leaving_) events_.on_failure(error, Failure::kOwn);
    events_.on_second();
  }
  std::lock_guard<std::mutex> lock(states_mu_);
  over_ = true;
  states_cond_.notify_all();
}

bool Channel::Scan() {
  Changes changes;
  for (const Role role : kRoles) ScanRole(role, &changes);
  // Before those that have left because of it, and so end no barrier.
  const bool failed = ReportDeath() || ReportEnd(changes.left);
  for (const auto& [peer, life] : changes.died) events_.on_died(peer, life);
  for (const Peer peer : changes.left) events_.on_left(peer);
  std::lock_guard<std::mutex> lock(states_mu_);
  states_cond_.notify_all();
  return failed;
}

bool Channel::ReportDeath() {
  std::map<Peer, Death> deaths;
  {
    std::lock_guard<std::mutex> lock(states_mu_);
    deaths = deaths_;
  }
  const std::chrono::seconds patience(settings_.restart_seconds);
  const auto now = std::chrono::steady_clock::now();
  bool failed = false, of_other = false, overdue = false;
  const std::pair<const Peer, Death>* first = nullptr;
  std::vector<Peer> returned;
  for (const auto& death : deaths) {
    const Loss loss = events_.loss_of(death.first);
    const Seen seen = SeenOf(death.first);
    // It can have left already.
    if (loss == Loss::kNothing && seen.state != PHX_DIED && seen.life > death.second.life) {
      returned.push_back(death.first);
      continue;
    }
    if (first == nullptr || death.second.change < first->second.change) first = &death;
    const bool late = loss == Loss::kNothing && now - death.second.since >= patience;
    failed = failed || late || loss != Loss::kNothing;
    // Others may still wait for it.
    of_other = of_other || loss == Loss::kState;
    overdue = overdue || late;
  }
  {
    std::lock_guard<std::mutex> lock(states_mu_);
    for (const Peer peer : returned) deaths_.erase(peer);
  }
  if (!failed || leaving_) return failed;
  std::string why = TextOf(first->first) + " has died (on " + first->second.host + ")";
  if (overdue && !of_other) {
    why += ", and no process has taken its place within " + std::to_string(patience.count()) +
           " s (PHALANX_PS_RESTART_TIMEOUT)";
  }
  events_.on_failure(why, of_other ? Failure::kOther : overdue ? Failure::kLate : Failure::kOwn);
  return true;
}

// A process that has not heard in time what is lost with a death waits for a next life, while the
// others have given the job up.
bool Channel::ReportEnd(const std::vector<Peer>& left) {
  const Peer keeper = settings_.keeper();
  if (leaving_ || own_ == keeper || std::find(left.begin(), left.end(), keeper) == left.end())
    return false;
  events_.on_failure(BehindDeath(TextOf(keeper) + " has ended the job"), Failure::kOther);
  return true;
}

// What follows from a death names it: others may have given up its next life before.
std::string Channel::BehindDeath(const std::string& what) const {
  std::lock_guard<std::mutex> lock(states_mu_);
  const auto first = std::min_element(
      deaths_.begin(), deaths_.end(),
      [](const auto& a, const auto& b) { return a.second.change < b.second.change; });
  if (first == deaths_.end()) return what;
  return TextOf(first->first) + " has died (on " + first->second.host + "), and " + what;
}

std::vector<phx_member_info> Channel::MembersOf(Role role) const {
  std::vector<phx_member_info> members(static_cast<size_t>(settings_.count(role)));
  const int64_t known = client_.member_list(member_, NameOf(role), members.data(), members.size());
  members.resize(std::min(members.size(), static_cast<size_t>(std::max<int64_t>(known, 0))));
  return members;
}

// A launch can have run under this name before, and the members that it had are still known. A next
// life of this run forgets those that have left before it, too: it waits for none of them.
void Channel::ForgetEarlierRun() {
  for (const Role role : kRoles) {
    for (const phx_member_info& member : MembersOf(role)) {
      const bool ended = member.state == PHX_DIED || member.state == PHX_LEFT;
      if (ended) past_lives_[{role, member.rank}] = member.life;
    }
  }
}

void Channel::ScanRole(Role role, Changes* changes) {
  const std::vector<phx_member_info> members = MembersOf(role);
  std::lock_guard<std::mutex> lock(states_mu_);
  for (const phx_member_info& member : members) {
    const Peer peer{role, member.rank};
    const auto past = past_lives_.find(peer);
    if (past != past_lives_.end() && past->second == member.life) continue;
    const Seen before =
        std::exchange(states_[peer], Seen{member.state, member.life, member.change, member.host});
    if (before.state == member.state && before.life == member.life) continue;
    if (member.state == PHX_LEFT) changes->left.push_back(peer);
    // Between two looks there can be a death and a next life.
    const bool replaced = before.state == PHX_LIVE && member.life > before.life;
    if (member.state != PHX_DIED && !replaced) continue;
    const uint64_t life = member.state == PHX_DIED ? member.life : before.life;
    changes->died.emplace_back(peer, life);
    // The first of several lives that have died one after another is the one to name. If its death
    // was not seen, it was between two changes that were.
    const bool seen = member.state == PHX_DIED;
    deaths_.try_emplace(
        peer,
        Death{life, seen ? member.change : before.change, seen ? member.host : before.host, {}});
    deaths_[peer].life = life;
    deaths_[peer].since = std::chrono::steady_clock::now();
  }
}

Channel::Seen Channel::SeenOf(Peer peer) const {
  std::lock_guard<std::mutex> lock(states_mu_);
  const auto found = states_.find(peer);
  return found == states_.end() ? Seen() : found->second;
}

// Without those that a next life has replaced.
std::vector<Peer> Channel::InState(int state) const {
  std::lock_guard<std::mutex> lock(states_mu_);
  std::vector<Peer> peers;
  for (const auto& [peer, seen] : states_) {
    if (seen.state == state) peers.push_back(peer);
  }
  return peers;
}

std::string Channel::WaitForLive(const std::vector<Peer>& peers) {
  return WaitForLive(peers, settings_.timeout_seconds, "PHALANX_PS_TIMEOUT");
}

// A server that crashes behind its end is started again by its launch, when the keeper may have
// ended. But an earlier run of the launch, of the same name, has had a keeper as well, and that of
// this run may be loading: so it is waited for.
std::string Channel::WaitForKeeper() {
  const Peer keeper = settings_.keeper();
  if (!settings_.restarted || past_lives_.count(keeper) == 0) return WaitForLive({keeper});
  const std::string wrong =
      WaitForLive({keeper}, settings_.restart_seconds, "PHALANX_PS_RESTART_TIMEOUT");
  return wrong.empty() ? "" : "the job has ended: " + wrong;
}

std::string Channel::WaitForLive(const std::vector<Peer>& peers, int seconds,
                                 const char* variable) {
  std::unique_lock<std::mutex> lock(states_mu_);
  const auto absent = [&] {
    return std::find_if(peers.begin(), peers.end(), [this](Peer each) {
      const auto found = states_.find(each);
      return found == states_.end() || found->second.state == PHX_ABSENT;
    });
  };
  const std::chrono::seconds limit(seconds);
  states_cond_.wait_for(lock, limit, [&] { return over_ || absent() == peers.end(); });
  if (absent() == peers.end()) return "";
  if (over_) return "this process is no member of its job any more";
  return TextOf(*absent()) + " has not come within " + std::to_string(limit.count()) + " s (" +
         variable + ")";
}

void Channel::WaitForOthers() {
  std::unique_lock<std::mutex> lock(states_mu_);
  states_cond_.wait(lock, [this] {
    if (over_) return true;
    return deaths_.empty() &&
           std::none_of(states_.begin(), states_.end(), [this](const auto& each) {
             return each.first != own_ && each.second.state == PHX_LIVE;
           });
  });
}

// ---------------------------------------------------------------------------- sending

void Channel::Send(Peer to, const ::ps::Message& message, bool urgent, int64_t life) {
  const Encoded encoded = Encode(message);
  Line* line = nullptr;
  {
    std::lock_guard<std::mutex> lock(lines_mu_);
    line = &lines_[to];
  }
  std::lock_guard<std::mutex> lock(line->mu);
  const Receiver receiver{to, life < 0 ? SeenOf(to).life : static_cast<uint64_t>(life), life < 0,
                          !message.meta.request};
  if (!urgent) WaitForWindow(to);
  SendBytes(receiver, encoded.header, urgent);
  for (const std::string_view array : encoded.in_pieces) {
    for (size_t at = 0; at < array.size(); at += kPieceBytes) {
      SendBytes(receiver, array.substr(at, kPieceBytes), urgent);
    }
  }
}

void Channel::SendBytes(const Receiver& to, std::string_view bytes, bool urgent) {
  const uint64_t cost = bytes.size() + kSendCostBytes;
  Reserve(to.peer, cost, urgent);
  const int64_t life = to.any ? -1 : static_cast<int64_t>(to.life);
  phx_call* const call = client_.member_send(member_, NameOf(to.peer.role), to.peer.rank, life,
                                             bytes.data(), bytes.size(), kForever);
  if (call == nullptr) {
    KeepError(to.peer, to.life, to.response, client_.error());
    std::lock_guard<std::mutex> lock(sends_.mu);
    return GiveBack(to.peer, cost);
  }
  std::deque<Sending> ended;
  {
    std::lock_guard<std::mutex> lock(sends_.mu);
    sends_.calls.push_back({call, to.peer, to.life, to.response, cost});
    // Another thread that needs room can wait for this call.
    sends_.cond.notify_all();
    while (!sends_.calls.empty() && client_.call_ended(sends_.calls.front().call) != 0) {
      GiveBack(sends_.calls.front().to, sends_.calls.front().cost);
      ended.push_back(sends_.calls.front());
      sends_.calls.pop_front();
    }
  }
  for (const Sending& each : ended) End(each);
}

void Channel::WaitForWindow(Peer to) {
  std::unique_lock<std::mutex> lock(sends_.mu);
  while (sends_.cost_of[to] > kSendWindowOfPeer) EndOldest(lock, &to);
}

void Channel::Reserve(Peer to, uint64_t cost, bool urgent) {
  std::unique_lock<std::mutex> lock(sends_.mu);
  const auto fits = [&] {
    if (urgent || sends_.count == 0) return true;
    return sends_.cost + cost <= kSendWindowBytes && sends_.count < kSendWindowCalls;
  };
  while (!fits()) EndOldest(lock, nullptr);
  sends_.cost += cost;
  sends_.cost_of[to] += cost;
  ++sends_.count;
}

void Channel::EndOldest(std::unique_lock<std::mutex>& lock, const Peer* to) {
  std::deque<Sending>& calls = sends_.calls;
  const auto found = std::find_if(calls.begin(), calls.end(), [to](const Sending& each) {
    return to == nullptr || each.to == *to;
  });
  if (found == calls.end()) return sends_.cond.wait(lock);
  const Sending oldest = *found;
  calls.erase(found);
  lock.unlock();
  End(oldest);
  lock.lock();
  GiveBack(oldest.to, oldest.cost);
}

void Channel::GiveBack(Peer to, uint64_t cost) {
  sends_.cost -= cost;
  sends_.cost_of[to] -= cost;
  --sends_.count;
  sends_.cond.notify_all();
}

void Channel::EndEnded() {
  std::deque<Sending> ended;
  {
    std::lock_guard<std::mutex> lock(sends_.mu);
    std::deque<Sending>& calls = sends_.calls;
    const auto outstanding = [this](const Sending& each) {
      return client_.call_ended(each.call) == 0;
    };
    const auto first = std::stable_partition(calls.begin(), calls.end(), outstanding);
    ended.assign(first, calls.end());
    calls.erase(first, calls.end());
    for (const Sending& each : ended) GiveBack(each.to, each.cost);
  }
  for (const Sending& each : ended) End(each);
}

void Channel::End(const Sending& sending) {
  const int code = client_.wait(sending.call, kForever);
  const std::string why = code == 0 ? "" : client_.error();
  client_.call_free(sending.call);
  if (code == 0) return;
  KeepError(sending.to, sending.life, sending.response, why);
}

void Channel::KeepError(Peer to, uint64_t life, bool response, const std::string& why) {
  std::lock_guard<std::mutex> lock(sends_.mu);
  for (const Unsent& each : sends_.unsent) {
    if (each.to == to && each.life == life && each.response == response) return;
  }
  sends_.unsent.push_back({to, life, response, why, std::chrono::steady_clock::now()});
}

std::string Channel::TakeError() {
  std::lock_guard<std::mutex> lock(sends_.mu);
  // A process that has left waits for no response. A death is an error of its own, or none.
  const auto none_waits = [this](const Unsent& each) {
    const Seen seen = SeenOf(each.to);
    return each.to != own_ && ((each.response && seen.state == PHX_LEFT) ||
                               seen.state == PHX_DIED || seen.life > each.life);
  };
  sends_.unsent.erase(std::remove_if(sends_.unsent.begin(), sends_.unsent.end(), none_waits),
                      sends_.unsent.end());
  const auto now = std::chrono::steady_clock::now();
  for (const Unsent& each : sends_.unsent) {
    if (now - each.since < kReasonPatience) continue;
    return each.to == own_ ? each.why
                           : "a message to " + TextOf(each.to) + " was not sent: " + each.why;
  }
  return "";
}

void Channel::GiveUp(Failure failure) {
  if (leaving_.exchange(true)) return;
  client_.member_leave(member_, failure == Failure::kOther ? 0 : 1);
}

}  // namespace phalanx::ps_lite
