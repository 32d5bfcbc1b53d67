// The components of a store, wired as the store wires them, but without its turns: a test calls one
// component and sees what it leaves in the others. Testonly.
//
// The test gives memory to its owners (GiveMemory) and carries out what follows from a call
// (Settle, HandOut), which the store does at the end of a turn.
#ifndef PHALANX_OBJECT_STORE_TESTING_STORE_PARTS_H_
#define PHALANX_OBJECT_STORE_TESTING_STORE_PARTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"
#include "src/object_store/channel/copy_reporter.h"
#include "src/object_store/channel/hold_reporter.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/memory/heap_memory.h"
#include "src/object_store/memory/memory_queue.h"
#include "src/object_store/objects/deleted_generations.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/pulls/peer_server.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/turns.h"
#include "src/sim/seams/sim_executor.h"

namespace phalanx::object_store::testing {

// The kinds of messages.
using Kinds = std::vector<std::string>;

// A node with 1000 bytes.
class StoreParts : public ::testing::Test, public MemoryUser {
 protected:
  explicit StoreParts(int num_shards = 1)
      : process_(scheduler_.NewProcess("node")),
        loop_(process_->NewExecutor("control")),
        options_(Options()),
        channel_(
            num_shards,
            [this](int, v1::NodeMessage message) { sent_.push_back(std::move(message)); },
            [this](ShardChannel::Task task) { loop_.Post(std::move(task)); }) {}
  ~StoreParts() override {
    Settle();
    PHALANX_EXPECT_OK(table_.CheckInvariants());
    PHALANX_EXPECT_OK(requests_.CheckInvariants());
    PHALANX_EXPECT_OK(gets_.CheckInvariants());
    PHALANX_EXPECT_OK(memory_queue_.CheckInvariants());
  }

  static StoreOptions Options() {
    StoreOptions options;
    options.self = kSelf;
    options.name = "node-a";
    options.capacity_bytes = 1000;
    return options;
  }
  static ObjectId Id(int i) { return ObjectId::FromName("test", std::to_string(i)); }

  // ---- MemoryUser
  bool StillWants(const MemoryOwner& owner) const override {
    if (owner.request == 0) return pulls_.AwaitsMemory(owner.object, owner.token);
    const Request* request = requests_.Find(owner.request);
    return request != nullptr && request->stage == Request::Stage::kWaiting;
  }
  void OnMemory(const MemoryOwner& owner, std::shared_ptr<MemoryBlock> block) override {
    GiveMemory(owner, std::move(block));
  }
  void OnNoMemory(const MemoryOwner& owner, const absl::Status& why) override {
    if (Request* request = requests_.Find(owner.request)) requests_.Fail(*request, why);
  }
  void RequestEviction(Copy* copy) override { table_.Detach(copy); }
  virtual void GiveMemory(const MemoryOwner&, std::shared_ptr<MemoryBlock>) {}

  // On the loop, with the memory that is granted and everything that is due at this instant.
  void Run(const std::function<void()>& f) {
    loop_.Post([&] {
      f();
      memory_queue_.HandOut();
    });
    scheduler_.RunFor(absl::ZeroDuration());
  }
  void Pass(absl::Duration time) { scheduler_.RunFor(time); }
  Instant Now() {
    Instant now;
    Run([&] { now = loop_.Now(); });
    return now;
  }
  // What has changed is looked at, as at the end of a turn.
  void Settle() {
    Run([this] {
      for (const ObjectId& id : turns_.TakeTouched()) gets_.Resolve(id);
    });
  }
  // The answers go to the callers.
  void HandOut() {
    Run([this] {
      for (const RequestId id : requests_.TakeAnswers()) {
        Request* request = requests_.Find(id);
        if (request == nullptr) continue;
        request->in_answers = false;
        if (std::holds_alternative<GetPart>(request->part)) {
          gets_.HandOut(id);
          continue;
        }
        absl::AnyInvocable<void()> answer = std::move(request->answer);
        requests_.Erase(*request);
        answer();
      }
    });
  }
  // A copy of `bytes` in the table; a complete one is a secondary copy of the adopted generation.
  Copy* AddCopy(int i, CopyState state, uint64_t bytes = 4, uint64_t sequence = 1) {
    Copy* added = nullptr;
    Run([&] {
      memory_.Allocate(bytes, [&](absl::StatusOr<std::shared_ptr<MemoryBlock>> block) {
        PHALANX_ASSERT_OK(block);
        ASSERT_TRUE(table_.TryReserve(bytes));
        auto copy = copies_.New(Id(i), Generation{kPeer, sequence}, bytes, 1, {}, *block);
        copy->state = state == CopyState::kComplete ? CopyState::kPulling : state;
        copy->standing = Standing::kAdopted;
        added = copies_.Add(std::move(copy));
      });
    });
    if (state == CopyState::kComplete) Complete(added);
    return added;
  }
  void Complete(Copy* copy) {
    Run([&] {
      if (copy->buffer->watermark(0) < copy->size_bytes) {
        copy->buffer->Publish(0, copy->size_bytes);
      }
      copies_.Complete(copy);
      turns_.Touch(copy->id);
    });
    Settle();
  }
  // The kinds of the messages to shards since the last call.
  Kinds Sent() {
    Kinds kinds;
    for (const v1::NodeMessage& message : sent_) {
      const int kind = message.kind_case();
      kinds.push_back(message.GetDescriptor()->FindFieldByNumber(kind)->name());
    }
    sent_.clear();
    return kinds;
  }

  static constexpr NodeKey kSelf{0xA, 1};
  static constexpr NodeKey kPeer{0xB, 1};

  sim::SimScheduler scheduler_{{}};
  std::unique_ptr<sim::SimProcess> process_;
  sim::SimExecutor& loop_;
  HeapMemory memory_{loop_};
  const StoreOptions options_;
  std::vector<v1::NodeMessage> sent_;
  ShardChannel channel_;
  Turns turns_{[] {}};
  ObjectTable table_{1000};
  PullManager pulls_;
  DeletedGenerations deleted_{4};
  StickyMarks stickies_{2};
  RequestTable requests_{"node-a", 100, [] {}};
  const ClientId client_ = requests_.OpenClient();
  HoldReporter holds_{options_, loop_, channel_, turns_, requests_};
  CopyReporter reporter_{loop_, channel_, holds_};
  GetRequests gets_{"node-a", loop_, turns_, requests_, table_, pulls_, 2};
  LocalCopies copies_{options_, turns_, table_, gets_, holds_, stickies_};
  PeerServer peers_{options_, loop_, turns_, requests_, table_, pulls_};
  MemoryQueue memory_queue_{options_, loop_, memory_, turns_, requests_, table_, pulls_, *this};
};

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_STORE_PARTS_H_
