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
// drop it. The result of a call stays until spec.retain later calls have ended, or until it is
// released, unless the node has no room: then the oldest results go first, those of all groups
// together. Copies that are lost with their nodes are not made again.
//
// Pure. Owned by a GroupResults; one thread at a time.
#ifndef PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_
#define PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

// An error text of a call that has failed is kept up to this size.
inline constexpr size_t kMaxKeptErrorBytes = 256;

class KeptResults;

// The memory of all results that a node keeps, of all its groups, by their ages. Owned by all that
// keep results, and by what allocates memory for calls.
class KeptBytes {
 public:
  uint64_t limit = uint64_t{64} << 20;
  // Memory of the node is awaited: no result that would take some is kept meanwhile.
  size_t awaited = 0;

  uint64_t used() const { return used_; }
  // Those that take memory of the node.
  size_t node_results() const { return of_node_.size(); }
  // Of results that were not released yet.
  uint64_t dropped() const { return dropped_; }
  // Return false if there is none. The second one drops the oldest that takes memory of the node:
  // small ones are copies.
  bool DropOldest() { return !by_age_.empty() && Drop(by_age_.begin()->first); }
  bool DropOldestOfNode() { return !of_node_.empty() && Drop(*of_node_.begin()); }

 private:
  friend class KeptResults;
  struct Entry {
    KeptResults* owner = nullptr;
    uint64_t number = 0;
    uint64_t bytes = 0;
  };
  bool Drop(uint64_t age);

  uint64_t used_ = 0;
  uint64_t dropped_ = 0;
  uint64_t next_age_ = 1;
  std::map<uint64_t, Entry> by_age_;
  std::set<uint64_t> of_node_;  // by age
};

// A call that has ended with a result that is to be kept, or has failed.
struct EndedCall {
  uint64_t number = 0;
  CallSpec spec = {};
  int members = 0;  // that took part
  bool failed = false;
  std::string why = {};  // it has failed
  bool holds = false;    // this node is one of those that keep the result
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
    uint64_t age = 0;  // among the KeptBytes; 0 if it takes none
    std::string why;   // of kFailed
  };

  // `bytes` outlives this or is shared.
  explicit KeptResults(std::shared_ptr<KeptBytes> bytes) : bytes_(std::move(bytes)) {}
  ~KeptResults() { Clear(); }
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  // A call that was added before is kept if one of the two times says so. One that was released is
  // not added.
  void Add(const EndedCall& call);
  // Forgets the calls after `boot` up to `released` that are kept until then.
  void Release(uint64_t boot, uint64_t released);
  // All calls are forgotten.
  void Clear();
  // Null if the call is not known.
  const Result* Find(uint64_t number) const;
  ResultAnswer AnswerOf(uint64_t number) const;
  // The calls up to `last` have ended: forgets those that are kept no longer.
  void Trim(uint64_t last);

  // A result in the memory of a client is copied piece by piece, one after the other. Returns the
  // next one, and its size, if it needs memory now; each is returned once.
  std::optional<std::pair<uint64_t, uint64_t>> TakeToCopy();
  // Memory for it; null: there is none, and it is dropped.
  void Place(uint64_t number, std::shared_ptr<GroupMemory> memory);
  // Copies up to `most` bytes. Returns whether there is more to do.
  bool Copy(uint64_t most);

  size_t size() const { return results_.size(); }

 private:
  friend class KeptBytes;
  struct ToCopy {
    uint64_t number = 0;
    std::shared_ptr<GroupMemory> memory;  // null: asked for
    uint64_t done = 0;
  };

  void Hold(uint64_t number, Result& result, const EndedCall& call);
  void Drop(uint64_t number, Result& result);
  void Forget(uint64_t number);

  const std::shared_ptr<KeptBytes> bytes_;
  // By number; at most kMaxRetainedCalls, and kMaxUnreleasedCalls.
  std::map<uint64_t, Result> results_;
  // Each call is in one of the two. By the one whose end makes them needless.
  std::set<std::pair<uint64_t, uint64_t>> by_end_;
  std::set<uint64_t> unreleased_;
  // The newest Release.
  uint64_t boot_ = 0;
  uint64_t released_ = 0;
  std::set<uint64_t> to_copy_;
  std::optional<ToCopy> copying_;
};

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_RESULTS_KEPT_RESULTS_H_
