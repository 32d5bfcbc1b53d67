// A file of the node's shared memory as this process sees it, and the table of those that the node
// believes to be mapped here.
//
// Mappings are shared: the table holds one reference, each Buffer, writer and stream that looks at
// the file another. The table keeps a few that nobody uses, because the node hands the same warm
// files out again, and page tables are most of the cost of mapping.
//
// A file that can be written is mapped three times. What the writer is given is writable only
// between BeginWriting and EndWriting; outside, the page tables that were filled for it wait at the
// twin, whose address nobody is given:
//
//     writing:  writing()  [ pages, writable    ]    twin  [ no pages        ]
//     sealed:   writing()  [ no pages, readable ]    twin  [ pages, writable ]
//     always:   data()     [ the readers' pages, readable ]
//
// mremap(2) moves them in steps of 2 MiB. Changing the protection of each page back and forth took
// as long as copying three quarters of the bytes.
#ifndef PHALANX_RUNTIME_CLIENT_FILE_MAPPING_H_
#define PHALANX_RUNTIME_CLIENT_FILE_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/runtime/client/fork_guard.h"

namespace phalanx::internal {

// Unmapped by the last reference, on any thread; not in a child of fork, where something else may
// be in the place of what was being written.
class FileMapping {
 public:
  // Maps the whole file; `fd` stays the caller's (a copy is kept). ResourceExhausted when the
  // system refuses.
  static absl::StatusOr<std::shared_ptr<FileMapping>> Map(int fd, uint64_t bytes, bool writable);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // For readers.
  const char* data() const { return data_; }
  // For the writer, from BeginWriting to EndWriting; readable afterwards. Null when the system has
  // taken it, and is not written any more then. REQUIRES: made writable.
  char* writing() const { return writing_; }
  uint64_t bytes() const { return bytes_; }
  // Whether [offset, offset + length) is inside.
  bool Contains(uint64_t offset, uint64_t length) const {
    return offset <= bytes_ && length <= bytes_ - offset;
  }

  // Pages with what [offset, offset + length) holds, of the caller's own: a page is copied when it
  // is written. The file must keep its bytes until they are unmapped. Null when the system refuses,
  // no descriptor was spared for it, or the offset is no multiple of a page.
  char* PrivatePages(uint64_t offset, uint64_t length) const;

  // For one writer at a time, which writes [0, upto) of writing(). Children that are forked
  // meanwhile do not have that memory. ResourceExhausted when the system refuses. REQUIRES: made
  // writable.
  absl::Status BeginWriting(uint64_t upto);
  // From here on a write faults. Internal when the system refuses: the memory is still writable.
  absl::Status EndWriting();
  // After EndWriting: what was at writing() up to `upto` becomes private memory with the same
  // bytes, for whoever still looks at it, who unmaps it (GivenAway); the next writer gets another
  // place. ResourceExhausted when the system refuses: it is the file's as before, unless writing()
  // is null now.
  struct GivenAway {
    char* begin = nullptr;
    uint64_t bytes = 0;
  };
  absl::StatusOr<GivenAway> GiveAway(uint64_t upto);

 private:
  FileMapping(const char* data, uint64_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}

  // After EndWriting: another place to be written at later. Null, with errno, when the system
  // refuses.
  char* NextPlace() const;

  const char* const data_;
  const uint64_t bytes_;
  // For private pages; -1 when the process is short of descriptors.
  const int fd_;
  const ProcessMark mark_ = ProcessMark::Current();
  // Null if not made writable.
  char* writing_ = nullptr;
  // Null before Linux 5.13 too. Children of fork never have it.
  char* twin_ = nullptr;
  // The writer's alone: whether the pages wait at the twin.
  bool pages_at_twin_ = false;
  // The writer's alone: how far the page tables are known to be filled.
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

  // The node sent the file. Keeps an older mapping of the same file.
  void Add(Key key, std::shared_ptr<FileMapping> mapping);
  // Null if there is none. A reader takes either mapping of the file.
  std::shared_ptr<FileMapping> ForReading(uint64_t file);
  std::shared_ptr<FileMapping> ForWriting(uint64_t file);
  // Once for each mapping got from above, which the caller drops now.
  void PutBack(const FileMapping* mapping);

  // Files to say Forget of, when more than `keep` lie unused; each is named once.
  std::vector<Key> TakeToForget(size_t keep);
  // The node has forgotten it: the table drops its reference, which is returned so that it can be
  // destroyed outside the lock. Users that came meanwhile have their own.
  std::shared_ptr<FileMapping> Forgotten(Key key);

 private:
  struct Entry {
    std::shared_ptr<FileMapping> mapping;
    int users = 0;
    bool forgetting = false;
    std::list<Key>::iterator place;  // in idle_, if without users
  };
  std::shared_ptr<FileMapping> Use(Key key);

  absl::flat_hash_map<Key, Entry> entries_;
  absl::flat_hash_map<const FileMapping*, Key> keys_;
  // Longest unused first.
  std::list<Key> idle_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_FILE_MAPPING_H_
