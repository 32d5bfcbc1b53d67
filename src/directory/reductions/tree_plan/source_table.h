// The sources of one reduction: what the plan knows of each, which of them are in a seat, and which
// wait for one. Owned by ReducePlan, which alone changes it, with its SlotTree and StarFold.
//
//   absent ──SetState──► ready, waiting ──TakeSeat──► ready, seated
//      ▲                    │      ▲                     │
//      └─────SetState───────┘      └──────LeaveSeat──────┘
//   any ──MarkFailed──► failed ──ClearFailure──► absent (while an open reduction takes sources)
//
// A source is ready while a node or the shard has bytes of it. A seated source that becomes absent
// keeps its seat until LeaveSeat: after a commit the seats do not change.
//
// A source that only nodes with slow links hold is slow. If there are more sources than the result
// has, slow ones wait until enough sources are ready. In a fixed order no source is slow.
//
// Invariants, checked by CheckInvariants
//  1. waiting() has exactly the ready sources without a seat, in the order of their arrival, and
//     the slow ones last.
//  2. A failed source is not ready.
//  3. The counts and lists are those of the entries.
//
// Thread rule: no thread, lock, clock or I/O inside; const methods keep caches and a count of work.
#ifndef PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SOURCE_TABLE_H_
#define PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SOURCE_TABLE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/reductions/tree_plan/plan_types.h"

namespace phalanx::directory {

// Returns true if the node has bytes, or all bytes, of the source.
bool Holds(const ReduceSource& state, const NodeKey& node);
bool HoldsComplete(const ReduceSource& state, const NodeKey& node);
// Returns the first complete holder, or the first one, and a fast one if there is one.
// REQUIRES: there are holders.
const ReduceSource::Holder& BestHolder(const ReduceSource& state);

class SourceTable {
 public:
  static constexpr int kNone = -1;

  struct Source {
    ObjectId id;
    // Set if the source is ready.
    std::optional<ReduceSource> state;
    absl::Status failure;  // OK if the source has not failed
    // A later arrival is greater, and those of slow sources are greater than all others; 0 if the
    // source is not ready.
    uint64_t arrival = 0;
    double speed = 1;      // of its best holder; 1 at the requested root
    SeatId seat;           // in a star, slot 0
    SeatId reserved_seat;  // in a fixed order, the only seat that the source can take

    bool failed() const { return !failure.ok(); }
    bool slow() const { return speed < 1; }
    // A node has bytes of it, so a seat is possible.
    bool seatable() const { return state && !state->holders.empty(); }
  };
  // By arrival: (arrival, index) of sources.
  using ArrivalSet = std::set<std::pair<uint64_t, int>>;

  // Begins with the sources of the spec. REQUIRES: `inputs` outlives the table.
  explicit SourceTable(const PlanInputs& inputs);

  // ---- the list
  void Add(const ObjectId& id);
  int size() const { return static_cast<int>(sources_.size()); }
  const Source& operator[](int source) const { return sources_[source]; }
  // Returns kNone if the object is no source.
  int Find(const ObjectId& id) const;
  // Returns how many sources the result has.
  int wanted() const;
  // Returns the end of the sources that can be in the result: in a fixed order, the first wanted()
  // that have not failed; otherwise all.
  int EligibleEnd() const;

  // ---- states
  // A state without holders and without inline bytes counts as absent.
  void SetState(int source, std::optional<ReduceSource> state);
  // The caller calls SetState(source, nullopt) next.
  // REQUIRES: the source has not failed.
  void MarkFailed(int source, const absl::Status& why);
  // The source can be ready again. Does nothing if it has not failed. REQUIRES: no source has a
  // seat.
  void ClearFailure(int source);
  int ready() const { return ready_; }
  int remaining() const { return size() - failed_; }
  // Returns why a source failed, naming the source: the one that failed last, if it still counts as
  // failed. OK if none has failed.
  absl::Status why_failed() const;
  const ArrivalSet& waiting() const { return waiting_; }
  // Returns true if the source is slow, and sources that are not ready yet can take its place.
  bool HeldBack(const Source& source) const;
  // Returns how much sooner the result would be complete if waiting sources took the places of
  // slow ones: the factor by which the slowest seated source becomes faster. 1 if it does not.
  double SpeedUp() const;
  // The speed of the slowest seated source.
  double SlowestSeated() const;
  // Returns the source that was seatable first, seated or not, or null.
  const Source* FirstSeatable() const;
  // Returns true if the requested root is up and the best node for the source.
  bool AtRoot(const Source& source) const;
  // Returns how many bytes of a ready source are folded.
  uint64_t FoldBytes(const Source& source) const;
  // InvalidArgument naming the ready source if it has another size than the first one, is not a
  // whole number of elements, or does not contain the range.
  absl::Status CheckFits(const Source& source) const;

  // ---- seats
  void TakeSeat(int source, const SeatId& seat);
  void LeaveSeat(int source);
  void ReserveSeat(int source, const SeatId& seat);
  // Clears all seats and reservations.
  void ClearSeats();
  // Returns the metadata of the result of the seated sources.
  std::string SeatedMetadata() const;

  // Counts sources that a component has visited to decide.
  void CountExamined(uint64_t sources) const { examined_ += sources; }
  uint64_t TakeExamined() { return std::exchange(examined_, 0); }

  absl::Status CheckInvariants() const;

 private:
  // Arrivals of slow sources have this bit.
  static constexpr uint64_t kSlowArrival = uint64_t{1} << 63;

  int FindEligibleEnd() const;
  // Takes the source out of the sets below, and puts it back with its new state.
  void Unlist(int source);
  void List(int source);
  double SpeedOf(const Source& source) const;

  const PlanInputs& inputs_;
  std::vector<Source> sources_;                 // in the order of the list
  absl::flat_hash_map<ObjectId, int> indexes_;  // never iterated: its order is random
  int ready_ = 0;
  int failed_ = 0;
  int last_failed_ = kNone;  // kNone also if another source failed before
  uint64_t last_arrival_ = 0;
  ArrivalSet waiting_;
  ArrivalSet seatable_;                           // seated or not
  std::set<std::pair<double, int>> slow_seated_;  // (speed, index)
  // eligible_end_ is valid for this (failed_, size()).
  mutable std::pair<int, int> eligible_end_for_ = {-1, 0};
  mutable int eligible_end_ = 0;
  mutable uint64_t examined_ = 0;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_REDUCTIONS_TREE_PLAN_SOURCE_TABLE_H_
