#include "src/directory/grpc/tools_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "phalanx/v1/tools.grpc.pb.h"
#include "src/common/check.h"
#include "src/common/ids/ids.h"
#include "src/common/ids/job_ids.h"
#include "src/common/ids/shard_of.h"
#include "src/common/status_macros.h"
#include "src/common/threads/mutex.h"
#include "src/directory/grpc/grpc_environment.h"
#include "src/directory/grpc/grpc_status.h"
#include "src/directory/grpc/tools_proof.h"

namespace phalanx::directory {
namespace {

struct ShardStub {
  net::Address address;
  std::unique_ptr<v1::Tools::Stub> stub;
};

using Deadline = gpr_timespec;
using AsyncStub = v1::Tools::StubInterface::async_interface;

// A generated method of the stub; calls back on one of gRPC's threads.
template <typename Request, typename Response>
using Method = void (AsyncStub::*)(grpc::ClientContext*, const Request*, Response*,
                                   std::function<void(grpc::Status)>);

absl::Status Naming(const ShardStub& shard, const grpc::Status& status) {
  const absl::Status converted = FromGrpcStatus(status);
  return absl::Status(converted.code(),
                      absl::StrCat("directory ", shard.address, ": ", converted.message()));
}

// Counts the running calls down to zero.
class Countdown {
 public:
  explicit Countdown(size_t calls) : left_(calls) {}

  void Done() {
    MutexLock lock(mu_);
    if (--left_ == 0) zero_.Signal();
  }
  void Wait() {
    MutexLock lock(mu_);
    while (left_ > 0) zero_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar zero_;
  size_t left_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

struct ToolsClient::Impl {
  // One call to one shard: fetches its nonce, then sends the query. Lives until `done`.
  template <typename Request, typename Response>
  struct Call {
    Impl& impl;
    const size_t index;
    const char* const name;
    const Method<Request, Response> method;
    const Request& request;
    const Deadline deadline;
    Countdown& done;

    // gRPC writes into these fields until the calls end, so they live as long as the call.
    grpc::ClientContext nonce_context = {};
    v1::GetNonceRequest nonce_request = {};
    v1::GetNonceResponse nonce = {};
    grpc::ClientContext context = {};
    Response response = {};
    absl::Status status = {};

    const ShardStub& shard() const { return impl.shards[index]; }

    void Start() {
      // Both calls share one deadline, so the timeout holds for the whole query.
      nonce_context.set_deadline(deadline);
      nonce_request.set_protocol_version(kProtocolVersion);
      nonce_request.set_cluster_id(impl.options.cluster_id);
      shard().stub->async()->GetNonce(&nonce_context, &nonce_request, &nonce,
                                      [this](const grpc::Status& answered) { OnNonce(answered); });
    }

    void OnNonce(const grpc::Status& answered) {
      if (!answered.ok()) return End(Naming(shard(), answered));
      // With another number of shards the ids hash to other shards, and an answer would be wrong.
      if (nonce.shard_index() != index || nonce.num_shards() != impl.shards.size()) {
        return End(absl::FailedPreconditionError(absl::StrCat(
            "directory ", shard().address, ": is shard ", nonce.shard_index(), " of ",
            nonce.num_shards(), ", was asked as shard ", index, " of ", impl.shards.size())));
      }
      context.set_deadline(deadline);
      // The proof covers the method and the request, so it is invalid for any other call.
      context.AddMetadata(kToolsProofKey, nonce.nonce() + ToolsProof(impl.options.secret, name,
                                                                     request, nonce.nonce()));
      AsyncStub* const stub = shard().stub->async();
      (stub->*method)(&context, &request, &response, [this](const grpc::Status& ended) {
        End(ended.ok() ? absl::OkStatus() : Naming(shard(), ended));
      });
    }

    void End(absl::Status result) {
      status = std::move(result);
      // Last: the waiting thread can destroy this call at once.
      done.Done();
    }
  };

  Deadline NewDeadline() const {
    return gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC),
        gpr_time_from_millis(absl::ToInt64Milliseconds(options.timeout), GPR_TIMESPAN));
  }

  // Queries shards `first` to `last` (exclusive), all at the same time. The answers are in their
  // order.
  template <typename Request, typename Response>
  std::vector<absl::StatusOr<Response>> Ask(size_t first, size_t last, const char* name,
                                            Method<Request, Response> method,
                                            const Request& request) {
    const Deadline deadline = NewDeadline();
    // Before the first call starts, because a call can end at once.
    Countdown done(last - first);
    std::vector<std::unique_ptr<Call<Request, Response>>> calls;
    for (size_t i = first; i < last; ++i) {
      calls.push_back(std::unique_ptr<Call<Request, Response>>(
          new Call<Request, Response>{*this, i, name, method, request, deadline, done}));
      calls.back()->Start();
    }
    // The calls refer to this frame's locals, so every call must end before it is left.
    done.Wait();
    std::vector<absl::StatusOr<Response>> answers;
    for (const auto& call : calls) {
      if (call->status.ok()) {
        answers.push_back(std::move(call->response));
      } else {
        answers.push_back(call->status);
      }
    }
    return answers;
  }

  template <typename Request, typename Response>
  std::vector<absl::StatusOr<Response>> AskAll(const char* name, Method<Request, Response> method,
                                               const Request& request) {
    return Ask<Request, Response>(0, shards.size(), name, method, request);
  }

  ToolsClientOptions options;
  std::vector<ShardStub> shards;
};

ToolsClient::ToolsClient(std::vector<net::Address> shards, ToolsClientOptions options)
    : impl_(std::make_unique<Impl>()) {
  PHALANX_CHECK(!shards.empty(), "a directory has a shard");
  PrepareGrpc();
  impl_->options = std::move(options);
  for (net::Address& address : shards) {
    auto stub = v1::Tools::NewStub(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), StreamChannelArguments()));
    impl_->shards.push_back({std::move(address), std::move(stub)});
  }
}

ToolsClient::~ToolsClient() = default;

std::vector<absl::StatusOr<v1::GetStatusResponse>> ToolsClient::GetStatus() {
  return impl_->AskAll<v1::GetStatusRequest, v1::GetStatusResponse>("GetStatus",
                                                                    &AsyncStub::GetStatus, {});
}

absl::StatusOr<v1::DescribeObjectResponse> ToolsClient::Describe(const ObjectId& id) {
  v1::DescribeObjectRequest request;
  // The nodes use the same hash: only this shard knows the object.
  request.set_object_id(std::string(id.binary()));
  const size_t shard = static_cast<size_t>(ShardOf(id, static_cast<int>(impl_->shards.size())));
  auto answers = impl_->Ask<v1::DescribeObjectRequest, v1::DescribeObjectResponse>(
      shard, shard + 1, "DescribeObject", &AsyncStub::DescribeObject, request);
  return std::move(answers.front());
}

absl::StatusOr<v1::ListObjectsResponse> ToolsClient::List(const std::optional<ObjectId>& after,
                                                          uint32_t limit, bool with_deleted) {
  v1::ListObjectsRequest request;
  if (after.has_value()) request.set_after_object_id(std::string(after->binary()));
  request.set_limit(limit);
  request.set_without_deleted(!with_deleted);
  auto answers = impl_->AskAll<v1::ListObjectsRequest, v1::ListObjectsResponse>(
      "ListObjects", &AsyncStub::ListObjects, request);
  std::vector<v1::ListObjectsResponse> lists;
  for (auto& answer : answers) {
    // A list without one shard's objects would look complete.
    PHALANX_RETURN_IF_ERROR(answer.status());
    lists.push_back(*std::move(answer));
  }
  return MergeLists(std::move(lists), limit);
}

absl::StatusOr<v1::ListJobsResponse> ToolsClient::ListJobs(uint32_t limit) {
  v1::ListJobsRequest request;
  request.set_limit(limit);
  auto answers = impl_->AskAll<v1::ListJobsRequest, v1::ListJobsResponse>(
      "ListJobs", &AsyncStub::ListJobs, request);
  v1::ListJobsResponse merged;
  std::vector<v1::JobSummary> jobs;
  for (auto& answer : answers) {
    PHALANX_RETURN_IF_ERROR(answer.status());
    if (answer->more()) merged.set_more(true);
    for (v1::JobSummary& job : *answer->mutable_jobs()) jobs.push_back(std::move(job));
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const auto& a, const auto& b) { return a.job() < b.job(); });
  for (v1::JobSummary& job : jobs) {
    if (merged.jobs_size() == static_cast<int64_t>(limit)) {
      merged.set_more(true);
      break;
    }
    *merged.add_jobs() = std::move(job);
  }
  return merged;
}

absl::StatusOr<v1::DescribeJobResponse> ToolsClient::DescribeJob(const std::string& job) {
  const auto shard = static_cast<size_t>(ShardOfJob(job, static_cast<int>(impl_->shards.size())));
  v1::DescribeJobRequest request;
  request.set_job(job);
  v1::DescribeJobResponse whole;
  while (true) {
    auto answers = impl_->Ask<v1::DescribeJobRequest, v1::DescribeJobResponse>(
        shard, shard + 1, "DescribeJob", &AsyncStub::DescribeJob, request);
    PHALANX_ASSIGN_OR_RETURN(v1::DescribeJobResponse page, std::move(answers.front()));
    *whole.mutable_summary() = page.summary();
    for (v1::DescribeJobResponse::Member& member : *page.mutable_members()) {
      *whole.add_members() = std::move(member);
    }
    if (!page.more() || page.members_size() == 0) return whole;
    const v1::JobMember& last = whole.members(whole.members_size() - 1).member();
    request.set_has_after(true);
    request.set_after_role(page.summary().roles(static_cast<int>(last.role())).name());
    request.set_after_rank(last.rank());
  }
}

absl::StatusOr<v1::DrainNodeResponse> ToolsClient::DrainNode(const std::string& node) {
  v1::DrainNodeRequest request;
  request.set_node(node);
  auto answers = impl_->AskAll<v1::DrainNodeRequest, v1::DrainNodeResponse>(
      "DrainNode", &AsyncStub::DrainNode, request);
  v1::DrainNodeResponse merged;
  for (const auto& answer : answers) {
    PHALANX_RETURN_IF_ERROR(answer.status());
    merged.set_objects_left(merged.objects_left() + answer->objects_left());
    if (!answer->message().empty()) merged.set_message(answer->message());
  }
  return merged;
}

v1::ListObjectsResponse MergeLists(std::vector<v1::ListObjectsResponse> lists, uint32_t limit) {
  if (limit == 0) limit = kDefaultListed;
  // If a shard has more objects, its objects after the end of its list are unknown.
  std::optional<std::string> known_to;
  std::vector<v1::ObjectSummary> all;
  for (v1::ListObjectsResponse& list : lists) {
    const std::string& last = list.listed_to();
    if (list.more() && (!known_to.has_value() || last < *known_to)) known_to = last;
    for (v1::ObjectSummary& object : *list.mutable_objects()) all.push_back(std::move(object));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.object_id() < b.object_id(); });
  v1::ListObjectsResponse merged;
  for (v1::ObjectSummary& object : all) {
    // An unlisted object of another shard can have a smaller id than this one.
    if (known_to.has_value() && object.object_id() > *known_to) break;
    if (merged.objects_size() == static_cast<int64_t>(limit)) {
      // The next page starts at the last listed id, even if the shards have listed more.
      merged.set_more(true);
      merged.set_listed_to(merged.objects(merged.objects_size() - 1).object_id());
      return merged;
    }
    *merged.add_objects() = std::move(object);
  }
  if (known_to.has_value()) {
    merged.set_more(true);
    merged.set_listed_to(*known_to);
  }
  return merged;
}

}  // namespace phalanx::directory
