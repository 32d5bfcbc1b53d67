#include "src/jobs/group/results/kept_results.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/common/defects.h"

namespace phalanx::jobs {
namespace {

// By host, the nodes that can keep the call; hosts without one are left out.
std::vector<std::vector<int>> NodesByHost(const GroupList& list,
                                          const std::vector<uint64_t>& firsts, const CallSpec& spec,
                                          uint64_t number) {
  const bool each_alone = DefectActive(Defect::kResultsOnOneHost);
  std::vector<std::vector<int>> hosts(
      static_cast<size_t>(each_alone ? list.shape.nodes() : list.hosts));
  const auto host_of = [&](int node) {
    return static_cast<size_t>(each_alone ? node : list.host_of[static_cast<size_t>(node)]);
  };
  for (int node = 0; node < list.shape.nodes(); ++node) {
    const auto at = static_cast<size_t>(node);
    if (at < firsts.size() && firsts[at] <= number) hosts[host_of(node)].push_back(node);
  }
  const int root =
      spec.kind == CallKind::kBroadcast ? list.shape.NodeOf(static_cast<int>(spec.root)) : -1;
  std::vector<int> with_root;
  if (root >= 0) with_root.swap(hosts[host_of(root)]);
  std::erase_if(hosts, [](const std::vector<int>& nodes) { return nodes.empty(); });
  if (hosts.size() < spec.copies && !with_root.empty()) hosts.push_back(std::move(with_root));
  return hosts;
}

}  // namespace

// The quotient moves the pattern, so that large calls at regular distances meet all hosts, too.
std::vector<int> HoldersOf(const GroupList& list, const std::vector<uint64_t>& firsts,
                           const CallSpec& spec, uint64_t number) {
  const std::vector<std::vector<int>> hosts = NodesByHost(list, firsts, spec, number);
  std::vector<int> holders;
  const size_t copies = std::min<size_t>(spec.copies, hosts.size());
  for (size_t i = 0; i < copies; ++i) {
    const uint64_t turn = number / hosts.size();
    const std::vector<int>& nodes = hosts[(number * spec.copies + turn + i) % hosts.size()];
    holders.push_back(nodes[turn % nodes.size()]);
  }
  return holders;
}

void KeptResults::Add(const EndedCall& call) {
  Trim(call.number);
  const auto [at, added] = results_.try_emplace(call.number);
  Result& result = at->second;
  if (added) {
    result.spec = call.spec;
    // That of a call that has failed is unchecked. The limit bounds the calls that are known.
    result.spec.retain = std::min(call.spec.retain, kMaxRetainedCalls);
    result.members = call.members;
    result.kept = call.failed                   ? Kept::kFailed
                  : !SameForAll(call.spec.kind) ? Kept::kParts
                                                : Kept::kElsewhere;
  }
  if (call.holds && result.kept == Kept::kElsewhere) Hold(call.number, result, call);
}

void KeptResults::Hold(uint64_t number, Result& result, const EndedCall& call) {
  const absl::string_view bytes = call.result;
  const GroupMemory* memory = call.memory.get();
  const bool small = bytes.size() <= kCopiedResultBytes;
  const bool owned = memory != nullptr && bytes.data() >= memory->work.data() &&
                     bytes.data() < memory->work.data() + memory->work.size();
  result.counted = small || !owned ? bytes.size() : memory->work.size() + memory->scratch.size();
  result.kept = Kept::kHere;
  bytes_->used += result.counted;
  // Never this one: it is the newest, or is dropped last.
  while (bytes_->used > bytes_->limit && DropOldest()) {
  }
  if (result.kept != Kept::kHere) return;
  result.bytes = bytes;
  if (small) {
    auto copy = std::make_shared<const std::string>(bytes);
    result.bytes = *copy;
    result.keep = std::move(copy);
  } else if (owned) {
    result.memory = call.memory;
    result.keep = call.memory;
  } else {
    result.keep = call.input;
    to_place_.push_back(number);
  }
}

const KeptResults::Result* KeptResults::Find(uint64_t number) const {
  const auto found = results_.find(number);
  return found == results_.end() ? nullptr : &found->second;
}

ResultAnswer KeptResults::AnswerOf(uint64_t number) const {
  ResultAnswer answer;
  if (const Result* result = Find(number); result != nullptr) {
    answer.kept = result->kept;
    answer.members = static_cast<uint32_t>(result->members);
    answer.spec = result->spec;
  }
  if (results_.empty()) return answer;
  answer.first = results_.begin()->first;
  answer.last = results_.rbegin()->first;
  return answer;
}

void KeptResults::Clear() {
  for (auto& [number, result] : results_) Drop(result, Kept::kDropped);
  results_.clear();
  to_place_.clear();
  to_copy_.clear();
}

void KeptResults::MakeRoom(uint64_t bytes) {
  while (bytes_->used + bytes > 2 * bytes_->limit && DropOldest()) {
  }
}

bool KeptResults::DropOldest() {
  for (auto& [number, result] : results_) {
    if (result.kept != Kept::kHere || result.counted == 0) continue;
    Drop(result, Kept::kDropped);
    return true;
  }
  return false;
}

void KeptResults::Drop(Result& result, Kept kept) {
  bytes_->used -= std::exchange(result.counted, 0);
  if (result.kept == Kept::kHere) result.kept = kept;
  result.bytes = {};
  result.memory.reset();
  result.keep.reset();
}

// Calls that `last` leaves too far behind. Each says itself for how long it is kept.
void KeptResults::Trim(uint64_t last) {
  const auto expired = [last](uint64_t number, const Result& result) {
    const uint64_t early = DefectActive(Defect::kResultDroppedEarly) ? 1 : 0;
    return number + result.spec.retain <= last + early;
  };
  while (!results_.empty()) {
    const auto oldest = results_.begin();
    if (!expired(oldest->first, oldest->second)) return;
    Drop(oldest->second, Kept::kDropped);
    results_.erase(oldest);
  }
}

std::optional<std::pair<uint64_t, uint64_t>> KeptResults::TakeToCopy() {
  while (!to_place_.empty()) {
    const uint64_t number = to_place_.front();
    to_place_.pop_front();
    const Result* result = Find(number);
    if (result != nullptr && result->kept == Kept::kHere) return {{number, result->bytes.size()}};
  }
  return std::nullopt;
}

void KeptResults::Place(uint64_t number, std::shared_ptr<GroupMemory> memory) {
  const auto found = results_.find(number);
  if (found == results_.end() || found->second.kept != Kept::kHere) return;
  if (memory == nullptr) return Drop(found->second, Kept::kDropped);
  to_copy_.push_back({number, std::move(memory), 0});
}

bool KeptResults::Copy(uint64_t most) {
  while (!to_copy_.empty() && most > 0) {
    ToCopy& copy = to_copy_.front();
    const auto found = results_.find(copy.number);
    const bool wanted = found != results_.end() && found->second.kept == Kept::kHere;
    if (wanted && copy.done < found->second.bytes.size()) {
      const absl::string_view piece = found->second.bytes.substr(copy.done, most);
      std::memcpy(copy.memory->work.data() + copy.done, piece.data(), piece.size());
      copy.done += piece.size();
      most -= piece.size();
      if (copy.done < found->second.bytes.size()) continue;
    }
    if (wanted) {
      found->second.bytes = {copy.memory->work.data(), found->second.bytes.size()};
      found->second.memory = copy.memory;
      found->second.keep = std::move(copy.memory);
    }
    to_copy_.pop_front();
  }
  return !to_copy_.empty();
}

}  // namespace phalanx::jobs
