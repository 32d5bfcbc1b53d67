#include "src/local/client_reductions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phalanx::object_store {

absl::Status ClientReductions::Admit(size_t ids) {
  // The first call always fits, so that each call that the protocol allows can be made.
  if (ids_ > 0 && ids_ + ids + 1 > kMaxReduceIds) {
    return absl::ResourceExhaustedError(absl::StrCat("this client's reductions under way name ",
                                                     ids_, " objects; ", ids,
                                                     " more exceed the limit of ", kMaxReduceIds));
  }
  ids_ += ids + 1;
  return absl::OkStatus();
}

std::optional<RequestId> ClientReductions::Cancel(uint64_t request) {
  const auto it = waiting_.find(request);
  if (it == waiting_.end()) return std::nullopt;
  const Waiting cancelled = it->second;
  waiting_.erase(it);
  Answered(cancelled.ids);
  return cancelled.id;
}

std::vector<uint64_t> ClientReductions::requests() const {
  std::vector<uint64_t> requests;
  for (const auto& [request, waiting] : waiting_) requests.push_back(request);
  // The map's order differs from run to run.
  std::sort(requests.begin(), requests.end());
  return requests;
}

absl::Status ClientReductions::AdmitSources() {
  if (source_answers_ == kMaxReducedFromAnswers) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source_answers_,
                     " requests of this client for the sources of a result have "
                     "not been answered"));
  }
  ++source_answers_;
  return absl::OkStatus();
}

}  // namespace phalanx::object_store
