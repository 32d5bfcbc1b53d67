// How this process uses gRPC: its log, and the settings of its channels and servers. All settings
// of gRPC are in this file.
//
// Any thread.
#ifndef PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_
#define PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace phalanx::directory {

// Prepares gRPC once per process, before the first channel or server; both call this. gRPC's log
// goes to ours at debug level, because its errors also arrive as statuses. Its fork handlers, which
// cost a lock on every call, stay off.
void PrepareGrpc();

// A channel that carries one stream: frames up to kMaxFrameBytes; no keepalive and no probing,
// because sessions have heartbeats; connections of its own, so that an attempt never waits for
// another's backoff.
grpc::ChannelArguments StreamChannelArguments();

// The same settings for the server.
void ConfigureServer(grpc::ServerBuilder& builder);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_GRPC_ENVIRONMENT_H_
