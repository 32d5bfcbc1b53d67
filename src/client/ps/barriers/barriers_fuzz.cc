// Fuzzes the messages of barriers: a decoded one encodes to the same bytes, and a keeper and a task
// that get any bytes answer with messages.

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "src/client/ps/barriers/barrier_keeper.h"
#include "src/client/ps/barriers/barrier_member.h"
#include "src/client/ps/barriers/barrier_wire.h"
#include "src/common/check.h"

namespace phalanx::ps::internal {
namespace {

void Fuzz(absl::string_view bytes) {
  if (const auto arrival = DecodeArrival(bytes)) {
    PHALANX_CHECK(Encode(*arrival) == bytes && IsBarrierMessage(bytes), "one form");
  }
  if (const auto verdict = DecodeVerdict(bytes)) {
    PHALANX_CHECK(Encode(*verdict) == bytes && IsBarrierMessage(bytes), "one form");
  }
  BarrierKeeper keeper(/*servers=*/2, /*life=*/0);
  for (const bool worker : {false, true}) {
    keeper.OnMessage({.worker = worker, .rank = 1}, 3, bytes);
    keeper.OnMember({.worker = worker, .rank = 1}, MemberState::kDied, 3);
  }
  for (const BarrierKeeper::Send& send : keeper.TakeSends()) {
    PHALANX_CHECK(DecodeVerdict(send.bytes).has_value(), "an answer");
  }
  BarrierMember member(/*world=*/2);
  member.OnKeeper(MemberState::kLive, 0);
  const BarrierMember::Ticket ticket = member.Begin(BarrierGroup::kWorkers, 4);
  member.OnMessage(0, bytes);
  member.Tick();
  if (member.TakeEnded().empty()) {
    PHALANX_CHECK(!member.WaitsFor(ticket).empty(), "a text");
  }
  for (const BarrierMember::Send& send : member.TakeSends()) {
    PHALANX_CHECK(DecodeArrival(send.bytes).has_value(), "an arrival");
  }
}

}  // namespace
}  // namespace phalanx::ps::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::ps::internal::Fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
