// How the ranks of a benchmark meet: they exchange small objects through the store that they
// measure, and agree on an instant of CLOCK_MONOTONIC at which all of them start. So all ranks must
// share one machine's clock.
//
// One thread, blocking. Names are "<session>/<tag>/<rank>"; a session's name must be new for each
// set of processes.
#ifndef PHALANX_CLI_BENCH_RENDEZVOUS_H_
#define PHALANX_CLI_BENCH_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/client.h"
#include "src/common/time/clock.h"

namespace phalanx::runtime::bench {

inline int64_t MonotonicNanos() { return MonotonicNow().nanos(); }
void SleepUntilNanos(int64_t instant);

class Rendezvous {
 public:
  Rendezvous(std::shared_ptr<Client> client, std::string session, int rank, int world,
             absl::Duration timeout);

  // Every rank passes a value and gets the values of all ranks, ordered by rank. Returns
  // DeadlineExceeded if a rank is missing.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& tag,
                                                    const std::string& value);

  // Rank 0 gets the values of the ranks in `from`, in that order; the other ranks only pass a
  // value.
  absl::StatusOr<std::vector<std::string>> Collect(const std::string& tag, const std::string& value,
                                                   const std::vector<int>& from);

  // All ranks agree on an instant `delay` after the last of them was ready.
  absl::StatusOr<int64_t> AgreeOnStart(const std::string& tag, absl::Duration delay);

  // Rank 0 announces that it has reached this point; the other ranks wait for that.
  absl::Status FollowRankZero(const std::string& tag);

  // Deletes this rank's objects of exchanges that all ranks have finished. Ignores errors.
  void Forget();

  ObjectId Id(const std::string& tag, int rank) const;

 private:
  absl::Status Give(const std::string& tag, const std::string& value);

  const std::shared_ptr<Client> client_;
  const std::string session_;
  const int rank_;
  const int world_;
  const absl::Duration timeout_;
  std::vector<ObjectId> given_;
};

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_RENDEZVOUS_H_
