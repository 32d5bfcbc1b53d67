#include "src/node/node.h"

#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/directory/session/session_handshake.h"
#include "src/object_store/channel/shard_channel.h"

namespace phalanx::runtime {
namespace {

// Nanoseconds, so that two lives of one name never get the same incarnation.
uint64_t WallClockNanos() {
  timespec now;
  PHALANX_CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0, "the system has a clock");
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Names and labels appear in logs and drawings, so they must not contain characters that move a
// terminal's cursor.
bool Printable(absl::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return false;
  }
  return true;
}

// Checked before anything listens, so that a bad option has no effect on other nodes.
absl::Status Validate(const NodeOptions& options, const NodeSeams& seams) {
  if (options.name.empty()) return absl::InvalidArgumentError("a node needs a name");
  if (!Printable(options.name)) {
    return absl::InvalidArgumentError(absl::StrCat("the node's name \"",
                                                   absl::CHexEscape(options.name),
                                                   "\" contains blanks or control characters"));
  }
  if (options.name.size() > directory::kMaxNodeNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the node's name has ", options.name.size(),
                                                   " bytes; at most ", directory::kMaxNodeNameBytes,
                                                   " are allowed"));
  }
  if (options.labels.size() > directory::kMaxNodeLabels) {
    return absl::InvalidArgumentError(absl::StrCat("node ", options.name, " has ",
                                                   options.labels.size(), " labels; at most ",
                                                   directory::kMaxNodeLabels, " are allowed"));
  }
  for (const auto& [key, value] : options.labels) {
    if (key.empty() || key.size() + value.size() > directory::kMaxNodeLabelBytes ||
        !Printable(key) || !Printable(value)) {
      return absl::InvalidArgumentError(absl::StrCat("node ", options.name, ": bad label \"",
                                                     absl::CHexEscape(key), "=",
                                                     absl::CHexEscape(value), "\""));
    }
  }
  if (options.capacity_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", options.name, " has a capacity of 0 bytes"));
  }
  if (seams.shards.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("node ", options.name, " has no directory"));
  }
  if (seams.io.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("node ", options.name, " has no I/O loop"));
  }
  return absl::OkStatus();
}

// Built once: every shard must get the same description.
v1::NodeInfo DescribeSelf(const NodeOptions& options, const NodeKey& key,
                          const net::Address& address) {
  v1::NodeInfo info;
  info.mutable_key()->set_node(key.node);
  info.mutable_key()->set_incarnation(key.incarnation);
  info.set_name(options.name);
  info.set_address(address);
  for (const auto& [label, value] : options.labels) (*info.mutable_labels())[label] = value;
  info.set_capacity_bytes(options.capacity_bytes);
  // The benchmark and operators find the daemon by this id.
  info.set_process_id(options.process_id);
  return info;
}

}  // namespace

// A hash of the name, so that every process computes the same number without a registry.
uint64_t NodeNumber(absl::string_view name) {
  const uint64_t hash = XXH3_64bits(name.data(), name.size());
  // 0 marks an invalid key.
  return hash != 0 ? hash : 1;
}

// Destroyed from the top: first the sessions, so that no more messages arrive or leave; then the
// members and folds; then the store, which cancels its pulls; then the data plane, whose pushes
// find that the store that owns their pins is gone; then the links, to which the data plane passes
// connections.
struct Node::Impl {
  Impl(NodeOptions options, NodeKey key, size_t num_shards)
      : options(std::move(options)), key(key), shard_states(num_shards) {}
  ~Impl() {
    clients.clear();
    groups.reset();
    messages.reset();
    members.reset();
    reducer.reset();
    store.reset();
    data_plane.reset();
    links.reset();
  }

  absl::Status Start(NodeSeams seams);
  void MakeChannel(NodeSeams& seams);
  void MakeStore(NodeSeams& seams);
  void MakeReducer(NodeSeams& seams);
  absl::Status MakeDataPlane(NodeSeams& seams);
  void ConnectShard(NodeSeams& seams, int shard, const v1::NodeInfo& self);
  void ShardStateChanged(int shard, bool connected, const absl::Status& why);

  const NodeOptions options;
  const NodeKey key;
  net::Address address;
  absl::AnyInvocable<void(int, const absl::Status&)> on_shard_state;
  std::vector<absl::Status> shard_states;
  std::unique_ptr<object_store::ShardChannel> channel;
  std::unique_ptr<object_store::Store> store;
  std::unique_ptr<collectives::Reducer> reducer;
  std::unique_ptr<jobs::Members> members;
  std::unique_ptr<jobs::Messages> messages;
  std::unique_ptr<net::NodeLinks> links;
  std::unique_ptr<jobs::StoreGroupMemory> group_memory;
  std::unique_ptr<jobs::GroupService> groups;
  std::unique_ptr<net::DataPlane> data_plane;
  std::vector<std::unique_ptr<directory::DirectoryClient>> clients;
};

absl::Status Node::Impl::Start(NodeSeams seams) {
  on_shard_state = std::move(seams.on_shard_state);
  MakeChannel(seams);
  MakeStore(seams);
  MakeReducer(seams);
  members = std::make_unique<jobs::Members>(key, options.name, seams.control, *channel);
  PHALANX_RETURN_IF_ERROR(MakeDataPlane(seams));
  group_memory = std::make_unique<jobs::StoreGroupMemory>(*store, seams.control);
  groups = std::make_unique<jobs::GroupService>(key, seams.control, *links, *group_memory,
                                                static_cast<int>(seams.shards.size()));
  members->AddObserver(groups.get());
  const v1::NodeInfo self = DescribeSelf(options, key, address);
  for (size_t shard = 0; shard < seams.shards.size(); ++shard) {
    shard_states[shard] = absl::UnavailableError(
        absl::StrCat("not connected to shard ", shard, " at ", seams.shards[shard]->target()));
    ConnectShard(seams, static_cast<int>(shard), self);
  }
  return absl::OkStatus();
}

void Node::Impl::MakeChannel(NodeSeams& seams) {
  channel = std::make_unique<object_store::ShardChannel>(
      static_cast<int>(seams.shards.size()),
      [this](int shard, v1::NodeMessage&& message) {
        // No session is left while the node is being taken down: the directory learns of that from
        // the broken connection.
        if (static_cast<size_t>(shard) < clients.size()) clients[shard]->Send(std::move(message));
      },
      [&control = seams.control](Task task) { control.Post(std::move(task)); });
}

void Node::Impl::MakeStore(NodeSeams& seams) {
  object_store::StoreOptions store_options;
  store_options.self = key;
  store_options.name = options.name;
  store_options.capacity_bytes = options.capacity_bytes;
  store_options.record_bytes = object_store::kRecordBytes;
  store_options.registered_per_turn = options.registered_per_turn;
  store_options.transit_patience = options.transit_patience;
  store_options.connect_patience = options.data_plane.connect_patience();
  store = std::make_unique<object_store::Store>(std::move(store_options), seams.control,
                                                seams.memory, *channel);
}

void Node::Impl::MakeReducer(NodeSeams& seams) {
  collectives::ReducerOptions reducer_options;
  reducer_options.self = key;
  reducer_options.name = options.name;
  reducer_options.connect_patience = options.data_plane.connect_patience();
  reducer = std::make_unique<collectives::Reducer>(std::move(reducer_options), seams.control,
                                                   seams.io, *store, *channel);
}

absl::Status Node::Impl::MakeDataPlane(NodeSeams& seams) {
  net::DataPlaneOptions plane = options.data_plane;
  plane.self = key;
  plane.handshake.self = key;
  // Peers check cluster and secret too, not only the directory.
  plane.handshake.cluster_id = options.cluster_id;
  plane.handshake.secret = options.secret;
  if (seams.nonce_bytes) plane.handshake.nonce_bytes = seams.nonce_bytes;
  net::NodeLinksOptions link_options;
  link_options.handshake = plane.handshake;
  link_options.connect_timeout = plane.connect_timeout;
  // Links carry what members of jobs send to each other. The members outlive the links' last turn.
  link_options.ended = [this](const NodeKey& peer) { return !members->IsUsed(peer); };
  links = std::make_unique<net::NodeLinks>(seams.network, seams.control, std::move(link_options));
  // Before the data plane listens: a message can come over the first connection.
  messages = std::make_unique<jobs::Messages>(key, seams.control, *members, *links);
  PHALANX_ASSIGN_OR_RETURN(
      data_plane, net::DataPlane::Create(
                      seams.network, seams.control, std::move(seams.io), std::move(plane),
                      [this](const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
                        // The reducer serves the objects that it folds; every other request goes to
                        // the store.
                        if (reducer->Serve(request, reply)) return;
                        store->Serve(request, std::move(reply));
                      }));
  data_plane->SetLinkHandler(
      [this](net::IncomingLink incoming) { links->Accept(std::move(incoming)); });
  // Listening comes last but before the sessions: the shards get the address with the real port.
  PHALANX_ASSIGN_OR_RETURN(address, data_plane->Listen(options.listen));
  if (!options.advertise.empty()) address = options.advertise;
  // Store and reducer exist before the data plane, because its callbacks use them.
  store->SetDataPlane(data_plane.get());
  reducer->SetDataPlane(data_plane.get());
  return absl::OkStatus();
}

void Node::Impl::ConnectShard(NodeSeams& seams, int shard, const v1::NodeInfo& self) {
  directory::SessionConfig session;
  // A node of another cluster or with another secret is refused in the handshake.
  session.cluster_id = options.cluster_id;
  session.secret = options.secret;
  session.shard_index = static_cast<uint32_t>(shard);
  session.num_shards = static_cast<uint32_t>(seams.shards.size());
  if (seams.nonce_bytes) session.nonce_bytes = seams.nonce_bytes;
  directory::DirectoryClient::Handlers handlers;
  handlers.on_register = [this, shard] {
    groups->OnShardSession(shard);
    channel->OnSession(shard);
  };
  handlers.on_message = [this, shard](const v1::ShardMessage& message) {
    channel->OnMessage(shard, message);
    if (message.has_registered()) groups->OnShardRegistered(shard);
  };
  handlers.on_heard = [this, shard](Instant heard, absl::Duration lease) {
    store->OnHeard(shard, heard, lease);
    groups->OnShardHeard(shard, heard, lease);
  };
  handlers.on_connection = [this, shard](bool connected, const absl::Status& why) {
    ShardStateChanged(shard, connected, why);
  };
  clients.push_back(std::make_unique<directory::DirectoryClient>(
      // Each session has its own generator, so that the draws of one do not shift those of another.
      seams.control, std::move(seams.shards[shard]), std::move(session), self, seams.random.Fork(),
      std::move(handlers)));
}

void Node::Impl::ShardStateChanged(int shard, bool connected, const absl::Status& why) {
  absl::Status state = absl::OkStatus();
  if (!connected) state = why.ok() ? absl::UnavailableError("the connection ended") : why;
  // Kept for metrics, which are read at another time.
  shard_states[shard] = state;
  if (on_shard_state) on_shard_state(shard, state);
}

absl::StatusOr<std::unique_ptr<Node>> Node::Start(NodeOptions options, NodeSeams seams) {
  PHALANX_RETURN_IF_ERROR(Validate(options, seams));
  NodeKey key;
  key.node = NodeNumber(options.name);
  key.incarnation = options.incarnation != 0 ? options.incarnation : WallClockNanos();
  auto impl = std::make_unique<Impl>(std::move(options), key, seams.shards.size());
  PHALANX_RETURN_IF_ERROR(impl->Start(std::move(seams)));
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() = default;

object_store::Store& Node::store() { return *impl_->store; }
collectives::Reducer& Node::reducer() { return *impl_->reducer; }
net::NodeLinks& Node::links() { return *impl_->links; }
jobs::Members& Node::members() { return *impl_->members; }
jobs::Messages& Node::messages() { return *impl_->messages; }
jobs::GroupService& Node::groups() { return *impl_->groups; }
jobs::StoreGroupMemory& Node::group_memory() { return *impl_->group_memory; }
const NodeKey& Node::key() const { return impl_->key; }
const std::string& Node::name() const { return impl_->options.name; }
const net::Address& Node::address() const { return impl_->address; }
std::vector<absl::Status> Node::ShardStates() const { return impl_->shard_states; }
net::DataPlaneStats Node::data_plane_stats() const { return impl_->data_plane->stats(); }

void Node::Drain(Instant deadline, absl::AnyInvocable<void(absl::Status)> done) {
  impl_->store->Drain(deadline, std::move(done));
}

}  // namespace phalanx::runtime
