// What one client is still to be sent: answers in order, in as few sends as possible, with
// descriptors.
//
// Answers wait as closures and are encoded when the socket has room, so that a client that does not
// read costs a pin per answer and not a copy of the bytes. Which files the client has is decided
// when an answer is encoded, in the order of the stream.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_LOCAL_OUTBOX_H_
#define PHALANX_LOCAL_LOCAL_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "src/local/local_protocol.h"
#include "src/object_store/memory/shared_memory.h"

namespace phalanx::object_store {

class LocalOutbox {
 public:
  // What goes out in one send: at most one descriptor, which belongs to its first byte.
  class Batch {
   public:
    void Add(const local::Answer& answer) { local::Encode(answer, bytes_); }
    // The next answer points into this block's file.
    enum class Reference {
      kGiven,  // the client has it, or gets it with this batch
      kLater,  // it does not, and the batch has begun: the answer is to be the first of the next
               // one
      kNone,   // there is no descriptor for it
    };
    Reference Refer(const std::shared_ptr<MemoryBlock>& block, bool writable);
    // The client unmaps the file.
    void Forget(uint64_t file, bool writable);

   private:
    friend class LocalOutbox;
    void CloseDescriptor();

    ViewerId viewer_ = 0;
    std::string bytes_;
    size_t sent_ = 0;
    int descriptor_ = -1;  // its own, until it is sent
    bool has_shown_files_ = false;
    // (file, writable) that the client has.
    absl::flat_hash_set<std::pair<uint64_t, bool>> files_;
  };
  // Adds its messages, or adds nothing and returns false because Refer did.
  using Item = absl::AnyInvocable<bool(Batch&)>;

  LocalOutbox() = default;
  ~LocalOutbox() { batch_.CloseDescriptor(); }
  LocalOutbox(const LocalOutbox&) = delete;
  LocalOutbox& operator=(const LocalOutbox&) = delete;

  // The viewer for which files are opened. REQUIRES: before the first answer that points into a
  // file.
  void SetViewer(ViewerId viewer) { batch_.viewer_ = viewer; }
  // Whether a file was sent, or is about to be.
  bool has_shown_files() const { return batch_.has_shown_files_; }

  void Add(Item item) { items_.push_back(std::move(item)); }
  // Encoded now, and so for what lives no longer than this call.
  void Add(const local::Answer& answer);

  enum class State {
    kEmpty,
    kFull,     // the socket takes no more now
    kCrowded,  // too many descriptors are in flight between processes of this user: try again soon
    kBroken,   // the client is gone
  };
  State Send(int socket);

  // Answers that wait.
  size_t size() const { return items_.size(); }
  // Drops what has not been encoded.
  void Clear() { items_.clear(); }
  // Nothing more will be sent.
  void Close();

 private:
  void Fill();

  std::deque<Item> items_;
  Batch batch_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_OUTBOX_H_
