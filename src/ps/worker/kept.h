// KeptEntries: the pushes and ends of clocks of one table that a worker keeps for one server, in
// the order of their positions, until the server cannot lose them any more.
//
// The end of clock c has the position {c + 1, 0, 0}: behind all pushes of clock c, and before those
// of the next one. Clocks that end one after another without a push can be one entry. A mark
// (kAllPushes, sync_core.h) is a push without keys, and stands before the end of its clock. The
// values of a push of all keys can be in an object of the store, which is there as long as the
// entry.
//
// Pure. Belongs to a WorkerCore. One thread at a time.
#ifndef PHALANX_PS_WORKER_KEPT_H_
#define PHALANX_PS_WORKER_KEPT_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "src/ps/sync_core.h"
#include "src/ps/worker/pieces.h"

namespace phalanx::ps::internal {

// About the memory of an entry, beside its keys and values.
inline constexpr uint64_t kKeptOverhead = 128;

class KeptEntries {
 public:
  struct Kept {
    uint64_t call = 0;  // numbers the calls of the worker
    Position at;        // of clocks, of the last one
    bool done = false;  // the server has it
    bool is_clock = false;
    uint64_t first_clock = 0;  // of clocks; the last one is at.clock - 1
    uint64_t ticket = 0;       // of a push; 0 when it was done before
    PieceKeys keys = {};
    std::string values = {};  // as they travel
    // Not empty: the values are those of the object of this name, with so many bytes.
    std::string object = {};
    uint64_t object_bytes = 0;

    uint64_t bytes() const {
      return kKeptOverhead + keys.bytes() + values.size() + object.size() + object_bytes;
    }
  };

  // All before this position is not this worker's to keep. REQUIRES: nothing was added.
  void Begin(const Position& at) { freed_ = at; }
  // `join`: the end of a clock behind that of another one can become one entry with it, which has
  // the later call. REQUIRES: kept.at is after all that was added.
  void Add(Kept kept, bool join);
  // Up to this position the server has all: the entries are done. Returns the tickets of pushes
  // that were not, one for each entry.
  std::vector<uint64_t> MarkDone(const Position& upto);
  // The same for the entry with this position. Returns its ticket; 0 if it is of clocks, is not
  // there, or was done. Of clocks that are one entry, only the last one has a position.
  uint64_t MarkOneDone(const Position& at);
  // The server has the entry with this position, or it is kept no more.
  bool IsDone(const Position& at) const;
  // A next life of the server has nothing behind this position: what was done is so no more, and
  // has no ticket, since it has counted for its call.
  void MarkLost(const Position& behind);
  // The server cannot lose what is up to this position: it is not kept any more. Returns as
  // MarkDone.
  std::vector<uint64_t> Free(const Position& upto);
  // Drops the pushes with this ticket.
  void Drop(uint64_t ticket);
  void Clear();

  // Objects of entries that are kept no more, since the last call of this.
  std::vector<std::string> TakeFreed() { return std::exchange(freed_objects_, {}); }

  std::deque<Kept>& entries() { return entries_; }
  const std::deque<Kept>& entries() const { return entries_; }
  // The last push that this or an earlier life of the server has had; {} if none is kept.
  Position Had() const;
  // What was freed, up to which position.
  const Position& freed() const { return freed_; }
  uint64_t bytes() const { return bytes_; }
  // Of the first object of this clock and of all behind it in the clock. REQUIRES: no object of a
  // later clock was added.
  uint64_t BytesFromObject(uint64_t clock) const {
    return clock == object_.clock ? object_bytes_ : 0;
  }
  // Entries that are not done.
  uint64_t undone() const { return undone_; }

 private:
  void Done(Kept& kept, std::vector<uint64_t>& tickets);
  // The entry is about to go.
  void Freed(Kept& kept);
  bool IsFromObject(const Position& at) const;
  void CountFromObject();

  std::deque<Kept> entries_;
  Position freed_;
  uint64_t bytes_ = 0;
  // The first object of the last clock with one, and the bytes from there on in that clock.
  Position object_;
  uint64_t object_bytes_ = 0;
  uint64_t undone_ = 0;
  std::vector<std::string> freed_objects_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_WORKER_KEPT_H_
