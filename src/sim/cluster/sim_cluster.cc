#include "src/sim/cluster/sim_cluster.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/check.h"
#include "src/common/ids/shard_of.h"
#include "src/directory/core/validate.h"
#include "src/sim/cluster/tracing_connector.h"
#include "src/sim/seams/sim_message_stream.h"

namespace phalanx::sim {
namespace {

constexpr absl::string_view kShardPort = ":7400";

SimScheduler::Options Seeded(SimScheduler::Options options, uint64_t seed) {
  options.seed = seed;
  return options;
}

SimFabric::Options Seeded(SimFabric::Options options, uint64_t seed) {
  options.seed = seed * 31 + 7;
  return options;
}

}  // namespace

SimCluster::SimCluster(const ClusterOptions& options)
    : options_(options),
      scheduler_(Seeded(options.scheduler, options.seed)),
      fabric_(scheduler_, Seeded(options.fabric, options.seed)),
      journal_(scheduler_, options.verbose),
      history_(scheduler_, journal_),
      trouble_(scheduler_, options.nodes, options.shards),
      network_(fabric_, options.nodes, journal_, trouble_),
      random_(options.seed * 17 + 3),
      nodes_(static_cast<size_t>(options.nodes)),
      shards_(static_cast<size_t>(options.shards)) {
  history_.SetOracle(this);
  // Shards first, so that the first dial of a node succeeds.
  for (int s = 0; s < options.shards; ++s) StartShard(s);
  for (int n = 0; n < options.nodes; ++n) StartNode(n);
}

SimCluster::~SimCluster() {
  // Nodes first: they have connections to the shards.
  for (int n = 0; n < num_nodes(); ++n) CrashNode(n);
  for (int s = 0; s < num_shards(); ++s) CrashShard(s);
}

int SimCluster::ShardOf(const ObjectId& id) const { return phalanx::ShardOf(id, options_.shards); }

// ------------------------------------------------------------------------------------- looking

object_store::Store* SimCluster::store(int n) {
  runtime::Node* up = node(n);
  return up == nullptr ? nullptr : &up->store();
}

bool SimCluster::node_stalled(int n) const {
  const NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  return slot.process != nullptr && slot.process->stalled();
}

bool SimCluster::shard_stalled(int s) const {
  const ShardSlot& slot = shards_[static_cast<size_t>(s)];
  return slot.process != nullptr && slot.process->stalled();
}

int SimCluster::FindNode(const NodeKey& key) const {
  for (int n = 0; n < num_nodes(); ++n) {
    const NodeSlot& slot = nodes_[static_cast<size_t>(n)];
    if (slot.node != nullptr && slot.node->key() == key) return n;
  }
  return -1;
}

std::vector<v1::ObjectSummary> SimCluster::List(int s) {
  std::vector<v1::ObjectSummary> objects;
  if (shard(s) == nullptr) return objects;
  v1::ListObjectsRequest request;
  v1::ListObjectsResponse response;
  // A list has a limited size, so it is read in parts.
  do {
    response.Clear();
    const Instant now = shards_[static_cast<size_t>(s)].control->Now();
    PHALANX_CHECK(shard(s)->core().List(request, now, &response).ok(),
                  "a list continues from its end");
    objects.insert(objects.end(), response.objects().begin(), response.objects().end());
    request.set_after_object_id(response.listed_to());
  } while (response.more());
  return objects;
}

uint64_t SimCluster::CountedBytes(const v1::ObjectSummary& object) {
  return object.info().size_bytes() + object.info().metadata().size() + object_store::kRecordBytes;
}

// Describes without a message to the shard, so a checker does not disturb the run.
v1::DescribeObjectResponse SimCluster::Describe(const ObjectId& id) {
  v1::DescribeObjectResponse response;
  const size_t s = static_cast<size_t>(ShardOf(id));
  if (shards_[s].shard == nullptr) return response;
  const absl::Status known =
      shards_[s].shard->core().Describe(id, shards_[s].control->Now(), &response);
  if (!known.ok()) response.Clear();
  return response;
}

uint64_t SimCluster::Counter(const std::string& name) {
  uint64_t sum = 0;
  for (int s = 0; s < num_shards(); ++s) {
    if (shard(s) == nullptr) continue;
    v1::GetStatusResponse status;
    shard(s)->FillStatus(&status);
    sum += status.counters().at(name);
  }
  return sum;
}

std::string SimCluster::DescribeEverywhere(const ObjectId& id) {
  std::string text = absl::StrCat(ShardName(ShardOf(id)), ": ", Describe(id).ShortDebugString());
  // The description goes into a violation, which has to be readable.
  if (text.size() > 1500) text.resize(1500);
  for (int n = 0; n < num_nodes(); ++n) {
    if (node(n) == nullptr) continue;
    absl::StrAppend(&text, "; ", NodeName(n), ":");
    for (const auto& copy : store(n)->Copies()) {
      if (copy.id != id) continue;
      absl::StrAppend(&text, " attempt ", history_.AttemptOf(copy.generation), " ",
                      copy.bytes_present, "/", copy.size_bytes,
                      copy.complete ? " complete" : " partial", copy.primary ? " primary" : "");
    }
  }
  return text;
}

// ------------------------------------------------------------------------------------- clients

SimClient* SimCluster::OpenClient(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  PHALANX_CHECK(slot.node != nullptr, "a client is opened on a node that is up");
  slot.clients.push_back(std::make_unique<SimClient>(slot.node->key(), slot.node->store(),
                                                     *slot.control, scheduler_, history_));
  return slot.clients.back().get();
}

std::vector<SimClient*> SimCluster::clients(int n) {
  std::vector<SimClient*> open;
  for (const auto& client : nodes_[static_cast<size_t>(n)].clients) {
    if (!client->closed()) open.push_back(client.get());
  }
  return open;
}

void SimCluster::OnNode(int n, std::function<void()> task) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  // A leaving node accepts no more requests of clients.
  if (slot.node == nullptr || slot.leaving) return;
  slot.control->Post([this, n, task = std::move(task)] {
    // The node can have left in the meantime.
    if (node(n) != nullptr) task();
  });
}

// ------------------------------------------------------------------------------------ machines

runtime::NodeOptions SimCluster::OptionsOfNode(int n) const {
  runtime::NodeOptions options;
  options.name = NodeName(n);
  options.incarnation = nodes_[static_cast<size_t>(n)].incarnation;
  options.listen = absl::StrCat(NodeName(n), ":0");
  options.capacity_bytes = options_.capacity_bytes;
  options.registered_per_turn = options_.registered_per_turn;
  options.transit_patience = options_.transit_patience;
  options.secret = options_.secret;
  options.data_plane = options_.data_plane;
  if (options_.hosts > 0) options.labels["host"] = absl::StrCat("h", n % options_.hosts);
  if (options_.zones > 0) options.labels["zone"] = absl::StrCat("z", n % options_.zones);
  return options;
}

void SimCluster::StartNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  if (slot.process != nullptr) return;
  journal_.Note("start ", NodeName(n));
  ++lives_;
  // A new incarnation: the directory distinguishes the lives of a node by it.
  ++slot.incarnation;
  slot.process = scheduler_.NewProcess(NodeName(n));
  slot.network = fabric_.Join(*slot.process, NodeName(n));
  slot.control = &slot.process->NewExecutor("control");
  slot.memory = std::make_unique<SimMemory>(*slot.control, random_.Fork());
  // A new life starts with the usual memory, whatever fault the previous one had.
  slot.memory->SetTrouble(options_.allocation_delay, options_.allocation_failures);
  trouble_.AddForNode(n);
  // On the node's own loop, because its constructor uses the loop's timers.
  slot.control->Post([this, n] { MakeNode(n); });
}

void SimCluster::MakeNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  std::vector<Executor*> io;
  for (int i = 0; i < options_.io_loops; ++i) {
    io.push_back(&slot.process->NewExecutor(absl::StrCat("io", i)));
  }
  // Production can run with one loop too.
  if (io.empty()) io.push_back(slot.control);
  std::vector<std::unique_ptr<directory::ShardConnector>> shards;
  for (int s = 0; s < num_shards(); ++s) {
    shards.push_back(NewSimShardConnector(*slot.network, absl::StrCat(ShardName(s), kShardPort)));
    shards.back() = NewTracingConnector(
        std::move(shards.back()),
        Trace{.prefix = absl::StrCat(NodeName(n), "-", ShardName(s)),
              .to_journal = options_.verbose,
              .on_sent = [this, n, s](const v1::NodeMessage& message) { OnSent(n, s, message); },
              .on_received =
                  [this, n, s](uint64_t sequence, const v1::ShardMessage& message) {
                    OnReceived(n, s, sequence, message);
                  }},
        history_);
  }
  auto node = runtime::Node::Start(
      OptionsOfNode(n),
      runtime::NodeSeams{.control = *slot.control,
                         .io = std::move(io),
                         .network = *slot.network,
                         .memory = *slot.memory,
                         .shards = std::move(shards),
                         .random = random_.Fork(),
                         .nonce_bytes = NonceBytes(),
                         .on_shard_state = [this, n](int s, const absl::Status& state) {
                           journal_.Note(NodeName(n), "-", ShardName(s), ": ",
                                         state.ok() ? "connected" : state.ToString());
                           // The shard sees this change only after the node, so the pair counts as
                           // disturbed from here on.
                           trouble_.Add(n, s);
                         }});
  PHALANX_CHECK(node.ok(), "a simulated node starts");
  slot.node = *std::move(node);
}

void SimCluster::OnSent(int n, int s, const v1::NodeMessage& message) {
  if (options_.listener) {
    options_.listener(absl::StrCat(NodeName(n), "-", ShardName(s), " ->"), message);
  }
  // A new session repeats the requests of the previous one.
  if (message.has_register_begin()) answered_.erase({n, s});
  if (message.has_delete_confirm() && node(n) != nullptr) {
    const uint64_t number =
        history_.AttemptOf(directory::FromProto(message.delete_confirm().generation()));
    // The confirmation shows that the node has dropped its copy and will remember the deletion.
    if (number != 0) history_.attempt(number).deletion_confirmed_by.insert(node(n)->key());
  }
  // In a world without faults no sender stalls: a receiver without bytes reports "starved" instead.
  const auto stalled = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
  if (!options_.peaceful || message.pull_report().code() != stalled) return;
  journal_.Violation(absl::StrCat(
      NodeName(n),
      " replaced a stalled sender in a run without faults: ", message.pull_report().message()));
}

// In one session a shard receives every message once, so it must answer every request once.
void SimCluster::OnReceived(int n, int s, uint64_t sequence, const v1::ShardMessage& message) {
  if (watcher_) watcher_(n, message);
  if (options_.listener) {
    options_.listener(absl::StrCat(NodeName(n), "-", ShardName(s), " <-"), message);
  }
  uint64_t request = 0;
  if (message.has_delete_reply()) request = message.delete_reply().request_id();
  if (message.has_query_reply()) request = message.query_reply().request_id();
  if (message.has_broadcast_reply()) request = message.broadcast_reply().request_id();
  if (request == 0) return;
  const auto [answer, first] = answered_[{n, s}].try_emplace(request, sequence);
  // The session discards the same message if a stream broke and it is sent again.
  if (first || answer->second == sequence) return;
  journal_.Violation(absl::StrCat(ShardName(s), " answered request ", request, " of ", NodeName(n),
                                  " twice in one session"));
}

std::function<void(void*, size_t)> SimCluster::NonceBytes() {
  return [random = random_.Fork()](void* out, size_t size) mutable {
    for (size_t i = 0; i < size; ++i) static_cast<char*>(out)[i] = static_cast<char>(random.Next());
  };
}

void SimCluster::EndNode(NodeSlot& slot) {
  // The process dies first: destructors must not end its sessions.
  slot.process->Kill();
  slot.clients.clear();
  slot.node = nullptr;
  slot.memory = nullptr;
  slot.network = nullptr;
  slot.control = nullptr;
  slot.process = nullptr;
  slot.leaving = false;
  // Checkers allow for losses shortly after a death.
  slot.last_crash = scheduler_.now();
}

void SimCluster::CrashNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  if (slot.process == nullptr) return;
  journal_.Note("crash ", NodeName(n));
  trouble_.AddForNode(n);
  EndNode(slot);
}

void SimCluster::LeaveNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  if (slot.node == nullptr || slot.leaving) return;
  journal_.Note("leave ", NodeName(n));
  trouble_.AddForNode(n);
  slot.leaving = true;
  // The node can crash and start again before the task runs.
  const uint64_t incarnation = slot.incarnation;
  slot.control->Post([this, n, incarnation] {
    NodeSlot& slot = nodes_[static_cast<size_t>(n)];
    for (const auto& client : slot.clients) {
      // Clients lose their connection when the daemon exits.
      if (!client->closed()) client->Close(/*clean=*/false);
    }
    slot.node = nullptr;
    // The last bytes are still in the kernel's send buffers.
    scheduler_.After(absl::Milliseconds(1), [this, n, incarnation] {
      NodeSlot& slot = nodes_[static_cast<size_t>(n)];
      // A crash was faster.
      if (slot.process == nullptr || slot.incarnation != incarnation) return;
      EndNode(slot);
      // HealEverything could not start it while it was leaving.
      if (std::exchange(slot.wanted_back, false)) StartNode(n);
    });
  });
}

void SimCluster::Drain(int n, absl::Duration timeout,
                       std::function<void(const absl::Status&)> done) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  slot.node->Drain(slot.control->Now() + timeout, [this, n, done](const absl::Status& status) {
    if (status.ok()) CheckDrained(n);
    done(status);
  });
}

void SimCluster::CheckDrained(int n) {
  std::set<std::pair<ObjectId, Generation>> elsewhere;
  for (int other = 0; other < num_nodes(); ++other) {
    if (other == n || node(other) == nullptr) continue;
    for (const auto& copy : store(other)->Copies()) {
      if (copy.complete) elsewhere.insert({copy.id, copy.generation});
    }
  }
  for (const auto& copy : store(n)->Copies()) {
    const uint64_t number = history_.AttemptOf(copy.generation);
    if (!copy.complete || number == 0 || elsewhere.contains({copy.id, copy.generation})) continue;
    const Attempt& attempt = history_.attempt(number);
    // A drain moves adopted objects only.
    if (!attempt.adopted || history_.PossiblyDeleted(attempt)) continue;
    // Another holder can have died just now, with a copy that the drain relied on.
    bool quiet = Undisturbed(n, ShardOf(copy.id), scheduler_.now() - options_.lease * 3);
    for (const NodeSlot& slot : nodes_) {
      quiet = quiet && slot.last_crash + options_.lease * 3 < scheduler_.now();
    }
    if (!quiet) continue;
    journal_.Violation(absl::StrCat(NodeName(n), " is drained, but has the only copy of attempt ",
                                    number, " at ", history_.NameOf(copy.id)));
  }
}

void SimCluster::StallNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  if (slot.process == nullptr || slot.process->stalled()) return;
  journal_.Note("stall ", NodeName(n));
  trouble_.AddForNode(n);
  slot.process->Stall();
}

void SimCluster::ResumeNode(int n) {
  NodeSlot& slot = nodes_[static_cast<size_t>(n)];
  if (slot.process == nullptr || !slot.process->stalled()) return;
  journal_.Note("resume ", NodeName(n));
  trouble_.AddForNode(n);
  slot.process->Resume();
}

void SimCluster::StartShard(int s) {
  ShardSlot& slot = shards_[static_cast<size_t>(s)];
  if (slot.process != nullptr) return;
  journal_.Note("start ", ShardName(s));
  slot.process = scheduler_.NewProcess(ShardName(s));
  slot.network = fabric_.Join(*slot.process, ShardName(s));
  slot.control = &slot.process->NewExecutor("control");
  slot.started = scheduler_.now();
  trouble_.AddForShard(s);
  // On its own loop, as its listener and timers belong to that loop.
  slot.control->Post([this, s] { MakeShard(s); });
}

void SimCluster::MakeShard(int s) {
  ShardSlot& slot = shards_[static_cast<size_t>(s)];
  directory::SessionConfig session;
  session.secret = options_.secret;
  session.shard_index = static_cast<uint32_t>(s);
  session.num_shards = static_cast<uint32_t>(options_.shards);
  session.lease = options_.lease;
  session.nonce_bytes = NonceBytes();
  directory::DirectoryOptions options = options_.directory;
  options.lease = options_.lease;
  // Only the first life of a shard can skip the recovery.
  options.first_life = options.first_life && !std::exchange(slot.had_a_life, true);
  slot.shard = std::make_unique<directory::Shard>(*slot.control, std::move(session), options,
                                                  random_.Fork());
  auto listener = ListenForSimShardStreams(
      *slot.network, *slot.control, absl::StrCat(ShardName(s), kShardPort),
      [shard = slot.shard.get()](std::unique_ptr<directory::ShardStream> stream) {
        shard->Accept(std::move(stream));
      });
  PHALANX_CHECK(listener.ok(), "a simulated shard listens");
  slot.listener = *std::move(listener);
}

void SimCluster::CrashShard(int s) {
  ShardSlot& slot = shards_[static_cast<size_t>(s)];
  if (slot.process == nullptr) return;
  journal_.Note("crash ", ShardName(s));
  trouble_.AddForShard(s);
  slot.process->Kill();
  slot.listener = nullptr;
  slot.shard = nullptr;
  slot.network = nullptr;
  slot.control = nullptr;
  slot.process = nullptr;
}

void SimCluster::StallShard(int s) {
  ShardSlot& slot = shards_[static_cast<size_t>(s)];
  if (slot.process == nullptr || slot.process->stalled()) return;
  journal_.Note("stall ", ShardName(s));
  trouble_.AddForShard(s);
  slot.process->Stall();
}

void SimCluster::ResumeShard(int s) {
  ShardSlot& slot = shards_[static_cast<size_t>(s)];
  if (slot.process == nullptr || !slot.process->stalled()) return;
  journal_.Note("resume ", ShardName(s));
  trouble_.AddForShard(s);
  slot.process->Resume();
}

void SimCluster::HealEverything() {
  journal_.Note("heal everything");
  network_.HealEverything();
  fabric_.SetShortIo(options_.fabric.short_io, options_.fabric.one_byte_at_a_time,
                     options_.fabric.trickle);
  for (int s = 0; s < num_shards(); ++s) {
    StartShard(s);
    ResumeShard(s);
  }
  for (int n = 0; n < num_nodes(); ++n) {
    // A node that is leaving now starts again when it has left.
    nodes_[static_cast<size_t>(n)].wanted_back = nodes_[static_cast<size_t>(n)].leaving;
    StartNode(n);
    ResumeNode(n);
    // Even without a fault allocations can fail in a run; in the calm they must succeed.
    memory(n).SetTrouble(options_.allocation_delay, 0);
  }
}

// ------------------------------------------------------------------------------------- trouble

bool SimCluster::Undisturbed(int n, int s, Instant since) const {
  const NodeSlot& node = nodes_[static_cast<size_t>(n)];
  const ShardSlot& shard = shards_[static_cast<size_t>(s)];
  if (node.node == nullptr || node.leaving || node.process->stalled()) return false;
  if (shard.shard == nullptr || shard.process->stalled()) return false;
  if (network_.Partitioned(NodeName(n), ShardName(s))) return false;
  if (network_.Partitioned(ShardName(s), NodeName(n))) return false;
  return !trouble_.Since(n, s, since);
}

std::optional<Generation> SimCluster::AdoptedNow(const ObjectId& id, const NodeKey& key,
                                                 Instant since) {
  const int n = FindNode(key);
  const int s = ShardOf(id);
  if (n < 0 || !Undisturbed(n, s, since)) return std::nullopt;
  const v1::DescribeObjectResponse described = Describe(id);
  // Distinguishes "none adopted" from the unknown state above.
  if (described.summary().deleted()) return Generation();
  return directory::FromProto(described.summary().generation());
}

Instant SimCluster::ShardStarted(const ObjectId& id) {
  const ShardSlot& slot = shards_[static_cast<size_t>(ShardOf(id))];
  return slot.shard == nullptr ? Instant::Infinite() : slot.started;
}

}  // namespace phalanx::sim
