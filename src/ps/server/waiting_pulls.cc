#include "src/ps/server/waiting_pulls.h"

#include <algorithm>
#include <numeric>

#include "phalanx/elements.h"
#include "src/common/check.h"
#include "src/ps/rows/length_values.h"

namespace phalanx::ps::internal {
namespace {

// Keys of a run that one answer has at most, where rows have lengths.
constexpr uint64_t kMostRunKeys = 4096;

}  // namespace

void WaitingPulls::Add(Token token, Pull pull) {
  ++of_worker_[pull.worker].pulls;
  const bool added = pulls_.emplace(token, std::move(pull)).second;
  PHALANX_CHECK(added, "a token is used once");
}

const WaitingPulls::Pull* WaitingPulls::Find(Token token) const {
  const auto found = pulls_.find(token);
  return found == pulls_.end() ? nullptr : &found->second;
}

WaitingPulls::Pull WaitingPulls::Take(Token token) {
  auto taken = pulls_.extract(token);
  PHALANX_CHECK(!taken.empty(), "a pull that waits");
  --of_worker_[taken.mapped().worker].pulls;
  return std::move(taken.mapped());
}

void WaitingPulls::MakeReady(Token token) {
  const int worker = pulls_.at(token).worker;
  of_worker_[worker].ready.push_back(token);
  ready_.insert(worker);
  readied_.insert(worker);
}

// A run is kept as its two ends: the list of its keys can be larger than the answer.
absl::Span<const Key> WaitingPulls::KeysOf(const Pull& pull) {
  if (pull.keys != nullptr) return absl::MakeConstSpan(*pull.keys).subspan(pull.answered);
  const uint64_t left = pull.count - pull.answered;
  // One answer may have a few rows alone, and there can be many answers.
  keys_.resize(spec_.lengths ? std::min(left, kMostRunKeys) : left);
  std::iota(keys_.begin(), keys_.end(), pull.begin + pull.answered);
  return keys_;
}

std::string WaitingPulls::ReadRows(absl::Span<const Key> keys) {
  const uint64_t elements = keys.size() * spec_.width;
  std::string bytes(elements * ElementSize(spec_.wire), '\0');
  if (spec_.wire == spec_.dtype) {
    part_.Pull(keys, bytes.data());
    return bytes;
  }
  // Read as they are stored, and converted in one loop.
  elements_.resize(elements * ElementSize(spec_.dtype));
  part_.Pull(keys, elements_.data());
  Convert(spec_.dtype, spec_.wire, elements_.data(), bytes.data(), elements);
  return bytes;
}

std::string WaitingPulls::ReadLengthRows(absl::Span<const Key> keys, uint64_t& rows) {
  rows = part_.PullLengths(keys, answer_bytes_, lengths_, elements_);
  return WriteLengthValues(spec_, lengths_, {elements_.data(), elements_.size()});
}

bool WaitingPulls::AnswerFirst(int worker, uint64_t min_clock) {
  std::deque<Token>& ready = of_worker_[worker].ready;
  if (ready.empty()) return false;
  const auto found = pulls_.find(ready.front());
  PHALANX_CHECK(found != pulls_.end(), "a pull that is ready");
  Pull& pull = found->second;
  const absl::Span<const Key> keys = KeysOf(pull);
  uint64_t rows = keys.size();
  std::string bytes = spec_.lengths ? ReadLengthRows(keys, rows) : ReadRows(keys);
  answers_.push_back(
      {worker,
       {.ticket = pull.ticket, .piece = pull.piece, .min_clock = min_clock, .values = {}},
       std::move(bytes)});
  pull.answered += rows;
  if (pull.answered < (pull.keys == nullptr ? pull.count : pull.keys->size())) return true;
  --of_worker_[worker].pulls;
  pulls_.erase(found);
  ready.pop_front();
  if (ready.empty()) ready_.erase(worker);
  return true;
}

void WaitingPulls::AnswerAllOf(int worker, uint64_t min_clock) {
  while (AnswerFirst(worker, min_clock)) {
  }
}

void WaitingPulls::AnswerAll(uint64_t min_clock) {
  while (!ready_.empty()) AnswerAllOf(*ready_.begin(), min_clock);
}

bool WaitingPulls::Drop(int worker) {
  if (of_worker_[worker].pulls == 0) return false;
  absl::erase_if(pulls_, [worker](const auto& entry) { return entry.second.worker == worker; });
  of_worker_[worker] = OfWorker();
  ready_.erase(worker);
  return true;
}

void WaitingPulls::Clear() {
  pulls_.clear();
  for (OfWorker& worker : of_worker_) worker = OfWorker();
  ready_.clear();
}

std::vector<int> WaitingPulls::TakeReadied() {
  const std::set<int> readied = std::exchange(readied_, {});
  return {readied.begin(), readied.end()};
}

}  // namespace phalanx::ps::internal
