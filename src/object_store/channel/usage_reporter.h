// How much memory of this node is used, as the shards know it: tools show it, and a node that
// leaves is helped by nodes that have room. Reported with the progress of pulls, and by itself
// soon after it has changed. Pure.
//
// Thread rule: no thread, lock or clock inside. Owned by PullRunner, on the control loop.
#ifndef PHALANX_OBJECT_STORE_CHANNEL_USAGE_REPORTER_H_
#define PHALANX_OBJECT_STORE_CHANNEL_USAGE_REPORTER_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/common/time/instant.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/objects/object_table.h"

namespace phalanx::object_store {

class UsageReporter {
 public:
  // A change is reported after the first, with those that follow it meanwhile: a user who stores an
  // object and asks for the status sees it. Reports have the second between them.
  static constexpr absl::Duration kDelay = absl::Milliseconds(20);
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);

  // Both outlive this.
  UsageReporter(const ObjectTable& table, ShardChannel& channel)
      : table_(table), channel_(channel) {}

  // A new session: its shard knows of no used bytes.
  void BeginSession() { reported_bytes_ = 0; }
  // At the end of a turn.
  void Settle(Instant now) {
    if (table_.used_bytes() == reported_bytes_ || !next_.infinite()) return;
    next_ = std::max(now + kDelay, reported_at_ + kInterval);
  }
  // All shards have just got the number with other messages.
  void OnReported(Instant now) {
    next_ = Instant::Infinite();
    reported_at_ = now;
    reported_bytes_ = table_.used_bytes();
  }
  void OnTimer(Instant now) {
    if (next_ > now) return;
    OnReported(now);
    for (int shard = 0; shard < channel_.num_shards(); ++shard) {
      v1::NodeMessage message;
      message.mutable_progress()->set_used_bytes(reported_bytes_);
      channel_.SendTo(shard, std::move(message));
    }
  }
  Instant NextDeadline() const { return next_; }

 private:
  const ObjectTable& table_;
  ShardChannel& channel_;
  Instant next_ = Instant::Infinite();
  Instant reported_at_;
  uint64_t reported_bytes_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_CHANNEL_USAGE_REPORTER_H_
