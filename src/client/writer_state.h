// An object that this process is writing. Its bytes are in a file of the node that is mapped here
// writable, or, below kOwnFileBytes, in memory of this process, and then travel through the socket.
//
// One writer at a time fills the memory. The other members rely on the caller, because a
// WritableBuffer is not shared, and, where stated, on the connection's lock.
#ifndef PHALANX_CLIENT_WRITER_STATE_H_
#define PHALANX_CLIENT_WRITER_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/client/connection/file_mapping.h"

namespace phalanx::internal {

struct CreateCall;

struct WriterState {
  // Blocks until the node has room. Errors as Client::Create.
  static absl::StatusOr<std::unique_ptr<WriterState>> Open(std::shared_ptr<Connection> connection,
                                                           const ObjectId& id, uint64_t size,
                                                           const PutOptions& options);
  // The same in two steps: Begin returns a call that ends when the node has room, or with an error
  // of Open. Take returns the writer for the granted memory; a caller that does not call it leaves
  // the object unfilled.
  static std::shared_ptr<CreateCall> Begin(std::shared_ptr<Connection> connection,
                                           const ObjectId& id, uint64_t size,
                                           const PutOptions& options);
  // Fails with FailedPrecondition if the grant was taken before. REQUIRES: the call has ended.
  static absl::StatusOr<std::unique_ptr<WriterState>> Take(CreateCall& call);
  ~WriterState();

  absl::Status Publish(uint64_t n);
  Future<PutResult> Seal();
  void Abort();
  // Seals, or aborts, while other code still looks at the memory: the memory becomes private, with
  // the written bytes, until this state is destroyed. Fails with ResourceExhausted if the system
  // refuses; the object is then unchanged, or aborted if its memory is lost.
  Future<PutResult> SealAndKeepMemory();
  absl::Status AbortAndKeepMemory();

  std::shared_ptr<Connection> connection;
  ObjectId id;
  uint64_t size = 0;
  bool wait_for_adoption = false;
  bool wait_for_copies = false;
  bool owned = false;
  uint64_t number = 0;  // the node's number of this writer
  // Exactly one of the two holds the bytes.
  std::shared_ptr<FileMapping> mapping;
  std::unique_ptr<char[]> own;
  char* data = nullptr;
  uint64_t published = 0;
  bool open = false;
  bool keep_own = false;
  // The private memory after KeepMemory.
  FileMapping::GivenAway given_away;

 private:
  // Stops all writes and makes the memory this writer's own.
  absl::Status KeepMemory();
  // The bytes that a Publish or Seal up to `n` carries: at most kMaxPiece.
  absl::string_view Unsent(uint64_t n) const;
  void PostAbort();
  // Stops all writes.
  absl::Status StopWriting();
};

// Checks options and size of a Put. Fails with InvalidArgument, naming the object.
absl::Status CheckPut(const ObjectId& id, uint64_t size, const PutOptions& options);

local::Description Describe(Connection& connection, const ObjectId& id, const PutOptions& options);

// The node's grant, with the file that it is in.
struct Grant {
  local::Granted answer;
  std::shared_ptr<FileMapping> mapping;
};

struct CreateCall final : public FutureState<Grant> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;

  uint64_t size = 0;
  bool wait_for_adoption = false;
  bool wait_for_copies = false;
  bool owned = false;
  bool taken = false;  // Take was called
};

// A Put or Seal in progress.
struct PutCall final : public FutureState<PutResult> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_WRITER_STATE_H_
