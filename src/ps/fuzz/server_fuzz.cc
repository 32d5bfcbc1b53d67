// Fuzzes a server of a parameter server: the bytes are a stored part, and a message of a worker.
// Whatever they are, the server goes on for another worker.

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "phalanx/member_state.h"
#include "src/common/check.h"
#include "src/ps/ps_wire.h"
#include "src/ps/server/server_core.h"

namespace phalanx::ps::internal {
namespace {

constexpr uint64_t kKeys = 16;  // of a dense table
constexpr uint64_t kPartBytes = kKeys * sizeof(float);

// A server that serves worker 1 whatever worker 0 has sent.
void Serve(ServerCore& core, absl::string_view bytes) {
  for (const int worker : {0, 1}) core.OnMessage(worker, 0, Encode(Hello{.channel = 1}));
  core.Begin();
  // A next life is welcomed when a snapshot shows the worker, which is what was restored, or a new
  // one.
  for (const ServerCore::Store& store : core.TakeEffects().stores) {
    core.OnStored(store.table, store.number);
  }
  core.OnMessage(0, 0, bytes);
  // Of a clock that turns, the objects are summed.
  core.OnMessage(1, 0, Encode(WorkerBatch{.channel = 1, .entries = {ClockEnd{}}}));
  for (const ServerCore::Reduce& reduce : core.TakeEffects().reduces) {
    PHALANX_CHECK(!reduce.handles.empty(), "there is something to sum");
    core.OnReduced(reduce.table, reduce.attempt, std::string(kPartBytes, '\0'));
  }
  // The least clock is that of worker 1 then, which can be far away.
  core.OnMember(0, MemberState::kLeft, 0);
  core.TakeEffects();
  core.OnMessage(1, 0,
                 Encode(WorkerBatch{
                     .channel = 1, .number = 1, .entries = {Request{.ticket = 1, .body = "x"}}}));
  PHALANX_CHECK(core.TakeEffects().asked.size() == 1, "another worker is served");
}

void Fuzz(absl::string_view bytes) {
  const TableSpec sparse{.name = "w", .snapshot_every = 1};
  TableSpec dense = sparse, ragged = sparse;
  dense.keys = kKeys;
  ragged.width = 4;
  ragged.lengths = true;
  for (TableSpec spec : {sparse, dense, ragged}) {
    for (const Sync sync : {Sync::kBsp, Sync::kAsp}) {
      ServerCore core({.rank = 0,
                       .servers = 1,
                       .workers = 2,
                       .objects = "s",
                       .object_bytes = 1,
                       .answer_bytes = 20});
      spec.sync = sync;
      const auto table = core.AddTable(spec);
      PHALANX_CHECK(table.ok(), "a table is added");
      // The number is that of the inputs of the corpus. What is refused changes nothing.
      const absl::Status restored = core.Restore(*table, 1, bytes);
      PHALANX_CHECK(restored.ok() || restored.code() == absl::StatusCode::kInvalidArgument,
                    "restored or refused");
      Serve(core, bytes);
    }
  }
}

}  // namespace
}  // namespace phalanx::ps::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::ps::internal::Fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
