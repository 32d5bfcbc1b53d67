// The Gets of this node's clients: which of them wait for an object, which stream a partial copy,
// and the pins of the views that were handed out.
//
//             ┌────────────── complete copy ──────────────┐
//   Get ─┬─► waits ── partial copy, streaming ─► attached ┴─► view handed out, pinned ─► Release
//        │    ▲  ▲                                  │
//        │    │  └───────── the generation died ────┘  (on_void, then a new view)
//        └► parked: no lease on the object's name (ShardLeases)
//
// Invariants, checked by CheckInvariants
//  1. While Gets wait for an object, no complete copy of it is here.
//  2. While Gets wait for an object, it is wanted from its shard, or it is being written here.
//  3. Only objects with open Gets are wanted on behalf of clients.
//  4. A pin names a streaming Get only while that Get is open.
//  5. A parked Get is in no object's list. It begins again when the lease is back.
//
// Thread rule: the control loop only. Owned by the store.
#ifndef PHALANX_OBJECT_STORE_STORE_GET_REQUESTS_H_
#define PHALANX_OBJECT_STORE_STORE_GET_REQUESTS_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/common/time/executor.h"
#include "src/object_store/channel/shard_leases.h"
#include "src/object_store/objects/object_table.h"
#include "src/object_store/pulls/pull_manager.h"
#include "src/object_store/store/request_table.h"
#include "src/object_store/store/turns.h"

namespace phalanx::object_store {

class GetRequests {
 public:
  // All of them outlive this. `node_name` is for messages.
  GetRequests(std::string node_name, Executor& executor, Turns& turns, RequestTable& requests,
              ObjectTable& table, PullManager& pulls, int num_shards);

  // ---- clients; contracts as in Store
  // `refused`: not OK if the Get cannot even begin.
  RequestId Get(ClientId client, GetOptions options, GetEvents events,
                const absl::Status& refused = absl::OkStatus());
  absl::StatusOr<View> PinCopy(ClientId client, const ObjectId& object,
                               const Generation& generation);
  absl::Status Release(ClientId client, PinId pin, bool recycle);
  // Without calling back; what the Get would have got is released. REQUIRES: a Get.
  void Cancel(Request& request);
  // Drops all pins of a client whose requests have ended. `clean` as in Store::CloseClient.
  void CloseClient(Client& client, bool clean);
  // Drops a pin of the client. Returns false if the client does not hold it.
  bool Unpin(Client& client, PinId pin, bool recycle);
  // The error of a request whose deadline has passed.
  absl::Status DeadlineStatus(const Request& request) const;
  void Answer(Request& request, absl::StatusOr<View> result);
  // The Gets that were parked for the lease of this shard begin, if it is back.
  void Unpark(int shard);
  bool has_parked() const { return !parked_.empty(); }
  ShardLeases& leases() { return leases_; }
  // Calls back, outside of the request. REQUIRES: an open Get that was queued.
  void HandOut(RequestId id);

  // ---- what happens to copies
  // After a change to the object's copies or Gets: answers Gets, attaches streaming ones, and wants
  // the object from its shard or no longer wants it.
  void Resolve(const ObjectId& id);
  // The generation died: what its streaming readers read is void, and they wait again.
  void VoidReaders(Copy* copy, const absl::Status& why);
  // The copy is complete: its streaming Gets have got it.
  void EndReaders(Copy* copy);
  // A pull of the object has failed: the error of Gets whose deadline passes names the cause.
  void NoteFailure(const ObjectId& id, const absl::Status& failure);
  // Answers the Gets that wait for the object; `only_unless_lost`: those with `fail_when_lost`.
  void EndAll(const ObjectId& id, const absl::Status& why, bool only_unless_lost = false);

  // Ends the Gets that wait and that name the scope, or one with its name and a smaller number.
  void EndScope(const Scope& scope);

  // ---- lost objects
  void OnLost(const ObjectId& id, absl::string_view reason);
  // The shard knows of the object again.
  void ForgetLost(const ObjectId& id) { lost_.erase(id); }
  // A new session with the shard of these objects.
  template <typename Chosen>
  void ForgetLostOf(Chosen chosen) {
    absl::erase_if(lost_, [&chosen](const auto& lost) { return chosen(lost.first); });
  }

  // Those that are parked, wait or are attached.
  uint64_t open() const { return open_ + parked_.size(); }
  absl::Status CheckInvariants() const;

 private:
  // Gets for one object that have not ended.
  struct Gets {
    IntrusiveList<Request, &Request::of_object> list;
    size_t waiting = 0;            // those not attached
    size_t waiting_streaming = 0;  // of these, those that can stream a partial copy
    ObjectId near;                 // of the first of them
    ObjectName name;               // likewise
    Scope scope;                   // of the last of them that named one
    absl::Status failure;          // of the last pull that failed
  };

  // Answers the Get from a copy here, parks it, or has it wait. REQUIRES: admitted.
  void Start(Request& request);
  View MakeView(Request& request, Copy* copy);
  void CountWaiting(Gets& gets, const Request& request, int change);
  void Join(Request& request);
  void Leave(Request& request);
  void Erase(Request& request);
  // A partial copy that streaming Gets can read; null if there is none.
  Copy* StreamSource(const ObjectId& id) const;
  // The Get reads the partial copy from now on.
  void Attach(Request& request, Copy* copy);
  void UpdateWant(const ObjectId& id);
  std::vector<Request*> ReadersOf(const Copy* copy);
  // The view is not, or no longer, one whose Release ends the Get.
  void EndStreaming(ClientId client, PinId pin);

  const std::string node_name_;
  Executor& executor_;
  Turns& turns_;
  RequestTable& requests_;
  ObjectTable& table_;
  PullManager& pulls_;
  ShardLeases leases_;

  absl::flat_hash_map<ObjectId, std::unique_ptr<Gets>> gets_;
  // In the order in which they began.
  std::set<RequestId> parked_;
  // Those that name a scope and have not ended.
  std::set<RequestId> scoped_;
  uint64_t open_ = 0;
  // Why Gets for these wait: no copy is left. While a client here wants them.
  absl::flat_hash_map<ObjectId, absl::Status> lost_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_STORE_GET_REQUESTS_H_
