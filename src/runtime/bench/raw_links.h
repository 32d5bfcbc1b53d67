// Plain blocking TCP connections between the ranks of a benchmark, without any store: what the
// hosts let through at best, measured in the same run as the store.
//
//   chain    rank 0 → rank 1 → ... → rank n-1, each relaying as bytes arrive: as a broadcast
//   star     every other rank → rank 0 at once: as a gather
//   folding chain   as the chain, each rank adds its own floats with a plain loop: as a reduce
//   ring     each rank → the next, and the last → rank 0: (n-1)/n of the bytes on every link for an
//            allgather (copying) or a reduce-scatter (folding), twice that for an allreduce (both)
//
// Connections are warm (made once, used in every run). One thread, blocking; the ranks' own
// processes use it between runs. Whatever waits for another rank ends with Unavailable when nothing
// has come, or gone, for the timeout.
#ifndef PHALANX_RUNTIME_BENCH_RAW_LINKS_H_
#define PHALANX_RUNTIME_BENCH_RAW_LINKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phalanx::runtime::bench {

class RawLinks {
 public:
  RawLinks(int rank, int world, absl::Duration timeout);
  ~RawLinks();
  RawLinks(const RawLinks&) = delete;
  RawLinks& operator=(const RawLinks&) = delete;

  // Listens on an ephemeral port of `host` (an address of this host) and returns "host:port" for
  // the others.
  absl::StatusOr<std::string> Listen(const std::string& host);
  // Makes all connections. `addresses` has one entry per rank. REQUIRES: Listen succeeded on every
  // rank before.
  absl::Status Connect(const std::vector<std::string>& addresses);

  // One transfer of `bytes` from rank 0 to rank 1 (others return at once). Ends on rank 1 when the
  // last byte is there. The same holds for the others: every rank calls with the same arguments;
  // the caller measures from an agreed instant.
  absl::Status Pair(uint64_t bytes);
  absl::Status Chain(uint64_t bytes);
  absl::Status Star(uint64_t bytes);
  absl::Status FoldingChain(uint64_t bytes);
  absl::Status Ring(uint64_t bytes, bool fold, bool copy);

 private:
  class RingTurn;

  absl::Status Relay(int from, int to, uint64_t bytes);
  absl::Status Receive(int from, uint64_t bytes);
  absl::Status SendAll(int to, const char* data, uint64_t bytes);
  absl::Status SendZeroes(int to, uint64_t bytes);

  const int rank_;
  const int world_;
  const absl::Duration timeout_;
  int listener_ = -1;
  int previous_ = -1;             // from rank - 1, or the last
  int next_ = -1;                 // to rank + 1, or the first
  int to_root_ = -1;              // rank > 0
  std::vector<int> from_others_;  // rank 0: by rank
  std::vector<char> buffer_;
  // What a rank adds of its own, and what a ring makes.
  std::vector<float> own_;
  std::vector<char> ring_;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_RAW_LINKS_H_
