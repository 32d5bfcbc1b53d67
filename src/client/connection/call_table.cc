#include "src/client/connection/call_table.h"

#include <algorithm>

namespace phalanx::internal {

std::shared_ptr<Call> CallTable::Find(uint64_t number) const {
  const auto it = open_.find(number);
  return it == open_.end() ? nullptr : it->second;
}

std::vector<uint64_t> CallTable::Numbers() const {
  std::vector<uint64_t> numbers;
  numbers.reserve(open_.size());
  for (const auto& [number, call] : open_) numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

void CallTable::Begin(const std::shared_ptr<Call>& call, const CallRequests& requests) {
  if (requests.count > 0) open_[requests.first] = call;
  if (!requests.deadline.infinite()) deadlines_[{requests.deadline, requests.first}] = call;
}

void CallTable::EndPart(uint64_t number, Trash& trash) {
  const auto it = open_.find(number);
  if (it == open_.end()) return;
  trash.push_back(std::move(it->second));
  open_.erase(it);
}

void CallTable::End(const CallRequests& requests, Trash& trash) {
  for (uint64_t n = requests.first; n < requests.first + requests.count; ++n) EndPart(n, trash);
  // Most calls have no deadline; they skip the search.
  if (requests.deadline.infinite()) return;
  const auto it = deadlines_.find({requests.deadline, requests.first});
  if (it == deadlines_.end()) return;
  trash.push_back(std::move(it->second));
  deadlines_.erase(it);
}

}  // namespace phalanx::internal
