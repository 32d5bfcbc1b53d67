// Nodes that reduce, with real stores and data planes on a simulated network, and shards that the
// test plays. Testonly.
//
//   ReduceWorld w;
//   ReduceNode& a = w.Add("a");
//   const Generation g = a.Put(Id(1), Numbers(1, 1000));
//   a.Shard(FoldOf(target, version, 4000).Source(Id(1), g));
//   EXPECT_EQ(a.Reports(v1::FoldReport::READY).size(), 1);
#ifndef PHALANX_COLLECTIVES_TESTING_REDUCE_WORLD_H_
#define PHALANX_COLLECTIVES_TESTING_REDUCE_WORLD_H_

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/collectives/reducer/reducer.h"
#include "src/common/check.h"
#include "src/common/ids/version.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/results/reduce_result.h"
#include "src/net/testing/sim_plane.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/memory/heap_memory.h"
#include "src/object_store/objects/subject.h"
#include "src/object_store/store/store.h"

namespace phalanx::collectives::testing {

inline ObjectId Named(absl::string_view kind, int n) {
  return ObjectId::FromName(std::string(kind), absl::StrCat(n));
}
inline ObjectId Source(int n) { return Named("source", n); }
inline SlotVersion Version(uint64_t n) { return VersionOf({2 * n + 1, n}); }

// Element i of the u32 that source `n` consists of.
inline uint32_t Number(int n, uint64_t i) {
  return static_cast<uint32_t>(static_cast<uint64_t>(n) * 1000003 + i * 7);
}
inline std::string Numbers(int n, uint64_t count) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t value = Number(n, i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}
// The sum of these sources.
inline std::string SumOf(const std::vector<int>& sources, uint64_t count, uint64_t first = 0) {
  std::string bytes(4 * count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t value = 0;
    for (const int n : sources) value += Number(n, first + i);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

class ReduceNode;

// A Fold message, piece by piece: the sum of u32.
class FoldOf {
 public:
  FoldOf(const ObjectId& target, const SlotVersion& version, uint64_t size_bytes) {
    fold_.set_object_id(object_store::IdBytes(target));
    directory::ToProto(version, fold_.mutable_version());
    fold_.set_dtype(static_cast<uint32_t>(DType::kU32));
    fold_.set_op(static_cast<uint32_t>(ReduceOp::kSum));
    fold_.set_slots(1);
    fold_.set_degree(1);
    fold_.set_planned(1);
    fold_.set_size_bytes(size_bytes);
  }
  FoldOf& Source(const ObjectId& id, const Generation& generation) {
    v1::Fold::Input& input = *fold_.add_inputs();
    input.set_source_id(object_store::IdBytes(id));
    directory::ToProto(generation, input.mutable_generation());
    return *this;
  }
  FoldOf& Slot(const ReduceNode& node, const SlotVersion& version);
  FoldOf& Inline(std::string bytes) {
    v1::Fold::Input& input = *fold_.add_inputs();
    input.set_has_inline(true);
    input.set_inline_bytes(std::move(bytes));
    return *this;
  }
  // The fold above has the output's bytes below this one.
  FoldOf& Begin(uint64_t begin) {
    fold_.set_begin(begin);
    return *this;
  }
  FoldOf& Relay() {
    fold_.set_relay(true);
    return *this;
  }
  FoldOf& Range(uint64_t offset) {
    fold_.set_range_offset(offset);
    return *this;
  }
  FoldOf& Root(const std::vector<ObjectId>& sources) {
    fold_.set_root(true);
    std::string from;
    for (const ObjectId& id : sources) absl::StrAppend(&from, object_store::IdBytes(id));
    fold_.set_reduced_from(from);
    return *this;
  }
  FoldOf& Metadata(const std::string& metadata) {
    fold_.set_metadata(metadata);
    return *this;
  }
  // The record of a reduction with these arguments.
  FoldOf& Answering(const ReduceSpec& spec) {
    fold_.set_asked_for(directory::ReduceRecord(spec).Encode());
    return *this;
  }
  FoldOf& Number(uint64_t count) {
    directory::ToProto(MakeReductionId(7, 7, count), fold_.mutable_begun());
    return *this;
  }
  FoldOf& Committed() {
    fold_.set_committed(true);
    return *this;
  }
  v1::Fold& fold() { return fold_; }
  operator v1::ShardMessage() const {
    v1::ShardMessage message;
    *message.mutable_fold() = fold_;
    return message;
  }

 private:
  v1::Fold fold_;
};

template <typename Message>
void SetFold(const ObjectId& target, const SlotVersion& version, Message* out) {
  out->set_object_id(object_store::IdBytes(target));
  directory::ToProto(version, out->mutable_version());
}
inline v1::ShardMessage DropOf(const ObjectId& target, const SlotVersion& version) {
  v1::ShardMessage message;
  SetFold(target, version, message.mutable_fold_drop());
  return message;
}
inline v1::ShardMessage CommitOf(const ObjectId& target, const SlotVersion& version) {
  v1::ShardMessage message;
  SetFold(target, version, message.mutable_fold_commit());
  return message;
}

class ReduceNode {
 public:
  struct Sent {
    int shard = 0;
    v1::NodeMessage message;
  };

  ReduceNode(sim::SimScheduler& scheduler, net::testing::SimPlane& plane, const std::string& name,
             uint64_t capacity, int num_shards, ReducerOptions options)
      : scheduler_(scheduler),
        plane_(plane),
        memory_(plane.control()),
        channel_(
            num_shards,
            [this](int shard, v1::NodeMessage message) {
              sent_.push_back({shard, std::move(message)});
            },
            [this](Task task) { plane_.control().Post(std::move(task)); }) {
    Run([&] {
      object_store::StoreOptions store_options;
      store_options.self = plane.self();
      store_options.name = name;
      store_options.capacity_bytes = capacity;
      store_ =
          std::make_unique<object_store::Store>(store_options, plane.control(), memory_, channel_);
      options.self = plane.self();
      options.name = name;
      reducer_ = std::make_unique<Reducer>(
          options, plane.control(), std::vector<Executor*>{&plane.process().NewExecutor("fold")},
          *store_, channel_);
      store_->SetDataPlane(&plane_.plane());
      reducer_->SetDataPlane(&plane_.plane());
      plane_.serve = [this](const net::ServeRequest& request, net::DataPlane::ServeReply reply) {
        if (reducer_->Serve(request, reply)) return;
        store_->Serve(request, std::move(reply));
      };
      client_ = store_->OpenClient();
    });
  }
  ~ReduceNode() {
    Run([&] {
      plane_.serve = [](const net::ServeRequest&, net::DataPlane::ServeReply) {};
      reducer_.reset();
      store_.reset();
    });
  }

  // Runs on the node's loop; returns after the task has run.
  void Run(std::function<void()> task) {
    bool ran = false;
    plane_.control().Post([&] {
      task();
      ran = true;
    });
    PHALANX_CHECK(scheduler_.RunUntil([&] { return ran; }, absl::Seconds(1)), "the loop runs");
  }
  void Shard(const v1::ShardMessage& message) {
    Run([&] { channel_.OnMessage(0, message); });
  }

  Generation Put(const ObjectId& id, std::string bytes) {
    std::optional<absl::StatusOr<object_store::PutResult>> result;
    Run([&] {
      object_store::PutOptions options;
      options.id = id;
      store_->Put(client_, options, std::move(bytes), [&](auto r) { result = std::move(r); });
    });
    PHALANX_CHECK(scheduler_.RunUntil([&] { return result.has_value(); }, absl::Seconds(1)), "put");
    PHALANX_CHECK(result->ok(), result->status().ToString());
    return (*result)->generation;
  }
  // The test writes the bytes.
  object_store::WriteGrant Create(const ObjectId& id, uint64_t size, int slices = 1) {
    std::optional<absl::StatusOr<object_store::WriteGrant>> result;
    Run([&] {
      object_store::PutOptions options;
      options.id = id;
      options.slices = slices;
      store_->Create(client_, options, size, [&](auto r) { result = std::move(r); });
    });
    PHALANX_CHECK(scheduler_.RunUntil([&] { return result.has_value(); }, absl::Seconds(1)), "put");
    PHALANX_CHECK(result->ok(), result->status().ToString());
    return **result;
  }
  void Write(const object_store::WriteGrant& grant, const std::string& bytes, uint64_t to) {
    Run([&] {
      std::memcpy(grant.block->bytes().data(), bytes.data(), to);
      PHALANX_CHECK(store_->Publish(client_, grant.writer, to).ok(), "it grows");
      if (to == bytes.size()) store_->Seal(client_, grant.writer, false, [](auto) {});
    });
  }
  void Abort(const object_store::WriteGrant& grant) {
    Run([&] { (void)store_->Abort(client_, grant.writer); });
  }

  // The copy of the object here, if there is one.
  std::optional<object_store::Store::CopyInfo> Copy(const ObjectId& id) {
    for (auto& copy : store_->Copies()) {
      if (copy.id == id) return copy;
    }
    return std::nullopt;
  }
  // The published bytes of an object in one slice.
  std::string Published(const ObjectId& id) {
    const auto copy = Copy(id);
    if (!copy) return "";
    return std::string(copy->buffer->slice(0).data(), copy->buffer->watermark(0));
  }
  bool Complete(const ObjectId& id) {
    const auto copy = Copy(id);
    return copy && copy->complete;
  }

  std::vector<v1::FoldReport> Reports(v1::FoldReport::Kind kind) const {
    std::vector<v1::FoldReport> reports;
    for (const Sent& sent : sent_) {
      const v1::FoldReport& report = sent.message.fold_report();
      if (sent.message.has_fold_report() && report.kind() == kind) reports.push_back(report);
    }
    return reports;
  }
  std::vector<Sent>& sent() { return sent_; }

  object_store::Store& store() { return *store_; }
  object_store::ShardChannel& channel() { return channel_; }
  Reducer& reducer() { return *reducer_; }
  net::testing::SimPlane& plane() { return plane_; }
  const NodeKey& self() const { return plane_.self(); }
  const net::Address& address() const { return plane_.address(); }
  object_store::HeapMemory& memory() { return memory_; }
  object_store::ClientId client() const { return client_; }

 private:
  sim::SimScheduler& scheduler_;
  net::testing::SimPlane& plane_;
  object_store::HeapMemory memory_;
  object_store::ShardChannel channel_;
  std::unique_ptr<object_store::Store> store_;
  std::unique_ptr<Reducer> reducer_;
  object_store::ClientId client_ = 0;
  std::vector<Sent> sent_;
};

inline FoldOf& FoldOf::Slot(const ReduceNode& node, const SlotVersion& version) {
  v1::Fold::Input& input = *fold_.add_inputs();
  directory::ToProto(node.self(), input.mutable_sender());
  input.set_sender_address(node.address());
  directory::ToProto(version, input.mutable_generation());
  return *this;
}

class ReduceWorld {
 public:
  struct Options {
    uint64_t capacity = uint64_t{64} << 20;
    int num_shards = 1;
    ReducerOptions reducer;
  };

  ReduceWorld() : ReduceWorld(FastLinks()) {}
  explicit ReduceWorld(const sim::SimFabric::Options& fabric) : planes_(fabric) {}
  ~ReduceWorld() {
    nodes_.clear();
    planes_.RunFor(absl::Seconds(1));
  }

  ReduceNode& Add(const std::string& name) { return Add(name, Options()); }
  ReduceNode& Add(const std::string& name, const Options& options) {
    nodes_.push_back(std::make_unique<ReduceNode>(planes_.scheduler(), planes_.Add(name), name,
                                                  options.capacity, options.num_shards,
                                                  options.reducer));
    return *nodes_.back();
  }
  bool RunUntil(absl::FunctionRef<bool()> done, absl::Duration limit = absl::Seconds(20)) {
    return planes_.scheduler().RunUntil(done, limit);
  }
  void RunFor(absl::Duration time) { planes_.RunFor(time); }
  sim::SimScheduler& scheduler() { return planes_.scheduler(); }
  sim::SimFabric& fabric() { return planes_.fabric(); }

  static sim::SimFabric::Options FastLinks() {
    sim::SimFabric::Options options;
    options.link = {.latency = absl::Microseconds(100), .bytes_per_second = 1e8};
    return options;
  }

 private:
  net::testing::SimPlanes planes_;
  std::vector<std::unique_ptr<ReduceNode>> nodes_;
};

}  // namespace phalanx::collectives::testing

#endif  // PHALANX_COLLECTIVES_TESTING_REDUCE_WORLD_H_
