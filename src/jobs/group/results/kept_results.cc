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

// Whether all nodes can keep the call, each as the only one of its host: what NodesByHost returns
// is known then.
bool EachIsAHost(const GroupList& list, const std::vector<uint64_t>& firsts, const CallSpec& spec,
                 uint64_t number) {
  const auto nodes = static_cast<size_t>(list.shape.nodes());
  return static_cast<size_t>(list.hosts) == nodes && firsts.size() >= nodes &&
         spec.kind != CallKind::kBroadcast &&
         std::all_of(firsts.begin(), firsts.begin() + static_cast<ptrdiff_t>(nodes),
                     [number](uint64_t first) { return first <= number; });
}

}  // namespace

// The quotient moves the pattern, so that large calls at regular distances meet all hosts, too.
std::vector<int> HoldersOf(const GroupList& list, const std::vector<uint64_t>& firsts,
                           const CallSpec& spec, uint64_t number) {
  const bool alone = EachIsAHost(list, firsts, spec, number);
  std::vector<std::vector<int>> hosts;
  if (!alone) hosts = NodesByHost(list, firsts, spec, number);
  const size_t count = alone ? static_cast<size_t>(list.hosts) : hosts.size();
  std::vector<int> holders;
  const size_t copies = std::min<size_t>(spec.copies, count);
  for (size_t i = 0; i < copies; ++i) {
    const uint64_t turn = number / count;
    const uint64_t host = (number * spec.copies + turn + i) % count;
    holders.push_back(alone ? static_cast<int>(host) : hosts[host][turn % hosts[host].size()]);
  }
  return holders;
}

// The first one, in the order of ages, of those that are needed least.
template <typename Ages, typename EntryOf>
bool KeptBytes::DropFirst(const Ages& ages, EntryOf entry_of) {
  const Entry* chosen = nullptr;
  int least = 3;
  for (auto age = ages.begin(); age != ages.end() && least > (numbered_ > 0 ? 0 : 1); ++age) {
    const Entry& each = entry_of(*age);
    const int need = each.numbered ? 0 : each.number > each.owner->boot_ ? 1 : 2;
    if (need >= least) continue;
    least = need;
    chosen = &each;
  }
  if (chosen == nullptr) return false;
  KeptResults& owner = *chosen->owner;
  owner.Lose(chosen->number, owner.results_.at(chosen->number));
  return true;
}

bool KeptBytes::DropOldest() {
  return DropFirst(by_age_, [](const auto& each) -> const Entry& { return each.second; });
}

bool KeptBytes::DropOldestOfNode() {
  return DropFirst(of_node_, [this](uint64_t age) -> const Entry& { return by_age_.at(age); });
}

void KeptBytes::Add(uint64_t age, const Entry& entry, bool of_node) {
  by_age_[age] = entry;
  if (of_node) of_node_.insert(age);
  used_ += entry.bytes;
  numbered_ += entry.numbered ? 1 : 0;
}

void KeptBytes::Remove(uint64_t age) {
  const auto found = by_age_.find(age);
  if (found == by_age_.end()) return;
  used_ -= found->second.bytes;
  numbered_ -= found->second.numbered ? 1 : 0;
  of_node_.erase(age);
  by_age_.erase(found);
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
    const auto tail = unreleased_.upper_bound(boot_);
    Forget(tail == unreleased_.end() ? *unreleased_.begin() : *tail);
  }
}

void KeptResults::Release(uint64_t boot, uint64_t released) {
  boot_ = std::max(boot_, boot);
  released_ = std::max(released_, released);
  const uint64_t last_kept = DefectActive(Defect::kBootResultsReleased) ? 0 : boot_;
  for (auto at = unreleased_.upper_bound(last_kept); at != unreleased_.end() && *at <= released_;) {
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
    bytes_->Add(result.age, {this, number, counted, call.spec.retain != kUntilReleased}, !small);
  }
  if (!small && bytes_->awaited > 0) Lose(number, result);
  // Perhaps this one, if the others are needed longer.
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

void KeptResults::Lose(uint64_t number, Result& result) {
  if (unreleased_.contains(number)) ++bytes_->dropped_;
  Drop(number, result);
}

void KeptResults::Drop(uint64_t number, Result& result) {
  bytes_->Remove(std::exchange(result.age, 0));
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
  if (wanted) Lose(number, found->second);
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
