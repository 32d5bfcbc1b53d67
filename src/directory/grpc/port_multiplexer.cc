#include "src/directory/grpc/port_multiplexer.h"

#include <sys/socket.h>

#include <utility>

#include "src/common/check.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"
#include "src/directory/session/byte_message_stream.h"
#include "src/net/stream/require_loopback.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::directory {
namespace {

// The first bytes of every HTTP/2 connection.
constexpr absl::string_view kHttp2 = "PRI ";
static_assert(kHttp2.size() == kStreamPreamble.size());
// The check for ended gRPC connections makes a system call for each of them.
constexpr absl::Duration kCheckInterval = absl::Milliseconds(500);

// Returns 0 if `descriptor` is not a socket (any more).
uint64_t CookieOf(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  const bool has = getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0;
  return has ? cookie : 0;
}

void LogRefused(const net::ByteStream& bytes, absl::string_view cause) {
  PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
      << "refused a connection" << LogField("peer", bytes.peer()) << LogField("cause", cause);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PortMultiplexer>> PortMultiplexer::Listen(
    const net::Address& address, Executor& executor, net::TcpNetwork& network, Shard& shard,
    size_t max_grpc_connections) {
  // Before the port opens: without a secret every peer on the network would be let in.
  PHALANX_RETURN_IF_ERROR(net::RequireLoopbackWithoutSecret(address, shard.config().secret));
  PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<GrpcDirectoryServer> tools,
                           GrpcDirectoryServer::WithoutPort(executor, shard));
  std::unique_ptr<PortMultiplexer> multiplexer(
      new PortMultiplexer(executor, shard, std::move(tools), max_grpc_connections));
  PHALANX_ASSIGN_OR_RETURN(
      multiplexer->listener_,
      network.Listen(
          executor, address, [&executor]() -> Executor& { return executor; },
          [self = multiplexer->self_](Executor&, std::unique_ptr<net::ByteStream> bytes) {
            if (*self != nullptr) (*self)->Receive(std::move(bytes));
          }));
  multiplexer->address_ = multiplexer->listener_->address();
  return multiplexer;
}

PortMultiplexer::PortMultiplexer(Executor& executor, Shard& shard,
                                 std::unique_ptr<GrpcDirectoryServer> tools,
                                 size_t max_grpc_connections)
    : executor_(executor),
      shard_(shard),
      tools_(std::move(tools)),
      max_grpc_connections_(max_grpc_connections) {}

PortMultiplexer::~PortMultiplexer() {
  *self_ = nullptr;
  listener_.reset();
  while (!unclassified_.empty()) Remove(unclassified_.begin()->first);
}

void PortMultiplexer::Receive(std::unique_ptr<net::ByteStream> bytes) {
  // The oldest is closed, not the new one: a silent peer then cannot keep others out.
  if (unclassified_.size() >= kMaxUnclassifiedConnections) {
    LogRefused(*Remove(unclassified_.begin()->first).bytes, "too many unclassified connections");
  }
  const uint64_t number = next_number_++;
  UnclassifiedConnection& connection = unclassified_[number];
  connection.bytes = std::move(bytes);
  connection.timer = executor_.RunAt(executor_.Now() + kClassificationTimeout, [this, number] {
    // The timer has fired, so there is nothing to cancel.
    unclassified_.at(number).timer = 0;
    Remove(number);
  });
  AwaitPreamble(number);
}

void PortMultiplexer::AwaitPreamble(uint64_t number) {
  unclassified_.at(number).bytes->OnReadable([this, number] { ReadPreamble(number); });
}

void PortMultiplexer::ReadPreamble(uint64_t number) {
  UnclassifiedConnection& connection = unclassified_.at(number);
  // Reads no further byte: the rest is for the shard or gRPC.
  char first[kStreamPreamble.size()];
  const iovec piece = {first, sizeof(first) - connection.read.size()};
  const absl::StatusOr<size_t> read = connection.bytes->Read({&piece, 1});
  if (read.ok()) connection.read.append(first, *read);
  if (read.ok() && connection.read.size() < sizeof(first)) return AwaitPreamble(number);
  // Classified or broken: in both cases the timeout no longer applies.
  UnclassifiedConnection complete = Remove(number);
  if (read.ok()) Dispatch(std::move(complete));
}

void PortMultiplexer::Dispatch(UnclassifiedConnection connection) {
  if (connection.read == kStreamPreamble) {
    shard_.Accept(
        NewByteShardStream(executor_, std::move(connection.bytes), std::move(connection.read)));
  } else if (connection.read == kHttp2) {
    PassToGrpc(std::move(connection));
  }
}

void PortMultiplexer::PassToGrpc(UnclassifiedConnection connection) {
  if (!GrpcHasRoom()) return LogRefused(*connection.bytes, "gRPC has too many connections");
  auto* const tcp = dynamic_cast<net::TcpStream*>(connection.bytes.get());
  PHALANX_CHECK(tcp != nullptr, "a TcpNetwork makes TcpStreams");
  // gRPC reads the socket on its own threads, so the loop must not watch it any more.
  net::UniqueFd socket = tcp->Release();
  if (const uint64_t cookie = CookieOf(socket.get()); cookie != 0) {
    grpc_connections_.push_back({socket.get(), cookie});
  }
  tools_->TakeConnection(std::move(socket), connection.read);
}

bool PortMultiplexer::GrpcHasRoom() {
  const Instant now = executor_.Now();
  if (grpc_connections_.size() >= max_grpc_connections_ && now >= next_check_) {
    next_check_ = now + kCheckInterval;
    // gRPC does not report the end of a connection. Its descriptor is then closed, or belongs to
    // another socket.
    std::erase_if(grpc_connections_,
                  [](const GrpcConnection& one) { return CookieOf(one.descriptor) != one.cookie; });
  }
  return grpc_connections_.size() < max_grpc_connections_;
}

PortMultiplexer::UnclassifiedConnection PortMultiplexer::Remove(uint64_t number) {
  auto found = unclassified_.extract(number);
  executor_.Cancel(found.mapped().timer);
  return std::move(found.mapped());
}

}  // namespace phalanx::directory
