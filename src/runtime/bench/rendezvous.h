// How the ranks of a benchmark meet: through small objects in the very store they measure, and an
// instant of CLOCK_MONOTONIC that all of them wait for (so all ranks must be on one machine's
// clock).
//
// One thread, blocking. Names are "<session>/<tag>/<rank>"; a session's name must be new for each
// set of processes.
#ifndef PHALANX_RUNTIME_BENCH_RENDEZVOUS_H_
#define PHALANX_RUNTIME_BENCH_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phalanx/client.h"
#include "src/common/clock.h"

namespace phalanx::runtime::bench {

inline int64_t MonotonicNanos() { return MonotonicNow().nanos(); }
void SleepUntilNanos(int64_t instant);

class Rendezvous {
 public:
  Rendezvous(std::shared_ptr<Client> client, std::string session, int rank, int world,
             absl::Duration timeout);

  // Every rank gives a value and gets everybody's, by rank. DeadlineExceeded when somebody does not
  // come.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& tag,
                                                    const std::string& value);

  // Rank 0 gets the values of the ranks in `from` (in that order), everybody else only gives.
  absl::StatusOr<std::vector<std::string>> Collect(const std::string& tag, const std::string& value,
                                                   const std::vector<int>& from);

  // All ranks agree on an instant that lies `delay` after the last of them was ready.
  absl::StatusOr<int64_t> AgreeOnStart(const std::string& tag, absl::Duration delay);

  // Rank 0 says that it has come so far; everybody else waits for that.
  absl::Status FollowRankZero(const std::string& tag);

  // Deletes this rank's objects of exchanges that everybody has left behind. Errors are of no
  // interest.
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

#endif  // PHALANX_RUNTIME_BENCH_RENDEZVOUS_H_
