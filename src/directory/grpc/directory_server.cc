#include "src/directory/grpc/directory_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "phalanx/v1/directory.grpc.pb.h"
#include "src/common/status_macros.h"
#include "src/directory/grpc/grpc_environment.h"
#include "src/directory/grpc/grpc_status.h"
#include "src/directory/grpc/stream_reactor.h"
#include "src/directory/grpc/tools_service.h"
#include "src/net/address.h"
#include "src/net/require_loopback.h"

namespace phalanx::directory {
namespace {

using ServerReactor = grpc::ServerBidiReactor<v1::NodeFrame, v1::ShardFrame>;

class ShardReactor final : public StreamReactor<v1::ShardFrame, v1::NodeFrame, ServerReactor> {
 public:
  ShardReactor(Executor& executor, grpc::CallbackServerContext* context)
      : StreamReactor(executor, /*drains=*/false), context_(context) {}

  void Begin() {
    MutexLock lock(mu_);
    KeepSelf();
  }

 private:
  void PeerEnded() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
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
    PostClosed(absl::UnavailableError("the node's stream broke"));
    BeginClose(absl::UnavailableError("the stream was cancelled"));
  }

  void OnDone() override {
    std::shared_ptr<StreamReactor> keep;
    MutexLock lock(mu_);
    keep = Done();
  }

  grpc::CallbackServerContext* const context_;  // valid until OnDone
};

using ShardGrpcStream = GrpcStream<v1::ShardFrame, v1::NodeFrame, ShardReactor>;

// Where new streams go: a task that comes after the server's end finds it empty.
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

// Why nobody can listen there, found by trying: gRPC only says that it could not.
absl::Status WhyNot(const net::HostPort& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string text = address.ToString();
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", text, ": ", gai_strerror(error)));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int why = bound ? 0 : errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  if (why == EADDRINUSE) {
    return absl::AlreadyExistsError(
        absl::StrCat("port ", address.port, " is in use: cannot listen on ", text));
  }
  if (why == 0) return absl::UnavailableError(absl::StrCat("cannot listen on ", text));
  return absl::InvalidArgumentError(
      absl::StrCat("cannot listen on ", text, ": ", std::strerror(why)));
}

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
  std::unique_ptr<grpc::Server> server;
};

GrpcDirectoryServer::GrpcDirectoryServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> GrpcDirectoryServer::ListenForStreams(
    const net::Address& address, Executor& executor, const std::string& secret, Accept accept) {
  return Serve(address, executor, secret, std::move(accept), nullptr);
}

absl::StatusOr<std::unique_ptr<GrpcDirectoryServer>> GrpcDirectoryServer::Serve(
    const net::Address& address, Executor& executor, const std::string& secret, Accept accept,
    std::unique_ptr<ToolsService> tools) {
  PHALANX_RETURN_IF_ERROR(net::RequireLoopbackWithoutSecret(address, secret));
  PHALANX_ASSIGN_OR_RETURN(net::HostPort real, net::ParseHostPort(address));
  PrepareGrpc();
  auto impl = std::make_unique<Impl>(executor, std::move(accept), std::move(tools));
  grpc::ServerBuilder builder;
  ConfigureServer(builder);
  int port = 0;
  builder.AddListeningPort(real.ToString(), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl->service);
  if (impl->tools != nullptr) builder.RegisterService(impl->tools->service());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || port == 0) return WhyNot(real);
  real.port = static_cast<uint16_t>(port);
  impl->address = real.ToString();
  return std::unique_ptr<GrpcDirectoryServer>(new GrpcDirectoryServer(std::move(impl)));
}

GrpcDirectoryServer::~GrpcDirectoryServer() {
  {
    MutexLock lock(impl_->door->mu);
    impl_->door->accept = nullptr;
  }
  if (impl_->tools != nullptr) impl_->tools->Close();
  // Calls that are under way are cancelled at once; their reactors end on gRPC's own threads.
  impl_->server->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
  impl_->server->Wait();
}

const net::Address& GrpcDirectoryServer::address() const { return impl_->address; }

}  // namespace phalanx::directory
