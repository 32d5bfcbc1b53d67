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

bool KeptBytes::Drop(uint64_t age) {
  const Entry entry = by_age_.at(age);
  if (entry.owner->unreleased_.contains(entry.number)) ++dropped_;
  entry.owner->Drop(entry.number, entry.owner->results_.at(entry.number));
  return true;
}

void KeptResults::Add(const EndedCall& call) {
  Trim(call.number);
  const bool until_released = call.spec.retain == kUntilReleased;
  if (until_released && call.number > boot_ && call.number <= released_) return;
  const auto [at, added] = results_.try_emplace(call.number);
  Result& result = at->second;
  if (added) {
    // The limit bounds the calls that are known.
    const uint32_t retain =
        until_released ? kUntilReleased : std::min(call.spec.retain, kMaxRetainedCalls);
    if (until_released) {
      unreleased_.insert(call.number);
    } else {
      by_end_.insert({call.number + retain, call.number});
    }
    result.members = call.members;
    result.why = call.why.substr(0, kMaxKeptErrorBytes);
    result.kept = call.failed                   ? Kept::kFailed
                  : !SameForAll(call.spec.kind) ? Kept::kParts
                                                : Kept::kElsewhere;
    // That of a call that has failed is unchecked, and other nodes do not accept all of them.
    if (!call.failed) result.spec = call.spec;
    result.spec.retain = retain;
  }
  if (call.holds && result.kept == Kept::kElsewhere) Hold(call.number, result, call);
  while (unreleased_.size() > kMaxUnreleasedCalls) {
    ++bytes_->dropped_;
    Forget(*unreleased_.begin());
  }
}

void KeptResults::Release(uint64_t boot, uint64_t released) {
  boot_ = boot;
  released_ = std::max(released_, released);
  if (DefectActive(Defect::kBootResultsReleased)) boot = 0;
  for (auto at = unreleased_.upper_bound(boot); at != unreleased_.end() && *at <= released;) {
    Forget(*at++);
  }
}

void KeptResults::Forget(uint64_t number) {
  const auto found = results_.find(number);
  Drop(number, found->second);
  results_.erase(found);
  unreleased_.erase(number);
}

void KeptResults::Hold(uint64_t number, Result& result, const EndedCall& call) {
  const absl::string_view bytes = call.result;
  const GroupMemory* memory = call.memory.get();
  const bool small = bytes.size() <= kCopiedResultBytes;
  const bool owned = memory != nullptr && bytes.data() >= memory->work.data() &&
                     bytes.data() < memory->work.data() + memory->work.size();
  const uint64_t counted =
      small || !owned ? bytes.size() : memory->work.size() + memory->scratch.size();
  result.kept = Kept::kHere;
  if (counted > 0) {
    result.age = bytes_->next_age_++;
    bytes_->by_age_[result.age] = {this, number, counted};
    bytes_->used_ += counted;
    if (!small) bytes_->of_node_.insert(result.age);
  }
  if (!small && bytes_->awaited > 0) Drop(number, result);
  // Never this one: it is the newest, or is dropped last.
  while (bytes_->used() > bytes_->limit && bytes_->DropOldest()) {
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
    to_copy_.insert(number);
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
    answer.why = result->why;
  }
  if (results_.empty()) return answer;
  answer.first = results_.begin()->first;
  answer.last = results_.rbegin()->first;
  return answer;
}

void KeptResults::Clear() {
  for (auto& [number, result] : results_) Drop(number, result);
  results_.clear();
  by_end_.clear();
  unreleased_.clear();
  boot_ = 0;
  released_ = 0;
  copying_.reset();
}

void KeptResults::Drop(uint64_t number, Result& result) {
  if (const auto entry = bytes_->by_age_.find(std::exchange(result.age, 0));
      entry != bytes_->by_age_.end()) {
    bytes_->used_ -= entry->second.bytes;
    bytes_->of_node_.erase(entry->first);
    bytes_->by_age_.erase(entry);
  }
  if (result.kept == Kept::kHere) result.kept = Kept::kDropped;
  result.bytes = {};
  result.memory.reset();
  result.keep.reset();
  to_copy_.erase(number);
  // Memory that comes for it is not needed.
  if (copying_.has_value() && copying_->number == number) copying_.reset();
}

// Each says itself for how long it is kept.
void KeptResults::Trim(uint64_t last) {
  const uint64_t early = DefectActive(Defect::kResultDroppedEarly) ? 1 : 0;
  while (!by_end_.empty() && by_end_.begin()->first <= last + early) {
    const auto oldest = results_.find(by_end_.begin()->second);
    Drop(oldest->first, oldest->second);
    results_.erase(oldest);
    by_end_.erase(by_end_.begin());
  }
}

std::optional<std::pair<uint64_t, uint64_t>> KeptResults::TakeToCopy() {
  if (copying_.has_value() || to_copy_.empty()) return std::nullopt;
  const uint64_t number = *to_copy_.begin();
  to_copy_.erase(to_copy_.begin());
  copying_ = ToCopy{.number = number, .memory = nullptr};
  return {{number, results_.at(number).bytes.size()}};
}

void KeptResults::Place(uint64_t number, std::shared_ptr<GroupMemory> memory) {
  if (!copying_.has_value() || copying_->number != number) return;
  const auto found = results_.find(number);
  const bool wanted = found != results_.end() && found->second.kept == Kept::kHere;
  if (wanted && memory != nullptr && memory->work.size() >= found->second.bytes.size()) {
    copying_->memory = std::move(memory);
    return;
  }
  copying_.reset();
  if (wanted) Drop(number, found->second);
}

bool KeptResults::Copy(uint64_t most) {
  if (!copying_.has_value()) return !to_copy_.empty();
  if (copying_->memory == nullptr) return false;
  const auto found = results_.find(copying_->number);
  if (found != results_.end() && found->second.kept == Kept::kHere) {
    Result& result = found->second;
    const absl::string_view piece = result.bytes.substr(copying_->done, most);
    std::memcpy(copying_->memory->work.data() + copying_->done, piece.data(), piece.size());
    copying_->done += piece.size();
    if (copying_->done < result.bytes.size()) return true;
    result.bytes = {copying_->memory->work.data(), result.bytes.size()};
    result.memory = copying_->memory;
    result.keep = std::move(copying_->memory);
  }
  copying_.reset();
  return !to_copy_.empty();
}

}  // namespace phalanx::jobs
