// HoldersOf: the nodes that keep the result of a call. KeptResults: the results that this node
// keeps, and what it knows of those that other nodes keep.
//
//   call    1 2 3 4 5 6 7 8 ...                copies = 2, hosts a b c d
//   host a  ● ●   ●   ●     ●
//   host b  ●   ● ●     ● ●                    a call's holders are on different hosts, and over
//   host c    ● ●   ● ●   ●                    many calls every host keeps as much as the others
//   host d          ●   ● ●
//
// A holder is a function of the call's number and of the list of members, so all nodes find the
// same ones without a message. Every node has the result when the call ends, and the holders do not
// drop it. The result of a call stays until spec.retain later calls have ended, unless the node has
// no room: then the oldest results go first. Copies that are lost with their nodes are not made
// again.
//
// Pure. Owned by a GroupResults; one thread at a time.
#ifndef PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_
#define PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/jobs/group/call_resources.h"
#include "src/jobs/group/group_list.h"
#include "src/jobs/group/group_wire.h"

namespace phalanx::jobs {

// A result up to this size is copied at once.
inline constexpr uint64_t kCopiedResultBytes = kPooledResultBytes;

// By index in `list`, ascending in the order of hosts from the first one that keeps the call:
// spec.copies nodes on different hosts, or one on each host if there are fewer. `firsts`: by node,
// the first call in which it takes part. The root of a Broadcast has the bytes in its client's
// memory, so its host keeps them only if others do not suffice.
std::vector<int> HoldersOf(const GroupList& list, const std::vector<uint64_t>& firsts,
                           const CallSpec& spec, uint64_t number);

// The memory of all results that a node keeps, of all its groups.
struct KeptBytes {
  uint64_t limit = uint64_t{64} << 20;
  uint64_t used = 0;
};

// A call that has ended with a result that is to be kept, or has failed.
struct EndedCall {
  uint64_t number = 0;
  CallSpec spec = {};
  int members = 0;  // that took part
  bool failed = false;
  bool holds = false;  // this node is one of those that keep the result
  // The result that any member has, if it is the same for all; in `memory`, or in `input`, which
  // belongs to a client.
  absl::string_view result = {};
  std::shared_ptr<const GroupMemory> memory = {};
  std::shared_ptr<const void> input = {};
};

class KeptResults {
 public:
  struct Result {
    Kept kept = Kept::kUnknown;
    CallSpec spec;
    int members = 0;
    // Of kHere: in `memory`, or in what `keep` keeps.
    absl::string_view bytes;
    std::shared_ptr<const GroupMemory> memory;
    std::shared_ptr<const void> keep;
    uint64_t counted = 0;
  };

  // `bytes` outlives this or is shared.
  explicit KeptResults(std::shared_ptr<KeptBytes> bytes) : bytes_(std::move(bytes)) {}
  ~KeptResults() { Clear(); }
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  // A call that was added before is kept if one of the two times says so.
  void Add(const EndedCall& call);
  // All calls are forgotten.
  void Clear();
  // Null if the call is not known.
  const Result* Find(uint64_t number) const;
  ResultAnswer AnswerOf(uint64_t number) const;
  // A call needs so many bytes: results of the others must not take more than that is left of twice
  // the limit. Drops the oldest ones.
  void MakeRoom(uint64_t bytes);

  // A result in the memory of a client is copied piece by piece. Returns the next one to copy that
  // has no memory yet; each is returned once.
  std::optional<std::pair<uint64_t, uint64_t>> TakeToCopy();
  // Memory for it; null: there is none.
  void Place(uint64_t number, std::shared_ptr<GroupMemory> memory);
  // Copies up to `most` bytes. Returns whether more are left.
  bool Copy(uint64_t most);

  size_t size() const { return results_.size(); }

 private:
  struct ToCopy {
    uint64_t number = 0;
    std::shared_ptr<GroupMemory> memory;
    uint64_t done = 0;
  };

  void Hold(uint64_t number, Result& result, const EndedCall& call);
  bool DropOldest();
  void Drop(Result& result, Kept kept);
  void Trim(uint64_t last);

  const std::shared_ptr<KeptBytes> bytes_;
  // By number; at most kMaxRetainedCalls.
  std::map<uint64_t, Result> results_;
  std::deque<uint64_t> to_place_;
  std::deque<ToCopy> to_copy_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_
