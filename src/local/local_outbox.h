// The answers that one client has not been sent yet, in order, with their descriptors. They go out
// in as few sends as possible.
//
// Answers wait as closures and are encoded when the socket has room, so that a client that does not
// read costs a pin per answer and not a copy of the bytes. The set of files that the client has is
// updated when an answer is encoded, in the order of the stream.
//
// Owned by a LocalSession; loop thread only.
#ifndef PHALANX_LOCAL_LOCAL_OUTBOX_H_
#define PHALANX_LOCAL_LOCAL_OUTBOX_H_

#include <sys/uio.h>

#include <array>
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
  // The bytes of one send, with at most one descriptor, which belongs to the first byte.
  class Batch {
   public:
    void Add(const local::Answer& answer) { local::Encode(answer, bytes_); }
    // A message, whose bytes go to the socket from where they are unless they are few. Ends the
    // batch then.
    void AddMessage(const local::MessageArrived& message,
                    std::shared_ptr<const std::string> message_bytes);
    // Makes sure that the client has this block's file, for an answer that points into it.
    enum class Reference {
      kGiven,  // the client has the file, or gets it with this batch
      kLater,  // the file needs a descriptor, and the batch is not empty: the answer must be the
               // first of the next batch
      kNone,   // the process has no descriptor left
    };
    Reference Refer(const std::shared_ptr<MemoryBlock>& block, bool writable);
    // The client asks to unmap the file: confirms it, and does not count the file as mapped there.
    void Forget(uint64_t file, bool writable);

   private:
    friend class LocalOutbox;
    void CloseDescriptor();
    size_t size() const { return bytes_.size() + (last_ == nullptr ? 0 : last_->size()); }
    // What is not sent.
    std::array<iovec, 2> Rest();
    void Clear();

    ViewerId viewer_ = 0;
    std::string bytes_;
    // The bytes of a message, behind the others; or null.
    std::shared_ptr<const std::string> last_;
    size_t sent_ = 0;
    int descriptor_ = -1;  // owned until it is sent
    bool has_shown_files_ = false;
    // (file, writable) that the client has.
    absl::flat_hash_set<std::pair<uint64_t, bool>> files_;
  };
  // Adds its messages to the batch. Returns false, and adds nothing, if Refer returned kLater.
  using Item = absl::AnyInvocable<bool(Batch&)>;

  LocalOutbox() = default;
  ~LocalOutbox() { batch_.CloseDescriptor(); }
  LocalOutbox(const LocalOutbox&) = delete;
  LocalOutbox& operator=(const LocalOutbox&) = delete;

  // Sets the viewer for which files are opened. REQUIRES: before the first answer that points into
  // a file.
  void SetViewer(ViewerId viewer) { batch_.viewer_ = viewer; }
  // Whether a file was sent or is in the batch.
  bool has_shown_files() const { return batch_.has_shown_files_; }

  void Add(Item item) { items_.push_back(std::move(item)); }
  // Encodes the answer now, so that it can point to memory of the caller.
  void Add(const local::Answer& answer);

  enum class State {
    kEmpty,
    kFull,     // the socket has no room now
    kCrowded,  // too many descriptors are in flight between processes of this user: try again soon
    kBroken,   // the client is gone
  };
  // Sends until nothing is left or the socket accepts no more.
  State Send(int socket);

  // Returns the number of answers that wait.
  size_t size() const { return items_.size(); }
  // Drops the answers that have not been encoded.
  void Clear() { items_.clear(); }
  // Drops everything; nothing is sent after this.
  void Close();

 private:
  void Fill();

  std::deque<Item> items_;
  Batch batch_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_LOCAL_OUTBOX_H_
