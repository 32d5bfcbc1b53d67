#include "src/directory/grpc/tools_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "phalanx/v1/tools.grpc.pb.h"
#include "src/common/check.h"
#include "src/common/ids.h"
#include "src/common/status_macros.h"
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

// A generated method of the stub.
template <typename Request, typename Response>
using Method = grpc::Status (v1::Tools::Stub::*)(grpc::ClientContext*, const Request&, Response*);

absl::Status Naming(const ShardStub& shard, const grpc::Status& status) {
  const absl::Status converted = FromGrpcStatus(status);
  return absl::Status(converted.code(),
                      absl::StrCat("directory ", shard.address, ": ", converted.message()));
}

}  // namespace

struct ToolsClient::Impl {
  Deadline NewDeadline() const {
    return gpr_time_add(
        gpr_now(GPR_CLOCK_MONOTONIC),
        gpr_time_from_millis(absl::ToInt64Milliseconds(options.timeout), GPR_TIMESPAN));
  }

  absl::StatusOr<std::string> Nonce(size_t index, Deadline deadline) {
    const ShardStub& shard = shards[index];
    grpc::ClientContext context;
    context.set_deadline(deadline);
    v1::GetNonceRequest request;
    request.set_protocol_version(kProtocolVersion);
    request.set_cluster_id(options.cluster_id);
    v1::GetNonceResponse response;
    const grpc::Status status = shard.stub->GetNonce(&context, request, &response);
    if (!status.ok()) return Naming(shard, status);
    if (response.shard_index() != index || response.num_shards() != shards.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "directory ", shard.address, ": is shard ", response.shard_index(), " of ",
          response.num_shards(), ", was asked as shard ", index, " of ", shards.size()));
    }
    return response.nonce();
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(size_t index, const char* name, Method<Request, Response> method,
                               const Request& request, Deadline deadline) {
    PHALANX_ASSIGN_OR_RETURN(const std::string nonce, Nonce(index, deadline));
    grpc::ClientContext context;
    context.set_deadline(deadline);
    context.AddMetadata(kToolsProofKey, nonce + ToolsProof(options.secret, name, request, nonce));
    Response response;
    const grpc::Status status = ((*shards[index].stub).*method)(&context, request, &response);
    if (!status.ok()) return Naming(shards[index], status);
    return response;
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
  const Deadline deadline = impl_->NewDeadline();
  std::vector<absl::StatusOr<v1::GetStatusResponse>> answers;
  for (size_t i = 0; i < impl_->shards.size(); ++i) {
    answers.push_back(impl_->Ask<v1::GetStatusRequest, v1::GetStatusResponse>(
        i, "GetStatus", &v1::Tools::Stub::GetStatus, {}, deadline));
  }
  return answers;
}

absl::StatusOr<v1::DescribeObjectResponse> ToolsClient::Describe(const ObjectId& id) {
  v1::DescribeObjectRequest request;
  request.set_object_id(std::string(id.binary()));
  return impl_->Ask<v1::DescribeObjectRequest, v1::DescribeObjectResponse>(
      id.ShardHash() % impl_->shards.size(), "DescribeObject", &v1::Tools::Stub::DescribeObject,
      request, impl_->NewDeadline());
}

absl::StatusOr<v1::ListObjectsResponse> ToolsClient::List(const std::optional<ObjectId>& after,
                                                          uint32_t limit) {
  const Deadline deadline = impl_->NewDeadline();
  v1::ListObjectsRequest request;
  if (after.has_value()) request.set_after_object_id(std::string(after->binary()));
  request.set_limit(limit);
  std::vector<v1::ListObjectsResponse> lists;
  for (size_t i = 0; i < impl_->shards.size(); ++i) {
    PHALANX_ASSIGN_OR_RETURN(
        lists.emplace_back(),
        (impl_->Ask<v1::ListObjectsRequest, v1::ListObjectsResponse>(
            i, "ListObjects", &v1::Tools::Stub::ListObjects, request, deadline)));
  }
  return MergeLists(std::move(lists), limit);
}

v1::ListObjectsResponse MergeLists(std::vector<v1::ListObjectsResponse> lists, uint32_t limit) {
  // Beyond the last id of a shard that has more, that shard's objects are unknown.
  std::optional<std::string> known_to;
  std::vector<v1::ObjectSummary> all;
  for (v1::ListObjectsResponse& list : lists) {
    if (list.more() && list.objects_size() > 0) {
      const std::string& last = list.objects(list.objects_size() - 1).object_id();
      if (!known_to.has_value() || last < *known_to) known_to = last;
    }
    for (v1::ObjectSummary& object : *list.mutable_objects()) all.push_back(std::move(object));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.object_id() < b.object_id(); });
  v1::ListObjectsResponse merged;
  for (v1::ObjectSummary& object : all) {
    const bool known = !known_to.has_value() || object.object_id() <= *known_to;
    if (!known || merged.objects_size() == static_cast<int64_t>(limit)) {
      merged.set_more(true);
      return merged;
    }
    *merged.add_objects() = std::move(object);
  }
  merged.set_more(known_to.has_value());
  return merged;
}

}  // namespace phalanx::directory
