// An object that this process is writing: in a file of the node that is mapped here writable, or,
// below kOwnFileBytes, in memory of this process whose bytes go through the socket.
//
// One writer at a time fills the memory; the rest is guarded by the caller's care (WritableBuffer
// is not shared) and, where it says so, by the connection's lock.
#ifndef PHALANX_RUNTIME_CLIENT_WRITER_STATE_H_
#define PHALANX_RUNTIME_CLIENT_WRITER_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "src/runtime/client/call.h"
#include "src/runtime/client/connection.h"
#include "src/runtime/client/file_mapping.h"

namespace phalanx::internal {

struct CreateCall;

struct WriterState {
  // Blocks until the node has room. Errors as Client::Create.
  static absl::StatusOr<std::unique_ptr<WriterState>> Open(std::shared_ptr<Connection> connection,
                                                           const ObjectId& id, uint64_t size,
                                                           const PutOptions& options);
  // The same in two steps: a call that ends when the node has room, or with an error of Open's; and
  // what it was granted. What was granted must be taken, or its place is never filled.
  static std::shared_ptr<CreateCall> Begin(std::shared_ptr<Connection> connection,
                                           const ObjectId& id, uint64_t size,
                                           const PutOptions& options);
  // FailedPrecondition when it was taken before. REQUIRES: the call has ended.
  static absl::StatusOr<std::unique_ptr<WriterState>> Take(CreateCall& call);
  ~WriterState();

  absl::Status Publish(uint64_t n);
  Future<PutResult> Seal();
  void Abort();
  // Seals, or aborts, for a writer whose memory somebody still looks at: it becomes private memory,
  // with what was written, until this state is gone. ResourceExhausted when the system refuses
  // that: the object is as before, or, when its memory is lost, aborted.
  Future<PutResult> SealAndKeepMemory();
  absl::Status AbortAndKeepMemory();

  std::shared_ptr<Connection> connection;
  ObjectId id;
  uint64_t size = 0;
  bool wait_for_adoption = false;
  bool owned = false;
  uint64_t number = 0;  // the node's, for this writer
  // One of the two holds the bytes.
  std::shared_ptr<FileMapping> mapping;
  std::unique_ptr<char[]> own;
  char* data = nullptr;
  uint64_t published = 0;
  bool open = false;
  bool keep_own = false;
  // What the memory became.
  FileMapping::GivenAway given_away;

 private:
  // No byte is written any more, and the memory is the writer's own.
  absl::Status KeepMemory();
  // The bytes that go with a Publish or Seal up to `n`: at most kMaxPiece.
  absl::string_view Unsent(uint64_t n) const;
  void PostAbort();
  // No byte is written any more.
  absl::Status StopWriting();
};

// What options and size of a Put must satisfy. InvalidArgument, naming the object.
absl::Status CheckPut(const ObjectId& id, uint64_t size, const PutOptions& options);

local::Description Describe(const ObjectId& id, const PutOptions& options);

// What the node granted, with the file that it is in.
struct Grant {
  local::Granted answer;
  std::shared_ptr<FileMapping> mapping;
};

struct CreateCall final : public FutureState<Grant> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;

  uint64_t size = 0;
  bool wait_for_adoption = false;
  bool owned = false;
  bool taken = false;  // by Take
};

// A Put or Seal under way.
struct PutCall final : public FutureState<PutResult> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t request, const local::Answer& answer) override;
};

}  // namespace phalanx::internal

#endif  // PHALANX_RUNTIME_CLIENT_WRITER_STATE_H_
