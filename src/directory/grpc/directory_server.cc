#include "src/directory/grpc/directory_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/v1/directory.grpc.pb.h"
#include "src/directory/grpc/grpc_environment.h"
#include "src/directory/grpc/grpc_status.h"
#include "src/directory/grpc/stream_reactor.h"
#include "src/directory/grpc/tools_service.h"

namespace phalanx::directory {
namespace {

using ServerReactor = grpc::ServerBidiReactor<v1::NodeFrame, v1::ShardFrame>;

class ShardReactor final : public StreamReactor<v1::ShardFrame, v1::NodeFrame, ServerReactor> {
 public:
  // Does not drain: the server ends the call with its own status at any time.
  ShardReactor(Executor& executor, grpc::CallbackServerContext* context)
      : StreamReactor(executor, /*drains=*/false), context_(context) {}

  // Before gRPC gets the reactor: a cancellation can arrive at once on one of its threads.
  void Begin() {
    MutexLock lock(mu_);
    KeepSelf();
  }

 private:
  void PeerEnded() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // A read fails both after the node's orderly end and after a cancellation.
    PostClosed(context_->IsCancelled() ? absl::UnavailableError("the node's stream broke")
                                       : absl::OkStatus());
    BeginClose(absl::OkStatus());
  }

  void End(const absl::Status& why) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Finish(ToGrpcStatus(why));
  }

  void Cancel() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { context_->TryCancel(); }

  void OnCancel() override {
    MutexLock lock(mu_);
    // gRPC can cancel a call without failing a read, for example if no read is in flight.
    PostClosed(absl::UnavailableError("the node's stream broke"));
    BeginClose(absl::UnavailableError("the stream was cancelled"));
  }

  void OnDone() override {
    // Declared before the lock: destroying the last reference also destroys the mutex.
    std::shared_ptr<StreamReactor> keep;
    MutexLock lock(mu_);
    keep = Done();
  }

  grpc::CallbackServerContext* const context_;  // valid until OnDone
};

using ShardGrpcStream = GrpcStream<v1::ShardFrame, v1::NodeFrame, ShardReactor>;

// The receiver of new streams. A task that runs after the server's end finds it empty.
struct Door {
  Mutex mu;
  GrpcDirectoryServer::Accept accept ABSL_GUARDED_BY(mu);
};

class DirectoryService final : public v1::Directory::CallbackService {
 public:
  DirectoryService(Executor& executor, std::shared_ptr<Door> door)
      : executor_(executor), door_(std::move(door)) {}

  ServerReactor* Session(grpc::CallbackServerContext* context) override {
    auto reactor = std::make_shared<ShardReactor>(executor_, context);
    reactor->Begin();
    ServerReactor* const bound = reactor.get();
    auto stream = std::make_unique<ShardGrpcStream>(std::move(reactor), context->peer());
    // Holds the door, not the server: the task can run after the server is destroyed.
    executor_.Post([door = door_, stream = std::move(stream)]() mutable {
      MutexLock lock(door->mu);
      if (door->accept) door->accept(std::move(stream));
    });
    return bound;
  }

 private:
  Executor& executor_;
  const std::shared_ptr<Door> door_;
};

}  // namespace

struct GrpcDirectoryServer::Impl {
  Impl(Executor& executor, Accept accept, std::unique_ptr<ToolsService> tools)
      : service(executor, door), tools(std::move(tools)) {
    MutexLock lock(door->mu);
    door->accept = std::move(accept);
  }

  const std::shared_ptr<Door> door = std::make_shared<Door>();
  DirectoryService service;
  const std::unique_ptr<ToolsService> tools;
  net::Address address;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;  // without a port
  std::unique_ptr<grpc::Server> server;

  void Build(grpc::ServerBuilder& builder) {
    ConfigureServer(builder);
    builder.RegisterService(&service);
    if (tools != nullptr) builder.RegisterService(tools->service());
    server = builder.BuildAndStart();
  }
};

GrpcDirectoryServer::GrpcDirectoryServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> GrpcDirectoryServer::ListenForStreams(
    Executor& executor, Accept accept) {
  PrepareGrpc();
  auto impl = std::make_unique<Impl>(executor, std::move(accept), nullptr);
  grpc::ServerBuilder builder;
  // Port 0: the system chooses a free one.
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  impl->Build(builder);
  if (impl->server == nullptr) return absl::UnavailableError("no port of the loopback is free");
  impl->address = absl::StrCat("127.0.0.1:", port);
  return std::unique_ptr<GrpcDirectoryServer>(new GrpcDirectoryServer(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> GrpcDirectoryServer::ServeWithoutPort(
    Executor& executor, Accept accept, std::unique_ptr<ToolsService> tools) {
  PrepareGrpc();
  auto impl = std::make_unique<Impl>(executor, std::move(accept), std::move(tools));
  grpc::ServerBuilder builder;
  // Experimental in gRPC; takes a socket that is accepted and partly read.
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  impl->Build(builder);
  if (impl->server == nullptr) return absl::ResourceExhaustedError("gRPC's server does not start");
  return std::unique_ptr<GrpcDirectoryServer>(new GrpcDirectoryServer(std::move(impl)));
}

void GrpcDirectoryServer::TakeConnection(net::UniqueFd socket, absl::string_view read) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = std::move(socket).Release();
  // gRPC must see these bytes first, because they are no longer in the socket.
  const grpc::Slice slice(read.data(), read.size());
  connection.read_buffer = grpc::ByteBuffer(&slice, 1);
  impl_->acceptor->HandleNewConnection(&connection);
}

GrpcDirectoryServer::~GrpcDirectoryServer() {
  // First, so that no new stream reaches a shard that is being destroyed.
  {
    MutexLock lock(impl_->door->mu);
    impl_->door->accept = nullptr;
  }
  if (impl_->tools != nullptr) impl_->tools->Close();
  // Cancels running calls at once; their reactors end on gRPC's own threads.
  impl_->server->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
  impl_->server->Wait();
}

const net::Address& GrpcDirectoryServer::address() const { return impl_->address; }

}  // namespace phalanx::directory
