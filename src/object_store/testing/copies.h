// Copies for tests of the pure parts, over memory of their own. Testonly.
#ifndef PHALANX_OBJECT_STORE_TESTING_COPIES_H_
#define PHALANX_OBJECT_STORE_TESTING_COPIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/common/check.h"
#include "src/net/pull/transfer_buffer.h"
#include "src/object_store/objects/object_table.h"

namespace phalanx::object_store::testing {

// A complete copy of generation `sequence` of object `id`, not yet in a table.
inline std::unique_ptr<Copy> CompleteCopy(int id, uint64_t sequence, uint64_t bytes) {
  auto copy = std::make_unique<Copy>();
  copy->id = ObjectId::FromName("test", std::to_string(id));
  copy->generation = Generation{NodeKey{7, 1}, sequence};
  copy->size_bytes = bytes;
  auto memory = std::make_shared<std::vector<char>>(bytes);
  copy->buffer =
      std::make_shared<net::TransferBuffer>(SliceLayout{bytes, 1}, absl::MakeSpan(*memory), memory);
  copy->buffer->Publish(0, bytes);
  copy->state = CopyState::kComplete;
  return copy;
}

// As a secondary copy in the table. REQUIRES: it fits.
inline Copy* AddCopy(ObjectTable& table, int id, uint64_t sequence, uint64_t bytes) {
  PHALANX_CHECK(table.TryReserve(bytes), "it fits");
  return table.Add(CompleteCopy(id, sequence, bytes));
}

}  // namespace phalanx::object_store::testing

#endif  // PHALANX_OBJECT_STORE_TESTING_COPIES_H_
