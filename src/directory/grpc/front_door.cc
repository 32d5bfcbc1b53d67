#include "src/directory/grpc/front_door.h"

#include <sys/socket.h>

#include <utility>

#include "src/common/check.h"
#include "src/common/log.h"
#include "src/common/status_macros.h"
#include "src/directory/byte_message_stream.h"
#include "src/net/require_loopback.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::directory {
namespace {

// How every connection of HTTP/2 begins.
constexpr absl::string_view kHttp2 = "PRI ";
static_assert(kHttp2.size() == kStreamPreamble.size());
// Looking which of gRPC's connections have ended takes a system call for each.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(500);

// 0 for what is no socket (any more).
uint64_t CookieOf(int descriptor) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  const bool has = getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0;
  return has ? cookie : 0;
}

void LogTurnedAway(const net::ByteStream& bytes, absl::string_view cause) {
  PHALANX_LOG_EVERY(WARNING, absl::Seconds(1))
      << "turned a connection away" << LogField("peer", bytes.peer()) << LogField("cause", cause);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Listen(const net::Address& address,
                                                             Executor& executor,
                                                             net::TcpNetwork& network, Shard& shard,
                                                             size_t max_grpc_connections) {
  PHALANX_RETURN_IF_ERROR(net::RequireLoopbackWithoutSecret(address, shard.config().secret));
  PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<GrpcDirectoryServer> tools,
                           GrpcDirectoryServer::WithoutPort(executor, shard));
  std::unique_ptr<FrontDoor> door(
      new FrontDoor(executor, shard, std::move(tools), max_grpc_connections));
  PHALANX_ASSIGN_OR_RETURN(
      door->listener_, network.Listen(
                           executor, address, [&executor]() -> Executor& { return executor; },
                           [self = door->self_](Executor&, std::unique_ptr<net::ByteStream> bytes) {
                             if (*self != nullptr) (*self)->Receive(std::move(bytes));
                           }));
  door->address_ = door->listener_->address();
  return door;
}

FrontDoor::FrontDoor(Executor& executor, Shard& shard, std::unique_ptr<GrpcDirectoryServer> tools,
                     size_t max_grpc_connections)
    : executor_(executor),
      shard_(shard),
      tools_(std::move(tools)),
      max_grpc_connections_(max_grpc_connections) {}

FrontDoor::~FrontDoor() {
  *self_ = nullptr;
  listener_.reset();
  while (!visitors_.empty()) Dismiss(visitors_.begin()->first);
}

void FrontDoor::Receive(std::unique_ptr<net::ByteStream> bytes) {
  if (visitors_.size() >= kMaxVisitors) {
    LogTurnedAway(*Dismiss(visitors_.begin()->first).bytes, "too many wait at the door");
  }
  const uint64_t number = next_number_++;
  Visitor& visitor = visitors_[number];
  visitor.bytes = std::move(bytes);
  visitor.timer = executor_.RunAt(executor_.Now() + kVisitorPatience, [this, number] {
    visitors_.at(number).timer = 0;
    Dismiss(number);
  });
  Await(number);
}

void FrontDoor::Await(uint64_t number) {
  visitors_.at(number).bytes->OnReadable([this, number] { Look(number); });
}

void FrontDoor::Look(uint64_t number) {
  Visitor& visitor = visitors_.at(number);
  // No byte more: the rest is for whoever is behind the door.
  char first[kStreamPreamble.size()];
  const iovec piece = {first, sizeof(first) - visitor.read.size()};
  const absl::StatusOr<size_t> read = visitor.bytes->Read({&piece, 1});
  if (read.ok()) visitor.read.append(first, *read);
  if (read.ok() && visitor.read.size() < sizeof(first)) return Await(number);
  Visitor known = Dismiss(number);
  if (read.ok()) LetIn(std::move(known));
}

void FrontDoor::LetIn(Visitor visitor) {
  if (visitor.read == kStreamPreamble) {
    shard_.Accept(NewByteShardStream(executor_, std::move(visitor.bytes), std::move(visitor.read)));
  } else if (visitor.read == kHttp2) {
    GiveToGrpc(std::move(visitor));
  }
}

void FrontDoor::GiveToGrpc(Visitor visitor) {
  if (!GrpcHasRoom()) return LogTurnedAway(*visitor.bytes, "gRPC has too many connections");
  auto* const tcp = dynamic_cast<net::TcpStream*>(visitor.bytes.get());
  PHALANX_CHECK(tcp != nullptr, "a TcpNetwork makes TcpStreams");
  net::UniqueFd socket = tcp->Release();
  if (const uint64_t cookie = CookieOf(socket.get()); cookie != 0) {
    given_.push_back({socket.get(), cookie});
  }
  tools_->TakeConnection(std::move(socket), visitor.read);
}

bool FrontDoor::GrpcHasRoom() {
  const Instant now = executor_.Now();
  if (given_.size() >= max_grpc_connections_ && now >= look_again_) {
    look_again_ = now + kBetweenLooks;
    // gRPC does not say when one has ended: its descriptor is closed then, or another socket's.
    std::erase_if(given_, [](const Given& one) { return CookieOf(one.descriptor) != one.cookie; });
  }
  return given_.size() < max_grpc_connections_;
}

FrontDoor::Visitor FrontDoor::Dismiss(uint64_t number) {
  auto found = visitors_.extract(number);
  executor_.Cancel(found.mapped().timer);
  return std::move(found.mapped());
}

}  // namespace phalanx::directory
