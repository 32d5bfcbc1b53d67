#include "src/sim/cluster/network_faults.h"

#include "absl/strings/str_cat.h"
#include "src/sim/cluster/process_names.h"

namespace phalanx::sim {

void NetworkFaults::Partition(const std::string& from, const std::string& to) {
  journal_.Note("partition ", from, " -> ", to);
  trouble_.AddBetween(from, to);
  partitions_.insert({from, to});
  fabric_.Partition(from, to);
}

void NetworkFaults::Refuse(const std::string& from, const std::string& to) {
  journal_.Note("refuse ", from, " -> ", to);
  trouble_.AddBetween(from, to);
  partitions_.insert({from, to});
  fabric_.Refuse(from, to);
  fabric_.Reset(from, to);
}

void NetworkFaults::Heal(const std::string& from, const std::string& to) {
  // Repairs can come twice, from the fault and from HealEverything.
  if (partitions_.erase({from, to}) == 0) return;
  journal_.Note("heal ", from, " -> ", to);
  trouble_.AddBetween(from, to);
  fabric_.Heal(from, to);
}

void NetworkFaults::Reset(const std::string& a, const std::string& b) {
  journal_.Note("reset ", a, " - ", b);
  trouble_.AddBetween(a, b);
  fabric_.Reset(a, b);
}

void NetworkFaults::HalfOpen(const std::string& from, const std::string& to) {
  journal_.Note("half-open ", from, " -> ", to);
  trouble_.AddBetween(from, to);
  fabric_.HalfOpen(from, to);
}

void NetworkFaults::Sever(const std::string& from, const std::string& to, absl::Duration late) {
  journal_.Note("sever ", from, " -> ", to, ", ", absl::FormatDuration(late), " late");
  trouble_.AddBetween(from, to);
  fabric_.Sever(from, to, late);
}

void NetworkFaults::SetLink(const std::string& from, const std::string& to, const Link& link) {
  journal_.Note("link ", from, " -> ", to, ": ", absl::FormatDuration(link.latency), " ",
                link.bytes_per_second, " B/s");
  trouble_.AddBetween(from, to);
  // The original link is remembered only once, so that repeated faults do not replace it.
  original_links_.try_emplace({from, to}, fabric_.GetLink(from, to));
  fabric_.SetLink(from, to, link);
}

void NetworkFaults::CorruptNodes(double chance) {
  journal_.Note("corrupt ", chance);
  for (int a = 0; a < nodes_; ++a) {
    for (int b = 0; b < nodes_; ++b) fabric_.SetCorruption(NodeName(a), NodeName(b), chance);
  }
}

void NetworkFaults::HealEverything() {
  for (const auto& [pair, link] : original_links_) fabric_.SetLink(pair.first, pair.second, link);
  original_links_.clear();
  // A copy, because Heal erases from the set.
  const auto partitions = partitions_;
  for (const auto& [from, to] : partitions) Heal(from, to);
  CorruptNodes(0);
}

}  // namespace phalanx::sim
