// Opening, requests and answers. connection_drive.cc has waiting and driving.
#include "src/client/connection/connection.h"

#include <cerrno>
#include <cstring>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection_lock.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::internal {
namespace {

absl::Status InFront(absl::string_view front, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(front, ": ", status.message()));
}

}  // namespace

// ---------------------------------------------------------------------------- opening

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(ConnectionOptions options) {
  const std::string front = absl::StrCat("connecting to the node at ", options.address);
  absl::StatusOr<LocalSocket> socket =
      LocalSocket::Connect(options.socket_path, options.connect_timeout);
  if (!socket.ok()) return InFront(front, socket.status());
  // The options move into the connection below.
  const bool callback_thread = options.callback_thread;
  std::shared_ptr<Connection> connection(new Connection(std::move(options), *std::move(socket)),
                                         &Connection::Delete);
  if (connection->waiters_.nudge_fd() < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(front, ": ", std::strerror(errno)));
  }
  const absl::Status greeted = connection->Greet();
  if (!greeted.ok()) return InFront(front, greeted);
  if (callback_thread) {
    // The thread holds a reference, so it cannot outlive the connection. Close ends the thread.
    connection->callback_thread_ =
        std::thread([connection]() mutable { connection->RunCallbackThread(); });
  }
  return connection;
}

Connection::Connection(ConnectionOptions options, LocalSocket socket)
    : options_(std::move(options)), mark_(ProcessMark::Current()), socket_(std::move(socket)) {}

void Connection::Delete(Connection* connection) {
  // In a child of fork the lock can be held by a thread that does not exist there, so the object is
  // leaked.
  if (!connection->forked()) delete connection;
}

absl::Status Connection::Greet() {
  std::string hello;
  local::Encode(local::Request(local::ClientHello{}), hello);
  const iovec bytes{hello.data(), hello.size()};
  PHALANX_RETURN_IF_ERROR(socket_.Send({bytes}).status());
  PHALANX_ASSIGN_OR_RETURN(const std::string payload,
                           in_.AwaitFrame(socket_, MonotonicNow() + options_.connect_timeout));
  return TakeHello(payload);
}

absl::Status Connection::TakeHello(absl::string_view payload) {
  // The fields up to the message are the same in all versions, so a version mismatch can be
  // reported.
  ByteReader start(payload);
  const uint8_t kind = start.U8();
  const uint32_t magic = start.U32();
  const uint32_t version = start.U32();
  const uint8_t code = start.U8();
  const absl::string_view message = start.Bytes(local::kMaxTextBytes);
  if (!start.ok() || kind != local::NodeHello::kKind || magic != local::kMagic) {
    return absl::FailedPreconditionError("the listener is not a Phalanx node");
  }
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), message);
  if (version != local::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the node speaks version ", version, ", this client ", local::kVersion));
  }
  PHALANX_ASSIGN_OR_RETURN(const local::Answer answer, local::DecodeAnswer(payload));
  const auto& hello = std::get<local::NodeHello>(answer);
  identity_ = {std::string(hello.node_name), std::string(hello.directory), hello.node};
  return absl::OkStatus();
}

absl::Status Connection::CheckProcess() const {
  if (!forked()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the client of ", address(), " was made before fork: connect again in the child"));
}

// ---------------------------------------------------------------------------- requests

absl::Status Connection::Admit() const {
  if (!status_.ok()) return status_;
  if (calls_.size() >= kMaxOutstandingRequests) {
    return absl::ResourceExhaustedError(
        absl::StrCat(calls_.size(), " requests of this client have not been answered"));
  }
  if (out_.size() > kMaxQueuedBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the node has ", out_.size(), " bytes of requests to read"));
  }
  return absl::OkStatus();
}

void Connection::Start(const std::shared_ptr<Call>& call, uint64_t first, uint64_t count,
                       Instant deadline, const local::Request& request) {
  Lock lock(*this);
  const auto* put = std::get_if<local::Put>(&request);
  // Without a Seal the node would keep the writer's memory, so a Seal passes the limits.
  const bool passes = std::holds_alternative<local::Seal>(request) ||
                      std::holds_alternative<local::GroupCall>(request);
  const absl::Status admitted = passes ? status_ : Admit();
  if (!admitted.ok()) {
    // ReservePutBytes has counted these bytes; no answer will subtract them.
    if (put != nullptr) puts_.Return(put->bytes.size());
    return call->OnFailure(admitted);
  }
  // The Hold goes before the request, so that the object cannot be deleted between the two.
  if (call->holds_first_) {
    call->HoldUnlessItFails();
    Send(local::Hold{{call->id()}});
  }
  // The node answers DeadlineExceeded itself. The grace leaves it time, so that the client's own
  // timeout only covers a node that is stuck.
  call->requests_ = {first, count, deadline.infinite() ? deadline : deadline + kDeadlineGrace};
  // The leader polls until the earliest deadline that it knew.
  if (call->requests_.deadline < calls_.next_deadline()) waiters_.Nudge();
  calls_.Begin(call, call->requests_);
  if (put == nullptr) return Send(request);
  puts_.Sent(first, put->bytes.size());
  // The bytes of a Put go straight to the socket if it has room, instead of through the queue.
  out_.AddAllButBytes(*put);
  Flush(put->bytes);
}

absl::Status Connection::Post(const local::Request& request) {
  PHALANX_RETURN_IF_ERROR(CheckProcess());
  Lock lock(*this);
  // Requests that free resources must get through when the limits are reached, or nothing would
  // ever be freed.
  const bool ends_something = std::holds_alternative<local::Abort>(request) ||
                              std::holds_alternative<local::Unhold>(request);
  PHALANX_RETURN_IF_ERROR(ends_something ? status_ : Admit());
  Send(request);
  return absl::OkStatus();
}

absl::Status Connection::ReservePutBytes(size_t bytes, Instant until) {
  Lock lock(*this);
  const auto has_room = [this, bytes] { return !status_.ok() || puts_.HasRoom(bytes); };
  if (!has_room() && !WaitLocked(has_room, until, Callbacks::kLeave)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the node still has ", puts_.bytes(), " bytes of earlier Puts to store"));
  }
  PHALANX_RETURN_IF_ERROR(status_);
  puts_.Reserve(bytes);
  return absl::OkStatus();
}

void Connection::Update(absl::FunctionRef<void()> change) {
  Lock lock(*this);
  change();
}

void Connection::Batch::Begin(Connection& connection) {
  // In a child of fork the lock can be held by a thread that does not exist there.
  if (connection.forked()) return;
  Lock lock(connection);
  connection.out_.BeginBatch();
}

void Connection::Batch::End(Connection& connection) {
  if (connection.forked()) return;
  Lock lock(connection);
  connection.out_.EndBatch();
}

void Connection::Cancel(Call& call) {
  if (forked() || call.done()) return;
  Lock lock(*this);
  // Another thread can end the call between the check without the lock and this one.
  if (call.done()) return;
  CancelRequests(call);
  call.OnFailure(absl::CancelledError("cancelled"));
}

void Connection::CancelRequests(const Call& call) {
  const auto [first, count, deadline] = call.requests_;
  for (uint64_t n = first; n < first + count; ++n) {
    if (calls_.IsOpen(n)) Send(local::Cancel{n});
  }
}

void Connection::Send(const local::Request& request) { out_.Add(request); }

void Connection::SendPart(const std::shared_ptr<Call>& call, const local::Request& request,
                          uint64_t number) {
  calls_.AddPart(number, call);
  Send(request);
}

void Connection::StartTimer(const std::shared_ptr<Call>& call, Instant at) {
  // Nothing would end it any more.
  if (!status_.ok()) return Trash(call);
  call->requests_ = {NewRequests(1), 0, at};
  if (at < calls_.next_deadline()) waiters_.Nudge();
  calls_.Begin(call, call->requests_);
}

void Connection::Finish(Call& call) {
  call.MarkEnded();
  calls_.End(call.requests_, trash_);
}

// ---------------------------------------------------------------------------- files and pins

HeldPin::HeldPin(std::shared_ptr<Connection> connection, uint64_t pin,
                 std::shared_ptr<FileMapping> mapping)
    : connection_(std::move(connection)),
      pin_(pin),
      forks_(ForkCount()),
      mapping_(std::move(mapping)) {}

HeldPin& HeldPin::operator=(HeldPin&& other) noexcept {
  if (this == &other) return *this;
  Release();
  connection_ = std::move(other.connection_);
  pin_ = other.pin_;
  forks_ = other.forks_;
  mapping_ = std::move(other.mapping_);
  return *this;
}

void HeldPin::Release() {
  if (connection_ == nullptr) return;
  connection_->ReleasePin(pin_, forks_, std::move(mapping_));
  connection_.reset();
}

void Connection::ReleasePin(uint64_t pin, uint64_t forks, std::shared_ptr<FileMapping> mapping) {
  if (forked()) return;
  // From here the lock is held; the mapping's last reference must not be dropped under it.
  Lock lock(*this);
  memory_.Unpin(pin, mapping.get());
  Trash(std::move(mapping));
  // A connection that failed (and was not closed) has no socket to send on. The node drops its
  // pins.
  if (!status_.ok() && !closed_) return;
  // The flag says whether the process has not forked since it got the pin. A child can still see
  // the pages, and then the node must not reuse them.
  Send(local::Release{pin, ForkCount() == forks});
  if (!closed_) SendForgets();
}

absl::StatusOr<MappedObject> Connection::Take(const local::Mapped& answer) {
  absl::StatusOr<std::shared_ptr<FileMapping>> mapping = memory_.Pin(answer);
  if (!mapping.ok()) {
    // This process never looked at the pages, so the node can reuse them at once.
    Send(local::Release{answer.pin, true});
    return mapping.status();
  }
  const absl::string_view bytes((*mapping)->data() + answer.offset, answer.object_size);
  return MappedObject{HeldPin(shared_from_this(), answer.pin, *std::move(mapping)), bytes};
}

absl::StatusOr<std::shared_ptr<FileMapping>> Connection::TakeWriter(const local::Granted& answer,
                                                                    uint64_t size) {
  absl::StatusOr<std::shared_ptr<FileMapping>> mapping = memory_.TakeWriter(answer, size);
  if (!mapping.ok()) Send(local::Abort{answer.writer});
  return mapping;
}

void Connection::PutBackWriter(std::shared_ptr<FileMapping> mapping) {
  memory_.PutBack(mapping.get());
  Trash(std::move(mapping));
  if (status_.ok()) SendForgets();
}

void Connection::SendForgets() {
  for (const MappingTable::Key& key : memory_.TakeToForget()) {
    Send(local::Forget{key.file, key.writable});
  }
}

// ---------------------------------------------------------------------------- answers

void Connection::TakeFrames() {
  while (status_.ok()) {
    const auto payload = in_.Next();
    if (payload.ok() && !payload->has_value()) return;
    const absl::StatusOr<local::Answer> answer =
        payload.ok() ? local::DecodeAnswer(**payload) : payload.status();
    // The stream cannot be resynchronized after a bad frame.
    if (!answer.ok()) {
      return Fail(absl::InternalError(absl::StrCat(
          "the node at ", address(), " sent an invalid answer: ", answer.status().message())));
    }
    ++progress_;
    Dispatch(*answer);
  }
}

void Connection::Dispatch(const local::Answer& answer) {
  if (const auto* file = std::get_if<local::File>(&answer)) return OnFile(*file);
  if (const auto* forgotten = std::get_if<local::Forgotten>(&answer)) {
    return Trash(memory_.Forgotten(*forgotten));
  }
  if (const auto* goodbye = std::get_if<local::Goodbye>(&answer)) {
    return Fail(absl::Status(
        goodbye->code,
        absl::StrCat("the node at ", address(), " closed the connection: ", goodbye->message)));
  }
  // Here, because it names buffers of any group, also if its own call was cancelled.
  if (const auto* done = std::get_if<local::GroupDone>(&answer)) {
    memory_.group_buffers().Free(done->free_buffers);
  }
  std::visit(
      [this, &answer](const auto& message) {
        if constexpr (requires { message.request; }) DispatchTo(message.request, answer);
      },
      answer);
}

void Connection::OnFile(const local::File& file) {
  const std::optional<int> fd = in_.TakeDescriptor();
  if (!fd.has_value()) {
    return Fail(absl::InternalError(
        absl::StrCat("the node at ", address(), " named a file but sent no descriptor")));
  }
  // A file that is not mapped is forgotten at once, so that the node sends it again when it is
  // needed.
  if (!memory_.AddFile(file, *fd)) Send(local::Forget{file.file, file.writable});
}

void Connection::DispatchTo(uint64_t request, const local::Answer& answer) {
  // Before the search for the call: the node answers cancelled Puts too.
  puts_.Answered(request);
  // A reference of its own: OnAnswer can end the call, which removes it from the table.
  const std::shared_ptr<Call> call = calls_.Find(request);
  if (call == nullptr) return ReturnUnclaimed(answer);
  call->OnAnswer(request, answer);
}

void Connection::ReturnUnclaimed(const local::Answer& answer) {
  // An answer can cross the Cancel of its request. The pin or writer that it grants is returned
  // here, because no call owns it.
  if (const auto* mapped = std::get_if<local::Mapped>(&answer)) {
    Send(local::Release{mapped->pin, true});
    SendForgets();
  } else if (const auto* granted = std::get_if<local::Granted>(&answer)) {
    Send(local::Abort{granted->writer});
    SendForgets();
  }
}

void Connection::ExpireDeadlines() {
  const Instant now = MonotonicNow();
  while (const std::shared_ptr<Call> call = calls_.Expired(now)) {
    // The node can still be working on the requests; their late answers go to ReturnUnclaimed.
    CancelRequests(*call);
    call->OnFailure(absl::DeadlineExceededError("the node has not answered in time"));
  }
}

void Connection::Fail(const absl::Status& why) {
  if (!status_.ok()) return;
  status_ = why;
  // In the order of the requests, so that callbacks run in the order in which the calls were made.
  for (const uint64_t number : calls_.Numbers()) {
    const std::shared_ptr<Call> call = calls_.Find(number);
    // OnFailure of another number has closed this one.
    if (call == nullptr) continue;
    call->OnFailure(why);
    EndPart(number);
  }
  // Those without numbers are timers: each holds the connection, which holds it until it ends.
  while (const std::shared_ptr<Call> call = calls_.WithDeadline()) {
    call->OnFailure(why);
    calls_.End(call->requests_, trash_);
  }
  puts_.Clear();
  // A closed client keeps its pins and files: buffers stay readable until they are dropped.
  if (closed_) return;
  out_.Break();
  Trash(memory_.GiveUpFiles());
}

}  // namespace phalanx::internal
