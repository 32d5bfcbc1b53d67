// The Puts, Creates and Seals of this node's clients, and the writers in between.
//
//   Put ────► memory ─► copy, complete ─► announced ──┐
//                                                     ├─► (verdict) ─► PutResult
//   Create ─► memory ─► copy, written ─► announced    │
//                └─► WriteGrant ─► Publish… ─► Seal ──┘
//                                     └─► Abort: withdrawn, dropped
//
// A copy that ends before its Seal (deleted, superseded) leaves its outcome with the writer.
//
// Invariants, checked by CheckInvariants
//  1. A writer's copy is pinned, and in its client's list.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_STORE_PUT_REQUESTS_H_
#define PHALANX_OBJECT_STORE_STORE_PUT_REQUESTS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "src/common/time/executor.h"
#include "src/object_store/channel/copy_reporter.h"
#include "src/object_store/memory/memory_queue.h"
#include "src/object_store/objects/local_copies.h"
#include "src/object_store/pulls/peer_server.h"
#include "src/object_store/store/request_table.h"

namespace phalanx::object_store {

class PutRequests {
 public:
  struct Writer {
    ClientId client = 0;
    Copy* copy = nullptr;  // pinned
    // How long its Create was willing to wait: so is its Seal.
    absl::Duration timeout = absl::InfiniteDuration();
    // The generation ended before the Seal: what the Seal answers.
    std::optional<absl::StatusOr<PutResult>> outcome;
  };

  // All of them outlive this.
  PutRequests(const StoreOptions& options, Executor& executor, Turns& turns, RequestTable& requests,
              ObjectTable& table, LocalCopies& copies, CopyReporter& reporter, MemoryQueue& memory,
              PullManager& pulls, PeerServer& peers);

  // ---- clients; contracts as in Store
  RequestId Put(ClientId client, PutOptions options, std::string bytes, PutDone done);
  RequestId Create(ClientId client, PutOptions options, uint64_t size, CreateDone done);
  absl::Status Publish(ClientId client, WriterId writer, uint64_t n);
  void Seal(ClientId client, WriterId writer, bool wait_for_adoption, PutDone done);
  absl::Status Abort(ClientId client, WriterId writer);
  void AnnounceAgain(const ObjectId& id, const Generation& generation, const SlotVersion& version);
  // Before a request of the client ends without its callback.
  void Cancel(Request& request);
  // Ends the client's writers. `clean` as in Store::CloseClient.
  void CloseClient(Client& client, bool clean);

  // ---- what happens
  // The memory of a Put or a Create. REQUIRES: the request waits.
  void OnMemory(Request& request, std::shared_ptr<MemoryBlock> block);
  // The Put, or the writer, of this copy gets its outcome. Returns false if neither waits for it.
  bool AnswerCreator(Copy* copy, const absl::StatusOr<PutResult>& outcome);
  // The verdict on a copy that its creator no longer waits for is an error.
  void CountConflict() { ++conflicts_; }

  const absl::flat_hash_map<WriterId, Writer>& writers() const { return writers_; }
  uint64_t conflicts() const { return conflicts_; }
  absl::Status CheckInvariants() const;

  // Null unless the client has it.
  Writer* FindWriter(ClientId client, WriterId id);

 private:
  absl::Status Check(const PutOptions& options, uint64_t size) const;
  void AnswerCreate(Request& request, absl::StatusOr<WriteGrant> result);
  void AnswerPut(Request& request, absl::StatusOr<PutResult> result);
  void FinishPut(Request& request, std::shared_ptr<MemoryBlock> block);
  void FinishCreate(Request& request, std::shared_ptr<MemoryBlock> block);
  Copy* AddCreated(const PutOptions& options, uint64_t size, std::shared_ptr<MemoryBlock> block);
  void SealCopy(Copy* copy);
  void SealWriter(Request& request, const Writer& writer, bool wait_for_adoption);
  // Answers now, or when the shard's verdict comes.
  void AnswerSealed(Request& request, Copy* copy, bool wait_for_adoption);
  void AbortWriter(WriterId id, const absl::Status& why);
  uint64_t RecordBytes(const PutOptions& options) const {
    return copies_.RecordBytes(TraitsOf(options));
  }

  const StoreOptions& options_;
  Executor& executor_;
  Turns& turns_;
  RequestTable& requests_;
  ObjectTable& table_;
  LocalCopies& copies_;
  CopyReporter& reporter_;
  MemoryQueue& memory_;
  PullManager& pulls_;
  PeerServer& peers_;

  uint64_t next_sequence_ = 1;
  absl::flat_hash_map<WriterId, Writer> writers_;
  uint64_t conflicts_ = 0;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_PUT_REQUESTS_H_
