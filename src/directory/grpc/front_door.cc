#include "src/directory/grpc/front_door.h"

#include <utility>

#include "src/common/check.h"
#include "src/common/status_macros.h"
#include "src/directory/byte_message_stream.h"
#include "src/net/require_loopback.h"
#include "src/net/tcp/tcp_stream.h"

namespace phalanx::directory {
namespace {

// How every connection of HTTP/2 begins.
constexpr absl::string_view kHttp2 = "PRI ";
static_assert(kHttp2.size() == kStreamPreamble.size());

}  // namespace

absl::StatusOr<std::unique_ptr<FrontDoor>> FrontDoor::Listen(const net::Address& address,
                                                             Executor& executor,
                                                             net::TcpNetwork& network,
                                                             Shard& shard) {
  PHALANX_RETURN_IF_ERROR(net::RequireLoopbackWithoutSecret(address, shard.config().secret));
  PHALANX_ASSIGN_OR_RETURN(std::unique_ptr<GrpcDirectoryServer> tools,
                           GrpcDirectoryServer::WithoutPort(executor, shard));
  std::unique_ptr<FrontDoor> door(new FrontDoor(executor, shard, std::move(tools)));
  PHALANX_ASSIGN_OR_RETURN(
      door->listener_, network.Listen(
                           executor, address, [&executor]() -> Executor& { return executor; },
                           [self = door->self_](Executor&, std::unique_ptr<net::ByteStream> bytes) {
                             if (*self != nullptr) (*self)->Receive(std::move(bytes));
                           }));
  door->address_ = door->listener_->address();
  return door;
}

FrontDoor::FrontDoor(Executor& executor, Shard& shard, std::unique_ptr<GrpcDirectoryServer> tools)
    : executor_(executor), shard_(shard), tools_(std::move(tools)) {}

FrontDoor::~FrontDoor() {
  *self_ = nullptr;
  listener_.reset();
  while (!visitors_.empty()) Dismiss(visitors_.begin()->first);
}

void FrontDoor::Receive(std::unique_ptr<net::ByteStream> bytes) {
  if (visitors_.size() >= kMaxVisitors) Dismiss(visitors_.begin()->first);
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
  // Its stream is destroyed in a later turn: this is a callback of it.
  auto gone = std::make_shared<Visitor>(Dismiss(number));
  executor_.Post([gone] {});
  if (read.ok()) LetIn(std::move(*gone));
}

void FrontDoor::LetIn(Visitor visitor) {
  if (visitor.read == kStreamPreamble) {
    shard_.Accept(NewByteShardStream(executor_, std::move(visitor.bytes), std::move(visitor.read)));
  } else if (visitor.read == kHttp2) {
    auto* const tcp = dynamic_cast<net::TcpStream*>(visitor.bytes.get());
    PHALANX_CHECK(tcp != nullptr, "a TcpNetwork makes TcpStreams");
    tools_->TakeConnection(tcp->Release(), visitor.read);
  }
}

FrontDoor::Visitor FrontDoor::Dismiss(uint64_t number) {
  auto found = visitors_.extract(number);
  executor_.Cancel(found.mapped().timer);
  return std::move(found.mapped());
}

}  // namespace phalanx::directory
