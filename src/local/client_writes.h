// What one client writes: the bytes of its Puts that the store has not answered, and its writers,
// which fill memory of the store.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_CLIENT_WRITES_H_
#define PHALANX_LOCAL_CLIENT_WRITES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/object_store/memory/shared_memory.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

class ClientWrites {
 public:
  // Counts the bytes of a Put until PutStored. Fails with ResourceExhausted beyond
  // local::kMaxPutBytesInFlight; a Put always fits if no other is counted.
  absl::Status AdmitPut(uint64_t bytes);
  void PutStored(uint64_t bytes) { put_bytes_ -= bytes; }

  // The store granted `size` bytes in `block`.
  void Open(WriterId writer, std::shared_ptr<MemoryBlock> block, uint64_t size);
  // Copies the bytes that a Publish up to `upto` carries into the block, unless the client has the
  // block's file and wrote them itself. Fails with InvalidArgument if the writer is not open or the
  // bytes do not fit to `upto`.
  absl::Status Publish(WriterId writer, uint64_t upto, absl::string_view bytes);
  // Publishes the rest and closes the writer. Errors as Publish.
  absl::Status Seal(WriterId writer, absl::string_view bytes);
  // Closes the writer. Fails with InvalidArgument if it is not open.
  absl::Status Abort(WriterId writer);

  // Open writers, ascending.
  std::vector<WriterId> writers() const;
  // The client can still write into the memory of this open writer after it is aborted: pages of a
  // file of its own are not used again.
  void Condemn(WriterId writer, ViewerId client);
  void Clear() { writers_.clear(); }

 private:
  struct Writer {
    std::shared_ptr<MemoryBlock> block;
    uint64_t size = 0;
    uint64_t published = 0;
    bool has_file = false;
  };
  static absl::Status TakeBytes(Writer& writer, uint64_t upto, absl::string_view bytes);

  absl::flat_hash_map<WriterId, Writer> writers_;
  uint64_t put_bytes_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_CLIENT_WRITES_H_
