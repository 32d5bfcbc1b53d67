// One store on simulated time, with a data plane of queued pulls and a shard that the test plays.
// Testonly.
//
//   StoreWorld w;
//   w.Put(id, "bytes");                        // runs until it is answered
//   w.Shard(Verdict(id, g, v1::Verdict::ADOPTED));
//   EXPECT_EQ(w.Sent<v1::AnnounceCreate>().size(), 1);
//
// After every step the store's invariants are checked.
#ifndef PHALANX_OBJECT_STORE_TESTING_STORE_WORLD_H_
#define PHALANX_OBJECT_STORE_TESTING_STORE_WORLD_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/check.h"
#include "src/directory/core/validate.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/memory/heap_memory.h"
#include "src/object_store/objects/subject.h"
#include "src/object_store/store/store.h"
#include "src/object_store/testing/fake_data_plane.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::object_store::testing {

inline constexpr NodeKey kSelf{0xAAAA00000001, 1};
inline constexpr NodeKey kPeer{0xBBBB00000002, 1};
inline constexpr NodeKey kOther{0xCCCC00000003, 1};

// Byte i of the content of an object is a function of its seed and i.
inline std::string Content(uint64_t size, uint64_t seed = 0) {
  std::string bytes(size, '\0');
  for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(seed * 131 + i * 7 + (i >> 8));
  return bytes;
}

inline ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

// ---- messages of the shard
inline v1::ShardMessage Verdict(const ObjectId& id, const Generation& generation,
                                v1::Verdict::Kind kind, const Generation& adopted = {},
                                uint64_t size = 0) {
  v1::ShardMessage message;
  SetSubject(id, generation, message.mutable_verdict());
  message.mutable_verdict()->set_kind(kind);
  directory::ToProto(adopted, message.mutable_verdict()->mutable_adopted());
  message.mutable_verdict()->mutable_info()->set_size_bytes(size);
  return message;
}

struct AssignSpec {
  uint64_t size = 0;
  PlanId plan = 1;
  NodeKey sender = kPeer;
  int slices = 1;
  uint64_t mask = 0;  // 0: all
  bool keep = false;
  std::string metadata = "";
  bool owned = false;
  std::string refers_to = "";
};
inline v1::ShardMessage Assign(const ObjectId& id, const Generation& generation, AssignSpec spec) {
  v1::ShardMessage message;
  v1::Assign* assign = message.mutable_assign();
  SetSubject(id, generation, assign);
  assign->mutable_info()->set_size_bytes(spec.size);
  assign->mutable_info()->set_slices(static_cast<uint32_t>(spec.slices));
  assign->mutable_info()->set_metadata(spec.metadata);
  assign->mutable_info()->set_owned(spec.owned);
  assign->mutable_info()->set_refers_to(spec.refers_to);
  assign->set_plan_id(spec.plan);
  directory::ToProto(spec.sender, assign->mutable_sender());
  assign->set_sender_address("10.0.0.2:7000");
  assign->set_slices(spec.mask != 0 ? spec.mask : (uint64_t{1} << spec.slices) - 1);
  assign->set_keep(spec.keep);
  return message;
}

inline v1::ShardMessage Deliver(const ObjectId& id, const Generation& generation,
                                const std::string& bytes, bool keep = false,
                                const std::string& metadata = "") {
  v1::ShardMessage message;
  v1::Deliver* deliver = message.mutable_deliver();
  SetSubject(id, generation, deliver);
  deliver->mutable_info()->set_size_bytes(bytes.size());
  deliver->mutable_info()->set_slices(1);
  deliver->mutable_info()->set_metadata(metadata);
  deliver->set_inline_bytes(bytes);
  deliver->set_keep(keep);
  return message;
}

inline v1::ShardMessage Gone(const ObjectId& id, const Generation& generation,
                             v1::Gone::Kind kind) {
  v1::ShardMessage message;
  SetSubject(id, generation, message.mutable_gone());
  message.mutable_gone()->set_kind(kind);
  return message;
}

inline v1::ShardMessage EvictReply(const ObjectId& id, const Generation& generation, bool granted) {
  v1::ShardMessage message;
  SetSubject(id, generation, message.mutable_evict_reply());
  message.mutable_evict_reply()->set_granted(granted);
  return message;
}

// ---- the field of a NodeMessage by its type
template <typename T>
const T* Field(const v1::NodeMessage& message);
#define PHALANX_NODE_FIELD_(Type, name)                                    \
  template <>                                                              \
  inline const v1::Type* Field<v1::Type>(const v1::NodeMessage& message) { \
    return message.has_##name() ? &message.name() : nullptr;               \
  }
PHALANX_NODE_FIELD_(RegisterBegin, register_begin)
PHALANX_NODE_FIELD_(RegisterCopy, register_copy)
PHALANX_NODE_FIELD_(RegisterWant, register_want)
PHALANX_NODE_FIELD_(RegisterTombstone, register_tombstone)
PHALANX_NODE_FIELD_(RegisterEnd, register_end)
PHALANX_NODE_FIELD_(AnnounceCreate, announce_create)
PHALANX_NODE_FIELD_(AnnounceSeal, announce_seal)
PHALANX_NODE_FIELD_(Withdraw, withdraw)
PHALANX_NODE_FIELD_(Want, want)
PHALANX_NODE_FIELD_(Unwant, unwant)
PHALANX_NODE_FIELD_(PullReport, pull_report)
PHALANX_NODE_FIELD_(Progress, progress)
PHALANX_NODE_FIELD_(EvictRequest, evict_request)
PHALANX_NODE_FIELD_(DeleteRequest, delete_request)
PHALANX_NODE_FIELD_(DeleteConfirm, delete_confirm)
PHALANX_NODE_FIELD_(QueryRequest, query_request)
PHALANX_NODE_FIELD_(BroadcastRequest, broadcast_request)
PHALANX_NODE_FIELD_(DrainRequest, drain_request)
PHALANX_NODE_FIELD_(RegisterHolds, register_holds)
PHALANX_NODE_FIELD_(Hold, hold)
PHALANX_NODE_FIELD_(Unhold, unhold)
PHALANX_NODE_FIELD_(Claim, claim)
PHALANX_NODE_FIELD_(KeepRequest, keep_request)
#undef PHALANX_NODE_FIELD_

// The events of a Get, in order.
struct Reading {
  RequestId request = 0;
  std::vector<absl::StatusOr<View>> views;
  std::vector<absl::Status> voids;

  bool answered() const { return !views.empty(); }
  const View& view() const { return *views.back(); }
  absl::Status status() const {
    return views.empty() ? absl::UnknownError("not answered") : views.back().status();
  }
  std::string bytes() const {
    const absl::Span<char> all = view().block->bytes();
    return std::string(all.data(), all.size());
  }
};

class StoreWorld {
 public:
  explicit StoreWorld(uint64_t capacity = 64 << 20, StoreOptions options = {}, int num_shards = 1)
      : scheduler_({}),
        process_(scheduler_.NewProcess("node")),
        loop_(process_->NewExecutor("control")),
        memory_(loop_),
        pulls_(loop_),
        channel_(
            num_shards,
            [this](int shard, v1::NodeMessage message) {
              if (keep_sent) sent_.push_back(message);
              if (on_sent) on_sent(shard, message);
            },
            [this](Task task) { loop_.Post(std::move(task)); }) {
    options.self = kSelf;
    options.name = "node-a";
    options.capacity_bytes = capacity;
    Run([&] {
      store_ = std::make_unique<Store>(options, loop_, memory_, channel_);
      store_->SetDataPlane(&pulls_);
      client_ = store_->OpenClient();
    });
  }
  ~StoreWorld() {
    Run([&] { store_.reset(); });
  }

  Store& store() { return *store_; }
  ShardChannel& channel() { return channel_; }
  FakeDataPlane& pulls() { return pulls_; }
  HeapMemory& memory() { return memory_; }
  ClientId client() const { return client_; }
  Instant now() {
    Instant now;
    Run([&] { now = loop_.Now(); });
    return now;
  }

  // On the loop, and then everything that is due at this instant.
  void Run(std::function<void()> f) {
    loop_.Post([&f] { f(); });
    Drain();
  }
  void Drain() { Pass(absl::ZeroDuration()); }
  void Pass(absl::Duration time) {
    scheduler_.RunFor(time);
    if (store_ == nullptr) return;
    const absl::Status status = store_->CheckInvariants();
    if (quiet) {
      problem.Update(status);
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  // `f` runs on the loop at `when`: after the store's timers of then that are set later than this,
  // and before what they post (timers and tasks of this executor take turns).
  void RunAt(Instant when, std::function<void()> f) {
    loop_.Post([this, when, f = std::move(f)] {
      loop_.RunAt(when, [this, f] {
        loop_.Post([] {});
        loop_.Post([f] { f(); });
      });
    });
    Drain();
  }
  void Shard(const v1::ShardMessage& message, int shard = 0) {
    Run([&] { channel_.OnMessage(shard, message); });
  }

  template <typename T>
  std::vector<T> Sent() const {
    std::vector<T> all;
    for (const v1::NodeMessage& message : sent_) {
      if (const T* field = Field<T>(message)) all.push_back(*field);
    }
    return all;
  }
  const std::vector<v1::NodeMessage>& sent() const { return sent_; }
  void ForgetSent() { sent_.clear(); }

  // ---- verbs, each run until this instant has nothing left to do
  using PutAnswer = std::shared_ptr<std::optional<absl::StatusOr<PutResult>>>;
  PutAnswer StartPut(PutOptions options, std::string bytes) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<PutResult>>>();
    Run([&] {
      store_->Put(client_, std::move(options), std::move(bytes),
                  [answer](absl::StatusOr<PutResult> result) { *answer = std::move(result); });
    });
    return answer;
  }
  absl::StatusOr<PutResult> Put(const ObjectId& id, std::string bytes) {
    PutOptions options;
    options.id = id;
    const PutAnswer answer = StartPut(std::move(options), std::move(bytes));
    if (!*answer) return absl::UnknownError("not answered");
    return **answer;
  }

  using CreateAnswer = std::shared_ptr<std::optional<absl::StatusOr<WriteGrant>>>;
  CreateAnswer StartCreate(PutOptions options, uint64_t size, ClientId client = 0) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<WriteGrant>>>();
    Run([&] {
      store_->Create(client != 0 ? client : client_, std::move(options), size,
                     [answer](absl::StatusOr<WriteGrant> grant) { *answer = std::move(grant); });
    });
    return answer;
  }
  WriteGrant Create(const ObjectId& id, uint64_t size, ClientId client = 0) {
    PutOptions options;
    options.id = id;
    const CreateAnswer answer = StartCreate(std::move(options), size, client);
    PHALANX_CHECK(*answer && (**answer).ok(), "memory to write into");
    return ***answer;
  }
  PutAnswer StartSeal(WriterId writer, bool wait_for_adoption = false) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<PutResult>>>();
    Run([&] {
      store_->Seal(client_, writer, wait_for_adoption,
                   [answer](absl::StatusOr<PutResult> result) { *answer = std::move(result); });
    });
    return answer;
  }
  absl::Status Publish(WriterId writer, uint64_t n) {
    absl::Status status;
    Run([&] { status = store_->Publish(client_, writer, n); });
    return status;
  }

  std::shared_ptr<Reading> Get(GetOptions options, ClientId client = 0) {
    auto reading = std::make_shared<Reading>();
    Run([&] {
      GetEvents events;
      events.on_view = [reading](absl::StatusOr<View> view) {
        reading->views.push_back(std::move(view));
      };
      events.on_void = [reading](const absl::Status& why) { reading->voids.push_back(why); };
      reading->request =
          store_->Get(client != 0 ? client : client_, std::move(options), std::move(events));
    });
    return reading;
  }
  std::shared_ptr<Reading> Get(const ObjectId& id, Instant deadline = Instant::Infinite()) {
    return Get(GetOptions{id, deadline, false});
  }
  std::shared_ptr<Reading> Stream(const ObjectId& id, Instant deadline = Instant::Infinite()) {
    return Get(GetOptions{id, deadline, true});
  }
  absl::Status Release(PinId pin, bool recycle = true) {
    absl::Status status;
    Run([&] { status = store_->Release(client_, pin, recycle); });
    return status;
  }
  void Cancel(RequestId request) {
    Run([&] { store_->Cancel(client_, request); });
  }
  void CloseClient(ClientId client, bool clean) {
    Run([&] { store_->CloseClient(client, clean); });
  }
  ClientId OpenClient() {
    ClientId client = 0;
    Run([&] { client = store_->OpenClient(); });
    return client;
  }

  // Pulls the object from a peer as a secondary copy; its generation.
  Generation PullCopy(const ObjectId& id, const std::string& bytes) {
    const Generation generation{kPeer, ++peer_sequence_};
    const auto reading = Get(id);
    Shard(Assign(id, generation, {.size = bytes.size(), .plan = ++last_plan_}));
    Run([&] { pulls_.Finish(pulls_.size() - 1, bytes); });
    PHALANX_CHECK(reading->answered() && reading->status().ok(), "the pull is complete");
    PHALANX_CHECK(Release(reading->view().pin).ok(), "the pin is held");
    return generation;
  }

  bool keep_sent = true;
  std::function<void(int shard, const v1::NodeMessage&)> on_sent;
  // For tests that expect to find something: a broken invariant is kept in `problem`.
  bool quiet = false;
  absl::Status problem;

 private:
  sim::SimScheduler scheduler_;
  std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  HeapMemory memory_;
  FakeDataPlane pulls_;
  ShardChannel channel_;
  std::unique_ptr<Store> store_;
  ClientId client_ = 0;
  uint64_t peer_sequence_ = 1000;
  PlanId last_plan_ = 1000;
  std::vector<v1::NodeMessage> sent_;
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_STORE_WORLD_H_
