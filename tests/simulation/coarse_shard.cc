#include "tests/simulation/coarse_shard.h"

#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/common/check.h"
#include "src/common/random.h"
#include "src/directory/core/validate.h"

namespace phalanx::sim {
namespace {

constexpr Instant kCoreStart = Instant::FromNanos(1'000'000'000);

absl::Duration CpuTime() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

CoarseShard::CoarseShard(const directory::DirectoryOptions& options, int nodes, uint64_t seed,
                         OutgoingListener listener, int zones)
    : start_(kCoreStart + 2 * options.lease),
      listener_(std::move(listener)),
      core_(options, kCoreStart, Random(seed)) {
  core_.Tick(start_);
  for (int node = 0; node < nodes; ++node) {
    v1::NodeInfo info;
    directory::ToProto(KeyOf(node), info.mutable_key());
    info.set_name(absl::StrCat("n", node));
    info.set_address(absl::StrCat("n", node, ":1"));
    if (zones > 1) (*info.mutable_labels())["zone"] = absl::StrCat("z", node * zones / nodes);
    core_.NodeUp(info, start_);
    v1::NodeMessage begin, end;
    begin.mutable_register_begin();
    end.mutable_register_end();
    Deliver(node, begin, start_);
    Deliver(node, end, start_);
  }
  TakeOutbox();
  ResetCounts();
}

void CoarseShard::Deliver(int node, const v1::NodeMessage& message, Instant now) {
  const absl::Duration before = CpuTime();
  if (core_.NextDeadline() <= now) core_.Tick(now);
  const absl::Status taken = core_.OnMessage(KeyOf(node), message, now);
  PHALANX_CHECK(taken.ok(), "a node keeps to the protocol");
  core_time_ += CpuTime() - before;
  ++messages_;
}

void CoarseShard::NodeDown(int node, Instant now) { core_.NodeDown(KeyOf(node), now); }

void CoarseShard::Tick(Instant now) { core_.Tick(now); }

std::vector<directory::DirectoryCore::Outgoing> CoarseShard::TakeOutbox() {
  std::vector<directory::DirectoryCore::Outgoing> outbox = core_.TakeOutbox();
  if (listener_) {
    for (const directory::DirectoryCore::Outgoing& out : outbox) listener_(out);
  }
  return outbox;
}

uint64_t CoarseShard::Counter(const char* name) const {
  v1::GetStatusResponse status;
  core_.FillStatus(start_, &status);
  return status.counters().at(name);
}

void CoarseShard::ResetCounts() {
  messages_ = 0;
  core_time_ = absl::ZeroDuration();
}

}  // namespace phalanx::sim
