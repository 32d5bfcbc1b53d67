// The command line's queries to the directory: blocking calls over all shards, each with a
// deadline. A call queries all shards at the same time, so a shard on a dead host does not delay
// the others.
//
// Each call fetches a nonce and proves the secret over it. Use from one thread at a time; not on an
// event loop.
#ifndef PHALANX_DIRECTORY_GRPC_TOOLS_CLIENT_H_
#define PHALANX_DIRECTORY_GRPC_TOOLS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/v1/tools.pb.h"
#include "src/net/stream/byte_stream.h"

namespace phalanx::directory {

// The default limit of a list.
inline constexpr uint32_t kDefaultListed = 1000;

struct ToolsClientOptions {
  std::string cluster_id = "default";
  std::string secret;
  // The limit of one call of this class, for any number of shards.
  absl::Duration timeout = absl::Seconds(5);
};

class ToolsClient {
 public:
  // `shards`: the directory's addresses in order of their index. Connects at the first call.
  // REQUIRES: not empty.
  ToolsClient(std::vector<net::Address> shards, ToolsClientOptions options);
  ~ToolsClient();

  // Errors of all calls name the shard's address:
  //   Unavailable         the shard cannot be reached
  //   DeadlineExceeded    the shard did not answer in time
  //   FailedPrecondition  other protocol version, cluster id, or place among the shards;
  //                       the text names both sides' values
  //   PermissionDenied    another secret

  // One answer or error per shard, in their order.
  std::vector<absl::StatusOr<v1::GetStatusResponse>> GetStatus();

  // NotFound if the object's shard does not know the object.
  absl::StatusOr<v1::DescribeObjectResponse> Describe(const ObjectId& id);

  // The first `limit` objects (0: kDefaultListed) after `after` over all shards, in order of ids.
  // `more` is true if others can follow; `listed_to` is the `after` of the next call. A page can
  // have fewer than `limit` objects, even none, although others follow. The call
  // fails with the error of the first shard that fails.
  absl::StatusOr<v1::ListObjectsResponse> List(const std::optional<ObjectId>& after, uint32_t limit,
                                               bool with_deleted = true);

  // The first `limit` jobs of all shards in the order of their names; `more` if there are others.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(uint32_t limit);
  // NotFound if the job's shard does not know the job. A job can change between two of the requests
  // that one with more than 10,000 members takes.
  absl::StatusOr<v1::DescribeJobResponse> DescribeJob(const std::string& job);

  // Drains a node, and returns the number of its objects that no other node has yet, at all shards.
  // NotFound if a shard knows no node of this name; Unavailable also while a shard does not know
  // yet what the node has.
  absl::StatusOr<v1::DrainNodeResponse> DrainNode(const std::string& node);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Merges the shards' lists: in order of ids, up to the id to which all lists are known, at most
// `limit`.
v1::ListObjectsResponse MergeLists(std::vector<v1::ListObjectsResponse> lists, uint32_t limit);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_TOOLS_CLIENT_H_
