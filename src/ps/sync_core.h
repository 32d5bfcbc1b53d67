// SyncCore: the consistency of one part of a table: which pushes count when, and which pulls wait.
//
// Clocks as in Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
// server" (NIPS 2013): a worker's clock is how many it has ended; m is the least of all workers.
//
//        a push at clock c       a pull at clock c           when m rises
//   BSP  kept for clock c        c == m: answered, with      one turn for each clock with pushes
//                                what was there when clock   that is now ended by all: its pushes
//                                in m began; c > m: waits       the order of (worker, position),
//                                then until m == c                the pulls of the clocks after it
//   SSP  counts at once          c - m <= s: answered;       the pulls that may go
//                                else waits until m >= c - s
//   ASP  counts at once          answered                    nothing
//
// SSP(0) is not BSP: it waits alike, but a pull sees pushes of the same clock of faster workers.
//
// A push has a position, which grows along the pushes of a worker. A push or a clock that is not
// after the last one of this worker is ignored: a next life makes its clock again, with the same
// pushes as far as it can, and a worker sends again what a server may have lost. A push with the
// number kAllPushes is a mark, and moves the position alone: with it a worker knows at its next
// life that a server has all its pushes of the clock (worker_core.h, rule 4).
//
// Payloads and pulls are tokens of the owner. Pure. Belongs to a ServerCore, or a test. One thread
// at a time.
#ifndef PHALANX_PS_SYNC_CORE_H_
#define PHALANX_PS_SYNC_CORE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/ps_table.h"
#include "src/ps/clocks.h"

namespace phalanx::ps::internal {

// Which push of a worker: the clock in which it is made, its number among the calls of Push for the
// table in that clock, from 1, and the number of the message that carries it. A push with number
// kAllPushes is a mark that counts for nothing: all others of its clock have come.
inline constexpr uint32_t kAllPushes = ~uint32_t{0};
struct Position {
  uint64_t clock = 0;
  uint32_t push = 0;
  uint32_t piece = 0;
  friend auto operator<=>(const Position&, const Position&) = default;
};

// More than any worker ends. What was saved with a greater one is refused, so that a clock can be
// added to without a wrap.
inline constexpr uint64_t kMaxClock = uint64_t{1} << 62;

class SyncCore {
 public:
  using Token = uint64_t;
  struct Options {
    std::string table;  // for errors
    Sync sync = Sync::kBsp;
    uint32_t staleness = 0;
    int workers = 0;
  };
  // What the owner does, in this order.
  struct Apply {  // SSP, ASP: the push counts now
    int worker;
    Token push;
  };
  struct Turn {  // BSP: these pushes, in this order, are those of the clock
    uint64_t clock;
    std::vector<Token> pushes;
  };
  struct Answer {
    Token pull;
  };
  struct Drop {  // BSP: the push never counts
    Token push;
  };
  using Effect = std::variant<Apply, Turn, Answer, Drop>;

  explicit SyncCore(const Options& options);

  // Returns false if the push is a mark, or is ignored, since it, or a later one, or its clock's
  // end, has come before. InvalidArgument names the worker and both clocks if the push is of a
  // clock that the worker has not reached, or the worker is not counted, or the push has number 0.
  absl::StatusOr<bool> Push(int worker, const Position& at, Token push);
  // The worker has ended this clock. The same.
  absl::StatusOr<bool> Clock(int worker, uint64_t clock);
  // InvalidArgument if the worker has not reached the clock, or is not counted. A pull of a clock
  // that the worker has ended already, as its next life can make, is answered as one of `clock`
  // would be now: never earlier than that.
  absl::Status Pull(int worker, uint64_t clock, Token pull);
  // The worker has died, or left: pulls that wait are dropped without an answer.
  void Forget(int worker);
  // Forget, and it is not counted any more. With BSP its pushes of the clock that it has not ended
  // are dropped, and count if they come again after Rejoin.
  void Remove(int worker);
  // It is counted again, from this clock on, which is the least one or a later one.
  uint64_t Rejoin(int worker);

  uint64_t min() const { return clocks_.min(); }
  const Clocks& clocks() const { return clocks_; }
  // After this position a push of the worker counts: the last one, or {clock, 0, 0} at the
  // beginning of its clock.
  Position PositionOf(int worker) const;
  struct Parked {
    int worker;
    uint64_t clock;
    int on;  // of one worker at the least clock: on whom it waits
  };
  // Pulls that wait, in the order in which they can be answered.
  std::vector<Parked> parked() const;

  std::vector<Effect> TakeEffects();

  // For snapshots: clocks, positions, and with BSP the tokens of pushes that are kept, each with
  // its worker and position, in that order. Pulls that wait are not in it: workers ask again.
  struct Saved {
    std::vector<Clocks::Worker> clocks;
    std::vector<Position> positions;  // by worker
    struct Kept {
      int worker;
      Position at;
      Token push;
    };
    std::vector<Kept> kept;
    uint64_t min = 0;  // matters only if no worker is counted
  };
  Saved Save() const;
  // Replaces everything. Tokens are the new owner's. InvalidArgument, and nothing is changed, if a
  // core with these options cannot have saved this.
  absl::Status Load(const Saved& saved);

 private:
  // Where a push is in the fold of its clock.
  struct Place {
    uint64_t clock;
    int worker;
    Position at;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  struct Waiting {
    int worker;
    Token pull;
  };

  absl::Status CheckReached(int worker, uint64_t clock, absl::string_view what) const;
  absl::Status CheckSaved(const Saved& saved) const;
  // The greatest clock of which pulls may be answered now.
  uint64_t Readable() const;
  // m has risen.
  void Risen();
  void TakeTurn(uint64_t clock);
  void AnswerUpTo(uint64_t clock);

  const Options options_;
  Clocks clocks_;
  std::vector<Position> last_;                       // by worker, the last push that counts
  std::map<Place, Token> kept_;                      // BSP
  std::map<uint64_t, std::vector<Waiting>> parked_;  // by clock, each in the order of Pull
  std::vector<Effect> effects_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SYNC_CORE_H_
