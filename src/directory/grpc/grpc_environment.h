// How this process uses gRPC: its log, the settings of its channels and servers. The only place
// that knows gRPC's knobs.
//
// Any thread.
#ifndef PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_
#define PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace phalanx::directory {

// Once per process, before the first channel or server; both make sure of it. gRPC's own log goes
// to ours, at debug level (what it has to say comes as a status, too); its fork handlers, which
// cost a lock on every call, stay off.
void PrepareGrpc();

// A channel that carries one stream: frames up to kMaxFrameBytes, no keepalive and no probing
// (sessions have heartbeats), connections of its own, so that an attempt never waits out another's
// backoff.
grpc::ChannelArguments StreamChannelArguments();

// The server's side of the same.
void ConfigureServer(grpc::ServerBuilder& builder);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_
