#include "tests/simulation/coarse_reduce.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/check.h"
#include "src/common/elements.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"
#include "src/directory/core/directory_core.h"
#include "src/directory/core/validate.h"
#include "src/directory/reductions/tree_plan/reduce_shape.h"
#include "tests/simulation/coarse_shard.h"

namespace phalanx::sim {
namespace {

using directory::DirectoryCore;
using directory::FromProto;
using directory::ReduceShape;
using directory::ToProto;

// Node 0 sends the request and gets the result.
class CoarseReduction {
 public:
  explicit CoarseReduction(const CoarseReducePlan& plan);
  CoarseReduceResult Run();

 private:
  struct Slot {
    std::optional<v1::Fold> order;
    std::vector<int> below;  // the nodes whose outputs it folds
    int depth = 0;           // from the root
  };

  static ObjectId Source(int node) { return ObjectId::FromName("coarse", absl::StrCat(node)); }
  template <typename Message>
  void SetTarget(Message* message) const {
    message->set_object_id(target_.binary().data(), ObjectId::kSize);
  }
  void Put(int node, const ObjectId& id, const Generation& generation, const v1::Fold* order);
  void MeasureLinks();
  void StartReduce();
  void TakeOrders();
  void MeasureTree();
  bool IsWhole() const;
  // Computes the time of each hop of the node's output, after those of the nodes below, which it
  // drops.
  void Fold(int node, Instant begun);
  void Finish();
  void Report(v1::FoldReport::Kind kind);
  template <typename Predicate>
  bool CallerReceives(Predicate matches);

  const CoarseReducePlan plan_;
  const ObjectId target_ = ObjectId::FromName("coarse", "reduced");
  CoarseShard shard_;
  Instant now_;
  std::vector<Slot> slots_;
  std::vector<std::vector<Instant>> output_;
  CoarseReduceResult result_;
};

CoarseReduction::CoarseReduction(const CoarseReducePlan& plan)
    : plan_(plan),
      shard_(directory::DirectoryOptions(), plan.sources, /*seed=*/1, plan.listener),
      now_(shard_.start()),
      slots_(plan.sources),
      output_(plan.sources) {}

// `order`: the put announces the target, as its root does.
void CoarseReduction::Put(int node, const ObjectId& id, const Generation& generation,
                          const v1::Fold* order) {
  v1::NodeMessage message;
  v1::AnnounceCreate& create = *message.mutable_announce_create();
  create.set_object_id(id.binary().data(), ObjectId::kSize);
  ToProto(generation, create.mutable_generation());
  create.mutable_info()->set_size_bytes(plan_.size_bytes);
  create.mutable_info()->set_slices(1);
  create.set_complete(order == nullptr);
  if (order != nullptr) {
    *create.mutable_version() = order->version();
    create.mutable_info()->set_reduced_from(order->reduced_from());
    create.mutable_info()->set_asked_for(order->asked_for());
  }
  shard_.Deliver(node, message, now_);
}

// One object goes from one node to another, so that the shard has measured a link.
void CoarseReduction::MeasureLinks() {
  const ObjectId probe = ObjectId::FromName("coarse", "probe");
  Put(0, probe, Generation{CoarseShard::KeyOf(0), 1}, nullptr);
  v1::NodeMessage want;
  want.mutable_want()->set_object_id(probe.binary().data(), ObjectId::kSize);
  want.mutable_want()->set_number(1);
  shard_.Deliver(1, want, now_);
  for (const DirectoryCore::Outgoing& out : shard_.TakeOutbox()) {
    if (!out.message.has_assign()) continue;
    const v1::Assign& assign = out.message.assign();
    v1::NodeMessage message;
    v1::PullReport& report = *message.mutable_pull_report();
    report.set_object_id(assign.object_id());
    *report.mutable_generation() = assign.generation();
    report.set_plan_id(assign.plan_id());
    report.set_complete(true);
    report.add_watermarks(plan_.size_bytes);
    report.set_first_byte_ns(2 * absl::ToInt64Nanoseconds(plan_.links.latency));
    report.set_bytes_per_second(plan_.links.bytes_per_second);
    shard_.Deliver(1, message, now_);
  }
}

void CoarseReduction::StartReduce() {
  v1::NodeMessage message;
  v1::ReduceRequest& request = *message.mutable_reduce_request();
  request.set_request_id(1);
  SetTarget(&request);
  v1::Reduction& reduction = *request.mutable_reduction();
  reduction.set_dtype(static_cast<uint32_t>(DType::kF32));
  reduction.set_op(static_cast<uint32_t>(ReduceOp::kSum));
  ToProto(CoarseShard::KeyOf(0), reduction.mutable_root());
  for (int node = 0; node < plan_.sources; ++node) {
    reduction.add_source_ids(Source(node).binary().data(), ObjectId::kSize);
  }
  now_ = now_ + plan_.links.control;
  shard_.Deliver(0, message, now_);
}

void CoarseReduction::TakeOrders() {
  for (DirectoryCore::Outgoing& out : shard_.TakeOutbox()) {
    ++result_.messages_out;
    if (!out.message.has_fold()) continue;
    Slot& slot = slots_[CoarseShard::NodeOf(out.to)];
    PHALANX_CHECK(!slot.order.has_value(), "each node has one slot, ordered once");
    slot.order = std::move(*out.message.mutable_fold());
    for (const v1::Fold::Input& input : slot.order->inputs()) {
      if (input.has_sender()) slot.below.push_back(CoarseShard::NodeOf(FromProto(input.sender())));
    }
  }
  now_ = now_ + plan_.links.control;
}

void CoarseReduction::MeasureTree() {
  std::vector<int> open = {0};
  while (!open.empty()) {
    const Slot& slot = slots_[open.back()];
    open.pop_back();
    result_.depth = std::max(result_.depth, slot.depth);
    result_.fan_in = std::max(result_.fan_in, static_cast<int>(slot.below.size()));
    for (const int below : slot.below) {
      slots_[below].depth = slot.depth + 1;
      open.push_back(below);
    }
  }
}

bool CoarseReduction::IsWhole() const {
  std::map<std::string, int> folded;
  for (const Slot& slot : slots_) {
    if (!slot.order) return false;
    for (const v1::Fold::Input& input : slot.order->inputs()) {
      if (!input.source_id().empty()) ++folded[input.source_id()];
    }
  }
  const size_t all = static_cast<size_t>(plan_.sources);
  return folded.size() == all && slots_[0].order->root() &&
         slots_[0].order->reduced_from().size() == all * ObjectId::kSize;
}

void CoarseReduction::Fold(int node, Instant begun) {
  const CoarseLinks& links = plan_.links;
  const absl::Duration hop =
      absl::Seconds(static_cast<double>(links.hop_bytes) / links.bytes_per_second);
  std::vector<Instant>& output = output_[node];
  output.assign(plan_.size_bytes / links.hop_bytes, begun);
  // The requests of the pulls take one latency first.
  Instant free = begun + links.latency;
  for (size_t i = 0; i < output.size(); ++i) {
    for (const int below : slots_[node].below) {
      free = std::max(free, output_[below][i] + links.latency) + hop;
    }
    if (!slots_[node].below.empty()) output[i] = free;
  }
  for (const int below : slots_[node].below) std::vector<Instant>().swap(output_[below]);
}

void CoarseReduction::Report(v1::FoldReport::Kind kind) {
  v1::NodeMessage message;
  v1::FoldReport& report = *message.mutable_fold_report();
  SetTarget(&report);
  *report.mutable_version() = slots_[0].order->version();
  report.set_kind(kind);
  now_ = now_ + plan_.links.control;
  shard_.Deliver(0, message, now_);
}

// Returns whether the shard's current messages to node 0 have one that matches.
template <typename Predicate>
bool CoarseReduction::CallerReceives(Predicate matches) {
  bool received = false;
  for (const DirectoryCore::Outgoing& out : shard_.TakeOutbox()) {
    ++result_.messages_out;
    received |= CoarseShard::NodeOf(out.to) == 0 && matches(out.message);
  }
  now_ = now_ + plan_.links.control;
  return received;
}

void CoarseReduction::Finish() {
  Report(v1::FoldReport::READY);
  const bool committed =
      CallerReceives([](const v1::ShardMessage& m) { return m.has_fold_commit(); });
  PHALANX_CHECK(committed, "what is ready is committed");
  v1::NodeMessage message;
  SetTarget(message.mutable_announce_seal());
  ToProto(Generation{CoarseShard::KeyOf(0), 3},
          message.mutable_announce_seal()->mutable_generation());
  now_ = now_ + plan_.links.control;
  shard_.Deliver(0, message, now_);
  const bool answered = CallerReceives([](const v1::ShardMessage& m) {
    return m.has_reduce_reply() && m.reduce_reply().code() == 0;
  });
  PHALANX_CHECK(answered, "the shard answers the caller");
}

CoarseReduceResult CoarseReduction::Run() {
  MeasureLinks();
  for (int node = 0; node < plan_.sources; ++node) {
    Put(node, Source(node), Generation{CoarseShard::KeyOf(node), 2}, nullptr);
  }
  shard_.TakeOutbox();
  shard_.ResetCounts();
  const Instant start = now_;
  StartReduce();
  TakeOrders();
  MeasureTree();
  result_.whole = IsWhole();
  Put(0, target_, Generation{CoarseShard::KeyOf(0), 3}, &*slots_[0].order);
  std::vector<int> nodes(slots_.size());
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<int>(i);
  std::sort(nodes.begin(), nodes.end(),
            [&](int a, int b) { return slots_[a].depth > slots_[b].depth; });
  const Instant begun = now_;
  for (const int node : nodes) Fold(node, begun);
  now_ = output_[0].back();
  Finish();
  result_.time = now_ - start;
  result_.messages_in = shard_.messages();
  result_.core_time = shard_.core_time();
  PHALANX_CHECK(shard_.core().CheckInvariants().ok(), "the core's invariants hold");
  return result_;
}

}  // namespace

CoarseReduceResult RunCoarseReduce(const CoarseReducePlan& plan) {
  return CoarseReduction(plan).Run();
}

absl::Duration ReduceTreeTime(const CoarseLinks& links, int sources, uint64_t size_bytes,
                              int degree) {
  if (degree == 0) {
    absl::Duration best = absl::InfiniteDuration();
    for (int d = 1; d < sources; ++d) {
      best = std::min(best, ReduceTreeTime(links, sources, size_bytes, d));
    }
    return best;
  }
  const auto on_link = [&](uint64_t bytes) {
    return absl::Seconds(static_cast<double>(bytes) / links.bytes_per_second);
  };
  const int depth = ReduceShape::DepthOf(sources, degree);
  const int fan_in = ReduceShape::FanInOf(sources, degree);
  return 6 * links.control + links.latency + depth * (links.latency + on_link(links.hop_bytes)) +
         fan_in * on_link(size_bytes);
}

}  // namespace phalanx::sim
