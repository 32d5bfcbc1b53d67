// TurnSums: the attempts at the sum of the first turn's objects. The owner of the server makes
// them.
//
//   Begin ──► under way ──OnReduced──► the turn is made
//               ├─ failed ── Retry ──► another attempt
//               ├─ objects are replaced ──► a second attempt beside it; for more, one at Retry
//               └─ Void: the objects are none of the turn any more, so no sum of them is needed
//
// A ring sum (rows/ring_sums.h) has the rows as its first source, and makes the next version: a
// turn without pushes with keys is one, if the table allows it. Where there is no ring the owner
// sums its slices, and there is no such version.
//
// Pure. Belongs to a ServerTable, whose turns and objects these are. One thread at a time.
#ifndef PHALANX_PS_SERVER_TURN_SUMS_H_
#define PHALANX_PS_SERVER_TURN_SUMS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/ps/server/kept_pushes.h"
#include "src/ps/server/object_pushes.h"
#include "src/ps/server/turn_queue.h"
#include "src/ps/server/versions.h"

namespace phalanx::ps::internal {

// Attempts at the same sum that are under way at a time.
inline constexpr uint64_t kMostAttempts = 2;
// So many attempts one after the other do not find an object of a worker that lives: it is lost.
// Longer than it takes until a death is known.
inline constexpr int kLostAttempts = 20;

class TurnSums {
 public:
  using Token = SyncCore::Token;
  struct Reduce {
    uint64_t attempt;
    uint64_t clock;
    std::vector<std::string> handles;  // in the order of the sum
    bool only;                         // earlier attempts are void
    // Of a ring sum: the version that the rows are, and that which it makes. Else empty.
    std::string base = {};
    std::string target = {};
  };
  // This life of the worker lives.
  using Lives = std::function<bool(int worker, uint64_t life)>;

  // `ring_bytes`: of the part, if turns can be ring sums; else 0.
  TurnSums(TurnQueue& turns, ObjectPushes& objects, const KeptPushes& kept, Versions& versions,
           uint64_t ring_bytes)
      : turns_(turns),
        objects_(objects),
        kept_(kept),
        versions_(versions),
        ring_bytes_(ring_bytes) {}

  // The first turn waits for its sum, which is begun if it was not. False: it has no objects.
  // REQUIRES: there is a turn.
  bool Await();
  // The object of this push is another one now.
  void OnReplaced(const Position& at);
  // These pushes never count.
  void TakeOut(const std::vector<Token>& pushes);
  // Pushes of this clock are others now.
  void OnChanged(uint64_t clock);
  // No attempt is of use any more.
  void Void();
  // The attempt has failed. An error: so has the table, with it. Of a void attempt: nothing.
  // `handle`: of the push or of the rows' version that is to blame; empty: it is not known.
  absl::Status OnFailed(uint64_t attempt, const absl::Status& why, absl::string_view handle,
                        const Lives& lives);
  // The rows could not be published as this version: an attempt that has it as a source cannot end.
  void OnPublishFailed(absl::string_view handle);
  // This attempt at a ring sum goes on in slices: those that were answered ahead ask again, and no
  // others are.
  void OnSlices(uint64_t attempt);
  // This attempt at a ring sum is there: `target`, its version as well. Where one ring was made the
  // next one is likely to be.
  void OnRing(uint64_t attempt, bool target);
  // The first turn is a ring sum that is under way, and pulls behind it are answered with what it
  // is to make.
  bool answers_ahead() const {
    return rings_ && turns_.reduces() && turns_.failed().ok() && versions_.ahead(turns_.attempt());
  }
  // The sum of this attempt has the rows, whether a ring makes it or not.
  bool has_rows(uint64_t attempt) const { return with_rows_.contains(attempt); }
  // Another attempt is to be made after a while, by Retry.
  bool wants_retry() const { return stale_ || !turns_.failed().ok(); }
  void Retry();

  std::optional<Reduce> TakeReduce() { return std::exchange(reduce_, std::nullopt); }
  // No sum that is under way is needed any more, since the last call.
  bool TakeCancelled() { return std::exchange(cancelled_, false); }
  // Of the first turn, for errors: its only push, the one with this handle, or the sum of all.
  std::string NameOf(absl::string_view handle) const { return NameOf(PushOf(handle)); }
  std::string Describe() const;

 private:
  bool HasObjects() const;
  bool IsRing(size_t objects) const;
  std::vector<std::string> Handles() const;
  // Null: it is not known which one.
  const ObjectPushes::One* PushOf(absl::string_view handle) const;
  std::string NameOf(const ObjectPushes::One* push) const;
  bool OwnersLive(const ObjectPushes::One* push, const Lives& lives) const;
  void Begin(bool only);

  TurnQueue& turns_;
  ObjectPushes& objects_;
  const KeptPushes& kept_;
  Versions& versions_;
  const uint64_t ring_bytes_;
  std::string base_;              // of the newest attempt
  std::set<uint64_t> with_rows_;  // attempts that have not failed
  bool rings_ = false;            // the last ring sum was made in a ring
  std::optional<Reduce> reduce_;  // that has not been taken
  bool cancelled_ = false;
  bool stale_ = false;     // objects were replaced since the newest attempt has begun
  int lost_attempts_ = 0;  // the last ones, each without an object of a worker that lives
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_TURN_SUMS_H_
