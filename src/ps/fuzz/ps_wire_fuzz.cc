// Fuzzes the decoders of the messages of the parameter server, and the lists of keys of a channel.
// A decoded message encodes to the same bytes; keys that are taken increase.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <variant>

#include "absl/strings/string_view.h"
#include "src/common/check.h"
#include "src/ps/ps_wire.h"

namespace phalanx::ps::internal {
namespace {

// As a server takes them: more keys than this would be refused.
constexpr uint64_t kMostKeys = 4096;

void Take(uint32_t table, const WireKeys& keys, KeyLists& lists) {
  const auto list = FromWire(table, keys, kMostKeys, lists);
  if (!list.ok()) return;
  PHALANX_CHECK((*list)->size() <= kMostKeys, "as many keys as expected");
  for (size_t i = 1; i < (*list)->size(); ++i) {
    PHALANX_CHECK((**list)[i - 1] < (**list)[i], "keys increase");
  }
}

void Fuzz(absl::string_view bytes) {
  const auto server = DecodeServerMessage(bytes);
  if (server.ok()) PHALANX_CHECK(Encode(*server) == bytes, "one form");
  const auto worker = DecodeWorkerMessage(bytes);
  if (!worker.ok()) return;
  PHALANX_CHECK(Encode(*worker) == bytes, "one form");
  const auto* batch = std::get_if<WorkerBatch>(&*worker);
  if (batch == nullptr) return;
  KeyLists lists;
  for (const WorkerEntry& entry : batch->entries) {
    if (const auto* push = std::get_if<Push>(&entry)) Take(push->table, push->keys, lists);
    if (const auto* pull = std::get_if<Pull>(&entry)) Take(pull->table, pull->keys, lists);
  }
}

}  // namespace
}  // namespace phalanx::ps::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  phalanx::ps::internal::Fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
