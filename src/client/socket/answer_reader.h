// Reads the node's frames, and the descriptors that come with them.
//
// Owned by a connection. Used by one thread at a time, the leader's, without the lock.
#ifndef PHALANX_CLIENT_SOCKET_ANSWER_READER_H_
#define PHALANX_CLIENT_SOCKET_ANSWER_READER_H_

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/client/socket/local_socket.h"
#include "src/common/time/instant.h"
#include "src/local/local_protocol.h"

namespace phalanx::internal {

namespace local = object_store::local;

class AnswerReader {
 public:
  AnswerReader() = default;
  // Closes descriptors that no caller has taken.
  ~AnswerReader();
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  // Takes in what has arrived, without blocking. Errors of LocalSocket::Receive.
  absl::Status Receive(LocalSocket& socket);
  // Returns the next complete frame, valid until the next Receive, or nothing. Fails with
  // InvalidArgument, for good, if the stream is corrupt.
  absl::StatusOr<std::optional<absl::string_view>> Next() { return frames_.Next(); }
  // Blocks until a frame is complete. Fails with DeadlineExceeded, or an error of Receive or Next.
  absl::StatusOr<std::string> AwaitFrame(LocalSocket& socket, Instant until);
  // Returns the descriptor of the next File frame, which the caller closes; -1 if this process had
  // no room for it; nothing if the node sent none.
  std::optional<int> TakeDescriptor();

 private:
  // One connection, on which long messages can follow each other: the memory for one is kept.
  local::FrameBuffer frames_{local::kMaxFrameBytes};
  // Received, but the File frame has not been handled yet.
  std::deque<int> descriptors_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_SOCKET_ANSWER_READER_H_
