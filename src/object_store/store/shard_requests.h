// Requests of clients that an object's shard answers: Delete, Keep, Stat, Broadcast; and Drain,
// which all shards answer together.
//
//   Start ─► sent ─► reply ─► done
//             └─ a new session: sent again until the shard has answered
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_STORE_SHARD_REQUESTS_H_
#define PHALANX_OBJECT_STORE_STORE_SHARD_REQUESTS_H_

#include "phalanx/v1/directory.pb.h"
#include "src/common/time/executor.h"
#include "src/object_store/channel/shard_channel.h"
#include "src/object_store/objects/deleted_generations.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/objects/sticky_marks.h"
#include "src/object_store/store/get_requests.h"
#include "src/object_store/store/request_table.h"

namespace phalanx::object_store {

class ShardRequests {
 public:
  // All of them outlive this.
  ShardRequests(std::string node_name, Executor& executor, Turns& turns, RequestTable& requests,
                const ObjectTable& table, const GetRequests& gets, DeletedGenerations& deleted,
                StickyMarks& stickies, ShardChannel& channel);

  // ---- clients
  // Sends a request about its object to the object's shard, or fails it.
  template <typename Part>
  RequestId Start(ClientId client, const ObjectId& id, Instant deadline, Part part) {
    Request& request = requests_.New(client, id, deadline, std::move(part));
    Begin(request);
    return request.id;
  }
  // Ends a scope at every shard.
  RequestId StartEndScope(ClientId client, Scope scope, Instant deadline, StatusDone done);
  void StartDrain(Instant deadline, StatusDone done);
  // The request ends. The shard forgets the caller of a broadcast that it has not answered; after a
  // drain, another one can be requested.
  void Leave(const Request& request);
  // The error of an end of a scope, or of a drain, whose deadline has passed.
  static absl::Status EndScopeOverdue(const EndScopePart& part);
  absl::Status DrainOverdue(const DrainPart& drain) const;

  // ---- the shards
  // A new session: sends the requests again that the old one has not answered.
  void SendAgain(int shard);
  void OnDeleteReply(const v1::DeleteReply& reply);
  void OnDeleteWaiting(const v1::DeleteWaiting& waiting);
  void OnKeepReply(const v1::KeepReply& reply);
  void OnQueryReply(const v1::QueryReply& reply);
  void OnBroadcastReply(const v1::BroadcastReply& reply);
  void OnEndScopeReply(int shard, const v1::EndScopeReply& reply);
  void OnBroadcastBegun(int shard, const v1::BroadcastBegun& begun);
  void OnDrainStatus(int shard, const v1::DrainStatus& status);

 private:
  void Begin(Request& request);
  void Send(const Request& request);
  void SendEndScope(const Request& request, int shard);
  void SendDrain(int shard);
  ObjectStat LocalStat(const ObjectId& id) const;

  const std::string node_name_;
  Executor& executor_;
  Turns& turns_;
  RequestTable& requests_;
  const ObjectTable& table_;
  const GetRequests& gets_;
  DeletedGenerations& deleted_;
  StickyMarks& stickies_;
  ShardChannel& channel_;
  RequestId drain_ = 0;  // the open one
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_SHARD_REQUESTS_H_
