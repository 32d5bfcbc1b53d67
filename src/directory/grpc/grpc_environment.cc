#include "src/directory/grpc/grpc_environment.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <stdlib.h>

#include <limits>
#include <memory>

#include "src/common/io/log.h"
#include "src/directory/session/session_link.h"

namespace phalanx::directory {
namespace internal {
// With external linkage, so that the compiler keeps the pointer and the leak checker finds it.
const void* last_grpc_user = nullptr;
}  // namespace internal

namespace {

// The bytes that a stream can have in flight before its reader has taken them.
constexpr int kStreamWindowBytes = 1 << 20;
// A connection without any call is closed.
constexpr int kIdleConnectionMs = 30'000;
// The session's stream and the tools' calls.
constexpr int kMaxCallsPerConnection = 64;

void Log(gpr_log_func_args* args) {
  PHALANX_LOG(DEBUG) << "grpc" << LogField("file", args->file) << LogField("line", args->line)
                     << LogField("message", args->message);
}

// gRPC 1.51 shares one queue and its threads among all callback calls of a process. It creates the
// queue with the first user and destroys it with the last. The destruction races with the queue's
// threads and aborts ("nexting_thread"), so this user never ends: a call on a channel without an
// address.
struct LastUser final : grpc::ClientUnaryReactor {
  LastUser() : channel(grpc::CreateChannel("", nullptr)), stub(channel), request(&nothing, 1) {
    stub.PrepareUnaryCall(&context, "/none", {}, &request, &response, this);
    StartCall();
  }
  void OnDone(const grpc::Status&) override {}

  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  grpc::ClientContext context;
  const grpc::Slice nothing{"", 0};
  const grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

bool Prepare() {
  setenv("GRPC_ENABLE_FORK_SUPPORT", "0", /*overwrite=*/0);
  gpr_set_log_function(&Log);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  internal::last_grpc_user = new LastUser;
  return true;
}

}  // namespace

void PrepareGrpc() {
  static const bool prepared = Prepare();
  static_cast<void>(prepared);
}

grpc::ChannelArguments StreamChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetMaxSendMessageSize(kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  // Said aloud, since the default of the same value still sets a timer with each frame.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, std::numeric_limits<int>::max());
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

void ConfigureServer(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxFrameBytes);
  builder.SetMaxSendMessageSize(kMaxFrameBytes);
  // Two daemons on one port would each get some of the nodes.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, std::numeric_limits<int>::max());
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
}

}  // namespace phalanx::directory
