// A node for client tests: a real store over real shared memory behind a real socket, and a
// directory of one node is played here; the test answers the calls about reductions. Testonly.
//
//   LocalNode node;
//   auto client = Client::Connect({.address = node.address()}).value();
//
// Any one thread; the node runs on a loop of its own.
#ifndef PHALANX_LOCAL_TESTING_LOCAL_NODE_H_
#define PHALANX_LOCAL_TESTING_LOCAL_NODE_H_

#include <stdlib.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/collectives/reducer/reducer.h"
#include "src/common/check.h"
#include "src/jobs/group/service/group_service.h"
#include "src/jobs/group/service/store_group_memory.h"
#include "src/jobs/members/members.h"
#include "src/jobs/messages/messages.h"
#include "src/local/local_service.h"
#include "src/local/testing/job_shard.h"
#include "src/local/testing/reduce_shard.h"
#include "src/net/link/node_links.h"
#include "src/net/loop/event_loop.h"
#include "src/net/tcp/tcp_network.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/memory/memfd_memory.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store::testing {

// Adopts what is announced first, and knows one node.
class OneNodeDirectory {
 public:
  std::vector<v1::ShardMessage> Answer(const v1::NodeMessage& message) {
    answers_.clear();
    if (message.has_announce_create()) OnCreate(message.announce_create());
    if (message.has_announce_seal()) known_[message.announce_seal().object_id()].complete = true;
    if (message.has_withdraw()) OnWithdraw(message.withdraw());
    if (message.has_delete_request()) OnDelete(message.delete_request());
    if (message.has_query_request()) OnQuery(message.query_request());
    if (message.has_broadcast_request() && !message.broadcast_request().end()) {
      OnBroadcast(message.broadcast_request());
    }
    if (message.has_end_scope_request()) OnEndScope(message.end_scope_request());
    if (message.has_evict_request()) {
      v1::EvictReply& reply = *Add().mutable_evict_reply();
      reply.set_object_id(message.evict_request().object_id());
      *reply.mutable_generation() = message.evict_request().generation();
    }
    return std::move(answers_);
  }

 private:
  struct Known {
    v1::Generation generation;
    v1::ObjectInfo info;
    bool adopted = false;
    bool complete = false;
    bool deleted = false;
    bool sticky = false;
    uint32_t copies = 0;  // that are wanted
  };

  v1::ShardMessage& Add() { return answers_.emplace_back(); }

  void OnCreate(const v1::AnnounceCreate& create) {
    Known& known = known_[create.object_id()];
    v1::Verdict& verdict = *Add().mutable_verdict();
    verdict.set_object_id(create.object_id());
    *verdict.mutable_generation() = create.generation();
    verdict.set_kind(v1::Verdict::ADOPTED);
    if (known.adopted) {
      verdict.set_kind(known.complete ? v1::Verdict::SUPERSEDED : v1::Verdict::STANDBY);
      *verdict.mutable_adopted() = known.generation;
      *verdict.mutable_info() = known.info;
      return;
    }
    known = Known{create.generation(),   create.info(), true, create.complete(), false, false,
                  create.mark().copies()};
  }

  void OnWithdraw(const v1::Withdraw& withdraw) {
    const auto it = known_.find(withdraw.object_id());
    if (it == known_.end()) return;
    if (it->second.generation.sequence() == withdraw.generation().sequence()) known_.erase(it);
  }

  void OnDelete(const v1::DeleteRequest& request) {
    const auto it = known_.find(request.object_id());
    const bool there = it != known_.end() && it->second.adopted;
    if (there) {
      v1::Gone& gone = *Add().mutable_gone();
      gone.set_object_id(request.object_id());
      *gone.mutable_generation() = it->second.generation;
      gone.set_kind(v1::Gone::DELETED);
      it->second = Known();
      it->second.deleted = true;
    }
    v1::DeleteReply& reply = *Add().mutable_delete_reply();
    reply.set_request_id(request.request_id());
    reply.set_code(there ? 0 : static_cast<int>(absl::StatusCode::kNotFound));
    reply.set_message(there ? "" : "nobody has put it");
  }

  // The node called "absent" never has it.
  void OnBroadcast(const v1::BroadcastRequest& request) {
    Known& known = known_[request.object_id()];
    if (request.nodes_size() > 0 && request.nodes(0) == "absent") return;
    v1::BroadcastReply& reply = *Add().mutable_broadcast_reply();
    reply.set_request_id(request.request_id());
    reply.set_nodes(request.stop() ? 0 : 1);
    if (request.copies() > 0) {
      known.copies = request.copies();
    } else {
      known.sticky = request.sticky() && !request.stop();
    }
    if (known.adopted) return;
    reply.set_code(static_cast<int>(absl::StatusCode::kNotFound));
    reply.set_message("nobody has put it");
  }

  void OnEndScope(const v1::EndScopeRequest& request) {
    const v1::Scope& ended = request.scope();
    for (auto& [id, known] : known_) {
      const v1::Scope& scope = known.info.scope();
      if (scope.name() == ended.name() && scope.number() <= ended.number()) known = Known();
    }
    *Add().mutable_scope_ended()->mutable_scope() = ended;
    Add().mutable_end_scope_reply()->set_request_id(request.request_id());
  }

  void OnQuery(const v1::QueryRequest& request) {
    const Known known = known_[request.object_id()];
    v1::QueryReply& reply = *Add().mutable_query_reply();
    reply.set_request_id(request.request_id());
    reply.set_known(known.adopted);
    reply.set_deleted(known.deleted);
    reply.set_complete(known.complete);
    *reply.mutable_info() = known.info;
    if (known.info.slices() == 0) reply.mutable_info()->set_slices(1);
    reply.set_complete_copies(known.complete ? 1 : 0);
    reply.set_partial_copies(known.adopted && !known.complete ? 1 : 0);
    reply.set_sticky(known.sticky);
    reply.set_copies_wanted(known.copies);
    reply.set_copies_there(known.copies > 0 && known.complete ? 1 : 0);
    if (request.nodes_size() == 0) return;
    reply.set_named(2);
    reply.set_named_complete(1);
    reply.set_named_without_room(1);
    reply.set_named_bytes(known.info.size_bytes());
  }

  std::map<std::string, Known> known_;
  std::vector<v1::ShardMessage> answers_;
};

// A folder of mode 0700 for sockets, removed with everything in it.
class SocketFolder {
 public:
  // Socket paths are short: below /tmp if the path of the test's own folder is not.
  SocketFolder() : SocketFolder(std::getenv("TEST_TMPDIR")) {}
  explicit SocketFolder(const char* base)
      : path_(absl::StrCat(base == nullptr ? "/tmp" : base, "/phalanx.XXXXXX")) {
    if (path_.size() > 80) path_ = "/tmp/phalanx.XXXXXX";
    PHALANX_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary folder");
  }
  ~SocketFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class LocalNode {
 public:
  explicit LocalNode(uint64_t capacity = uint64_t{512} << 20, std::string socket = "")
      : socket_(socket.empty() ? folder_.path() + "/node.sock" : std::move(socket)),
        memory_(loop_, {}) {
    StoreOptions options;
    options.self = NodeKey{7, 1};
    options.name = "node-a";
    options.capacity_bytes = capacity;
    store_ = std::make_unique<Store>(options, loop_, memory_, channel_);
    collectives::ReducerOptions reducer;
    reducer.self = options.self;
    reducer.name = options.name;
    reducer_ = std::make_unique<collectives::Reducer>(
        reducer, loop_, std::vector<Executor*>{&loop_}, *store_, channel_);
    reduce_.reply = [this](const v1::ShardMessage& message) { channel_.OnMessage(0, message); };
    members_ = std::make_unique<jobs::Members>(options.self, options.name, loop_, channel_);
    net::NodeLinksOptions links;
    links.handshake.self = options.self;
    links_ = std::make_unique<net::NodeLinks>(network_, loop_, std::move(links));
    messages_ = std::make_unique<jobs::Messages>(options.self, loop_, *members_, *links_);
    group_memory_ = std::make_unique<jobs::StoreGroupMemory>(*store_, loop_);
    groups_ = std::make_unique<jobs::GroupService>(options.self, loop_, *links_, *group_memory_, 1);
    members_->AddObserver(groups_.get());
    const LocalJobs jobs{*members_, *messages_, groups_.get(), group_memory_.get()};
    auto service = LocalService::Start(loop_, {*store_, *reducer_, jobs},
                                       {.socket_path = socket_,
                                        .greeting = {"node-a", "127.0.0.1:7400", NodeKey{7, 1}},
                                        .client_process_ended = [this] { memory_.Reconsider(); }});
    PHALANX_CHECK(service.ok(), service.status().ToString());
    service_ = *std::move(service);
    PHALANX_CHECK(loop_.Start("node").ok(), "a thread");
    OnLoop([this] { channel_.OnSession(0); });
  }
  ~LocalNode() {
    OnLoop([this] {
      service_.reset();
      messages_.reset();
      groups_.reset();
      members_.reset();
      links_.reset();
      reducer_.reset();
      store_.reset();
    });
    loop_.Stop();
  }

  std::string address() const { return absl::StrCat("unix:", socket_); }
  const std::string& socket() const { return socket_; }

  // Runs there and waits.
  void OnLoop(std::function<void()> task) {
    std::mutex mu;
    std::condition_variable done;
    bool ran = false;
    loop_.Post([&] {
      task();
      const std::lock_guard<std::mutex> lock(mu);
      ran = true;
      done.notify_one();
    });
    std::unique_lock<std::mutex> lock(mu);
    done.wait(lock, [&] { return ran; });
  }
  StoreStats store_stats() {
    StoreStats stats;
    OnLoop([&] { stats = store_->stats(); });
    return stats;
  }
  LocalService::Stats service_stats() {
    LocalService::Stats stats;
    OnLoop([&] { stats = service_->stats(); });
    return stats;
  }
  SharedMemoryStats memory_stats() {
    SharedMemoryStats stats;
    OnLoop([&] { stats = memory_.stats(); });
    return stats;
  }
  absl::Status CheckInvariants() {
    absl::Status status;
    OnLoop([&] { status = store_->CheckInvariants(); });
    return status;
  }
  // Until `condition` is true on the loop, which gets on with its work meanwhile.
  void Await(std::function<bool()> condition) {
    bool reached = false;
    while (!reached) OnLoop([&] { reached = condition(); });
  }
  Store& store() { return *store_; }
  LocalService& service() { return *service_; }
  MemfdMemory& memory() { return memory_; }
  collectives::Reducer& reducer() { return *reducer_; }
  jobs::Members& members() { return *members_; }
  jobs::Messages& messages() { return *messages_; }
  JobShard& jobs() { return jobs_; }
  // The messages to the shard so far, in order.
  std::vector<v1::NodeMessage> sent() {
    std::vector<v1::NodeMessage> sent;
    OnLoop([&] { sent = sent_; });
    return sent;
  }
  // The calls about reductions, to be answered by the test.
  ReduceShard& reduce() { return reduce_; }

 private:
  const SocketFolder folder_;
  const std::string socket_;
  net::EventLoop loop_;
  // The rest: on the loop.
  MemfdMemory memory_;
  OneNodeDirectory directory_;
  ReduceShard reduce_;
  JobShard jobs_;
  std::vector<v1::NodeMessage> sent_;
  // The directory and the shards of reductions and jobs answer their own kinds of message.
  ShardChannel channel_{
      /*num_shards=*/1,
      [this](int, v1::NodeMessage message) {
        sent_.push_back(message);
        for (v1::ShardMessage& answer : directory_.Answer(message)) {
          loop_.Post([this, answer = std::move(answer)] { channel_.OnMessage(0, answer); });
        }
        for (v1::ShardMessage& answer : jobs_.Answer(message, loop_.Now())) {
          loop_.Post([this, answer = std::move(answer)] {
            // An answer can arrive after the node was taken down.
            if (members_ != nullptr) channel_.OnMessage(0, answer);
          });
        }
        reduce_.Receive(std::move(message));
      },
      [this](Task task) { loop_.Post(std::move(task)); }};
  std::unique_ptr<Store> store_;
  std::unique_ptr<collectives::Reducer> reducer_;
  std::unique_ptr<jobs::Members> members_;
  net::TcpNetwork network_;
  std::unique_ptr<net::NodeLinks> links_;
  std::unique_ptr<jobs::Messages> messages_;
  std::unique_ptr<jobs::StoreGroupMemory> group_memory_;
  std::unique_ptr<jobs::GroupService> groups_;
  std::unique_ptr<LocalService> service_;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_LOCAL_TESTING_LOCAL_NODE_H_
