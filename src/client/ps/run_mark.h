// RunMark: whether the life of a server before this one served until all workers had left.
//
// A job is remembered for a minute after its last member has ended. So a server that joins under
// the name of a job can be the next life of one that has died, for which a worker that has left has
// left; or the first one of the next run, in which the same worker joins again. Therefore a server
// that has ended well leaves a mark, an object with its life in its name.
//
// Belongs to a server. Threads: any, as Run and barriers of server 0 ask for it.
#ifndef PHALANX_CLIENT_PS_RUN_MARK_H_
#define PHALANX_CLIENT_PS_RUN_MARK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/client.h"
#include "src/common/threads/mutex.h"
#include "src/common/time/instant.h"

namespace phalanx::ps::internal {

class RunMark {
 public:
  // `server` names the job, role and rank.
  RunMark(std::shared_ptr<Client> client, std::string server, uint64_t life)
      : client_(std::move(client)), server_(std::move(server)), life_(life) {}

  enum class Before {
    kNone,   // this life goes on with the run of the one before it
    kEnded,  // the one before it has ended well, and this is another run
    kSpare,  // the same, but this is its run
  };
  // This life begins. Asked once, and known from then on: another thread waits meanwhile.
  // DeadlineExceeded, or the error of the connection with the node.
  absl::StatusOr<Before> Begin(absl::Duration timeout);
  // This life has ended well. Errors as Begin: the next run would be taken for a part of this one.
  absl::Status End(absl::Duration timeout);

 private:
  ObjectId Id(uint64_t life) const;
  absl::StatusOr<Before> Ask(Instant until) const;

  const std::shared_ptr<Client> client_;
  const std::string server_;
  const uint64_t life_;
  Mutex mutex_;  // held while it is asked
  std::optional<Before> before_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_CLIENT_PS_RUN_MARK_H_
