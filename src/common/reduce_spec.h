// The arguments of a reduction as every component inside the node and the directory knows them:
// the client fills a ReduceSpec from its ReduceOptions, the local protocol and v1::Reduction carry
// it, the plan and the folds read it. Values; any thread.
#ifndef PHALANX_COMMON_REDUCE_SPEC_H_
#define PHALANX_COMMON_REDUCE_SPEC_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/object_id.h"
#include "src/common/elements.h"
#include "src/common/ids/object_name.h"

namespace phalanx {

// What is computed.
struct ReduceSpec {
  enum class Order : uint8_t {
    kArrival,  // a source takes the next slot when it becomes ready
    // The strict left fold of `sources` in their order: of the first num_objects that do not fail.
    kFixed,
    // Slice by slice: of n sources, slice s of n (SliceLayout) is the left fold of sources
    // s + 1, ..., n - 1, 0, ..., s, made in a ring of their nodes. Each source is at a node of its
    // own, and all nodes of the sources get the result. Otherwise, and when the ring breaks, the
    // reduction ends with FailedPrecondition: a tree would make other bits.
    kRing,
  };
  ElementTypes elements;
  ReduceOp op = ReduceOp::kSum;
  Order order = Order::kArrival;
  // How many of the sources; 0: all of them.
  uint32_t num_objects = 0;
  // Sources can be added until the reduction is closed; nothing is folded before.
  bool open = false;
  std::vector<ObjectId> sources;
  // Bytes of each source; 0 bytes: all of it.
  uint64_t range_offset = 0;
  uint64_t range_bytes = 0;
  // The metadata that every source must have, at most kMaxMetadataBytes; empty: not compared.
  // Requests that differ here join one reduction, which compares what its first request named.
  std::string source_metadata = {};

  friend bool operator==(const ReduceSpec&, const ReduceSpec&) = default;
};

inline constexpr std::array<ReduceSpec::Order, 3> kAllReduceOrders = {
    ReduceSpec::Order::kArrival, ReduceSpec::Order::kFixed, ReduceSpec::Order::kRing};

// Where one caller wants the result. Requests that differ only here join one reduction.
struct ReduceTarget {
  ObjectId id = {};
  // The root is computed on the caller's node; otherwise the shard chooses a node.
  bool root_here = true;
  // All nodes that have sources want the result.
  bool everybody = false;
  // The target is freed when its last hold ends; the caller holds it already.
  bool owned = false;
  ObjectName name = {};
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_REDUCE_SPEC_H_
