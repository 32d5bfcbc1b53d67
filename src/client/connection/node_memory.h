// The node's memory as this client uses it: the mapped files, and the pins that keep pages of them
// for the client's buffers; and the buffers that its groups share.
//
//   File ──► AddFile      Mapped ──► Pin … Unpin      Granted ──► TakeWriter … PutBack
//
// It sends nothing. The caller sends the message that a result stands for: a Release or Abort after
// a failure, a Forget for each file of TakeToForget, a Leave.
//
// Owned by a connection, used under its lock.
#ifndef PHALANX_CLIENT_CONNECTION_NODE_MEMORY_H_
#define PHALANX_CLIENT_CONNECTION_NODE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "src/client/connection/file_mapping.h"
#include "src/client/connection/group_buffers.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

namespace local = object_store::local;

// Mappings that are kept while no object uses them.
inline constexpr size_t kMaxIdleMappings = 8;

class NodeMemory {
 public:
  NodeMemory() : files_(std::make_shared<MappingTable>()) {}

  // Maps a file that the node sent, and closes `fd`. Returns false if the file could not be mapped
  // or `fd` is -1.
  bool AddFile(const local::File& file, int fd);
  // Returns files to send a Forget for: those beyond kMaxIdleMappings that no object uses.
  std::vector<MappingTable::Key> TakeToForget() { return files_->TakeToForget(kMaxIdleMappings); }
  // The node has forgotten the file. Returns the table's reference, to be destroyed without the
  // lock.
  std::shared_ptr<FileMapping> Forgotten(const local::Forgotten& forgotten);
  // The node is gone: gives up all files. Returns them, to be destroyed without the lock. Buffers
  // have their own references, so their bytes stay readable.
  std::shared_ptr<void> GiveUpFiles();

  // Returns the mapping that the answer points into, and notes the pin. Fails with
  // ResourceExhausted if the file could not be mapped here, or Internal if the answer points
  // outside the file.
  absl::StatusOr<std::shared_ptr<FileMapping>> Pin(const local::Mapped& answer);
  void Unpin(uint64_t pin, const FileMapping* mapping);
  bool has_pins() const { return !pins_.empty(); }
  // Returns the messages with which this client leaves and keeps its pins.
  std::vector<local::Leave> LeaveMessages() const;

  // Returns the mapping to write `size` bytes into; the caller returns it with PutBack. Errors as
  // Pin.
  absl::StatusOr<std::shared_ptr<FileMapping>> TakeWriter(const local::Granted& answer,
                                                          uint64_t size);
  void PutBack(const FileMapping* mapping) { files_->PutBack(mapping); }
  GroupBuffers& group_buffers() { return group_buffers_; }

 private:
  std::shared_ptr<MappingTable> files_;
  absl::flat_hash_set<uint64_t> pins_;
  GroupBuffers group_buffers_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_NODE_MEMORY_H_
