// One shard of the directory as it runs: sessions over message streams around a DirectoryCore.
// Decides nothing; the same class runs in the daemon (streams from gRPC) and in simulation.
//
//   ShardStream ──► handshake ──► ShardSession ──► DirectoryCore
//        ▲                             ▲                │
//        └─────────── frames ──────────┴─── outbox ◄────┘
//
// A stream that breaks leaves its session waiting for the next one until the grace runs out; a
// session that is fenced, that said goodbye, or that does not acknowledge, ends, and its node
// registers anew.
//
// Thread rule: made, used and destroyed on one executor (the shard's control loop), which outlives
// it. Owned by the daemon's main or the simulated process.
#ifndef PHALANX_DIRECTORY_SHARD_H_
#define PHALANX_DIRECTORY_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/v1/tools.pb.h"
#include "src/common/executor.h"
#include "src/common/random.h"
#include "src/directory/directory_core.h"
#include "src/directory/message_stream.h"
#include "src/directory/session.h"

namespace phalanx::directory {

// With more streams than these, all or those that have not shown the secret yet, the oldest of the
// latter is closed with ResourceExhausted.
inline constexpr size_t kMaxStreams = 4096;
inline constexpr size_t kMaxUnprovenStreams = 256;

class Shard {
 public:
  // `random` seeds the shard's incarnation, session ids and the core.
  Shard(Executor& executor, SessionConfig session, DirectoryOptions options, Random random);
  // Closes all streams with Unavailable.
  ~Shard();

  // Takes over a stream that a node opened. One that has not proved itself within the lease is
  // closed.
  void Accept(std::unique_ptr<ShardStream> stream);

  // Told of sessions that begin and end, of streams that are refused and of malformed messages: for
  // a log. `node` is the node's name, as it says itself, or the stream's peer.
  using Observer = absl::AnyInvocable<void(absl::string_view event, absl::string_view node,
                                           const absl::Status& why)>;
  void Observe(Observer observer);

  const DirectoryCore& core() const;
  const SessionConfig& config() const;
  uint64_t incarnation() const;
  // With shard index, incarnation, uptime and sessions filled in.
  void FillStatus(v1::GetStatusResponse* out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SHARD_H_
