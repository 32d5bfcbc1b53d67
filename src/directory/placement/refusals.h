// The nodes that could not fetch one object, and until when they are not asked for it again. The
// pause doubles with every refusal of a node.
//
// A value, owned by the record of the object. Pure: the caller passes the time.
#ifndef PHALANX_DIRECTORY_PLACEMENT_REFUSALS_H_
#define PHALANX_DIRECTORY_PLACEMENT_REFUSALS_H_

#include <algorithm>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"

namespace phalanx::directory {

class Refusals {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kMaxPause = absl::Seconds(30);

  // The node refused.
  void Add(const NodeKey& node, Instant now) {
    Refusal& refusal = nodes_[node];
    refusal.until = now + std::min(kMaxPause, kFirstPause * (1 << std::min(refusal.times, 16)));
    ++refusal.times;
  }
  void Forget(const NodeKey& node) { nodes_.erase(node); }
  // Returns true during the node's pause.
  bool Has(const NodeKey& node, Instant now) const {
    const auto refusal = nodes_.find(node);
    return refusal != nodes_.end() && refusal->second.until > now;
  }
  // Returns true if the node has refused, also if its pause is over.
  bool Knows(const NodeKey& node) const { return nodes_.contains(node); }
  std::vector<NodeKey> Nodes() const {
    std::vector<NodeKey> nodes;
    for (const auto& [node, refusal] : nodes_) nodes.push_back(node);
    return nodes;
  }
  // When the next pause ends; infinite if no node pauses.
  Instant NextEnd(Instant now) const {
    Instant next = Instant::Infinite();
    for (const auto& [node, refusal] : nodes_) {
      if (refusal.until > now) next = std::min(next, refusal.until);
    }
    return next;
  }

 private:
  struct Refusal {
    int times = 0;
    Instant until;
  };
  absl::btree_map<NodeKey, Refusal> nodes_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_PLACEMENT_REFUSALS_H_
