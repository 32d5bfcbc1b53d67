// One client's calls about reductions that have not been answered, and their limits: the ids that
// they name, and the answers with the sources of a result.
//
//   Admit ──► Add (a Reduce) ──► Remove, Answered      the reducer has answered
//     │                    └───► Cancel                the reducer does not answer
//     └─────► Answered (an Extend or Fail)
//
// Owned by a LocalSession, which calls the reducer; loop thread only.
#ifndef PHALANX_LOCAL_CLIENT_REDUCTIONS_H_
#define PHALANX_LOCAL_CLIENT_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

// Limit of the ids in one client's calls about reductions that have not been answered. A call
// counts as one id more than it names.
inline constexpr size_t kMaxReduceIds = 1 << 20;
// Limit of the unanswered requests of one client for the sources of a result.
inline constexpr size_t kMaxReducedFromAnswers = 64;

class ClientReductions {
 public:
  // Counts a call that names `ids` ids. Fails with ResourceExhausted beyond kMaxReduceIds; a call
  // always fits if no other is counted.
  absl::Status Admit(size_t ids);
  // Ends the count of an admitted call.
  void Answered(size_t ids) { ids_ -= ids + 1; }

  // An admitted Reduce waits for the reducer.
  void Add(uint64_t request, RequestId id, size_t ids) { waiting_[request] = {id, ids}; }
  bool Contains(uint64_t request) const { return waiting_.contains(request); }
  // The reducer has answered; the caller calls Answered. Returns false if the Reduce was cancelled.
  bool Remove(uint64_t request) { return waiting_.erase(request) > 0; }
  // Removes a Reduce and ends its count. Returns the reducer's id of it, or nothing if no such
  // Reduce waits.
  std::optional<RequestId> Cancel(uint64_t request);
  // Waiting Reduces, ascending.
  std::vector<uint64_t> requests() const;

  // Counts a request for the sources of a result until SourcesAnswered. Fails with
  // ResourceExhausted at kMaxReducedFromAnswers: an answer can name thousands of ids.
  absl::Status AdmitSources();
  void SourcesAnswered() { --source_answers_; }

 private:
  struct Waiting {
    RequestId id = 0;
    size_t ids = 0;
  };
  absl::flat_hash_map<uint64_t, Waiting> waiting_;
  size_t ids_ = 0;
  size_t source_answers_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_CLIENT_REDUCTIONS_H_
