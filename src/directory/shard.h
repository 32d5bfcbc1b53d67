// One shard of the directory as it runs: sessions over message streams around a DirectoryCore. Decides nothing; the same
// class runs in the daemon (streams from gRPC) and in simulation.
//
// Thread rule: made, used and destroyed on one executor (the shard's control loop). Owned by the daemon's main or the simulated process.
#ifndef PHALANX_DIRECTORY_SHARD_H_
#define PHALANX_DIRECTORY_SHARD_H_

#include <memory>

#include "absl/status/status.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/directory_core.h"
#include "src/directory/message_stream.h"
#include "src/directory/session.h"

namespace phalanx::directory {

class Shard {
 public:
  // `random` seeds the shard's incarnation, nonces and the core.
  Shard(Executor& executor, SessionConfig session, DirectoryOptions options, Random random);
  ~Shard();

  // Takes over a stream that a node opened. At most kMaxStreams at once; the silent are closed after the lease.
  void Accept(std::unique_ptr<ShardStream> stream);

  const DirectoryCore& core() const;
  // With shard index, incarnation, uptime and sessions filled in.
  void FillStatus(v1::GetStatusResponse* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SHARD_H_
