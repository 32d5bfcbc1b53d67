// Control streams over a ByteStream: frames directly on a TCP connection, read and written by the
// loop that handles them.
//
// A message reaches the other end's loop with one wake-up; gRPC's streams take more, on threads of
// their own (benchmarks.md has the figures). Nodes use these streams; simulations run them over the
// simulated network.
//
// On the wire: the node begins with kStreamPreamble, by which a listener distinguishes the stream
// from HTTP/2. Then both ends send frames: a length (u32, little-endian, at most kMaxFrameBytes), a
// kind (u8), and so many bytes of a proto. Kind 0 is a frame of the session. Kind 1 closes the
// stream with a Refused, whose code 0 is OK, and is the last frame. The first kGreetingFrames
// frames carry the session's handshake, which proves the secret. Until then a frame is at most
// kMaxGreetingBytes long, and an end buffers nothing for the peer but the received bytes of one
// frame. If a peer sends bytes that are not a stream, the end replies with a close that says so.
//
// Thread rule: as MessageStream; connectors and streams on their executor. `network` outlives the
// connector.
#ifndef PHALANX_DIRECTORY_SESSION_BYTE_MESSAGE_STREAM_H_
#define PHALANX_DIRECTORY_SESSION_BYTE_MESSAGE_STREAM_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "src/common/time/executor.h"
#include "src/directory/session/message_stream.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::directory {

inline constexpr absl::string_view kStreamPreamble = "PHXS";

// Opens streams to the shard that listens on `address`.
std::unique_ptr<ShardConnector> NewByteShardConnector(net::Network& network, net::Address address);

// The shard's end of a stream that a node opened. `already_read`: the bytes that the caller read
// from `bytes` before; at most the preamble.
std::unique_ptr<ShardStream> NewByteShardStream(Executor& executor,
                                                std::unique_ptr<net::ByteStream> bytes,
                                                std::string already_read);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_SESSION_BYTE_MESSAGE_STREAM_H_
