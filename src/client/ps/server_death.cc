#include "src/client/ps/server_death.h"

#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "src/client/access.h"
#include "src/ps/ps_wire.h"

namespace phalanx::ps::internal {

using phalanx::internal::Access;

ServerDeath::ServerDeath(Membership member)
    : member_(std::move(member)), point_(Access::DeathOf(member_)) {}

void ServerDeath::Die() const { Access::Die(member_, phalanx::internal::DeathPointText(point_)); }

void ServerDeath::OnRestored(const ServerCore& core, size_t tables) {
  for (size_t table = 0; table < tables; ++table) {
    clocks_.push_back(core.sync(static_cast<uint32_t>(table)).min());
    const bool restored = clocks_.back() > 0 && clocks_.back() >= point_.number;
    if (restored && point_.kind == Kind::kRestore) Die();
  }
}

void ServerDeath::OnMessage(const ServerCore& core, absl::string_view bytes) {
  if (point_.kind == Kind::kClock) {
    for (size_t table = 0; table < clocks_.size(); ++table) {
      const uint64_t before = clocks_[table];
      clocks_[table] = core.sync(static_cast<uint32_t>(table)).min();
      if (before <= point_.number && clocks_[table] > point_.number) Die();
    }
  }
  if (point_.kind != Kind::kPush) return;
  const absl::StatusOr<WorkerMessage> message = DecodeWorkerMessage(bytes);
  if (!message.ok()) return;
  const auto* const batch = std::get_if<WorkerBatch>(&*message);
  if (batch == nullptr) return;
  for (const WorkerEntry& entry : batch->entries) {
    const auto* const push = std::get_if<Push>(&entry);
    // A mark is no push.
    if (push == nullptr || push->at.push == kAllPushes) continue;
    if (push->at.clock == point_.number) Die();
  }
}

void ServerDeath::OnSnapshot(uint64_t clock, uint64_t attempt, absl::string_view bytes,
                             SnapshotStore& snapshots) {
  if (point_.kind != Kind::kSnapshot || clock < point_.number) return;
  const bool given = snapshots.WritePart(attempt, bytes, point_.bytes);
  // Otherwise the death is not the declared one.
  Access::Die(member_, given ? phalanx::internal::DeathPointText(point_) : "");
}

}  // namespace phalanx::ps::internal
