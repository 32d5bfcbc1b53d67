// A file of the node's shared memory, mapped into this process, and the table of the files that the
// node believes to be mapped here.
//
// Mappings are shared: the table holds one reference, and each Buffer, writer and stream that uses
// the file holds another. The table keeps a few unused mappings, because the node hands out the
// same warm files again and page tables are most of the cost of mapping.
//
// A writable file is mapped three times. The writer's memory is writable only between BeginWriting
// and EndWriting. Outside this interval the page tables that were filled for the writer are parked
// at the twin, an address that no caller gets:
//
// |    writing:  writing()  [ pages, writable    ]    twin  [ no pages        ]
// |    sealed:   writing()  [ no pages, readable ]    twin  [ pages, writable ]
// |    always:   data()     [ the readers' pages, readable ]
//
// mremap(2) moves the page tables in steps of 2 MiB. Changing the protection of each page instead
// took as long as copying three quarters of the bytes.
#ifndef PHALANX_CLIENT_CONNECTION_FILE_MAPPING_H_
#define PHALANX_CLIENT_CONNECTION_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/socket/fork_guard.h"

namespace phalanx::internal {

// The last reference unmaps the file, on any thread. A child of fork does not unmap it, because
// another mapping can be in the place of the writer's memory there.
class FileMapping {
 public:
  // Maps the whole file. The caller keeps `fd` (this keeps a copy). Fails with ResourceExhausted if
  // the system refuses.
  static absl::StatusOr<std::shared_ptr<FileMapping>> Map(int fd, uint64_t bytes, bool writable);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // For readers.
  const char* data() const { return data_; }
  // For the writer, from BeginWriting to EndWriting; readable afterwards. Null if the system has
  // taken the memory; then it cannot be written again. REQUIRES: mapped writable.
  char* writing() const { return writing_; }
  uint64_t bytes() const { return bytes_; }
  // Whether [offset, offset + length) is inside the file.
  bool Contains(uint64_t offset, uint64_t length) const {
    return offset <= bytes_ && length <= bytes_ - offset;
  }

  // Returns private pages with the bytes of [offset, offset + length): a page is copied when it is
  // written. The file must keep its bytes until the pages are unmapped. Returns null if the system
  // refuses, if no descriptor was spared for this, or if the offset is not a multiple of a page.
  char* PrivatePages(uint64_t offset, uint64_t length) const;

  // For one writer at a time, which writes [0, upto) of writing(). Children that are forked in the
  // meantime do not have that memory. Fails with ResourceExhausted if the system refuses. REQUIRES:
  // mapped writable.
  absl::Status BeginWriting(uint64_t upto);
  // After this a write faults. Fails with Internal if the system refuses; the memory is still
  // writable then.
  absl::Status EndWriting();
  // After EndWriting: turns writing() up to `upto` into private memory with the same bytes, for the
  // code that still looks at it and that unmaps it (GivenAway). The next writer gets another
  // address. Fails with ResourceExhausted if the system refuses; the memory still belongs to the
  // file then, unless writing() is null.
  struct GivenAway {
    char* begin = nullptr;
    uint64_t bytes = 0;
  };
  absl::StatusOr<GivenAway> GiveAway(uint64_t upto);

 private:
  FileMapping(const char* data, uint64_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}

  // After EndWriting: reserves another address for later writers. Null, with errno, if the system
  // refuses.
  char* NextPlace() const;

  const char* const data_;
  const uint64_t bytes_;
  // For private pages; -1 if the process is short of descriptors.
  const int fd_;
  const ProcessMark mark_ = ProcessMark::Current();
  // Null if not mapped writable.
  char* writing_ = nullptr;
  // Null also before Linux 5.13. Children of fork never have it.
  char* twin_ = nullptr;
  // The writer's alone: whether the pages are at the twin.
  bool pages_at_twin_ = false;
  // The writer's alone: the page tables are filled up to here.
  uint64_t populated_ = 0;
};

// Owned by a connection, under its lock.
class MappingTable {
 public:
  struct Key {
    uint64_t file = 0;
    bool writable = false;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.file, k.writable);
    }
  };

  // The node sent the file. An older mapping of the same file stays.
  void Add(Key key, std::shared_ptr<FileMapping> mapping);
  // Null if there is no mapping. A reader takes either mapping of the file.
  std::shared_ptr<FileMapping> ForReading(uint64_t file);
  std::shared_ptr<FileMapping> ForWriting(uint64_t file);
  // Called once for each mapping returned above, when its user drops it.
  void PutBack(const FileMapping* mapping);

  // Returns files to send a Forget for, if more than `keep` are unused. Returns each file once.
  std::vector<Key> TakeToForget(size_t keep);
  // The node has forgotten the file. The table drops its reference and returns it, so that the
  // caller can destroy it outside the lock. Users that took the mapping in the meantime have their
  // own references.
  std::shared_ptr<FileMapping> Forgotten(Key key);

 private:
  struct Entry {
    std::shared_ptr<FileMapping> mapping;
    int users = 0;
    bool forgetting = false;
    std::list<Key>::iterator place;  // in idle_, if it has no users
  };
  std::shared_ptr<FileMapping> Use(Key key);

  absl::flat_hash_map<Key, Entry> entries_;
  absl::flat_hash_map<const FileMapping*, Key> keys_;
  // Longest unused first.
  std::list<Key> idle_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_FILE_MAPPING_H_
