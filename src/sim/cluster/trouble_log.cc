#include "src/sim/cluster/trouble_log.h"

#include "src/sim/cluster/process_names.h"

namespace phalanx::sim {

void TroubleLog::AddForNode(int n) {
  for (int s = 0; s < shards_; ++s) Add(n, s);
}

void TroubleLog::AddForShard(int s) {
  for (int n = 0; n < nodes_; ++n) Add(n, s);
}

void TroubleLog::AddBetween(const std::string& a, const std::string& b) {
  for (const auto& [node, shard] : {std::pair(a, b), std::pair(b, a)}) {
    const int n = ProcessNumber(node, 'n');
    const int s = ProcessNumber(shard, 's');
    // Trouble between two nodes does not excuse a wrong directory.
    if (n >= 0 && s >= 0) Add(n, s);
  }
}

bool TroubleLog::Since(int n, int s, Instant since) const {
  const auto last = last_.find({n, s});
  return last != last_.end() && last->second >= since;
}

}  // namespace phalanx::sim
