// Control streams over a ByteStream: frames straight on a TCP connection, read and written by the
// loop that handles them.
//
// A message takes one wake-up to get to the other end's loop; gRPC's streams take more, on threads
// of their own (benchmarks.md has the figures). Nodes use this one; simulations run it over the
// simulated network.
//
// On the wire: the node begins with kStreamPreamble, by which a listener tells it from HTTP/2; then
// both ends send frames: a length (u32, little-endian, at most kMaxFrameBytes), a kind (u8), and so
// many bytes of a proto. Kind 0 is a frame of the session; kind 1 closes the stream with a Refused,
// whose code 0 is OK, and nothing follows it. The session's handshake, in the first kGreetingFrames
// frames, shows who is there: until then frames are at most kMaxGreetingBytes long, and nothing is
// kept of a peer but the bytes of one that have come. Who sends what is no stream is told so.
//
// Thread rule: as MessageStream; connectors and streams on their executor. `network` outlives the
// connector.
#ifndef PHALANX_DIRECTORY_BYTE_MESSAGE_STREAM_H_
#define PHALANX_DIRECTORY_BYTE_MESSAGE_STREAM_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "src/common/executor.h"
#include "src/directory/message_stream.h"
#include "src/net/byte_stream.h"

namespace phalanx::directory {

inline constexpr absl::string_view kStreamPreamble = "PHXS";

// Opens streams to the shard that listens on `address`.
std::unique_ptr<ShardConnector> NewByteShardConnector(net::Network& network, net::Address address);

// The shard's end of a stream that a node opened. `already_read`: what was taken from `bytes`
// before; no more than the preamble.
std::unique_ptr<ShardStream> NewByteShardStream(Executor& executor,
                                                std::unique_ptr<net::ByteStream> bytes,
                                                std::string already_read);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_BYTE_MESSAGE_STREAM_H_
