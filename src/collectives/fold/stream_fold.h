// Folds objects into one while their bytes arrive, on an I/O loop.
//
//   input 0 ──┐
//   input 1 ──┼─► blocks up to the least watermark ─► output, published behind
//   input n ──┘
//
// The inputs are folded from left to right, in whole elements. One of the first two can lie in the
// output's own memory (another TransferBuffer over the same bytes): it is folded in place, and a
// pull into it needs no scratch. The output's last bytes can be held back: readers of the output
// then get all bytes but these until Release.
//
// Invariants
//  1. folded <= the least of the inputs' watermarks; published <= folded, and below the bytes that
//     are held back.
//  2. In place, the bytes below `folded` are output, the bytes above are input.
//  3. After the call of `done` nothing of the spec is referenced any more.
//
// Thread rule: made, used and destroyed on the control loop, where `done` runs too; the work is
// done on `io`, a bounded amount in each turn, and waits for bytes without polling.
#ifndef PHALANX_COLLECTIVES_FOLD_STREAM_FOLD_H_
#define PHALANX_COLLECTIVES_FOLD_STREAM_FOLD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "src/collectives/fold/block_fold.h"
#include "src/common/time/executor.h"
#include "src/net/pull/transfer_buffer.h"

namespace phalanx::collectives {

class StreamFold {
 public:
  static constexpr int kWhole = -1;

  struct Input {
    std::shared_ptr<net::TransferBuffer> from;
    // The input's bytes from here on are folded, as many as the output has.
    uint64_t offset = 0;
    // A source as it was put, which goes through Prepare() if the op needs it.
    bool raw = false;
    // The input is this slice, and `offset` counts from the slice's begin; kWhole: the object.
    int slice = kWhole;
  };

  struct Spec : BlockFold::Spec {
    std::vector<Input> inputs;
    // The output is this slice of `into`, to which only this fold publishes.
    std::shared_ptr<net::TransferBuffer> into;
    int into_slice = 0;
    // This many bytes at the end are not published before Release().
    uint64_t hold_back = 0;
    // Bytes that an earlier fold into the same memory has folded already.
    uint64_t begin = 0;
  };

  struct Outcome {
    // OK: all bytes are folded. Cancelled, or the status with which an input was closed too early.
    absl::Status status;
    // The input that was closed; -1 if none.
    int input = -1;
    // Bytes of the output that are folded, published or not.
    uint64_t folded = 0;
  };
  using Done = absl::AnyInvocable<void(const Outcome&)>;

  // REQUIRES: at least one input; CheckReducible(elements, op); the output is a whole number of
  // elements, at least `begin` and `hold_back` bytes (runs of elements are those of the object that
  // it is a slice of); each input has as many bytes; at most one input is in the output's memory,
  // one of the first two. Input and output may be slices of two buffers over one object's memory.
  // Both executors outlive the fold.
  StreamFold(Spec spec, Executor& io, Executor& control, Done done);
  // `done` is not called any more. The work ends in a later turn of `io`.
  ~StreamFold();
  StreamFold(const StreamFold&) = delete;
  StreamFold& operator=(const StreamFold&) = delete;

  // Ends the holding back: folded bytes are published now, the rest as they are folded.
  void Release();
  // `done` is called with Cancelled unless the fold has ended already; nothing is written after it.
  void Cancel();

  uint64_t folded() const;

 private:
  class Work;
  const std::shared_ptr<Work> work_;
};

}  // namespace phalanx::collectives

#endif  // PHALANX_COLLECTIVES_FOLD_STREAM_FOLD_H_
