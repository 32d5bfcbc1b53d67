#include "phalanx/client.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/client/buffer_state.h"
#include "src/client/connection/address.h"
#include "src/client/connection/call.h"
#include "src/client/connection/connection.h"
#include "src/client/connection/embedded.h"
#include "src/client/gather.h"
#include "src/client/stream_state.h"
#include "src/client/verb.h"
#include "src/client/writer_state.h"
#include "src/common/status_macros.h"

namespace phalanx {
namespace {

using internal::CheckId;
using internal::Connection;
using internal::CountCall;
using internal::FutureState;
using internal::Refused;
using internal::StartOne;
namespace local = object_store::local;

struct StatCall final : public FutureState<ObjectStatus> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto expected = Expect<local::Described>(answer);
    if (!expected.ok()) return Set(expected.status());
    const local::Described& described = **expected;
    ObjectStatus status;
    status.known = described.known;
    status.deleted = described.deleted;
    status.complete = described.complete;
    status.local = described.local;
    status.size = described.size;
    status.metadata = std::string(described.metadata);
    status.complete_copies = static_cast<int>(described.complete_copies);
    status.partial_copies = static_cast<int>(described.partial_copies);
    status.waiting = static_cast<int>(described.waiting);
    status.conflicts = static_cast<int>(described.conflicts);
    status.owned = described.owned;
    status.name = std::string(described.name.name());
    status.name_space = std::string(described.name.name_space());
    status.holders = static_cast<int>(described.holders);
    status.sticky = described.sticky;
    status.ttl = described.ttl;
    status.copies_wanted = static_cast<int>(described.copies_wanted);
    status.copies_there = static_cast<int>(described.copies_there);
    Set(std::move(status));
  }
};

struct ProgressCall final : public FutureState<BroadcastProgress> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto expected = Expect<local::Described>(answer);
    if (!expected.ok()) return Set(expected.status());
    const local::Described& described = **expected;
    if (!described.known || described.deleted) {
      return Set(
          Explain(absl::NotFoundError(described.deleted ? "it was deleted" : "it does not exist")));
    }
    BroadcastProgress progress;
    progress.nodes = static_cast<int>(described.named);
    progress.complete = static_cast<int>(described.named_complete);
    progress.without_room = static_cast<int>(described.named_without_room);
    progress.bytes = described.named_bytes;
    progress.total_bytes = described.named * described.size;
    progress.sticky = described.sticky;
    Set(progress);
  }
};

// Node names go into one message, whose size is limited.
absl::Status CheckNodes(absl::Span<const std::string> nodes) {
  if (nodes.empty() || nodes.size() > local::kMaxNodeNames) {
    return absl::InvalidArgumentError(
        absl::StrCat("1 to ", local::kMaxNodeNames, " nodes, not ", nodes.size()));
  }
  for (const std::string& node : nodes) {
    if (node.size() <= local::kMaxNameBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a node's name has at most ", local::kMaxNameBytes, " bytes"));
  }
  return absl::OkStatus();
}

// Contains means complete somewhere: a Get could then return without waiting for a writer.
struct ContainsCall final : public FutureState<bool> {
  using FutureState::FutureState;
  void OnAnswer(uint64_t, const local::Answer& answer) override {
    const auto described = Expect<local::Described>(answer);
    if (!described.ok()) return Set(described.status());
    Set((*described)->complete);
  }
};

// Returns an empty string for the program's private cluster.
std::string NamedAddress(const ClientOptions& options) {
  if (!options.address.empty()) return options.address;
  const char* address = std::getenv("PHALANX_ADDRESS");
  return address == nullptr ? "" : address;
}

absl::StatusOr<std::shared_ptr<Connection>> OpenAt(const std::string& address,
                                                   const ClientOptions& options) {
  internal::ConnectionOptions to;
  PHALANX_ASSIGN_OR_RETURN(to.socket_path, internal::SocketPath(address));
  // Error messages always show the scheme, whichever form the caller used.
  to.address = absl::StrCat("unix:", to.socket_path);
  to.connect_timeout = options.connect_timeout;
  to.callback_thread = options.callback_thread;
  return Connection::Open(std::move(to));
}

absl::StatusOr<std::shared_ptr<Connection>> OpenConnection(const ClientOptions& options) {
  const std::string named = NamedAddress(options);
  if (!named.empty()) return OpenAt(named, options);
  const auto start = [&options](absl::string_view refused) {
    return internal::EmbeddedAddress(options.embedded_executable, options.embedded_capacity,
                                     options.connect_timeout, refused);
  };
  PHALANX_ASSIGN_OR_RETURN(std::string address, start(""));
  absl::StatusOr<std::shared_ptr<Connection>> connection = OpenAt(address, options);
  if (!absl::IsUnavailable(connection.status())) return connection;
  // A daemon that is being killed looks alive until its descriptors are closed. The second attempt
  // starts a new one.
  PHALANX_ASSIGN_OR_RETURN(address, start(address));
  return OpenAt(address, options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Client>> Client::Connect(ClientOptions options) {
  PHALANX_ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection, OpenConnection(options));
  std::shared_ptr<Client> client(new Client(std::move(connection)));
  client->name_space_ = std::move(options.name_space);
  return client;
}

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Client::~Client() { Close(); }

// ---------------------------------------------------------------------------- writing

Future<PutResult> Client::Put(const ObjectId& id, absl::string_view bytes, PutOptions options) {
  const auto refuse = [this, &id](absl::Status why) {
    return Refused<PutResult>(connection_, "Put", id, std::move(why));
  };
  absl::Status status = connection_->CheckProcess();
  if (status.ok()) status = internal::CheckPut(id, bytes.size(), options);
  if (!status.ok()) return refuse(std::move(status));
  // Large objects are written straight into the node's memory. Smaller ones travel in the message,
  // which saves a round trip and a mapping.
  if (bytes.size() >= object_store::kOwnFileBytes) {
    auto writer = internal::WriterState::Open(connection_, id, bytes.size(), options);
    if (!writer.ok()) return refuse(writer.status());
    std::memcpy((*writer)->data, bytes.data(), bytes.size());
    return (*writer)->Seal();
  }
  const Instant deadline = MonotonicNow() + options.timeout;
  // The bytes are copied into the message, so the caller can reuse its memory at once.
  auto call = std::make_shared<internal::PutCall>(connection_, "Put", id);
  // The node refuses Puts beyond its limit of bytes in flight, so the wait for room is here.
  status = connection_->ReservePutBytes(bytes.size(), deadline);
  if (!status.ok()) return refuse(call->Explain(status));
  // Before the request, so that the object cannot be deleted before the client holds it.
  if (options.owned) call->HoldFirst();
  return StartOne<PutResult>(call, deadline, [&](uint64_t request) {
    return local::Put{request, internal::Describe(*connection_, id, options), bytes};
  });
}

absl::StatusOr<WritableBuffer> Client::Create(const ObjectId& id, uint64_t size,
                                              PutOptions options) {
  // WriterState does all checks, because a Create also starts from the C functions.
  PHALANX_ASSIGN_OR_RETURN(std::shared_ptr<internal::WriterState> writer,
                           internal::WriterState::Open(connection_, id, size, options));
  return WritableBuffer(std::move(writer));
}

// ---------------------------------------------------------------------------- reading

Future<Buffer> Client::Get(const ObjectId& id, GetOptions options) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return Refused<Buffer>(connection_, "Get", id, status);
  auto call = std::make_shared<internal::GetCall>(connection_, "Get", id);
  // The node maps the whole object; the answer is cut to the range here.
  call->offset = options.offset;
  call->length = options.length;
  return StartOne<Buffer>(call, MonotonicNow() + options.timeout, [&](uint64_t request) {
    return internal::GetMessage(request, id, options, options.timeout,
                                connection_->names().Find(id));
  });
}

Future<std::vector<Buffer>> Client::GetMany(absl::Span<const ObjectId> ids, GetOptions options) {
  // One bad id fails the whole call before any request is sent.
  for (const ObjectId& id : ids) {
    const absl::Status status = CheckId(*connection_, id);
    if (!status.ok()) return Refused<std::vector<Buffer>>(connection_, "GetMany", id, status);
  }
  return internal::GetAllOf(connection_, ids, options);
}

Future<std::vector<Client::Arrival>> Client::GetFirst(absl::Span<const ObjectId> ids, size_t count,
                                                      GetOptions options) {
  using Result = std::vector<Arrival>;
  for (const ObjectId& id : ids) {
    const absl::Status status = CheckId(*connection_, id);
    if (!status.ok()) return Refused<Result>(connection_, "GetFirst", id, status);
  }
  // More objects than ids can never arrive, so the call would wait until its deadline.
  if (count > ids.size()) {
    return Refused<Result>(connection_, "GetFirst", ObjectId(),
                           absl::InvalidArgumentError(absl::StrCat(
                               "cannot get the first ", count, " of ", ids.size(), " objects")));
  }
  return internal::GetFirstOf(connection_, ids, count, options);
}

absl::StatusOr<size_t> Client::GetInto(const ObjectId& id, absl::Span<char> into,
                                       GetOptions options) {
  PHALANX_ASSIGN_OR_RETURN(const Buffer buffer, Get(id, options).Wait());
  if (buffer.size() > into.size()) {
    return absl::InvalidArgumentError(absl::StrCat("GetInto of ", id.hex(), ": ", buffer.size(),
                                                   " bytes do not fit into ", into.size()));
  }
  // memcpy must not get a null pointer, which an empty buffer has.
  if (buffer.size() > 0) std::memcpy(into.data(), buffer.data(), buffer.size());
  return buffer.size();
}

absl::StatusOr<ObjectStream> Client::GetStream(const ObjectId& id, absl::Duration timeout) {
  PHALANX_RETURN_IF_ERROR(CheckId(*connection_, id));
  auto call = std::make_shared<internal::StreamCall>(connection_, "GetStream", id);
  // Made before Start: its destructor cancels the Get if the wait below fails.
  auto state = std::make_shared<internal::StreamState>(call);
  const uint64_t request = connection_->NewRequests(1);
  // The stream lives longer than the wait for its first bytes, so only this client enforces the
  // deadline.
  local::Get get{request, id, true, absl::InfiniteDuration(), 0, UINT64_MAX};
  get.name = connection_->names().Find(id);
  connection_->Start(call, request, 1, Instant::Infinite(), get);
  PHALANX_RETURN_IF_ERROR(call->WaitForView(MonotonicNow() + timeout));
  return ObjectStream(std::move(state));
}

// ---------------------------------------------------------------------------- managing

Future<ObjectStatus> Client::Stat(const ObjectId& id, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return Refused<ObjectStatus>(connection_, "Stat", id, status);
  return StartOne<ObjectStatus>(std::make_shared<StatCall>(connection_, "Stat", id),
                                MonotonicNow() + timeout, [&](uint64_t request) {
                                  return local::Stat{request, id, false, false, timeout};
                                });
}

Future<bool> Client::Contains(const ObjectId& id, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return Refused<bool>(connection_, "Contains", id, status);
  return StartOne<bool>(std::make_shared<ContainsCall>(connection_, "Contains", id),
                        MonotonicNow() + timeout, [&](uint64_t request) {
                          return local::Stat{request, id, true, false, timeout};
                        });
}

Future<Done> Client::Delete(const ObjectId& id, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return Refused<Done>(connection_, "Delete", id, status);
  return StartOne<Done>(std::make_shared<CountCall<Done>>(connection_, "Delete", id),
                        MonotonicNow() + timeout, [&](uint64_t request) {
                          return local::Delete{request, id, timeout};
                        });
}

Future<int> Client::Broadcast(const ObjectId& id, BroadcastOptions options) {
  absl::Status status = CheckId(*connection_, id);
  // "*" stands for all nodes; the directory resolves names, so unknown ones are no error here.
  status.Update(CheckNodes(options.nodes));
  if (!status.ok()) return Refused<int>(connection_, "Broadcast", id, status);
  return StartOne<int>(std::make_shared<CountCall<int>>(connection_, "Broadcast", id),
                       MonotonicNow() + options.timeout, [&](uint64_t request) {
                         return local::Broadcast{request,
                                                 id,
                                                 options.sticky,
                                                 /*stop=*/false,
                                                 options.timeout,
                                                 {options.nodes.begin(), options.nodes.end()}};
                       });
}

Future<Done> Client::StopBroadcast(const ObjectId& id, absl::Duration timeout) {
  const absl::Status status = CheckId(*connection_, id);
  if (!status.ok()) return Refused<Done>(connection_, "StopBroadcast", id, status);
  return StartOne<Done>(std::make_shared<CountCall<Done>>(connection_, "StopBroadcast", id),
                        MonotonicNow() + timeout, [&](uint64_t request) {
                          return local::Broadcast{request, id, false, /*stop=*/true, timeout, {}};
                        });
}

Future<int> Client::Replicate(const ObjectId& id, int copies, absl::Duration timeout) {
  absl::Status status = CheckId(*connection_, id);
  if (copies < 1 || copies > kMaxObjectCopies) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("1 to ", kMaxObjectCopies, " copies, not ", copies)));
  }
  if (!status.ok()) return Refused<int>(connection_, "Replicate", id, status);
  return StartOne<int>(
      std::make_shared<CountCall<int>>(connection_, "Replicate", id), MonotonicNow() + timeout,
      [&](uint64_t request) {
        return local::Replicate{request, id, static_cast<uint32_t>(copies), timeout};
      });
}

Future<BroadcastProgress> Client::ProgressOf(const ObjectId& id, std::vector<std::string> nodes,
                                             absl::Duration timeout) {
  absl::Status status = CheckId(*connection_, id);
  status.Update(CheckNodes(nodes));
  if (!status.ok()) return Refused<BroadcastProgress>(connection_, "ProgressOf", id, status);
  return StartOne<BroadcastProgress>(
      std::make_shared<ProgressCall>(connection_, "ProgressOf", id), MonotonicNow() + timeout,
      [&](uint64_t request) {
        return local::Stat{request, id, false, false, timeout, {nodes.begin(), nodes.end()}};
      });
}

// ---------------------------------------------------------------------------- names, driving

// Names are hashed here, so no request is needed and the id is known before the object exists.
ObjectId Client::Id(absl::string_view name) const { return Id(name_space_, name); }

ObjectId Client::Id(absl::string_view name_space, absl::string_view name) const {
  // A thread that does not exist in a child of fork can hold the lock of the names.
  if (connection_->forked()) return ObjectId::FromName(name_space, name);
  return connection_->names().Derive(name_space, name);
}

int Client::fd() const { return connection_->fd(); }
int Client::Poll(absl::Duration timeout) { return connection_->Poll(timeout); }
void Client::Close() { connection_->Close(); }

const std::string& Client::address() const { return connection_->address(); }
const std::string& Client::node_name() const { return connection_->identity().name; }
const std::string& Client::directory() const { return connection_->identity().directory; }

}  // namespace phalanx
