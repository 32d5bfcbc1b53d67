// Folds objects into one while their bytes arrive, on an I/O loop.
//
//   input 0 ──┐
//   input 1 ──┼─► blocks up to the least watermark ─► output, published behind
//   input n ──┘
//
// The inputs are folded from left to right, in whole elements. One of the first two may lie in the
// output's own memory (another TransferBuffer over the same bytes): it is folded in place, which
// saves a pull its scratch. The output's last bytes may be held back: whoever reads along has then
// all but the end until it is released.
//
// Invariants
//  1. folded <= the least of the inputs' watermarks; published <= folded, and below the bytes that
//     are held back.
//  2. In place, what lies below `folded` is output, what lies above is input.
//  3. When `done` has been called, nothing of the spec is referenced any more.
//
// Thread rule: made, used and destroyed on the control loop, where `done` runs too; the work is
// done on `io`, a bounded amount in each turn, between which it waits without cost.
#ifndef PHALANX_COLLECTIVES_STREAM_FOLD_H_
#define PHALANX_COLLECTIVES_STREAM_FOLD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/collectives/block_fold.h"
#include "src/common/executor.h"
#include "src/net/transfer_buffer.h"

namespace phalanx::collectives {

class StreamFold {
 public:
  static constexpr int kWhole = -1;

  struct Input {
    std::shared_ptr<net::TransferBuffer> from;
    // Its bytes from here on are folded, as many as the output has.
    uint64_t offset = 0;
    // A source as it was put: goes through Prepare() where that is called for.
    bool raw = false;
    // Of this slice alone, from whose begin `offset` counts then; kWhole: of the object.
    int slice = kWhole;
  };

  struct Spec : BlockFold::Spec {
    std::vector<Input> inputs;
    // The output is this slice of it. Nobody else publishes to that.
    std::shared_ptr<net::TransferBuffer> into;
    int into_slice = 0;
    // So many bytes at the end are not published before Release().
    uint64_t hold_back = 0;
    // Bytes that an earlier fold into the same memory has folded.
    uint64_t begin = 0;
  };

  struct Outcome {
    // OK: all is folded. Cancelled, or why an input was closed before its end.
    absl::Status status;
    // Which input that was; -1 if none.
    int input = -1;
    // Bytes of the output that are folded, published or not.
    uint64_t folded = 0;
  };
  using Done = absl::AnyInvocable<void(const Outcome&)>;

  // REQUIRES: at least one input; CheckReducible(elements, op); the output is a whole number of
  // elements, at least `begin` and `hold_back` bytes (runs of elements are those of the object that
  // it is a slice of); each input reaches as far; at most one input is in the output's memory, and
  // that is one of the first two. Input and output may be slices of two buffers over one object's
  // memory. Both executors outlive this.
  StreamFold(Spec spec, Executor& io, Executor& control, Done done);
  // `done` is not called any more. What was begun ends in a later turn of `io`.
  ~StreamFold();
  StreamFold(const StreamFold&) = delete;
  StreamFold& operator=(const StreamFold&) = delete;

  // Publishes what is held back: what is folded of it now, the rest as it comes.
  void Release();
  // `done` is called with Cancelled unless it ended already; nothing is written after that.
  void Cancel();

  uint64_t folded() const;

 private:
  class Work;
  const std::shared_ptr<Work> work_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_STREAM_FOLD_H_
