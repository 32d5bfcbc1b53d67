#include "src/jobs/testing/member_world.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/directory/core/validate.h"

namespace phalanx::jobs::testing {

// ---------------------------------------------------------------------------- clients

void Client::OnJoined(MemberId, const absl::StatusOr<LocalMember>& member) {
  if (!member.ok()) {
    state_ = State::kEnded;
    why_ = member.status();
    return;
  }
  state_ = State::kLive;
  member_ = *member;
  world_.OnMemberJoined(*this);
}

void Client::OnChanged(MemberId) { ++changes_; }

void Client::OnEnded(MemberId, const absl::Status& why) {
  state_ = State::kEnded;
  why_ = why;
  world_.OnMemberEnded(*this, why);
}

Client& MemberWorld::Join(int number, JoinArguments arguments, absl::Duration timeout) {
  Node& node = *nodes_[static_cast<size_t>(number)];
  clients_.push_back(std::make_unique<Client>(*this, number, std::move(arguments)));
  Client& client = *clients_.back();
  const absl::StatusOr<MemberId> id =
      node.members->Join(client.arguments(), node.control->Now() + timeout, &client);
  if (!id.ok()) {
    client.state_ = Client::State::kEnded;
    client.why_ = id.status();
    return client;
  }
  client.id_ = *id;
  return client;
}

void MemberWorld::End(Client& client, MemberState how) {
  if (client.state_ == Client::State::kEnded) return;
  client.state_ = Client::State::kEnded;
  members(client.node()).Leave(client.id_, how);
}

// ---------------------------------------------------------------------------- the world

MemberWorld::MemberWorld(const Options& options)
    : options_(options), scheduler_({.seed = options.seed}), random_(scheduler_.random().Next()) {
  StartShard();
  RunFor(options_.lease + absl::Milliseconds(1));
  for (int n = 0; n < options.nodes; ++n) {
    nodes_.push_back(std::make_unique<Node>(*this, n));
    StartNode(n);
  }
}

MemberWorld::~MemberWorld() {
  for (const auto& node : nodes_) {
    node->members.reset();
    node->channel.reset();
    node->process.reset();
  }
}

void MemberWorld::Node::OnGroupLeft(absl::string_view job, absl::string_view role) {
  shown.erase({std::string(job), std::string(role)});
}

NodeKey MemberWorld::KeyOf(const Node& node) const {
  return {static_cast<uint64_t>(node.number) + 1, node.incarnation};
}

v1::NodeInfo MemberWorld::InfoOf(const Node& node) const {
  v1::NodeInfo info;
  directory::ToProto(KeyOf(node), info.mutable_key());
  info.set_name(absl::StrCat("n", node.number));
  info.set_address(absl::StrCat("10.0.0.", node.number, ":7410"));
  return info;
}

absl::Duration MemberWorld::Delay() {
  return absl::Nanoseconds(static_cast<int64_t>(
      random_.Below(static_cast<uint64_t>(absl::ToInt64Nanoseconds(options_.max_delay)) + 1)));
}

void MemberWorld::Break(const std::string& what) {
  if (broken_.ok()) broken_ = absl::InternalError(what);
}

void MemberWorld::RunFor(absl::Duration time) { scheduler_.RunFor(time); }

// ---------------------------------------------------------------------------- faults

void MemberWorld::StartNode(int number) {
  Node& node = *nodes_[static_cast<size_t>(number)];
  ++node.incarnation;
  node.process = scheduler_.NewProcess(absl::StrCat("n", number));
  node.control = &node.process->NewExecutor("control");
  node.channel = std::make_unique<object_store::ShardChannel>(
      1,
      [this, &node](int, v1::NodeMessage&& message) {
        if (node.session == 0) return;
        node.to_shard.push_back(std::move(message));
        if (node.to_shard.size() > 1) return;
        scheduler_.After(Delay(),
                         [this, &node, session = node.session] { DrainToShard(node, session); });
      },
      [&node](object_store::ShardChannel::Task task) { node.control->Post(std::move(task)); });
  node.members = std::make_unique<Members>(KeyOf(node), absl::StrCat("n", number), *node.control,
                                           *node.channel);
  node.members->AddObserver(&node);
  ConnectLater(node);
}

void MemberWorld::CrashNode(int number) {
  Node& node = *nodes_[static_cast<size_t>(number)];
  for (const auto& client : clients_) {
    if (client->node() == number) client->state_ = Client::State::kEnded;
  }
  const bool known = node.session != 0;
  node.session = 0;
  node.to_shard.clear();
  node.to_node.clear();
  node.members.reset();
  node.channel.reset();
  node.process->Kill();
  node.process.reset();
  node.shown.clear();
  if (!known) return;
  scheduler_.After(options_.lease, [this, key = KeyOf(node)] { Fence(key); });
}

void MemberWorld::Cut(int number) {
  Node& node = *nodes_[static_cast<size_t>(number)];
  node.cut = true;
  const uint64_t cut = ++node.cuts;
  scheduler_.After(options_.lease, [this, &node, cut, session = node.session] {
    if (!node.cut || node.cuts != cut || node.session != session || session == 0) return;
    node.session = 0;
    node.to_shard.clear();
    node.to_node.clear();
    ++node.fences;
    Fence(KeyOf(node));
  });
}

void MemberWorld::Fence(const NodeKey& key) {
  if (core_ == nullptr) return;
  core_->NodeDown(key, scheduler_.now());
  FlushShard();
}

void MemberWorld::Heal(int number) {
  Node& node = *nodes_[static_cast<size_t>(number)];
  if (!std::exchange(node.cut, false)) return;
  if (node.session == 0) return ConnectLater(node);
  // The session resumes where it stopped.
  scheduler_.After(Delay(), [this, &node, session = node.session] {
    DrainToShard(node, session);
    DrainToNode(node, session);
  });
}

void MemberWorld::StopShard() {
  core_.reset();
  before_.clear();
  for (const auto& [task, lives] : lives_) {
    const auto& [job, role, name] = task;
    const GroupView* view = members(0).ViewOf(job, role);
    if (view == nullptr) continue;
    for (const Member& member : view->members) {
      if (member.task == name) before_[task] = member.life + 1;
    }
  }
  // With the shard, and the nodes of the tasks, the ranks can be lost that node 0 does not know.
  std::erase_if(ranks_, [this](const auto& entry) { return !before_.contains(entry.first); });
  for (const auto& node : nodes_) {
    node->session = 0;
    node->to_shard.clear();
    node->to_node.clear();
  }
}

void MemberWorld::StartShard() {
  directory::DirectoryOptions options;
  options.lease = options_.lease;
  ++shard_lives_;
  armed_ = Instant::Infinite();
  core_ =
      std::make_unique<directory::DirectoryCore>(options, scheduler_.now(), Random(random_.Next()));
  for (const auto& node : nodes_) {
    // The earlier life can have reported to others that it died, and this one learns that from
    // them.
    ++node->fences;
    ConnectLater(*node);
  }
  FlushShard();
}

void MemberWorld::ConnectLater(Node& node) {
  const absl::Duration delay = Delay() * 50;
  scheduler_.After(delay, [this, &node, incarnation = node.incarnation] {
    if (node.incarnation == incarnation) Connect(node);
  });
}

// ---------------------------------------------------------------------------- sessions

void MemberWorld::Connect(Node& node) {
  if (core_ == nullptr || node.cut || node.members == nullptr || node.session != 0) return;
  node.session = ++last_session_;
  node.to_shard.clear();
  node.to_node.clear();
  core_->NodeUp(InfoOf(node), scheduler_.now());
  node.control->Post([&node, session = node.session] {
    if (node.session == session) node.channel->OnSession(0);
  });
  FlushShard();
}

void MemberWorld::DrainToShard(Node& node, uint64_t session) {
  if (node.session != session || node.cut || node.to_shard.empty()) return;
  const v1::NodeMessage message = std::move(node.to_shard.front());
  node.to_shard.pop_front();
  ++messages_;
  message_bytes_ += message.ByteSizeLong();
  const absl::Status status = core_->OnMessage(KeyOf(node), message, scheduler_.now());
  if (!status.ok()) Break(absl::StrCat("the shard refuses a message: ", status.message()));
  FlushShard();
  if (node.to_shard.empty()) return;
  scheduler_.After(Delay(), [this, &node, session] { DrainToShard(node, session); });
}

void MemberWorld::DrainToNode(Node& node, uint64_t session) {
  if (node.session != session || node.cut || node.to_node.empty()) return;
  v1::ShardMessage message = std::move(node.to_node.front());
  node.to_node.pop_front();
  ++messages_;
  message_bytes_ += message.ByteSizeLong();
  node.control->Post([&node, session, message = std::move(message)] {
    if (node.session == session) node.channel->OnMessage(0, message);
  });
  if (node.to_node.empty()) return;
  scheduler_.After(Delay(), [this, &node, session] { DrainToNode(node, session); });
}

void MemberWorld::FlushShard() {
  for (directory::Outgoing& out : core_->TakeOutbox()) {
    for (const auto& node : nodes_) {
      if (KeyOf(*node) != out.to || node->session == 0) continue;
      node->to_node.push_back(std::move(out.message));
      if (node->to_node.size() > 1) break;
      scheduler_.After(Delay(), [this, node = node.get(), session = node->session] {
        DrainToNode(*node, session);
      });
      break;
    }
  }
  if (const absl::Status status = core_->CheckInvariants(); !status.ok()) {
    Break(absl::StrCat("the shard: ", status.message()));
  }
  const Instant next = core_->NextDeadline();
  if (next.infinite() || next >= armed_) return;
  armed_ = next;
  scheduler_.At(next, [this, next, life = shard_lives_] {
    if (core_ == nullptr || shard_lives_ != life || armed_ != next) return;
    armed_ = Instant::Infinite();
    core_->Tick(scheduler_.now());
    FlushShard();
  });
}

// ---------------------------------------------------------------------------- checks

void MemberWorld::OnMemberJoined(Client& client) {
  const LocalMember& member = client.member();
  const TaskKey task(member.job, member.role, member.task);
  const std::string whose = absl::StrCat(member.task, " of job ", member.job);
  client.fences_ = nodes_[static_cast<size_t>(client.node())]->fences;
  const uint64_t given_before = std::exchange(lives_[task][member.life], shard_lives_);
  if (given_before == shard_lives_ || member.life < before_[task]) {
    Break(absl::StrCat("life ", member.life, " of ", whose, " was given twice"));
  }
  const auto [rank, first] = ranks_.emplace(task, member.rank);
  if (!first && rank->second != member.rank) Break(absl::StrCat("the rank of ", whose, " changed"));
  if (!first) return;
  for (const auto& [other, taken] : ranks_) {
    const bool same_role = std::get<0>(other) == member.job && std::get<1>(other) == member.role;
    if (same_role && taken == member.rank && other != task) {
      Break(absl::StrCat("rank ", taken, " of job ", member.job, " was given twice"));
    }
  }
}

void MemberWorld::OnMemberEnded(Client& client, const absl::Status& why) {
  const Node& node = *nodes_[static_cast<size_t>(client.node())];
  if (absl::StrContains(why.message(), "newer life")) {
    const LocalMember& member = client.member();
    const GroupView* view = node.members->ViewOf(member.job, member.role);
    if (view->members[static_cast<size_t>(member.rank)].life <= member.life) {
      Break(absl::StrCat("there is no newer life of ", member.task));
    }
    return;
  }
  if (node.fences == client.fences_) {
    Break(absl::StrCat("a member ended without a fence: ", why.message()));
  }
}

void MemberWorld::OnView(Node& node, const GroupView& view) {
  const auto shown = node.shown.find({view.job, view.role});
  if (shown != node.shown.end() && view.epoch < shown->second) {
    Break(absl::StrCat("the epoch of job ", view.job, " fell at n", node.number));
  }
  node.shown[{view.job, view.role}] = view.epoch;
  const std::string seen = Seen(node.number, view.job, view.role);
  const auto [same, first] = views_.emplace(std::tuple(view.job, view.role, view.epoch), seen);
  if (!first && same->second != seen) {
    Break(absl::StrCat("two nodes see other members in one epoch: ", seen, "; ", same->second));
  }
  for (const Member& member : view.members) {
    if (member.state == MemberState::kAbsent) continue;
    auto& [life, ended] = last_[{node.number, node.incarnation, view.job, view.role, member.rank}];
    if (member.life < life) Break(absl::StrCat("the life of ", member.task, " fell"));
    if (member.life == life && ended && member.live()) {
      Break(absl::StrCat("life ", life, " of ", member.task, " is live again"));
    }
    life = member.life;
    ended = !member.live();
  }
}

std::string MemberWorld::Seen(int node, const std::string& job, const std::string& role) const {
  const GroupView* view = nodes_[static_cast<size_t>(node)]->members->ViewOf(job, role);
  if (view == nullptr) return "unknown";
  std::string text;
  for (const Member& member : view->members) {
    absl::StrAppend(&text, text.empty() ? "" : " ");
    if (member.state == MemberState::kAbsent) {
      absl::StrAppend(&text, "-");
      continue;
    }
    const bool left = member.state == MemberState::kLeft;
    absl::StrAppend(&text, member.task, ".", member.life, member.live() ? "+" : left ? "=" : "-");
  }
  return text;
}

void MemberWorld::Settle() {
  if (core_ == nullptr) StartShard();
  for (const auto& node : nodes_) {
    if (node->members == nullptr) StartNode(node->number);
    Heal(node->number);
  }
  // Joins that wait end with their deadline at the latest.
  RunFor(absl::Seconds(25));
  std::set<std::tuple<int, std::string, std::string>> groups;
  for (const auto& client : clients_) {
    const JoinArguments& arguments = client->arguments();
    if (client->state() == Client::State::kJoining) {
      Break(absl::StrCat("the join of ", arguments.task, " is not answered"));
    }
    if (client->live()) groups.emplace(client->node(), arguments.job, arguments.role);
  }
  for (const auto& [node, job, role] : groups) {
    CheckView(*nodes_[static_cast<size_t>(node)], job, role);
  }
}

void MemberWorld::CheckView(const Node& node, const std::string& job, const std::string& role) {
  std::map<std::string, const Client*> living;
  for (const auto& client : clients_) {
    const JoinArguments& arguments = client->arguments();
    if (!client->live() || arguments.job != job || arguments.role != role) continue;
    const Client*& other = living[arguments.task];
    if (other != nullptr) Break(absl::StrCat("two lives of ", arguments.task, " are live"));
    other = client.get();
  }
  const GroupView* view = node.members->ViewOf(job, role);
  if (view == nullptr) return Break(absl::StrCat("n", node.number, " does not know job ", job));
  size_t live = 0;
  for (const Member& member : view->members) {
    if (!member.live()) continue;
    ++live;
    const auto found = living.find(member.task);
    const bool right = found != living.end() && found->second->member().life == member.life &&
                       found->second->member().rank == member.rank &&
                       KeyOf(*nodes_[static_cast<size_t>(found->second->node())]) == member.node;
    if (right) continue;
    Break(absl::StrCat("n", node.number, " sees ", member.task, ".", member.life, " of job ", job,
                       " as live, which it is not"));
  }
  if (live == living.size()) return;
  Break(absl::StrCat("n", node.number, " sees ", live, " of ", living.size(),
                     " live members of job ", job, ": ", Seen(node.number, job, role)));
}

}  // namespace phalanx::jobs::testing
