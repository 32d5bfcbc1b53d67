// What the command line asks the directory: blocking calls over all shards, each with a deadline.
// All shards are asked at once, so that one whose host is dead takes no time from the others.
//
// Each call fetches a nonce and shows the proof of the secret over it. Use from one thread at a
// time; not on an event loop.
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
#include "src/net/byte_stream.h"

namespace phalanx::directory {

// What a list has when nobody says how many.
inline constexpr uint32_t kDefaultListed = 1000;

struct ToolsClientOptions {
  std::string cluster_id = "default";
  std::string secret;
  // Of one call of this class, however many shards it asks.
  absl::Duration timeout = absl::Seconds(5);
};

class ToolsClient {
 public:
  // `shards`: the directory's addresses in order of their index. Connects when it is first asked.
  // REQUIRES: not empty.
  ToolsClient(std::vector<net::Address> shards, ToolsClientOptions options);
  ~ToolsClient();

  // Errors of all calls name the shard's address:
  //   Unavailable         it cannot be reached
  //   DeadlineExceeded    it did not answer in time
  //   FailedPrecondition  other protocol version, cluster id, or place among the shards;
  //                       both sides' values are named
  //   PermissionDenied    another secret

  // One answer or error per shard, in their order.
  std::vector<absl::StatusOr<v1::GetStatusResponse>> GetStatus();

  // NotFound when the object's shard does not know it.
  absl::StatusOr<v1::DescribeObjectResponse> Describe(const ObjectId& id);

  // The first `limit` objects (0: kDefaultListed) after `after` over all shards, in order of ids.
  // `more` says whether others may follow, `listed_to` after which id to go on; a page may have
  // fewer than `limit`, and none, and yet others follow. The first shard's error ends it.
  absl::StatusOr<v1::ListObjectsResponse> List(const std::optional<ObjectId>& after,
                                               uint32_t limit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Puts the shards' lists together: in order of ids, no further than all of them are known, at most
// `limit`.
v1::ListObjectsResponse MergeLists(std::vector<v1::ListObjectsResponse> lists, uint32_t limit);

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_GRPC_TOOLS_CLIENT_H_
