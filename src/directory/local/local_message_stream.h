// Control streams between a node and a shard of one process that share a loop: the frames are
// passed as objects, without bytes, sockets and system calls. For a private cluster (`phalanx up`).
//
//   LocalDoor door([&shard](std::unique_ptr<ShardStream> stream) { shard.Accept(...); });
//   std::unique_ptr<ShardConnector> connector = door.NewConnector("127.0.0.1:7400");
//
// Thread rule: as MessageStream; the door, its connectors and both ends of its streams on one
// executor, the same for all of them. Streams and connectors can outlive the door.
#ifndef PHALANX_DIRECTORY_LOCAL_LOCAL_MESSAGE_STREAM_H_
#define PHALANX_DIRECTORY_LOCAL_LOCAL_MESSAGE_STREAM_H_

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "src/directory/session/message_stream.h"

namespace phalanx::directory {

class LocalDoor {
 public:
  // Takes the shard's ends of new streams.
  using Accept = absl::AnyInvocable<void(std::unique_ptr<ShardStream>)>;

  explicit LocalDoor(Accept accept) : accept_(std::make_shared<Accept>(std::move(accept))) {}
  // Later connections fail with Unavailable; accepted streams stay.
  ~LocalDoor() { *accept_ = nullptr; }
  LocalDoor(const LocalDoor&) = delete;
  LocalDoor& operator=(const LocalDoor&) = delete;

  // `target`: for messages.
  std::unique_ptr<ShardConnector> NewConnector(std::string target) const;

 private:
  const std::shared_ptr<Accept> accept_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_LOCAL_LOCAL_MESSAGE_STREAM_H_
