// Plain blocking TCP connections between the ranks of a benchmark, without a store. They measure
// the best that the hosts allow, in the same run as the store.
//
// |  chain    rank 0 → rank 1 → ... → rank n-1; each rank relays bytes as they arrive, as in a
// broadcast
// |  star     every other rank → rank 0 at once, as in a gather
// |  folding chain   like the chain, but each rank adds its own floats with a plain loop, as in a
// reduce
// |  ring     each rank → the next, and the last → rank 0: (n-1)/n of the bytes on every link for
// an
// |           allgather (copying) or a reduce-scatter (folding), twice that for an allreduce (both)
//
// Connections are warm: made once and used in every run. One thread, blocking; the ranks' own
// processes use it between runs. A call that waits for another rank returns Unavailable if no byte
// moves for the timeout.
#ifndef PHALANX_CLI_BENCH_RAW_LINKS_H_
#define PHALANX_CLI_BENCH_RAW_LINKS_H_

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

  // Listens on an ephemeral port of `host` (an address of this host). Returns "host:port" for the
  // other ranks.
  absl::StatusOr<std::string> Listen(const std::string& host);
  // Makes all connections. `addresses` has one entry per rank. REQUIRES: Listen succeeded on every
  // rank before.
  absl::Status Connect(const std::vector<std::string>& addresses);

  // Transfers `bytes` from rank 0 to rank 1; other ranks return at once. Returns on rank 1 when the
  // last byte has arrived. For all these calls: every rank calls with the same arguments, and the
  // caller measures from an agreed instant.
  absl::Status Pair(uint64_t bytes);
  absl::Status Chain(uint64_t bytes);
  absl::Status Star(uint64_t bytes);
  absl::Status FoldingChain(uint64_t bytes);
  absl::Status Ring(uint64_t bytes, bool fold, bool copy);

 private:
  class RingTurn;

  absl::Status Receive(int from, uint64_t bytes);
  absl::Status SendAll(int to, const char* data, uint64_t bytes);
  absl::Status SendZeroes(int to, uint64_t bytes);

  const int rank_;
  const int world_;
  const absl::Duration timeout_;
  int listener_ = -1;
  int previous_ = -1;             // from rank - 1, or from the last rank
  int next_ = -1;                 // to rank + 1, or to rank 0
  int to_root_ = -1;              // rank > 0
  std::vector<int> from_others_;  // rank 0: by rank
  std::vector<char> buffer_;
  std::vector<char> kept_;  // the bytes of a chain
  // A rank's own floats, and the result of a ring.
  std::vector<float> own_;
  std::vector<char> ring_;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_RAW_LINKS_H_
