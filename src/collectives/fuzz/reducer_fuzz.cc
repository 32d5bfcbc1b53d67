// A node's reducer against a shard that sends arbitrary bytes as messages, and well-formed orders
// in any order, beside a node that carries out its orders, while clients put, reduce and leave, and
// time passes. The reducer must not abort, no invariant of the reducer or the store can break, and
// once all folds are dropped nothing is held.
//
// An input is a list of (kind and index, argument, ...); each step says how many bytes it takes.
// One byte can name an object (directory/fuzz/short_ids.h).
#include "src/collectives/fuzz/reducer_fuzz.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/collectives/testing/reduce_world.h"
#include "src/common/check.h"
#include "src/directory/core/reduce_messages.h"
#include "src/directory/fuzz/short_ids.h"

namespace phalanx::collectives::testing {
namespace {

using object_store::RequestId;

constexpr int kMaxSteps = 120;
constexpr int kTargets = 3;
constexpr int kSources = 4;
constexpr uint64_t kVersions = 6;
// Larger than what a root holds back, in part.
constexpr uint64_t kCounts[] = {1, 300, 20'000, 40'000};

ReduceWorld::Options Small() {
  ReduceWorld::Options options;
  options.capacity = 2 << 20;
  return options;
}

class World {
 public:
  explicit World(const phalanx::testing::MessageListener& listener)
      : listener_(listener), node_(world_.Add("a", Small())), peer_(world_.Add("b", Small())) {}

  void Play(absl::string_view input) {
    for (int step = 0; step < kMaxSteps && input.size() >= 2; ++step) {
      const auto what = static_cast<uint8_t>(input[0]);
      const auto argument = static_cast<uint8_t>(input[1]);
      input.remove_prefix(2);
      if ((what & 7) < 2) {
        const absl::string_view bytes = input.substr(0, argument);
        input.remove_prefix(bytes.size());
        Hear(bytes);
      } else {
        Step(what & 7, what >> 3, argument);
      }
      Check(node_);
    }
    End();
  }

 private:
  static ObjectId Object(int which) {
    return *ObjectId::FromBinary(directory::LongId(static_cast<char>('a' + which)));
  }
  static ObjectId Target(int which) { return Object(kSources + which % kTargets); }
  static uint64_t Count(int which) { return kCounts[which % 4]; }

  void Check(ReduceNode& node) {
    const absl::Status store = node.store().CheckInvariants();
    PHALANX_CHECK(store.ok(), store.message());
    const absl::Status reducer = node.reducer().CheckInvariants();
    PHALANX_CHECK(reducer.ok(), reducer.message());
    ForgetSent(node);
  }

  void ForgetSent(ReduceNode& node) {
    for (const ReduceNode::Sent& sent : node.sent()) {
      if (!listener_) break;
      listener_(absl::StrCat(&node == &node_ ? "a " : "b ", sent.shard), sent.message);
    }
    node.sent().clear();
  }

  void Hear(absl::string_view bytes) {
    v1::ShardMessage message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    directory::ExpandIds(message);
    if (message.has_fold()) {
      heard_.push_back({message.fold().object_id(), message.fold().version()});
    }
    node_.Shard(message);
  }

  void Step(int what, int which, uint8_t argument) {
    switch (what) {
      case 2:
        return Put((which & 16) != 0 ? peer_ : node_, which % kSources, Count(argument));
      case 3:
        return Order(which, argument);
      case 4:
        return node_.Shard((argument & 1) != 0 ? CommitOf(Target(which), Version(argument >> 1))
                                               : DropOf(Target(which), Version(argument >> 1)));
      case 5:
        return OrderPeer(which, argument);
      case 6:
        return Ask(which, argument);
      default:
        if (which == 31) {
          node_.Run([this] { node_.channel().OnSession(0); });
        } else {
          world_.RunFor(absl::Milliseconds(3) * argument);
        }
    }
  }

  void Put(ReduceNode& node, int source, uint64_t count) {
    node.Run([&] {
      object_store::PutOptions options;
      options.id = Object(source);
      options.deadline = world_.scheduler().now() + absl::Seconds(1);
      node.store().Put(node.client(), options, Numbers(source, count),
                       [this, &node, source](absl::StatusOr<object_store::PutResult> put) {
                         if (put.ok()) generations_[{&node, source}] = put->generation;
                       });
    });
  }
  Generation GenerationOf(ReduceNode& node, int source) {
    const auto found = generations_.find({&node, source});
    return found == generations_.end() ? Version(9).AsGeneration() : found->second;
  }

  // A well-formed order; its inputs need not exist.
  void Order(int which, uint8_t argument) {
    const ObjectId target = Target(which);
    FoldOf order(target, Version((which >> 2) % kVersions), 4 * Count(argument));
    const int source = argument >> 6;
    if ((argument & 4) != 0) order.Slot(peer_, Version(argument % kVersions));
    order.Source(Object(source), GenerationOf(node_, source));
    if ((argument & 8) != 0) order.Inline(Numbers(source, Count(argument)));
    if ((argument & 16) != 0) order.Slot(node_, Version((argument + 1) % kVersions));
    if ((argument & 32) != 0) order.Root({Object(0), Object(1)});
    if (which >= 24) order.Committed();
    if (which % 8 == 7) Mix(order.fold(), argument);
    if ((argument & 34) == 34) PlaceInRing(order.fold(), argument);
    node_.Shard(order);
  }

  // Elements of two types, whose cut can be valid or not.
  void Mix(v1::Fold& fold, uint8_t argument) {
    fold.set_dtype(directory::kSeveralDTypes);
    v1::ElementRun& first = *fold.add_runs();
    first.set_end(32 * (argument % 8));
    first.set_dtype(argument % kAllDTypes.size());
    v1::ElementRun& second = *fold.add_runs();
    second.set_end(fold.size_bytes());
    second.set_dtype(static_cast<uint32_t>(DType::kU32));
  }

  // The peer is the member before, whether it has an order or not.
  void PlaceInRing(v1::Fold& fold, uint8_t argument) {
    fold.set_slots(2 + (argument >> 3) % 3);
    fold.set_slot(argument % 3);
    v1::Fold::Ring& ring = *fold.mutable_ring();
    directory::ToProto(Generation{peer_.self(), uint64_t{1} << 63 | argument},
                       ring.mutable_generation());
    directory::ToProto(peer_.self(), ring.mutable_before());
    ring.set_before_address(peer_.address());
  }

  void OrderPeer(int which, uint8_t argument) {
    const ObjectId target = Target(which);
    const int source = argument >> 6;
    if ((argument & 32) != 0) return peer_.Shard(DropOf(target, Version(argument % kVersions)));
    peer_.Shard(FoldOf(target, Version(argument % kVersions), 4 * Count(which >> 2))
                    .Source(Object(source), GenerationOf(peer_, source)));
    ForgetSent(peer_);
  }

  void Ask(int which, uint8_t argument) {
    Reducer& reducer = node_.reducer();
    const Instant deadline = world_.scheduler().now() + absl::Milliseconds(10) * argument;
    node_.Run([&] {
      switch (argument & 7) {
        case 0:
        case 1:
          return Reduce(which, deadline);
        case 2:
          return reducer.Extend(node_.client(), Target(which), {Object(which % kSources)},
                                (which & 16) != 0, deadline, [](const absl::Status&) {});
        case 3:
          return reducer.Fail(node_.client(), Object(which % kSources),
                              absl::AbortedError("failed"), deadline, [](const absl::Status&) {});
        case 4:
          return reducer.Cancel(node_.client(), static_cast<RequestId>(which));
        case 5:
          return reducer.ClientClosed(node_.client());
        default:
          return node_.store().Delete(node_.client(), Object(which % (kSources + kTargets)),
                                      deadline, [](const absl::Status&) {});
      }
    });
  }

  void Reduce(int which, Instant deadline) {
    ReduceSpec spec;
    spec.sources = {Object(0), Object(1 + which % 3)};
    spec.elements = DType::kU32;
    spec.open = (which & 8) != 0;
    node_.reducer().Reduce(node_.client(), {Target(which), (which & 16) != 0}, spec, deadline,
                           [](const absl::Status&) {});
  }

  // Drops all folds that were ordered. After that only objects hold memory.
  void End() {
    for (const auto& [target, version] : heard_) {
      v1::ShardMessage drop;
      drop.mutable_fold_drop()->set_object_id(target);
      *drop.mutable_fold_drop()->mutable_version() = version;
      node_.Shard(drop);
    }
    for (int target = 0; target < kTargets; ++target) {
      for (uint64_t version = 0; version < kVersions; ++version) {
        node_.Shard(DropOf(Target(target), Version(version)));
      }
    }
    world_.RunFor(absl::Seconds(30));
    Check(node_);
    const Reducer::Stats stats = node_.reducer().stats();
    PHALANX_CHECK(stats.folds == 0, "what was dropped is gone");
    PHALANX_CHECK(stats.scratch_bytes == 0, "folds that are gone hold nothing");
    PHALANX_CHECK(node_.store().stats().pins == 0, "nor do they pin anything");
  }

  const phalanx::testing::MessageListener& listener_;
  ReduceWorld world_;
  ReduceNode& node_;
  ReduceNode& peer_;
  std::map<std::pair<ReduceNode*, int>, Generation> generations_;
  // Folds that arbitrary messages have ordered.
  std::vector<std::pair<std::string, v1::Generation>> heard_;
};

}  // namespace

void PlayReducerInput(absl::string_view input, const phalanx::testing::MessageListener& listener) {
  World world(listener);
  world.Play(input);
}

}  // namespace phalanx::collectives::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::collectives::testing::PlayReducerInput(
      absl::string_view(reinterpret_cast<const char*>(data), size), {});
  return 0;
}
