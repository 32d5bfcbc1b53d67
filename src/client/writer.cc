#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/verb.h"
#include "src/client/writer_state.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/object_name.h"
#include "src/common/status_macros.h"

namespace phalanx {

absl::Span<char> WritableBuffer::span() const {
  if (state_ == nullptr || !state_->open) return {};
  return absl::MakeSpan(state_->data, state_->size);
}

const ObjectId& WritableBuffer::id() const {
  static constexpr ObjectId kNil;
  return state_ == nullptr ? kNil : state_->id;
}

absl::Status WritableBuffer::Publish(uint64_t n) {
  if (state_ == nullptr) return absl::FailedPreconditionError("a WritableBuffer without memory");
  return state_->Publish(n);
}

Future<PutResult> WritableBuffer::Seal() {
  return state_ == nullptr ? Future<PutResult>() : state_->Seal();
}

void WritableBuffer::Abort() {
  if (state_ != nullptr) state_->Abort();
}

namespace internal {
namespace {

// The bytes that one message carries.
constexpr uint64_t kMaxPiece = object_store::kOwnFileBytes;

// At least one byte, so that an empty object has an address too; aligned like every allocation.
std::unique_ptr<char[]> OwnMemory(uint64_t size) {
  return std::make_unique_for_overwrite<char[]>(size == 0 ? 1 : size);
}

}  // namespace

absl::Status CheckPut(const ObjectId& id, uint64_t size, const PutOptions& options) {
  const auto refuse = [&id](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("Put of ", id.hex(), ": ", why));
  };
  if (id.nil()) return refuse("the nil id names no object");
  if (options.slices < 1 || options.slices > kMaxSlices) {
    return refuse(absl::StrCat("an object has 1 to ", kMaxSlices, " slices, not ", options.slices));
  }
  if (options.ttl <= absl::ZeroDuration()) {
    return refuse(
        absl::StrCat("the time to live is positive, not ", absl::FormatDuration(options.ttl)));
  }
  if (options.copies < 0 || options.copies > kMaxObjectCopies) {
    return refuse(absl::StrCat("at most ", kMaxObjectCopies, " copies, not ", options.copies));
  }
  if (options.wait_for_copies && options.copies == 0) {
    return refuse("no number of copies to wait for is given");
  }
  if (!options.scope.empty() && !CanBeKept(options.scope.name)) {
    return refuse("the name of a scope is UTF-8 without control characters of at most 255 bytes");
  }
  if (options.metadata.size() > kMaxObjectMetadataBytes) {
    return refuse(absl::StrCat("metadata has at most ", kMaxObjectMetadataBytes, " bytes, not ",
                               options.metadata.size()));
  }
  if (options.refers_to.size() > kMaxObjectReferences) {
    return refuse(absl::StrCat("an object refers to at most ", kMaxObjectReferences,
                               // The wire format has no limit of its own here; these limits match
                               // the node's, so that errors are reported before anything is sent.
                               " others, not ", options.refers_to.size()));
  }
  for (const ObjectId& other : options.refers_to) {
    if (other.nil()) return refuse("the nil id is among what it refers to");
  }
  if (size > kMaxObjectBytes) {
    return refuse(absl::StrCat("an object has at most ", kMaxObjectBytes, " bytes, not ", size));
  }
  return absl::OkStatus();
}

local::Description Describe(Connection& connection, const ObjectId& id, const PutOptions& options) {
  return {id,
          options.wait_for_adoption,
          static_cast<uint8_t>(options.slices),
          options.timeout,
          options.metadata,
          options.owned,
          options.refers_to,
          connection.names().Find(id),
          options.ttl,
          static_cast<uint32_t>(options.copies),
          options.wait_for_copies,
          options.scope};
}

void CreateCall::OnAnswer(uint64_t, const local::Answer& answer) {
  const auto expected = Expect<local::Granted>(answer);
  if (!expected.ok()) return Set(expected.status());
  const local::Granted& granted = **expected;
  // Small objects have no file: the node gets their bytes through the socket.
  if (!granted.has_file) return Set(Grant{granted, nullptr});
  auto mapping = connection().TakeWriter(granted, size);
  if (!mapping.ok()) return Set(Explain(mapping.status()));
  Set(Grant{granted, *std::move(mapping)});
}

void PutCall::OnAnswer(uint64_t, const local::Answer& answer) {
  if (const auto* done = std::get_if<local::PutDone>(&answer)) {
    return Set(PutResult{done->already_existed});
  }
  Set(Refusal(answer));
}

// Blocks without running callbacks, because Create is not a Wait of the user.
absl::StatusOr<std::unique_ptr<WriterState>> WriterState::Open(
    std::shared_ptr<Connection> connection, const ObjectId& id, uint64_t size,
    const PutOptions& options) {
  const std::shared_ptr<CreateCall> call = Begin(connection, id, size, options);
  if (!call->done()) {
    connection->WaitInsideCall([&call] { return call->done(); }, Instant::Infinite());
  }
  return Take(*call);
}

std::shared_ptr<CreateCall> WriterState::Begin(std::shared_ptr<Connection> connection,
                                               const ObjectId& id, uint64_t size,
                                               const PutOptions& options) {
  absl::Status status = connection->CheckProcess();
  if (status.ok()) status = CheckPut(id, size, options);
  auto call = std::make_shared<CreateCall>(connection, "Create", id);
  call->size = size;
  call->wait_for_adoption = options.wait_for_adoption;
  call->wait_for_copies = options.wait_for_copies;
  call->owned = options.owned;
  if (!status.ok()) {
    call->result.emplace(std::move(status));
    call->MarkEnded();
    return call;
  }
  // Before the request, so that the object cannot be deleted before the client holds it.
  if (options.owned) call->HoldFirst();
  const uint64_t request = connection->NewRequests(1);
  connection->Start(call, request, 1, MonotonicNow() + options.timeout,
                    local::Create{request, Describe(*connection, id, options), size});
  return call;
}

absl::StatusOr<std::unique_ptr<WriterState>> WriterState::Take(CreateCall& call) {
  PHALANX_RETURN_IF_ERROR(call.result->status());
  if (std::exchange(call.taken, true)) {
    return call.Explain(absl::StatusCode::kFailedPrecondition, "its memory was taken before");
  }
  Grant& grant = **call.result;
  const uint64_t size = call.size;

  auto writer = std::make_unique<WriterState>();
  writer->connection = call.shared_connection();
  writer->id = call.id();
  writer->size = size;
  writer->wait_for_adoption = call.wait_for_adoption;
  writer->wait_for_copies = call.wait_for_copies;
  writer->owned = call.owned;
  writer->number = grant.answer.writer;
  writer->mapping = std::move(grant.mapping);
  writer->open = true;
  if (writer->mapping == nullptr) {
    writer->own = OwnMemory(size);
    writer->data = writer->own.get();
    return writer;
  }
  // From here on a failure drops the writer, and its destructor aborts the object.
  PHALANX_RETURN_IF_ERROR(writer->mapping->BeginWriting(grant.answer.offset + size));
  writer->data = writer->mapping->writing() + grant.answer.offset;
  return writer;
}

WriterState::~WriterState() {
  // An unsealed object would block its readers until their deadlines.
  Abort();
  if (given_away.begin != nullptr) munmap(given_away.begin, given_away.bytes);
}

absl::string_view WriterState::Unsent(uint64_t n) const {
  if (own == nullptr) return {};
  return absl::string_view(data + published, n - published);
}

absl::Status WriterState::Publish(uint64_t n) {
  if (!open) {
    return absl::FailedPreconditionError(
        absl::StrCat("Publish of ", id.hex(), ": the object is sealed or aborted"));
  }
  if (n < published || n > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("Publish of ", id.hex(), ": ", n, " bytes after ", published, " of ", size));
  }
  PHALANX_RETURN_IF_ERROR(connection->CheckProcess());
  while (published < n) {
    // Bytes in a file are shared, so one message is enough. Own bytes go in pieces that fit into a
    // frame.
    const uint64_t upto = own == nullptr ? n : std::min(n, published + kMaxPiece);
    PHALANX_RETURN_IF_ERROR(connection->Post(local::Publish{number, upto, Unsent(upto)}));
    published = upto;
  }
  return absl::OkStatus();
}

absl::Status WriterState::StopWriting() {
  open = false;
  if (mapping == nullptr) return absl::OkStatus();
  // KeepMemory has ended the writing already.
  const absl::Status stopped =
      given_away.begin == nullptr ? mapping->EndWriting() : absl::OkStatus();
  // Returned before Seal or Abort is sent: the node can hand the same file to this client again in
  // its answer.
  connection->Update([this] { connection->PutBackWriter(std::move(mapping)); });
  return stopped;
}

absl::Status WriterState::KeepMemory() {
  if (mapping == nullptr) return absl::OkStatus();
  // A child of fork does not have that memory.
  PHALANX_RETURN_IF_ERROR(connection->CheckProcess());
  const uint64_t upto = static_cast<uint64_t>(data - mapping->writing()) + size;
  PHALANX_RETURN_IF_ERROR(mapping->EndWriting());
  auto given = mapping->GiveAway(upto);
  if (given.ok()) {
    given_away = *given;
    return absl::OkStatus();
  }
  // The caller can retry, unless no thread can write the memory any more.
  if (!mapping->BeginWriting(upto).ok()) Abort();
  return given.status();
}

Future<PutResult> WriterState::SealAndKeepMemory() {
  if (open) {
    const absl::Status kept = KeepMemory();
    if (!kept.ok()) return Future<PutResult>(PutCall::Ended(connection, "Seal", id, kept));
  }
  keep_own = true;
  return Seal();
}

absl::Status WriterState::AbortAndKeepMemory() {
  if (open) PHALANX_RETURN_IF_ERROR(KeepMemory());
  keep_own = true;
  Abort();
  return absl::OkStatus();
}

Future<PutResult> WriterState::Seal() {
  const auto refuse = [this](absl::Status why) {
    return Future<PutResult>(PutCall::Ended(connection, "Seal", id, std::move(why)));
  };
  const absl::Status process = connection->CheckProcess();
  if (!process.ok()) return refuse(process);
  if (!open) return refuse(absl::FailedPreconditionError("the object is sealed or aborted"));
  // Only a node whose memory cannot be mapped leaves this much to be sent.
  if (own != nullptr && size - published > kMaxPiece) {
    const absl::Status sent = Publish(size);
    if (!sent.ok()) return refuse(sent);
  }
  const absl::string_view rest = Unsent(size);
  // After this no thread can change the bytes, and only then the node learns that they are final.
  const absl::Status stopped = StopWriting();
  if (!stopped.ok()) {
    // A failed Seal would leave an object that never completes.
    PostAbort();
    return refuse(stopped);
  }
  auto call = std::make_shared<PutCall>(connection, "Seal", id);
  // The writer held the object until here; the call drops the hold if the Seal fails.
  if (owned) connection->Update([&call] { call->HoldUnlessItFails(); });
  const uint64_t request = connection->NewRequests(1);
  connection->Start(call, request, 1, Instant::Infinite(),
                    local::Seal{request, number, wait_for_adoption, wait_for_copies, rest});
  if (!keep_own) own.reset();
  return Future<PutResult>(std::move(call));
}

void WriterState::Abort() {
  // In a child the writer belongs to the parent.
  if (!open || connection->forked()) return;
  StopWriting().IgnoreError();
  if (!keep_own) own.reset();
  PostAbort();
}

void WriterState::PostAbort() {
  connection->Post(local::Abort{number}).IgnoreError();
  if (owned) connection->Post(local::Unhold{{id}}).IgnoreError();
}

}  // namespace internal
}  // namespace phalanx
