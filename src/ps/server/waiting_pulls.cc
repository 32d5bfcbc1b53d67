#include "src/ps/server/waiting_pulls.h"

#include <numeric>

#include "absl/types/span.h"
#include "phalanx/elements.h"
#include "src/common/check.h"

namespace phalanx::ps::internal {

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
bool WaitingPulls::AnswerFirst(int worker, uint64_t min_clock) {
  std::deque<Token>& ready = of_worker_[worker].ready;
  if (ready.empty()) return false;
  const Pull pull = Take(ready.front());
  ready.pop_front();
  if (ready.empty()) ready_.erase(worker);
  if (pull.keys == nullptr) {
    keys_.resize(pull.count);
    std::iota(keys_.begin(), keys_.end(), pull.begin);
  }
  const absl::Span<const Key> keys =
      pull.keys == nullptr ? absl::MakeConstSpan(keys_) : absl::MakeConstSpan(*pull.keys);
  const uint64_t elements = keys.size() * spec_.width;
  Answer answer{worker,
                {.ticket = pull.ticket, .piece = pull.piece, .min_clock = min_clock, .values = {}},
                std::string(elements * ElementSize(spec_.wire), '\0')};
  if (spec_.wire == spec_.dtype) {
    part_.Pull(keys, answer.bytes.data());
  } else {
    // Read as they are stored, and converted in one loop.
    elements_.resize(elements * ElementSize(spec_.dtype));
    part_.Pull(keys, elements_.data());
    Convert(spec_.dtype, spec_.wire, elements_.data(), answer.bytes.data(), elements);
  }
  answers_.push_back(std::move(answer));
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
