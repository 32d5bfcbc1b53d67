#include "src/directory/grpc/tools_service.h"

#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/tools.grpc.pb.h"
#include "src/common/random.h"
#include "src/common/status_macros.h"
#include "src/common/threads/mutex.h"
#include "src/directory/grpc/grpc_status.h"
#include "src/directory/grpc/nonce_issuer.h"
#include "src/directory/grpc/tools_proof.h"

namespace phalanx::directory {
namespace {

// One call, finished once: by the answer or by its cancellation, whichever comes first.
class CallReactor : public grpc::ServerUnaryReactor {
 public:
  // True for the first caller, which then fills the response and calls Finish.
  bool Claim() { return !finished_.exchange(true); }

  void OnCancel() override {
    if (Claim()) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { const auto last = std::move(self_); }

  // Keeps the call alive until OnDone.
  void Keep(std::shared_ptr<CallReactor> self) { self_ = std::move(self); }

 private:
  std::atomic<bool> finished_{false};
  std::shared_ptr<CallReactor> self_;
};

// The method of a call, and the proof that its caller sent.
struct CallInfo {
  const char* method;
  std::string nonce_and_proof;
};

std::string ProofOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kToolsProofKey);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

std::string SealKey() {
  // Random for each process: a nonce of an earlier process is invalid.
  std::string key(net::kNonceBytes, '\0');
  SystemRandomBytes(key.data(), key.size());
  return key;
}

// Answers calls from the shard, on the executor, until closed.
class Answers {
 public:
  Answers(Executor& executor, Shard& shard)
      : executor_(executor), shard_(&shard), nonces_(SealKey()) {}

  void Close() {
    MutexLock lock(mu_);
    shard_ = nullptr;
  }

  absl::Status GetNonce(const v1::GetNonceRequest& request, v1::GetNonceResponse* response) {
    MutexLock lock(mu_);
    PHALANX_RETURN_IF_ERROR(Open());
    const SessionConfig& config = shard_->config();
    // Checked here, before any proof: the caller must learn why its proof would be rejected.
    if (request.protocol_version() != config.protocol_version) {
      return absl::FailedPreconditionError(
          absl::StrCat("the shard's protocol version is ", config.protocol_version,
                       ", the caller's is ", request.protocol_version()));
    }
    if (request.cluster_id() != config.cluster_id) {
      return absl::FailedPreconditionError(
          absl::StrCat("the shard's cluster id is \"", absl::CEscape(config.cluster_id),
                       "\", the caller's is \"",
                       absl::CEscape(absl::string_view(request.cluster_id()).substr(0, 80)), "\""));
    }
    response->set_nonce(nonces_.Issue(executor_.Now()));
    response->set_protocol_version(config.protocol_version);
    response->set_cluster_id(config.cluster_id);
    response->set_shard_index(config.shard_index);
    response->set_num_shards(config.num_shards);
    return absl::OkStatus();
  }

  // Checks the proof, then answers.
  template <typename Request, typename Response>
  absl::Status Answer(const CallInfo& call, const Request& request, Response* response) {
    MutexLock lock(mu_);
    PHALANX_RETURN_IF_ERROR(Open());
    const absl::string_view shown = call.nonce_and_proof;
    // If the metadata is too short, both parts are short and the comparison fails.
    const absl::string_view nonce = shown.substr(0, net::kNonceBytes);
    const absl::string_view proof = shown.substr(nonce.size());
    if (!net::ProofMatches(ToolsProof(shard_->config().secret, call.method, request, nonce),
                           proof)) {
      return absl::PermissionDeniedError(
          absl::StrCat("the caller has not shown the secret of cluster \"",
                       absl::CEscape(shard_->config().cluster_id),
                       "\": name its file in --secret-file or PHALANX_SECRET_FILE"));
    }
    // After the proof, as Redeem requires: only callers with the secret use up the table.
    PHALANX_RETURN_IF_ERROR(nonces_.Redeem(nonce, executor_.Now()));
    return Fill(request, response);
  }

 private:
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (shard_ != nullptr) return absl::OkStatus();
    return absl::UnavailableError("the shard is shutting down");
  }

  absl::Status Fill(const v1::ListObjectsRequest& request, v1::ListObjectsResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shard_->core().List(request, executor_.Now(), response);
  }

  absl::Status Fill(const v1::DescribeObjectRequest& request, v1::DescribeObjectResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    PHALANX_ASSIGN_OR_RETURN(const ObjectId id, ObjectId::FromBinary(request.object_id()));
    return shard_->core().Describe(id, executor_.Now(), response);
  }

  absl::Status Fill(const v1::ListJobsRequest& request, v1::ListJobsResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    shard_->core().ListJobs(request, executor_.Now(), response);
    return absl::OkStatus();
  }

  absl::Status Fill(const v1::DescribeJobRequest& request, v1::DescribeJobResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shard_->core().DescribeJob(request, executor_.Now(), response);
  }

  absl::Status Fill(const v1::DrainNodeRequest& request, v1::DrainNodeResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return shard_->DrainNode(request, response);
  }

  absl::Status Fill(const v1::GetStatusRequest&, v1::GetStatusResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    shard_->FillStatus(response);
    return absl::OkStatus();
  }

  Executor& executor_;
  // Locked by tasks of the executor, and by Close: not by gRPC's threads.
  Mutex mu_;
  Shard* shard_ ABSL_GUARDED_BY(mu_);
  NonceIssuer nonces_ ABSL_GUARDED_BY(mu_);
};

class Service final : public v1::Tools::CallbackService, public ToolsService {
 public:
  Service(Executor& executor, Shard& shard)
      : executor_(executor), answers_(std::make_shared<Answers>(executor, shard)) {}

  grpc::Service* service() override { return this; }
  void Close() override { answers_->Close(); }

  grpc::ServerUnaryReactor* GetNonce(grpc::CallbackServerContext*,
                                     const v1::GetNonceRequest* request,
                                     v1::GetNonceResponse* response) override {
    // Without a proof: the caller needs a nonce to make one.
    return Begin(*request, response, [answers = answers_](const auto& asked, auto* answer) {
      return answers->GetNonce(asked, answer);
    });
  }
  grpc::ServerUnaryReactor* ListObjects(grpc::CallbackServerContext* context,
                                        const v1::ListObjectsRequest* request,
                                        v1::ListObjectsResponse* response) override {
    return BeginProven("ListObjects", *context, *request, response);
  }
  grpc::ServerUnaryReactor* DescribeObject(grpc::CallbackServerContext* context,
                                           const v1::DescribeObjectRequest* request,
                                           v1::DescribeObjectResponse* response) override {
    return BeginProven("DescribeObject", *context, *request, response);
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return BeginProven("ListJobs", *context, *request, response);
  }
  grpc::ServerUnaryReactor* DescribeJob(grpc::CallbackServerContext* context,
                                        const v1::DescribeJobRequest* request,
                                        v1::DescribeJobResponse* response) override {
    return BeginProven("DescribeJob", *context, *request, response);
  }
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::DrainNodeResponse* response) override {
    return BeginProven("DrainNode", *context, *request, response);
  }
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override {
    return BeginProven("GetStatus", *context, *request, response);
  }

 private:
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* BeginProven(const char* method,
                                        const grpc::CallbackServerContext& context,
                                        const Request& request, Response* response) {
    return Begin(
        request, response,
        [answers = answers_, call = CallInfo{method, ProofOf(context)}](
            const auto& asked, auto* answer) { return answers->Answer(call, asked, answer); });
  }

  // Answers by `fill` on the executor. gRPC destroys its request and response when the call is
  // cancelled. So the task has its own copy of the request, and it touches the response only after
  // it has claimed the call.
  template <typename Request, typename Response, typename Fill>
  grpc::ServerUnaryReactor* Begin(const Request& request, Response* response, Fill fill) {
    auto call = std::make_shared<CallReactor>();
    call->Keep(call);
    grpc::ServerUnaryReactor* const bound = call.get();
    // Counted on gRPC's threads: a busy executor must not queue calls without limit.
    if (waiting_->fetch_add(1) >= kMaxWaitingToolCalls) {
      waiting_->fetch_sub(1);
      call->Claim();
      call->Finish(ToGrpcStatus(absl::ResourceExhaustedError("the shard has too many calls")));
      return bound;
    }
    // The counter falls when the task is destroyed, even if the executor stops before it runs.
    executor_.Post([call = std::move(call), response, asked = request, fill = std::move(fill),
                    waiting = std::shared_ptr<void>(
                        nullptr, [count = waiting_](void*) { count->fetch_sub(1); })] {
      Response answer;
      const absl::Status status = fill(asked, &answer);
      if (!call->Claim()) return;
      if (status.ok()) *response = std::move(answer);
      call->Finish(ToGrpcStatus(status));
    });
    return bound;
  }

  Executor& executor_;
  const std::shared_ptr<Answers> answers_;
  const std::shared_ptr<std::atomic<int>> waiting_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::unique_ptr<ToolsService> NewToolsService(Executor& executor, Shard& shard) {
  return std::make_unique<Service>(executor, shard);
}

}  // namespace phalanx::directory
