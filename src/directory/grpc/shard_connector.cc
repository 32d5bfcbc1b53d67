#include "src/directory/grpc/shard_connector.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "phalanx/v1/directory.grpc.pb.h"
#include "src/directory/grpc/grpc_environment.h"
#include "src/directory/grpc/grpc_status.h"
#include "src/directory/grpc/stream_reactor.h"

namespace phalanx::directory {
namespace {

using ClientReactor = grpc::ClientBidiReactor<v1::NodeFrame, v1::ShardFrame>;

class NodeReactor final : public StreamReactor<v1::NodeFrame, v1::ShardFrame, ClientReactor> {
 public:
  // Drains, because the peer's last frame can be a refusal.
  NodeReactor(Executor& executor, const std::string& target)
      : StreamReactor(executor, /*drains=*/true),
        channel_(grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                           StreamChannelArguments())),
        stub_(v1::Directory::NewStub(channel_)) {}

  void Begin() {
    MutexLock lock(mu_);
    KeepSelf();
    stub_->async()->Session(&context_, this);
    // The hold keeps the call from ending, and OnDone from running, until End releases it.
    AddHold();
    StartCall();
  }

 private:
  void PeerEnded() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    peer_ended_ = true;
    BeginClose(absl::OkStatus());
  }

  void End(const absl::Status& why) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // If the peer ended the call, there is nothing left to half-close or to cancel.
    if (!peer_ended_) {
      // An orderly close lets the shard read the last frames; any other drops them.
      if (why.ok()) {
        StartWritesDone();
      } else {
        context_.TryCancel();
      }
    }
    // From here on OnDone can run.
    RemoveHold();
  }

  void Cancel() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { context_.TryCancel(); }

  void OnDone(const grpc::Status& status) override {
    // Declared before the lock: destroying the last reference also destroys the mutex.
    std::shared_ptr<StreamReactor> keep;
    MutexLock lock(mu_);
    // Only OnDone has the final status, which carries the shard's reason.
    PostClosed(FromGrpcStatus(status));
    keep = Done();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Directory::Stub> stub_;
  grpc::ClientContext context_;
  bool peer_ended_ ABSL_GUARDED_BY(mu_) = false;
};

class GrpcShardConnector final : public ShardConnector {
 public:
  explicit GrpcShardConnector(net::Address address) : address_(std::move(address)) {
    PrepareGrpc();
  }

  std::unique_ptr<NodeStream> Connect(Executor& executor) override {
    auto reactor = std::make_shared<NodeReactor>(executor, address_);
    reactor->Begin();
    return std::make_unique<GrpcStream<v1::NodeFrame, v1::ShardFrame, NodeReactor>>(
        std::move(reactor), address_);
  }

  std::string target() const override { return address_; }

 private:
  const net::Address address_;
};

}  // namespace

std::unique_ptr<ShardConnector> NewGrpcShardConnector(net::Address address) {
  return std::make_unique<GrpcShardConnector>(std::move(address));
}

}  // namespace phalanx::directory
